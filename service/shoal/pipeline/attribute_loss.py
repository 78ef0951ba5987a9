"""How far published values are from the values of the records, for each attribute in its own measure.

The distance of a number or a time is its difference over the range. That of an ordinal value is the difference of the
ranks over that of the first and the last. That of a category is the height of the lowest common ancestor of the two
nodes over the number of levels; without a taxonomy it is 0 or 1. A missing value is at distance 1 from any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolMatrix, BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.embedding import CategoryTree
from shoal.policy import Attribute

__all__ = ["AttributeDistances", "LossTotals", "RecordDistances", "present_means"]


class RecordDistances(NamedTuple):
    """Distances of E records from their published values.

    Attributes
    ----------
    each : ndarray of float64, shape (E, q)
        Distance in each attribute, or its negative.
    squared : ndarray of float64, shape (E,)
        Sum of the squares of all attributes.
    numeric_squared : ndarray of float64, shape (E,)
        Sum of the squares of numeric and time attributes, where value and published value are present.
    """

    each: Float64Matrix
    squared: Float64Vector
    numeric_squared: Float64Vector


class AttributeDistances:
    """Measures distances of records from their published values.

    Parameters
    ----------
    attributes : sequence of Attribute
        The q quasi-identifiers.
    trees : mapping of str to CategoryTree
        Taxonomy of each nominal attribute, by name.
    """

    def __init__(self, attributes: Sequence[Attribute], trees: Mapping[str, CategoryTree]) -> None:
        self._numeric = np.array([attribute.has_moments for attribute in attributes], np.bool_)
        self._is_plain = bool(self._numeric.all()) and not any(a.may_be_missing for a in attributes)
        self._trees = {i: trees[a.name] for i, a in enumerate(attributes) if a.is_nominal}

    def measure(self, values: Float64Matrix, published: Float64Matrix, unit: Float64Vector) -> RecordDistances:
        """Return the distances.

        Parameters
        ----------
        values, published : ndarray of float64, shape (E, q)
            Quasi-identifiers as read (clipped) and as published; NaN where missing.
        unit : ndarray of float64, shape (q,)
            Width of the range of each attribute in its own units, above 0; ignored for nominal ones.
        """
        if self._is_plain:
            scaled = (values - published) / unit
            squared = np.einsum("ij,ij->i", scaled, scaled)
            return RecordDistances(scaled, squared, squared)
        absent = np.isnan(values), np.isnan(published)
        each = np.abs(values - published) / unit
        each[absent[0] | absent[1]] = 0.0
        numeric = each[:, self._numeric]
        each[absent[0] != absent[1]] = 1.0
        for column, tree in self._trees.items():
            different = tree.paths(values[:, column]) != tree.paths(published[:, column])
            each[:, column] = different.mean(axis=1)
        return RecordDistances(each, np.einsum("ij,ij->i", each, each), np.einsum("ij,ij->i", numeric, numeric))


class LossTotals:
    """Sums for the loss of each attribute, over blocks of records.

    Parameters
    ----------
    attributes : sequence of Attribute
        The q quasi-identifiers.

    Notes
    -----
    A numeric or time attribute has sums of squares of the records of which value and published value are present. All
    other attributes have sums of distances.
    """

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self._names = [attribute.name for attribute in attributes]
        self._numeric = np.array([attribute.has_moments for attribute in attributes], np.bool_)
        count = len(attributes)
        self._counts = np.zeros(count, np.int64)
        self._records = 0
        self._distances, self._squared_error, self._mean, self._centred_squares = (np.zeros(count) for _ in range(4))
        self._lowest, self._highest = np.full(count, np.inf), np.full(count, -np.inf)

    @property
    def has_numbers(self) -> bool:
        """Whether any attribute is numeric or a time."""
        return bool(self._numeric.any())

    def add(self, values: Float64Matrix, published: Float64Matrix, distances: Float64Matrix) -> Float64Vector:
        """Add records; return the growth of the total sum of squares of each attribute, in its units squared.

        Parameters
        ----------
        values, published, distances : ndarray of float64, shape (E, q)
            As in `AttributeDistances.measure`, and what it returned for each attribute; E >= 1.
        """
        self._records += len(values)
        if not self._numeric.all():
            self._distances += np.abs(distances).sum(axis=0)
        # Means and sums of squares of two samples are combined without a second pass (Chan et al. 1983).
        present = ~(np.isnan(values) | np.isnan(published)) & self._numeric
        counts, mean = present_means(values, present)
        error, centred, lowest, highest = values - published, values - mean, values, values
        if not present.all():
            error, centred = np.where(present, error, 0.0), np.where(present, centred, 0.0)
            lowest, highest = np.where(present, values, np.inf), np.where(present, values, -np.inf)
        self._lowest = np.minimum(self._lowest, lowest.min(axis=0))
        self._highest = np.maximum(self._highest, highest.max(axis=0))
        before, total = self._counts, np.maximum(self._counts + counts, 1)
        step = np.where(counts > 0, mean - self._mean, 0.0)
        growth = np.einsum("ij,ij->j", centred, centred) + step * step * (before * counts / total)
        before_squares = self._centred_squares
        self._squared_error += np.einsum("ij,ij->j", error, error)
        self._centred_squares = before_squares + growth
        self._mean += step * (counts / total)
        self._counts = before + counts
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

    def by_attribute(self) -> dict[str, float | None]:
        """Return the loss of each attribute in its own measure, by name.

        Of a numeric or time attribute it is SSE / SST, None if all values are equal. Of all others it is the mean
        distance of records from their published values. None without records.
        """
        losses: dict[str, float | None] = {}
        varied = self._varied
        for column, name in enumerate(self._names):
            if self._numeric[column]:
                total = float(self._centred_squares[column])
                losses[name] = float(self._squared_error[column]) / total if varied[column] else None
            else:
                losses[name] = float(self._distances[column]) / self._records if self._records else None
        return losses


def present_means(values: Float64Matrix, present: BoolMatrix) -> tuple[Int64Vector, Float64Vector]:
    """Return number and mean of the present values of each column; the mean 0 where there are none."""
    if present.all():
        return np.full(values.shape[1], len(values)), values.mean(axis=0)
    counts: Int64Vector = present.sum(axis=0)
    return counts, np.where(present, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
