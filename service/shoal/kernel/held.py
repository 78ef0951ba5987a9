"""The held records as arrays, and the decisions as arrays: what every rule kernel reads and writes.

Held records stand oldest first in ``[line[HEAD], line[TAIL])`` of every array, without gaps; a block that arrives
is laid behind them, and the kernel moves ``TAIL`` over it record by record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernel import tally as owners_of
from shoal.kernel.arrays import Float64Matrix, Float64Vector, Int8Vector, Int64Matrix, Int64Vector
from shoal.kernel.jit import njit
from shoal.kernel.tally import Tally

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
    "forget",
    "release",
    "suppress",
]

HEAD, TAIL = 0, 1
CLUSTERS, RELEASED, SUPPRESSED = 0, 1, 2
NOT_DUE = -2
FLUSHED = -1
BY_POSITION = 0
"""Causes of a decision: the end of the stream, delta; mark column c (from 0) is cause c + 1."""


class Held(NamedTuple):
    """Held records, one column each.

    ``coordinates`` (d, capacity) float64; ``positions`` (capacity,); ``marks`` (C, capacity); ``subjects`` (capacity,)
    codes, read on arrival only; ``owners`` (capacity,) their numbers in the tally; ``line`` (2,) head and tail;
    ``latest`` (C,) marks of the last arrival, which may have left already.
    """

    coordinates: Float64Matrix
    positions: Int64Vector
    marks: Int64Matrix
    subjects: Int64Vector
    owners: Int64Vector
    line: Int64Vector
    latest: Int64Vector


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
        marks=np.zeros((columns, capacity), np.int64),
        subjects=np.zeros(capacity, np.int64),
        owners=np.zeros(capacity, np.int64),
        line=np.zeros(2, np.int64),
        latest=np.zeros(columns, np.int64),
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


@njit
def arrive(held: Held, tally: Tally) -> int:
    """Move the tail over the next record of the block and return its position."""
    tail = held.line[TAIL]
    held.owners[tail] = owners_of.take(tally, held.subjects[tail])
    held.latest[:] = held.marks[:, tail]
    held.line[TAIL] = tail + 1
    return int(held.positions[tail])


@njit
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


@njit
def suppress(held: Held, tally: Tally, outcome: Outcome, newest: int, cause: int) -> None:
    """Write the oldest held record down as suppressed and forget it."""
    head, index = held.line[HEAD], outcome.counts[SUPPRESSED]
    outcome.suppressed[index] = held.positions[head]
    outcome.suppressed_causes[index] = cause
    outcome.suppressed_newest[index] = newest
    outcome.suppressed_before[index] = outcome.counts[CLUSTERS]
    outcome.counts[SUPPRESSED] = index + 1
    owners_of.drop(tally, held.owners[head])
    held.line[HEAD] = head + 1


@njit
def release(held: Held, tally: Tally, outcome: Outcome, members: Int64Vector, newest: int, cause: int) -> None:
    """Write a cluster down and forget its members, given by their ascending distance from the head."""
    head, index, start = held.line[HEAD], outcome.counts[CLUSTERS], outcome.counts[RELEASED]
    for i in range(members.size):
        outcome.positions[start + i] = held.positions[head + members[i]]
        owners_of.drop(tally, held.owners[head + members[i]])
    outcome.offsets[index + 1] = start + members.size
    outcome.causes[index] = cause
    outcome.newest[index] = newest
    outcome.counts[CLUSTERS] = index + 1
    outcome.counts[RELEASED] = start + members.size
    forget(held, members)


@njit
def forget(held: Held, members: Int64Vector) -> None:
    """Close the gaps that the members leave: older records move up, since the oldest record always leaves."""
    head = held.line[HEAD]
    stop = head + members[-1] + 1
    _close(held.positions[head:stop], members)
    _close(held.owners[head:stop], members)
    for row in range(held.coordinates.shape[0]):
        _close(held.coordinates[row, head:stop], members)
    for row in range(held.marks.shape[0]):
        _close(held.marks[row, head:stop], members)
    held.line[HEAD] = head + members.size


@njit
def _close(column: Float64Vector | Int64Vector, members: Int64Vector) -> None:
    """Move what stands between two members up by the number of members behind it."""
    for i in range(members.size - 2, -1, -1):
        step = members.size - 1 - i
        for x in range(members[i + 1] - 1, members[i], -1):
            column[x + step] = column[x]
