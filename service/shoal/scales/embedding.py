"""Attributes to coordinates and codes, on which distances are computed, and clusters to published values.

A number, a rank or a time is a coordinate. A category is a code per level of its taxonomy. Two records that differ in a
column of codes have the squared distance of that column. The distances of the columns of one attribute add up to the
height of the lowest common ancestor over the number of levels, so that they are those of a tree with equal edges. Such
distances are Euclidean: a code stands for a coordinate of its own.

Numbers and categories are compared by what they lose. The loss of a number is a share of its variance, that of a
category is 1 where it is not published. Two records whose numbers are drawn at random differ by two variances; so do
two records with different categories, however many categories there are. A number that is missing in one of two
records is a quarter of that away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.kernels.sums import dense_coordinates, frequent_coordinates
from shoal.policy import Policy, Role
from shoal.scales.nominal import CategoryTree
from shoal.scales.numeric import PublicationGrid, Published
from shoal.scales.scale import SCALES, AttributeScale, CategoryTexts, Publisher, cluster_of_each, scale_of

VARIANCES_APART = 2.0
"""Squared distance of two records with different categories, in variances of a number."""
MISSING_APART = 0.5
"""The same of two records of which one lacks a number."""
OF_SPREADS = 1.0 / 12.0
"""Variance of a number whose spread is known: its unit is the width of evenly distributed values."""


class Scaling(NamedTuple):
    """How the L quasi-identifiers of a stream that have coordinates are scaled."""

    widths: Float64Vector  # (L,): a difference of one width becomes 1
    centers: Float64Vector  # (L,): value in place of a missing one


class _Axis(NamedTuple):
    """One attribute: its column among the values, and how these become coordinates and codes."""

    scale: AttributeScale
    column: int
    origin: float  # subtracted from a value, which is then divided by ``unit``
    unit: float
    middle: float  # coordinate of a missing value, before it is weighted
    code_distances: Float64Vector  # squared distance of two records that differ in each column of codes, weighted


class Embedding:
    """Translates the clustered attributes of a policy to coordinates and codes, and to published values.

    The squared distance of two records is the sum over the coordinates, plus ``code_distances`` (c,) of the columns
    in which their codes differ. A cluster publishes a code of a column of ``codes_must_agree`` (c,) only if all
    members have it. ``ranges`` are widths of the coordinates in a stream, and ``unit`` (q,) that in which the error
    of each quasi-identifier is measured: the width of its bounds or of its scaling; 1 for a nominal one.
    """

    def __init__(self, axes: Sequence[_Axis], *, is_exact: bool, is_table: bool) -> None:
        self._axes, self._is_exact, self._is_table = axes, is_exact, is_table
        numeric = [axis for axis in axes if not axis.scale.is_coded]
        self._columns = [axis.column for axis in numeric]
        self._origin = np.array([axis.origin for axis in numeric])
        self._divisors = np.array([axis.unit for axis in numeric])
        self._weights = np.array([axis.scale.attribute.weight for axis in numeric])
        self._middle = np.array([axis.middle * axis.scale.attribute.weight for axis in numeric])
        self._may_be_missing = any(axis.scale.attribute.may_be_missing for axis in numeric)
        self._with_codes = [axis for axis in axes if len(axis.code_distances)]
        self.code_distances = np.concatenate([np.zeros(0), *(axis.code_distances for axis in self._with_codes)])
        self.codes_must_agree: BoolVector = np.concatenate(
            [np.zeros(0, np.bool_), *(np.full(len(a.code_distances), a.scale.must_agree) for a in self._with_codes)]
        )
        self.ranges: tuple[float, ...] = tuple(self._weights.tolist())
        published = [axis for axis in axes if axis.scale.attribute.role is Role.QUASI_IDENTIFIER]
        self.unit = np.array([_unit_of_bounds(axis) or axis.unit for axis in published])
        self._publication = _Publication(published, is_exact=is_exact, is_table=is_table)
        # The coordinates of quasi-identifiers, which a scaling is of, are before those of steering attributes.
        scaled = [i for i, axis in enumerate(published) if not axis.scale.is_coded]
        self._measured_by_width = [(i, n) for n, i in enumerate(scaled) if _unit_of_bounds(published[i]) is None]
        """Number, and number in a scaling, of each quasi-identifier whose errors are measured in its width."""

    def rescale(self, scaling: Scaling) -> None:
        """Become the embedding of a stream that `of` returns for another scaling; afterwards it cannot `select`."""
        (widths, centers), count = scaling, len(scaling.widths)
        self._divisors[:count] = widths
        if self._may_be_missing:
            self._middle[:count] = (centers - self._origin[:count]) / widths * self._weights[:count]
        if self._measured_by_width:
            self.unit = self.unit.copy()
            for number, of_scaling in self._measured_by_width:
                self.unit[number] = widths[of_scaling]

    @classmethod
    def of(
        cls,
        policy: Policy,
        scaling: Scaling | None = None,
        trees: Mapping[str, CategoryTree] | None = None,
        texts: Mapping[str, CategoryTexts] | None = None,
    ) -> Self:
        """Return the embedding of a stream's policy; `ParameterError` if an attribute has neither bounds nor a scaling.

        ``scaling`` is that of the quasi-identifiers that have coordinates. If omitted, and for all other
        attributes, a difference of the width of the bounds becomes 1; two categories are as far apart, and a
        missing number is in the middle. ``trees`` and ``texts`` are those of `CategoryIndex`.
        """
        variance = 1.0 / VARIANCES_APART if scaling is None else OF_SPREADS
        missing = VARIANCES_APART if scaling is None else MISSING_APART
        known = iter(()) if scaling is None else zip(scaling.widths.tolist(), scaling.centers.tolist(), strict=True)
        axes = []
        for column, attribute in enumerate(policy.clustered):
            scale = scale_of(attribute, (trees or {}).get(attribute.name), (texts or {}).get(attribute.name))
            low, high = attribute.bounds or (0.0, 1.0)
            unit, middle = 1.0 if low == high else high - low, 0.5
            if scaling is not None and attribute.role is Role.QUASI_IDENTIFIER and not scale.is_coded:
                unit, center = next(known)
                middle = (center - low) / unit
            elif attribute.bounds is None and not scale.is_coded:
                raise ParameterError(_missing_bounds(policy, is_learned=scaling is not None))
            axes.append(_Axis(scale, column, low, unit, middle, _code_distances(scale, variance, missing)))
        return cls(axes, is_exact=False, is_table=False)

    @classmethod
    def of_table(
        cls,
        policy: Policy,
        values: Float64Matrix,
        trees: Mapping[str, CategoryTree] | None = None,
        texts: Mapping[str, CategoryTexts] | None = None,
    ) -> Self:
        """Return the embedding of a finished table by z-scores of its values (n, d); parameters as of `of`.

        The deviation is that of the present values (ddof = 0), or 1 for a constant attribute. A missing number
        has the mean.
        """
        mean, deviation = _mean_and_deviation(values)
        axes = []
        for column, attribute in enumerate(policy.clustered):
            scale = scale_of(attribute, (trees or {}).get(attribute.name), (texts or {}).get(attribute.name))
            origin, unit = (0.0, 1.0) if scale.is_coded else (mean[column], deviation[column])
            axes.append(_Axis(scale, column, origin, unit, 0.0, _code_distances(scale, 1.0, MISSING_APART)))
        return cls(axes, is_exact=policy.stream is None, is_table=True)

    def coordinates(self, values: Float64Matrix) -> Float64Matrix:
        """Return the weighted coordinates (n, p) of values (n, d): one column per attribute without codes."""
        numbers = values if self._columns == list(range(values.shape[1])) else values[:, self._columns]
        coordinates: Float64Matrix = (numbers - self._origin) / self._divisors * self._weights
        if self._may_be_missing:
            return np.where(np.isnan(coordinates), self._middle, coordinates)
        return coordinates

    def codes(self, values: Float64Matrix) -> Int64Matrix:
        """Return the codes of records (n, c), of which only equality within a column has a meaning."""
        columns = [axis.scale.codes(values[:, axis.column]) for axis in self._with_codes]
        return np.concatenate([np.empty((len(values), 0), np.int64), *columns], axis=1)

    def dense(self, values: Float64Matrix) -> Float64Matrix:
        """Return points (n, D) with the distances of coordinates and codes; without codes they are the coordinates."""
        coordinates = self.coordinates(values)
        if not self._with_codes:
            return coordinates
        return dense_coordinates(coordinates, self.codes(values), self.code_distances)

    def frequent(self, values: Float64Matrix, fewest: int, most: int) -> Float64Matrix:
        """Return points as `dense`, with coordinates only for frequent codes; see `frequent_coordinates`."""
        return frequent_coordinates(self.coordinates(values), self.codes(values), self.code_distances, fewest, most)

    @property
    def code_attributes(self) -> Int64Vector:
        """Number of the attribute of each column of codes (c,); the columns of one attribute ascend in its taxonomy."""
        sizes = [len(axis.code_distances) for axis in self._with_codes]
        return np.repeat(np.arange(len(sizes)), sizes)

    def select(self, columns: Int64Vector) -> Embedding:
        """Return the embedding of the same values by these quasi-identifiers and all steering attributes only."""
        chosen = set(columns.tolist())
        axes = [a for a in self._axes if a.scale.attribute.role is not Role.QUASI_IDENTIFIER or a.column in chosen]
        return Embedding(axes, is_exact=self._is_exact, is_table=self._is_table)

    def published(
        self, values: Float64Matrix, cluster_bounds: Int64Vector, people: Int64Vector | None = None
    ) -> Published:
        """Return the published values of clusters; see `PublicationGrid.published` for the arguments.

        ``people`` (E,) says whose each member is; without it, each is a person of its own.
        """
        return self._publication.of_clusters(values, cluster_bounds, people)


class _Publication:
    """Computes what clusters publish of some attributes.

    A cluster publishes null unless more than half of its people have a value; then it publishes the value of these
    records. So at least k/2 people have none where null is published, and more than k/2 have one where a value is.
    """

    def __init__(self, axes: Sequence[_Axis], *, is_exact: bool, is_table: bool) -> None:
        self._count = len(axes)
        steps = {i: axis.scale.grid_step(is_exact=is_exact) for i, axis in enumerate(axes)}
        # One grid for all means without missing values: sums of all columns are computed at once.
        self._means = [i for i, step in steps.items() if step is not None]
        self._mean_columns = [axes[i].column for i in self._means]
        self._grid = PublicationGrid([step for step in steps.values() if step is not None])
        self._others = [
            (i, axis.column, axis.scale.publisher(is_exact=is_exact, is_table=is_table))
            for i, axis in enumerate(axes)
            if steps[i] is None
        ]

    def of_clusters(self, values: Float64Matrix, bounds: Int64Vector, people: Int64Vector | None) -> Published:
        """Return the published values of clusters, not empty, of values (E, d) with all columns."""
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
            columns[i], numbers[:, i] = _publish(publisher, values[:, column_number], bounds, people)
        return Published([list(row) for row in zip(*columns, strict=True)], numbers)


def _publish(
    publisher: Publisher, values: Float64Vector, bounds: Int64Vector, people: Int64Vector | None
) -> tuple[list[str], Float64Vector]:
    """Return the published values of one attribute, null and NaN for a cluster that publishes none."""
    if len(bounds) == 1:
        return [], np.zeros(0)
    is_known = ~np.isnan(values)
    publisher.count(values[is_known])
    if is_known.all():
        return publisher.publish(values, bounds)
    sizes, clusters = np.diff(bounds), cluster_of_each(bounds)
    counts = np.bincount(clusters[is_known], minlength=len(sizes))
    if people is None:
        publishes = 2 * counts > sizes
    else:
        with_value = _count_people(clusters[is_known], people[is_known], len(sizes))
        publishes = 2 * with_value > _count_people(clusters, people, len(sizes))
    texts, numbers = np.full(len(sizes), "null", np.object_), np.full(len(sizes), np.nan)
    if publishes.any():
        members = is_known & publishes.repeat(sizes)
        found = publisher.publish(values[members], np.append(0, np.cumsum(counts[publishes])))
        texts[publishes], numbers[publishes] = found
    return texts.tolist(), numbers


def _count_people(clusters: Int64Vector, people: Int64Vector, count: int) -> Int64Vector:
    """Return how many different people have records in each of ``count`` clusters. Cost: O(E log E)."""
    order = np.lexsort((people, clusters))
    clusters, people = clusters[order], people[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (clusters[1:] != clusters[:-1]) | (people[1:] != people[:-1])
    counts: Int64Vector = np.bincount(clusters[is_first], minlength=count).astype(np.int64)
    return counts


def _unit_of_bounds(axis: _Axis) -> float | None:
    """Return the width of the bounds of a quasi-identifier; None without bounds, or if they are equal."""
    low, high = axis.scale.attribute.bounds or (0.0, 0.0)
    return None if axis.scale.is_coded or low == high else high - low


def _code_distances(scale: AttributeScale, variance: float, missing: float) -> Float64Vector:
    """Return the squared distances of the columns of codes, weighted; ``missing`` is in variances of a number."""
    squared = scale.attribute.weight * scale.attribute.weight * variance
    return scale.code_distances(VARIANCES_APART * squared, missing * squared)


def _missing_bounds(policy: Policy, *, is_learned: bool) -> str:
    """Return which attributes lack bounds that they need."""
    unbounded = [a for a in policy.clustered if a.bounds is None and not SCALES[a.scale].is_coded]
    names = ", ".join(a.name for a in unbounded)
    if steering := [a.name for a in unbounded if a.role is Role.STEERING]:
        return (
            f"bounds: missing for {', '.join(steering)}; spreads are learned from published values, and a steering "
            "attribute has none"
        )
    return f"bounds: missing for {names}" + ("" if is_learned else ", by which distances are scaled")


def _mean_and_deviation(values: Float64Matrix) -> tuple[Float64Vector, Float64Vector]:
    """Return mean and deviation of the present values of each column (d,); of a constant column the deviation 1."""
    with np.errstate(over="ignore", invalid="ignore"):  # coordinates that overflow are rejected later
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        low, high = values.min(axis=0), values.max(axis=0)
        for column in np.flatnonzero(np.isnan(low)).tolist():
            known = values[~np.isnan(values[:, column]), column]
            numbers = known if len(known) else np.zeros(1)
            mean[column], deviation[column] = numbers.mean(), numbers.std()
            low[column], high[column] = numbers.min(), numbers.max()
    varies = low < high  # the computed deviation of equal numbers may not be 0
    varies &= deviation > 0  # the deviation of numbers below 1e-160 underflows
    return mean, np.where(varies, deviation, 1.0)
