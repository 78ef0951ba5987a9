"""Checks a summary against what the audit counted: it adds up and agrees with the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from shoal.audit.audited_counts import AuditedCounts
from shoal.audit.evidence import Summary, is_count
from shoal.audit.losses import Losses
from shoal.audit.originals import Originals
from shoal.audit.parsing import LARGEST_COUNT
from shoal.audit.refusals import Refusal
from shoal.audit.verdict import CheckCounter, counted
from shoal.errors import InputError

__all__ = [
    "check_summary",
    "reading_warnings",
    "stated_suppressed",
]

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
    _check_reasons(check, reader, counts)
    _check_scales(check, reader, counts)
    _check_values(check, reader, counts)
    for field in filter(reader.has_negative, _ACCOUNTED):
        check.fail(field)
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
    for field, most in counts.dropped.items():
        dropped = reader.number("dropped", field)
        if dropped is not None:
            fewest = most if counts.reached == counts.records else 0
            check.expect(fewest <= dropped <= most, f"dropped.{field}")
    for field, loss, stated in _stated_losses(reader, counts.losses):
        if stated is not None and loss is not None:
            check.expect(_is_near(stated, loss), field)
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
    for field, total in (("mean_loss", losses.mean), ("sse", sse), ("sst", sst), ("information_loss", relative)):
        yield field, total, reader.measure(field)


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
    if any(reader.total(field) is None for field in _ACCOUNTED):
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
    missing = [field for field in _ACCOUNTED if reader.total(field) is None]
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

    def total(self, field: str) -> int | None:
        """Return a count, or the sum of counts by reason."""
        value = self._summary.get(field)
        if isinstance(value, Mapping):
            return sum(self._count(field, part) for part in value.values())
        return None if value is None else self._count(field, value)

    def parts(self, field: str) -> frozenset[str]:
        """Return the names of the parts of a count."""
        value = self._summary.get(field)
        return frozenset(value) if isinstance(value, Mapping) else frozenset()

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

    def at(self, path: Sequence[str]) -> float | None:
        """Return one number inside fields of fields; None if the summary has none there."""
        value: object = self._summary
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return None if value is None or isinstance(value, Mapping) else self._number(".".join(path), value)

    def names(self, field: str) -> list[str] | None:
        """Return a list of names."""
        value = self._summary.get(field)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self._refuse(f"{field} must be a list of names")
        return value

    def measure(self, field: str) -> float | None:
        """Return one number."""
        value = self._summary.get(field)
        return None if value is None else self._number(field, value)

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
