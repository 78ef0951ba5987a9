"""MDAV: a cluster around the record farthest from the centroid of what is left, and one on the opposite side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.numba.compensated_sums import centroid, subtract, sum_all
from shoal.clustering.numba.distances import squared_distance
from shoal.clustering.numba.jit import njit, njit_inline, njit_inner
from shoal.clustering.numba.kd_tree import build, empty_neighbour_search, farthest, nearest, remove
from shoal.clustering.static.farthest_point_index import empty_farthest_point_index, farthest_point

__all__ = [
    "SCAN_UP_TO",
    "NearestMembers",
    "insert_nearest",
    "label_members",
    "mdav",
    "mdav_by_scan",
    "mdav_by_tree",
    "take_nearest",
]

SCAN_UP_TO = 400
"""Records up to which a scan of all of them is as fast as a tree."""
LEAF_SIZE = 64


def mdav(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into clusters of k to 2k - 1 by maximum distance to the average vector.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Records of a cluster, 2 <= k <= n.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered in order of creation.

    Notes
    -----
    Guarantee: every cluster has k records except the last, which has k to 2k - 1. Ties go to the lowest record, and
    centroids are exact to the last bit, so the result does not depend on how it is computed.
    The end follows MDAV-generic [2]_: while 3k records are left, two clusters are formed; while 2k are left, one; the
    rest is one cluster. The survey [1]_ forms clusters while 2k are left and lets fewer than k join a cluster, which is
    the same partition whenever they join the last cluster.
    Cost: O(n² d / k) up to 400 records. Above, a k-d tree from which records are removed and a list sorted by the
    distance to a former centroid give nearly O(n log n) for few attributes, and never more than O(n² d / k).
    O(n d) memory.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section IV.
    .. [2] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through
       Microaggregation", Data Mining and Knowledge Discovery 11(2), 2005, MDAV-generic. doi:10.1007/s10618-005-0007-5
    """
    return mdav_by_scan(values, k) if len(values) <= SCAN_UP_TO else mdav_by_tree(values, k, LEAF_SIZE)


@njit
def mdav_by_scan(values: Float64Matrix, k: int) -> Int32Vector:
    """Return the labels of MDAV; every cluster scans all records that are left. O(n² d / k)."""
    n, d = values.shape
    labels, rest = np.full(n, -1, np.int32), np.arange(n)
    sums, centre = sum_all(values), np.zeros(d)
    found = NearestMembers(np.zeros(k), np.zeros(k, np.int64))
    left, label, opposite = n, 0, -1
    while left >= 2 * k:
        if opposite < 0:
            centroid(sums, left, centre)
            seed = _farthest_record(values, rest[:left], centre)
        else:
            seed = _farthest_record(values, rest[:left], values[opposite])
        take_nearest(values, rest[:left], seed, labels, label, found)
        for record in found.members:
            subtract(sums, values[record])
        left -= k
        opposite = seed if opposite < 0 else -1
        label += 1
    for x in range(left):
        labels[rest[x]] = label
    return labels


class NearestMembers(NamedTuple):
    """The members of a cluster, the seed first, then from near to far."""

    distances: Float64Vector  # (k,): squared distances to the seed
    members: Int64Vector  # (k,)


@njit_inner
def take_nearest(
    values: Float64Matrix, rest: Int64Vector, seed: int, labels: Int32Vector, label: int, found: NearestMembers
) -> None:
    """Form a cluster of a seed and the k - 1 records nearest to it, and label them.

    ``rest`` holds the records that are left, ascending; the remaining ones are moved to its front, in their order.
    ``found`` has room for k members and is overwritten.
    """
    distances, members = found
    distances[:] = np.inf
    distances[0] = -1.0
    members[0] = seed
    for x in range(rest.size):
        record = rest[x]
        distance = squared_distance(values, record, values[seed])
        if record != seed:
            insert_nearest(distances, members, distance, record)
    label_members(rest, members, labels, label)


@njit_inline
def insert_nearest(distances: Float64Vector, members: Int64Vector, distance: float, record: int) -> None:
    """Insert a record into lists ordered by distance if it is nearer than the last; the first entry never moves."""
    i = members.size - 1
    if distance < distances[i]:
        while distances[i - 1] > distance:
            distances[i] = distances[i - 1]
            members[i] = members[i - 1]
            i -= 1
        distances[i] = distance
        members[i] = record


@njit_inline
def label_members(rest: Int64Vector, members: Int64Vector, labels: Int32Vector, label: int) -> None:
    """Label the members of a cluster, and move the remaining records to the front of ``rest``, in their order."""
    for record in members:
        labels[record] = label
    remaining = 0
    for x in range(rest.size):
        rest[remaining] = rest[x]
        remaining += labels[rest[x]] < 0


@njit_inner
def _farthest_record(values: Float64Matrix, rest: Int64Vector, centre: Float64Vector) -> int:
    """Return the first record of ``rest`` that is farthest from ``centre``."""
    best, record = -1.0, -1
    for x in range(rest.size):
        distance = squared_distance(values, rest[x], centre)
        if distance > best:
            best, record = distance, rest[x]
    return int(record)


@njit
def mdav_by_tree(values: Float64Matrix, k: int, leaf_size: int) -> Int32Vector:
    """Return the labels of MDAV, found through a k-d tree with leaves of at most ``leaf_size`` records."""
    n, d = values.shape
    labels = np.full(n, -1, np.int32)
    tree, search = build(values, leaf_size), empty_neighbour_search(k - 1, leaf_size)
    index, free = empty_farthest_point_index(n, d), np.ones(n, np.bool_)
    sums, centre = sum_all(values), np.zeros(d)
    left, label, opposite = n, 0, -1
    while left >= 2 * k:
        if opposite < 0:
            centroid(sums, left, centre)
            seed = farthest_point(index, values, free, left, centre)
        else:
            seed = farthest(tree, values[opposite], search)
        remove(tree, seed)
        nearest(tree, values[seed], tree.leaves[seed], search)
        _assign(labels, free, seed, label)
        subtract(sums, values[seed])
        for record in search.records:
            remove(tree, record)
            _assign(labels, free, record, label)
            subtract(sums, values[record])
        left -= k
        opposite = seed if opposite < 0 else -1
        label += 1
    for record in range(n):
        if labels[record] < 0:
            labels[record] = label
    return labels


@njit_inline
def _assign(labels: Int32Vector, free: BoolVector, record: int, label: int) -> None:
    labels[record] = label
    free[record] = False
