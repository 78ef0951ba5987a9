"""MDAV with all squared distances in memory; it needs distances only, and no coordinates.

The squared distance of a record from the centroid of m records is 1/m times the sum of its squared distances from them,
less a term that is equal for all records. The record farthest from the centroid is therefore the one with the largest
sum, and the sums are updated whenever records leave.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit_inline, njit_inner
from shoal.clustering.static.mdav import NearestMembers, insert_nearest, label_members

__all__ = ["mdav_dense"]


@njit_inner
def mdav_dense(squares: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into clusters of k to 2k - 1, as `mdav.mdav` does.

    Parameters
    ----------
    squares : ndarray of float64, shape (n, n)
        Squared Euclidean distances; symmetric; not modified.
    k : int
        Records of a cluster, 2 <= k <= n.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered in order of creation.

    Notes
    -----
    Guarantee: cluster sizes as of `mdav.mdav`. Equal records are ties, and ties go to the lowest record. The sums are
    floats: of different records whose distances from a centroid differ by rounding only, either may be chosen.
    Cost: O(n²) time; O(n) memory.
    """
    n = squares.shape[0]
    labels, rest, sums = np.full(n, -1, np.int32), np.arange(n), np.zeros(n)
    for i in range(n):
        _add(sums, squares[i], 1.0)
    found = NearestMembers(np.zeros(k), np.zeros(k, np.int64))
    left, label, opposite = n, 0, -1
    while left >= 2 * k:
        seed = _largest(sums if opposite < 0 else squares[opposite], rest[:left])
        _take_nearest(squares[seed], rest[:left], seed, labels, label, found)
        for record in found.members:
            _add(sums, squares[record], -1.0)
        left -= k
        opposite = seed if opposite < 0 else -1
        label += 1
    for x in range(left):
        labels[rest[x]] = label
    return labels


@njit_inline
def _add(sums: Float64Vector, away: Float64Vector, factor: float) -> None:
    """Add ``factor``, 1 or -1, times the distances from one record (n,) to the sums of all records."""
    for x in range(sums.size):
        sums[x] += factor * away[x]


@njit_inline
def _largest(values: Float64Vector, rest: Int64Vector) -> int:
    """Return the first record of ``rest`` with the largest value."""
    best, record = -np.inf, rest[0]
    for x in range(rest.size):
        if values[rest[x]] > best:
            best, record = values[rest[x]], rest[x]
    return int(record)


@njit_inline
def _take_nearest(
    away: Float64Vector, rest: Int64Vector, seed: int, labels: Int32Vector, label: int, found: NearestMembers
) -> None:
    """Form a cluster of a seed and the k - 1 records with the smallest ``away``, as `mdav.take_nearest` does."""
    distances, members = found
    distances[:] = np.inf
    distances[0] = -np.inf
    members[0] = seed
    for x in range(rest.size):
        record = rest[x]
        if record != seed:
            insert_nearest(distances, members, away[record], record)
    label_members(rest, members, labels, label)
