"""Checks the references of the quarantine.

Each must name an existing record that was not released, at most once, with a possible reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from shoal.audit.clusters import AdmissionLimits, BoolVector, Int64Vector
from shoal.audit.evidence import QuarantineReference
from shoal.audit.originals import UNKNOWN_TIMESTAMP, Originals, Refusal
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

__all__ = ["AuditedReferences", "check_references"]

MAX_AHEAD_MS = 3_600_000
"""A service rejects records with a timestamp more than this far ahead of its clock (ms)."""

_WITHIN_LIMIT = (
    "referenced as too large although within kafka.max_record_bytes: set it in the policy to the limit of the service"
)


@dataclass(slots=True)
class AuditedReferences:
    """The references of the quarantine, checked.

    Attributes
    ----------
    checks : list of CheckCounter
        ``references`` and ``reasons``.
    reasons : dict of int to str
        Reason of each referenced original, by its index.
    disputed : set of int
        Indices of usable records. Files show neither that the reason of their reference is right nor that it is wrong.
    ahead : set of int
        Indices of usable records that are claimed to be rejected for a timestamp too far ahead of the clock.
    claimed : Counter
        Numbers of records by what only the quarantine states. The texts follow the word "records", here and below.
    undecided : Counter
        Numbers of records by the file that would decide.
    """

    checks: list[CheckCounter]
    reasons: dict[int, str] = field(default_factory=dict)
    disputed: set[int] = field(default_factory=set)
    ahead: set[int] = field(default_factory=set)
    claimed: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)


def check_references(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    is_released: bytearray | None,
    references: Iterable[QuarantineReference],
) -> AuditedReferences:
    """Check the references of the quarantine.

    Parameters
    ----------
    policy : Policy
    originals : Originals
    limits : AdmissionLimits
    is_released : bytearray or None
        1 for each released record; None if the clusters are not known.
    references : iterable of QuarantineReference
    """
    valid = CheckCounter(
        "references", "references name existing records that were not released, each once", "reference"
    )
    fitting = CheckCounter(
        "reasons",
        "references hold topic, partition, offset and one of four reasons that the record allows, nothing else",
        "reference",
    )
    found = AuditedReferences([valid, fitting])
    examiner = _ReasonExaminer(policy, originals, limits, is_released, found)
    topics: set[str] = set()
    for number, reference in enumerate(references, 1):
        index = originals.find(reference.partition, reference.offset)
        is_free = index is not None and index not in found.reasons and not (is_released and is_released[index])
        valid.expect(is_free, number)
        # All references name one topic. A second name could hide a value.
        topics.add(reference.topic)
        is_wellformed = reference.is_wellformed and len(topics) == 1
        fitting.expect(is_wellformed and (index is None or examiner.allows(index, reference.reason)), number)
        if index is not None:
            found.reasons.setdefault(index, reference.reason)
    if is_released is None:
        valid.skip("which records were released is not known without evidence")
    return found


class _ReasonExaminer:
    """Compares the reason of a reference with the record."""

    def __init__(
        self,
        policy: Policy,
        originals: Originals,
        limits: AdmissionLimits,
        is_released: bytearray | None,
        found: AuditedReferences,
    ) -> None:
        self._originals, self._found = originals, found
        self._limits, self._is_dropped = limits, originals.is_dropped
        self._delta = 0 if policy.stream is None else policy.stream.delta
        count = len(originals)
        self._is_released = np.zeros(count, np.bool_)
        if is_released is not None:
            self._is_released |= np.frombuffer(bytes(is_released), np.bool_)
        self._logs: dict[int, _Log] = {}

    def allows(self, index: int, reason: str) -> bool:
        """Whether a record may be unpublished for this reason. Cases that files cannot decide are counted."""
        if self._is_dropped[index]:
            return False
        if not self._originals.is_usable(index):
            return self._allows_refusal(index, reason)
        if reason == "suppressed":
            return True
        if reason == "too_large":
            return bool(self._limits.is_too_large[index]) or self._may_be_too_large(index)
        # The record fits the policy. Only a service has a clock, and rejects what is too far ahead of it.
        return reason == "invalid" and self._originals.is_export and self._may_be_ahead(index)

    def _allows_refusal(self, index: int, reason: str) -> bool:
        """Whether a record that does not fit the policy may have been refused for this reason."""
        if Refusal.named(reason) & Refusal(int(self._originals.refusals[index])):
            return True
        if reason != "too_large" or not self._originals.is_export:
            return False
        self._found.undecided[_WITHIN_LIMIT] += 1
        return True

    def _may_be_too_large(self, index: int) -> bool:
        if self._limits.may_be_too_large[index]:
            self._dispute(
                index,
                "referenced as too large, and the original does not show their sizes: give an original with messages "
                "as texts, or set kafka.max_record_bytes to a larger limit",
            )
            return True
        if self._originals.is_export:
            self._dispute(index, _WITHIN_LIMIT)
        return self._originals.is_export

    def _dispute(self, index: int, text: str) -> None:
        self._found.disputed.add(index)
        self._found.undecided[text] += 1

    def _may_be_ahead(self, index: int) -> bool:
        """Whether the timestamp of a record may have been too far ahead of the clock.

        It is then later than the timestamps of all records that were released before it. If the timestamp is over an
        hour later than those of the records released next, the rejection is claimed. Otherwise it is disputed.
        """
        timestamp = int(self._originals.timestamps[index])
        if timestamp == UNKNOWN_TIMESTAMP:
            self._dispute(
                index,
                "referenced as invalid although usable: export the original with timestamps, which show whether they "
                "are too far ahead",
            )
            return True
        before, after = self._log_of(index).latest_around(int(self._originals.offsets[index]), self._delta)
        if timestamp <= before:
            return False
        if after is None or timestamp <= after + MAX_AHEAD_MS:
            self._dispute(
                index,
                "referenced as invalid although usable, with a timestamp at most an hour later than the "
                "timestamps of the records released next; one too far ahead of the clock is later than that: if no "
                "record was released next, export input and output again when some are",
            )
            return True
        self._found.ahead.add(index)
        self._found.claimed[
            "rejected for a timestamp too far ahead of the clock, as the quarantine states: files do not show the clock"
        ] += 1
        return True

    def _log_of(self, index: int) -> _Log:
        partition = int(self._originals.partitions[index])
        if partition not in self._logs:
            self._logs[partition] = _Log.of(self._originals, self._is_released, partition)
        return self._logs[partition]


@dataclass(frozen=True, slots=True)
class _Log:
    """The released records of one partition in the order of their offsets; `latest`: largest timestamp up to each."""

    offsets: Int64Vector
    timestamps: Int64Vector
    latest: Int64Vector

    @classmethod
    def of(cls, originals: Originals, is_released: BoolVector, partition: int) -> _Log:
        chosen = originals.by_partition[partition]
        chosen = chosen[is_released[chosen]]
        timestamps = originals.timestamps[chosen]
        return cls(originals.offsets[chosen], timestamps, np.maximum.accumulate(timestamps))

    def latest_around(self, offset: int, count: int) -> tuple[int, int | None]:
        """Return the latest timestamp before an offset, and the latest of the next ``count`` records, None if none."""
        position = int(np.searchsorted(self.offsets, offset))
        before = int(self.latest[position - 1]) if position else UNKNOWN_TIMESTAMP
        following = self.timestamps[position : position + count]
        return before, int(following.max()) if len(following) else None
