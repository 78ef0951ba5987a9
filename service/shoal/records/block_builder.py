"""The part of decoding that JSON and CSV share: from typed columns to a block."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from shoal.policy import Policy
from shoal.records.block import Block, BoolVector, Float64Matrix, Int64Vector, Reason
from shoal.records.subjects import SubjectHash, normaliser

__all__ = ["BlockBuilder", "Candidates", "Column", "TailWriter", "mask", "refuse"]

Column: TypeAlias = Sequence[Any]


class TailWriter(Protocol):
    """Anything that writes kept fields in the form of an output; every encoder does."""

    def encode_passthrough(self, columns: Sequence[Column], n: int, /) -> list[bytes]:
        """Write the kept fields of n records, given one column per kept field in the policy's order."""
        ...

    def can_encode(self, tails: Sequence[bytes], /) -> Sequence[bool] | None:
        """Tell which tails can be written in the output's encoding; None: all of them."""
        ...


@dataclass(slots=True, repr=False)
class Candidates:
    """Records whose types are right, column by column.

    ``index`` holds the place of each among the messages, ``values`` (n, d) float64 the quasi-identifiers (not
    finite where one could not be read), ``subjects`` the subject as read (None: every record is its own), ``kept``
    one column per kept field: str, int, float, bool or None.
    """

    index: Int64Vector
    values: Float64Matrix
    subjects: Column | None
    kept: Sequence[Column]

    def __len__(self) -> int:
        return len(self.index)

    def only(self, fit: BoolVector) -> Candidates:
        """Those for which the mask is true."""
        chosen = fit.tolist()
        return Candidates(
            index=self.index[fit],
            values=self.values[fit],
            subjects=None if self.subjects is None else list(itertools.compress(self.subjects, chosen)),
            kept=[list(itertools.compress(column, chosen)) for column in self.kept],
        )


class BlockBuilder:
    """Checks values against the policy, names the people, writes the tails.

    Parameters
    ----------
    policy : Policy
    writer : TailWriter
        The output's encoder.
    hash_key : bytes or None
        Key of the subject hash; None: one per process.
    max_bytes : int
        Longest tail.
    with_columns : bool
        Whether blocks shall hold the kept fields as typed values, too.
    """

    def __init__(
        self, policy: Policy, writer: TailWriter, hash_key: bytes | None, max_bytes: int, *, with_columns: bool = False
    ) -> None:
        self._keep = with_columns
        self._write_tails, self._fits = writer.encode_passthrough, writer.can_encode
        self._max_bytes = max_bytes
        self._hash = SubjectHash(hash_key)
        self._normalise = None if policy.subject is None else normaliser(policy.subject.type)
        self._next_subject = 0
        quasi = policy.quasi_identifiers
        bounds = np.array([a.limits for a in quasi], dtype=np.float64).reshape(-1, 2)
        self._low, self._high = bounds.T.copy()
        self._refuses = np.array([not a.clip for a in quasi], dtype=bool)
        self._integral = np.array([a.integer for a in quasi], dtype=bool)

    def block(self, candidates: Candidates, rejected: list[tuple[int, Reason]]) -> Block:
        """Make the block; those refused here are added to ``rejected``, which is then sorted."""
        fit = self._fitting(candidates.values)
        if self._normalise is not None and candidates.subjects is not None:
            candidates.subjects = self._normalise(candidates.subjects)
            if "" in candidates.subjects:
                fit &= mask(map(bool, candidates.subjects), len(candidates))
        candidates = refuse(candidates, fit, Reason.INVALID, rejected)
        tails = self._write_tails(candidates.kept, len(candidates))
        if max(map(len, tails), default=0) > self._max_bytes:
            short = mask((len(tail) <= self._max_bytes for tail in tails), len(tails))
            candidates = refuse(candidates, short, Reason.TOO_LARGE, rejected)
            tails = list(itertools.compress(tails, short.tolist()))
        writable = self._fits(tails)
        if writable is not None:
            candidates = refuse(candidates, mask(writable, len(tails)), Reason.INVALID, rejected)
            tails = list(itertools.compress(tails, writable))
        clipped = self._clip(candidates.values)
        rejected.sort(key=lambda place_and_reason: place_and_reason[0])
        return Block(
            candidates.values,
            self._subjects(candidates),
            tails,
            candidates.index,
            rejected,
            clipped,
            candidates.kept if self._keep else (),
        )

    def _fitting(self, values: Float64Matrix) -> BoolVector:
        """Which records hold finite values, integral where they must be, inside where they may not be clipped."""
        fit = np.asarray(np.isfinite(values).all(axis=1))
        if self._integral.any():
            must = values[:, self._integral]
            fit &= (must == np.rint(must)).all(axis=1)
        if self._refuses.any():
            outside = (values < self._low) | (values > self._high)
            fit &= ~(outside & self._refuses).any(axis=1)
        return fit

    def _clip(self, values: Float64Matrix) -> int:
        """Move values into their bounds, in place, and count them; no zero is negative afterwards."""
        clipped = int(np.count_nonzero((values < self._low) | (values > self._high)))
        if clipped:
            np.clip(values, self._low, self._high, out=values)
        values += 0.0
        return clipped

    def _subjects(self, candidates: Candidates) -> Int64Vector:
        if candidates.subjects is not None:
            return self._hash(candidates.subjects)
        first = self._next_subject
        self._next_subject += len(candidates)
        return np.arange(first, self._next_subject, dtype=np.int64)


def mask(answers: Iterable[bool], n: int) -> BoolVector:
    """Put n answers into an array."""
    return np.fromiter(answers, np.bool_, n)


def refuse(candidates: Candidates, fit: BoolVector, reason: Reason, rejected: list[tuple[int, Reason]]) -> Candidates:
    """Keep the fitting candidates and note the others."""
    if fit.all():
        return candidates
    rejected += [(place, reason) for place in candidates.index[~fit].tolist()]
    return candidates.only(fit)
