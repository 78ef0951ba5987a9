"""Checks a summary: it adds up, and agrees with what the audit counted and recomputed.

Losses are recomputed from the original and the published values. The loss of a number or a time is the sum of squared
errors over the total sum of squares, of the members that have a value and whose cluster publishes one. That of an
ordinal attribute is the mean distance of ranks over the largest one, and that of a nominal attribute the mean distance
in the taxonomy, or the share of records whose category is not published. A missing value is at distance 1 from every
other.

In a stream, a time may be a clock: less than half of its total sum of squares is left if the mean of each window of
delta + 1 offsets of a partition is taken away. Then the sum of squared errors is over what is left, at most 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

import numpy as np

from shoal.audit.clusters import AdmissionLimits, RecomputedClusters
from shoal.audit.confidential import Figures
from shoal.audit.evidence import REASONS, Summary, is_count
from shoal.audit.fields import FIELD_SEPARATOR, Dropped
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.reading import LARGEST_COUNT
from shoal.audit.scales import Categories, PublishedValues
from shoal.audit.verdict import CheckCounter, counted
from shoal.errors import InputError
from shoal.policy import Scale

__all__ = [
    "AuditedCounts",
    "check_summary",
    "count_release",
    "measure_losses",
    "read_lines",
    "read_records",
    "reading_warnings",
    "stated_suppressed",
]

_ACCOUNTED = ("records_in", "released", "suppressed", "quarantined", "held")
"""Fields with which a summary accounts for all records."""
RELATIVE_TOLERANCE = 5e-4
"""Fractions of a summary may be rounded to four digits."""
ABSOLUTE_TOLERANCE = 1e-9
"""Rounding error of a loss near zero."""
SQUARES = frozenset({"sse", "sst", "information_loss", "d_x"})
"""Fields of a summary that follow from the sums of squares on z-scores."""
MIN_RELATIVE_VARIANCE = 1e-20
"""Of values with a smaller variance, relative to their mean square, the total sum of squares is not compared."""
HALF_TOLERANCE = 1e-6
"""If this share around one half of the sum of squares is left, rounding decides whether a time is a clock."""


@dataclass(frozen=True, slots=True)
class AuditedCounts:
    """What the audit counted; None where it could not.

    - ``reached``: records up to the last one that is released or referenced; of an exported topic all records.
    - ``suppressed``, ``held``: largest numbers of records that the run can have suppressed and that it can still hold.
    - ``quarantined``: fewest and most records of a file that the run can have refused.
    - ``are_exact``: whether ``suppressed`` and ``held`` are the numbers themselves.
    - ``values``: what the summary may state of confidential values.
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

    ``referenced_end``: lines up to the last one that is referenced. ``records_in``: number of records that the summary
    counts as read.
    """
    released_end = 0 if found is None else found.is_released.rfind(1) + 1
    read_end = len(originals) if originals.is_export else max(referenced_end, released_end)
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
        quarantined=refused_bounds(originals, limits, None if found is None else found.is_released, records_in),
        dropped={reason.value: len(originals.drops.get(reason, ())) for reason in Dropped},
    )


def refused_bounds(
    originals: Originals, limits: AdmissionLimits, is_released: bytearray | None, records_in: int | None
) -> tuple[int, int] | None:
    """Return the fewest and the most records of a file that the run refused. Nothing is known of a topic.

    Unusable records and those that are too large are refused, and those near the limit may be.
    """
    if originals.is_export:
        return None
    most = len(originals) if records_in is None else originals.end_of(records_in)
    # A run that follows a file does not read a last record without end.
    fewest = most - 1 if records_in is None and not originals.is_ended else most
    is_unpublished = np.ones(len(originals), np.bool_)
    if is_released is not None:
        is_unpublished &= ~np.frombuffer(bytes(is_released), np.bool_)
    unusable = (originals.subjects == UNUSABLE) & ~originals.is_dropped
    is_certain = unusable | (limits.is_too_large & is_unpublished)
    is_possible = unusable | (limits.may_be_too_large & is_unpublished)
    return int(np.count_nonzero(is_certain[:fewest])), int(np.count_nonzero(is_possible[:most]))


def read_records(summary: Summary) -> int | None:
    """Return the number of records that a summary counts as read; None if it does not say."""
    value = summary.get("records_in")
    return value if is_count(value) else None


def read_lines(summary: Summary, originals: Originals) -> int | None:
    """Return the number of first lines that hold the records which a summary counts as read; None as above."""
    records = read_records(summary)
    return None if records is None else originals.end_of(records)


def check_summary(summary: Summary, counts: AuditedCounts, name: str = "the summary") -> CheckCounter:
    """Check a summary against what was counted; fields that are null or missing are not compared."""
    check = CheckCounter("accounts", "the summary adds up and agrees with the files", "field")
    if not summary.keys() & {"records_in", "records", "released", "clusters"}:
        raise InputError(f"{name}: none of its fields is known; give the file written by --summary")
    reader = _SummaryReader(summary, name)
    stated = {key: reader.total(key) for key in _ACCOUNTED}
    known = [total for total in stated.values() if total is not None]
    if len(known) == len(stated):
        check.expect(2 * known[0] == sum(known), "records_in, the sum")
    for key, number, bounds in _bounds(reader, stated, counts):
        if number is not None and bounds is not None:
            check.expect(bounds[0] <= number <= bounds[1], key)
    for path, right in _figures(counts).items():
        figure = reader.at(path)
        if figure is not None:
            check.expect(any(_agrees(figure, one) for one in right), ".".join(path))
    _check_names(check, reader, counts)
    for key in filter(reader.has_negative, _ACCOUNTED):
        check.fail(key)
    return check


def stated_suppressed(summary: Summary, name: str = "the summary") -> int | None:
    """Return the number of suppressed records of a summary that accounts for all records; None of any other."""
    reader = _SummaryReader(summary, name)
    if any(reader.total(key) is None for key in _ACCOUNTED):
        return None
    return reader.total("suppressed")


def reading_warnings(
    summary: Summary, originals: Originals, dropped: Sequence[str] = (), name: str = "the summary"
) -> list[str]:
    """Warn if a summary counts fewer records than there are, leaves counts out, or differs on refused messages."""
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
    unstated = [f"dropped.{kind}" for kind in dropped if reader.at(("dropped", kind)) is None]
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


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of a release.

    - ``by_attribute``: loss of each quasi-identifier in its own measure; None if it has none or is not known.
    - ``sse``, ``sst``: sums of squares on z-scores (ddof = 0) of the numbers and times that vary; None without numbers
      and times, or if one of them hardly varies.
    - ``mean``: mean of the losses of attributes that have one; None if one of them is not known, or none has one.
    - ``clocks``: times of which a trend is removed; None of a table, and if it is not known of all times.
    """

    by_attribute: dict[str, float | None]
    sse: float | None
    sst: float | None
    mean: float | None = None
    clocks: list[str] | None = None


def measure_losses(
    summary: Summary,
    originals: Originals,
    found: RecomputedClusters | None,
    published: Sequence[PublishedValues],
    window: int | None,
) -> Losses | None:
    """Return the losses; None if the clusters are not known, or the summary states no loss. Cost: O(n d).

    ``window``: as of `AuditScope`. A summary without ``clocks`` is of an earlier version, which removed no trend.
    """
    if found is None or summary.keys().isdisjoint({"loss", "mean_loss", "clocks", *SQUARES}):
        return None
    window = window if "clocks" in summary else None
    clusters = found.clusters
    members = [np.array(cluster.members) for cluster in clusters]
    texts = [cluster.quasi.split(FIELD_SEPARATOR) for cluster in clusters]
    losses: dict[str, float | None] = {}
    squares: list[_Squares | None] = []
    clocks: dict[str, bool | None] = {}
    for column, one in enumerate(published):
        shown, name = [own[column] for own in texts], one.attribute.name
        values = [originals.values[own, column] for own in members]
        if not one.has_moments:
            categories = originals.categories[column] if originals.categories else None
            losses[name] = _mean_distance(one, values, shown, categories) if clusters else None
            continue
        numbers = [one.number_of(text) for text in shown]
        own_squares = _squares(values, numbers)
        squares.append(own_squares)
        total = 0.0 if own_squares is None else own_squares.total
        if window is not None and one.attribute.scale is Scale.TIME:
            left = _left_after_trend(originals, members, values, numbers, window)
            clocks[name] = _is_clock(left, own_squares)
            total = left if clocks[name] else total
        is_known = own_squares is not None and clocks.get(name, False) is not None
        loss = own_squares.error / total if own_squares is not None and is_known and total else None
        losses[name] = min(loss, 1.0) if loss is not None and clocks.get(name) else loss
    are_clocks_known, known = None not in clocks.values(), [loss for loss in losses.values() if loss is not None]
    is_mean_known = bool(known) and None not in squares and are_clocks_known
    return Losses(
        losses,
        *_sums(squares),
        mean=sum(known) / len(known) if is_mean_known else None,
        clocks=[name for name, is_one in clocks.items() if is_one] if window is not None and are_clocks_known else None,
    )


def _bounds(
    reader: _SummaryReader, stated: Mapping[str, int | None], counts: AuditedCounts
) -> Iterator[tuple[str, float | None, tuple[int, int] | None]]:
    """Yield a field, its number, and the fewest and the most that it may state."""
    # The file may have grown since the run read it.
    yield "records_in", stated["records_in"], (counts.reached, counts.records)
    yield "released", stated["released"], (counts.rows, counts.rows)
    for key, fewest, most in (("suppressed", counts.certain, counts.suppressed), ("held", 0, counts.held)):
        yield key, stated[key], None if most is None else (most if counts.are_exact else fewest, most)
    yield "quarantined", stated["quarantined"], counts.quarantined
    for key, most in counts.dropped.items():
        yield f"dropped.{key}", reader.at(("dropped", key)), (most if counts.reached == counts.records else 0, most)


def _check_names(check: CheckCounter, reader: _SummaryReader, counts: AuditedCounts) -> None:
    """Check the names of reasons and clocks."""
    if reasons := reader.parts("quarantined"):
        check.expect(reasons <= REASONS - {"suppressed"}, "quarantined, its reasons")
    clocks, told = None if counts.losses is None else counts.losses.clocks, reader.names("clocks")
    if clocks is not None and told is not None:
        check.expect(sorted(clocks) == sorted(told), "clocks")


def _figures(counts: AuditedCounts) -> Figures:
    """Return the numbers that the summary may state of clusters, losses and confidential values."""
    found: dict[tuple[str, ...], float | None] = {
        ("clusters",): counts.clusters,
        ("cluster_size", "min"): counts.smallest,
        ("cluster_size", "max"): counts.largest,
        ("cluster_size", "mean"): counts.rows / counts.clusters if counts.clusters else None,
        ("subjects", "min"): counts.fewest_subjects,
        ("share", "max"): counts.largest_share,
    }
    losses = counts.losses
    if losses is not None:
        share = None if losses.sse is None or not losses.sst else losses.sse / losses.sst
        found |= {("loss", name): loss for name, loss in losses.by_attribute.items()}
        found |= {("mean_loss",): losses.mean, ("sse",): losses.sse, ("sst",): losses.sst}
        found |= {("information_loss",): None if share is None else 100 * share, ("d_x",): share}
    numbers = {path: (number,) for path, number in found.items() if number is not None}
    return {("records",): (counts.rows, counts.records)} | numbers | counts.values


def _agrees(stated: float, found: float) -> bool:
    """Whether two numbers agree: counts exactly, fractions within rounding."""
    if isinstance(found, int):
        return stated == found
    return abs(stated - found) <= RELATIVE_TOLERANCE * abs(found) + ABSOLUTE_TOLERANCE


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


class _Squares(NamedTuple):
    """Squared error, total sum of squares, and number of values; all are 0 if the values are equal."""

    error: float
    total: float
    members: int


def _sums(squares: Sequence[_Squares | None]) -> tuple[float | None, float | None]:
    """Return the sums of squares on z-scores; None without numbers and times, or if one of them hardly varies."""
    known = [square for square in squares if square is not None]
    if not known or len(known) < len(squares):
        return None, None
    sse = sum(square.error / square.total * square.members for square in known if square.members)
    return sse, float(sum(square.members for square in known))


def _squares(values: Sequence[np.ndarray], shown: Sequence[float]) -> _Squares | None:
    """Return the sums of the members that have a value in clusters that publish one; None if they hardly differ."""
    pairs = [(own[~np.isnan(own)], number) for own, number in zip(values, shown, strict=True) if not math.isnan(number)]
    every = np.concatenate([own for own, _ in pairs]) if pairs else np.zeros(0)
    if not len(every) or every.min() == every.max():
        return _Squares(0.0, 0.0, 0)
    errors = np.concatenate([own - number for own, number in pairs])
    total = float(np.sum((every - every.mean()) ** 2))
    # Of nearly equal values, the sum of squares is a rounding error.
    is_varied = total > MIN_RELATIVE_VARIANCE * float(np.sum(every**2))
    return _Squares(float(np.sum(errors**2)), total, len(every)) if is_varied else None


def _left_after_trend(
    originals: Originals,
    members: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    shown: Sequence[float],
    window: int,
) -> float:
    """Return the squared deviations of times from the means of their windows, in whole numbers but for the last step.

    ``members``, ``values``: of each cluster: indices of its members and their times (whole milliseconds). ``shown``:
    what each cluster publishes; NaN if it is missing.
    """
    times: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for indices, own, number in zip(members, values, shown, strict=True):
        known = ~np.isnan(own) if not math.isnan(number) else np.zeros(len(own), np.bool_)
        places = indices[known]
        windows = originals.offsets[places] // window
        found = zip(originals.partitions[places].tolist(), windows.tolist(), own[known].tolist(), strict=True)
        for partition, number_of_window, time in found:
            times[partition, number_of_window].append(int(time))
    return float(sum((len(own) * sum(one * one for one in own) - sum(own) ** 2) / len(own) for own in times.values()))


def _is_clock(left: float, squares: _Squares | None) -> bool | None:
    """Return whether less than half of the sum of squares is left after the trend; None if that is not known."""
    if squares is None or (squares.total and abs(2 * left - squares.total) <= HALF_TOLERANCE * squares.total):
        return None
    return 2 * left < squares.total


def _mean_distance(
    one: PublishedValues, values: Sequence[np.ndarray], shown: Sequence[str], categories: Categories | None
) -> float:
    total, count = 0.0, 0
    for own, text in zip(values, shown, strict=True):
        count += len(own)
        total += one.total_distance(own.tolist(), text, categories)
    return total / count
