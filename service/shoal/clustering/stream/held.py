"""The held records as arrays, and the decisions as arrays: what every rule kernel reads and writes.

Held records stand oldest first in ``[line[HEAD], line[TAIL])`` of every array; a block that arrives is laid behind
them, and the kernel moves ``TAIL`` over it record by record. There are no gaps, but where an index finds records
(`cells`): there those who have left stay in their places as gaps, until `Buffer` moves all to the front.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit_in_place

__all__ = [
    "BEFORE",
    "BY_CLOCK",
    "BY_POSITION",
    "CAUSE",
    "CLUSTERS",
    "END",
    "EPOCH",
    "FLUSHED",
    "GAPS",
    "HEAD",
    "NEWEST",
    "NOT_DUE",
    "POSITION",
    "RELEASED",
    "SUPPRESSED",
    "TAIL",
    "DecisionBuffer",
    "HeldRecords",
    "arrive",
    "due",
    "empty_decision_buffer",
    "empty_held",
    "leave_gaps",
    "release",
    "suppress",
    "suppress_leaving_a_gap",
]

HEAD, TAIL = 0, 1
GAPS, EPOCH = 0, 1
CLUSTERS, RELEASED, SUPPRESSED = 0, 1, 2
"""Places in `DecisionBuffer.counts`."""
END = POSITION = 0
CAUSE, NEWEST, BEFORE = 1, 2, 3
"""Rows of `DecisionBuffer.clusters` and `DecisionBuffer.suppressed`."""
NOT_DUE = -2
LONG = 16
"""Records between two members, on average, from which on runs are copied and not single values."""

FLUSHED = -1
BY_POSITION = 0
BY_CLOCK = 1
"""Causes of a decision: the end of the stream, delta; mark column c (from 0) is cause c + 1, and 0 a clock."""


class HeldRecords(NamedTuple):
    """Held records, one column each.

    ``coordinates`` (d, capacity) and ``amounts`` (a, capacity) float64; ``positions`` and ``subjects`` (capacity,);
    ``marks`` (C, capacity);
    ``line`` (2,) head and tail; ``gone`` (capacity,) who left and is a gap; ``gaps`` (2,): how many are between head
    and tail, and how often places were given anew; ``latest`` (C,) marks of the last arrival, which may have left
    already;
    ``staying``, ``moved_numbers``, ``moved_coordinates`` (capacity,) scratch.
    """

    coordinates: Float64Matrix
    amounts: Float64Matrix
    positions: Int64Vector
    subjects: Int64Vector
    marks: Int64Matrix
    line: Int64Vector
    gone: BoolVector
    gaps: Int64Vector
    latest: Int64Vector
    staying: Int64Vector
    moved_numbers: Int64Vector
    moved_coordinates: Float64Vector


class DecisionBuffer(NamedTuple):
    """Decisions of one call; ``counts`` (3,) tells how far each array is filled.

    ``positions`` of the released records, cluster after cluster, ascending inside each. ``clusters`` (3, G): where a
    cluster ends in ``positions``, its `CAUSE` and the `NEWEST` position at the decision. ``suppressed`` (4, S): the
    same of suppressed records, with their `POSITION` and the number of clusters decided `BEFORE`.
    """

    positions: Int64Vector
    clusters: Int64Matrix
    suppressed: Int64Matrix
    counts: Int64Vector


def empty_held(capacity: int, dimensions: int, columns: int, amounts: int = 0) -> HeldRecords:
    """Allocate a buffer once."""
    return HeldRecords(
        coordinates=np.zeros((dimensions, capacity)),
        amounts=np.zeros((amounts, capacity)),
        positions=np.zeros(capacity, np.int64),
        subjects=np.zeros(capacity, np.int64),
        marks=np.zeros((columns, capacity), np.int64),
        line=np.zeros(2, np.int64),
        gone=np.zeros(capacity, np.bool_),
        gaps=np.zeros(2, np.int64),
        latest=np.zeros(columns, np.int64),
        staying=np.zeros(capacity, np.int64),
        moved_numbers=np.zeros(capacity, np.int64),
        moved_coordinates=np.zeros(capacity),
    )


def empty_decision_buffer(capacity: int) -> DecisionBuffer:
    """Make room for the decisions over at most ``capacity`` records."""
    return DecisionBuffer(
        positions=np.empty(capacity, np.int64),
        clusters=np.empty((3, capacity), np.int64),
        suppressed=np.empty((4, capacity), np.int64),
        counts=np.zeros(3, np.int64),
    )


@njit_in_place
def arrive(held: HeldRecords) -> int:
    """Move the tail over the next record of the block and return its position."""
    tail = held.line[TAIL]
    for column in range(held.latest.size):
        held.latest[column] = held.marks[column, tail]
    held.line[TAIL] = tail + 1
    return int(held.positions[tail])


@njit_in_place
def due(held: HeldRecords, newest: int, delta: int, reach: Int64Vector, first: int) -> int:
    """Return the cause for which the oldest held record must leave now that ``newest`` is here, or `NOT_DUE`.

    Mark columns before ``first`` are not looked at.
    """
    head, tail = held.line[HEAD], held.line[TAIL]
    if head == tail:
        return NOT_DUE
    if newest - held.positions[head] >= delta:
        return BY_POSITION
    for column in range(first, reach.size):
        if held.latest[column] - held.marks[column, head] > reach[column]:
            return column + 1
    return NOT_DUE


@njit_in_place
def suppress(held: HeldRecords, outcome: DecisionBuffer, newest: int, cause: int) -> None:
    """Write the oldest held record down as suppressed and forget it."""
    head, index = held.line[HEAD], outcome.counts[SUPPRESSED]
    outcome.suppressed[POSITION, index] = held.positions[head]
    outcome.suppressed[CAUSE, index] = cause
    outcome.suppressed[NEWEST, index] = newest
    outcome.suppressed[BEFORE, index] = outcome.counts[CLUSTERS]
    outcome.counts[SUPPRESSED] = index + 1
    held.line[HEAD] = head + 1


@njit_in_place
def release(held: HeldRecords, outcome: DecisionBuffer, members: Int64Vector, newest: int, cause: int) -> None:
    """Write a cluster down and forget its members, given by their ascending distance from the head."""
    _write_down(held, outcome, members, newest, cause)
    _forget(held, members)


@njit_in_place
def leave_gaps(held: HeldRecords, outcome: DecisionBuffer, members: Int64Vector, newest: int, cause: int) -> None:
    """Do as `release`, but leave the members in their places as gaps; the oldest held record is at the head again."""
    _write_down(held, outcome, members, newest, cause)
    for i in range(members.size):
        held.gone[held.line[HEAD] + members[i]] = True
    held.gaps[GAPS] += members.size
    _pass_gaps(held)


@njit_in_place
def suppress_leaving_a_gap(held: HeldRecords, outcome: DecisionBuffer, newest: int, cause: int) -> None:
    """Do as `suppress`, and bring the oldest held record to the head."""
    held.gone[held.line[HEAD]] = True
    suppress(held, outcome, newest, cause)
    _pass_gaps(held)


@njit_in_place
def _pass_gaps(held: HeldRecords) -> None:
    head, tail = held.line[HEAD], held.line[TAIL]
    while head < tail and held.gone[head]:
        held.gaps[GAPS] -= 1
        head += 1
    held.line[HEAD] = head


@njit_in_place
def _write_down(held: HeldRecords, outcome: DecisionBuffer, members: Int64Vector, newest: int, cause: int) -> None:
    head, index, start = held.line[HEAD], outcome.counts[CLUSTERS], outcome.counts[RELEASED]
    positions = held.positions[head:]
    for i in range(members.size):
        outcome.positions[start + i] = positions[members[i]]
    outcome.clusters[END, index] = start + members.size
    outcome.clusters[CAUSE, index] = cause
    outcome.clusters[NEWEST, index] = newest
    outcome.counts[CLUSTERS] = index + 1
    outcome.counts[RELEASED] = start + members.size


@njit_in_place
def _forget(held: HeldRecords, members: Int64Vector) -> None:
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
        for row in range(held.amounts.shape[0]):
            _slide(held.amounts[row, head:stop], members, held.moved_coordinates)
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
        for row in range(held.amounts.shape[0]):
            _pick(held.amounts[row, head:stop], staying, held.moved_coordinates)
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
