"""Rules greedy, awo and block: the cluster of the expiring record grows around its own mean, or all held records leave.

Rule greedy adds the record that increases the squared error of the cluster least. Opportunity-cost growth (awo)
subtracts what the record is expected to cost if it stays held: little where similar records are held, more for an
isolated or an old record. Rule block releases all held records in the clusters of a partition.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.containers import count_up_to, fill_heap, pop_nearest
from shoal.kernels.jit import njit, njit_inline
from shoal.streams.expiry import (
    NEWEST_POSITION,
    StreamConstraints,
    StreamState,
    add_member,
    append_until_due,
    limit_shares_and_reset,
    release_or_suppress,
    sort_by_age,
    squared_distances,
    write_point,
)
from shoal.streams.held_records import FLUSHED, HEAD, NOT_DUE, TAIL, Buffer, DecisionBuffer, HeldRecords
from shoal.streams.nearest import select_nearest_subjects
from shoal.streams.partition import (
    PAIRS_UP_TO,
    PartitionFlushRule,
    held_as_table,
    partition_dense,
    release_partition,
)
from shoal.tables.descent import DENSE_UP_TO

CANDIDATES_PER_K = 4
"""Nearest records, in units of k, from which awo selects. More take longer and reduce the loss by about 1 %."""


class Candidates(NamedTuple):
    """Records that may be added to the cluster, and scratch arrays of one decision."""

    records: Int64Vector  # (L,): the nearest to the oldest record first
    points: Float64Matrix  # (L, d + 1): coordinates and weighted position
    opportunity_costs: Float64Vector  # (L,): expected cost of leaving each candidate out of the cluster
    codes: Int64Matrix  # (c, L): one row per category column
    code_sums: Float64Vector  # (L,): sum of the squared distances from the members in the category columns
    is_member: BoolVector  # (L,)
    centroid: Float64Vector  # (d + 1,): mean of the members
    smallest_squared_distances: Float64Vector  # (k - 1,): those of one candidate from other held records; scratch
    opportunity_weight: Float64Vector  # (1,): weight of opportunity costs; 0 for rule greedy


def candidates_of(buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float) -> Candidates:
    """Allocate the candidates of a rule: all held records for greedy, the nearest 4k for awo."""
    most = min(CANDIDATES_PER_K * constraints.k, buffer.capacity) if opportunity_weight else buffer.capacity
    dimensions = len(buffer.held.coordinates) + 1
    return Candidates(
        records=np.zeros(most, np.int64),
        points=np.zeros((most, dimensions)),
        opportunity_costs=np.zeros(most),
        codes=np.zeros((len(buffer.held.code_distances), most), np.int64),
        code_sums=np.zeros(most),
        is_member=np.zeros(most, np.bool_),
        centroid=np.zeros(dimensions),
        smallest_squared_distances=np.zeros(constraints.k - 1),
        opportunity_weight=np.full(1, opportunity_weight),
    )


class GrowthRule(PartitionFlushRule):
    """The expiring record's cluster grows around its mean, greedily or by opportunity cost (awo).

    The opportunity cost of a record is half its mean squared distance from the k - 1 nearest held records, times its
    age as a share of delta, times ``opportunity_weight`` (0 for greedy). If fewer than k records would be left for the
    next expiring record, the oldest held records replace young members.

    Cost per cluster: O(k held d) for awo, and O(held log held) more for greedy, whose candidates are all held records.
    """

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float) -> None:
        super().__init__(buffer, constraints)
        self._candidates = candidates_of(buffer, constraints, opportunity_weight)

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        decide_due_by_growth(self._stream, self._candidates, decisions, cursor)


class BlockRule(GrowthRule):
    """When a record expires, all held records are released in the clusters of a partition by MDAV and descent.

    If exchanges of records do not make all clusters feasible, only the cluster of the expiring record is released; it
    grows as by `GrowthRule`. Cost per release: that of `tables.mdav` and `tables.refinement` for the held records.
    """

    def precompile(self) -> None:
        """Compile all kernels by deciding on no records and on a few artificial ones."""
        super().precompile()
        self._run_on_zeros(partial(self._release_all, cause=FLUSHED))

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        stream, candidates, refused_cause = self._stream, self._candidates, NOT_DUE
        while (cause := decide_due_by_partition(stream, candidates, decisions, cursor, refused_cause)) != NOT_DUE:
            refused_cause = NOT_DUE if self._release_all(decisions, int(cursor[NEWEST_POSITION]), cause) else cause

    def _release_all(self, decisions: DecisionBuffer, newest: int, cause: int) -> bool:
        """Release all held records if their partition is feasible; return whether they were released."""
        _, labels, is_feasible = self._partition()
        if is_feasible:
            release_partition(self._stream, decisions, labels, newest, cause)
        return is_feasible


@njit
def decide_due_by_growth(
    stream: StreamState, candidates: Candidates, decisions: DecisionBuffer, cursor: Int64Vector
) -> None:
    """Append staged records one by one, and decide on each expiring record."""
    while True:
        cause = append_until_due(stream, cursor)
        if cause == NOT_DUE:
            return
        size = select_by_growth(stream, candidates, cursor[NEWEST_POSITION])
        release_or_suppress(stream, decisions, size, cursor[NEWEST_POSITION], cause)


@njit
def decide_due_by_partition(
    stream: StreamState, candidates: Candidates, decisions: DecisionBuffer, cursor: Int64Vector, refused_cause: int
) -> int:
    """Append staged records and decide on expiring ones, while few enough records are held for the dense descent.

    For ``refused_cause`` only the cluster of the oldest record is released first. Returns the cause for which the
    caller must release all held records, or `NOT_DUE` at the end.
    """
    held = stream.held
    while True:
        cause = refused_cause
        if cause == NOT_DUE:
            cause = append_until_due(stream, cursor)
            largest = DENSE_UP_TO if held.code_distances.size == 0 else PAIRS_UP_TO
            if cause == NOT_DUE or held.extent[TAIL] - held.extent[HEAD] > largest:
                return cause
            rows = held_as_table(stream)
            if rows.shape[0] > 0:
                labels, is_feasible = partition_dense(stream, rows)
                if is_feasible:
                    release_partition(stream, decisions, labels, cursor[NEWEST_POSITION], cause)
                    continue
        refused_cause = NOT_DUE
        size = select_by_growth(stream, candidates, cursor[NEWEST_POSITION])
        release_or_suppress(stream, decisions, size, cursor[NEWEST_POSITION], cause)


@njit_inline
def select_by_growth(stream: StreamState, candidates: Candidates, newest: int) -> int:
    """Write the cluster that grows around the oldest record to `Workspace.members`; return its size, 0 for none."""
    held, workspace, k = stream.held, stream.workspace, stream.constraints.k
    omega_p, head, tail = stream.constraints.omega_p[0], held.extent[HEAD], held.extent[TAIL]
    if count_up_to(workspace.numbering, held.subjects[head:tail], k) < k:
        return 0
    count = _fill_candidates(stream, candidates)
    if candidates.opportunity_weight[0] > 0.0:
        _fill_opportunity_costs(stream, candidates, count, newest)
    write_point(held, 0, omega_p, candidates.centroid)
    size = grow(stream, candidates, count)
    if workspace.numbering.size[0] < k:
        # The candidates have fewer than k subjects. Rule nearest considers all held records.
        limit_shares_and_reset(workspace, size, 1.0)
        return int(select_nearest_subjects(stream, k))
    # From here on `members[:size]` contains -1 where ``max_share`` removed a member; `kept` counts the others.
    kept = limit_shares_and_reset(workspace, size, stream.constraints.max_share)
    # With k members for k subjects each subject has one record: ``max_share`` removed none, and a member can be
    # exchanged for another record of a new or of the same subject. In larger clusters an exchange could violate
    # ``max_share``.
    if size == k:
        _include_old_records(stream, candidates)
    sort_by_age(workspace.members[:size], workspace.heap[: tail - head])
    return int(kept)


@njit_inline
def grow(stream: StreamState, candidates: Candidates, count: int) -> int:
    """Add candidates to the cluster until k subjects are members or no candidate is left; return the number of members.

    In the category columns a part of the distance that is the same for all candidates is left out: it changes no
    comparison. The caller clears what `add_member` has filled (`limit_shares_and_reset`).
    """
    held, workspace, k = stream.held, stream.workspace, stream.constraints.k
    centroid, width, columns = candidates.centroid, candidates.centroid.size, candidates.codes.shape[0]
    subjects = held.subjects[held.extent[HEAD] : held.extent[TAIL]]
    add_member(workspace, subjects, 0, 0)
    _add_code_distances(held, candidates, 0, count)
    size = 1
    while workspace.numbering.size[0] < k and size <= count:
        # A cluster of n records grows its squared error by n / (n + 1) times the squared distance from its mean.
        sse_factor, best, chosen = size / (size + 1.0), np.inf, -1
        for candidate in range(count):
            if not candidates.is_member[candidate]:
                squared = 0.0
                for j in range(width):
                    step = candidates.points[candidate, j] - centroid[j]
                    squared += step * step
                if columns > 0:
                    squared += candidates.code_sums[candidate] / size
                sse_increase_minus_opportunity_cost = sse_factor * squared - candidates.opportunity_costs[candidate]
                if sse_increase_minus_opportunity_cost < best or chosen < 0:
                    best, chosen = sse_increase_minus_opportunity_cost, candidate
        candidates.is_member[chosen] = True
        add_member(workspace, subjects, candidates.records[chosen], size)
        _add_code_distances(held, candidates, candidates.records[chosen], count)
        size += 1
        for j in range(width):
            centroid[j] += (candidates.points[chosen, j] - centroid[j]) / size
    return size


@njit_inline
def set_candidate(held: HeldRecords, candidates: Candidates, candidate: int, record: int, omega_p: float) -> None:
    """Write a record to entry ``candidate``, with an opportunity cost of 0."""
    candidates.records[candidate] = record
    candidates.is_member[candidate] = False
    candidates.opportunity_costs[candidate] = 0.0
    candidates.code_sums[candidate] = 0.0
    for column in range(candidates.codes.shape[0]):
        candidates.codes[column, candidate] = held.codes[column, held.extent[HEAD] + record]
    write_point(held, record, omega_p, candidates.points[candidate])


@njit_inline
def opportunity_cost(candidates: Candidates, delta: int, age: int) -> float:
    """Return the opportunity cost of the record of this age whose ``smallest_squared_distances`` are given."""
    smallest, total = candidates.smallest_squared_distances, 0.0
    factor = candidates.opportunity_weight[0] * 0.5 / float(smallest.size * delta)
    for distance in smallest:
        total += distance
    return float(factor * float(age) * total)


@njit_inline
def _add_code_distances(held: HeldRecords, candidates: Candidates, record: int, count: int) -> None:
    """Add the squared distances from a new member to the sums of the first ``count`` candidates."""
    sums = candidates.code_sums[:count]
    for column in range(candidates.codes.shape[0]):
        codes, distance = candidates.codes[column, :count], held.code_distances[column]
        own = held.codes[column, held.extent[HEAD] + record]
        for candidate in range(count):
            sums[candidate] += distance if codes[candidate] != own else 0.0


@njit_inline
def _fill_candidates(stream: StreamState, candidates: Candidates) -> int:
    """Fill the candidates with the records nearest to the oldest one, the nearest first; return how many there are."""
    held, workspace, omega_p = stream.held, stream.workspace, stream.constraints.omega_p[0]
    head, tail = held.extent[HEAD], held.extent[TAIL]
    distances, heap = workspace.distances[: tail - head], workspace.heap[: tail - head - 1]
    squared_distances(held, omega_p, 0, distances)
    fill_heap(heap, distances)
    count = min(candidates.records.size, heap.size)
    for candidate in range(count):
        record = pop_nearest(heap, heap.size - candidate, distances)
        set_candidate(held, candidates, candidate, record, omega_p)
    return count


@njit_inline
def _fill_opportunity_costs(stream: StreamState, candidates: Candidates, count: int, newest: int) -> None:
    """Write the opportunity cost of each candidate."""
    held, constraints = stream.held, stream.constraints
    head, tail = held.extent[HEAD], held.extent[TAIL]
    distances = stream.workspace.distances[: tail - head]
    for candidate in range(count):
        record = candidates.records[candidate]
        squared_distances(held, constraints.omega_p[0], record, distances)
        distances[record] = np.inf
        _collect_smallest(distances, candidates.smallest_squared_distances)
        age = newest - held.positions[head + record]
        candidates.opportunity_costs[candidate] = opportunity_cost(candidates, constraints.delta, age)


@njit_inline
def _collect_smallest(distances: Float64Vector, smallest: Float64Vector) -> None:
    """Write the ``smallest.size`` smallest distances in ascending order."""
    last = smallest.size - 1
    smallest[:] = np.inf
    for distance in distances:
        if distance < smallest[last]:
            i = last
            while i > 0 and smallest[i - 1] > distance:
                smallest[i] = smallest[i - 1]
                i -= 1
            smallest[i] = distance


@njit_inline
def _include_old_records(stream: StreamState, candidates: Candidates) -> None:
    """Exchange young members for the oldest held records, so that the next expiring record finds k records.

    With an arrival at each position, ``held - k + (its position - position of the current oldest)`` records are held
    when it expires. If these are fewer than k, it replaces the younger member that is farthest from the mean, or that
    of its own subject. Members have distinct subjects before and after.
    """
    held, workspace, k = stream.held, stream.workspace, stream.constraints.k
    head, tail = held.extent[HEAD], held.extent[TAIL]
    positions, members, is_member = held.positions[head:tail], workspace.members[:k], workspace.heap[: tail - head]
    is_member[:] = 0
    for record in members:
        is_member[record] = 1
    _sum_member_distances(held, members, workspace.totals[:k])
    oldest = 0
    for _ in range(k):
        while oldest < is_member.size and is_member[oldest]:
            oldest += 1
        if oldest == is_member.size:
            return  # all held records are members
        if is_member.size - k + (positions[oldest] - positions[0]) >= k:
            return
        member = _replaceable_member(held, candidates, members, workspace.totals[:k], oldest)
        if member < 0:
            return
        is_member[members[member]], is_member[oldest] = 0, 1
        members[member] = oldest


@njit_inline
def _replaceable_member(
    held: HeldRecords, candidates: Candidates, members: Int64Vector, code_sums: Float64Vector, record: int
) -> int:
    """Return the member that a record may replace, or -1: the farthest of the members that are younger than the record.

    A member of the same subject is the only one that may be replaced, because members have distinct subjects.
    """
    head, centroid = held.extent[HEAD], candidates.centroid
    subjects = held.subjects[head : held.extent[TAIL]]
    farthest, chosen = -1.0, -1
    for member in range(members.size):
        if subjects[members[member]] == subjects[record]:
            return member if members[member] > record else -1
        if members[member] > record:
            squared = 0.0
            for j in range(centroid.size - 1):
                step = held.coordinates[j, head + members[member]] - centroid[j]
                squared += step * step
            if candidates.codes.shape[0] > 0:
                squared += code_sums[member] / members.size
            if squared > farthest:
                farthest, chosen = squared, member
    return chosen


@njit_inline
def _sum_member_distances(held: HeldRecords, members: Int64Vector, code_sums: Float64Vector) -> None:
    """Write the sum of the squared distances of each member from all members in the category columns."""
    code_sums[:] = 0.0
    for column in range(held.code_distances.size):
        codes, distance = held.codes[column, held.extent[HEAD] : held.extent[TAIL]], held.code_distances[column]
        for i in range(members.size):
            for other in members:
                code_sums[i] += distance if codes[members[i]] != codes[other] else 0.0
