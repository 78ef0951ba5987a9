"""The stream rules under l-diversity, t-closeness and a largest share of one value.

Each rule decides as it does without them if its cluster satisfies them. Otherwise a new cluster grows around the oldest
record to a given number of members n, all of different people; if none is found, that record is suppressed. So records
are people while it grows, and no bound on a finished cluster is lost. Of the records with which the
cluster can still be completed the one that the rule prefers joins. Where a bound is not exact, clusters are tried from
loose to strict. Then n is raised. The finished cluster is checked exactly. This is steering ([1]_, section IV) as a
hard constraint: a weight cannot guarantee anything, because records near enough always outweigh it.

A cluster of n records is t-close if its counts are at most n t away from those of the reference. A record of a bin is
permitted if a lower bound on the distance of the finished cluster stays within n t. All quantities are in records: n
times a distance. Equal distance: the excess of the members over the reference, plus the least excess that the open
entries must add with the records that are held. The bound is exact. Hierarchical distance: the excess at each level of
the tree, divided by the levels. Ordered distance: the cumulative count of the finished cluster lies between that of the
members and the same plus the open entries. The last two bounds are not exact, so clusters are tried with smaller
budgets as well: a *reserve* r from 0 to 1 lets the members use the share 1 - r + r size / n of the budget. The
hierarchical distance is at most the equal one, whose exact bound takes the place of its own at reserve 1.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section IV. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.errors import AnonymityViolation
from shoal.kernels.containers import clear, number, shell_sort
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    NO_L,
    ORDERED,
    RECURSIVE,
    SHARE_TOLERANCE,
    DiversityRule,
    DiversityScratch,
    LDiversity,
    Protection,
    ValueReference,
    build_diversity_rule,
    empty_diversity_scratch,
    is_diverse,
)
from shoal.streams.expiry import (
    NEWEST_POSITION,
    NO_TARGET,
    StreamConstraints,
    StreamState,
    append_until_due,
    has_min_population,
    release_or_suppress,
    sort_by_age,
    squared_distances,
)
from shoal.streams.growth import Candidates, candidates_of, select_by_growth
from shoal.streams.held_records import (
    CLUSTERS,
    END,
    FLUSHED,
    HEAD,
    NOT_DUE,
    TAIL,
    Buffer,
    DecisionBuffer,
    HeldRecords,
    empty_decision_buffer,
    empty_held,
    trim,
)
from shoal.streams.nearest import select_by_distance
from shoal.streams.partition import PartitionFlushRule, held_as_table, release_partition
from shoal.tables.constraints import ClusterConstraints, ConfidentialAttribute, merge_until_feasible, violating_clusters
from shoal.tables.microaggregation import refined
from shoal.tables.refinement import refine
from shoal.tables.repair import precompile_repair, repair_by_swaps

TOLERANCE = 1e-9
"""Rounding allowance in records. The finished cluster is checked exactly."""
STRICTNESS_LEVELS = 4  # clusters of one size that are tried where no bound is exact, from loose to strict
LARGEST_CLUSTER = 4  # largest cluster in units of k, unless t needs more
ARTIFICIAL_RECORDS = 64
"""Records that are partitioned to compile all kernels, at least: enough clusters to be merged in pairs."""
ALL = -1  # decide on all records
BY_DISTANCE = -1.0  # in place of the weight of opportunity costs: rule nearest


class BinBudgets(NamedTuple):
    """Counts of a growing cluster by bin, and scratch. All bins of all protected attributes, as in `DiversityRule`."""

    counts: Int64Vector  # (bins,): members in each bin
    available: Int64Vector  # (bins,): held records in it that are not members
    node_counts: Int64Vector  # (nodes,): members below each node of the trees
    is_permitted: BoolVector  # (bins,): whether a record of the bin may join
    costs: Float64Vector  # (bins,): scratch


class DiversityState(NamedTuple):
    """What clusters must satisfy in q protected attributes, and scratch arrays of one decision."""

    rule: DiversityRule
    attributes: Int64Vector  # (1,): q
    missing: Int64Vector  # (q + 1,): values that the growing cluster still lacks; in the last entry subjects
    largest: Int64Vector  # (q + 1,): members that one value or subject may have
    numbers: Int64Matrix  # (q + 1, capacity): number of the value of each held record by age; last row: of its subject
    counts: Int64Matrix  # (q + 1, capacity): members by number
    budgets: BinBudgets
    costs: Float64Vector  # (capacity,): sum of the squared distances of each held record from the members
    distances: Float64Vector  # (capacity,): scratch
    opportunity_costs: Float64Vector  # (capacity,): what the rule subtracts from the costs
    is_member: BoolVector  # (capacity,)
    scratch: DiversityScratch


class DiverseRule(PartitionFlushRule):
    """Rules nearest, greedy and awo; a cluster that is not diverse is replaced by one that grows under the constraints.

    At the end of the stream the held records are partitioned under the same constraints. If no partition is found, the
    oldest record is decided on until none is held.

    Cost per cluster: that of the rule, and O(n held (d + q)) for each size n that is tried.
    """

    def __init__(
        self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float, protection: Protection
    ) -> None:
        super().__init__(buffer, constraints)
        self._candidates = candidates_of(buffer, constraints, opportunity_weight)
        self._protection = protection
        self._state = empty_diversity_state(protection.rule, protection.attributes, buffer.capacity)

    def precompile(self) -> None:
        """Compile all kernels by deciding on no records and on a few artificial ones."""
        self._decide_due(empty_decision_buffer(0), np.array([0, -1]))
        self._decide(empty_decision_buffer(0), np.zeros(2, np.int64), FLUSHED, ALL)
        self._run_on_zeros(self._release_artificial)
        _precompile_held_table(has_t=self._protection.has_bins, limits_values=self._protection.limits_values)

    def _release_artificial(self, decisions: DecisionBuffer, newest: int) -> None:
        """Release artificial records as at the end of the stream, whatever the protection."""
        are_held_diverse(self._buffer.held, self._state)
        labels = np.zeros(len(held_as_table(self._stream)), np.int32)
        release_partition(self._stream, decisions, labels, newest, FLUSHED)

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        self._decide(decisions, cursor, NOT_DUE, ALL)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        if self._has_min_population():
            table = self._table()
            labels = None if table is None else table.partition()
            if labels is not None:
                release_partition(self._stream, decisions, labels, newest, FLUSHED)
        self._decide(decisions, np.array([0, newest]), FLUSHED, ALL)

    def _table(self) -> HeldTable | None:
        """Return the held records as a table; None if no partition of them satisfies the constraints.

        If each person has one record, none does unless all records as one cluster do.
        """
        held, constraints = self._buffer.held, self._stream.constraints
        if not are_held_diverse(held, self._state) and self._buffer.population == len(self._buffer):
            return None
        rows = held_as_table(self._stream)
        return HeldTable(held, self._points(rows), constraints, self._protection) if len(rows) else None

    def _decide(
        self, decisions: DecisionBuffer, cursor: Int64Vector, cause: int, most: int, stream: StreamState | None = None
    ) -> None:
        """Decide on up to ``most`` records that are due for the given cause, or on each that expires (`NOT_DUE`)."""
        decide_diversely(stream or self._stream, self._candidates, decisions, self._state, cursor, cause, most)


class DiverseBlockRule(DiverseRule):
    """When a record expires, all held records are released in the clusters of a partition under the constraints.

    With t, the partition is made of clusters that grow around the oldest record in turn. If no partition is found, only
    the oldest record is decided on.
    """

    def _release_artificial(self, decisions: DecisionBuffer, newest: int) -> None:
        if not self._protection.has_bins:
            self._partition()
        super()._release_artificial(decisions, newest)

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        while (cause := next_due(self._stream, cursor)) != NOT_DUE:
            newest = int(cursor[NEWEST_POSITION])
            labels = self._block_labels(newest)
            if labels is None:
                self._decide(decisions, cursor, cause, 1)
            else:
                release_partition(self._stream, decisions, labels, newest, cause)

    def _block_labels(self, newest: int) -> Int32Vector | None:
        """Return the cluster of each held record; None if no partition is found."""
        table = self._table()
        if table is None:
            return None
        return table.repaired(self._grown(newest) if self._protection.has_bins else self._partition()[1])

    def _grown(self, newest: int) -> Int32Vector:
        """Return clusters that grow around the oldest record in turn; records of none are a cluster of their own."""
        held, constraints = self._buffer.copy_held(), self._stream.constraints
        count = len(self._buffer)
        decisions = empty_decision_buffer(count)
        # The records are not those at the end of the stream, the only ones that wait for a minimum population.
        free = constraints._replace(omega_p=constraints.omega_p.copy(), target=NO_TARGET, population=0)
        stream = self._stream._replace(held=held, constraints=free)
        self._decide(decisions, np.array([0, newest]), FLUSHED, ALL, stream)
        found = trim(decisions)
        labels = np.full(count, found.clusters.shape[1], np.int32)
        sizes = np.diff(found.clusters[END], prepend=0)
        slots = np.searchsorted(self._buffer.positions(), found.positions)
        labels[slots] = np.repeat(np.arange(len(sizes)), sizes)
        return labels


class HeldTable:
    """The held records as a table under constraints."""

    def __init__(
        self, held: HeldRecords, points: Float64Matrix, constraints: StreamConstraints, protection: Protection
    ) -> None:
        head, tail = held.extent.tolist()
        codes, subjects = held.codes[len(held.code_distances) :, head:tail], held.subjects[head:tail]
        self._points, self._k, self._has_t = np.ascontiguousarray(points), constraints.k, protection.has_bins
        self._constraints = _cluster_constraints(
            protection, codes.astype(np.int64), np.unique(subjects, return_inverse=True)[1], constraints.max_share
        )

    def partition(self) -> Int32Vector | None:
        """Return the clusters of the table (n,); None if no partition is found."""
        algorithm = "auto" if self._has_t else "mdav"
        try:
            return refined(self._points, self._k, algorithm, "descent", constraints=self._constraints).labels
        except AnonymityViolation:
            return None

    def repaired(self, labels: Int32Vector) -> Int32Vector | None:
        """Return a partition whose violating clusters exchanged records or were merged; None if in vain."""
        labels = np.unique(labels, return_inverse=True)[1].astype(np.int32)
        if self._constraints.limit_values and not self._has_t:
            labels = repair_by_swaps(self._points, labels, self._k, self._constraints)
        labels = merge_until_feasible(self._points, labels, self._k, self._constraints)
        if violating_clusters(labels, self._k, self._constraints).any():
            return None
        if self._has_t:
            labels = refine(self._points, [labels], self._k, "descent", constraints=self._constraints).labels
        return labels


@cache
def _precompile_held_table(*, has_t: bool, limits_values: bool) -> None:
    """Compile the kernels of `HeldTable`, once, by partitioning artificial records."""
    count, k = ARTIFICIAL_RECORDS, 4
    rule = build_diversity_rule(
        [ValueReference(EQUAL, np.array([1.0, 0.0]))],
        l=LDiversity(DISTINCT, 2.0) if limits_values else None,
        t=np.nextafter(1.0, 0.0) if has_t else None,
    )
    protection = Protection(rule, 1)
    held = empty_held(count, 1, 0, protected=protection.rows)
    held.extent[:], held.subjects[:] = (0, count), np.arange(count)
    held.codes[0] = np.arange(count) % 2
    constraints = StreamConstraints(k, count, np.zeros(1), 1.0, np.zeros(0, np.int64), 0, NO_TARGET)
    points = np.stack([np.arange(count) % 7, np.arange(count) % 11], axis=1).astype(np.float64)
    table = HeldTable(held, points, constraints, protection)
    table.partition()
    table.repaired(np.arange(count, dtype=np.int32))
    if limits_values:
        precompile_repair()


def _cluster_constraints(
    protection: Protection, codes: Int64Matrix, subjects: Int64Vector, max_share: float
) -> ClusterConstraints:
    """Return what the clusters of a table must satisfy."""
    rule, q = protection.rule, protection.attributes
    attributes = []
    for attribute in range(q):
        values = np.unique(codes[attribute], return_inverse=True)[1]
        bins, reference = values, None
        if protection.has_bins:
            part, levels = slice(*rule.bin_bounds[attribute : attribute + 2]), int(rule.levels[attribute])
            paths = rule.paths[part, :levels] if levels else None
            bins = codes[q + attribute]
            reference = ValueReference(int(rule.distances[attribute]), rule.shares[part], paths)
        attributes.append(ConfidentialAttribute(bins, ordered=False, reference=reference, values=values))
    return ClusterConstraints(
        subjects=subjects if len(subjects) and subjects.max() + 1 < len(subjects) else None,
        max_share=max_share,
        confidential=tuple(attributes),
        t=rule.t if protection.has_bins else None,
        l=None if rule.l_kind == NO_L else LDiversity(rule.l_kind, rule.l, rule.c),
        max_value_share=rule.max_value_share if rule.max_value_share < 1.0 else None,
    )


def empty_diversity_state(rule: DiversityRule, attributes: int, capacity: int) -> DiversityState:
    """Allocate the arrays for a rule on so many protected attributes, and so many held records."""
    bins, nodes = rule.shares.size, rule.node_shares.size
    members, available = np.zeros((2, bins), np.int64)
    budgets = BinBudgets(members, available, np.zeros(nodes, np.int64), np.zeros(bins, np.bool_), np.zeros(bins))
    missing, largest = np.zeros((2, attributes + 1), np.int64)
    numbers, counts = np.zeros((2, attributes + 1, capacity), np.int64)
    costs, distances, opportunity_costs = np.zeros((3, capacity))
    return DiversityState(
        rule=rule,
        attributes=np.full(1, attributes, np.int64),
        missing=missing,
        largest=largest,
        numbers=numbers,
        counts=counts,
        budgets=budgets,
        costs=costs,
        distances=distances,
        opportunity_costs=opportunity_costs,
        is_member=np.zeros(capacity, np.bool_),
        scratch=empty_diversity_scratch(capacity),
    )


@njit
def next_due(stream: StreamState, cursor: Int64Vector) -> int:
    """Append staged records until one expires, and return the cause; `NOT_DUE` when all are appended."""
    return int(append_until_due(stream, cursor))


@njit
def are_held_diverse(held: HeldRecords, state: DiversityState) -> bool:
    """Whether a cluster of all held records satisfies the rule."""
    count = held.extent[TAIL] - held.extent[HEAD]
    return bool(count > 0 and is_cluster_diverse(held, state, np.arange(count)))


@njit
def decide_diversely(
    stream: StreamState,
    candidates: Candidates,
    decisions: DecisionBuffer,
    state: DiversityState,
    cursor: Int64Vector,
    given_cause: int,
    most: int,
) -> None:
    """Append staged records one by one and decide on each that expires; or decide on held records for a given cause."""
    held, decided = stream.held, 0
    while decided != most:
        cause = append_until_due(stream, cursor) if given_cause == NOT_DUE else given_cause
        if cause == NOT_DUE or held.extent[HEAD] == held.extent[TAIL]:
            return
        decided += 1
        newest, grows = cursor[NEWEST_POSITION], candidates.opportunity_weight[0] != BY_DISTANCE
        if grows:
            size = select_by_growth(stream, candidates, newest)
            _copy_opportunity_costs(candidates, state, held.extent[TAIL] - held.extent[HEAD], size)
        else:
            size = select_by_distance(stream, stream.constraints.k)
        if cause == FLUSHED and decisions.counts[CLUSTERS] == 0 and not has_min_population(stream):
            size = 0
        elif size == 0 or not is_cluster_diverse(held, state, stream.workspace.members[:size]):
            size = grow_diverse(stream, state, grows)
        release_or_suppress(stream, decisions, size, newest, cause)


@njit_inline
def _copy_opportunity_costs(candidates: Candidates, state: DiversityState, count: int, size: int) -> None:
    """Write the opportunity costs of ``count`` held records, if a cluster of ``size`` records was found."""
    if candidates.opportunity_weight[0] > 0.0:
        state.opportunity_costs[:count] = 0.0
        for candidate in range(min(candidates.records.size, count - 1) if size > 0 else 0):
            state.opportunity_costs[candidates.records[candidate]] = candidates.opportunity_costs[candidate]


@njit_inner
def is_cluster_diverse(held: HeldRecords, state: DiversityState, members: Int64Vector) -> bool:
    """Whether a cluster of held records satisfies the rule."""
    first, head, tail = held.code_distances.size, held.extent[HEAD], held.extent[TAIL]
    middle = first + state.attributes[0]
    values, bins = held.codes[first:middle, head:tail], held.codes[middle:, head:tail]
    return bool(is_diverse(state.rule, values, bins, held.subjects[head:tail], members, state.scratch))


@njit_inner
def grow_diverse(stream: StreamState, state: DiversityState, moves: bool) -> int:
    """Write a cluster of the oldest record that satisfies all constraints to `Workspace.members`; return its size.

    Each member is another person. Members are written oldest first; the size is 0 if no such cluster was found. n is k,
    then k + 1, then half as many more each time, up to 4k or twice the smallest n that t allows. Cost: O(n held (d +
    q)) for each n and strictness.
    """
    held, workspace, constraints = stream.held, stream.workspace, stream.constraints
    count = _number_all(stream, state)
    smallest = max(constraints.k, _values_needed(state.rule))
    smallest = int(max(smallest, math.ceil(1.0 / state.rule.max_value_share - SHARE_TOLERANCE)))
    n, largest, levels = smallest, 0, _levels(state)
    if count < n:
        return 0
    while n <= count:
        _start(held, constraints, state, n, 0.0)
        if largest == 0 and _permit_all_bins(state, n, 1, 0.0):
            largest = min(max(LARGEST_CLUSTER * constraints.k, 2 * n), count)
        for level in range(levels if largest > 0 else 0):
            strictness = level / (levels - 1)
            _start(held, constraints, state, n, strictness)
            size = _grow_to(stream, state, n, strictness, moves)
            if size == n and is_cluster_diverse(held, state, workspace.members[:n]):
                sort_by_age(workspace.members[:n], workspace.heap[: held.extent[TAIL] - held.extent[HEAD]])
                return n
        limit = largest if largest > 0 else count
        if n == limit:
            break
        n = min(n + 1 if n == smallest else n * 3 // 2, limit)
    return 0


@njit_inline
def _levels(state: DiversityState) -> int:
    """Return how many clusters of one size are tried, from loose to strict."""
    rule = state.rule
    is_exact = rule.l_kind in (NO_L, DISTINCT) and state.attributes[0] == 1
    for distance in rule.distances:
        is_exact = is_exact and (rule.t >= 1.0 or distance == EQUAL)
    return 2 if is_exact else STRICTNESS_LEVELS


@njit_inline
def _number_all(stream: StreamState, state: DiversityState) -> int:
    """Number values and subjects of the held records; return the number of subjects, 0 if values are too few."""
    held, numbering, found, first = stream.held, stream.workspace.numbering, 0, stream.held.code_distances.size
    head, tail = held.extent[HEAD], held.extent[TAIL]
    for row in range(state.attributes[0] + 1):
        is_value = row < state.attributes[0]
        codes = held.codes[first + row, head:tail] if is_value else held.subjects[head:tail]
        for x in range(codes.size):
            state.numbers[row, x] = number(numbering, codes[x])
        found = numbering.size[0]
        clear(numbering)
        if is_value and found < _values_needed(state.rule):
            return 0
    return int(found)


@njit_inline
def _start(held: HeldRecords, constraints: StreamConstraints, state: DiversityState, n: int, strictness: float) -> None:
    """Make the oldest record the only member of a cluster that shall have n members."""
    count, q, rule = held.extent[TAIL] - held.extent[HEAD], state.attributes[0], state.rule
    state.counts[:, :count] = 0
    state.is_member[:count] = False
    state.missing[:q] = _values_needed(rule)
    state.largest[:q] = int(min(rule.max_value_share, _largest_share(rule, strictness)) * n + SHARE_TOLERANCE)
    state.missing[q] = constraints.k
    state.largest[q] = 1
    if rule.t < 1.0:
        state.budgets.counts[:] = 0
        state.budgets.available[:] = 0
        state.budgets.node_counts[:] = 0
        for attribute in range(q):
            bins = held.codes[held.code_distances.size + q + attribute, held.extent[HEAD] : held.extent[TAIL]]
            for x in range(count):
                state.budgets.available[rule.bin_bounds[attribute] + bins[x]] += 1
    _add(held, state, 0)


@njit_inline
def _values_needed(rule: DiversityRule) -> int:
    """Return how many values every cluster needs at least."""
    if rule.l_kind == ENTROPY:
        return math.ceil(rule.l - SHARE_TOLERANCE)
    return 1 if rule.l_kind == NO_L else int(rule.l)


@njit_inline
def _largest_share(rule: DiversityRule, strictness: float) -> float:
    """Return the largest share of a value: 1 at strictness 0, and at 1 a share that entails l-diversity."""
    if rule.l_kind == ENTROPY:
        enough = 1.0 / rule.l
    elif rule.l_kind == RECURSIVE:
        enough = rule.c / (1.0 + rule.c * (rule.l - 1.0))
    else:
        return 1.0
    return 1.0 - strictness * (1.0 - min(enough, 1.0))


@njit_inline
def _add(held: HeldRecords, state: DiversityState, record: int) -> None:
    """Count a new member."""
    state.is_member[record] = True
    for row in range(state.numbers.shape[0]):
        found = state.numbers[row, record]
        state.missing[row] -= state.counts[row, found] == 0
        state.counts[row, found] += 1
    if state.rule.t < 1.0:
        first = held.code_distances.size + state.attributes[0]
        for attribute in range(state.attributes[0]):
            own = held.codes[first + attribute, held.extent[HEAD] + record]
            add_to_bin(state.rule, state.budgets, attribute, own)


@njit_inline
def _permit_all_bins(state: DiversityState, n: int, size: int, reserve: float) -> bool:
    """Write which bins may join; return whether each attribute has one."""
    if state.rule.t < 1.0:
        for attribute in range(state.attributes[0]):
            if not permit_bins(state.rule, state.budgets, attribute, n, size, reserve):
                return False
    return True


@njit_inline
def _grow_to(stream: StreamState, state: DiversityState, n: int, strictness: float, moves: bool) -> int:
    """Add permitted records to the cluster until it has n members; return how many it has."""
    held, members, omega_p = stream.held, stream.workspace.members, stream.constraints.omega_p[0]
    count = held.extent[TAIL] - held.extent[HEAD]
    costs, distances = state.costs[:count], state.distances[:count]
    squared_distances(held, omega_p, 0, costs)
    members[0] = 0
    for size in range(1, n):
        if not _permit_all_bins(state, n, size, strictness):
            return size
        chosen = _cheapest_permitted(held, state, n - size, size + 1.0 if moves else 1.0, strictness)
        if chosen < 0:
            return size
        members[size] = chosen
        _add(held, state, chosen)
        if moves and size + 1 < n:
            squared_distances(held, omega_p, chosen, distances)
            for x in range(count):
                costs[x] += distances[x]
    return n


@njit_inline
def _cheapest_permitted(
    held: HeldRecords, state: DiversityState, open_entries: int, divisor: float, strictness: float
) -> int:
    """Return the permitted record that adds least to the squared error, of equal ones the oldest; -1 if none."""
    best, chosen = np.inf, -1
    must_contribute = False  # the strictest cluster takes the missing values first
    for attribute in range(state.attributes[0]):
        must_contribute = must_contribute or (strictness == 1.0 and state.missing[attribute] > 0)
    for x in range(1, held.extent[TAIL] - held.extent[HEAD]):
        cost = state.costs[x] / divisor - state.opportunity_costs[x]
        if state.is_member[x] or (chosen >= 0 and not cost < best):
            continue
        if _is_permitted(held, state, x, open_entries, must_contribute):
            best, chosen = cost, x
    return chosen


@njit_inline
def _is_permitted(
    held: HeldRecords, state: DiversityState, record: int, open_entries: int, must_contribute: bool
) -> bool:
    """Whether the cluster can still be completed if a record joins it."""
    contributes = False
    for row in range(state.numbers.shape[0]):
        members = state.counts[row, state.numbers[row, record]]
        if members + 1 > state.largest[row]:
            return False
        is_new = members == 0 and state.missing[row] > 0
        contributes = contributes or (is_new and row < state.attributes[0])
        if not is_new and state.missing[row] >= open_entries:
            return False
    if must_contribute and not contributes:
        return False
    if state.rule.t < 1.0:
        first = held.code_distances.size + state.attributes[0]
        for attribute in range(state.attributes[0]):
            own = held.codes[first + attribute, held.extent[HEAD] + record]
            if not state.budgets.is_permitted[state.rule.bin_bounds[attribute] + own]:
                return False
    return True


@njit_inline
def add_to_bin(rule: DiversityRule, budgets: BinBudgets, attribute: int, own: int) -> None:
    """Count a new member, which was a held record of the bin ``own`` of an attribute."""
    entry = rule.bin_bounds[attribute] + own
    budgets.counts[entry] += 1
    budgets.available[entry] -= 1
    for level in range(rule.levels[attribute]):
        budgets.node_counts[rule.paths[entry, level]] += 1


@njit_inline
def permit_bins(rule: DiversityRule, budgets: BinBudgets, attribute: int, n: int, size: int, reserve: float) -> bool:
    """Write which bins of an attribute may join a cluster of ``size`` members that shall have n; return if any may."""
    first, end = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1]
    costs, whole, found = budgets.costs[first:end], n * rule.t, False
    budget = whole * (1.0 - reserve + reserve * (size + 1) / n)
    if rule.distances[attribute] == ORDERED:
        _bound_ordered(rule.cumulative[first:end], budgets.counts[first:end], n, n - size, costs)
        budget *= end - first - 1
    elif rule.distances[attribute] == EQUAL or reserve == 1.0:
        least = _bound_equal(rule, budgets, attribute, n, n - size)
        if least > whole + TOLERANCE:
            return False
        budget = max(budget, least)  # what the finished cluster cannot avoid does not count against the reserve
    else:
        _bound_hierarchical(rule, budgets, attribute, n)
    for entry in range(first, end):
        budgets.is_permitted[entry] = budgets.costs[entry] <= budget + TOLERANCE
        found |= budgets.is_permitted[entry] and budgets.available[entry] > 0
    return bool(found)


@njit_inline
def _bound_ordered(
    cumulative: Float64Vector, counts: Int64Vector, n: int, open_entries: int, costs: Float64Vector
) -> None:
    """Write a lower bound on the ordered distance, times n and the bins less one, if a record of each bin joins."""
    last, below, members = counts.size - 1, 0.0, 0
    for own in range(last):
        costs[own] = below
        members += counts[own]
        expected = n * cumulative[own]
        below += max(0.0, members - expected, expected - members - (open_entries - 1))
    costs[last] = below
    above = 0.0
    for own in range(last - 1, -1, -1):
        expected = n * cumulative[own]
        above += max(0.0, members + 1 - expected, expected - members - open_entries)
        costs[own] += above
        members -= counts[own]


@njit_inline
def _bound_equal(rule: DiversityRule, budgets: BinBudgets, attribute: int, n: int, open_entries: int) -> float:
    """Write the least equal distance, times n, of a cluster that a record of each bin joins; return the least of all.

    A bin has room for some records without excess, then for one in part; the cheapest fill the open entries.
    """
    first, end = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1]
    excess, free, parts, costs = 0.0, 0, 0, budgets.costs[first:end]
    for entry in range(first, end):
        expected, members = n * rule.shares[entry], budgets.counts[entry]
        excess += max(0.0, members - expected)
        room = int(expected + TOLERANCE) - members
        free += max(0, min(room, budgets.available[entry]))
        if 0 <= room < budgets.available[entry]:
            costs[parts] = room + members + 1 - expected
            parts += 1
    shell_sort(costs[:parts])
    cheapest = 0.0
    for unit in range(open_entries):
        excess += cheapest
        if unit >= free:
            cheapest = costs[unit - free] if unit - free < parts else 1.0
    for entry in range(first, end):
        added = budgets.counts[entry] + 1 - n * rule.shares[entry]
        budgets.costs[entry] = excess + min(max(added, 0.0), 1.0)
    return excess + cheapest


@njit_inline
def _bound_hierarchical(rule: DiversityRule, budgets: BinBudgets, attribute: int, n: int) -> None:
    """Write the excess over the reference at all levels, divided by the levels, if a record of each bin joins."""
    first, end, levels = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1], rule.levels[attribute]
    excess = 0.0
    for level in range(levels):
        node = -1
        for entry in range(first, end):  # the bins below one node follow one another
            if rule.paths[entry, level] != node:
                node = rule.paths[entry, level]
                excess += max(0.0, budgets.node_counts[node] - n * rule.node_shares[node])
    for entry in range(first, end):
        total = excess
        for level in range(levels):
            node = rule.paths[entry, level]
            total += min(max(budgets.node_counts[node] + 1 - n * rule.node_shares[node], 0.0), 1.0)
        budgets.costs[entry] = total / levels
