"""MD: two clusters at a time, formed around the two records that are farthest apart."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.kernels.jit import njit, njit_inner
from shoal.kernels.kd_tree import NeighbourSearch, Tree, build, contains, empty_neighbour_search, farthest, remove
from shoal.kernels.pieces import pieces, search_cost
from shoal.kernels.sums import squared_distance
from shoal.tables.mdav import join_as_block, take_nearest, write_distances

LEAF_SIZE = 64


def md(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into clusters of k to 2k - 1 by maximum distance, in order of creation.

    While 2k records are left, two clusters are formed: of k records around each record of the farthest pair. If k or
    more are left over, they are a cluster; fewer join, as a block, the cluster with the centroid nearest to theirs.
    Ties go to the first pair and to the lowest record. Cost: O(n² / k) at least: each record remembers its farthest
    partner; one that was removed leaves an upper bound, and a tree is searched again only for the largest bound.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section III.
    .. [2] J. Domingo-Ferrer and J. M. Mateo-Sanz, "Practical Data-Oriented Microaggregation for Statistical Disclosure
       Control", IEEE TKDE 14(1), 2002. doi:10.1109/69.979982
    """
    (n, d), labels, tree = values.shape, np.full(len(values), -1, np.int32), build(values, LEAF_SIZE)
    partners, bounds, rest = np.full(n, -1), np.full(n, np.inf), np.arange(n)
    for first, end in pieces("partners", n, search_cost(n, d)):
        _find_partners(values, tree, first, end, partners, bounds)
    pairs = n // (2 * k)
    for first, end in pieces("MD", pairs, n * d + 10 * search_cost(n, d)):
        _form_pairs(values, k, tree, first, end, partners, bounds, rest, labels)
    left = n - 2 * k * pairs
    if left >= k:
        labels[rest[:left]] = 2 * pairs
    if pairs:
        join_as_block(values, labels, int(labels.max()) + 1)
    return labels


@njit
def _find_partners(
    values: Float64Matrix, tree: Tree, first: int, end: int, partners: Int64Vector, bounds: Float64Vector
) -> None:
    """Store the farthest partners of some records, and the squared distances."""
    search = empty_neighbour_search(1, tree.records.shape[1])
    for record in range(first, end):
        _find_partner(values, tree, search, record, partners, bounds)


@njit
def _form_pairs(
    values: Float64Matrix,
    k: int,
    tree: Tree,
    first: int,
    end: int,
    partners: Int64Vector,
    bounds: Float64Vector,
    rest: Int64Vector,
    labels: Int32Vector,
) -> None:
    """Form some pairs of clusters, one after the other; ``rest`` (n,) lists first the records that are left."""
    n, search = labels.size, empty_neighbour_search(1, tree.records.shape[1])
    members, away, opposite = np.zeros(k, np.int64), np.zeros(n), -1
    for label in range(2 * first, 2 * end):
        left = n - label * k
        if label % 2 == 0:
            seed = _farthest_pair(values, rest[:left], tree, search, partners, bounds)
            opposite = partners[seed]
        else:
            seed = opposite if contains(tree, opposite) else farthest(tree, values[members[0]], search)
        write_distances(values, rest[:left], values[seed], away)
        take_nearest(away, rest[:left], seed, labels, label, members)
        for member in members:
            remove(tree, int(member))


@njit_inner
def _farthest_pair(
    values: Float64Matrix,
    rest: Int64Vector,
    tree: Tree,
    search: NeighbourSearch,
    partners: Int64Vector,
    bounds: Float64Vector,
) -> int:
    """Return the first record of ``rest`` whose distance to its farthest partner is the largest."""
    while True:
        best, record = -1.0, -1
        for x in rest:
            if bounds[x] > best:
                best, record = bounds[x], x
        partner = partners[record]
        if partner >= 0 and contains(tree, partner):
            return int(record)
        _find_partner(values, tree, search, record, partners, bounds)


@njit_inner
def _find_partner(
    values: Float64Matrix,
    tree: Tree,
    search: NeighbourSearch,
    record: int,
    partners: Int64Vector,
    bounds: Float64Vector,
) -> None:
    """Store the lowest of the records left that are farthest from one, and its squared distance."""
    partners[record] = farthest(tree, values[record], search)
    bounds[record] = squared_distance(values, record, values[partners[record]])
