"""Category columns: codes of which only equality counts, and their coordinates.

A category column has one squared distance. Two records are that far apart in the column if their codes differ, and 0 if
they are equal. The squared distance of two records is the sum over their numeric coordinates and their category
columns. It is Euclidean: `dense_coordinates` returns points with these distances.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector

__all__ = ["dense_coordinates"]


def dense_coordinates(numeric: Float64Matrix, codes: Int64Matrix, code_distances: Float64Vector) -> Float64Matrix:
    """Return points whose Euclidean distances are those of records with numeric coordinates and category columns.

    Parameters
    ----------
    numeric : ndarray of float64, shape (n, p)
        Numeric coordinates; p may be 0. Not modified.
    codes : ndarray of int64, shape (n, c)
        Code of each record in each category column; c may be 0. Not modified.
    code_distances : ndarray of float64, shape (c,)
        Squared distance of two records with different codes in a column, 0 or more.

    Returns
    -------
    ndarray of float64, shape (n, D), C-contiguous
        New. The numeric coordinates; then for each category column with two codes or more one coordinate per code, in
        the order of their first records: the root of half the squared distance for the records that have the code, else
        0. If there is no such coordinate, one that is 0 for all records.

    Notes
    -----
    Guarantee: the squared distance of two points is the sum of their numeric squared distance and the squared distances
    of the columns in which their codes differ, up to rounding. The result depends on which codes are equal, and not on
    their values.

    Cost: O(n D) time and memory; D is p plus the number of distinct codes.
    """
    count, width = numeric.shape
    numbered = [_numbers(codes[:, column]) for column in range(codes.shape[1])]
    sizes = [int(numbers.max(initial=0)) + 1 for numbers in numbered]
    columns = [column for column, size in enumerate(sizes) if size > 1]
    points = np.zeros((count, max(width + sum(sizes[column] for column in columns), 1)))
    points[:, :width] = numeric
    first, records = width, np.arange(count)
    for column in columns:
        points[records, first + numbered[column]] = np.sqrt(code_distances[column] / 2)
        first += sizes[column]
    return points


def _numbers(codes: Int64Vector) -> Int64Vector:
    """Return the number of each code, counted from 0 in the order of first occurrence."""
    _, first_records, ranks = np.unique(codes, return_index=True, return_inverse=True)
    numbers = np.empty(len(first_records), np.int64)
    numbers[np.argsort(first_records)] = np.arange(len(first_records))
    return numbers[ranks]
