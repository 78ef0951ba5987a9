"""Squared distances: sums from the first attribute on, in the same order everywhere; then the category columns."""

from __future__ import annotations

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.jit import njit_inline

__all__ = ["add_code_distance", "squared_distance"]


@njit_inline
def squared_distance(values: Float64Matrix, record: int, point: Float64Vector) -> float:
    """Return the squared distance of row ``record`` of ``values`` (n, d) from ``point`` (d,)."""
    total = 0.0
    for j in range(point.size):
        away = values[record, j] - point[j]
        total += away * away
    return total


@njit_inline
def add_code_distance(codes: Int64Vector, distance: float, record: int, distances: Float64Vector) -> None:
    """Add ``distance`` to the entries of ``distances`` (n,) whose codes (n,) differ from that of ``record``."""
    own = codes[record]
    for x in range(distances.size):
        distances[x] += distance if codes[x] != own else 0.0
