"""`Block`: decoded records as arrays, and the rejected messages with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import compress
from typing import Any, NamedTuple

from shoal.arrays import BoolVector, Float64Matrix, Int64Matrix, Int64Vector

__all__ = ["Block", "DropReason", "ProtectedValues", "Reason"]


class Reason(StrEnum):
    """Why a record is not released. The reasons are few and coarse, because a finer one could reveal a value."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    SUPPRESSED = "suppressed"
    TOO_LARGE = "too_large"


class DropReason(StrEnum):
    """Why a message is dropped: it is no record, and the policy says that such messages are not quarantined."""

    DELETES = "deletes"
    TOMBSTONES = "tombstones"


class ProtectedValues(NamedTuple):
    """The values of the q protected attributes of n records.

    Attributes
    ----------
    numbers : ndarray of int64, shape (n, q)
        Index of each value in ``keys``.
    keys : sequence of sequences of str or None
        The keys of the values of each attribute, each once, as of `ConfidentialKeys`.
    """

    numbers: Int64Matrix
    keys: Sequence[Sequence[str | None]]

    def select(self, records: BoolVector | slice) -> ProtectedValues:
        """Return the values of some records. The keys stay the same."""
        return ProtectedValues(self.numbers[records], self.keys)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The n accepted records of a sequence of messages, and the messages that are rejected or dropped.

    Attributes
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        One column per attribute of `Policy.clustered`. A number is in original units; a time is in ms since
        1970-01-01T00:00Z; an ordinal value is its rank, from 0; a nominal value is its index in ``categories``. A
        missing value of an attribute that may have one is NaN. All others are finite, none is a negative zero, and each
        is within the bounds of its attribute if it has bounds.
    subjects : ndarray of int64, shape (n,)
        Keyed hash of the normalised subject, or a running number if every record belongs to a different person. Only
        equality has a meaning.
    unchanged_fields : list of bytes, length n
        The unchanged fields of each record, encoded for the output by the encoder that the decoder was given. Only
        that encoder can interpret them.
    index : ndarray of int64, shape (n,), strictly increasing
        Index of each accepted record in the messages.
    rejected : list of (int, Reason)
        Index and reason of each rejected message, by increasing index.
    clipped : int
        Number of values that were outside their bounds and were moved to them.
    unchanged_columns : sequence of sequences
        One column of n typed values per unchanged field, if the decoder was created with ``with_columns``; else
        empty. Tables need them to measure how confidential values are distributed.
    categories : sequence of sequences of str
        One sequence per nominal attribute of `Policy.clustered`: the categories of this block, each once, as the texts
        of JSON scalars (``"M"`` with its quotation marks, ``true``, ``250``). Indices have a meaning within the block
        only.
    dropped : sequence of (int, DropReason)
        Index and reason of each dropped message, by increasing index. Every message is in ``index``, in ``rejected`` or
        here.
    protected : ProtectedValues or None
        The values of the protected attributes (`Policy.protected`) of a stream; None if there are none.
    """

    values: Float64Matrix
    subjects: Int64Vector
    unchanged_fields: list[bytes]
    index: Int64Vector
    rejected: list[tuple[int, Reason]]
    clipped: int
    unchanged_columns: Sequence[Sequence[Any]] = ()
    categories: Sequence[Sequence[str]] = ()
    dropped: Sequence[tuple[int, DropReason]] = ()
    protected: ProtectedValues | None = None

    def __len__(self) -> int:
        return len(self.unchanged_fields)

    def filter(self, mask: BoolVector) -> Block:
        """Return the records where the mask, of shape (n,), is true. ``rejected`` and ``clipped`` stay the same."""
        selectors = mask.tolist()
        return replace(
            self,
            values=self.values[mask],
            subjects=self.subjects[mask],
            unchanged_fields=list(compress(self.unchanged_fields, selectors)),
            index=self.index[mask],
            unchanged_columns=[list(compress(column, selectors)) for column in self.unchanged_columns],
            protected=None if self.protected is None else self.protected.select(mask),
        )

    def slice(self, records: slice) -> Block:
        """Return consecutive records. ``rejected`` and ``clipped`` stay the same."""
        if records == slice(0, len(self)):
            return self
        return replace(
            self,
            values=self.values[records],
            subjects=self.subjects[records],
            unchanged_fields=self.unchanged_fields[records],
            index=self.index[records],
            unchanged_columns=[column[records] for column in self.unchanged_columns],
            protected=None if self.protected is None else self.protected.select(records),
        )

    def __repr__(self) -> str:
        """Return counts only, because a block can appear in a traceback."""
        return f"Block(records={len(self)}, rejected={len(self.rejected)}, clipped={self.clipped})"
