"""Records in the order of a Hilbert curve, and the best partition along it."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_inline
from shoal.clustering.static.hansen_mukherjee import best_runs, label_runs

__all__ = ["WORD_BITS", "curve_keys", "hilbert", "order_along_curve"]

MAX_BITS = 31
"""Bits of one attribute at most."""
WORD_BITS = 62
"""Bits used of each of the two words of a key; the words stay positive."""


def hilbert(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into runs of k to 2k - 1 along a Hilbert curve.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered along the curve.

    Notes
    -----
    Each attribute is cut into up to 2³¹ cells over its range; records are ordered by their cell on the curve [2]_, and
    the partition is the optimal one along that order [1]_. It is a start for refinement: alone, it loses more than
    MDAV.
    Cost: O(n (log n + k d)).

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Martínez-Ballesté, J. M. Mateo-Sanz and F. Sebé, "Efficient Multivariate Data-Oriented
       Microaggregation", VLDB Journal 15(4), 2006 (a path, then Hansen and Mukherjee). doi:10.1007/s00778-006-0007-0
    .. [2] J. Skilling, "Programming the Hilbert Curve", AIP Conference Proceedings 707, 2004. doi:10.1063/1.1751381
    """
    order = order_along_curve(values)
    return label_runs(best_runs(values[order], k), order)


def order_along_curve(values: Float64Matrix) -> Int64Vector:
    """Return the records (n,) in the order of the curve; records of one cell in the order of the table.

    A key has 124 bits, so only the first 124 attributes are used.
    """
    used = values[:, : 2 * WORD_BITS]
    keys = curve_keys(used, min(MAX_BITS, 2 * WORD_BITS // used.shape[1]))
    return np.lexsort((keys[1], keys[0]))


@njit
def curve_keys(values: Float64Matrix, bits: int) -> Int64Matrix:
    """Return the position of each record (n, d) on the curve, as (2, n) words, the high word first.

    The curve fills a grid of ``2**bits`` cells per attribute, each attribute cut over its own range; d * bits may be
    ``2 * WORD_BITS`` at most.
    """
    n, d = values.shape
    low, scale = np.zeros(d), np.zeros(d)
    for j in range(d):
        low[j] = values[:, j].min()
        spread = values[:, j].max() - low[j]
        scale[j] = ((1 << bits) - 1) / spread if spread > 0.0 else 0.0
    keys = np.zeros((2, n), np.int64)
    cell = np.zeros(d, np.int64)
    for i in range(n):
        for j in range(d):
            cell[j] = int((values[i, j] - low[j]) * scale[j])
        _axes_to_transpose(cell, bits)
        used = 0
        for bit in range(bits - 1, -1, -1):
            for j in range(d):
                word = used // WORD_BITS
                keys[word, i] = (keys[word, i] << 1) | ((cell[j] >> bit) & 1)
                used += 1
    return keys


@njit_inline
def _axes_to_transpose(cell: Int64Vector, bits: int) -> None:
    """Replace the coordinates of a cell by the bits of its position on the curve (Skilling's transform).

    The bits of the position, highest first, are then bit ``bits - 1`` of each coordinate, bit ``bits - 2`` of each,
    and so on.
    """
    d = cell.size
    for level in range(bits - 1, 0, -1):
        lower = (1 << level) - 1
        for j in range(d):
            if (cell[j] >> level) & 1:
                cell[0] ^= lower
            else:
                swapped = (cell[0] ^ cell[j]) & lower
                cell[0] ^= swapped
                cell[j] ^= swapped
    for j in range(1, d):
        cell[j] ^= cell[j - 1]
    mask = 0
    for level in range(bits - 1, 0, -1):
        if (cell[d - 1] >> level) & 1:
            mask ^= (1 << level) - 1
    for j in range(d):
        cell[j] ^= mask
