"""G."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.heaps import build, sink
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.numba.subject_codes import count_up_to
from shoal.clustering.stream import held_records as records
from shoal.clustering.stream.buffer import Buffer
from shoal.clustering.stream.expiry import (
    StreamConstraints,
    Workspace,
    append_until_due,
    squared_distances,
    squared_distances_from,
)
from shoal.clustering.stream.held_records import HEAD, TAIL, DecisionBuffer, HeldRecords
from shoal.clustering.stream.membership import add_member, cap_and_reset, sort_by_age
from shoal.clustering.stream.nearest import release_nearest
from shoal.clustering.stream.partition import PartitionFlushRule
from shoal.clustering.stream.steering import update_weight

__all__ = [
    "Candidates",
    "GrowthRule",
    "empty_candidates",
    "expire",
    "expire_due",
    "grow",
    "opportunity_cost",
    "set_candidate",
    "write_row",
]

CANDIDATES_PER_K = 4
"""C."""


class Candidates(NamedTuple):
    """Those who may join, and arrays that live for one decision.

    ``records`` (L,) by their distance from the head, the nearest first; ``rows`` (L, d + 1) their coordinates and
    weighted position; ``prices`` (L,) of leaving each behind; ``joined`` (L,); ``centre`` (d + 1,); ``smallest``
    (k - 1,) squared distances. ``pressure`` (1,): lambda, 0 for greedy.
    """

    records: Int64Vector
    rows: Float64Matrix
    opportunity_costs: Float64Vector
    joined: BoolVector
    centre: Float64Vector
    smallest_distances: Float64Vector
    opportunity_weight: Float64Vector


class GrowthRule(PartitionFlushRule):
    """G."""

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float) -> None:
        super().__init__(buffer, constraints)
        limit = min(CANDIDATES_PER_K * constraints.k, buffer.capacity) if opportunity_weight else buffer.capacity
        dimensions = len(buffer.held.coordinates)
        self._candidates = empty_candidates(limit, dimensions, constraints.k, opportunity_weight)

    def _scan(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        expire_due(self._buffer.held, self._workspace, self._candidates, decisions, self._constraints, cursor)


def empty_candidates(capacity: int, dimensions: int, k: int, opportunity_weight: float) -> Candidates:
    """Allocate the arrays of a rule once, for at most so many records that may join."""
    return Candidates(
        records=np.zeros(capacity, np.int64),
        rows=np.zeros((capacity, dimensions + 1)),
        opportunity_costs=np.zeros(capacity),
        joined=np.zeros(capacity, np.bool_),
        centre=np.zeros(dimensions + 1),
        smallest_distances=np.zeros(k - 1),
        opportunity_weight=np.full(1, opportunity_weight),
    )


@njit_in_place
def expire_due(
    held: HeldRecords,
    workspace: Workspace,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
) -> None:
    """Let records of the block in, one by one, and decide on all that becomes due; ``steps`` as for rule nearest."""
    while True:
        cause = append_until_due(held, workspace, constraints, cursor)
        if cause == records.NOT_DUE:
            return
        expire(held, workspace, candidates, decisions, constraints, cursor[1], cause)


@njit_in_place
def expire(
    held: HeldRecords,
    workspace: Workspace,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    newest: int,
    cause: int,
) -> None:
    """Decide on the oldest record, and let the weight of the position follow."""
    clusters_before = decisions.counts[records.CLUSTERS]
    _expire(held, workspace, candidates, decisions, constraints, newest, cause)
    update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)


@njit_in_place
def _expire(
    held: HeldRecords,
    workspace: Workspace,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    newest: int,
    cause: int,
) -> None:
    """Release the oldest record in a cluster that grows to k subjects, or suppress it if fewer are held."""
    head, tail = held.extent[HEAD], held.extent[TAIL]
    subjects = held.subjects[head:tail]
    if count_up_to(workspace.numbering, subjects, constraints.k) < constraints.k:
        records.suppress(held, decisions, newest, cause)
        return
    count = _list_nearest(held, workspace, candidates, constraints.omega_p[0])
    if candidates.opportunity_weight[0] > 0.0:
        _fill_opportunity_costs(held, workspace, candidates, constraints, count, newest)
    write_row(held, 0, constraints.omega_p[0], candidates.centre)
    size = grow(subjects, workspace, candidates, constraints.k, count)
    if workspace.numbering.size[0] < constraints.k:
        # All that may join are the same few people: the rule for them is the one that looks at everybody.
        cap_and_reset(workspace, size, 1.0)
        release_nearest(held, workspace, decisions, constraints, newest, cause, constraints.k)
        return
    kept = cap_and_reset(workspace, size, constraints.max_share)
    if size == constraints.k:
        _include_old_records(held, workspace, candidates, constraints.k)
    sort_by_age(workspace.members[:size], workspace.heap[: tail - head])
    records.release(held, decisions, workspace.members[:kept], newest, cause)


@njit_in_place
def _list_nearest(held: HeldRecords, workspace: Workspace, candidates: Candidates, omega_p: float) -> int:
    """Write the records nearest to the oldest into the offer; return how many. Of equally near ones the older."""
    head, tail = held.extent[HEAD], held.extent[TAIL]
    distances, heap = workspace.distances[: tail - head], workspace.heap[: tail - head - 1]
    squared_distances(held, omega_p, distances)
    for x in range(heap.size):
        heap[x] = x + 1
    build(heap, distances)
    count, remaining = min(candidates.records.size, heap.size), heap.size
    for candidate in range(count):
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sink(heap, remaining, 0, distances)
        set_candidate(held, candidates, candidate, record, omega_p)
    return count


@njit_in_place
def set_candidate(held: HeldRecords, candidates: Candidates, candidate: int, record: int, omega_p: float) -> None:
    """Put a record on a place of the offer; its price is 0 for now."""
    candidates.records[candidate] = record
    candidates.joined[candidate] = False
    candidates.opportunity_costs[candidate] = 0.0
    write_row(held, record, omega_p, candidates.rows[candidate])


@njit_in_place
def write_row(held: HeldRecords, record: int, omega_p: float, row: Float64Vector) -> None:
    """Write the coordinates of a record; its position counts from that of the oldest, so that it stays exact."""
    slot, last = held.extent[HEAD] + record, row.size - 1
    for j in range(last):
        row[j] = held.coordinates[j, slot]
    row[last] = omega_p * float(held.positions[slot] - held.positions[held.extent[HEAD]])


@njit_in_place
def _fill_opportunity_costs(
    held: HeldRecords,
    workspace: Workspace,
    candidates: Candidates,
    constraints: StreamConstraints,
    count: int,
    newest: int,
) -> None:
    """Write what it will cost to leave each behind: half its mean distance to k - 1 others, by age."""
    head, tail = held.extent[HEAD], held.extent[TAIL]
    distances = workspace.distances[: tail - head]
    for candidate in range(count):
        record = candidates.records[candidate]
        squared_distances_from(held, constraints.omega_p[0], record, distances)
        distances[record] = np.inf
        _collect_smallest(distances, candidates.smallest_distances)
        candidates.opportunity_costs[candidate] = opportunity_cost(
            candidates, constraints, newest - held.positions[head + record]
        )


@njit_in_place
def opportunity_cost(candidates: Candidates, constraints: StreamConstraints, age: int) -> float:
    """Return what it will cost to leave a record behind whose smallest distances are in the offer."""
    share, total = (
        candidates.opportunity_weight[0] * 0.5 / float(candidates.smallest_distances.size * constraints.delta),
        0.0,
    )
    for distance in candidates.smallest_distances:
        total += distance
    return float(share * float(age) * total)


@njit_in_place
def _collect_smallest(distances: Float64Vector, smallest: Float64Vector) -> None:
    """Write the ``smallest.size`` smallest distances, from the smallest on."""
    last = smallest.size - 1
    smallest[:] = np.inf
    for distance in distances:
        if distance < smallest[last]:
            i = last
            while i > 0 and smallest[i - 1] > distance:
                smallest[i] = smallest[i - 1]
                i -= 1
            smallest[i] = distance


@njit_in_place
def grow(subjects: Int64Vector, workspace: Workspace, candidates: Candidates, k: int, count: int) -> int:
    """Write the cluster to ``order`` until k subjects are in, or nobody is left who may join; return its size.

    Fills what `membership.join` fills; the numbering stays filled.
    """
    centre, width = candidates.centre, candidates.centre.size
    add_member(workspace, subjects, 0, 0)
    size = 1
    while workspace.numbering.size[0] < k and size <= count:
        weight, best, chosen = size / (size + 1.0), np.inf, -1
        for candidate in range(count):
            if not candidates.joined[candidate]:
                squared = 0.0
                for j in range(width):
                    step = candidates.rows[candidate, j] - centre[j]
                    squared += step * step
                cost = weight * squared - candidates.opportunity_costs[candidate]
                if cost < best or chosen < 0:
                    best, chosen = cost, candidate
        candidates.joined[chosen] = True
        add_member(workspace, subjects, candidates.records[chosen], size)
        size += 1
        for j in range(width):
            centre[j] += (candidates.rows[chosen, j] - centre[j]) / size
    return size


@njit_in_place
def _include_old_records(held: HeldRecords, workspace: Workspace, candidates: Candidates, k: int) -> None:
    """Take old records along, as far as that keeps enough people for the next that expires.

    After a decision ``held - k`` records are left, and as many more arrive before the oldest of these expires as it is
    younger than this one. If that makes fewer than k it would be suppressed: it takes the place of the younger member
    that is farthest from the mean. All members are different people, and stay so.
    """
    head, tail = held.extent[HEAD], held.extent[TAIL]
    positions, order, inside = held.positions[head:tail], workspace.members[:k], workspace.heap[: tail - head]
    inside[:] = 0
    for record in order:
        inside[record] = 1
    oldest = 0
    for _ in range(k):
        while oldest < inside.size and inside[oldest]:
            oldest += 1
        if oldest == inside.size or inside.size - k + positions[oldest] - positions[0] >= k:
            return
        member = _replaceable_member(held, candidates, order, oldest)
        if member < 0:
            return
        inside[order[member]], inside[oldest] = 0, 1
        order[member] = oldest


@njit_in_place
def _replaceable_member(held: HeldRecords, candidates: Candidates, order: Int64Vector, record: int) -> int:
    """Return the place of the farthest member that is younger than a record and may go for it, or -1."""
    subjects = held.subjects[held.extent[HEAD] : held.extent[TAIL]]
    farthest, chosen = -1.0, -1
    for member in range(order.size):
        if subjects[order[member]] == subjects[record]:
            return member if order[member] > record else -1
        if order[member] > record:
            squared = _squared_distance_from_centre(held, order[member], candidates.centre)
            if squared > farthest:
                farthest, chosen = squared, member
    return chosen


@njit_in_place
def _squared_distance_from_centre(held: HeldRecords, record: int, centre: Float64Vector) -> float:
    total = 0.0
    for j in range(centre.size - 1):
        step = held.coordinates[j, held.extent[HEAD] + record] - centre[j]
        total += step * step
    return total
