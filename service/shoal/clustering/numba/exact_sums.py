"""Sums that report whether they are exact. A centroid must not depend on the order of its members."""

from __future__ import annotations

from shoal.arrays import BoolMatrix, Float64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit

__all__ = ["sum_clusters"]


@njit
def sum_clusters(
    values: Float64Matrix,
    cluster_bounds: Int64Vector,
    totals: Float64Matrix,
    residuals: Float64Matrix,
    exact: BoolMatrix,
) -> None:
    """Sum the members of each cluster and report whether the sum is exact.

    Parameters
    ----------
    values : ndarray of float64, shape (E, d)
        Members, cluster after cluster.
    cluster_bounds : ndarray of int64, shape (G + 1,)
        Cluster g is ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``.
    totals : ndarray of float64, shape (G, d)
        Overwritten with the sums, rounded once.
    residuals : ndarray of float64, shape (G, d)
        Overwritten with the difference between the exact sums and ``totals``.
    exact : ndarray of bool, shape (G, d)
        Overwritten with False where a sum overflowed or needs more than two floats; the sum must then be computed
        otherwise.

    Notes
    -----
    The sum is carried as two floats without loss, by Knuth's two-sum applied twice.
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
            exact[cluster, column] = trusted
