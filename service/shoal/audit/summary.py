"""Checks a summary: it adds up, and agrees with what the audit counted and recomputed.

The loss of a number or a time is the sum of squared errors over the total sum of squares, of the members that have a
value and whose cluster publishes one. That of a rank or a category is the mean of distances in [0, 1], where a missing
value is at distance 1 from every other.

In a stream, a time may be a clock: less than half of its total sum of squares is left if the mean of each window of
delta + 1 offsets of a partition is taken away. Then the sum of squared errors is over what is left, at most 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.audit.clusters import AdmissionLimits, BoolVector, RecomputedClusters, members_of
from shoal.audit.confidential import Figures
from shoal.audit.evidence import REASONS, Summary, is_count
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.reading import LARGEST_COUNT
from shoal.audit.scales import JUDGED_SCALES, PublishedValues
from shoal.audit.verdict import CheckCounter, counted
from shoal.errors import InputError

Float64Vector: TypeAlias = npt.NDArray[np.float64]
_ACCOUNTED = ("records_in", "released", "suppressed", "quarantined", "held")
"""Fields with which a summary accounts for all records."""
_COUNTED = {*_ACCOUNTED, "records", "dropped", "clusters", "cluster_size", "subjects", "share", "policy"}
"""Fields that are compared as far as the clusters are known."""
RELATIVE_TOLERANCE = 5e-4  # fractions of a summary may be rounded to four digits
ABSOLUTE_TOLERANCE = 1e-9  # rounding error of a loss near zero
SQUARES = frozenset({"sse", "sst", "information_loss", "d_x"})
"""Fields of a summary that follow from the sums of squares on z-scores."""
MIN_RELATIVE_VARIANCE = 1e-20
"""Of values with a smaller variance, relative to their mean square, the total sum of squares is not compared."""
HALF_TOLERANCE = 1e-6
"""If this share around one half of the sum of squares is left, rounding decides whether a time is a clock."""


@dataclass(frozen=True, slots=True)
class AuditedCounts:
    """What the audit counted; None where it could not."""

    records: int
    reached: int  # records up to the last one that is released or referenced; of an exported topic all
    rows: int
    clusters: RecomputedClusters | None
    quarantined: tuple[int, int] | None  # fewest and most records of a file that the run can have refused
    dropped: Mapping[str, int]
    suppressed: int | None  # the most, as of ``held``, unless ``are_exact``
    held: int | None
    are_exact: bool
    certain: int  # the fewest that were suppressed
    losses: Losses | None
    values: Figures = field(default_factory=dict)

    @property
    def compared(self) -> frozenset[str]:
        """The fields of a summary that are compared with these counts."""
        clocks = {"clocks"} if self.losses is not None and self.losses.clocks is not None else set()
        return frozenset(_COUNTED | {path[0] for path in _figures(self)} | clocks)


def refused_bounds(
    originals: Originals, limits: AdmissionLimits, is_released: BoolVector | None, records_in: int | None
) -> tuple[int, int] | None:
    """Return the fewest and the most records of a file that the run refused; of a topic nothing is known."""
    if originals.is_export:
        return None
    most = len(originals) if records_in is None else originals.end_of(records_in)
    # A run that follows a file does not read a last record without end.
    fewest = most - 1 if records_in is None and not originals.is_ended else most
    is_unpublished = np.ones(len(originals), np.bool_) if is_released is None else ~is_released
    unusable = (originals.subjects == UNUSABLE) & ~originals.is_dropped
    is_certain = unusable | (limits.is_too_large & is_unpublished)
    is_possible = unusable | (limits.may_be_too_large & is_unpublished)
    return int(np.count_nonzero(is_certain[:fewest])), int(np.count_nonzero(is_possible[:most]))


def read_records(summary: Summary) -> int | None:
    """Return the number of records that a summary counts as read; None if it does not say."""
    value = summary.get("records_in")
    return value if is_count(value) else None


def check_summary(summary: Summary, counts: AuditedCounts, name: str = "the summary") -> CheckCounter:
    """Check a summary against what was counted; fields that are null or missing are not compared."""
    check = CheckCounter("accounts", "the summary adds up and agrees with the files", "field")
    if not summary.keys() & {"records_in", "records", "released", "clusters"}:
        raise InputError(f"{name}: none of its fields is known; give the file written by --summary")
    reader = _SummaryReader(summary, name)
    stated = {key: reader.total(key) for key in _ACCOUNTED}
    if None not in stated.values():
        check.expect(2 * (stated["records_in"] or 0) == sum(filter(None, stated.values())), "records_in, the sum")
    for key, number, bounds in _bounds(reader, stated, counts):
        if number is not None and bounds is not None:
            check.expect(bounds[0] <= number <= bounds[1], key)
    for path, right in _figures(counts).items():
        figure = reader.at(path)
        if figure is not None:
            check.expect(any(_agrees(figure, one) for one in right), ".".join(path))
    _check_parts(check, reader, counts)
    return check


def stated_suppressed(summary: Summary, name: str = "the summary") -> int | None:
    """Return the number of suppressed records of a summary that accounts for all records; None of any other."""
    totals = {key: _SummaryReader(summary, name).total(key) for key in _ACCOUNTED}
    return None if None in totals.values() else totals["suppressed"]


def reading_warnings(summary: Summary, originals: Originals, dropped: Sequence[str], name: str) -> list[str]:
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
    """The loss of a release."""

    by_attribute: dict[str, float | None]  # in the measure of the attribute; None if it has no loss or is not known
    sse: float | None  # sums of squares on z-scores (ddof = 0); None without numbers and times, or if one hardly varies
    sst: float | None
    mean: float | None = None  # None if the loss of an attribute is not known, or none has one
    clocks: list[str] | None = None  # times of which a trend is removed; None of a table, or if it is not known of all


def measure_losses(
    summary: Summary,
    originals: Originals,
    found: RecomputedClusters | None,
    published: Sequence[PublishedValues],
    window: int | None,
) -> Losses | None:
    """Return the losses; None if the clusters are not known, or the summary states no loss. Cost: O(n d)."""
    if found is None or summary.keys().isdisjoint({"loss", "mean_loss", "clocks", *SQUARES}):
        return None
    window = window if "clocks" in summary else None  # earlier versions removed no trend
    clusters = found.clusters
    members, sizes = (
        members_of(clusters).astype(np.int32),
        np.array([len(cluster.members) for cluster in clusters], np.int64),
    )
    losses: dict[str, float | None] = {}
    squares: list[_Squares | None] = []
    clocks: dict[str, bool | None] = {}
    for column, one in enumerate(published):
        shown, name = (cluster.quasi.split(FIELD_SEPARATOR)[column] for cluster in clusters), one.attribute.name
        values = originals.values[members, column]
        if not one.has_moments:
            total = one.sum_of_distances(values, originals.subjects[members], sizes, list(shown)) if clusters else 0.0
            losses[name] = total / len(values) if clusters else None
            continue
        numbers = np.repeat(np.fromiter(map(one.number_of, shown), np.float64, len(clusters)), sizes)
        own_squares = _squares(values, numbers)
        squares.append(own_squares)
        total = 0.0 if own_squares is None else own_squares.total
        if window is not None and JUDGED_SCALES[one.attribute.scale].is_clock:
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


def _check_parts(check: CheckCounter, reader: _SummaryReader, counts: AuditedCounts) -> None:
    """Check the names of reasons and clocks, and that no count is negative."""
    if reasons := reader.counts("quarantined").keys() - {None}:
        check.expect(reasons <= REASONS - {"suppressed"}, "quarantined, its reasons")
    clocks, told = None if counts.losses is None else counts.losses.clocks, reader.names("clocks")
    if clocks is not None and told is not None:
        check.expect(sorted(clocks) == sorted(told), "clocks")
    for key in _ACCOUNTED:
        if min(reader.counts(key).values(), default=0) < 0:
            check.fail(key)


def _figures(counts: AuditedCounts) -> Figures:
    """Return the numbers that the summary may state of clusters, losses and confidential values."""
    found: dict[tuple[str, ...], float | None] = {}
    clusters, losses = counts.clusters, counts.losses
    if clusters is not None:
        sizes = [len(cluster.members) for cluster in clusters.clusters]
        found = {
            ("clusters",): clusters.count,
            ("cluster_size", "min"): min(sizes, default=None),
            ("cluster_size", "max"): max(sizes, default=None),
            ("cluster_size", "mean"): counts.rows / clusters.count if clusters.count else None,
            ("subjects", "min"): clusters.fewest_subjects,
            ("share", "max"): clusters.largest_share,
        }
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

    def counts(self, key: str) -> dict[str | None, int]:
        """Return the counts by reason; one that has no reasons under None."""
        value = self._summary.get(key)
        counts = value if isinstance(value, Mapping) else {} if value is None else {None: value}
        if not all(map(is_count, counts.values())):
            self._refuse(f"{key} must be a whole number")
        return dict(counts)

    def total(self, key: str) -> int | None:
        """Return a count, or the sum of counts by reason; None if it is not stated."""
        return None if self._summary.get(key) is None else sum(self.counts(key).values())

    def at(self, path: Sequence[str]) -> float | None:
        """Return one number inside fields of fields; None if the summary has none there."""
        value: object = self._summary
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None or isinstance(value, Mapping):
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= LARGEST_COUNT:
            self._refuse(f"{'.'.join(path)} must be a number")
        return value

    def names(self, key: str) -> list[str] | None:
        value = self._summary.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self._refuse(f"{key} must be a list of names")
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


def _squares(values: Float64Vector, shown: Float64Vector) -> _Squares | None:
    """Return the sums of the members that have a value in clusters that publish one; None if they hardly differ."""
    is_known = ~np.isnan(values) & ~np.isnan(shown)
    if not is_known.all():
        values, shown = values[is_known], shown[is_known]
    every = values
    if not len(every) or every.min() == every.max():
        return _Squares(0.0, 0.0, 0)
    total = _sum_of_squares(every - every.mean())
    # Of nearly equal values, the sum of squares is a rounding error.
    if total <= MIN_RELATIVE_VARIANCE * _sum_of_squares(every.copy()):
        return None
    return _Squares(_sum_of_squares(every - shown), total, len(every))


def _sum_of_squares(numbers: Float64Vector) -> float:
    """Return the sum of the squares, which are written in place of the numbers: large files need the memory."""
    return float(np.sum(np.square(numbers, out=numbers)))


def _left_after_trend(
    originals: Originals, members: npt.NDArray[np.int32], values: Float64Vector, shown: Float64Vector, window: int
) -> float:
    """Return the squared deviations of times from the means of their windows, summed in whole numbers."""
    sums: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for place in np.flatnonzero(~np.isnan(values) & ~np.isnan(shown)):
        index, time = members[place], int(values[place])
        own = sums[int(originals.partitions[index]), int(originals.offsets[index]) // window]
        own[:] = own[0] + 1, own[1] + time, own[2] + time * time
    return float(sum((count * squares - total**2) / count for count, total, squares in sums.values()))


def _is_clock(left: float, squares: _Squares | None) -> bool | None:
    """Return whether less than half of the sum of squares is left after the trend; None if that is not known."""
    if squares is None or (squares.total and abs(2 * left - squares.total) <= HALF_TOLERANCE * squares.total):
        return None
    return 2 * left < squares.total
