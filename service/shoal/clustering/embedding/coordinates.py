"""Attributes to coordinates and codes, on which distances are computed.

A numeric, ordinal or time attribute is a column of numbers. A nominal attribute is one column of codes per level of its
taxonomy. Two records that differ in a column of codes have the squared distance of that column. The distances of
the columns of one attribute add up to the height of the lowest common ancestor over the number of levels, so that they
are those of a tree with equal edges. Such distances are Euclidean: a code stands for a coordinate of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.categories import dense_coordinates
from shoal.clustering.embedding.category_tree import CategoryTree
from shoal.clustering.embedding.publication_grid import Published
from shoal.clustering.embedding.published_values import CategoryTexts, Publication
from shoal.errors import ParameterError
from shoal.policy import Attribute, Policy, Role, Scale

__all__ = ["Embedding", "category_trees"]


class _Axis(NamedTuple):
    """One attribute: how its values become coordinates and codes.

    Attributes
    ----------
    attribute : Attribute
    column : int
        Its column among the values.
    origin, unit : float
        Subtracted from a number, which is then divided by ``unit``.
    middle : float
        Coordinate of a missing number, before it is weighted.
    tree : CategoryTree or None
        Of a nominal attribute.
    code_distances : ndarray of float64
        Squared distance of two records that differ in each of its columns of codes, weighted.
    step : Decimal
        Resolution of published numbers; 0 publishes the exact mean.
    """

    attribute: Attribute
    column: int
    origin: float
    unit: float
    middle: float
    tree: CategoryTree | None
    code_distances: Float64Vector
    step: Decimal

    def codes(self, values: Float64Matrix) -> Int64Matrix:
        """Return the columns of codes of this attribute, shape (n, c)."""
        column = values[:, self.column]
        if self.tree is not None:
            return self.tree.paths(column)
        return np.isnan(column)[:, None].astype(np.int64)

    def with_distances(self, factor: float) -> _Axis:
        """Return the attribute with the distances of its codes multiplied by a factor."""
        return self._replace(code_distances=self.code_distances * factor)


class Embedding:
    """Translates the clustered attributes of a policy to coordinates and codes, and to published values.

    Create it by `of` or `of_table`.

    Parameters
    ----------
    axes : sequence of _Axis
        The attributes, in the order of the policy.
    texts : mapping of str to CategoryTexts
        Texts of the categories of each nominal attribute, by its name.
    is_table : bool
        Whether the records are those of a finished table.

    Attributes
    ----------
    unit : ndarray of float64, shape (q,)
        Unit of each quasi-identifier in its own units; 1 for a nominal one.
    code_distances : ndarray of float64, shape (c,)
        Squared distance of two records that differ in one column of `codes`.
    ranges : tuple of float
        Width of the range of each coordinate in a stream.

    Notes
    -----
    The squared distance of two records is the sum over the coordinates, plus ``code_distances`` of the columns in which
    their codes differ.
    """

    def __init__(self, axes: Sequence[_Axis], texts: Mapping[str, CategoryTexts], *, is_table: bool) -> None:
        self._axes, self._texts, self._is_table = axes, texts, is_table
        numeric = [axis for axis in axes if axis.tree is None]
        self._columns = [axis.column for axis in numeric]
        self._origin = np.array([axis.origin for axis in numeric])
        self._divisors = np.array([axis.unit for axis in numeric])
        self._weights = np.array([axis.attribute.weight for axis in numeric])
        self._middle = np.array([axis.middle * axis.attribute.weight for axis in numeric])
        self._may_be_missing = any(axis.attribute.may_be_missing for axis in numeric)
        self._coded = [axis for axis in axes if len(axis.code_distances)]
        self.code_distances = np.concatenate([np.zeros(0), *(axis.code_distances for axis in self._coded)])
        self.ranges: tuple[float, ...] = tuple(self._weights.tolist())
        published = [axis for axis in axes if axis.attribute.role is Role.QUASI_IDENTIFIER]
        self.unit = np.array([axis.unit for axis in published])
        self._publication = Publication(
            [axis.attribute for axis in published],
            [axis.column for axis in published],
            [axis.step for axis in published],
            {axis.attribute.name: axis.tree for axis in published if axis.tree is not None},
            texts,
            is_table=is_table,
        )

    @classmethod
    def of(
        cls,
        policy: Policy,
        widths: Float64Vector | None = None,
        trees: Mapping[str, CategoryTree] | None = None,
        texts: Mapping[str, CategoryTexts] | None = None,
    ) -> Self:
        """Return the embedding of a stream's policy.

        Parameters
        ----------
        policy : Policy
            With bounds for its numbers and times, except those that have ``widths``.
        widths : ndarray of float64, optional
            Widths of the ranges of attributes without bounds, in their order. A difference of one width becomes 1.
        trees, texts : mapping, optional
            Taxonomy and texts of each nominal attribute, by its name. Required if there is one.

        Raises
        ------
        ParameterError
            An attribute has neither bounds nor a width.
        """
        unbounded = [a for a in policy.clustered if a.bounds is None and not a.is_nominal]
        if steering := [a.name for a in unbounded if a.role is Role.STEERING]:
            raise ParameterError(
                f"bounds: missing for {', '.join(steering)}; ranges are learned from published values, and a steering "
                "attribute has none"
            )
        if len(unbounded) != (0 if widths is None else len(widths)):
            raise ParameterError(f"bounds: missing for {', '.join(a.name for a in unbounded)}")
        known = iter(() if widths is None else widths.tolist())
        axes = []
        for column, attribute in enumerate(policy.clustered):
            tree = (trees or {})[attribute.name] if attribute.is_nominal else None
            low, high = attribute.bounds or (0.0, 1.0 if attribute.is_nominal else next(known))
            unit = 1.0 if low == high else high - low
            distances = _code_distances(attribute, tree)
            axes.append(_Axis(attribute, column, low, unit, 0.5, tree, distances, _step(attribute, table=False)))
        return cls(axes, texts or {}, is_table=False)

    @classmethod
    def of_table(
        cls,
        policy: Policy,
        values: Float64Matrix,
        trees: Mapping[str, CategoryTree] | None = None,
        texts: Mapping[str, CategoryTexts] | None = None,
    ) -> Self:
        """Return the embedding of a finished table: z-scores of its values (n, d).

        The deviation is that of the population (ddof = 0) of the values that are not missing; for a constant attribute
        it is taken to be 1. A missing number has the mean, and under ``missing: group`` the squared distance 2 from
        numbers, which is the mean squared distance of two records. The distances of a nominal attribute are divided by
        its total variance, so that it counts as much as a number. Other parameters are those of `of`.
        """
        mean, deviation = _mean_and_deviation(values)
        axes = []
        for column, attribute in enumerate(policy.clustered):
            tree = (trees or {})[attribute.name] if attribute.is_nominal else None
            distances, step = _code_distances(attribute, tree), _step(attribute, table=policy.stream is None)
            axis = _Axis(attribute, column, mean[column], deviation[column], 0.0, tree, distances, step)
            if tree is not None:
                axis = axis._replace(origin=0.0, unit=1.0).with_distances(1 / _variance(axis, values))
            else:
                axis = axis.with_distances(2.0)
            axes.append(axis)
        return cls(axes, texts or {}, is_table=True)

    @property
    def dimensions(self) -> int:
        """Number of coordinates of a record, without codes."""
        return len(self._columns)

    def coordinates(self, values: Float64Matrix) -> Float64Matrix:
        """Scale values to [0, 1] by bounds (streams) or to z-scores (tables), and multiply them by the weights.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
            As in `records.Block`, one column per clustered attribute of the policy; not modified.

        Returns
        -------
        ndarray of float64, shape (n, p)
            New; dimensionless; one column per numeric, ordinal or time attribute. A missing value is in the middle of
            the bounds (streams) or at the mean (tables).
        """
        numbers = values if self._columns == list(range(values.shape[1])) else values[:, self._columns]
        coordinates: Float64Matrix = (numbers - self._origin) / self._divisors * self._weights
        if self._may_be_missing:
            return np.where(np.isnan(coordinates), self._middle, coordinates)
        return coordinates

    def codes(self, values: Float64Matrix) -> Int64Matrix:
        """Return the codes of records, int64 (n, c); only their equality within a column has a meaning.

        A nominal attribute has one column per level of its taxonomy, and a number under ``missing: group`` one column:
        whether it is missing. A missing category differs from all others on all levels.
        """
        return np.concatenate(
            [np.empty((len(values), 0), np.int64), *(axis.codes(values) for axis in self._coded)], axis=1
        )

    def dense(self, values: Float64Matrix) -> Float64Matrix:
        """Return points with the distances of coordinates and codes, shape (n, D), for algorithms of tables.

        Without codes they are the coordinates; see `dense_coordinates`.
        """
        coordinates = self.coordinates(values)
        return dense_coordinates(coordinates, self.codes(values), self.code_distances) if self._coded else coordinates

    def select(self, columns: Int64Vector) -> Embedding:
        """Return the embedding of some quasi-identifiers, given by their indices, and of all steering attributes.

        It takes the same values, of all attributes.
        """
        chosen = set(columns.tolist())
        axes = [a for a in self._axes if a.attribute.role is not Role.QUASI_IDENTIFIER or a.column in chosen]
        return Embedding(axes, self._texts, is_table=self._is_table)

    def published(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> Published:
        """Return the published values of clusters of values; see `Publication.of_clusters`."""
        return self._publication.of_clusters(values, cluster_bounds)


def category_trees(policy: Policy) -> dict[str, CategoryTree]:
    """Return the taxonomy of each nominal attribute of a policy, by its name."""
    return {a.name: CategoryTree(a.taxonomy) for a in policy.clustered if a.is_nominal}


def _step(attribute: Attribute, *, table: bool) -> Decimal:
    """Return the resolution of a numeric attribute; 0 for all others."""
    return attribute.publication_step(table=table) if attribute.scale is Scale.NUMERIC else Decimal(0)


def _code_distances(attribute: Attribute, tree: CategoryTree | None) -> Float64Vector:
    """Return the squared distances of an attribute's columns of codes, in units of its diameter, weighted."""
    squared = attribute.weight * attribute.weight
    if tree is not None:
        return np.full(tree.levels, squared / tree.levels)
    return np.full(1 if attribute.missing == "group" else 0, squared)


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


def _variance(axis: _Axis, values: Float64Matrix) -> float:
    """Return the total variance of the coordinates that the codes of an attribute stand for; of a constant one 1.

    With the shares s of the codes of a column, the mean squared distance of two records is 1 - sum(s²) times the
    distance of two codes, and the variance is half of it.
    """
    weight = axis.attribute.weight**2
    variance = 0.0
    for column, distance in zip(axis.codes(values).T, axis.code_distances.tolist(), strict=True):
        shares = np.unique(column, return_counts=True)[1] / len(values)
        variance += distance * (1 - float((shares * shares).sum())) / 2
    return variance / weight if variance > 0 else 1.0
