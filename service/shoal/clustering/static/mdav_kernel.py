"""MDAV, plainly and through a tree: the same labels, in O(n² d / k) or, for few attributes, nearly O(n log n)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.numba.compensated_sums import centroid, subtract, sum_all
from shoal.clustering.numba.distances import squared_distance
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.numba.kd_tree import build, empty_neighbour_search, farthest, nearest, remove
from shoal.clustering.static.farthest_point_index import empty_farthest_point_index, farthest_point

__all__ = ["Ranked", "by_scan", "by_tree", "take_nearest"]


class Ranked(NamedTuple):
    """The members of a cluster, from its seed outwards."""

    distances: Float64Vector  # (k,) squared
    members: Int64Vector  # (k,)


@njit
def _farthest(values: Float64Matrix, rest: Int64Vector, centre: Float64Vector) -> int:
    """Return the first record of ``rest`` that is farthest from ``centre``."""
    best, record = -1.0, -1
    for x in range(rest.size):
        distance = squared_distance(values, rest[x], centre)
        if distance > best:
            best, record = distance, rest[x]
    return int(record)


@njit
def take_nearest(
    values: Float64Matrix, rest: Int64Vector, seed: int, labels: Int32Vector, label: int, found: Ranked
) -> None:
    """Label ``seed`` and its nearest, and bring the others of ``rest`` to its front, in their order.

    ``found`` has room for the members, the seed first, then from near to far; ``rest`` is sorted.
    """
    distances, members = found
    last = members.size - 1
    distances[:] = np.inf
    distances[0] = -1.0
    members[0] = seed
    for x in range(rest.size):
        record = rest[x]
        distance = squared_distance(values, record, values[seed])
        if distance < distances[last] and record != seed:
            i = last
            while distances[i - 1] > distance:
                distances[i] = distances[i - 1]
                members[i] = members[i - 1]
                i -= 1
            distances[i] = distance
            members[i] = record
    for record in members:
        labels[record] = label
    kept = 0
    for x in range(rest.size):
        rest[kept] = rest[x]
        kept += labels[rest[x]] < 0


@njit
def by_scan(values: Float64Matrix, k: int) -> Int32Vector:
    """Return the labels of MDAV, reading all that is left for every cluster."""
    n, d = values.shape
    labels, rest = np.full(n, -1, np.int32), np.arange(n)
    sums, centre = sum_all(values), np.zeros(d)
    found = Ranked(np.zeros(k), np.zeros(k, np.int64))
    left, label, opposite = n, 0, -1
    while left >= 2 * k:
        if opposite < 0:
            centroid(sums, left, centre)
            seed = _farthest(values, rest[:left], centre)
        else:
            seed = _farthest(values, rest[:left], values[opposite])
        take_nearest(values, rest[:left], seed, labels, label, found)
        for record in found.members:
            subtract(sums, values[record])
        left -= k
        opposite = seed if opposite < 0 else -1
        label += 1
    for x in range(left):
        labels[rest[x]] = label
    return labels


@njit
def by_tree(values: Float64Matrix, k: int, width: int) -> Int32Vector:
    """Return the labels of MDAV, with leaves of at most ``width`` records."""
    n, d = values.shape
    labels = np.full(n, -1, np.int32)
    tree, found = build(values, width), empty_neighbour_search(k - 1, width)
    shell, free = empty_farthest_point_index(n, d), np.ones(n, np.bool_)
    sums, centre = sum_all(values), np.zeros(d)
    left, label, opposite = n, 0, -1
    while left >= 2 * k:
        if opposite < 0:
            centroid(sums, left, centre)
            seed = farthest_point(shell, values, free, left, centre)
        else:
            seed = farthest(tree, values[opposite], found)
        remove(tree, seed)
        nearest(tree, values[seed], tree.leaves[seed], found)
        _label(labels, free, seed, label)
        subtract(sums, values[seed])
        for record in found.records:
            remove(tree, record)
            _label(labels, free, record, label)
            subtract(sums, values[record])
        left -= k
        opposite = seed if opposite < 0 else -1
        label += 1
    for record in range(n):
        if labels[record] < 0:
            labels[record] = label
    return labels


@njit_in_place
def _label(labels: Int32Vector, free: BoolVector, record: int, label: int) -> None:
    labels[record] = label
    free[record] = False
