"""Distance-based record linkage: how many members of each cluster are found by what was published for them."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.distances import squared_distance
from shoal.clustering.numba.jit import njit
from shoal.clustering.numba.kd_tree import ANY, build, empty_neighbour_search, nearest

__all__ = ["link"]

LEAF = 64
TIES = 8
"""Nearest that are asked for at first; only where all of them are equally far, all records are looked at."""


@njit
def link(rows: Float64Matrix, queries: Float64Matrix, members: Int64Vector, offsets: Int64Vector) -> Float64Vector:
    """Return for each cluster how many members are expected to be found.

    ``rows`` (n, d) are the originals, ``queries`` (G, d) what was published; ``members[offsets[g]:offsets[g + 1]]`` are
    those of cluster g. Each of t nearest is taken for the record with chance 1 / t.
    """
    tree, found = build(rows, LEAF), empty_neighbour_search(min(TIES, rows.shape[0]), LEAF)
    hits = np.zeros(queries.shape[0])
    for cluster in range(queries.shape[0]):
        own = members[offsets[cluster] : offsets[cluster + 1]]
        point = queries[cluster]
        nearest(tree, point, tree.leaves[own[0]], found, ANY)
        least, last = found.distances[0], found.distances.size - 1
        if found.distances[last] > least:
            ties = 0
            while found.distances[ties] == least:
                ties += 1
        else:
            ties = 0
        members_there = _members_at(rows, own, point, least)
        if members_there > 0:
            hits[cluster] = members_there / (ties if ties > 0 else _count_at(rows, point, least))
    return hits


@njit
def _members_at(rows: Float64Matrix, own: Int64Vector, point: Float64Vector, distance: float) -> int:
    count = 0
    for i in own:
        count += squared_distance(rows, i, point) == distance
    return count


@njit
def _count_at(rows: Float64Matrix, point: Float64Vector, distance: float) -> int:
    count = 0
    for i in range(rows.shape[0]):
        count += squared_distance(rows, i, point) == distance
    return count
