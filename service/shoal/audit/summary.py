"""Checks a summary against what the audit counted: it adds up and agrees with the files.

What the audit counted of a release, to be compared with its summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np

from shoal.audit.clusters import AdmissionLimits, BoolVector, RecomputedClusters
from shoal.audit.confidential import Figures
from shoal.audit.evidence import Summary, is_count
from shoal.audit.fields import Dropped
from shoal.audit.losses import SQUARES, Losses
from shoal.audit.originals import UNUSABLE, Originals, Refusal
from shoal.audit.reading import LARGEST_COUNT
from shoal.audit.verdict import CheckCounter, counted
from shoal.errors import InputError

__all__ = [
    "AuditedCounts",
    "check_summary",
    "count_release",
    "read_lines",
    "read_records",
    "reading_warnings",
    "refusal_bounds",
    "stated_suppressed",
]


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
    refused : mapping of str to (int, int)
        The same for each reason. Of a topic, or where nothing is known: empty.
    are_exact : bool
        Whether ``suppressed`` and ``held`` are the numbers themselves.
    dropped : mapping of str to int
        Messages that are dropped, by kind.
    losses : Losses or None
        None if they are not known.
    values : dict
        What the summary may state of confidential values (`measure_values`).
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
    refused: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    losses: Losses | None = None
    values: Figures = field(default_factory=dict)

    @property
    def compared(self) -> frozenset[str]:
        """The fields of a summary that are compared with these counts."""
        found = {"records_in", "records", "released", "suppressed", "quarantined", "held", "dropped", "clusters"}
        found |= {"cluster_size", "subjects", "share", "policy"} | {path[0] for path in self.values}
        if self.losses is not None:
            found |= {"loss"} if any(loss is not None for loss in self.losses.by_attribute.values()) else set()
            found |= {"sse", "sst"} if self.losses.sse is not None else set()
            found |= SQUARES if self.losses.sst else set()
            found |= {"mean_loss"} if self.losses.mean is not None else set()
            found |= {"clocks"} if self.losses.clocks is not None else set()
        return frozenset(found)

    def without_clusters(self) -> AuditedCounts:
        """Return the same without what is known of the clusters."""
        return replace(
            self,
            clusters=None,
            smallest=None,
            largest=None,
            fewest_subjects=None,
            largest_share=None,
            losses=None,
            values={},
        )


def count_release(
    originals: Originals,
    found: RecomputedClusters | None,
    limits: AdmissionLimits,
    *,
    rows: int,
    referenced_end: int,
    records_in: int | None,
) -> AuditedCounts:
    """Return what original, clusters and rows show.

    Parameters
    ----------
    originals : Originals
    found : RecomputedClusters or None
        None if the clusters are not known.
    limits : AdmissionLimits
    rows : int
        Number of released rows.
    referenced_end : int
        Lines up to the last one that is referenced.
    records_in : int or None
        Number of records that the summary counts as read.
    """
    released_end = 0 if found is None else found.is_released.rfind(1) + 1
    read_end = len(originals) if originals.is_export else max(referenced_end, released_end)
    is_released = None if found is None else found.is_released
    quarantined, by_reason = refusal_bounds(originals, limits, is_released, records_in)
    sizes = [] if found is None else [len(cluster.members) for cluster in found.clusters]
    return AuditedCounts(
        records=originals.records,
        reached=originals.records_of(read_end),
        rows=rows,
        clusters=None if found is None else found.count,
        smallest=min(sizes, default=None),
        largest=max(sizes, default=None),
        fewest_subjects=None if found is None else found.fewest_subjects,
        largest_share=None if found is None else found.largest_share,
        quarantined=quarantined,
        refused=by_reason,
        dropped={reason.value: len(originals.drops.get(reason, ())) for reason in Dropped},
    )


def refusal_bounds(
    originals: Originals, limits: AdmissionLimits, is_released: bytearray | None, records_in: int | None
) -> tuple[tuple[int, int] | None, dict[str, tuple[int, int]]]:
    """Return the fewest and the most records of a file that the run refused, and the same by reason.

    Unusable records and those that are too large are refused, and those near the limit may be. Nothing is known of a
    topic.
    """
    if originals.is_export:
        return None, {}
    most = len(originals) if records_in is None else originals.end_of(records_in)
    # A run that follows a file does not read a last record without end.
    fewest = most - 1 if records_in is None and not originals.is_ended else most
    is_unpublished = originals.subjects != UNUSABLE
    if is_released is not None:
        is_unpublished &= ~np.frombuffer(bytes(is_released), np.bool_)
    too_large, perhaps = limits.is_too_large & is_unpublished, limits.may_be_too_large & is_unpublished

    def bounds(is_certain: BoolVector, is_possible: BoolVector) -> tuple[int, int]:
        return int(np.count_nonzero(is_certain[:fewest])), int(np.count_nonzero(is_possible[:most]))

    unusable = originals.refusals
    by_reason = {
        reason.word: bounds(
            (unusable == reason) | (too_large & (reason is Refusal.TOO_LARGE)),
            ((unusable & reason) > 0) | (perhaps & (reason is Refusal.TOO_LARGE)),
        )
        for reason in Refusal
    }
    return bounds((unusable > 0) | too_large, (unusable > 0) | perhaps), by_reason


def read_records(summary: Summary) -> int | None:
    """Return the number of records that a summary counts as read; None if it does not say."""
    value = summary.get("records_in")
    return value if is_count(value) else None


def read_lines(summary: Summary, originals: Originals) -> int | None:
    """Return the number of first lines that hold the records which a summary counts as read; None as above."""
    records = read_records(summary)
    return None if records is None else originals.end_of(records)


_ACCOUNTED = ("records_in", "released", "suppressed", "quarantined", "held")
"""Fields with which a summary accounts for all records."""

_REFUSED = frozenset(reason.word for reason in Refusal)
"""Reasons for which a summary counts refused records."""

RELATIVE_TOLERANCE = 5e-4
"""Fractions of a summary may be rounded to four digits."""
ABSOLUTE_TOLERANCE = 1e-9
"""Rounding error of a loss near zero."""


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
    parts = [reader.total(key) for key in _ACCOUNTED[1:]]
    _check_totals(check, reader, parts, counts)
    for key, stated, found in _compared(reader, parts[0], counts):
        if stated is not None and found is not None:
            check.expect(_agrees(stated, found), key)
    for key, total, most in (("suppressed", parts[1], counts.suppressed), ("held", parts[3], counts.held)):
        if total is not None and most is not None:
            fewest = counts.certain if key == "suppressed" else 0
            check.expect(total == most if counts.are_exact else fewest <= total <= most, key)
    if parts[2] is not None and counts.quarantined is not None:
        fewest, most = counts.quarantined
        check.expect(fewest <= parts[2] <= most, "quarantined")
    _check_reasons(check, reader, counts)
    _check_scales(check, reader, counts)
    _check_values(check, reader, counts)
    for key in filter(reader.has_negative, _ACCOUNTED):
        check.fail(key)
    return check


def _check_reasons(check: CheckCounter, reader: _SummaryReader, counts: AuditedCounts) -> None:
    """Check the reasons of the records that were refused, and their numbers. Another word could hide a value."""
    reasons = reader.parts("quarantined")
    if reasons:
        check.expect(reasons <= _REFUSED, "quarantined, its reasons")
    for reason, (fewest, most) in counts.refused.items():
        stated = reader.number("quarantined", reason)
        if stated is not None:
            check.expect(fewest <= stated <= most, f"quarantined.{reason}")


def _check_scales(check: CheckCounter, reader: _SummaryReader, counts: AuditedCounts) -> None:
    """Check the numbers of dropped messages, the loss of each attribute in its own measure, and the clocks."""
    for key, most in counts.dropped.items():
        dropped = reader.number("dropped", key)
        if dropped is not None:
            fewest = most if counts.reached == counts.records else 0
            check.expect(fewest <= dropped <= most, f"dropped.{key}")
    for key, loss, stated in _stated_losses(reader, counts.losses):
        if stated is not None and loss is not None:
            check.expect(_is_near(stated, loss), key)
    clocks, told = None if counts.losses is None else counts.losses.clocks, reader.names("clocks")
    if clocks is not None and told is not None:
        check.expect(sorted(clocks) == sorted(told), "clocks")


def _check_values(check: CheckCounter, reader: _SummaryReader, counts: AuditedCounts) -> None:
    """Check what the summary states of confidential values, and ``d_x`` beside it."""
    figures = dict(counts.values)
    losses = counts.losses
    if losses is not None and losses.sse is not None and losses.sst:
        figures["d_x",] = (losses.sse / losses.sst,)
    for path, right in figures.items():
        number = reader.at(path)
        if number is not None:
            check.expect(any(_is_near(number, one) for one in right), ".".join(path))


def _is_near(number: float, right: float) -> bool:
    return abs(number - right) <= RELATIVE_TOLERANCE * abs(right) + ABSOLUTE_TOLERANCE


def _stated_losses(reader: _SummaryReader, losses: Losses | None) -> Iterator[tuple[str, float | None, float | None]]:
    """Yield field, recomputed number and stated number."""
    if losses is None:
        return
    for name, loss in losses.by_attribute.items():
        yield f"loss.{name}", loss, reader.number("loss", name)
    sse, sst = losses.sse, losses.sst
    relative = None if sse is None or not sst else 100 * sse / sst
    for key, total in (("mean_loss", losses.mean), ("sse", sse), ("sst", sst), ("information_loss", relative)):
        yield key, total, reader.measure(key)


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


def stated_suppressed(summary: Summary, name: str = "the summary") -> int | None:
    """Return the number of suppressed records of a summary that accounts for all records; None of any other."""
    reader = _SummaryReader(summary, name)
    if any(reader.total(key) is None for key in _ACCOUNTED):
        return None
    return reader.total("suppressed")


def reading_warnings(
    summary: Summary, originals: Originals, dropped: Sequence[str] = (), name: str = "the summary"
) -> list[str]:
    """Warn if a summary counts fewer records than there are, leaves counts out, or differs on refused messages.

    Parameters
    ----------
    summary : mapping
    originals : Originals
    dropped : sequence of str
        The kinds of messages that the policy drops.
    name : str
        What errors call the summary.
    """
    reader = _SummaryReader(summary, name)
    records_in, count = reader.total("records_in"), originals.records
    quarantined = reader.total("quarantined") if originals.is_export else None
    read = count if records_in is None else min(max(records_in, 0), count)
    warnings = []
    if read < count:
        warnings.append(
            f"the summary counts {read} of {counted(count, 'record')} as read; if the input has grown since, judge it "
            "as it was, or give --partial"
        )
    missing = [key for key in _ACCOUNTED if reader.total(key) is None]
    if records_in is not None and missing:
        warnings.append(f"the summary does not state {', '.join(missing)}, so it does not account for all records")
    unstated = [f"dropped.{kind}" for kind in dropped if reader.number("dropped", kind) is None]
    if unstated:
        warnings.append(
            f"the summary does not state {', '.join(unstated)}, though the policy drops such messages: their number is "
            "not compared"
        )
    unusable = originals.unusable_of(originals.end_of(read))
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

    def total(self, key: str) -> int | None:
        """Return a count, or the sum of counts by reason."""
        value = self._summary.get(key)
        if isinstance(value, Mapping):
            return sum(self._count(key, part) for part in value.values())
        return None if value is None else self._count(key, value)

    def parts(self, key: str) -> frozenset[str]:
        """Return the names of the parts of a count."""
        value = self._summary.get(key)
        return frozenset(value) if isinstance(value, Mapping) else frozenset()

    def has_negative(self, key: str) -> bool:
        """Whether a count, or a part of one, is negative."""
        value = self._summary.get(key)
        parts = value.values() if isinstance(value, Mapping) else () if value is None else (value,)
        return any(self._count(key, part) < 0 for part in parts)

    def number(self, group: str, key: str) -> float | None:
        """Return one number of a group of fields."""
        found = self._summary.get(group)
        value = found.get(key) if isinstance(found, Mapping) else None
        return None if value is None else self._number(f"{group}.{key}", value)

    def at(self, path: Sequence[str]) -> float | None:
        """Return one number inside fields of fields; None if the summary has none there."""
        value: object = self._summary
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return None if value is None or isinstance(value, Mapping) else self._number(".".join(path), value)

    def names(self, key: str) -> list[str] | None:
        """Return a list of names."""
        value = self._summary.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self._refuse(f"{key} must be a list of names")
        return value

    def measure(self, key: str) -> float | None:
        """Return one number."""
        value = self._summary.get(key)
        return None if value is None else self._number(key, value)

    def _count(self, key: str, value: object) -> int:
        if not is_count(value):
            self._refuse(f"{key} must be a whole number")
        return value

    def _number(self, key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= LARGEST_COUNT:
            self._refuse(f"{key} must be a number")
        return value

    def _refuse(self, reason: str) -> NoReturn:
        raise InputError(f"{self._name}: {reason}; give the file written by --summary")
