"""The published values of clusters: for each attribute what its scale publishes, or that the value is missing.

What a cluster publishes of a time: the mean of the members, rounded to the step of the policy.

Means of clusters that do not depend on the order of the members: exact sums, rounded once.

The grid of published means: multiples of one resolution per numeric attribute.

What a cluster publishes of one attribute, for each scale.

Every publisher takes the values of members, cluster after cluster, without missing ones. What it returns does not
depend on the order of the members in their cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from shoal.arrays import BoolMatrix, BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.kernels.sums import divide_sums, sum_clusters
from shoal.policy import FIRST_MS, LAST_MS, MS_PER_UNIT, Attribute, EpochUnit, Scale, TimeStep
from shoal.scales.categories import ROOT_NODE, CategoryTree

__all__ = [
    "CategoryTexts",
    "MemberSums",
    "NominalPublisher",
    "NumericPublisher",
    "OrdinalPublisher",
    "Publication",
    "PublicationGrid",
    "Published",
    "ScalePublisher",
    "TimePublisher",
    "exact_means",
]

_DAY_MS = int(MS_PER_UNIT["days"])


class TimePublisher:
    """The exact mean of times, rounded to the nearest multiple of a step since 1970-01-01T00:00Z.

    Parameters
    ----------
    step : TimeStep
        Step of published times.
    unit : EpochUnit or None
        Unit of published numbers; None for times in the form of ISO 8601.

    Notes
    -----
    Times are whole milliseconds. Sums are integers, so the mean is exact. Ties go to the even multiple. Steps of months
    and years are those of the Gregorian calendar in UTC; the mean is rounded to the nearest start of one, ties to the
    one with an even number since January 1970 or since 1970. A result may lie half a step outside the bounds. If the
    nearest multiple is outside the years 0001 to 9999, the next one inside is published.
    """

    def __init__(self, step: TimeStep, unit: EpochUnit | None) -> None:
        self._step, self._unit = step, unit

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the rounded means as JSON strings in the form of ISO 8601, or as numbers of the unit; and in ms."""
        sizes = np.diff(bounds)
        whole, rest = _exact_means(values.astype(np.int64), bounds)
        number, start, length = self._step_before(whole)
        # The mean exceeds the middle of the step by (2 * rest / size - missing) / 2, where 0 <= rest < size.
        missing = np.clip(length - 2 * (whole - start), -1, 2) * sizes
        is_up = (2 * rest > missing) | ((2 * rest == missing) & (number % 2 == 1))
        end = start + length
        rounded = np.where((is_up & (end <= LAST_MS)) | (start < FIRST_MS), end, start)
        return self._texts(rounded), rounded.astype(np.float64)

    def _step_before(self, times: Int64Vector) -> tuple[Int64Vector, Int64Vector, Int64Vector]:
        """Return of the step that contains each time: its number since 1970, its start and its length (ms)."""
        if self._step.unit in {"month", "year"}:
            unit = "M" if self._step.unit == "month" else "Y"
            number = times.astype("M8[ms]").astype(f"M8[{unit}]").astype(np.int64)
            start, end = (
                count.astype(f"M8[{unit}]").astype("M8[ms]").astype(np.int64) for count in (number, number + 1)
            )
            return number, start, end - start
        length = np.full(len(times), self._step.milliseconds)
        number = times // length
        return number, number * length, length

    def _texts(self, times: Int64Vector) -> list[str]:
        """Write times (ms)."""
        if self._unit is not None:
            numbers = times * 1000 if self._unit == "us" else times // int(MS_PER_UNIT[self._unit])
            return [str(number) for number in numbers.tolist()]
        precision, zone = ("D", "") if self._step.is_date else ("s", "Z")
        written = np.datetime_as_string(times.astype("M8[ms]").astype(f"M8[{precision}]"))
        return [f'"{text}{zone}"' for text in written.tolist()]


def _exact_means(times: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, Int64Vector]:
    """Return for each cluster the mean as whole ms, rounded down, and the rest of the division by its size.

    Days and milliseconds are added apart: a sum of milliseconds of 40,000 members could exceed int64.
    """
    sizes = np.diff(bounds)
    days, in_day = np.divmod(times, _DAY_MS)
    whole_days, left_days = np.divmod(np.add.reduceat(days, bounds[:-1]), sizes)
    whole, rest = np.divmod(left_days * _DAY_MS + np.add.reduceat(in_day, bounds[:-1]), sizes)
    return whole_days * _DAY_MS + whole, rest


def exact_means(values: Float64Matrix, cluster_bounds: Int64Vector) -> Float64Matrix:
    """Return the means of clusters: the floats nearest to the exact means, independent of the order of members.

    Parameters
    ----------
    values : ndarray of float64, shape (E, d)
        Members, cluster after cluster; finite; not modified.
    cluster_bounds : ndarray of int64, shape (G + 1,)
        Cluster g is ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``, and not empty.

    Returns
    -------
    ndarray of float64, shape (G, d)
        New; in the units of ``values``. Ties go to the even float, and zero has no sign.
    """
    return MemberSums(values, cluster_bounds).means()


class MemberSums:
    """Sums of clusters: ``totals`` plus residuals, both float64 (G, d), where ``exact``; elsewhere not representable.

    Parameters are those of `exact_means`.
    """

    def __init__(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> None:
        self._values = np.require(values, np.float64, ["C", "W"])  # as kernels need them
        self._bounds = cluster_bounds
        self.totals = np.empty((len(cluster_bounds) - 1, values.shape[1]))
        self._residuals = np.empty_like(self.totals)
        self.exact: BoolMatrix = np.empty(self.totals.shape, np.bool_)
        sum_clusters(self._values, cluster_bounds, self.totals, self._residuals, self.exact)

    def means(self) -> Float64Matrix:
        """Return the means, each rounded once."""
        means, certain = np.empty_like(self.totals), np.empty_like(self.exact)
        divide_sums(self.totals, self._residuals, self.exact, self._bounds, means, certain)
        for cluster, column in np.argwhere(~certain).tolist():
            total, size = self.exact_total(cluster, column)
            means[cluster, column] = float(Fraction(total) / size) + 0.0
        return means

    def exact_total(self, cluster: int, column: int) -> tuple[float | Fraction, int]:
        """Return the exact sum of one attribute of a cluster, and the size of the cluster."""
        first, last = self._bounds[cluster : cluster + 2].tolist()
        if not self.exact[cluster, column]:
            return sum(map(Fraction, self._values[first:last, column].tolist()), Fraction()), last - first
        total, rest = float(self.totals[cluster, column]), float(self._residuals[cluster, column])
        return Fraction(total) + Fraction(rest) if rest else total, last - first


SMALLEST, LARGEST = Decimal("1e-300"), Decimal("1e300")
"""Smallest and largest resolution; floats can be divided by it, and no unit of measure needs more."""

MANY_STEPS = 1e13
"""Multiple of the resolution from which a float cannot show on which side of a tie a mean is."""

CACHED_TEXTS = 1 << 14
"""Texts cached per attribute; far more than the multiples of a resolution between usual bounds."""


class Published(NamedTuple):
    """Published values of G clusters.

    Attributes
    ----------
    texts : list of list of str
        For each cluster its d numbers as written.
    values : float64 (G, d)
        The same numbers as floats.
    """

    texts: list[list[str]]
    values: Float64Matrix


class PublicationGrid:
    """The grid of published values: multiples of one resolution per attribute.

    Parameters
    ----------
    resolutions : list of Decimal
        One per attribute, in its units, 0 or more. With 0 the exact mean is published.

    Raises
    ------
    ParameterError
        A resolution is negative, or too small or too large for floats.
    """

    def __init__(self, resolutions: list[Decimal]) -> None:
        if any(resolution and not SMALLEST <= resolution <= LARGEST for resolution in resolutions):
            raise ParameterError(f"resolution: must be 0 or within {SMALLEST} and {LARGEST}")
        self.resolutions = resolutions
        self._steps = [_Step(resolution) if resolution else None for resolution in resolutions]
        self._per_unit = np.array([0.0 if step is None else step.per_unit for step in self._steps])

    def published(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> Published:
        """Return the published values of clusters.

        Parameters
        ----------
        values : ndarray of float64, shape (E, d)
            Raw values of the members, cluster after cluster; finite; not modified.
        cluster_bounds : ndarray of int64, shape (G + 1,)
            Cluster g is ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``, and not empty.

        Returns
        -------
        Published
            Texts of JSON numbers and the floats nearest to them.

        Notes
        -----
        Definition: with a resolution r, the exact rational mean of the members' floats is divided by r, rounded to an
        integer with ties to even, multiplied by r and written with the decimals of r; zero has no sign. With r = 0 it
        is rounded to the nearest float, ties to even, and written by ``repr``: it is never outside the range of the
        members. Neither depends on the order of the members.

        Cost: 2 ns per value and 0.2 µs per number; some µs more where the mean is too close to a tie for floats.
        """
        sums = MemberSums(values, cluster_bounds)
        totals = sums.totals
        multiples, certain = self._multiples(totals, sums.exact, np.diff(cluster_bounds)[:, None])
        published = sums.means() if None in self._steps else np.empty_like(totals)
        columns = []
        for column, step in enumerate(self._steps):
            if step is None:
                columns.append([repr(mean) for mean in published[:, column].tolist()])
                continue
            steps: list[int] = multiples[:, column].tolist()
            for cluster in np.flatnonzero(~certain[:, column]).tolist():
                steps[cluster] = step.nearest(*sums.exact_total(cluster, column))
            columns.append(step.texts(steps))
            published[:, column] = [number * step.whole / step.unit for number in steps]
        return Published([list(row) for row in zip(*columns, strict=True)], published)

    def _multiples(
        self, totals: Float64Matrix, exact: BoolMatrix, sizes: Int64Matrix
    ) -> tuple[Int64Matrix, BoolMatrix]:
        """Divide means by their resolution in floats and round half to even; return also where that is certain."""
        with np.errstate(over="ignore", invalid="ignore"):  # a quotient that overflows is not certain
            quotients = totals / sizes * self._per_unit
            nearest = np.rint(quotients)
            steps = np.abs(quotients)
            # Four roundings change the quotient by less than 1e-15 of it; the margins are far wider.
            from_tie = 0.5 - np.abs(quotients - nearest)
            certain = exact & (steps < MANY_STEPS) & (from_tie > 1e-6 + 1e-14 * steps)
        return np.where(certain, nearest, 0.0).astype(np.int64), certain


class _Step:
    """A resolution above 0, as the fraction ``whole`` / ``unit``; ``per_unit`` is its reciprocal."""

    def __init__(self, resolution: Decimal) -> None:
        above, below = resolution.as_integer_ratio()
        self._decimals = max(0, -int(resolution.as_tuple().exponent))
        self._written: dict[int, str] = {}
        self.unit: int = 10**self._decimals
        self.whole: int = above * self.unit // below
        self.per_unit = self.unit / self.whole

    def nearest(self, total: float | Fraction, size: int) -> int:
        """Return the multiple nearest to ``total`` / ``size``, computed exactly; ties to even."""
        above, below = total.as_integer_ratio()
        whole = below * size * self.whole
        number, rest = divmod(above * self.unit, whole)
        is_up = 2 * rest > whole or (2 * rest == whole and number % 2 == 1)
        return number + 1 if is_up else number

    def texts(self, multiples: list[int]) -> list[str]:
        """Write multiples of the resolution with its decimals."""
        if len(self._written) > CACHED_TEXTS:
            self._written.clear()
        return [self._written.get(multiple) or self._write(multiple) for multiple in multiples]

    def _write(self, multiple: int) -> str:
        number = multiple * self.whole
        text = str(abs(number)).zfill(self._decimals + 1)
        if self._decimals:
            text = f"{text[: -self._decimals]}.{text[-self._decimals :]}"
        text = f"-{text}" if number < 0 else text
        self._written[multiple] = text
        return text


class ScalePublisher(Protocol):
    """Computes the published values of one attribute."""

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the published values of G clusters, as JSON scalars and as numbers of the attribute's scale.

        Parameters
        ----------
        values : ndarray of float64, shape (E,)
            Values of the members as in `records.Block`; a category is its code. None is missing.
        bounds : ndarray of int64, shape (G + 1,)
            Cluster g is ``values[bounds[g]:bounds[g + 1]]``, and not empty; G >= 1.
        """


class NumericPublisher:
    """The mean, on the grid of one resolution."""

    def __init__(self, resolution: Decimal) -> None:
        self._grid = PublicationGrid([resolution])

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the means; see `PublicationGrid.published`."""
        texts, means = self._grid.published(values[:, None], bounds)
        return [row[0] for row in texts], means[:, 0]


class OrdinalPublisher:
    """The lower median of the ranks, written as the item of the order.

    References
    ----------
    .. [1] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through
       Microaggregation", Data Mining and Knowledge Discovery 11(2), 2005. doi:10.1007/s10618-005-0007-5
    """

    def __init__(self, order: tuple[str | int, ...]) -> None:
        self._texts = [msgspec.json.encode(item).decode() for item in order]

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the item at the index (n - 1) // 2 of the sorted ranks of n members."""
        sizes = np.diff(bounds)
        ordered = values[np.lexsort((values, _cluster_of_each(bounds)))]
        medians = ordered[bounds[:-1] + (sizes - 1) // 2]
        return [self._texts[rank] for rank in medians.astype(np.int64).tolist()], medians


class NominalPublisher:
    """The mode, the lowest common ancestor, or the tree median of categories.

    Parameters
    ----------
    attribute : Attribute
        With its choice of the published value.
    tree : CategoryTree
        Its taxonomy.
    texts : mapping of int to str
        Text of the JSON scalar of each category by its code.
    is_table : bool
        Whether a call has all records of a table: of equally frequent categories in a cluster that one is published
        which is the most frequent in the table. Remaining ties, and all ties in a stream, go to the category whose text
        has the smaller UTF-8 bytes.

    References
    ----------
    .. [1] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through
       Microaggregation", Data Mining and Knowledge Discovery 11(2), 2005. doi:10.1007/s10618-005-0007-5
    """

    def __init__(self, attribute: Attribute, tree: CategoryTree, texts: Mapping[int, str], *, is_table: bool) -> None:
        self._publish = attribute.publish
        self._tree, self._texts, self._is_table = tree, texts, is_table
        self._table: tuple[Int64Vector, Int64Vector] | None = None

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the published categories or inner nodes; the numbers are nodes of `CategoryTree`."""
        if self._publish == "mode":
            nodes = self._modes(values, bounds)
        elif self._publish == "ancestor":
            nodes = self._lowest_nodes(values, bounds, _is_one_node)
        else:
            nodes = self._lowest_nodes(values, bounds, _is_majority)
        tree, texts = self._tree, self._texts
        return [texts[node] if node >= 0 else tree.inner_text(node) for node in nodes.astype(np.int64).tolist()], nodes

    def _modes(self, values: Float64Vector, bounds: Int64Vector) -> Float64Vector:
        """Return the most frequent category of each cluster. Cost: O(E log E), and a sort of the distinct texts."""
        codes, inverse = np.unique(values.astype(np.int64), return_inverse=True)
        # str compares code points, which have the order of their UTF-8 bytes.
        by_text = sorted(range(len(codes)), key=[self._texts[code] for code in codes.tolist()].__getitem__)
        ranks = np.empty(len(codes), np.int64)
        ranks[by_text] = np.arange(len(codes))
        own = ranks[inverse]
        keys, counts = np.unique(_cluster_of_each(bounds) * len(codes) + own, return_counts=True)
        clusters, found = np.divmod(keys, len(codes))
        frequency = self._frequency(codes)[by_text]
        order = np.lexsort((found, -frequency[found], -counts, clusters))
        first = order[np.searchsorted(clusters, np.arange(len(bounds) - 1))]
        modes: Float64Vector = codes[np.array(by_text)[found[first]]].astype(np.float64)
        return modes

    def count(self, values: Float64Vector) -> None:
        """Count the categories of a table, also those of clusters that publish none; ignored in a stream."""
        if self._is_table:
            self._table = np.unique(values.astype(np.int64), return_counts=True)

    def _frequency(self, codes: Int64Vector) -> Int64Vector:
        """Return how frequent categories are in the table that was counted; 0 in a stream."""
        if self._table is None:
            return np.zeros(len(codes), np.int64)
        known, counts = self._table
        return np.asarray(counts[np.searchsorted(known, codes)], np.int64)

    def _lowest_nodes(self, values: Float64Vector, bounds: Int64Vector, holds: _Holds) -> Float64Vector:
        """Return the lowest node of each cluster that holds enough of its members, else the root."""
        paths = self._tree.paths(values)
        nodes = np.full(len(bounds) - 1, float(ROOT_NODE))
        for level in range(self._tree.levels - 1, -1, -1):
            entries, found = holds(paths[:, level], bounds)
            # A category that the taxonomy lacks has no inner node above it; it is found again on level 0.
            inner = found & (self._tree.is_inner(entries) if level else found)
            nodes[inner] = self._tree.node_at(level, entries[inner])
        return nodes


class _Holds(Protocol):
    """Returns for each cluster a node of one level, and whether it holds enough members."""

    def __call__(self, entries: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, BoolVector]: ...


def _is_one_node(entries: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, BoolVector]:
    """Return the first node of each cluster, and whether it holds all members."""
    first = entries[bounds[:-1]]
    return first, np.logical_and.reduceat(entries == first.repeat(np.diff(bounds)), bounds[:-1])


def _is_majority(entries: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, BoolVector]:
    """Return the middle node of each cluster in sorted order, and whether it holds more than half of the members."""
    sizes = np.diff(bounds)
    ordered = entries[np.lexsort((entries, _cluster_of_each(bounds)))]
    middle = ordered[bounds[:-1] + sizes // 2]
    counts = np.add.reduceat((entries == middle.repeat(sizes)).astype(np.int64), bounds[:-1])
    return middle, 2 * counts > sizes


def _cluster_of_each(bounds: Int64Vector) -> Int64Vector:
    """Return the number of the cluster of each member."""
    return np.arange(len(bounds) - 1).repeat(np.diff(bounds))


CategoryTexts = Mapping[int, str]
"""Text of the JSON scalar of each category of an attribute, by its code."""


class Publication:
    """Computes what clusters publish.

    Parameters
    ----------
    attributes : sequence of Attribute
        The published ones of a policy's quasi-identifiers.
    columns : sequence of int
        Column of each among the values.
    steps : sequence of Decimal
        Resolution of each numeric one.
    trees : mapping of str to CategoryTree
        The taxonomy of each nominal attribute, by name.
    texts : mapping of str to CategoryTexts
        The categories of each nominal attribute, by name.
    is_table : bool
        Whether a call has all records of a table. This selects the rule for equally frequent categories.

    Notes
    -----
    Missing values: a cluster publishes null unless more than half of its members have a value; then it publishes the
    value of these. If no subject has more than half of a cluster, they are records of at least two subjects.
    """

    def __init__(
        self,
        attributes: Sequence[Attribute],
        columns: Sequence[int],
        steps: Sequence[Decimal],
        trees: Mapping[str, CategoryTree],
        texts: Mapping[str, CategoryTexts],
        *,
        is_table: bool,
    ) -> None:
        self._count = len(attributes)
        means = [i for i, a in enumerate(attributes) if a.scale is Scale.NUMERIC and not a.may_be_missing]
        self._means = means
        self._mean_columns = [columns[i] for i in means]
        # One grid for all of them: sums of all columns are computed at once.
        self._grid = PublicationGrid([steps[i] for i in means])
        self._others: list[tuple[int, int, ScalePublisher]] = []
        for i, attribute in enumerate(attributes):
            if i not in means:
                publisher = _publisher_of(attribute, steps[i], trees, texts, is_table=is_table)
                self._others.append((i, columns[i], publisher))

    def of_clusters(self, values: Float64Matrix, bounds: Int64Vector) -> Published:
        """Return the published values of clusters.

        Parameters
        ----------
        values : ndarray of float64, shape (E, d)
            Members, cluster after cluster; all columns, also those that are not published. Not modified.
        bounds : ndarray of int64, shape (G + 1,)
            Cluster g is ``values[bounds[g]:bounds[g + 1]]``, and not empty.
        """
        is_all = self._mean_columns == list(range(values.shape[1]))
        numbers = np.empty((len(bounds) - 1, self._count))
        columns: list[list[str]] = [[] for _ in range(self._count)]
        if self._means:
            numeric = self._grid.published(values if is_all else values[:, self._mean_columns], bounds)
            if not self._others:
                return numeric
            numbers[:, self._means] = numeric.values
            for i, column in zip(self._means, zip(*numeric.texts, strict=True), strict=False):
                columns[i] = list(column)
        for i, column_number, publisher in self._others:
            columns[i], numbers[:, i] = _publish(publisher, values[:, column_number], bounds)
        return Published([list(row) for row in zip(*columns, strict=True)], numbers)


def _publish(publisher: ScalePublisher, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
    """Return the published values of one attribute, null and NaN for a cluster that publishes none."""
    if len(bounds) == 1:
        return [], np.zeros(0)
    is_known = ~np.isnan(values)
    if isinstance(publisher, NominalPublisher):
        publisher.count(values[is_known])
    if is_known.all():
        return publisher.publish(values, bounds)
    sizes = np.diff(bounds)
    counts = np.diff(np.append(0, np.cumsum(is_known))[bounds])
    publishes = 2 * counts > sizes
    texts, numbers = np.full(len(sizes), "null", np.object_), np.full(len(sizes), np.nan)
    if publishes.any():
        members = is_known & publishes.repeat(sizes)
        found = publisher.publish(values[members], np.append(0, np.cumsum(counts[publishes])))
        texts[publishes], numbers[publishes] = found
    return texts.tolist(), numbers


def _publisher_of(
    attribute: Attribute,
    step: Decimal,
    trees: Mapping[str, CategoryTree],
    texts: Mapping[str, CategoryTexts],
    *,
    is_table: bool,
) -> ScalePublisher:
    name = attribute.name
    if attribute.scale is Scale.NOMINAL:
        return NominalPublisher(attribute, trees[name], texts[name], is_table=is_table)
    if attribute.scale is Scale.ORDINAL:
        return OrdinalPublisher(attribute.order)
    if attribute.time_step is not None:
        return TimePublisher(attribute.time_step, attribute.unit)
    return NumericPublisher(step)
