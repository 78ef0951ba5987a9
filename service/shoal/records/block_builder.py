"""`BlockBuilder`: the steps from typed columns to a block, which the JSON and the CSV decoder share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from shoal.policy import Policy
from shoal.records.block import Block, BoolVector, Float64Matrix, Int64Vector, Reason
from shoal.records.encoder import RecordEncoder
from shoal.records.subjects import SubjectHash, normaliser

__all__ = ["BlockBuilder", "Column", "ParsedRecords", "reject_unless", "to_mask"]

Column: TypeAlias = Sequence[Any]


@dataclass(slots=True, repr=False)
class ParsedRecords:
    """n records whose fields have the declared types, as columns.

    Attributes
    ----------
    index : ndarray of int64, shape (n,)
        Index of each record in the messages.
    values : ndarray of float64, shape (n, d)
        Quasi-identifiers; NaN or infinity where a value could not be read.
    subjects : sequence of length n, or None
        The subjects as read; None if every record belongs to a different person.
    passthrough : sequence of sequences
        One column per passthrough field: str, int, float, bool or None.
    """

    index: Int64Vector
    values: Float64Matrix
    subjects: Column | None
    passthrough: Sequence[Column]

    def __len__(self) -> int:
        return len(self.index)

    def filter(self, mask: BoolVector) -> ParsedRecords:
        """Return the records where the mask is true."""
        selectors = mask.tolist()
        return ParsedRecords(
            index=self.index[mask],
            values=self.values[mask],
            subjects=None if self.subjects is None else list(itertools.compress(self.subjects, selectors)),
            passthrough=[list(itertools.compress(column, selectors)) for column in self.passthrough],
        )


class BlockBuilder:
    """Checks values against the policy, hashes the subjects and encodes the passthrough fields.

    Parameters
    ----------
    policy : Policy
    encoder : RecordEncoder
        JsonEncoder of the output.
    hash_key : bytes or None
        Key of the subject hash; None uses one random key per process.
    max_bytes : int
        Maximum length of the encoded passthrough fields of a record.
    with_columns : bool
        Whether blocks also contain the passthrough fields as typed columns.
    """

    def __init__(
        self, policy: Policy, encoder: RecordEncoder, hash_key: bytes | None, max_bytes: int, *, with_columns: bool
    ) -> None:
        self._with_columns = with_columns
        self._encoder = encoder
        self._max_bytes = max_bytes
        self._hash = SubjectHash(hash_key)
        subject = policy.subject
        self._normalise = None if subject is None else normaliser(subject.type, subject.normalize)
        self._next_subject = 0
        attributes = policy.quasi_identifiers
        limits = np.array([a.limits for a in attributes], dtype=np.float64).reshape(-1, 2)
        self._low, self._high = limits.T.copy()
        self._rejects_outside = np.array([not a.clip for a in attributes], dtype=bool)
        self._is_integer = np.array([a.integer for a in attributes], dtype=bool)

    def build(self, candidates: ParsedRecords, rejected: list[tuple[int, Reason]]) -> Block:
        """Return the block. Records rejected here are added to ``rejected``, which is then sorted by index."""
        candidates = self._reject_invalid(candidates, rejected)
        passthrough = self._encoder.encode_passthrough(candidates.passthrough, len(candidates))
        if max(map(len, passthrough), default=0) > self._max_bytes:
            is_short = to_mask((len(fields) <= self._max_bytes for fields in passthrough), len(passthrough))
            candidates = reject_unless(is_short, candidates, Reason.TOO_LARGE, rejected)
            passthrough = list(itertools.compress(passthrough, is_short.tolist()))
        is_encodable = self._encoder.find_encodable(passthrough)
        if is_encodable is not None:
            candidates = reject_unless(to_mask(is_encodable, len(passthrough)), candidates, Reason.INVALID, rejected)
            passthrough = list(itertools.compress(passthrough, is_encodable))
        clipped = self._clip(candidates.values)
        rejected.sort(key=lambda entry: entry[0])
        return Block(
            values=candidates.values,
            subjects=self._hash_subjects(candidates),
            passthrough=passthrough,
            index=candidates.index,
            rejected=rejected,
            clipped=clipped,
            passthrough_columns=candidates.passthrough if self._with_columns else (),
        )

    def _reject_invalid(self, candidates: ParsedRecords, rejected: list[tuple[int, Reason]]) -> ParsedRecords:
        """Reject records with an invalid value or without a subject, and normalise the subjects."""
        is_valid = self._find_valid(candidates.values)
        if self._normalise is not None and candidates.subjects is not None:
            candidates.subjects = self._normalise(candidates.subjects)
            if "" in candidates.subjects:
                is_valid &= to_mask(map(bool, candidates.subjects), len(candidates))
        return reject_unless(is_valid, candidates, Reason.INVALID, rejected)

    def _find_valid(self, values: Float64Matrix) -> BoolVector:
        """Return which records are finite, integers where required, and within bounds that reject."""
        is_valid = np.asarray(np.isfinite(values).all(axis=1))
        if self._is_integer.any():
            integers = values[:, self._is_integer]
            is_valid &= (integers == np.rint(integers)).all(axis=1)
        if self._rejects_outside.any():
            is_outside = (values < self._low) | (values > self._high)
            is_valid &= ~(is_outside & self._rejects_outside).any(axis=1)
        return is_valid

    def _clip(self, values: Float64Matrix) -> int:
        """Move values to their bounds in place and return how many moved. No zero is negative afterwards."""
        clipped = int(np.count_nonzero((values < self._low) | (values > self._high)))
        if clipped:
            np.clip(values, self._low, self._high, out=values)
        values += 0.0
        return clipped

    def _hash_subjects(self, candidates: ParsedRecords) -> Int64Vector:
        if candidates.subjects is not None:
            return self._hash(candidates.subjects)
        first = self._next_subject
        self._next_subject += len(candidates)
        return np.arange(first, self._next_subject, dtype=np.int64)


def to_mask(answers: Iterable[bool], n: int) -> BoolVector:
    """Convert n truth values to an array."""
    return np.fromiter(answers, np.bool_, n)


def reject_unless(
    mask: BoolVector, candidates: ParsedRecords, reason: Reason, rejected: list[tuple[int, Reason]]
) -> ParsedRecords:
    """Return the candidates where the mask is true, and add the others to ``rejected``."""
    if mask.all():
        return candidates
    rejected += [(index, reason) for index in candidates.index[~mask].tolist()]
    return candidates.filter(mask)
