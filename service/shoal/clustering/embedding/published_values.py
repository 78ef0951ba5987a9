"""The published values of clusters: for each attribute what its scale publishes, or that the value is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.embedding.category_tree import CategoryTree
from shoal.clustering.embedding.publication_grid import PublicationGrid, Published
from shoal.clustering.embedding.scale_publishers import (
    NominalPublisher,
    NumericPublisher,
    OrdinalPublisher,
    ScalePublisher,
)
from shoal.clustering.embedding.time_publisher import TimePublisher
from shoal.policy import Attribute, Scale

__all__ = ["CategoryTexts", "Publication"]

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
