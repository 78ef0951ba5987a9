"""Distance-based record linkage: how many members of each cluster are re-identified by what was published for them."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.distances import squared_distance
from shoal.clustering.numba.jit import njit, njit_inner
from shoal.clustering.numba.kd_tree import ANY, build, empty_neighbour_search, nearest

__all__ = ["expected_links"]

LEAF_SIZE = 64
NEAREST = 8
"""Nearest records that are searched first; all records are scanned only if they are all equally far."""


@njit
def expected_links(
    rows: Float64Matrix, published: Float64Matrix, members: Int64Vector, cluster_bounds: Int64Vector
) -> Float64Vector:
    """Return the expected number of correctly linked members of each cluster, shape (clusters,).

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        The original records.
    published : ndarray of float64, shape (clusters, d)
        What was published for all members of each cluster.
    members : ndarray of int64, shape (n,)
        Records by cluster: those of cluster g are ``members[cluster_bounds[g]:cluster_bounds[g + 1]]``.
    cluster_bounds : ndarray of int64, shape (clusters + 1,)
        Where the members of each cluster begin.

    Notes
    -----
    A published record is linked to the nearest original record; of m equally near ones, to each with probability 1 / m.
    Cost: O(clusters log n) for few attributes, O(clusters n) for many.
    """
    tree, search = build(rows, LEAF_SIZE), empty_neighbour_search(min(NEAREST, rows.shape[0]), LEAF_SIZE)
    links = np.zeros(published.shape[0])
    for cluster in range(published.shape[0]):
        own = members[cluster_bounds[cluster] : cluster_bounds[cluster + 1]]
        point = published[cluster]
        nearest(tree, point, tree.leaves[own[0]], search, ANY)
        least, last = search.distances[0], search.distances.size - 1
        ties = 0
        if search.distances[last] > least:
            while search.distances[ties] == least:
                ties += 1
        members_at = _count_members_at(rows, own, point, least)
        if members_at > 0:
            links[cluster] = members_at / (ties if ties > 0 else _count_at(rows, point, least))
    return links


@njit_inner
def _count_members_at(rows: Float64Matrix, own: Int64Vector, point: Float64Vector, distance: float) -> int:
    """Return how many of some records are at a squared distance from a point."""
    count = 0
    for i in own:
        count += squared_distance(rows, i, point) == distance
    return count


@njit_inner
def _count_at(rows: Float64Matrix, point: Float64Vector, distance: float) -> int:
    """Return how many of all records are at a squared distance from a point."""
    count = 0
    for i in range(rows.shape[0]):
        count += squared_distance(rows, i, point) == distance
    return count
