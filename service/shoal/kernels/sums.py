"""Sums with the same bits everywhere: squared distances, and sums and means that do not depend on the order of members.

A squared distance is a sum over the numeric coordinates from the first on, then over the category columns. A category
column has codes of which only equality counts, and one squared distance: two records are that far apart in it if their
codes differ. The distance is Euclidean: `dense_coordinates` returns points that far apart.

`sum_clusters` and `divide_sums` report where they are exact. `sum_all`, `subtract` and `centroid` keep the centroid of
the remaining records for algorithms that remove records group by group. The sum and its rounding error are both kept
(Knuth's two-sum): in one float rounding errors would accumulate, and two implementations would resolve ties
differently.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import BoolMatrix, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner

SIGNS = 64
"""Coordinates of a column with too many codes."""

SPLITTER = 2.0**27 + 1.0
"""Factor that splits a float64 into two parts of at most 26 bits (Veltkamp)."""

LARGEST_SIZE = 1 << 26
"""Members up to which their number times such a part is exact."""

SMALLEST_QUOTIENT, LARGEST_QUOTIENT = 1e-280, 1e280
"""Means between which no intermediate result underflows or overflows."""

MANY_STEPS = 1e13
"""Multiple of a step from which a float cannot show on which side of a tie a mean is."""

FIRST_INEXACT = 2.0**53
"""Whole numbers below it are exact as float64."""

MARGIN = 2.0**-40
"""Relative error that is assumed of a computed correction; its two roundings cause less than 2**-51."""


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


def dense_coordinates(
    numeric: Float64Matrix, codes: Int64Matrix, code_distances: Float64Vector, max_codes: int | None = None
) -> Float64Matrix:
    """Return points (n, D) whose Euclidean distances are those of records with coordinates (n, p) and codes (n, c).

    ``code_distances`` (c,) are 0 or more. The points are new and C-contiguous: the numeric coordinates; then for each
    column with two codes or more one coordinate per code, in the order of their first records: the root of half the
    squared distance for the records that have the code, else 0. If there is none at all, one coordinate is 0.

    A column with more than ``max_codes`` codes has 64 coordinates, which give its squared distances approximately: they
    are random signs times a constant, the same in every call. Two different codes differ in half of the signs, with a
    standard deviation of 4. (D. Achlioptas, "Database-friendly random projections", Journal of Computer and System
    Sciences 66(4), 2003. doi:10.1016/S0022-0000(03)00025-4)

    Guarantee: the result depends on which codes are equal, not on their values. Cost: O(n D) time and memory.
    """
    columns = [_number_by_first_record(codes[:, column]) for column in range(codes.shape[1])]
    counts = [int(numbers.max(initial=-1)) + 1 for numbers in columns]
    are_exact = [max_codes is None or count <= max_codes for count in counts]
    widths = [0 if n < 2 else n if exact else SIGNS for n, exact in zip(counts, are_exact, strict=True)]  # noqa: PLR2004
    end = numeric.shape[1]
    points = np.zeros((len(numeric), max(end + sum(widths), 1)))
    points[:, :end] = numeric
    for numbers, count, is_exact, width, distance in zip(
        columns, counts, are_exact, widths, code_distances, strict=True
    ):
        start, end = end, end + width
        if width and is_exact:
            points[np.arange(len(points)), start + numbers] = np.sqrt(distance / 2)
        elif width:
            random = np.random.PCG64(0).random_raw(count)[:, None]
            bits = random >> np.arange(SIGNS, dtype=np.uint64) & np.uint64(1)
            points[:, start:end] = ((1.0 - 2.0 * bits) * np.sqrt(distance / (2 * SIGNS)))[numbers]
    return points


def frequent_coordinates(
    numeric: Float64Matrix, codes: Int64Matrix, code_distances: Float64Vector, fewest: int, most: int
) -> Float64Matrix:
    """Return points (n, D) as `dense_coordinates`, with a coordinate only for codes of at least ``fewest`` records.

    If these are more than ``most`` in all columns together, the most frequent have one. Two codes without a coordinate
    are as near as if they were equal. Cost: O(n (p + most)) time and memory.
    """
    found = [np.unique(column, return_inverse=True, return_counts=True) for column in codes.T]
    counts = np.concatenate([np.zeros(0, np.int64), *(counts for _, _, counts in found)])
    has_coordinate = counts >= fewest
    has_coordinate[np.argsort(-counts, kind="stable")[most:]] = False
    places = np.where(has_coordinate, np.cumsum(has_coordinate) - 1, -1)
    points = np.zeros((len(numeric), max(numeric.shape[1] + int(has_coordinate.sum()), 1)))
    points[:, : numeric.shape[1]] = numeric
    first = 0
    for (_, own, of_column), distance in zip(found, code_distances, strict=True):
        place = places[first : first + len(of_column)][own]
        records = np.flatnonzero(place >= 0)
        points[records, numeric.shape[1] + place[records]] = np.sqrt(distance / 2)
        first += len(of_column)
    return points


def _number_by_first_record(codes: Int64Vector) -> Int64Vector:
    """Return codes (n,) numbered from 0 in the order of their first records."""
    _, first_records, ranks = np.unique(codes, return_index=True, return_inverse=True)
    numbers = np.empty(len(first_records), np.int64)
    numbers[np.argsort(first_records)] = np.arange(len(first_records))
    return numbers[ranks]


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


@njit
def divide_by_steps(
    totals: Float64Matrix,
    exact: BoolMatrix,
    cluster_bounds: Int64Vector,
    steps: Float64Matrix,
    multiples: Int64Matrix,
    rounded: Float64Matrix,
    certain: BoolMatrix,
) -> bool:
    """Round the means of `sum_clusters` to multiples of a step, ties to even, in floats; write where that is proven.

    ``steps`` (3, d) are the reciprocal of each step, its whole and its unit: the step is their quotient. ``rounded`` is
    a multiple times its step. Where it is not ``certain``, both are 0 and must be computed otherwise. Returns whether
    all are certain.
    """
    all_certain = True
    for cluster in range(totals.shape[0]):
        size = float(cluster_bounds[cluster + 1] - cluster_bounds[cluster])
        for column in range(totals.shape[1]):
            quotient = totals[cluster, column] / size * steps[0, column]
            nearest = np.rint(quotient)
            product = nearest * steps[1, column]
            # Four roundings change the quotient by less than 1e-15 of it; the margins are far wider.
            is_certain = (
                exact[cluster, column]
                and abs(quotient) < MANY_STEPS
                and abs(product) < FIRST_INEXACT
                and 0.5 - abs(quotient - nearest) > 1e-6 + 1e-14 * abs(quotient)
            )
            certain[cluster, column] = is_certain
            all_certain = all_certain and is_certain
            multiples[cluster, column] = int(nearest) if is_certain else 0
            # Both are whole numbers without a rounding error. Adding 0.0 turns minus zero into zero.
            rounded[cluster, column] = product / steps[2, column] + 0.0 if is_certain else 0.0
    return all_certain


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
