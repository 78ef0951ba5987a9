"""The nearest neighbours of every record."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Matrix
from shoal.clustering.numba.jit import njit
from shoal.clustering.numba.kd_tree import ANY, build, empty_neighbour_search, nearest

__all__ = ["neighbours_of"]


@njit
def neighbours_of(rows: Float64Matrix, count: int, width: int) -> Int32Matrix:
    """Return the ``count`` nearest of each of ``rows`` (n, d), the nearest first; n > count.

    Of equally far ones any: the lowest would be the neighbours of all records that are equal, and know only each other.
    """
    n = rows.shape[0]
    tree, found = build(rows, width), empty_neighbour_search(count + 1, width)
    neighbours = np.zeros((n, count), np.int32)
    for i in range(n):
        nearest(tree, rows[i], tree.leaves[i], found, ANY)
        x = 0
        for record in found.records:
            if record != i and x < count:
                neighbours[i, x] = record
                x += 1
    return neighbours
