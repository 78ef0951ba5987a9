"""Squared distances: sums from the first attribute on, in the same order everywhere; then the category columns."""

from __future__ import annotations

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix
from shoal.kernels.jit import njit_inline

__all__ = ["add_code_distances", "squared_distance"]


@njit_inline
def squared_distance(values: Float64Matrix, record: int, point: Float64Vector) -> float:
    """Return the squared distance of row ``record`` of ``values`` (n, d) from ``point`` (d,)."""
    total = 0.0
    for j in range(point.size):
        away = values[record, j] - point[j]
        total += away * away
    return total


@njit_inline
def add_code_distances(
    codes: Int64Matrix, head: int, code_distances: Float64Vector, record: int, distances: Float64Vector
) -> None:
    """Add the squared distances from ``record`` in category columns to ``distances`` (n,).

    Parameters
    ----------
    codes : ndarray of int64, shape (c, capacity), C-contiguous
        Codes of the records; those of the n records begin in column ``head``.
    head : int
    code_distances : ndarray of float64, shape (c,)
        Squared distance of two records whose codes differ.
    record : int
        Index of the record, from 0 to n - 1.
    distances : ndarray of float64, shape (n,)
        Changed in place; the columns are added in order.
    """
    columns, end = code_distances.size, head + distances.size
    for column in range(0, columns - 1, 2):  # two per pass halve the memory traffic; the sum keeps its order
        one, two = codes[column, head:end], codes[column + 1, head:end]
        own_one, own_two, distance_one, distance_two = (
            one[record],
            two[record],
            code_distances[column],
            code_distances[column + 1],
        )
        for x in range(distances.size):
            added = distance_one if one[x] != own_one else 0.0
            distances[x] = distances[x] + added + (distance_two if two[x] != own_two else 0.0)
    if columns % 2:
        one, distance_one = codes[columns - 1, head:end], code_distances[columns - 1]
        own_one = one[record]
        for x in range(distances.size):
            distances[x] += distance_one if one[x] != own_one else 0.0
