"""The squared distance of a record from a point, summed from the first attribute on, in the same order everywhere."""

from __future__ import annotations

from shoal.arrays import Float64Matrix, Float64Vector
from shoal.clustering.numba.jit import njit_inline

__all__ = ["squared_distance"]


@njit_inline
def squared_distance(values: Float64Matrix, record: int, point: Float64Vector) -> float:
    """Return the squared distance of row ``record`` of ``values`` (n, d) from ``point`` (d,)."""
    total = 0.0
    for j in range(point.size):
        away = values[record, j] - point[j]
        total += away * away
    return total
