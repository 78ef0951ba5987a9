"""Rule nearest: the oldest due record forms a cluster with its nearest held records (Algorithms 2, 3 of [1]_, Note 1).

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.kernels.containers import count_up_to, fill_heap, pop_nearest
from shoal.kernels.jit import njit, njit_inline
from shoal.streams.expiry import (
    NEWEST_POSITION,
    Rule,
    StreamState,
    Workspace,
    add_member,
    all_distinct,
    append_until_due,
    has_min_population,
    limit_shares_and_reset,
    release_or_suppress,
    sort_by_age,
    squared_distances,
)
from shoal.streams.held_records import FLUSHED, HEAD, NOT_DUE, TAIL, DecisionBuffer, suppress


class NearestRule(Rule):
    """The oldest due record forms a cluster with its nearest held records, as many as are needed for k subjects.

    Deviation from the paper: several records of a subject may be in a cluster. If a subject exceeds ``max_share``, its
    farthest records stay held. Cost per cluster, with h held records of d coordinates: O(h d + k^2 log(h / k)), and O(h
    log h) more if a subject occurs twice among the k nearest.
    """

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        decide_all_by_distance(self._stream, decisions, cursor, False)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        decide_all_by_distance(self._stream, decisions, np.array([0, newest]), True)


@njit
def decide_all_by_distance(stream: StreamState, decisions: DecisionBuffer, cursor: Int64Vector, is_flush: bool) -> None:
    """Append staged records one by one and decide on each due record; in a flush, decide on all held records.

    In a flush, the records of fewer than 2k subjects form one cluster; those of fewer than k are suppressed.
    """
    held = stream.held
    if is_flush and not has_min_population(stream):
        while held.extent[HEAD] < held.extent[TAIL]:
            suppress(held, decisions, cursor[NEWEST_POSITION], FLUSHED)
    while True:
        cause, wanted = _next_decision(stream, cursor, is_flush)
        if cause == NOT_DUE:
            return
        size = select_by_distance(stream, wanted)
        release_or_suppress(stream, decisions, size, cursor[NEWEST_POSITION], cause)


@njit_inline
def select_by_distance(stream: StreamState, wanted: int) -> int:
    """Write the oldest record's cluster, oldest first, to `Workspace.members`; return its size, or 0 if too few."""
    held, workspace, k = stream.held, stream.workspace, stream.constraints.k
    head, tail = held.extent[HEAD], held.extent[TAIL]
    has_subjects = wanted > k
    if not has_subjects and tail - head >= k:
        distances, subjects = workspace.distances[: tail - head], held.subjects[head:tail]
        squared_distances(held, stream.constraints.omega_p[0], 0, distances)
        nearest = workspace.members[:k]
        _select_nearest(distances, workspace.nearest_distances[: k - 1], workspace.heap, nearest)
        if all_distinct(subjects, nearest, workspace):
            return k
        has_subjects = count_up_to(workspace.numbering, subjects, k) == k
    return int(select_nearest_subjects(stream, wanted)) if has_subjects else 0


@njit_inline
def select_nearest_subjects(stream: StreamState, wanted: int) -> int:
    """Select the oldest record with its nearest until ``wanted`` subjects are members, within ``max_share``."""
    held, workspace, constraints = stream.held, stream.workspace, stream.constraints
    head, tail = held.extent[HEAD], held.extent[TAIL]
    distances = workspace.distances[: tail - head]
    squared_distances(held, constraints.omega_p[0], 0, distances)
    size = _add_nearest(distances, held.subjects[head:tail], workspace, wanted)
    kept = limit_shares_and_reset(workspace, size, constraints.max_share)
    sort_by_age(workspace.members[:size], workspace.heap[: tail - head])
    return int(kept)


@njit_inline
def _next_decision(stream: StreamState, cursor: Int64Vector, is_flush: bool) -> tuple[int, int]:
    """Return why the oldest record is decided on next, or `NOT_DUE`, and the subjects wanted in its cluster."""
    held, k = stream.held, stream.constraints.k
    if not is_flush:
        return append_until_due(stream, cursor), k
    subjects = held.subjects[held.extent[HEAD] : held.extent[TAIL]]
    if subjects.size == 0:
        return NOT_DUE, k
    if k <= count_up_to(stream.workspace.numbering, subjects, 2 * k) < 2 * k:
        return FLUSHED, subjects.size + 1  # more than there are: all records become members
    return FLUSHED, k


@njit_inline
def _select_nearest(
    distances: Float64Vector, nearest_distances: Float64Vector, listed: Int64Vector, nearest: Int64Vector
) -> None:
    """Write the oldest record and the ``nearest_distances.size`` nearest others to ``nearest``, oldest first.

    One pass lists each record that was among the nearest when the loop reached it; the rest is chosen from these.
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
    """Add records, the nearest first, until ``wanted`` subjects are members; return how many were added."""
    heap, record, size = workspace.heap[: distances.size - 1], 0, 0
    fill_heap(heap, distances)
    while True:
        add_member(workspace, subjects, record, size)
        size += 1
        if workspace.numbering.size[0] >= wanted or size > heap.size:
            return size
        record = pop_nearest(heap, heap.size - size + 1, distances)
