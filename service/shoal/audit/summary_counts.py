"""Checks a summary against what the audit counted: it adds up and agrees with the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from shoal.audit.arrivals import AdmissionLimits
from shoal.audit.evidence import Summary, is_count
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.parsing import LARGEST_COUNT
from shoal.audit.verdict import CheckCounter, counted
from shoal.errors import InputError

__all__ = [
    "AuditedCounts",
    "check_summary",
    "quarantine_bounds",
    "read_records",
    "reading_warnings",
    "stated_suppressed",
]

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
    certain : int
        Records that the run must have suppressed.
    quarantined : (int, int)
        Fewest and most records of a file that the run can have refused.
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
    certain: int = 0
    quarantined: tuple[int, int] | None = None


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
    parts = [reader.total(field) for field in _ACCOUNTED[1:]]
    _check_totals(check, reader, parts, counts)
    for field, stated, found in _compared(reader, parts[0], counts):
        if stated is not None and found is not None:
            check.expect(_agrees(stated, found), field)
    for field, total, most in (("suppressed", parts[1], counts.suppressed), ("held", parts[3], counts.held)):
        if total is not None and most is not None:
            fewest = counts.certain if field == "suppressed" else 0
            check.expect(total == most if counts.are_exact else fewest <= total <= most, field)
    if parts[2] is not None and counts.quarantined is not None:
        fewest, most = counts.quarantined
        check.expect(fewest <= parts[2] <= most, "quarantined")
    for field in filter(reader.has_negative, _ACCOUNTED):
        check.fail(field)
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


def quarantine_bounds(
    originals: Originals, limits: AdmissionLimits, is_released: bytearray | None, records_in: int | None
) -> tuple[int, int] | None:
    """Return the fewest and the most records of a file that the run refused; None for a topic.

    Unusable records and those that are too large are refused, and those near the limit may be.
    """
    if originals.is_export:
        return None
    count = len(originals)
    most = count if records_in is None else min(max(records_in, 0), count)
    # A run that follows a file does not read a last record without end.
    fewest = most - 1 if records_in is None and not originals.is_ended else most
    is_unpublished = originals.subjects != UNUSABLE
    if is_released is not None:
        is_unpublished &= ~np.frombuffer(bytes(is_released), np.bool_)
    too_large = int(np.count_nonzero((limits.is_too_large & is_unpublished)[:fewest]))
    perhaps = int(np.count_nonzero((limits.may_be_too_large & is_unpublished)[:most]))
    return fewest - originals.usable_of(fewest) + too_large, most - originals.usable_of(most) + perhaps


def reading_warnings(summary: Summary, originals: Originals, name: str = "the summary") -> list[str]:
    """Warn if a summary counts fewer records than there are, leaves counts out, or differs on refused messages."""
    reader = _SummaryReader(summary, name)
    records_in, count = reader.total("records_in"), len(originals)
    quarantined = reader.total("quarantined") if originals.is_export else None
    read = count if records_in is None else min(max(records_in, 0), count)
    warnings = []
    if read < count:
        warnings.append(
            f"the summary counts {read} of {counted(count, 'record')} as read; if the input has grown since, judge it "
            "as it was, or give --partial"
        )
    missing = [field for field in _ACCOUNTED if reader.total(field) is None]
    if records_in is not None and missing:
        warnings.append(f"the summary does not state {', '.join(missing)}, so it does not account for all records")
    unusable = read - originals.usable_of(read)
    if quarantined is not None and quarantined != unusable:
        warnings.append(
            f"the summary counts {counted(quarantined, 'quarantined record')}; the audit finds "
            f"{counted(unusable, 'record')} not fitting the policy"
        )
    return warnings


def _agrees(stated: float, found: float) -> bool:
    """Whether two numbers agree: counts exactly, fractions within rounding."""
    if isinstance(found, int):
        return stated == found
    return abs(stated - found) <= RELATIVE_TOLERANCE * abs(found)


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

    def has_negative(self, field: str) -> bool:
        """Whether a count, or a part of one, is negative."""
        value = self._summary.get(field)
        parts = value.values() if isinstance(value, Mapping) else () if value is None else (value,)
        return any(self._count(field, part) < 0 for part in parts)

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
