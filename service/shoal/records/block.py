"""Records as arrays, and the reasons for which a message never becomes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, compress
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["SLICE", "Block", "BoolVector", "Decoder", "Float64Matrix", "Int64Vector", "Reason", "in_slices"]

BoolVector: TypeAlias = NDArray[np.bool_]
Float64Matrix: TypeAlias = NDArray[np.float64]
Int64Vector: TypeAlias = NDArray[np.int64]
Message = TypeVar("Message")
Message_contra = TypeVar("Message_contra", contravariant=True)

SLICE = 512
"""Messages decoded at once: beyond about a thousand, their objects no longer fit the processor's cache."""


class Reason(StrEnum):
    """Why a record is not released. A closed list of coarse words: a finer one can tell a value."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    SUPPRESSED = "suppressed"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The n accepted records of some messages, and what became of the others.

    Attributes
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Quasi-identifiers in the policy's order and in their original units; finite, no negative zero, within
        the bounds of every attribute that has them.
    subjects : ndarray of int64, shape (n,)
        Keyed hash of the normalised subject; a running number where every record is a person of its own.
        Only equality means anything.
    passthrough : list of bytes, length n
        The kept fields of each record, written once in the form of the output. Opaque: for the encoder that
        the decoder was given.
    index : ndarray of int64, shape (n,), strictly increasing
        MessagePart of each accepted record among the messages.
    rejected : list of (int, Reason)
        MessagePart and reason of all the others, in order of place. Every message is in ``index`` or here.
    clipped : int
        Number of values that lay outside their bounds and were moved to them.
    passthrough_columns : sequence of sequences
        One column of length n per kept field as typed values, if the decoder was asked for them: tables measure what
        a partition says of confidential attributes. Else empty.
    """

    values: Float64Matrix
    subjects: Int64Vector
    passthrough: list[bytes]
    index: Int64Vector
    rejected: list[tuple[int, Reason]]
    clipped: int
    passthrough_columns: Sequence[Sequence[Any]] = ()

    def __len__(self) -> int:
        return len(self.passthrough)

    def filter(self, chosen: BoolVector) -> Block:
        """Those records for which the mask, of shape (n,), is true; what is told of the others stays."""
        return replace(
            self,
            values=self.values[chosen],
            subjects=self.subjects[chosen],
            passthrough=list(compress(self.passthrough, chosen.tolist())),
            index=self.index[chosen],
            passthrough_columns=[list(compress(column, chosen.tolist())) for column in self.passthrough_columns],
        )

    def slice(self, chosen: slice) -> Block:
        """Consecutive records of it; what is told of the others stays."""
        if chosen == slice(0, len(self)):
            return self
        return replace(
            self,
            values=self.values[chosen],
            subjects=self.subjects[chosen],
            passthrough=self.passthrough[chosen],
            index=self.index[chosen],
            passthrough_columns=[column[chosen] for column in self.passthrough_columns],
        )

    def __repr__(self) -> str:
        """Tell counts only: a block may end up in a traceback."""
        return f"Block(records={len(self)}, rejected={len(self.rejected)}, clipped={self.clipped})"


class Decoder(Protocol[Message_contra]):
    """Anything that makes records of messages."""

    def decode(self, messages: Sequence[Message_contra], /) -> Block:
        """Decode messages; a bad one costs nothing to the others."""
        ...


def in_slices(decode: Callable[..., Block], messages: Sequence[Message], *beside: Sequence[Any]) -> Block:
    """Decode at most `SLICE` messages at a time and put the blocks together.

    Parameters
    ----------
    decode : callable
        Makes a block of a slice; its places count from the slice's beginning.
    messages : sequence
        Any number of messages.
    *beside : sequence
        As long as ``messages``; cut in the same places and handed on with them.

    Returns
    -------
    Block
        As if decoded at once.
    """
    if len(messages) <= SLICE:
        return decode(messages, *beside)
    starts = range(0, len(messages), SLICE)
    blocks = [decode(*(part[start : start + SLICE] for part in (messages, *beside))) for start in starts]
    return Block(
        values=np.concatenate([block.values for block in blocks]),
        subjects=np.concatenate([block.subjects for block in blocks]),
        passthrough=[tail for block in blocks for tail in block.passthrough],
        index=np.concatenate([block.index + start for start, block in zip(starts, blocks, strict=True)]),
        rejected=[
            (start + place, reason)
            for start, block in zip(starts, blocks, strict=True)
            for place, reason in block.rejected
        ],
        clipped=sum(block.clipped for block in blocks),
        passthrough_columns=[
            list(chain.from_iterable(columns))
            for columns in zip(*(block.passthrough_columns for block in blocks), strict=True)
        ],
    )
