"""The centroid of what is left, exact to the last bit: sums are carried as two numbers without loss.

A partitioner that takes records out group by group subtracts them from the sum. In one number the errors would gather,
and the plain and the fast kernel would disagree on ties.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector
from shoal.clustering.numba.jit import njit, njit_in_place

__all__ = ["centroid", "subtract", "sum_all"]


@njit_in_place
def _add(sums: Float64Matrix, column: int, value: float) -> None:
    high = sums[0, column]
    above = high + value
    part = above - high
    over = (high - (above - part)) + (value - part)
    low = sums[1, column] + over
    sums[0, column] = above + low
    sums[1, column] = low - (sums[0, column] - above)


@njit
def sum_all(values: Float64Matrix) -> Float64Matrix:
    """Return the sums of ``values`` (n, d) as (2, d): the sum, and what it lacks."""
    sums = np.zeros((2, values.shape[1]))
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            _add(sums, j, values[i, j])
    return sums


@njit_in_place
def subtract(sums: Float64Matrix, point: Float64Vector) -> None:
    """Take one record out of the sums."""
    for j in range(point.size):
        _add(sums, j, -point[j])


@njit_in_place
def centroid(sums: Float64Matrix, count: int, centre: Float64Vector) -> None:
    """Write the mean of ``count`` records to ``centre``."""
    for j in range(centre.size):
        centre[j] = sums[0, j] / count
