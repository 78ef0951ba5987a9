"""The nearest neighbours of every record."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Matrix
from shoal.clustering.numba.jit import njit
from shoal.clustering.numba.kd_tree import ANY, build, empty_neighbour_search, nearest

__all__ = ["neighbours_of"]


@njit
def neighbours_of(rows: Float64Matrix, count: int, width: int) -> Int32Matrix:
    """Return the nearest neighbours of each record, the nearest first.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        Coordinates; n > ``count``.
    count : int
        Neighbours per record.
    width : int
        Largest number of records in a leaf of the tree.

    Returns
    -------
    ndarray of int32, shape (n, count)

    Notes
    -----
    Ties are resolved by the tree and not by the record number. With the lowest numbers, all records of a group of equal
    records would have the same neighbours.
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
