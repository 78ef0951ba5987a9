"""Attributes to coordinates and codes, on which distances are computed.

A numeric, ordinal or time attribute is a column of numbers. A nominal attribute is one column of codes per level of its
taxonomy. Two records that differ in a column of codes have the squared distance of that column. The distances of
the columns of one attribute add up to the height of the lowest common ancestor over the number of levels, so that they
are those of a tree with equal edges. Such distances are Euclidean: a code stands for a coordinate of its own.

Numbers and categories are compared by what they lose. The loss of a number is a share of its variance, that of a
category is 1 where it is not published. Two records whose numbers are drawn at random differ by two variances; so do
two records with different categories, however many categories there are. A number that is missing in one of two
records is a quarter of that away.

Codes of the categories of one partition or table.

A block numbers its categories by itself (`Block.categories`). Records of different blocks meet in one cluster, so the
pipeline gives each category one code for as long as a record with it is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple, Self

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.formats import Block
from shoal.kernels.categories import dense_coordinates
from shoal.policy import Attribute, Policy, Role, Scale
from shoal.scales.categories import CategoryTree
from shoal.scales.publication import CategoryTexts, Publication, Published

__all__ = ["CategoryIndex", "Embedding", "Scaling", "category_trees"]

VARIANCES_APART = 2.0
"""Squared distance of two records with different categories, in variances of a number."""
MISSING_APART = 0.5
"""The same of two records of which one lacks a number."""
OF_SPREADS = 1.0 / 12.0
"""Variance of a number whose spread is known: its unit is the width of evenly distributed values."""


class Scaling(NamedTuple):
    """How the L quasi-identifiers of a stream that are not nominal are scaled.

    Attributes
    ----------
    widths : ndarray of float64, shape (L,)
        A difference of one width becomes 1.
    centers : ndarray of float64, shape (L,)
        Value in place of a missing one.
    """

    widths: Float64Vector
    centers: Float64Vector


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

    @property
    def must_agree(self) -> bool:
        """Whether clusters publish a category only where all members agree."""
        return self.tree is not None and self.attribute.publish == "ancestor"


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
        Unit in which the error of each quasi-identifier is measured, in its own units: the width of its bounds, or that
        of its scaling if it has none; 1 for a nominal one.
    code_distances : ndarray of float64, shape (c,)
        Squared distance of two records that differ in one column of `codes`.
    codes_must_agree : ndarray of bool, shape (c,)
        Whether a cluster publishes a code of the column only if all members have it.
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
        self.codes_must_agree: BoolVector = np.concatenate(
            [np.zeros(0, np.bool_), *(np.full(len(a.code_distances), a.must_agree) for a in self._coded)]
        )
        self.ranges: tuple[float, ...] = tuple(self._weights.tolist())
        published = [axis for axis in axes if axis.attribute.role is Role.QUASI_IDENTIFIER]
        self.unit = np.array([_unit_of_loss(axis) for axis in published])
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
        scaling: Scaling | None = None,
        trees: Mapping[str, CategoryTree] | None = None,
        texts: Mapping[str, CategoryTexts] | None = None,
    ) -> Self:
        """Return the embedding of a stream's policy.

        Parameters
        ----------
        policy : Policy
        scaling : Scaling, optional
            Of the quasi-identifiers that are not nominal. If omitted, and for all others, a difference of the width of
            the bounds becomes 1; two categories are as far apart, and a missing number is in the middle.
        trees, texts : mapping, optional
            Taxonomy and texts of each nominal attribute, by its name. Required if there is one.

        Raises
        ------
        ParameterError
            An attribute has neither bounds nor a scaling.
        """
        variance = 1.0 / VARIANCES_APART if scaling is None else OF_SPREADS
        missing = VARIANCES_APART if scaling is None else MISSING_APART
        known = iter(()) if scaling is None else zip(scaling.widths.tolist(), scaling.centers.tolist(), strict=True)
        axes = []
        for column, attribute in enumerate(policy.clustered):
            tree = (trees or {})[attribute.name] if attribute.is_nominal else None
            low, high = attribute.bounds or (0.0, 1.0)
            unit, middle = 1.0 if low == high else high - low, 0.5
            if scaling is not None and attribute.role is Role.QUASI_IDENTIFIER and tree is None:
                unit, center = next(known)
                middle = (center - low) / unit
            elif attribute.bounds is None and tree is None:
                raise ParameterError(_missing_bounds(policy, is_learned=scaling is not None))
            distances = _code_distances(attribute, tree, variance, missing)
            axes.append(_Axis(attribute, column, low, unit, middle, tree, distances, _step(attribute, table=False)))
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
        it is taken to be 1. A missing number has the mean. Other parameters are those of `of`.
        """
        mean, deviation = _mean_and_deviation(values)
        axes = []
        for column, attribute in enumerate(policy.clustered):
            tree = (trees or {})[attribute.name] if attribute.is_nominal else None
            distances = _code_distances(attribute, tree, 1.0, MISSING_APART)
            origin, unit = (mean[column], deviation[column]) if tree is None else (0.0, 1.0)
            step = _step(attribute, table=policy.stream is None)
            axes.append(_Axis(attribute, column, origin, unit, 0.0, tree, distances, step))
        return cls(axes, texts or {}, is_table=True)

    @property
    def dimensions(self) -> int:
        """Number of coordinates of a record, without codes."""
        return len(self._columns)

    def coordinates(self, values: Float64Matrix) -> Float64Matrix:
        """Scale values by spreads or bounds (streams) or to z-scores (tables), and multiply them by the weights.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
            As in `records.Block`, one column per clustered attribute of the policy; not modified.

        Returns
        -------
        ndarray of float64, shape (n, p)
            New; dimensionless; one column per numeric, ordinal or time attribute. A missing value is at the center of
            its scaling or in the middle of the bounds (streams), or at the mean (tables).
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


def _unit_of_loss(axis: _Axis) -> float:
    """Return the unit in which errors of an attribute are measured."""
    low, high = axis.attribute.bounds or (0.0, axis.unit)
    return axis.unit if axis.tree is not None or low == high else high - low


def _missing_bounds(policy: Policy, *, is_learned: bool) -> str:
    """Return which attributes lack bounds that they need."""
    unbounded = [a for a in policy.clustered if a.bounds is None and not a.is_nominal]
    if steering := [a.name for a in unbounded if a.role is Role.STEERING]:
        return (
            f"bounds: missing for {', '.join(steering)}; spreads are learned from published values, and a steering "
            "attribute has none"
        )
    names = ", ".join(a.name for a in unbounded)
    return (
        f"bounds: missing for {names}" if is_learned else f"bounds: missing for {names}, by which distances are scaled"
    )


def _code_distances(attribute: Attribute, tree: CategoryTree | None, variance: float, missing: float) -> Float64Vector:
    """Return the squared distances of an attribute's columns of codes, weighted.

    ``variance`` is that of a number in units of the coordinates; ``missing`` is the squared distance of two records of
    which one lacks the number, in variances.
    """
    squared = attribute.weight * attribute.weight * variance
    if tree is not None:
        return np.full(tree.levels, VARIANCES_APART * squared / tree.levels)
    return np.full(1 if attribute.missing == "group" else 0, missing * squared)


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


FEWEST_TO_DROP = 512
"""Categories of an attribute from which codes without a held record are dropped."""


class CategoryIndex:
    """Gives each category of the nominal attributes a code, and keeps its text.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    trees : dict of str to CategoryTree
        Taxonomy of each nominal attribute, by name.
    texts : dict of str to dict
        Text of each category by its code, for each nominal attribute by name. It is updated with each block.

    Notes
    -----
    The leaves of a taxonomy have the codes 0, 1, ... in its order. Other categories are numbered in the order in which
    they are read, so codes differ after a restart. No code is given twice.
    Memory: if `drop_unused` is called for each block, about `FEWEST_TO_DROP` categories or as many as records are held.
    """

    def __init__(self, policy: Policy) -> None:
        self.trees = category_trees(policy)
        self._columns = [
            _AttributeCodes(number, attribute, self.trees[attribute.name])
            for number, attribute in enumerate(policy.clustered)
            if attribute.is_nominal
        ]
        self.texts: dict[str, CategoryTexts] = {column.name: column.texts for column in self._columns}

    def encode(self, block: Block) -> Block:
        """Return the block with codes instead of its own numbers of categories, and without ``categories``."""
        if not self._columns:
            return block
        values = block.values.copy()
        for column, categories in zip(self._columns, block.categories, strict=True):
            values[:, column.number] = column.encode(values[:, column.number], categories)
        return replace(block, values=values, categories=())

    def count_unknown(self, block: Block) -> Counter[str]:
        """Count the values of a block that the taxonomy of their attribute lacks, for each attribute that has one.

        The records of a block are valid, so ``unknown: root`` accepts these values.
        """
        found: Counter[str] = Counter()
        for column, categories in zip(self._columns, block.categories, strict=False):
            if count := column.count_unknown(block.values[:, column.number], categories):
                found[column.name] = count
        return found

    @property
    def is_large(self) -> bool:
        """Whether `drop_unused` would drop codes."""
        return any(column.is_large for column in self._columns)

    def drop_unused(self, held: Float64Matrix) -> None:
        """Drop codes that no held record has, of attributes with many codes.

        Parameters
        ----------
        held : ndarray of float64, shape (n, d)
            Values of all records whose published values are not computed yet, with codes.
        """
        for column in self._columns:
            if column.is_large:
                column.drop_unused(held[:, column.number])


class _AttributeCodes:
    """The categories of one attribute."""

    def __init__(self, number: int, attribute: Attribute, tree: CategoryTree) -> None:
        self.number, self.name = number, attribute.name
        self._fixed = tree.leaf_count
        self.texts = dict(enumerate(tree.leaf_texts))
        self._codes = {text: code for code, text in self.texts.items()}
        self._next = self._fixed
        self._limit = self._fixed + FEWEST_TO_DROP

    def count_unknown(self, numbers: Float64Vector, categories: Sequence[str]) -> int:
        """Return how many records have a category that is no leaf; 0 without a taxonomy."""
        if not self._fixed:
            return 0
        unknown = [i for i, text in enumerate(categories) if self._codes.get(text, self._fixed) >= self._fixed]
        return int(np.isin(numbers, unknown).sum()) if unknown else 0

    @property
    def is_large(self) -> bool:
        return len(self._codes) > self._limit

    def encode(self, numbers: Float64Vector, categories: Sequence[str]) -> Float64Vector:
        """Return the codes of records, given their numbers in the categories of their block; NaN stays."""
        if not len(categories):
            return numbers
        codes = np.array([self._code_of(text) for text in categories], np.float64)
        missing = np.isnan(numbers)
        indices: Int64Vector = np.where(missing, 0, numbers).astype(np.int64)
        return np.where(missing, np.nan, codes[indices])

    def _code_of(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code, self._next = self._next, self._next + 1
            self._codes[text], self.texts[code] = code, text
        return code

    def drop_unused(self, held: Float64Vector) -> None:
        """Drop codes that no held record has. The number that stays is at most half of the next limit."""
        used = set(held[~np.isnan(held)].astype(np.int64).tolist())
        for text, code in [(text, code) for text, code in self._codes.items() if code >= self._fixed]:
            if code not in used:
                del self._codes[text], self.texts[code]
        self._limit = max(self._fixed + FEWEST_TO_DROP, 2 * len(self._codes))
