"""Sums that are exact, or say that they are not: a centroid must not depend on the order of its members."""

from __future__ import annotations

from shoal.arrays import BoolMatrix, Float64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit_in_place

__all__ = ["sum_clusters"]


@njit_in_place
def sum_clusters(
    values: Float64Matrix, offsets: Int64Vector, totals: Float64Matrix, rests: Float64Matrix, exact: BoolMatrix
) -> None:
    """Sum ``values`` (E, d), cluster after cluster, into ``totals`` (G, d).

    ``exact`` (G, d) tells where the total is the exact sum, rounded once; ``rests`` (G, d) takes what the rounding left
    over. The sum is carried as two numbers without loss (Knuth's two-sum, twice); when the second cannot take what
    the first leaves over, or anything overflows, the total is not to be trusted.
    """
    for cluster in range(totals.shape[0]):
        for column in range(totals.shape[1]):
            high, low, trusted = 0.0, 0.0, True
            for i in range(offsets[cluster], offsets[cluster + 1]):
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
            rests[cluster, column] = (high - (above - part)) + (low - part)
            totals[cluster, column] = above
            exact[cluster, column] = trusted
