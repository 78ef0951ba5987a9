"""The centroid of the remaining records, from sums that are carried as two numbers.

An algorithm that removes records group by group subtracts them from the sum. In one float rounding errors would
accumulate, and two implementations of the algorithm would resolve ties differently. Here the sum and its rounding error
are both kept (Knuth's two-sum), so that the result does not depend on the order of the operations.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector
from shoal.clustering.numba.jit import njit_inline, njit_inner

__all__ = ["centroid", "subtract", "sum_all"]


@njit_inline
def _add(sums: Float64Matrix, column: int, value: float) -> None:
    """Add a value to the sum of a column, and update its rounding error."""
    high = sums[0, column]
    above = high + value
    part = above - high
    over = (high - (above - part)) + (value - part)
    low = sums[1, column] + over
    sums[0, column] = above + low
    sums[1, column] = low - (sums[0, column] - above)


@njit_inner
def sum_all(values: Float64Matrix) -> Float64Matrix:
    """Return the sums of the columns.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)

    Returns
    -------
    ndarray of float64, shape (2, d)
        The rounded sums, and their rounding errors.
    """
    sums = np.zeros((2, values.shape[1]))
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            _add(sums, j, values[i, j])
    return sums


@njit_inline
def subtract(sums: Float64Matrix, point: Float64Vector) -> None:
    """Subtract one record from the sums, in place."""
    for j in range(point.size):
        _add(sums, j, -point[j])


@njit_inline
def centroid(sums: Float64Matrix, count: int, centre: Float64Vector) -> None:
    """Write the mean of ``count`` records to ``centre``."""
    for j in range(centre.size):
        centre[j] = sums[0, j] / count
