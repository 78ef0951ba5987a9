"""The held records as arrays, and the decisions as arrays: what every rule kernel reads and writes.

Held records stand oldest first in ``[line[HEAD], line[TAIL])`` of every array, without gaps; a block that arrives
is laid behind them, and the kernel moves ``TAIL`` over it record by record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernel.arrays import Float64Matrix, Float64Vector, Int8Vector, Int64Matrix, Int64Vector
from shoal.kernel.jit import njit_in_place

__all__ = [
    "BY_POSITION",
    "FLUSHED",
    "HEAD",
    "TAIL",
    "Held",
    "Outcome",
    "arrive",
    "due",
    "empty_held",
    "empty_outcome",
    "release",
    "suppress",
]

HEAD, TAIL = 0, 1
CLUSTERS, RELEASED, SUPPRESSED = 0, 1, 2
NOT_DUE = -2
LONG = 16
"""Records between two members, on average, from which on runs are copied and not single values."""

FLUSHED = -1
BY_POSITION = 0
"""Causes of a decision: the end of the stream, delta; mark column c (from 0) is cause c + 1."""


class Held(NamedTuple):
    """Held records, one column each.

    ``coordinates`` (d, capacity) float64; ``positions`` and ``subjects`` (capacity,); ``marks`` (C, capacity);
    ``line`` (2,) head and tail; ``latest`` (C,) marks of the last arrival, which may have left already;
    ``staying``, ``moved_numbers``, ``moved_coordinates`` (capacity,) scratch.
    """

    coordinates: Float64Matrix
    positions: Int64Vector
    subjects: Int64Vector
    marks: Int64Matrix
    line: Int64Vector
    latest: Int64Vector
    staying: Int64Vector
    moved_numbers: Int64Vector
    moved_coordinates: Float64Vector


class Outcome(NamedTuple):
    """Decisions of one call; the first ``counts`` entries are filled.

    ``positions`` cluster after cluster, ascending inside each, cut by ``offsets``; ``causes`` and ``newest`` per
    cluster; the same for ``suppressed``, with the number of clusters decided before it.
    """

    positions: Int64Vector
    offsets: Int64Vector
    causes: Int8Vector
    newest: Int64Vector
    suppressed: Int64Vector
    suppressed_causes: Int8Vector
    suppressed_newest: Int64Vector
    suppressed_before: Int64Vector
    counts: Int64Vector


def empty_held(capacity: int, dimensions: int, columns: int) -> Held:
    """Allocate a buffer once."""
    return Held(
        coordinates=np.zeros((dimensions, capacity)),
        positions=np.zeros(capacity, np.int64),
        subjects=np.zeros(capacity, np.int64),
        marks=np.zeros((columns, capacity), np.int64),
        line=np.zeros(2, np.int64),
        latest=np.zeros(columns, np.int64),
        staying=np.zeros(capacity, np.int64),
        moved_numbers=np.zeros(capacity, np.int64),
        moved_coordinates=np.zeros(capacity),
    )


def empty_outcome(capacity: int) -> Outcome:
    """Allocate room for the decisions over at most ``capacity`` records."""
    return Outcome(
        positions=np.zeros(capacity, np.int64),
        offsets=np.zeros(capacity + 1, np.int64),
        causes=np.zeros(capacity, np.int8),
        newest=np.zeros(capacity, np.int64),
        suppressed=np.zeros(capacity, np.int64),
        suppressed_causes=np.zeros(capacity, np.int8),
        suppressed_newest=np.zeros(capacity, np.int64),
        suppressed_before=np.zeros(capacity, np.int64),
        counts=np.zeros(3, np.int64),
    )


@njit_in_place
def arrive(held: Held) -> int:
    """Move the tail over the next record of the block and return its position."""
    tail = held.line[TAIL]
    for column in range(held.latest.size):
        held.latest[column] = held.marks[column, tail]
    held.line[TAIL] = tail + 1
    return int(held.positions[tail])


@njit_in_place
def due(held: Held, newest: int, delta: int, reach: Int64Vector) -> int:
    """Return the cause for which the oldest held record must leave now that ``newest`` is here, or `NOT_DUE`."""
    head, tail = held.line[HEAD], held.line[TAIL]
    if head == tail:
        return NOT_DUE
    if newest - held.positions[head] >= delta:
        return BY_POSITION
    for column in range(reach.size):
        if held.latest[column] - held.marks[column, head] > reach[column]:
            return column + 1
    return NOT_DUE


@njit_in_place
def suppress(held: Held, outcome: Outcome, newest: int, cause: int) -> None:
    """Write the oldest held record down as suppressed and forget it."""
    head, index = held.line[HEAD], outcome.counts[SUPPRESSED]
    outcome.suppressed[index] = held.positions[head]
    outcome.suppressed_causes[index] = cause
    outcome.suppressed_newest[index] = newest
    outcome.suppressed_before[index] = outcome.counts[CLUSTERS]
    outcome.counts[SUPPRESSED] = index + 1
    held.line[HEAD] = head + 1


@njit_in_place
def release(held: Held, outcome: Outcome, members: Int64Vector, newest: int, cause: int) -> None:
    """Write a cluster down and forget its members, given by their ascending distance from the head."""
    head, index, start = held.line[HEAD], outcome.counts[CLUSTERS], outcome.counts[RELEASED]
    positions = held.positions[head:]
    for i in range(members.size):
        outcome.positions[start + i] = positions[members[i]]
    outcome.offsets[index + 1] = start + members.size
    outcome.causes[index] = cause
    outcome.newest[index] = newest
    outcome.counts[CLUSTERS] = index + 1
    outcome.counts[RELEASED] = start + members.size
    _forget(held, members)


@njit_in_place
def _forget(held: Held, members: Int64Vector) -> None:
    """Close the gaps that members leave: older records move up, since the oldest of all is always a member."""
    head, moving = held.line[HEAD], members[-1] + 1 - members.size
    stop = head + members[-1] + 1
    if moving > LONG * members.size:
        _slide(held.positions[head:stop], members, held.moved_numbers)
        _slide(held.subjects[head:stop], members, held.moved_numbers)
        for row in range(held.marks.shape[0]):
            _slide(held.marks[row, head:stop], members, held.moved_numbers)
        for row in range(held.coordinates.shape[0]):
            _slide(held.coordinates[row, head:stop], members, held.moved_coordinates)
    else:
        staying = held.staying[: moving + 1]
        _list_staying(members, staying)
        staying = staying[:moving]
        _pick(held.positions[head:stop], staying, held.moved_numbers)
        _pick(held.subjects[head:stop], staying, held.moved_numbers)
        for row in range(held.marks.shape[0]):
            _pick(held.marks[row, head:stop], staying, held.moved_numbers)
        for row in range(held.coordinates.shape[0]):
            _pick(held.coordinates[row, head:stop], staying, held.moved_coordinates)
    held.line[HEAD] = head + members.size


@njit_in_place
def _list_staying(members: Int64Vector, staying: Int64Vector) -> None:
    """List the records before the youngest member that are none; one place more than needed is written."""
    kept, next_member = 0, 0
    for x in range(members[-1]):
        staying[kept] = x
        leaves = members[next_member] == x  # no branch: which records leave cannot be guessed
        next_member += leaves
        kept += not leaves


@njit_in_place
def _pick(column: Float64Vector | Int64Vector, staying: Int64Vector, moved: Float64Vector | Int64Vector) -> None:
    """Bring the staying values of a column to its end, one by one."""
    for i in range(staying.size):
        moved[i] = column[staying[i]]
    target = column[column.size - staying.size :]
    for i in range(staying.size):
        target[i] = moved[i]


@njit_in_place
def _slide(column: Float64Vector | Int64Vector, members: Int64Vector, moved: Float64Vector | Int64Vector) -> None:
    """Bring the staying values of a column to its end, run by run from the youngest: copies of long runs are fast."""
    for i in range(members.size - 2, -1, -1):
        start, step = members[i] + 1, members.size - 1 - i
        run = column[start : members[i + 1]]
        target = column[start + step : members[i + 1] + step]
        for x in range(run.size):
            moved[x] = run[x]
        for x in range(run.size):
            target[x] = moved[x]
