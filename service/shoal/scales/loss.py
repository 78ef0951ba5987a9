"""How far published values are from the values of the records, for each attribute in its own measure.

The distance of a number or a time is its difference over the range. That of an ordinal value is the difference of the
ranks over that of the first and the last. That of a category is the height of the lowest common ancestor of the two
nodes over the number of levels; without a taxonomy it is 0 or 1. A missing value is at distance 1 from any other.

In a stream, most of the variation of a time may be its trend, which each reader of the output knows without the
record. Such a *clock* is measured against the variation within windows of offsets: what is left after the trend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from shoal.arrays import BoolMatrix, BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import Attribute
from shoal.scales.nominal import CategoryTree
from shoal.scales.scale import SCALES, scale_of


class WindowSums:
    """Sums of each window of offsets for c columns, over blocks of records.

    Blocks are added without a second pass (Chan et al. 1983). A mean is kept as the difference from a value of its
    window, which is exact for times, so the sum of squares of equal values is 0. Memory: four numbers per column of
    an open window.
    """

    def __init__(self, columns: int) -> None:
        self._closed = np.zeros(columns)
        self._windows = np.zeros(0, np.int64)
        self._counts: Int64Matrix = np.zeros((0, columns), np.int64)
        self._origins, self._means, self._squares = (np.zeros((0, columns)) for _ in range(3))

    def __len__(self) -> int:
        """Return the number of windows that are not closed."""
        return len(self._windows)

    @classmethod
    def of(cls, windows: Int64Vector, values: Float64Matrix) -> Self:
        """Return the sums of one block of E >= 1 records: windows (E,) and values (E, c), NaN where missing."""
        found = cls(values.shape[1])
        order = np.argsort(windows, kind="stable")
        found._windows, starts, sizes = np.unique(windows[order], return_index=True, return_counts=True)
        ordered = values[order]
        present = ~np.isnan(ordered)
        found._origins = np.nan_to_num(np.fmin.reduceat(ordered, starts, axis=0), nan=0.0)
        differences = np.where(present, ordered - found._origins.repeat(sizes, axis=0), 0.0)
        found._counts = np.add.reduceat(present.astype(np.int64), starts, axis=0)
        found._means = np.add.reduceat(differences, starts, axis=0) / np.maximum(found._counts, 1)
        centred = np.where(present, differences - found._means.repeat(sizes, axis=0), 0.0)
        found._squares = np.add.reduceat(centred * centred, starts, axis=0)
        return found

    @property
    def squares(self) -> Float64Vector:
        """Sum over all windows of the squared deviations from the mean of the window (c,)."""
        total: Float64Vector = self._closed + self._squares.sum(axis=0)
        return total

    def merge(self, other: WindowSums) -> None:
        """Add the sums of other records. Closed windows stay closed: only their sums are added."""
        windows = np.union1d(self._windows, other._windows)
        counts, origins, means, squares = self._placed(windows)
        more, their_origins, their_means, their_squares = other._placed(windows)
        origins = np.where(counts > 0, origins, their_origins)
        step = np.where(more > 0, their_origins - origins + their_means - means, 0.0)
        share = more / np.maximum(counts + more, 1)
        self._windows, self._counts, self._origins = windows, counts + more, origins
        self._means, self._squares = means + step * share, squares + their_squares + step * step * (counts * share)
        self._closed = self._closed + other._closed

    def _placed(self, windows: Int64Vector) -> tuple[Int64Matrix, Float64Matrix, Float64Matrix, Float64Matrix]:
        """Return counts, origins, means and squares of these windows, 0 of those that have no sums."""
        places = np.searchsorted(windows, self._windows)
        counts = np.zeros((len(windows), len(self._closed)), np.int64)
        origins, means, squares = (np.zeros(counts.shape) for _ in range(3))
        counts[places], origins[places] = self._counts, self._origins
        means[places], squares[places] = self._means, self._squares
        return counts, origins, means, squares

    def close_before(self, window: int) -> None:
        """Keep only the sum of the windows before this one. No record of them may be added afterwards."""
        first = int(np.searchsorted(self._windows, window))
        if first:
            self._closed = self._closed + self._squares[:first].sum(axis=0)
            self._windows, self._counts = self._windows[first:], self._counts[first:]
            self._origins = self._origins[first:]
            self._means, self._squares = self._means[first:], self._squares[first:]

    def close(self) -> None:
        """Close all windows."""
        if len(self):
            self.close_before(int(self._windows[-1]) + 1)


MOST_CATEGORIES = 500
"""Categories of an attribute that are counted; a stream tells about as many apart (`CategoryIndex`)."""


class RecordDistances(NamedTuple):
    """Distances of E records from their published values."""

    each: Float64Matrix  # (E, q): distance in each attribute, or its negative
    squared: Float64Vector  # (E,): sum of the squares of all attributes
    numeric_squared: Float64Vector  # (E,): of numeric and time attributes whose value and published value are present


class AttributeDistances:
    """Measures distances of records from their published values; ``trees`` are the taxonomies of nominal attributes."""

    def __init__(self, attributes: Sequence[Attribute], trees: Mapping[str, CategoryTree]) -> None:
        self._numeric = np.array([attribute.has_moments for attribute in attributes], np.bool_)
        self._is_plain = bool(self._numeric.all()) and not any(a.may_be_missing for a in attributes)
        self._coded = [
            (i, scale_of(a, trees.get(a.name))) for i, a in enumerate(attributes) if SCALES[a.scale].is_coded
        ]

    def measure(self, values: Float64Matrix, published: Float64Matrix, unit: Float64Vector) -> RecordDistances:
        """Return the distances of values from published ones, both (E, q); ``unit`` (q,) is the width of each range."""
        if self._is_plain:
            scaled = (values - published) / unit
            squared = np.einsum("ij,ij->i", scaled, scaled)
            return RecordDistances(scaled, squared, squared)
        absent = np.isnan(values), np.isnan(published)
        each = np.abs(values - published) / unit
        each[absent[0] | absent[1]] = 0.0
        numeric = each[:, self._numeric]
        each[absent[0] != absent[1]] = 1.0
        for column, scale in self._coded:
            each[:, column] = scale.distances(values[:, column], published[:, column])
        return RecordDistances(each, np.einsum("ij,ij->i", each, each), np.einsum("ij,ij->i", numeric, numeric))


class LossTotals:
    """Sums for the loss of each of q quasi-identifiers, over blocks of records.

    A numeric or time attribute has sums of squares of the records of which value and published value are present. All
    other attributes have sums of distances. ``windows`` is what is left of the times after their trend; None of a
    table, and before the first record.
    """

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self.attributes = tuple(attributes)
        self._numeric = np.array([attribute.has_moments for attribute in attributes], np.bool_)
        self._times = [i for i, attribute in enumerate(attributes) if SCALES[attribute.scale].has_trend]
        count = len(attributes)
        self._counts = np.zeros(count, np.int64)
        self._records = 0
        self._distances, self._squared_error, self._mean, self._centred_squares = (np.zeros(count) for _ in range(4))
        self._lowest, self._highest = np.full(count, np.inf), np.full(count, -np.inf)
        self._codes: dict[int, set[int]] = {i: set() for i, one in enumerate(attributes) if SCALES[one.scale].is_coded}
        self.windows: WindowSums | None = None

    @classmethod
    def of(
        cls,
        attributes: Sequence[Attribute],
        values: Float64Matrix,
        published: Float64Matrix,
        distances: Float64Matrix,
        windows: Int64Vector | None = None,
    ) -> Self:
        """Return the sums of a block: values, published values, their distances (E, q); windows of a stream (E,)."""
        found = cls(attributes)
        found._records = len(values)
        if not found._numeric.all():
            found._distances += np.abs(distances).sum(axis=0)
        present = ~(np.isnan(values) | np.isnan(published)) & found._numeric
        found._counts, found._mean = present_means(values, present)
        error, centred, lowest, highest = values - published, values - found._mean, values, values
        if not present.all():
            error, centred = np.where(present, error, 0.0), np.where(present, centred, 0.0)
            lowest, highest = np.where(present, values, np.inf), np.where(present, values, -np.inf)
        found._lowest, found._highest = lowest.min(axis=0), highest.max(axis=0)
        found._centred_squares = np.einsum("ij,ij->j", centred, centred)
        found._squared_error = np.einsum("ij,ij->j", error, error)
        for column, codes in found._codes.items():
            codes.update(np.unique(values[~np.isnan(values[:, column]), column]).astype(np.int64).tolist())
        if windows is not None and found._times:
            times = np.where(present, values, np.nan)[:, found._times]
            found.windows = WindowSums.of(windows, times)
        return found

    @classmethod
    def join(cls, parts: Sequence[LossTotals]) -> Self | None:
        """Return the sums of all records; None if there is no part."""
        if not parts:
            return None
        found = cls(parts[0].attributes)
        for part in parts:
            found.merge(part)
        return found

    @property
    def has_numbers(self) -> bool:
        """Whether any attribute is numeric or a time."""
        return bool(self._numeric.any())

    def merge(self, other: LossTotals) -> Float64Vector:
        """Add the sums of other records; return the growth of the total sum of squares (q,), in squared units."""
        self._records += other._records
        self._distances += other._distances
        self._lowest = np.minimum(self._lowest, other._lowest)
        self._highest = np.maximum(self._highest, other._highest)
        # Means and sums of squares of two samples are combined without a second pass (Chan et al. 1983).
        counts, before = other._counts, self._counts
        total = np.maximum(before + counts, 1)
        step = np.where(counts > 0, other._mean - self._mean, 0.0)
        growth = other._centred_squares + step * step * (before * counts / total)
        before_squares = self._centred_squares
        self._squared_error = self._squared_error + other._squared_error
        self._centred_squares = before_squares + growth
        self._mean = self._mean + step * (counts / total)
        self._counts = before + counts
        for column, codes in self._codes.items():
            if len(codes) <= MOST_CATEGORIES:
                codes.update(other._codes[column])
        if other.windows is not None:
            if self.windows is None:
                self.windows = WindowSums(len(self._times))
            self.windows.merge(other.windows)
        return self._centred_squares - before_squares

    @property
    def _varied(self) -> BoolVector:
        """Whether the values of each attribute vary (q,). Of equal values, the sum of squares is a rounding error."""
        return (self._lowest < self._highest) & (self._centred_squares > 0)

    @property
    def sse(self) -> float:
        """Sum of squared errors on z-scores (ddof = 0) of the numeric and time attributes that vary."""
        varied = self._varied
        ratios, counts = self._squared_error[varied] / self._centred_squares[varied], self._counts[varied]
        if (counts == self._records).all():
            return float(ratios.sum() * self._records)
        return float((ratios * counts).sum())

    @property
    def sst(self) -> float:
        """Total sum of squares on z-scores: the present values of attributes that vary."""
        return float(self._counts[self._varied].sum())

    @property
    def categories(self) -> dict[str, int]:
        """Number of categories by nominal attribute; `MOST_CATEGORIES` + 1 if there are more, about."""
        return {
            self.attributes[column].name: min(len(codes), MOST_CATEGORIES + 1) for column, codes in self._codes.items()
        }

    def _trendless(self) -> dict[int, float]:
        """Return what is left of the sum of squares of each clock, by column: less than half."""
        if self.windows is None:
            return {}
        left = dict(zip(self._times, self.windows.squares.tolist(), strict=True))
        varied = self._varied
        return {i: squares for i, squares in left.items() if varied[i] and squares < self._centred_squares[i] / 2}

    @property
    def clocks(self) -> list[str]:
        """Names of the times of which a trend is removed, because less than half of the sum of squares is left."""
        return [self.attributes[column].name for column in self._trendless()]

    def by_attribute(self) -> dict[str, float | None]:
        """Return the loss of each attribute in its own measure, by name; None without records.

        Of a numeric or time attribute it is SSE / SST, and of a clock SSE over what is left of SST after the
        trend, at most 1; None if that is 0. Of all others it is the mean distance of records from their
        published values.
        """
        losses: dict[str, float | None] = {}
        varied, trendless = self._varied, self._trendless()
        for column, attribute in enumerate(self.attributes):
            if self._numeric[column]:
                total = trendless.get(column, float(self._centred_squares[column]))
                error = float(self._squared_error[column])
                loss = error / total if varied[column] and total else None
                losses[attribute.name] = 1.0 if loss is not None and loss > 1 and column in trendless else loss
            else:
                losses[attribute.name] = float(self._distances[column]) / self._records if self._records else None
        return losses


def mean_loss(losses: Mapping[str, float | None]) -> float | None:
    """Return the mean of the losses of attributes that have one; None if none has."""
    known = [loss for loss in losses.values() if loss is not None]
    return sum(known) / len(known) if known else None


def present_means(values: Float64Matrix, present: BoolMatrix) -> tuple[Int64Vector, Float64Vector]:
    """Return number and mean of the present values of each column; the mean 0 where there are none."""
    if present.all():
        return np.full(values.shape[1], len(values)), values.mean(axis=0)
    counts: Int64Vector = present.sum(axis=0)
    return counts, np.where(present, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
