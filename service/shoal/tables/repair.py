"""Exchanges of records between the clusters of a partition: for protected values, for people, and for categories.

A partition by distances knows none of them. `repair_by_swaps` gives clusters the confidential values that they lack.
Records of one person lie close together, so `repair_subjects` exchanges repeated ones, at the least cost.
Squared distances stand for the loss of a category only in part: a cluster publishes the most frequent one, so ten
records with nine equal categories lose one of ten, and with two equal ones eight of ten. `exchange_categories`
exchanges records whose category their cluster does not publish, if that lowers the sum of both losses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.kd_tree import neighbours_of
from shoal.kernels.pieces import pieces
from shoal.protection.diversity import DISTINCT, LDiversity
from shoal.tables.constraints import (
    NONE,
    ClusterConstraints,
    ConfidentialAttribute,
    excess_of_constraints,
    subject_violation,
    violating_clusters,
)
from shoal.tables.descent import (
    MIN_SIZE,
    PartitionState,
    build_partition_state,
    cost_to_swap,
    member,
    move,
    recompute_centroids,
)
from shoal.tables.measures import centroids_of

LEAF_SIZE = 64
NEAR_CLUSTERS = (8, 32, 128)
"""Nearest clusters that exchange records with a cluster, round by round; only the first round is needed for most."""


def repair_by_swaps(
    values: Float64Matrix,
    labels: Int32Vector,
    k: int,
    constraints: ClusterConstraints,
    near: tuple[int, ...] = NEAR_CLUSTERS,
) -> Int32Vector:
    """Exchange records of clusters that violate a constraint with records of near clusters; all sizes stay.

    ``near`` are the numbers of nearest clusters that are tried, round by round. Clusters that still violate a
    constraint afterwards have to be merged (`merge_until_feasible`).
    Guarantee: a cluster that satisfied the constraints does so afterwards, and no other violates them more. Of all
    exchanges the one is made that leaves the cluster nearest to what is asked for, and among those the one that raises
    the loss least; at most one per member. Cost: O(k² m) checks for each exchange with m near clusters. The result
    depends on the order of the records and on which codes are equal, not on their values.
    """
    rows = np.ascontiguousarray(values - values.mean(axis=0))
    partition = None
    for count in near:
        violating = violating_clusters(labels, k, constraints)
        if not violating.any() or len(violating) == 1:
            break
        if partition is None:
            arrays, none_near = constraints.arrays(np.arange(len(rows))), np.empty((len(rows), 0), np.int32)
            partition = build_partition_state(rows, labels, k, arrays, none_near)
        centroids = np.ascontiguousarray(centroids_of(rows, labels))
        nearest = neighbours_of(centroids, min(count, len(centroids) - 1), LEAF_SIZE)
        numbers, excesses = np.flatnonzero(violating), np.zeros(partition.sizes.size)
        for first, end in pieces("exchanges", len(numbers), 8 * k**3 * nearest.shape[1]):
            _exchange(partition, nearest, numbers, first, end, excesses)
        recompute_centroids(partition)
        labels = partition.labels.astype(np.int32)
    return labels


def precompile_repair() -> None:
    """Compile what `repair_by_swaps` needs, so that no table waits for it."""
    rows, labels = np.arange(40.0).reshape(-1, 2), (np.arange(20) // 4).astype(np.int32)
    halves = ConfidentialAttribute(np.arange(20) // 10, ordered=False)
    people = np.maximum(np.arange(20) - 1, 0)  # one has two records, which other kernels check
    repair_by_swaps(rows, labels, 4, ClusterConstraints(people, 1.0, (halves,), l=LDiversity(DISTINCT, 2)))


@njit
def _exchange(
    partition: PartitionState,
    near: Int32Matrix,
    violating: Int64Vector,
    first: int,
    end: int,
    excesses: Float64Vector,
) -> None:
    """Exchange records of some violating clusters with the ``near`` (clusters, m) of each, in place.

    ``excesses`` (clusters,) are set before the first cluster, and kept up to date.
    """
    if first == 0:
        for cluster in violating:
            excesses[cluster] = _excess(partition, cluster, NONE, NONE)
    for cluster in violating[first:end]:
        for _ in range(partition.sizes[cluster]):
            if excesses[cluster] == 0.0:
                break
            one, other = _best_exchange(partition, near[cluster], cluster, excesses)
            if one == NONE:
                break
            target = partition.labels[other]
            move(partition, one, target)
            move(partition, other, cluster)
            excesses[cluster] = _excess(partition, cluster, NONE, NONE)
            if excesses[target] > 0.0:
                excesses[target] = _excess(partition, target, NONE, NONE)


@njit_inline
def _best_exchange(
    partition: PartitionState, near: Int32Vector, cluster: int, excesses: Float64Vector
) -> tuple[int, int]:
    """Return a member of a cluster and the record to exchange it with; -1 for both if no exchange helps."""
    best, best_cost, one, other = excesses[cluster], np.inf, NONE, NONE
    for target in near:
        for x in range(partition.sizes[cluster]):
            i = member(partition, cluster, x)
            found, cost, partner = _best_partner(partition, i, target, excesses[target], best, best_cost)
            if partner != NONE:
                best, best_cost, one, other = found, cost, i, partner
    return one, other


@njit_inner
def _best_partner(
    partition: PartitionState, i: int, target: int, limit: float, best: float, best_cost: float
) -> tuple[float, float, int]:
    """Return excess and cost of the best exchange of a record with a member of another cluster, and the member, or -1.

    It is better than ``best`` and ``best_cost``, and leaves the other cluster an excess of at most ``limit``.
    """
    cluster, partner = partition.labels[i], NONE
    for y in range(partition.sizes[target]):
        j = member(partition, target, y)
        if _have_equal_values(partition, i, j):
            continue
        cost = cost_to_swap(partition, i, j)
        if best == 0.0 and cost >= best_cost:
            continue
        excess = _excess(partition, cluster, i, j)
        is_better = excess < best or (excess == best and cost < best_cost < np.inf)
        if is_better and _excess(partition, target, j, i) <= limit:
            best, best_cost, partner = excess, cost, j
    return best, best_cost, partner


@njit_inline
def _have_equal_values(partition: PartitionState, one: int, other: int) -> bool:
    constraints = partition.constraints
    if constraints.subjects.size > 0 and constraints.subjects[one] != constraints.subjects[other]:
        return False
    for attribute in range(constraints.values.shape[0]):
        if constraints.values[attribute, one] != constraints.values[attribute, other]:
            return False
    for attribute in range(constraints.bins.shape[0]):
        if constraints.bins[attribute, one] != constraints.bins[attribute, other]:
            return False
    return True


@njit_inner
def _excess(partition: PartitionState, cluster: int, leaving: int, joining: int) -> float:
    """Return the excess of a cluster without one member and with another record; -1: neither."""
    first = partition.starts[cluster]
    members = partition.members[first : first + partition.sizes[cluster]]
    return float(excess_of_constraints(partition.constraints, members, leaving, joining, partition.counters[MIN_SIZE]))


MAX_COUNTS = 1 << 21
"""Counts of codes in clusters that are kept at most (16 MB). A larger partition gets no exchanges for categories."""
MIN_GAIN = 1e-9  # smallest gain that counts, in squared units of the coordinates
AGREEMENT = 0.6
"""Part of the loss in a column that only agreement of all members avoids; the rest is that of the most frequent code.

A cluster that publishes the common ancestor loses a level as soon as two members differ on it. Counting only that, no
single exchange would gain anything while several members differ."""


class CodedRecords(NamedTuple):
    """Records with numbers and categories, and what a cluster loses of the categories. Nothing is modified."""

    rows: Float64Matrix  # (n, d): coordinates
    codes: Int64Matrix  # (c, n), C-contiguous: code in each category column, numbered from 0 over all columns
    costs: Float64Vector  # (c,): loss of a record whose code is not the most frequent of its cluster, in squared units
    agree: BoolVector  # (c,): columns in which a cluster publishes a code only if all members have it


class ExchangeState(NamedTuple):
    """A partition of n records into G clusters, with the codes that each of them publishes."""

    rows: Float64Matrix  # (n, d): coordinates
    codes: Int64Matrix  # (c, n): codes in each category column; no two columns share one
    costs: Float64Vector  # (c,): loss of a record whose code is not published
    agree: BoolVector  # (c,): whether a code is lost for all members unless all of them have it
    reach: float  # what a swap can gain in categories
    subjects: Int64Vector  # (n,): subject of each record, from 0; empty if every record has its own
    max_share: float
    labels: Int32Vector  # (n,)
    members: Int64Matrix  # (G, capacity)
    positions: Int64Vector  # (n,): index of each record among the members of its cluster
    sizes: Int64Vector  # (G,)
    inverse_sizes: Float64Vector  # (G,): 1 / size, or 0
    sums: Float64Matrix  # (G, d): sums of the coordinates
    counts: Int64Matrix  # (codes, G): how often a code occurs in each cluster
    tops: Int64Matrix  # (c, G): how often the most frequent code of a cluster occurs
    tried_for: Int64Vector  # (G,): the last record for which a cluster was tried
    directions: Float64Vector  # (d,): scratch
    tally: Int64Vector  # (n,): scratch by subject, zero between two uses


@njit
def repair_subjects(records: CodedRecords, subjects: Int64Vector, max_share: float, labels: Int32Vector, k: int) -> int:
    """Swap records between clusters until each has k subjects, none above its share; return the swaps, or -1 in vain.

    ``labels`` (n,) are clusters of k records or more, from 0, and change in place; without ``subjects`` nothing does.
    Each swap is the one that costs least. O(n k (d + c k)) for each subject that is lacking.
    """
    if subjects.size == 0:
        return 0
    state, swaps = _build_state(records, subjects, max_share, labels, k), 0
    for cluster in range(state.sizes.size):
        violation = _violation(state, cluster, NONE, NONE, k) if state.sizes[cluster] > 0 else 0
        while violation > 0:
            if not _repair(state, cluster, violation, k):
                return -1
            swaps += 1
            violation = _violation(state, cluster, NONE, NONE, k)
    return swaps


@njit
def exchange_categories(
    records: CodedRecords, subjects: Int64Vector, max_share: float, labels: Int32Vector, k: int
) -> None:
    """Exchange records whose categories their cluster does not publish, where it lowers the loss; each is tried once.

    Guarantee: a cluster that has k subjects, and none above its share, has so afterwards, and none grows beyond 2k - 1
    records. Arguments are those of `repair_subjects`. Cost: O(n k (d + c k)).
    """
    state = _build_state(records, subjects, max_share, labels, k)
    for i in range(labels.size):
        _exchange_record(state, i, k)


@njit_inner
def _repair(state: ExchangeState, cluster: int, violation: int, k: int) -> bool:
    """Carry out the cheapest swap that lowers the violation of a cluster and violates nothing else, if there is one."""
    best, leaving, partner, written = np.inf, NONE, NONE, NONE
    for x in range(state.sizes[cluster]):
        i = state.members[cluster, x]
        if not _is_repeated(state, i):
            continue
        for other in range(state.labels.size):
            target = state.labels[other]
            if target == cluster or state.subjects[other] == state.subjects[i]:
                continue
            if target != written:
                _write_directions(state, cluster, target)
                written = target
            change = _swap_change(state, i, other, best)
            if (
                change < best
                and _violation(state, cluster, i, other, k) < violation
                and _violation(state, target, other, i, k) <= _violation(state, target, NONE, NONE, k)
            ):
                best, leaving, partner = change, i, other
    if leaving == NONE:
        return False
    _swap(state, leaving, partner)
    return True


@njit_inline
def _is_repeated(state: ExchangeState, i: int) -> bool:
    """Whether the cluster of a record has another one of the same subject."""
    cluster = state.labels[i]
    for x in range(state.sizes[cluster]):
        other = state.members[cluster, x]
        if other != i and state.subjects[other] == state.subjects[i]:
            return True
    return False


@njit_inner
def _build_state(
    records: CodedRecords, subjects: Int64Vector, max_share: float, labels: Int32Vector, k: int
) -> ExchangeState:
    codes, (n, d), clusters, distinct = records.codes, records.rows.shape, int(labels.max()) + 1, 0
    sizes = np.zeros(clusters, np.int64)
    for label in labels:
        sizes[label] += 1
    capacity = max(2 * k, int(sizes.max()) + 1)
    for column in range(codes.shape[0]):
        distinct = max(distinct, int(codes[column].max()) + 1)
    if clusters * distinct > MAX_COUNTS:
        codes, distinct = codes[:0], 0
    columns, reach = codes.shape[0], 0.0
    for column in range(columns):
        reach += records.costs[column] * (2.0 + (AGREEMENT * 2 * k if records.agree[column] else 0.0))
    state = ExchangeState(
        records.rows,
        codes,
        records.costs,
        records.agree,
        reach,
        subjects,
        max_share,
        labels,
        np.zeros((clusters, capacity), np.int64),
        np.zeros(n, np.int64),
        np.zeros(clusters, np.int64),
        np.zeros(clusters),
        np.zeros((clusters, d)),
        np.zeros((distinct, clusters), np.int64),
        np.zeros((columns, clusters), np.int64),
        np.full(clusters, NONE),
        np.zeros(d),
        np.zeros(n, np.int64),
    )
    for i in range(n):
        _join(state, i, labels[i])
    for cluster in range(clusters):
        _update_cluster(state, cluster)
    return state


@njit_inline
def _join(state: ExchangeState, i: int, cluster: int) -> None:
    state.members[cluster, state.sizes[cluster]] = i
    state.positions[i] = state.sizes[cluster]
    state.sizes[cluster] += 1
    state.labels[i] = cluster
    for j in range(state.rows.shape[1]):
        state.sums[cluster, j] += state.rows[i, j]
    for column in range(state.codes.shape[0]):
        state.counts[state.codes[column, i], cluster] += 1


@njit_inline
def _leave(state: ExchangeState, i: int) -> None:
    cluster = state.labels[i]
    state.sizes[cluster] -= 1
    last, position = state.members[cluster, state.sizes[cluster]], state.positions[i]
    state.members[cluster, position], state.positions[last] = last, position
    for j in range(state.rows.shape[1]):
        state.sums[cluster, j] -= state.rows[i, j]
    for column in range(state.codes.shape[0]):
        state.counts[state.codes[column, i], cluster] -= 1


@njit_inline
def _update_cluster(state: ExchangeState, cluster: int) -> None:
    """Store the inverse size of a cluster, and how often the most frequent code of each column occurs in it."""
    state.inverse_sizes[cluster] = 1.0 / state.sizes[cluster] if state.sizes[cluster] > 0 else 0.0
    for column in range(state.codes.shape[0]):
        top = 0
        for x in range(state.sizes[cluster]):
            code = state.codes[column, state.members[cluster, x]]
            top = max(top, state.counts[code, cluster])
        state.tops[column, cluster] = top


@njit_inline
def _exchange_record(state: ExchangeState, i: int, k: int) -> None:
    """Carry out the best exchange of a record with a near cluster that publishes its code, if one lowers the loss."""
    own = state.labels[i]
    best, target, partner = -MIN_GAIN, NONE, NONE
    reach = state.reach + _squared_distance(state, i, own)
    for column in range(state.codes.shape[0]):
        counts, tops = state.counts[state.codes[column, i]], state.tops[column]
        if counts[own] == tops[own]:
            continue
        for cluster in range(counts.size):
            if counts[cluster] < tops[cluster] or counts[cluster] == 0 or not _is_near(state, i, cluster, reach):
                continue
            state.tried_for[cluster] = i
            change, other = _best_change(state, i, cluster, k, best)
            if change < best:
                best, target, partner = change, cluster, other
    if partner != NONE:
        _swap(state, i, partner)
    elif target != NONE:
        _leave(state, i)
        _join(state, i, target)
        _update_cluster(state, own)
        _update_cluster(state, target)


@njit_inline
def _is_near(state: ExchangeState, i: int, cluster: int, reach: float) -> bool:
    """Whether the centroid of another cluster, not yet tried for a record, is within a squared distance of it."""
    if cluster == state.labels[i] or state.tried_for[cluster] == i:
        return False
    return bool(_squared_distance(state, i, cluster) < reach)


@njit_inline
def _best_change(state: ExchangeState, i: int, cluster: int, k: int, limit: float) -> tuple[float, int]:
    """Return the change of the best relocation (partner -1) or swap into another cluster; ``limit`` if none is less."""
    best, partner = limit, NONE
    if state.sizes[state.labels[i]] > k and state.sizes[cluster] < 2 * k - 1:
        change = _relocation_change(state, i, cluster)
        if change < best and _are_satisfied(state, i, cluster, NONE, k):
            best = change
    _write_directions(state, state.labels[i], cluster)
    for x in range(state.sizes[cluster]):
        other = state.members[cluster, x]
        change = _swap_change(state, i, other, best)
        if change < best and _are_satisfied(state, i, cluster, other, k):
            best, partner = change, other
    return best, partner


@njit_inline
def _write_directions(state: ExchangeState, own: int, cluster: int) -> None:
    """Write twice the difference of the centroids of two clusters to the scratch."""
    inverse, other_inverse = state.inverse_sizes[own], state.inverse_sizes[cluster]
    for j in range(state.directions.size):
        state.directions[j] = 2.0 * (state.sums[own, j] * inverse - state.sums[cluster, j] * other_inverse)


@njit_inline
def _squared_distance(state: ExchangeState, i: int, cluster: int) -> float:
    """Return the squared distance of a record from the centroid of a cluster, by numbers."""
    squared, inverse = 0.0, state.inverse_sizes[cluster]
    for j in range(state.rows.shape[1]):
        step = state.rows[i, j] - state.sums[cluster, j] * inverse
        squared += step * step
    return squared


@njit_inline
def _swap(state: ExchangeState, i: int, other: int) -> None:
    own, target = state.labels[i], state.labels[other]
    _leave(state, i)
    _leave(state, other)
    _join(state, other, own)
    _join(state, i, target)
    _update_cluster(state, own)
    _update_cluster(state, target)


@njit_inline
def _relocation_change(state: ExchangeState, i: int, cluster: int) -> float:
    """Return the change of the loss if a record leaves its cluster and joins another one."""
    own = state.labels[i]
    size, other_size = state.sizes[own], state.sizes[cluster]
    change = _squared_distance(state, i, cluster) * other_size / (other_size + 1.0)
    change -= _squared_distance(state, i, own) * size / (size - 1.0)
    for column in range(state.codes.shape[0]):
        change += _column_change(state, column, i, cluster, NONE)
    return float(change)


@njit_inline
def _swap_change(state: ExchangeState, i: int, other: int, limit: float) -> float:
    """Return the change of the loss if two records are swapped, after `_write_directions`; ``limit``, if not less."""
    own, cluster = state.labels[i], state.labels[other]
    change, both = 0.0, state.inverse_sizes[own] + state.inverse_sizes[cluster]
    for j in range(state.directions.size):
        step = state.rows[other, j] - state.rows[i, j]
        change -= step * (state.directions[j] + step * both)
    gain = 0.0
    for column in range(state.codes.shape[0]):
        code, other_code = state.codes[column, i], state.codes[column, other]
        if code != other_code and state.agree[column]:
            gain += state.costs[column] * (2.0 + AGREEMENT * (state.sizes[own] + state.sizes[cluster]))
        elif code != other_code:  # a code becomes more frequent than all others only if it is as frequent as they are
            rises = state.counts[other_code, own] == state.tops[column, own]
            other_rises = state.counts[code, cluster] == state.tops[column, cluster]
            gain += state.costs[column] * (int(rises) + int(other_rises))
    if change - gain >= limit:
        return limit
    for column in range(state.codes.shape[0]):
        if state.codes[column, i] != state.codes[column, other]:
            change += _column_change(state, column, i, cluster, other)
    return float(change)


@njit_inline
def _column_change(state: ExchangeState, column: int, i: int, cluster: int, other: int) -> float:
    """Return the change of the loss in a category column if a record joins a cluster and ``other`` takes its place."""
    own = state.labels[i]
    after = _column_loss(state, column, own, i, other) + _column_loss(state, column, cluster, other, i)
    before = _column_loss(state, column, own, NONE, NONE) + _column_loss(state, column, cluster, NONE, NONE)
    return float(after - before)


@njit_inline
def _column_loss(state: ExchangeState, column: int, cluster: int, leaving: int, joining: int) -> float:
    """Return the loss of a cluster in one category column without a member and with another record; -1 for neither."""
    codes, size, top = state.codes[column], state.sizes[cluster], state.tops[column, cluster]
    if leaving != NONE:
        size -= 1
        gone = codes[leaving]
        if state.counts[gone, cluster] == top:  # another code may be as frequent
            top = 0
            for x in range(state.sizes[cluster]):
                code = codes[state.members[cluster, x]]
                top = max(top, state.counts[code, cluster] - (code == gone))
    if joining != NONE:
        size += 1
        top = max(top, state.counts[codes[joining], cluster] + 1)
    lost = float(size - top)
    if state.agree[column]:
        lost = AGREEMENT * (size if top < size else 0) + (1.0 - AGREEMENT) * lost
    return float(state.costs[column] * lost)


@njit_inline
def _are_satisfied(state: ExchangeState, i: int, cluster: int, other: int, k: int) -> bool:
    """Whether no constraint is violated if a record joins a cluster and ``other``, if there is one, takes its place."""
    if state.subjects.size == 0:
        return True
    return _violation(state, state.labels[i], i, other, k) + _violation(state, cluster, other, i, k) == 0


@njit_inline
def _violation(state: ExchangeState, cluster: int, leaving: int, joining: int, k: int) -> int:
    """Return the violation of a cluster without a member and with another record; see `subject_violation`."""
    members = state.members[cluster, : state.sizes[cluster]]
    return int(subject_violation(state.subjects, state.tally, members, leaving, joining, state.max_share, k))
