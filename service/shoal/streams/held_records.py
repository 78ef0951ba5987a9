"""The held records and the decisions as arrays. Every rule's kernels read and write them.

Held records stand oldest first in the slots ``[extent[HEAD], extent[TAIL])`` of every array. A block that arrives is
staged behind them, and `append_next` moves the tail over it record by record. `release` and `suppress` close the gaps
that removed records leave. Rules that use a cell index call `release_in_place` and `suppress_in_place` instead: there a
removed record stays in its slot as a gap until `Buffer.compact` is called.

Kernels use three kinds of index. A *slot* is an index into the arrays of `HeldRecords`. A *record* is a slot counted
from the head, so that the oldest held record is 0. A *position* is the arrival rank of a record in the stream.

The buffer of a stream: the held records and the slice of a block that is being processed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.jit import njit_inline

__all__ = [
    "BEFORE",
    "BY_CLOCK",
    "BY_POSITION",
    "CAUSE",
    "CLUSTERS",
    "COMPACTIONS",
    "END",
    "FLUSHED",
    "GAP_COUNT",
    "HEAD",
    "NEWEST",
    "NOT_DUE",
    "POSITION",
    "RELEASED",
    "SUPPRESSED",
    "TAIL",
    "Buffer",
    "CoordinateBlock",
    "DecisionBuffer",
    "HeldRecords",
    "append_next",
    "cause_of_oldest",
    "empty_decision_buffer",
    "empty_held",
    "release",
    "release_in_place",
    "suppress",
    "suppress_in_place",
    "trim",
]

HEAD, TAIL = 0, 1
"""Indices into `HeldRecords.extent`."""

GAP_COUNT, COMPACTIONS = 0, 1
"""Indices into `HeldRecords.gap_state`."""

CLUSTERS, RELEASED, SUPPRESSED = 0, 1, 2
"""Indices into `DecisionBuffer.counts`."""

END = POSITION = 0
"""Row 0 of `DecisionBuffer.clusters` and of `DecisionBuffer.suppressed`."""

CAUSE, NEWEST, BEFORE = 1, 2, 3
"""Rows of both arrays; ``BEFORE`` of `DecisionBuffer.suppressed` only."""

NOT_DUE = -2
"""Returned instead of a cause when no held record expires."""

LONG_RUN = 16
"""Mean number of records between two members from which runs are copied instead of single values."""

FLUSHED = -1
"""Cause of a decision: the end of the stream."""

BY_POSITION = 0
"""Cause of a decision: delta."""

BY_CLOCK = 1
"""Cause of a decision: the first expiry key, which is a clock. Expiry key c, counted from 0, is cause c + 1."""


_NONE = np.zeros(0)
"""No category column."""


class HeldRecords(NamedTuple):
    """Arrays of the held records; every array is allocated once.

    Attributes
    ----------
    coordinates : float64 (d, capacity)
        Scaled and weighted quasi-identifiers, one row per attribute.
    codes : int64 (c + protected, capacity)
        One row per category column; two records differ in a column if their codes do. Behind them the value codes of q
        protected attributes, and if there is a t their bins.
    code_distances : float64 (c,)
        Squared distance of two records that differ in a category column.
    codes_must_agree : bool (c,)
        Whether a cluster publishes a code of the column only if all members have it.
    positions, subjects : int64 (capacity,)
        Arrival rank and subject code.
    expiry_keys : int64 (C, capacity)
        One row per expiry limit.
    extent : int64 (2,)
        Slots of the head and the tail.
    removed : bool (capacity,)
        True for a slot between head and tail whose record has left.
    gap_state : int64 (2,)
        Number of such slots, and how often the buffer has been compacted.
    latest_keys : int64 (C,)
        Expiry keys of the last record that arrived; that record may have left since.
    remaining_records, moved_integers, moved_floats : (capacity,)
        Scratch of `release`.
    """

    coordinates: Float64Matrix
    codes: Int64Matrix
    code_distances: Float64Vector
    codes_must_agree: BoolVector
    positions: Int64Vector
    subjects: Int64Vector
    expiry_keys: Int64Matrix
    extent: Int64Vector
    removed: BoolVector
    gap_state: Int64Vector
    latest_keys: Int64Vector
    remaining_records: Int64Vector
    moved_integers: Int64Vector
    moved_floats: Float64Vector


class DecisionBuffer(NamedTuple):
    """Decisions of one call, in the order in which they were taken.

    Attributes
    ----------
    positions : int64 (E,)
        Released records, cluster after cluster, ascending inside a cluster.
    clusters : int64 (3, G)
        For each cluster its end in ``positions``, its cause, and the newest position at the decision.
    suppressed : int64 (4, S)
        For each suppressed record its position, its cause, the newest position at the decision, and the number of
        clusters decided before it.
    counts : int64 (3,)
        Clusters, released records and suppressed records written so far.
    """

    positions: Int64Vector
    clusters: Int64Matrix
    suppressed: Int64Matrix
    counts: Int64Vector


def empty_held(
    capacity: int,
    dimensions: int,
    columns: int,
    code_distances: Float64Vector = _NONE,
    protected: int = 0,
    codes_must_agree: BoolVector | None = None,
) -> HeldRecords:
    """Allocate the arrays for ``capacity`` records with so many coordinates and expiry keys.

    Each entry of ``code_distances`` (c,) adds a category column; ``protected`` rows of codes follow.
    """
    return HeldRecords(
        coordinates=np.zeros((dimensions, capacity)),
        codes=np.zeros((len(code_distances) + protected, capacity), np.int64),
        code_distances=code_distances.copy(),
        codes_must_agree=np.zeros(len(code_distances), np.bool_)
        if codes_must_agree is None
        else codes_must_agree.copy(),
        positions=np.zeros(capacity, np.int64),
        subjects=np.zeros(capacity, np.int64),
        expiry_keys=np.zeros((columns, capacity), np.int64),
        extent=np.zeros(2, np.int64),
        removed=np.zeros(capacity, np.bool_),
        gap_state=np.zeros(2, np.int64),
        latest_keys=np.zeros(columns, np.int64),
        remaining_records=np.zeros(capacity, np.int64),
        moved_integers=np.zeros(capacity, np.int64),
        moved_floats=np.zeros(capacity),
    )


def empty_decision_buffer(capacity: int) -> DecisionBuffer:
    """Allocate the arrays for decisions on at most ``capacity`` records."""
    return DecisionBuffer(
        positions=np.empty(capacity, np.int64),
        clusters=np.empty((3, capacity), np.int64),
        suppressed=np.empty((4, capacity), np.int64),
        counts=np.zeros(3, np.int64),
    )


@njit_inline
def append_next(held: HeldRecords) -> int:
    """Move the tail over the next staged record and return its position."""
    tail = held.extent[TAIL]
    for column in range(held.latest_keys.size):
        held.latest_keys[column] = held.expiry_keys[column, tail]
    held.extent[TAIL] = tail + 1
    return int(held.positions[tail])


@njit_inline
def cause_of_oldest(held: HeldRecords, newest: int, delta: int, expiry_limits: Int64Vector, first_column: int) -> int:
    """Return why the oldest held record expires now that ``newest`` has arrived, or `NOT_DUE`.

    Expiry keys before ``first_column`` are ignored.
    """
    head, tail = held.extent[HEAD], held.extent[TAIL]
    if head == tail:
        return NOT_DUE
    if newest - held.positions[head] >= delta:
        return BY_POSITION
    for column in range(first_column, expiry_limits.size):
        if held.latest_keys[column] - held.expiry_keys[column, head] > expiry_limits[column]:
            return column + 1
    return NOT_DUE


@njit_inline
def suppress(held: HeldRecords, decisions: DecisionBuffer, newest: int, cause: int) -> None:
    """Record the oldest held record as suppressed and remove it."""
    head, index = held.extent[HEAD], decisions.counts[SUPPRESSED]
    decisions.suppressed[POSITION, index] = held.positions[head]
    decisions.suppressed[CAUSE, index] = cause
    decisions.suppressed[NEWEST, index] = newest
    decisions.suppressed[BEFORE, index] = decisions.counts[CLUSTERS]
    decisions.counts[SUPPRESSED] = index + 1
    held.extent[HEAD] = head + 1


@njit_inline
def release(held: HeldRecords, decisions: DecisionBuffer, members: Int64Vector, newest: int, cause: int) -> None:
    """Record a cluster and remove its members, given as ascending records. The oldest record must be one of them."""
    _append_cluster(held, decisions, members, newest, cause)
    _close_gaps(held, members)


@njit_inline
def release_in_place(
    held: HeldRecords, decisions: DecisionBuffer, members: Int64Vector, newest: int, cause: int
) -> None:
    """Record a cluster as `release` does, but leave its members as gaps; the head moves to the oldest held record."""
    _append_cluster(held, decisions, members, newest, cause)
    for i in range(members.size):
        held.removed[held.extent[HEAD] + members[i]] = True
    held.gap_state[GAP_COUNT] += members.size
    _skip_gaps(held)


@njit_inline
def suppress_in_place(held: HeldRecords, decisions: DecisionBuffer, newest: int, cause: int) -> None:
    """Record the oldest held record as suppressed, leave it as a gap, and move the head to the next held record."""
    held.removed[held.extent[HEAD]] = True
    suppress(held, decisions, newest, cause)
    _skip_gaps(held)


@njit_inline
def _skip_gaps(held: HeldRecords) -> None:
    """Move the head over gaps."""
    head, tail = held.extent[HEAD], held.extent[TAIL]
    while head < tail and held.removed[head]:
        held.gap_state[GAP_COUNT] -= 1
        head += 1
    held.extent[HEAD] = head


@njit_inline
def _append_cluster(
    held: HeldRecords, decisions: DecisionBuffer, members: Int64Vector, newest: int, cause: int
) -> None:
    """Append a cluster to the decisions."""
    head, index, start = held.extent[HEAD], decisions.counts[CLUSTERS], decisions.counts[RELEASED]
    positions = held.positions[head:]
    for i in range(members.size):
        decisions.positions[start + i] = positions[members[i]]
    decisions.clusters[END, index] = start + members.size
    decisions.clusters[CAUSE, index] = cause
    decisions.clusters[NEWEST, index] = newest
    decisions.counts[CLUSTERS] = index + 1
    decisions.counts[RELEASED] = start + members.size


@njit_inline
def _close_gaps(held: HeldRecords, members: Int64Vector) -> None:
    """Remove the members. Older records move up, because the oldest record of all is always a member."""
    head, moving = held.extent[HEAD], members[-1] + 1 - members.size
    stop = head + members[-1] + 1
    if moving > LONG_RUN * members.size:
        _shift_runs(held.positions[head:stop], members, held.moved_integers)
        _shift_runs(held.subjects[head:stop], members, held.moved_integers)
        _shift_runs_of_rows(held.expiry_keys, head, stop, members, held.moved_integers)
        _shift_runs_of_rows(held.codes, head, stop, members, held.moved_integers)
        _shift_runs_of_rows(held.coordinates, head, stop, members, held.moved_floats)
    else:
        remaining_records = held.remaining_records[: moving + 1]
        _list_remaining(members, remaining_records)
        remaining_records = remaining_records[:moving]
        _shift_values(held.positions[head:stop], remaining_records, held.moved_integers)
        _shift_values(held.subjects[head:stop], remaining_records, held.moved_integers)
        _shift_values_of_rows(held.expiry_keys, head, stop, remaining_records, held.moved_integers)
        _shift_values_of_rows(held.codes, head, stop, remaining_records, held.moved_integers)
        _shift_values_of_rows(held.coordinates, head, stop, remaining_records, held.moved_floats)
    held.extent[HEAD] = head + members.size


@njit_inline
def _list_remaining(members: Int64Vector, remaining_records: Int64Vector) -> None:
    """List the records before the youngest member that are not members; one entry more than needed is written."""
    kept, next_member = 0, 0
    for x in range(members[-1]):
        remaining_records[kept] = x
        leaves = members[next_member] == x  # without a branch, because the processor cannot predict it
        next_member += leaves
        kept += not leaves


@njit_inline
def _shift_values(
    column: Float64Vector | Int64Vector, remaining_records: Int64Vector, moved: Float64Vector | Int64Vector
) -> None:
    """Move the remaining values of a column to its end, one by one."""
    for i in range(remaining_records.size):
        moved[i] = column[remaining_records[i]]
    target = column[column.size - remaining_records.size :]
    for i in range(remaining_records.size):
        target[i] = moved[i]


@njit_inline
def _shift_values_of_rows(
    rows: Float64Matrix | Int64Matrix,
    head: int,
    stop: int,
    remaining_records: Int64Vector,
    moved: Float64Vector | Int64Vector,
) -> None:
    """Call `_shift_values` for the slots from ``head`` to ``stop`` of each row."""
    for row in range(rows.shape[0]):
        _shift_values(rows[row, head:stop], remaining_records, moved)


@njit_inline
def _shift_runs_of_rows(
    rows: Float64Matrix | Int64Matrix,
    head: int,
    stop: int,
    members: Int64Vector,
    moved: Float64Vector | Int64Vector,
) -> None:
    """Call `_shift_runs` for the slots from ``head`` to ``stop`` of each row."""
    for row in range(rows.shape[0]):
        _shift_runs(rows[row, head:stop], members, moved)


@njit_inline
def _shift_runs(column: Float64Vector | Int64Vector, members: Int64Vector, moved: Float64Vector | Int64Vector) -> None:
    """Move the remaining values of a column to its end, run by run from the youngest. Copies of long runs are fast."""
    for i in range(members.size - 2, -1, -1):
        start, step = members[i] + 1, members.size - 1 - i
        run = column[start : members[i + 1]]
        target = column[start + step : members[i + 1] + step]
        for x in range(run.size):
            moved[x] = run[x]
        for x in range(run.size):
            target[x] = moved[x]


def trim(decisions: DecisionBuffer) -> DecisionBuffer:
    """Return a copy of what has been written, without the unused rest of the arrays."""
    clusters, released, suppressed = decisions.counts.tolist()
    return DecisionBuffer(
        decisions.positions[:released].copy(),
        decisions.clusters[:, :clusters].copy(),
        decisions.suppressed[:, :suppressed].copy(),
        decisions.counts,
    )


SLICE = 1024
"""Records that are staged at a time. A longer block is processed slice by slice."""


class CoordinateBlock(NamedTuple):
    """Validated records as they arrive.

    Attributes
    ----------
    coordinates : float64 (n, d)
    subjects, positions : int64 (n,)
    expiry_keys : int64 (n, C)
    codes : int64 (n, c + q or c + 2 q)
        Category columns, then value codes of the protected attributes, then their bins if there is a t.
    """

    coordinates: Float64Matrix
    subjects: Int64Vector
    positions: Int64Vector
    expiry_keys: Int64Matrix
    codes: Int64Matrix


class Buffer:
    """The held records and the staged slice, in arrays that are allocated once.

    Parameters
    ----------
    delta : int
        Largest delay; at most ``delta + 1`` records are held.
    dimensions, columns : int
        Coordinates and expiry keys of a record.
    code_distances : ndarray of float64, shape (c,), optional
        Squared distance of each category column.
    protected : int
        Rows of value codes and bins behind those of the category columns.
    codes_must_agree : ndarray of bool, shape (c,), optional
        Whether a cluster publishes a code of a category column only if all members have it; by default not.

    Attributes
    ----------
    held : HeldRecords
        The arrays that kernels read and write.
    capacity : int
        Slots: ``delta + 1``, and a slice or half of delta. A larger capacity would need fewer compactions.
    """

    def __init__(
        self,
        delta: int,
        dimensions: int,
        columns: int,
        code_distances: Float64Vector | None = None,
        protected: int = 0,
        codes_must_agree: BoolVector | None = None,
    ) -> None:
        self.capacity = delta + 1 + max(SLICE, delta // 2)
        distances = np.zeros(0) if code_distances is None else code_distances
        self.held: HeldRecords = empty_held(self.capacity, dimensions, columns, distances, protected, codes_must_agree)

    def __len__(self) -> int:
        return int(self.held.extent[TAIL] - self.held.extent[HEAD] - self.held.gap_state[GAP_COUNT])

    def positions(self) -> Int64Vector:
        """Return a copy of the held positions, ascending."""
        return self.held.positions[self._slots()]

    def oldest(self) -> tuple[int, Int64Vector]:
        """Return position and expiry keys (C,) of the oldest held record; there must be one."""
        slot = int(self._slots()[0])
        return int(self.held.positions[slot]), self.held.expiry_keys[:, slot].copy()

    def subjects(self) -> Int64Vector:
        """Return a copy of the held records' subjects."""
        return self.held.subjects[self._slots()]

    def _slots(self, arriving: int = 0) -> Int64Vector:
        """Return the slots of the held records and of ``arriving`` staged ones."""
        head, end = int(self.held.extent[HEAD]), int(self.held.extent[TAIL]) + arriving
        slots: Int64Vector = np.flatnonzero(~self.held.removed[head:end])
        return slots + head

    def stage(self, block: CoordinateBlock, start: int) -> int:
        """Copy the next slice of a block behind the held records, where it is not yet held; return its length."""
        stop = min(start + SLICE, len(block.positions))
        count = stop - start
        if self.held.extent[TAIL] + count > self.capacity:
            self.compact()
        tail = self.held.extent[TAIL]
        target = slice(tail, tail + count)
        self.held.coordinates[:, target] = block.coordinates[start:stop].T
        self.held.positions[target] = block.positions[start:stop]
        self.held.subjects[target] = block.subjects[start:stop]
        self.held.expiry_keys[:, target] = block.expiry_keys[start:stop].T
        if len(self.held.codes):
            self.held.codes[:, target] = block.codes[start:stop].T
        return count

    def replace_coordinates(self, coordinates: Float64Matrix) -> None:
        """Replace the coordinates (held, d) of the held records. Codes stay; an existing cell index becomes invalid."""
        self.compact()
        self.held.coordinates[:, : len(self)] = coordinates.T

    def compact(self, arriving: int = 0) -> None:
        """Close all gaps and move the held records to the first slots; ``arriving`` staged records stay behind them."""
        held, slots = self.held, self._slots(arriving)
        for array in (held.coordinates, held.positions, held.subjects, held.expiry_keys, held.codes):
            array[..., : len(slots)] = array[..., slots]
        held.removed[:] = False
        held.extent[:] = 0, len(slots) - arriving
        held.gap_state[GAP_COUNT] = 0
        held.gap_state[COMPACTIONS] += 1
