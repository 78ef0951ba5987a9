"""Places along Hilbert's curve: records that are near on the curve are near in space."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place

__all__ = ["WORD_BITS", "places"]

WORD_BITS = 62
"""Of each of the two words of a place; they stay positive."""


@njit
def places(values: Float64Matrix, bits: int) -> Int64Matrix:
    """Return the place of each record (n, d) on the curve through a grid of ``2**bits`` cells a side, as (2, n) words.

    Each attribute is cut over its own range. At most ``2 * WORD_BITS`` bits are used in all.
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
        _walk(cell, bits)
        used = 0
        for bit in range(bits - 1, -1, -1):
            for j in range(d):
                word = used // WORD_BITS
                keys[word, i] = (keys[word, i] << 1) | ((cell[j] >> bit) & 1)
                used += 1
    return keys


@njit_in_place
def _walk(cell: Int64Vector, bits: int) -> None:
    """Turn the coordinates of a cell into the bits of its place, spread over the coordinates (Skilling's transform)."""
    d = cell.size
    for level in range(bits - 1, 0, -1):
        below = (1 << level) - 1
        for j in range(d):
            if (cell[j] >> level) & 1:
                cell[0] ^= below
            else:
                swapped = (cell[0] ^ cell[j]) & below
                cell[0] ^= swapped
                cell[j] ^= swapped
    for j in range(1, d):
        cell[j] ^= cell[j - 1]
    turned = 0
    for level in range(bits - 1, 0, -1):
        if (cell[d - 1] >> level) & 1:
            turned ^= (1 << level) - 1
    for j in range(d):
        cell[j] ^= turned
