"""V-MDAV: clusters grow beyond k while the next record is much nearer to them than to anybody else."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.numba.compensated_sums import centroid, sum_all
from shoal.clustering.numba.jit import njit
from shoal.clustering.numba.kd_tree import NeighbourSearch, Tree, build, empty_neighbour_search, nearest, remove

__all__ = ["by_tree", "squares_from_centroid"]


@njit
def by_tree(values: Float64Matrix, k: int, gamma: float, width: int, order: Int64Vector) -> Int32Vector:
    """Return the labels of V-MDAV, ``order`` being all records from the outside inwards.

    Records that stay over, fewer than k, have label -1.
    """
    n = values.shape[0]
    labels = np.full(n, -1, np.int32)
    tree, found = build(values, width), empty_neighbour_search(k - 1, width)
    one, two = empty_neighbour_search(1, width), empty_neighbour_search(2, width)
    members = np.zeros(2 * k - 1, np.int64)
    left, label = n, 0
    for seed in order:
        if left < k:
            break
        if labels[seed] >= 0:
            continue
        remove(tree, seed)
        nearest(tree, values[seed], tree.leaves[seed], found)
        members[0] = seed
        members[1:k] = found.records
        for record in found.records:
            remove(tree, record)
        size = k
        while size < 2 * k - 1 and size < left:
            distance, record = _next(tree, values, members[:size], one)
            nearest(tree, values[record], tree.leaves[record], two)
            others = two.distances[1] if two.records[0] == record else two.distances[0]
            if not (gamma > 0.0 and distance < gamma * others):
                break
            remove(tree, record)
            members[size] = record
            size += 1
        for x in range(size):
            labels[members[x]] = label
        left -= size
        label += 1
    return labels


@njit
def squares_from_centroid(values: Float64Matrix) -> Float64Vector:
    """Return the squared distance of each record to the centroid of all."""
    n, d = values.shape
    centre, distances = np.zeros(d), np.zeros(n)
    centroid(sum_all(values), n, centre)
    for i in range(n):
        for j in range(d):
            away = values[i, j] - centre[j]
            distances[i] += away * away
    return distances


@njit
def _next(tree: Tree, values: Float64Matrix, members: Int64Vector, one: NeighbourSearch) -> tuple[float, int]:
    """Return the record left that is nearest to any member, and how near."""
    best, record = np.inf, np.iinfo(np.int64).max
    for member in members:
        nearest(tree, values[member], tree.leaves[member], one)
        if one.distances[0] < best or (one.distances[0] == best and one.records[0] < record):
            best, record = one.distances[0], one.records[0]
    return best, record
