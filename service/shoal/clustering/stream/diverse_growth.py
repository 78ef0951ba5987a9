"""Growth under constraints: a cluster of the oldest record that is k-anonymous, l-diverse and t-close, if one is found.

The rule's own cluster may have too few values, or one value too often. A new cluster then grows around the oldest
record to a given number of members n. A record is permitted only if the cluster can still be completed with it: the
values and subjects that are missing fit into the open entries, no value or subject exceeds its share of n records, and
the distance from the reference can stay within t (`bin_budgets`). Of the permitted records the one that the rule
prefers joins: the nearest to the oldest record, or the one that increases the squared error least.

This is steering ([1]_, section IV) as a hard constraint: where a bucket attribute makes records of one bucket distant
from each other, a record of a used bucket is not permitted at all. A weight cannot guarantee anything, because records
near enough always outweigh it.

Where a bound is not exact, clusters are tried from loose to strict. Then n is raised. The finished cluster is checked
exactly. Which codes stand for subjects and values does not matter: only equality, bins and the order of arrival do.

Parameters that all kernels of the rules share are described in `expiry`.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section IV. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    NO_L,
    RECURSIVE,
    SHARE_TOLERANCE,
    DiversityRule,
    empty_diversity_scratch,
    is_diverse,
)
from shoal.clustering.numba.jit import njit_inline, njit_inner
from shoal.clustering.numba.subject_codes import clear, number
from shoal.clustering.stream.bin_budgets import BinBudgets, add_to_bin, empty_bin_budgets, permit_bins, reset_bins
from shoal.clustering.stream.dominance import dominating_subject
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, squared_distances_from
from shoal.clustering.stream.held_records import HEAD, TAIL, HeldRecords
from shoal.clustering.stream.membership import sort_by_age

__all__ = ["DiversityState", "empty_diversity_state", "grow_diverse", "is_cluster_diverse"]

STRICTNESS_LEVELS = 4
"""Clusters of one size that are tried where no bound is exact, from loose to strict."""

LARGEST_CLUSTER = 4
"""Largest cluster in units of k, unless t needs more."""


class DiversityState(NamedTuple):
    """What clusters must satisfy, and scratch arrays of one decision.

    Attributes
    ----------
    rule : DiversityRule
    attributes : int64 (1,)
        Number of protected attributes q.
    missing : int64 (q + 1,)
        Values that the growing cluster still lacks; in the last entry subjects.
    largest : int64 (q + 1,)
        Members that one value or subject may have.
    numbers : int64 (q + 1, capacity)
        Number of the value of each held record, in the order of age; in the last row of its subject.
    counts : int64 (q + 1, capacity)
        Members by number.
    budgets : BinBudgets
    costs, distances : float64 (capacity,)
        Sum of the squared distances of each held record from the members, and scratch.
    opportunity_costs : float64 (capacity,)
        What the rule subtracts from the costs.
    is_member : bool (capacity,)
    scratch : int64 (2, capacity)
        That of `is_diverse`.
    """

    rule: DiversityRule
    attributes: Int64Vector
    missing: Int64Vector
    largest: Int64Vector
    numbers: Int64Matrix
    counts: Int64Matrix
    budgets: BinBudgets
    costs: Float64Vector
    distances: Float64Vector
    opportunity_costs: Float64Vector
    is_member: BoolVector
    scratch: Int64Matrix


def empty_diversity_state(rule: DiversityRule, attributes: int, capacity: int) -> DiversityState:
    """Allocate the arrays for a rule on so many protected attributes, and so many held records."""
    costs, distances, opportunity_costs = np.zeros((3, capacity))
    return DiversityState(
        rule=rule,
        attributes=np.full(1, attributes, np.int64),
        missing=np.zeros(attributes + 1, np.int64),
        largest=np.zeros(attributes + 1, np.int64),
        numbers=np.zeros((attributes + 1, capacity), np.int64),
        counts=np.zeros((attributes + 1, capacity), np.int64),
        budgets=empty_bin_budgets(rule),
        costs=costs,
        distances=distances,
        opportunity_costs=opportunity_costs,
        is_member=np.zeros(capacity, np.bool_),
        scratch=empty_diversity_scratch(capacity),
    )


@njit_inner
def is_cluster_diverse(held: HeldRecords, state: DiversityState, members: Int64Vector) -> bool:
    """Whether a cluster of held records satisfies the rule."""
    first, head, tail = held.code_distances.size, held.extent[HEAD], held.extent[TAIL]
    middle = first + state.attributes[0]
    values, bins = held.codes[first:middle, head:tail], held.codes[middle:, head:tail]
    return bool(is_diverse(state.rule, values, bins, members, state.scratch))


@njit_inner
def grow_diverse(
    held: HeldRecords,
    workspace: Workspace,
    constraints: StreamConstraints,
    state: DiversityState,
    moves: bool,  # noqa: FBT001 - kernels take no keywords
) -> int:
    """Write a cluster of the oldest record that satisfies all constraints to ``workspace.members``; return its size.

    Members are written oldest first. The size is 0 if no such cluster was found.

    Parameters
    ----------
    held, workspace, constraints
        As described in `expiry`.
    state : DiversityState
        ``opportunity_costs`` are those of the held records; 0 where they have none.
    moves : bool
        True: the record that increases the squared error of the cluster least joins. False: the one nearest to the
        oldest record.

    Notes
    -----
    n is k, then k + 1, then half as many more each time, up to 4k or twice the smallest n that t allows, at most all
    held records. A largest share of 0.5 of a value may be impossible for an odd number of records.
    Cost: O(n held (d + q)) for each n and strictness.
    """
    count = held.extent[TAIL] - held.extent[HEAD]
    smallest, largest, levels = _smallest_cluster(constraints, state.rule), 0, _levels(state)
    n = smallest
    if count < n or _number_all(held, workspace, state) < constraints.k:
        return 0
    while n <= count:
        _start(held, constraints, state, n, 0.0)
        if largest == 0 and _permit_all_bins(state, n, 1, 0.0):
            largest = min(max(LARGEST_CLUSTER * constraints.k, 2 * n), count)
        for level in range(levels if largest > 0 else 0):
            strictness = level / (levels - 1)
            _start(held, constraints, state, n, strictness)
            size = _grow_to(held, workspace, constraints, state, n, strictness, moves)
            if size == n and _is_released(held, workspace, constraints, state, n):
                sort_by_age(workspace.members[:n], workspace.heap[:count])
                return n
        limit = largest if largest > 0 else count
        if n == limit:
            break
        n = min(n + 1 if n == smallest else n * 3 // 2, limit)
    return 0


@njit_inline
def _smallest_cluster(constraints: StreamConstraints, rule: DiversityRule) -> int:
    """Return the fewest members of a cluster that k, l and the largest shares allow."""
    smallest = max(constraints.k, _values_needed(rule))
    return int(max(smallest, math.ceil(1.0 / rule.max_value_share - SHARE_TOLERANCE)))


@njit_inline
def _levels(state: DiversityState) -> int:
    """Return how many clusters of one size are tried, from loose to strict."""
    rule = state.rule
    is_exact = rule.l_kind in (NO_L, DISTINCT) and state.attributes[0] == 1
    for distance in rule.distances:
        is_exact = is_exact and (rule.t >= 1.0 or distance == EQUAL)
    return 2 if is_exact else STRICTNESS_LEVELS


@njit_inline
def _number_all(held: HeldRecords, workspace: Workspace, state: DiversityState) -> int:
    """Number values and subjects of the held records by their first occurrence; return the number of subjects.

    If the held records have too few values of an attribute, no cluster can be diverse, and 0 is returned.
    """
    found, first, head, tail = 0, held.code_distances.size, held.extent[HEAD], held.extent[TAIL]
    for row in range(state.attributes[0] + 1):
        is_value = row < state.attributes[0]
        codes = held.codes[first + row, head:tail] if is_value else held.subjects[head:tail]
        for x in range(codes.size):
            state.numbers[row, x] = number(workspace.numbering, codes[x])
        found = workspace.numbering.size[0]
        clear(workspace.numbering)
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
    state.largest[q] = int(constraints.max_share * n + SHARE_TOLERANCE)
    if rule.t < 1.0:
        reset_bins(state.budgets)
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
def _grow_to(
    held: HeldRecords,
    workspace: Workspace,
    constraints: StreamConstraints,
    state: DiversityState,
    n: int,
    strictness: float,
    moves: bool,  # noqa: FBT001 - kernels take no keywords
) -> int:
    """Add permitted records to the cluster until it has n members; return how many it has."""
    count = held.extent[TAIL] - held.extent[HEAD]
    costs, distances = state.costs[:count], state.distances[:count]
    squared_distances_from(held, constraints.omega_p[0], 0, costs)
    workspace.members[0] = 0
    for size in range(1, n):
        if not _permit_all_bins(state, n, size, strictness):
            return size
        chosen = _cheapest_permitted(held, state, n - size, size + 1.0 if moves else 1.0, strictness)
        if chosen < 0:
            return size
        workspace.members[size] = chosen
        _add(held, state, chosen)
        if moves and size + 1 < n:
            squared_distances_from(held, constraints.omega_p[0], chosen, distances)
            for x in range(count):
                costs[x] += distances[x]
    return n


@njit_inline
def _cheapest_permitted(
    held: HeldRecords, state: DiversityState, open_entries: int, divisor: float, strictness: float
) -> int:
    """Return the permitted record of the least cost, of equal ones the oldest; -1 if there is none.

    The squared error of m records grows by 1 / (m + 1) times the sum of the squared distances of a new record from
    them, less a part that is the same for all records.
    """
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
    held: HeldRecords,
    state: DiversityState,
    record: int,
    open_entries: int,
    must_contribute: bool,  # noqa: FBT001 - kernels take no keywords
) -> bool:
    """Whether the cluster can still be completed if a record joins it.

    What is missing must fit into the entries that are then open. ``must_contribute`` asks for a missing value.
    """
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
def _is_released(
    held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, state: DiversityState, n: int
) -> bool:
    """Whether the finished cluster satisfies all constraints."""
    members, q = workspace.members[:n], state.attributes[0]
    if state.missing[q] > 0 or not is_cluster_diverse(held, state, members):
        return False
    if constraints.dominance.share == 0.0:
        return True
    found = 0
    for member in range(n):
        workspace.subject_numbers[member] = state.numbers[q, members[member]]
        found = max(found, workspace.subject_numbers[member] + 1)
    amounts = held.amounts[:, held.extent[HEAD] : held.extent[TAIL]]
    subject = dominating_subject(
        amounts, members, workspace.subject_numbers, state.counts[q, :found], workspace.totals, constraints.dominance
    )
    return bool(subject < 0)
