"""What a cluster publishes of one attribute, for each scale.

Every publisher takes the values of members, cluster after cluster, without missing ones. What it returns does not
depend on the order of the members in their cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Protocol

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Vector
from shoal.clustering.embedding.category_tree import ROOT_NODE, CategoryTree
from shoal.clustering.embedding.publication_grid import PublicationGrid
from shoal.policy import Attribute

__all__ = ["NominalPublisher", "NumericPublisher", "OrdinalPublisher", "ScalePublisher"]


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
