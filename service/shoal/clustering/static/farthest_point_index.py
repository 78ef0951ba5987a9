"""An index of the record farthest from a centre that moves slowly while records are removed.

Records are listed by their distance to a reference point, a former centre, the farthest first. No distance to the
current centre differs from that by more than the centre has moved, so only the first records of the list can be the
farthest. The list is sorted again when the walks along it have cost more than a sort. (A k-d tree does not help here:
the farthest records lie on a sphere around the centre, and all boxes on the sphere have nearly the same largest
distance.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.distances import squared_distance
from shoal.clustering.numba.jit import njit_inline, njit_inner

__all__ = ["FarthestPointIndex", "empty_farthest_point_index", "farthest_point"]

HEAD, END, STEPS = 0, 1, 2
MAX_STEPS = 4
"""Steps along the list, per record left, before it is sorted again."""
RADIX_BITS = 11
"""Bits that one pass of the radix sort looks at."""
SAFETY = 1.0 - 1e-6
"""Factor on a distance that covers the error of the approximate order and of a sum of two square roots."""


class FarthestPointIndex(NamedTuple):
    """Records by falling distance to a reference point."""

    rows: Float64Matrix  # (n, d): coordinates in the order of the list
    records: Int64Vector  # (n,)
    distances: Float64Vector  # (n,): to the reference point, not squared, falling
    reference: Float64Vector  # (d,)
    state: Int64Vector  # (3,): first entry of the list, its end, steps along it since it was sorted


@njit_inner
def empty_farthest_point_index(n: int, d: int) -> FarthestPointIndex:
    """Return an empty index for n records of d attributes; the first call of `farthest_point` fills it."""
    return FarthestPointIndex(np.zeros((n, d)), np.zeros(n, np.int64), np.zeros(n), np.zeros(d), np.zeros(3, np.int64))


@njit_inner
def farthest_point(
    index: FarthestPointIndex, values: Float64Matrix, free: BoolVector, left: int, centre: Float64Vector
) -> int:
    """Return the free record that is farthest from a centre; ties go to the lowest record.

    Parameters
    ----------
    index : FarthestPointIndex
        Of the same records in all calls; changed in place.
    values : ndarray of float64, shape (n, d)
        Coordinates.
    free : ndarray of bool, shape (n,)
        The records to choose from; a record that was not free in an earlier call must not be free again.
    left : int
        How many records are free, at least 1.
    centre : ndarray of float64, shape (d,)
        The point to measure from.
    """
    if index.state[END] == 0 or index.state[STEPS] > MAX_STEPS * left:
        _rebuild(index, values, free, centre)
    while not free[index.records[index.state[HEAD]]]:
        index.state[HEAD] += 1
    drift = 0.0
    for j in range(centre.size):
        away = centre[j] - index.reference[j]
        drift += away * away
    drift = np.sqrt(drift)
    best, root, farthest = -1.0, -1.0, -1
    start, end = index.state[HEAD], index.state[END]
    x = start
    while x < end and index.distances[x] + drift >= root * SAFETY:
        record = index.records[x]
        if free[record]:
            distance = squared_distance(index.rows, x, centre)
            if distance > best or (distance == best and record < farthest):
                best, root, farthest = distance, np.sqrt(distance), record
        x += 1
    index.state[STEPS] += x - start
    return int(farthest)


@njit_inner
def _rebuild(index: FarthestPointIndex, values: Float64Matrix, free: BoolVector, centre: Float64Vector) -> None:
    """List the free records by their distance to a new reference point."""
    size = 0
    for record in range(free.size):
        if free[record]:
            index.records[size] = record
            index.distances[size] = np.sqrt(squared_distance(values, record, centre))
            size += 1
    _sort_descending(index.records[:size], index.distances[:size])
    for x in range(size):
        for j in range(centre.size):
            index.rows[x, j] = values[index.records[x], j]
    for j in range(centre.size):
        index.reference[j] = centre[j]
    index.state[HEAD], index.state[END], index.state[STEPS] = 0, size, 0


@njit_inner
def _sort_descending(records: Int64Vector, distances: Float64Vector) -> None:
    """Sort records by falling distance, as far as the leading 33 bits show it (one part in two million).

    Positive floats are ordered as their bits are, and a radix sort of the bits is faster than comparisons.
    """
    other_records, other_distances = np.empty_like(records), np.empty_like(distances)
    counts = np.zeros((1 << RADIX_BITS) + 1, np.int64)
    for shift in (64 - 3 * RADIX_BITS + 1, 64 - 2 * RADIX_BITS + 1, 64 - RADIX_BITS + 1):
        bits = distances.view(np.int64)
        counts.fill(0)
        for x in range(bits.size):
            counts[_digit(bits[x], shift) + 1] += 1
        for digit in range(1 << RADIX_BITS):
            counts[digit + 1] += counts[digit]
        for x in range(bits.size):
            digit = _digit(bits[x], shift)
            other_records[counts[digit]], other_distances[counts[digit]] = records[x], distances[x]
            counts[digit] += 1
        for x in range(bits.size):
            records[x], distances[x] = other_records[x], other_distances[x]


@njit_inline
def _digit(bits: int, shift: int) -> int:
    """Return one digit of a number, inverted, so that larger numbers come first."""
    return (1 << RADIX_BITS) - 1 - ((bits >> shift) & ((1 << RADIX_BITS) - 1))
