"""Maximum distance: the two records that are farthest apart are the seeds of two clusters."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit
from shoal.clustering.numba.kd_tree import (
    NeighbourSearch,
    Tree,
    build,
    contains,
    empty_neighbour_search,
    farthest,
    remove,
)
from shoal.clustering.static.mdav_kernel import Ranked, take_nearest

__all__ = ["by_pairs"]


@njit
def by_pairs(values: Float64Matrix, k: int, width: int) -> Int32Vector:
    """Return the labels of MD; records that stay over, fewer than k, have label -1.

    Each record remembers its farthest partner. Distances to what is left can only fall, so a partner that is gone
    leaves a bound, and only records whose bound is the largest of all are asked again.
    """
    n = values.shape[0]
    labels, rest = np.full(n, -1, np.int32), np.arange(n)
    tree, found = build(values, width), empty_neighbour_search(1, width)
    partners, bounds = np.full(n, -1), np.full(n, np.inf)
    for record in range(n):
        _ask(values, tree, found, record, partners, bounds)
    ranked = Ranked(np.zeros(k), np.zeros(k, np.int64))
    left, label, opposite = n, 0, -1
    while left >= 2 * k or opposite >= 0:
        if opposite < 0:
            seed = _farthest_pair(values, rest[:left], tree, found, partners, bounds)
            opposite = partners[seed]
        else:
            seed = opposite if contains(tree, opposite) else farthest(tree, values[ranked.members[0]], found)
            opposite = -1
        take_nearest(values, rest[:left], seed, labels, label, ranked)
        for record in ranked.members:
            remove(tree, record)
        left -= k
        label += 1
    if left >= k:
        for x in range(left):
            labels[rest[x]] = label
    return labels


@njit
def _farthest_pair(
    values: Float64Matrix,
    rest: Int64Vector,
    tree: Tree,
    found: NeighbourSearch,
    partners: Int64Vector,
    bounds: Float64Vector,
) -> int:
    """Return the first record whose partner is farther than anybody else's."""
    while True:
        best, record = -1.0, -1
        for x in rest:
            if bounds[x] > best:
                best, record = bounds[x], x
        partner = partners[record]
        if partner >= 0 and contains(tree, partner):
            return int(record)
        _ask(values, tree, found, record, partners, bounds)


@njit
def _ask(
    values: Float64Matrix, tree: Tree, found: NeighbourSearch, record: int, partners: Int64Vector, bounds: Float64Vector
) -> None:
    """Find the first of the records that are farthest from one."""
    partner = farthest(tree, values[record], found)
    distance = 0.0
    for j in range(values.shape[1]):
        away = values[record, j] - values[partner, j]
        distance += away * away
    partners[record], bounds[record] = partner, distance
