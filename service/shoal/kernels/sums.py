"""Exact sums and means: a centroid must not depend on the order of its members.

`sum_clusters` and `divide_sums` report where they are exact. `sum_all`, `subtract` and `centroid` keep the centroid of
the remaining records for algorithms that remove records group by group. In one float rounding errors would accumulate,
and two implementations of an algorithm would resolve ties differently. Here the sum and its rounding error are both
kept (Knuth's two-sum), so that the result does not depend on the order of the operations.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import BoolMatrix, Float64Matrix, Float64Vector, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner

__all__ = ["centroid", "divide_sums", "subtract", "sum_all", "sum_clusters"]

SPLITTER = 2.0**27 + 1.0
"""Factor that splits a float64 into two parts of at most 26 bits (Veltkamp)."""

LARGEST_SIZE = 1 << 26
"""Members up to which their number times such a part is exact."""

SMALLEST_QUOTIENT, LARGEST_QUOTIENT = 1e-280, 1e280
"""Means between which no intermediate result underflows or overflows."""

MARGIN = 2.0**-40
"""Relative error that is assumed of a computed correction; its two roundings cause less than 2**-51."""


@njit
def sum_clusters(
    values: Float64Matrix,
    cluster_bounds: Int64Vector,
    totals: Float64Matrix,
    residuals: Float64Matrix,
    exact: BoolMatrix,
) -> None:
    """Sum the members of each cluster, and write where the sum is exact: as ``totals`` + ``residuals``, all (G, d).

    Cluster g is ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``. Where ``exact`` is False, a sum overflowed or
    needs more than two floats; it must then be computed otherwise. The sum is carried as two floats without loss, by
    Knuth's two-sum applied twice.
    """
    for cluster in range(totals.shape[0]):
        for column in range(totals.shape[1]):
            high, low, trusted = 0.0, 0.0, True
            for i in range(cluster_bounds[cluster], cluster_bounds[cluster + 1]):
                value = values[i, column]
                above = high + value
                part = above - high
                over = (high - (above - part)) + (value - part)
                high = above
                below = low + over
                part = below - low
                rest = (low - (below - part)) + (over - part)
                low = below
                trusted = trusted and rest == 0.0
            above = high + low
            part = above - high
            residuals[cluster, column] = (high - (above - part)) + (low - part)
            totals[cluster, column] = above
            exact[cluster, column] = trusted and above - above == 0.0  # not so where the last addition overflowed


@njit
def divide_sums(
    totals: Float64Matrix,
    residuals: Float64Matrix,
    exact: BoolMatrix,
    cluster_bounds: Int64Vector,
    means: Float64Matrix,
    certain: BoolMatrix,
) -> None:
    """Divide the sums of `sum_clusters` by the sizes of clusters, rounding each mean once; write where that is proven.

    ``certain`` (G, d) is True where the mean is the float64 nearest to the exact mean, ties to even. The others must be
    computed otherwise. Zero has no sign.
    The quotient of the total is corrected by the remainder of the division, which is exact (Dekker 1971, Numerische
    Mathematik 18, DOI 10.1007/BF01397083), plus the residual. The result is certain if the correction is exact, or if
    both ends of an interval around it lead to the same float64.
    """
    for cluster in range(totals.shape[0]):
        count = cluster_bounds[cluster + 1] - cluster_bounds[cluster]
        size = float(count)
        for column in range(totals.shape[1]):
            total, residual = totals[cluster, column], residuals[cluster, column]
            quotient = total / size
            means[cluster, column] = quotient + 0.0  # adding 0.0 turns minus zero into zero
            if not exact[cluster, column] or residual == 0.0:
                certain[cluster, column] = exact[cluster, column]
                continue
            if count > LARGEST_SIZE or not SMALLEST_QUOTIENT < abs(quotient) < LARGEST_QUOTIENT:
                certain[cluster, column] = False
                continue
            remainder = (total - quotient * size) - _product_error(quotient, size)
            rest = remainder + residual
            part = rest - remainder
            rest_error = (remainder - (rest - part)) + (residual - part)
            correction = rest / size
            means[cluster, column] = quotient + correction
            is_exact = rest_error == 0.0 and correction * size == rest and _product_error(correction, size) == 0.0
            low, high = correction * (1.0 - MARGIN), correction * (1.0 + MARGIN)
            certain[cluster, column] = is_exact or quotient + low == quotient + high


@njit_inline
def _product_error(number: float, size: float) -> float:
    """Return what ``number * size`` loses by rounding; ``size`` is an integer of at most 26 bits."""
    shifted = SPLITTER * number
    upper = shifted - (shifted - number)
    return (upper * size - number * size) + (number - upper) * size


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
    """Return the sums of the columns of values (n, d), and their rounding errors, as (2, d)."""
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
