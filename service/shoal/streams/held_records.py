"""The held records and the decisions on them as arrays, which the kernels of every rule read and write.

Held records stand oldest first in the slots ``[extent[HEAD], extent[TAIL])`` of every array. A block that arrives is
staged behind them, and `append_next` moves the tail over it record by record. `release` and `suppress` close the gaps
that removed records leave. A rule with a cell index calls `release_in_place` instead: there a removed record stays in
its slot as a gap until `Buffer.compact` is called.

Kernels use three kinds of index. A *slot* is an index into the arrays of `HeldRecords`. A *record* is a slot counted
from the head, so that the oldest held record is 0. A *position* is the arrival rank of a record in the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int8Vector, Int64Matrix, Int64Vector
from shoal.kernels.jit import njit_inline

HEAD, TAIL = 0, 1
"""Indices into `HeldRecords.extent`."""
GAP_COUNT, COMPACTIONS = 0, 1
"""Indices into `HeldRecords.gap_state`."""
CLUSTERS, RELEASED, SUPPRESSED = 0, 1, 2
"""Indices into `DecisionBuffer.counts`."""
END = POSITION = 0  # row 0 of `DecisionBuffer.clusters` and of `DecisionBuffer.suppressed`
CAUSE, NEWEST, BEFORE = 1, 2, 3
"""Rows of both arrays; ``BEFORE`` of `DecisionBuffer.suppressed` only."""
NOT_DUE = -2  # returned instead of a cause when no held record expires
FLUSHED, BY_POSITION, BY_CLOCK = -1, 0, 1
"""Causes of a decision: the end of the stream; delta; the first expiry key, which is a clock. Expiry key c, counted
from 0, is cause c + 1."""
LONG_RUN = 16  # mean number of records between two members from which runs are copied instead of single values
SLICE = 1024
"""Records that are staged at a time. A longer block is processed slice by slice."""
_NONE = np.zeros(0)  # no category column


class HeldRecords(NamedTuple):
    """Arrays of the held records; every array is allocated once."""

    coordinates: Float64Matrix  # (d, capacity): scaled and weighted quasi-identifiers
    integers: Int64Matrix  # (rows, capacity): the next four are views of its rows
    positions: Int64Vector  # (capacity,): arrival rank
    subjects: Int64Vector  # (capacity,): subject code
    expiry_keys: Int64Matrix  # (C, capacity): one row per expiry limit
    codes: Int64Matrix  # (c + protected, capacity): category columns, then value codes of protected attributes and bins
    code_distances: Float64Vector  # (c,): squared distance of two records that differ in a category column
    codes_must_agree: BoolVector  # (c,): whether a cluster publishes a code of the column only if all members have it
    extent: Int64Vector  # (2,): slots of the head and the tail
    removed: BoolVector  # (capacity,): True for a slot between head and tail whose record has left
    gap_state: Int64Vector  # (2,): number of such slots, and how often the buffer has been compacted
    latest_keys: Int64Vector  # (C,): expiry keys of the last record that arrived; that record may have left since
    remaining_records: Int64Vector  # (capacity,): scratch of `release`, like the next two
    moved_integers: Int64Vector
    moved_floats: Float64Vector


class DecisionBuffer(NamedTuple):
    """Decisions of one call, in the order in which they were taken."""

    positions: Int64Vector  # (E,): released records, cluster after cluster, ascending inside a cluster
    clusters: Int64Matrix  # (3, G): end in ``positions``, cause, newest position at the decision
    suppressed: Int64Matrix  # (4, S): position, cause, newest position, clusters decided before
    counts: Int64Vector  # (3,): clusters, released records and suppressed records written so far


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of one call, in the order of decision. All arrays are new and belong to the caller."""

    positions: Int64Vector  # (E,): members of the clusters, cluster after cluster; ascending inside a cluster
    cluster_bounds: Int64Vector  # (G + 1,): cluster g is ``positions[cluster_bounds[g]:cluster_bounds[g + 1]]``
    subjects: Int64Vector  # (G,): distinct subjects, at least k
    max_per_subject: Int64Vector  # (G,): records of the subject that has the most
    causes: Int8Vector  # (G,): `BY_POSITION` (delta), `FLUSHED` (end of the stream), or c + 1 for expiry key c
    newest: Int64Vector  # (G,): newest position at the decision; ``newest - position`` is the delay of a record
    suppressed: Int64Vector  # (S,): positions of suppressed records
    suppressed_newest: Int64Vector  # (S,)
    suppressed_causes: Int8Vector  # (S,)
    suppressed_before: Int64Vector  # (S,): clusters of this call that were decided before; ascending

    def part(self, clusters: slice, suppressed: slice) -> Decisions:
        """Return consecutive decisions, as if they were those of one call."""
        first, last = self.cluster_bounds[[clusters.start, clusters.stop]].tolist()
        return Decisions(
            positions=self.positions[first:last],
            cluster_bounds=self.cluster_bounds[clusters.start : clusters.stop + 1] - first,
            subjects=self.subjects[clusters],
            max_per_subject=self.max_per_subject[clusters],
            causes=self.causes[clusters],
            newest=self.newest[clusters],
            suppressed=self.suppressed[suppressed],
            suppressed_newest=self.suppressed_newest[suppressed],
            suppressed_causes=self.suppressed_causes[suppressed],
            suppressed_before=self.suppressed_before[suppressed] - clusters.start,
        )


class ArrivingBlock(NamedTuple):
    """Validated records as they arrive, without their coordinates."""

    subjects: Int64Vector  # (n,)
    positions: Int64Vector  # (n,)
    expiry_keys: Int64Matrix  # (n, C)
    codes: Int64Matrix  # (n, c + q or c + 2 q): as in `HeldRecords`

    def rows(self) -> Int64Matrix:
        """Return all of it (rows, n), as in ``HeldRecords.integers``."""
        return np.vstack((self.positions, self.subjects, self.expiry_keys.T, self.codes.T))


class Buffer:
    """The held records, at most ``delta + 1``, and the staged slice. More slots would need fewer compactions."""

    def __init__(
        self,
        delta: int,
        dimensions: int,
        columns: int,
        code_distances: Float64Vector = _NONE,
        protected: int = 0,
        codes_must_agree: BoolVector | None = None,
    ) -> None:
        self.capacity = delta + 1 + max(SLICE, delta // 2)
        self._allocate = partial(
            empty_held, self.capacity, dimensions, columns, code_distances, protected, codes_must_agree
        )
        self.held = self._allocate()

    def __len__(self) -> int:
        return int(self.held.extent[TAIL] - self.held.extent[HEAD] - self.held.gap_state[GAP_COUNT])

    @property
    def population(self) -> int:
        """Number of distinct subjects among the held records. Cost: O(held log held)."""
        return len(np.unique(self.subjects()))

    def positions(self) -> Int64Vector:
        """Return a copy of the held positions, ascending."""
        return self.held.positions[self._slots()].copy()

    def oldest(self) -> tuple[int, Int64Vector]:
        """Return position and expiry keys (C,) of the oldest held record; there must be one."""
        slot = int(self.held.extent[HEAD])  # the head is never a gap
        return int(self.held.positions[slot]), self.held.expiry_keys[:, slot].copy()

    def subjects(self) -> Int64Vector:
        """Return a copy of the held records' subjects."""
        return self.held.subjects[self._slots()].copy()

    def copy_held(self) -> HeldRecords:
        """Return a copy of all arrays."""
        copies = self._allocate()
        for copied, array in zip(copies, self.held, strict=True):
            if array.base is not self.held.integers:  # its rows are copied with it
                copied[...] = array
        return copies

    def _slots(self, arriving: int = 0) -> slice | Int64Vector:
        """Return the slots of the held records and of ``arriving`` staged ones."""
        head, end = int(self.held.extent[HEAD]), int(self.held.extent[TAIL]) + arriving
        if not self.held.gap_state[GAP_COUNT]:
            return slice(head, end)
        slots: Int64Vector = np.flatnonzero(~self.held.removed[head:end])
        return slots + head

    def stage(self, integers: Int64Matrix, coordinates: Float64Matrix) -> int:
        """Copy the first slice of records behind the held ones, where it is not yet held; return its length.

        ``integers`` (rows, n) are those of `ArrivingBlock.rows`, ``coordinates`` (n, d) those of the same records.
        """
        count = min(len(coordinates), SLICE)
        if self.held.extent[TAIL] + count > self.capacity:
            self.compact()
        tail = int(self.held.extent[TAIL])
        self.held.coordinates[:, tail : tail + count] = coordinates[:count].T
        self.held.integers[:, tail : tail + count] = integers[:, :count]
        return count

    def replace_coordinates(self, coordinates: Float64Matrix) -> None:
        """Replace the coordinates (held, d) of the held records. Codes stay; an existing cell index becomes invalid."""
        self.held.coordinates[:, self._slots()] = coordinates.T
        self.held.gap_state[COMPACTIONS] += 1

    def compact(self, arriving: int = 0) -> None:
        """Close all gaps and move the held records to the first slots; ``arriving`` staged records stay behind them."""
        held, slots, count = self.held, self._slots(arriving), len(self)
        held.coordinates[:, : count + arriving] = held.coordinates[:, slots]
        held.integers[:, : count + arriving] = held.integers[:, slots]
        held.removed[:] = False
        held.extent[:] = 0, count
        held.gap_state[GAP_COUNT] = 0
        held.gap_state[COMPACTIONS] += 1


def empty_held(
    capacity: int,
    dimensions: int,
    columns: int,
    code_distances: Float64Vector = _NONE,
    protected: int = 0,
    codes_must_agree: BoolVector | None = None,
) -> HeldRecords:
    """Allocate the arrays; each entry of ``code_distances`` (c,) adds a row of codes, ``protected`` rows follow."""
    integers = np.zeros((2 + columns + len(code_distances) + protected, capacity), np.int64)
    must_agree = np.zeros(len(code_distances), np.bool_) if codes_must_agree is None else codes_must_agree.copy()
    return HeldRecords(
        coordinates=np.zeros((dimensions, capacity)),
        integers=integers,
        positions=integers[0],
        subjects=integers[1],
        expiry_keys=integers[2 : 2 + columns],
        codes=integers[2 + columns :],
        code_distances=code_distances.copy(),
        codes_must_agree=must_agree,
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


def trim(decisions: DecisionBuffer) -> DecisionBuffer:
    """Return a copy of what has been written, without the unused rest of the arrays."""
    clusters, released, suppressed = decisions.counts.tolist()
    return DecisionBuffer(
        decisions.positions[:released].copy(),
        decisions.clusters[:, :clusters].copy(),
        decisions.suppressed[:, :suppressed].copy(),
        decisions.counts,
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
    head, tail = held.extent[HEAD], held.extent[TAIL]
    for i in range(members.size):
        held.removed[head + members[i]] = True
    held.gap_state[GAP_COUNT] += members.size
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
        _shift_runs(held.integers, head, stop, members, held.moved_integers)
        _shift_runs(held.coordinates, head, stop, members, held.moved_floats)
    else:
        _list_remaining(members, held.remaining_records[: moving + 1])
        remaining_records = held.remaining_records[:moving]
        _shift_values(held.integers, head, stop, remaining_records, held.moved_integers)
        _shift_values(held.coordinates, head, stop, remaining_records, held.moved_floats)
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
    rows: Float64Matrix | Int64Matrix,
    head: int,
    stop: int,
    remaining_records: Int64Vector,
    moved: Float64Vector | Int64Vector,
) -> None:
    """Move the remaining values of the slots from ``head`` to ``stop`` of each row to their end, one by one."""
    for row in range(rows.shape[0]):
        values, target = rows[row, head:stop], rows[row, stop - remaining_records.size : stop]
        for i in range(remaining_records.size):
            moved[i] = values[remaining_records[i]]
        for i in range(remaining_records.size):
            target[i] = moved[i]


@njit_inline
def _shift_runs(
    rows: Float64Matrix | Int64Matrix, head: int, stop: int, members: Int64Vector, moved: Float64Vector | Int64Vector
) -> None:
    """Do as `_shift_values`, run by run from the youngest: copies of long runs are fast."""
    for row in range(rows.shape[0]):
        values = rows[row, head:stop]
        for i in range(members.size - 2, -1, -1):
            start, step = members[i] + 1, members.size - 1 - i
            run = values[start : members[i + 1]]
            target = values[start + step : members[i + 1] + step]
            for x in range(run.size):
                moved[x] = run[x]
            for x in range(run.size):
                target[x] = moved[x]
