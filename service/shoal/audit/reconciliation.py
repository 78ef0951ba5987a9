"""Reconciles quarantine and summary with what the audit counted.

Each record is released or referenced once, for a reason that its contents allow. The summary adds up and agrees with
the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from shoal.audit.arrivals import BoolVector, Int64Vector, may_be_too_large
from shoal.audit.evidence import QuarantineReference, Summary, is_count
from shoal.audit.originals import UNKNOWN_TIMESTAMP, Originals
from shoal.audit.parsing import LARGEST_COUNT
from shoal.audit.verdict import CheckCounter
from shoal.errors import InputError
from shoal.policy import Policy

__all__ = [
    "AuditedCounts",
    "AuditedReferences",
    "check_references",
    "check_summary",
    "read_records",
    "reading_warnings",
    "stated_suppressed",
]

MAX_AHEAD_MS = 3_600_000
"""A service rejects records with a timestamp this far ahead of its clock (ms)."""

_ACCOUNTED = ("records_in", "released", "suppressed", "quarantined", "held")
"""Fields with which a summary accounts for all records."""

RELATIVE_TOLERANCE = 5e-4
"""Fractions of a summary may be rounded to four digits."""


@dataclass(frozen=True, slots=True)
class AuditedCounts:
    """What the audit counted; None where it could not.

    Attributes
    ----------
    records : int
        Records of the original.
    reached : int
        Records up to the last one that is released or referenced; of an exported topic all records.
    rows, clusters, smallest, largest : int
        Released rows, clusters, and the sizes of the smallest and the largest cluster.
    fewest_subjects : int
        Fewest subjects of a cluster.
    largest_share : float
        Largest share of one subject in a cluster.
    suppressed, held : int
        Largest numbers of records that the run can have suppressed and that it can still hold.
    are_exact : bool
        Whether ``suppressed`` and ``held`` are the numbers themselves.
    """

    records: int
    reached: int
    rows: int
    clusters: int | None
    smallest: int | None
    largest: int | None
    fewest_subjects: int | None
    largest_share: float | None
    suppressed: int | None = None
    held: int | None = None
    are_exact: bool = False


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
        Indices of usable records that are referenced as rejected, where the files do not show that this is possible.
    claimed, undecided : Counter
        Numbers of records by what only the run states, and by what would decide.
    """

    checks: list[CheckCounter]
    reasons: dict[int, str] = field(default_factory=dict)
    disputed: set[int] = field(default_factory=set)
    claimed: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)


def check_references(
    policy: Policy, originals: Originals, is_released: bytearray | None, references: Iterable[QuarantineReference]
) -> AuditedReferences:
    """Check the references of the quarantine.

    Parameters
    ----------
    policy : Policy
    originals : Originals
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
    examiner = _ReasonExaminer(policy, originals, is_released, found)
    topics: set[str] = set()
    for number, reference in enumerate(references, 1):
        index = originals.find(reference.partition, reference.offset)
        is_free = index is not None and index not in found.reasons and not (is_released and is_released[index])
        valid.expect(is_free, number)
        # A topic name of its own could carry a value of the record.
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
        self, policy: Policy, originals: Originals, is_released: bytearray | None, found: AuditedReferences
    ) -> None:
        self._originals, self._found = originals, found
        self._may_be_too_large = may_be_too_large(policy, originals)
        self._delta = 0 if policy.stream is None else policy.stream.delta
        count = len(originals)
        self._is_released = np.zeros(count, np.bool_)
        if is_released is not None:
            self._is_released |= np.frombuffer(bytes(is_released), np.bool_)
        self._logs: dict[int, _Log] = {}

    def allows(self, index: int, reason: str) -> bool:
        """Whether a record may be refused for this reason. What files cannot show is counted."""
        if reason == "suppressed" or not self._originals.is_usable(index):
            return True
        if reason == "too_large":
            return bool(self._may_be_too_large[index]) or self._allows_other_limit(index)
        # The record fits the policy. Only a service has a clock, and rejects what is too far ahead of it.
        return reason == "invalid" and self._originals.is_export and self._may_be_ahead(index)

    def _allows_other_limit(self, index: int) -> bool:
        if self._originals.is_export:
            self._dispute(
                index,
                "records are referenced as too large and are not: set kafka.max_record_bytes in the policy to the "
                "limit of the service",
            )
        return self._originals.is_export

    def _dispute(self, index: int, text: str) -> None:
        self._found.disputed.add(index)
        self._found.undecided[text] += 1

    def _may_be_ahead(self, index: int) -> bool:
        """Whether the timestamp of a record may have been too far ahead of the clock.

        It is then later than the timestamps of all records before it that were admitted. The records that were released
        next show the clock: a record more than an hour later than these is a claim, and any other is disputed.
        """
        timestamp = int(self._originals.timestamps[index])
        if timestamp == UNKNOWN_TIMESTAMP:
            self._dispute(
                index,
                "records that fit the policy are referenced as invalid: export the original with timestamps, which "
                "show whether they are too far ahead",
            )
            return True
        before, after = self._log_of(index).latest_around(int(self._originals.offsets[index]), self._delta)
        if timestamp <= before:
            return False
        if after is None or timestamp <= after + MAX_AHEAD_MS:
            self._dispute(
                index,
                "records that fit the policy are referenced as invalid, and their timestamps are not more than an hour "
                "later than those of the records released next, as those of records too far ahead of the clock are: "
                "if none was released after them, export input and output again when some are",
            )
            return True
        self._found.claimed[
            "records rejected for a timestamp too far ahead of the clock, as the quarantine states: files do not show "
            "the clock"
        ] += 1
        return True

    def _log_of(self, index: int) -> _Log:
        partition = int(self._originals.partitions[index])
        if partition not in self._logs:
            self._logs[partition] = _Log.of(self._originals, self._is_released, partition)
        return self._logs[partition]


@dataclass(frozen=True, slots=True)
class _Log:
    """The released records of one partition in the order of their offsets: offsets, timestamps, and latest so far."""

    offsets: Int64Vector
    timestamps: Int64Vector
    latest: Int64Vector

    @classmethod
    def of(cls, originals: Originals, is_released: BoolVector, partition: int) -> _Log:
        chosen = np.flatnonzero(is_released & (originals.partitions == partition))
        chosen = chosen[np.argsort(originals.offsets[chosen], kind="stable")]
        timestamps = originals.timestamps[chosen]
        return cls(originals.offsets[chosen], timestamps, np.maximum.accumulate(timestamps))

    def latest_around(self, offset: int, count: int) -> tuple[int, int | None]:
        """Return the latest timestamp before an offset, and that of the next ``count`` records; None without any."""
        place = int(np.searchsorted(self.offsets, offset))
        before = int(self.latest[place - 1]) if place else UNKNOWN_TIMESTAMP
        following = self.timestamps[place : place + count]
        return before, int(following.max()) if len(following) else None


def check_summary(summary: Summary, counts: AuditedCounts, name: str = "the summary") -> CheckCounter:
    """Check a summary against what was counted; fields that are null or missing are not compared.

    Parameters
    ----------
    summary : mapping
    counts : AuditedCounts
    name : str
        What errors call the summary.

    Raises
    ------
    InputError
        None of the fields is known, or one is not a number.
    """
    check = CheckCounter("accounts", "the summary adds up and agrees with the files", "field")
    if not summary.keys() & {"records_in", "records", "released", "clusters"}:
        raise InputError(f"{name}: none of its fields is known; give the file written by --summary")
    reader = _SummaryReader(summary, name)
    parts = [reader.total(field) for field in ("released", "suppressed", "quarantined", "held")]
    _check_totals(check, reader, parts, counts)
    for place, stated, counted in _compared(reader, parts[0], counts):
        if stated is not None and counted is not None:
            check.expect(_agrees(stated, counted), place)
    for place, total, most in (("suppressed", parts[1], counts.suppressed), ("held", parts[3], counts.held)):
        if total is not None and most is not None:
            check.expect(total == most if counts.are_exact else 0 <= total <= most, place)
    return check


def _check_totals(check: CheckCounter, reader: _SummaryReader, parts: list[int | None], counts: AuditedCounts) -> None:
    """Check the numbers of records read."""
    records_in = reader.total("records_in")
    if records_in is not None and None not in parts:
        check.expect(records_in == sum(part for part in parts if part is not None), "records_in, the sum")
    if records_in is not None:
        # The file may have grown since the run read it.
        check.expect(counts.reached <= records_in <= counts.records, "records_in")
    records = reader.total("records")
    if records is not None:
        check.expect(records in {counts.rows, counts.records}, "records")


def _compared(
    reader: _SummaryReader, released: int | None, counts: AuditedCounts
) -> list[tuple[str, float | None, float | None]]:
    """Return field, stated number and counted number."""
    mean_size = counts.rows / counts.clusters if counts.clusters else None
    return [
        ("released", released, counts.rows),
        ("clusters", reader.total("clusters"), counts.clusters),
        ("cluster_size.min", reader.number("cluster_size", "min"), counts.smallest),
        ("cluster_size.max", reader.number("cluster_size", "max"), counts.largest),
        ("cluster_size.mean", reader.number("cluster_size", "mean"), mean_size),
        ("subjects.min", reader.number("subjects", "min"), counts.fewest_subjects),
        ("share.max", reader.number("share", "max"), counts.largest_share),
    ]


def read_records(summary: Summary) -> int | None:
    """Return the number of records that a summary counts as read; None if it does not say."""
    value = summary.get("records_in")
    return value if is_count(value) else None


def stated_suppressed(summary: Summary, name: str = "the summary") -> int | None:
    """Return the number of suppressed records of a summary that accounts for all records; None of any other."""
    reader = _SummaryReader(summary, name)
    if any(reader.total(field) is None for field in _ACCOUNTED):
        return None
    return reader.total("suppressed")


def reading_warnings(summary: Summary, originals: Originals, name: str = "the summary") -> list[str]:
    """Warn if the run read fewer records than the file has, or refused another number than the audit does."""
    reader = _SummaryReader(summary, name)
    quarantined, records_in, count = reader.total("quarantined"), reader.total("records_in"), len(originals)
    read = count if records_in is None else min(max(records_in, 0), count)
    warnings = []
    if read < count:
        warnings.append(f"the summary counts {read} records read; the {count - read} that follow were not examined")
    unusable = read - originals.usable_of(read)
    if quarantined is not None and quarantined != unusable:
        warnings.append(
            f"the summary counts {quarantined} quarantined records; the audit finds {unusable} that do not fit the "
            "policy"
        )
    return warnings


def _agrees(stated: float, counted: float) -> bool:
    """Whether two numbers agree: counts exactly, fractions within rounding."""
    if isinstance(counted, int):
        return stated == counted
    return abs(stated - counted) <= RELATIVE_TOLERANCE * abs(counted)


class _SummaryReader:
    """Reads numbers of a summary."""

    def __init__(self, summary: Summary, name: str) -> None:
        self._summary, self._name = summary, name

    def total(self, field: str) -> int | None:
        """Return a count, or the sum of counts by reason."""
        value = self._summary.get(field)
        if isinstance(value, Mapping):
            return sum(self._count(field, part) for part in value.values())
        return None if value is None else self._count(field, value)

    def number(self, group: str, field: str) -> float | None:
        """Return one number of a group of fields."""
        found = self._summary.get(group)
        value = found.get(field) if isinstance(found, Mapping) else None
        return None if value is None else self._number(f"{group}.{field}", value)

    def _count(self, field: str, value: object) -> int:
        if not is_count(value):
            self._refuse(f"{field} must be a whole number")
        return value

    def _number(self, field: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= LARGEST_COUNT:
            self._refuse(f"{field} must be a number")
        return value

    def _refuse(self, reason: str) -> NoReturn:
        raise InputError(f"{self._name}: {reason}; give the file written by --summary")
