"""Who is farthest from a centre that moves slowly, among records that go one by one.

The records lie in order of their distance to where the centre once was, the farthest first. Since nobody's distance has
changed by more than the centre has moved, only the first few can be the farthest now. When walking over them has cost
more than sorting anew, they are sorted anew. (Boxes do not help here: the farthest records lie on a shell round the
centre, and every box of the shell reaches about equally far.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.distances import squared_distance
from shoal.clustering.numba.jit import njit, njit_in_place

__all__ = ["FarthestPointIndex", "empty_farthest_point_index", "farthest_point"]

HEAD, END, WALKED = 0, 1, 2
PATIENCE = 4
"""Steps per record left before sorting anew."""
RADIX = 11
"""Bits that are sorted by at a time."""
ROUGHLY = 1.0 - 1e-6
"""Neither the order nor a sum of roots is exact; both are much better than this."""


class FarthestPointIndex(NamedTuple):
    """Records in order of their distance to a former centre."""

    rows: Float64Matrix  # (n, d)
    records: Int64Vector  # (n,)
    reach: Float64Vector  # (n,): not squared, falling
    centre: Float64Vector  # (d,)
    state: Int64Vector  # where the list begins, where it ends, steps since it was sorted


@njit
def empty_farthest_point_index(n: int, d: int) -> FarthestPointIndex:
    """Return an empty list for n records; it is filled when first asked."""
    return FarthestPointIndex(np.zeros((n, d)), np.zeros(n, np.int64), np.zeros(n), np.zeros(d), np.zeros(3, np.int64))


@njit
def _sort(shell: FarthestPointIndex, values: Float64Matrix, free: BoolVector, centre: Float64Vector) -> None:
    """List the free records anew."""
    size = 0
    for record in range(free.size):
        if free[record]:
            shell.records[size] = record
            shell.reach[size] = np.sqrt(squared_distance(values, record, centre))
            size += 1
    _fall(shell.records[:size], shell.reach[:size])
    for x in range(size):
        for j in range(centre.size):
            shell.rows[x, j] = values[shell.records[x], j]
    for j in range(centre.size):
        shell.centre[j] = centre[j]
    shell.state[HEAD], shell.state[END], shell.state[WALKED] = 0, size, 0


@njit
def _fall(records: Int64Vector, reach: Float64Vector) -> None:
    """Sort records by falling reach, as far as the leading bits of a number tell (one part in two million).

    Positive numbers are ordered as their bits are, and counting them by a few bits at a time is faster than comparing.
    """
    other_records, other_reach = np.empty_like(records), np.empty_like(reach)
    counts = np.zeros((1 << RADIX) + 1, np.int64)
    for shift in (64 - 3 * RADIX + 1, 64 - 2 * RADIX + 1, 64 - RADIX + 1):
        bits = reach.view(np.int64)
        counts.fill(0)
        for x in range(bits.size):
            counts[_digit(bits[x], shift) + 1] += 1
        for digit in range(1 << RADIX):
            counts[digit + 1] += counts[digit]
        for x in range(bits.size):
            digit = _digit(bits[x], shift)
            other_records[counts[digit]], other_reach[counts[digit]] = records[x], reach[x]
            counts[digit] += 1
        for x in range(bits.size):
            records[x], reach[x] = other_records[x], other_reach[x]


@njit_in_place
def _digit(bits: int, shift: int) -> int:
    return (1 << RADIX) - 1 - ((bits >> shift) & ((1 << RADIX) - 1))


@njit
def farthest_point(
    shell: FarthestPointIndex, values: Float64Matrix, free: BoolVector, left: int, centre: Float64Vector
) -> int:
    """Return the free record that is farthest from ``centre``; ``left`` of them are free."""
    if shell.state[END] == 0 or shell.state[WALKED] > PATIENCE * left:
        _sort(shell, values, free, centre)
    while not free[shell.records[shell.state[HEAD]]]:
        shell.state[HEAD] += 1
    drift = 0.0
    for j in range(centre.size):
        away = centre[j] - shell.centre[j]
        drift += away * away
    drift = np.sqrt(drift)
    best, root, farthest = -1.0, -1.0, -1
    start, end = shell.state[HEAD], shell.state[END]
    x = start
    while x < end and shell.reach[x] + drift >= root * ROUGHLY:
        record = shell.records[x]
        if free[record]:
            distance = squared_distance(shell.rows, x, centre)
            if distance > best or (distance == best and record < farthest):
                best, root, farthest = distance, np.sqrt(distance), record
        x += 1
    shell.state[WALKED] += x - start
    return int(farthest)
