"""Reconciles quarantine and summary with what the audit counted.

Each record is released or referenced once. The summary adds up and agrees with the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from shoal.audit.evidence import ClaimedReference, Summary, is_count
from shoal.audit.originals import Originals
from shoal.audit.parsing import LARGEST_COUNT
from shoal.audit.verdict import CheckCounter
from shoal.errors import InputError

__all__ = ["AuditedCounts", "check_references", "check_summary", "reading_warnings"]

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
    """

    records: int
    reached: int
    rows: int
    clusters: int | None
    smallest: int | None
    largest: int | None
    fewest_subjects: int | None
    largest_share: float | None


def check_references(
    originals: Originals, is_released: bytearray | None, references: Iterable[ClaimedReference], *, complete: bool
) -> list[CheckCounter]:
    """Check the references of the quarantine.

    Parameters
    ----------
    originals : Originals
    is_released : bytearray or None
        1 for each released record; None if the clusters are not known.
    references : iterable of ClaimedReference
    complete : bool
        Whether every record must be released or referenced.

    Returns
    -------
    list of CheckCounter
        ``references``, ``reasons``, and ``complete`` if asked for.
    """
    valid = CheckCounter(
        "references", "references name existing records that were not released, each once", "reference"
    )
    wellformed = CheckCounter(
        "reasons", "references hold topic, partition, offset and one of four reasons, nothing else", "reference"
    )
    topics: set[str] = set()
    is_referenced = bytearray(len(originals))
    taken = is_referenced if is_released is None else is_released
    for number, reference in enumerate(references, 1):
        index = originals.find(reference.partition, reference.offset)
        valid.expect(index is not None and not taken[index] and not is_referenced[index], number)
        # A topic name of its own could carry a value of the record.
        topics.add(reference.topic)
        wellformed.expect(reference.is_wellformed and len(topics) == 1, number)
        if index is not None:
            is_referenced[index] = 1
    present = CheckCounter("complete", "every record was released or is referenced", "record")
    if is_released is None:
        valid.skip("which records were released is not known without evidence")
        present.skip(valid.skip_reason)
    elif complete:
        for index, found in enumerate(zip(is_released, is_referenced, strict=True)):
            if any(found) or index < len(originals) - 1 or originals.is_ended:
                present.expect(any(found), index)
            else:
                present.note = "the last record has no end: a run with --follow does not read it, so it is not missing"
    return [valid, wellformed, present] if complete else [valid, wellformed]


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
    records_in = reader.total("records_in")
    if records_in is not None and None not in parts:
        check.expect(records_in == sum(part for part in parts if part is not None), "records_in, the sum")
    if records_in is not None:
        # The file may have grown since the run read it.
        check.expect(counts.reached <= records_in <= counts.records, "records_in")
    records = reader.total("records")
    if records is not None:
        check.expect(records in {counts.rows, counts.records}, "records")
    mean_size = counts.rows / counts.clusters if counts.clusters else None
    compared: list[tuple[str, float | None, float | None]] = [
        ("released", parts[0], counts.rows),
        ("clusters", reader.total("clusters"), counts.clusters),
        ("cluster_size.min", reader.number("cluster_size", "min"), counts.smallest),
        ("cluster_size.max", reader.number("cluster_size", "max"), counts.largest),
        ("cluster_size.mean", reader.number("cluster_size", "mean"), mean_size),
        ("subjects.min", reader.number("subjects", "min"), counts.fewest_subjects),
        ("share.max", reader.number("share", "max"), counts.largest_share),
    ]
    for field, claimed, counted in compared:
        if claimed is not None and counted is not None:
            check.expect(_agrees(claimed, counted), field)
    return check


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


def _agrees(claimed: float, counted: float) -> bool:
    """Whether two numbers agree: counts exactly, fractions within rounding."""
    if isinstance(counted, int):
        return claimed == counted
    return abs(claimed - counted) <= RELATIVE_TOLERANCE * abs(counted)


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
