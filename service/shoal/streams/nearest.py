"""Rule nearest: the oldest due record forms a cluster with its nearest held records (Algorithms 2, 3 of [1]_, Note 1).

Parameters that all kernels of the rules share are described in `expiry`.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.kernels.jit import njit, njit_inline
from shoal.kernels.sorting import heapify, sift_down
from shoal.kernels.subject_codes import count_up_to
from shoal.streams.expiry import (
    NEWEST_POSITION,
    StreamConstraints,
    Workspace,
    add_member,
    all_distinct,
    append_until_due,
    empty_workspace,
    has_min_population,
    limit_shares_and_reset,
    sort_by_age,
    squared_distances,
)
from shoal.streams.held_records import (
    CLUSTERS,
    FLUSHED,
    HEAD,
    NOT_DUE,
    TAIL,
    Buffer,
    CoordinateBlock,
    DecisionBuffer,
    HeldRecords,
    empty_decision_buffer,
    release,
    suppress,
    trim,
)
from shoal.streams.steering import update_weight

__all__ = [
    "NearestRule",
    "decide_all_by_distance",
    "next_decision",
    "release_or_suppress",
    "select_by_distance",
    "select_nearest_subjects",
    "suppress_small_population",
]


class NearestRule:
    """The oldest due record forms a cluster with its nearest held records, as many as are needed for k subjects.

    Parameters
    ----------
    buffer : Buffer
        The held records. Only this rule changes them.
    constraints : StreamConstraints
        k, delta, weight of the position, ``max_share``, expiry limits.

    Notes
    -----
    Deviations from the paper: several records of a subject may be in a cluster, in the order of their distance (the
    paper does not define this). If a subject exceeds ``max_share``, its farthest records stay held.

    Cost per cluster, with h held records of d coordinates: O(h d + k^2 log(h / k)). If a subject occurs twice among the
    k nearest records, O(h d + m log h) more, with m records that are added until k subjects are in the cluster.
    """

    def __init__(self, buffer: Buffer, constraints: StreamConstraints) -> None:
        self._buffer = buffer
        self._constraints = constraints
        self._workspace = empty_workspace(buffer.capacity)

    def precompile(self) -> None:
        """Compile all kernels by a call without records, so that no record waits for the compiler later."""
        self._decide_staged(empty_decision_buffer(0), 0)
        self._flush(empty_decision_buffer(0), -1)

    def push(self, block: CoordinateBlock) -> DecisionBuffer:
        """Append the records of a validated block one by one, and decide on each record that becomes due.

        Parameters
        ----------
        block : CoordinateBlock
            n records.

        Returns
        -------
        DecisionBuffer
            New arrays, trimmed to the decisions taken.
        """
        count = len(block.positions)
        decisions = empty_decision_buffer(len(self._buffer) + count)
        done = 0
        while done < count:
            staged = self._buffer.stage(block, done)
            self._decide_staged(decisions, staged)
            done += staged
        return trim(decisions)

    def flush(self, newest: int) -> DecisionBuffer:
        """Decide on all held records; if fewer than k subjects are held, their records are suppressed.

        Parameters
        ----------
        newest : int
            Position of the last record that arrived.

        Returns
        -------
        DecisionBuffer
            New arrays, trimmed to the decisions taken.
        """
        decisions = empty_decision_buffer(len(self._buffer))
        self._flush(decisions, newest)
        return trim(decisions)

    def _decide_staged(self, decisions: DecisionBuffer, staged: int) -> None:
        """Append ``staged`` records and decide on each record that becomes due. Override it to use an index."""
        self._decide_due(decisions, np.array([staged, -1]))

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        """Do so with a scan of all held records for each decision. Override it for another rule.

        ``cursor`` holds the number of staged records, and the position of the newest record, which the kernel writes.
        """
        self._decide_all(decisions, cursor, is_flush=False)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        """Decide on all held records."""
        self._decide_all(decisions, np.array([0, newest]), is_flush=True)

    def _decide_all(self, decisions: DecisionBuffer, cursor: Int64Vector, *, is_flush: bool) -> None:
        """Call the kernel of the rule. Override it for another selection of members."""
        decide_all_by_distance(self._buffer.held, self._workspace, decisions, self._constraints, cursor, is_flush)


@njit
def decide_all_by_distance(
    held: HeldRecords,
    workspace: Workspace,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
    is_flush: bool,  # noqa: FBT001 - kernels take no keywords
) -> None:
    """Append staged records one by one and decide on each due record; in a flush, decide on all held records.

    In a flush, the records of fewer than 2k subjects form one cluster, because they cannot fill two. The records of
    fewer than k subjects, or of fewer than the required population, are suppressed. Push and flush share one kernel, so
    that the functions that they call are compiled once.
    """
    if is_flush:
        suppress_small_population(held, workspace, decisions, constraints, cursor[NEWEST_POSITION])
    while True:
        cause, wanted = next_decision(held, workspace, constraints, cursor, is_flush)
        if cause == NOT_DUE:
            return
        clusters_before = decisions.counts[CLUSTERS]
        size = select_by_distance(held, workspace, constraints, wanted)
        release_or_suppress(held, workspace, decisions, size, cursor[NEWEST_POSITION], cause)
        update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)


@njit_inline
def suppress_small_population(
    held: HeldRecords, workspace: Workspace, decisions: DecisionBuffer, constraints: StreamConstraints, newest: int
) -> None:
    """Suppress all held records if they have fewer subjects than the required population."""
    if not has_min_population(held, workspace, constraints):
        while held.extent[HEAD] < held.extent[TAIL]:
            suppress(held, decisions, newest, FLUSHED)


@njit_inline
def next_decision(
    held: HeldRecords,
    workspace: Workspace,
    constraints: StreamConstraints,
    cursor: Int64Vector,
    is_flush: bool,  # noqa: FBT001 - kernels take no keywords
) -> tuple[int, int]:
    """Return why the oldest record is decided on next, or `NOT_DUE`, and the subjects wanted in its cluster."""
    if not is_flush:
        return append_until_due(held, workspace, constraints, cursor), constraints.k
    subjects = held.subjects[held.extent[HEAD] : held.extent[TAIL]]
    if subjects.size == 0:
        return NOT_DUE, constraints.k
    if constraints.k <= count_up_to(workspace.numbering, subjects, 2 * constraints.k) < 2 * constraints.k:
        return FLUSHED, subjects.size + 1  # more than there are: all records become members
    return FLUSHED, constraints.k


@njit_inline
def release_or_suppress(
    held: HeldRecords, workspace: Workspace, decisions: DecisionBuffer, size: int, newest: int, cause: int
) -> None:
    """Release the cluster of so many records in ``workspace.members``; suppress the oldest record if there is none."""
    if size > 0:
        release(held, decisions, workspace.members[:size], newest, cause)
    else:
        suppress(held, decisions, newest, cause)


@njit_inline
def select_by_distance(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, wanted: int) -> int:
    """Write the cluster of the oldest record, with ``wanted`` subjects, to ``workspace.members``; return its size.

    Members are written oldest first. The size is 0 if fewer than k subjects are held. More than k subjects are wanted
    in a flush only, and only if at least k are held.
    """
    head, tail = held.extent[HEAD], held.extent[TAIL]
    has_subjects = wanted > constraints.k
    if not has_subjects and tail - head >= constraints.k:
        distances, subjects = workspace.distances[: tail - head], held.subjects[head:tail]
        squared_distances(held, constraints.omega_p[0], distances)
        nearest = workspace.members[: constraints.k]
        _select_nearest(distances, workspace.nearest_distances[: constraints.k - 1], workspace.heap, nearest)
        if all_distinct(subjects, nearest, workspace):
            return constraints.k
        has_subjects = count_up_to(workspace.numbering, subjects, constraints.k) == constraints.k
    return int(select_nearest_subjects(held, workspace, constraints, wanted)) if has_subjects else 0


@njit_inline
def select_nearest_subjects(
    held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, wanted: int
) -> int:
    """Select the oldest record with its nearest until ``wanted`` subjects are members, within ``max_share``."""
    head, tail = held.extent[HEAD], held.extent[TAIL]
    distances, subjects = workspace.distances[: tail - head], held.subjects[head:tail]
    squared_distances(held, constraints.omega_p[0], distances)
    size = _add_nearest(distances, subjects, workspace, wanted)
    kept = limit_shares_and_reset(workspace, size, constraints.max_share)
    sort_by_age(workspace.members[:size], workspace.heap[: tail - head])
    return int(kept)


@njit_inline
def _select_nearest(
    distances: Float64Vector, nearest_distances: Float64Vector, listed: Int64Vector, nearest: Int64Vector
) -> None:
    """Write the oldest record and the ``nearest_distances.size`` nearest others to ``nearest``, oldest first.

    One pass keeps the smallest distances in order, and lists each record that was among the nearest when the loop
    reached it.
    Of these, all records nearer than the last distance are taken, and the oldest of those at that distance.
    """
    nearest_distances[:] = np.inf
    last, count = nearest_distances.size - 1, 0
    for x in range(1, distances.size):
        distance = distances[x]
        # The first records are listed even at an infinite distance (squares may overflow), so that enough are listed.
        if distance < nearest_distances[last] or x <= nearest_distances.size:
            listed[count] = x
            count += 1
            for i in range(last, 0, -1):
                nearest_distances[i] = min(nearest_distances[i], max(distance, nearest_distances[i - 1]))
            nearest_distances[0] = min(nearest_distances[0], distance)
    farthest, nearer = nearest_distances[last], 0
    for x in listed[:count]:
        nearer += distances[x] < farthest
    equal = nearest_distances.size - nearer
    nearest[0] = 0
    taken = 1
    for x in listed[:count]:  # the last one is always taken, so that no entry is written beyond the last entry
        fits = distances[x] == farthest and equal > 0
        equal -= fits
        nearest[taken] = x
        taken += fits or distances[x] < farthest


@njit_inline
def _add_nearest(distances: Float64Vector, subjects: Int64Vector, workspace: Workspace, wanted: int) -> int:
    """Add records to the cluster, the nearest first, until ``wanted`` subjects are members; return how many were added.

    The caller clears what `add_member` has filled (`limit_shares_and_reset`).
    """
    heap = workspace.heap[: distances.size - 1]
    for x in range(heap.size):
        heap[x] = x + 1
    heapify(heap, distances)
    record, size, remaining = 0, 0, heap.size
    while True:
        add_member(workspace, subjects, record, size)
        size += 1
        if workspace.numbering.size[0] >= wanted or remaining == 0:
            return size
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sift_down(heap, remaining, 0, distances)
