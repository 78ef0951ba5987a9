"""Squared distances: sums from the first attribute on, in the same order everywhere; then the category columns.

A category column has codes of which only equality counts, and one squared distance. Two records are that far apart in
the column if their codes differ, and 0 if they are equal. The squared distance of two records is the sum over their
numeric coordinates and their category columns. It is Euclidean: `dense_coordinates` returns points that far apart.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.jit import njit_inline

__all__ = ["add_code_distances", "dense_coordinates", "squared_distance"]


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
    """Add the squared distances from ``record`` in category columns to ``distances`` (n,), in place and in order.

    ``codes`` (c, capacity) are C-contiguous; those of the n records begin in column ``head``. ``code_distances`` (c,)
    are the squared distances of two records whose codes differ.
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


SIGNS = 64
"""Coordinates of a column with too many codes."""


def dense_coordinates(
    numeric: Float64Matrix, codes: Int64Matrix, code_distances: Float64Vector, max_codes: int | None = None
) -> Float64Matrix:
    """Return points whose Euclidean distances are those of records with numeric coordinates and category columns.

    Parameters
    ----------
    numeric : ndarray of float64, shape (n, p)
        Numeric coordinates; p may be 0. Not modified.
    codes : ndarray of int64, shape (n, c)
        Code of each record in each category column; c may be 0. Not modified.
    code_distances : ndarray of float64, shape (c,)
        Squared distance of two records with different codes in a column, 0 or more.
    max_codes : int, optional
        A column with more distinct codes gets 64 coordinates, which give its squared distances approximately. If
        omitted, all distances are exact.

    Returns
    -------
    ndarray of float64, shape (n, D), C-contiguous
        New. The numeric coordinates; then for each category column with two codes or more one coordinate per code, in
        the order of their first records: the root of half the squared distance for the records that have the code, else
        0. If there is no such coordinate, one that is 0 for all records.

    Notes
    -----
    Guarantee: squared distances add up as described above, up to rounding. The result depends on which codes are equal,
    and not on their values.
    Approximate coordinates are random signs times a constant ([1]_): two different codes differ in half of 64 signs,
    with a standard deviation of 4. Equal codes have equal signs. The signs are the same in every call.
    Cost: O(n D) time and memory; D is p plus the number of distinct codes, or 64 for a column with too many.

    References
    ----------
    .. [1] D. Achlioptas, "Database-friendly random projections: Johnson-Lindenstrauss with binary coins", Journal of
       Computer and System Sciences 66(4), 2003. doi:10.1016/S0022-0000(03)00025-4
    """
    count, width = numeric.shape
    columns = [_Column(codes[:, column], code_distances[column], max_codes) for column in range(codes.shape[1])]
    points = np.zeros((count, max(width + sum(column.width for column in columns), 1)))
    points[:, :width] = numeric
    first = width
    for column in columns:
        column.write(points[:, first : first + column.width])
        first += column.width
    return points


class _Column:
    """The coordinates of one category column: `width` of them."""

    def __init__(self, codes: Int64Vector, distance: float, max_codes: int | None) -> None:
        _, first_records, ranks = np.unique(codes, return_index=True, return_inverse=True)
        numbers = np.empty(len(first_records), np.int64)
        numbers[np.argsort(first_records)] = np.arange(len(first_records))  # by first record, whatever the codes
        self._numbers, self._distance, self._distinct = numbers[ranks], distance, len(numbers)
        self._is_exact = max_codes is None or len(numbers) <= max_codes
        self.width = 0 if len(numbers) < 2 else len(numbers) if self._is_exact else SIGNS  # noqa: PLR2004 - two differ

    def write(self, points: Float64Matrix) -> None:
        """Write the coordinates to ``points``, zeros of shape (n, width)."""
        if not self.width:
            return
        if self._is_exact:
            points[np.arange(len(points)), self._numbers] = np.sqrt(self._distance / 2)
            return
        bits = np.random.PCG64(0).random_raw(self._distinct)[:, None] >> np.arange(SIGNS, dtype=np.uint64) & np.uint64(
            1
        )
        signs = (1.0 - 2.0 * bits) * np.sqrt(self._distance / (2 * SIGNS))
        points[:] = signs[self._numbers]
