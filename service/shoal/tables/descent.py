"""Descent and annealing: change a partition among near neighbours, to lower its loss.

The changes: one record relocates, two records swap, a cluster is dissolved into its neighbours, a cluster is created
around a record, and three clusters exchange records in a cycle. Descent ends when no change that it tries lowers the
loss. Annealing draws changes at random; those that raise the loss become rarer. Costs of changes are differences of
distances to centroids, not of sums of squares, so nothing cancels far from the origin.

In a *cyclic exchange* a record moves to a second cluster, one of that to a third, and one of the third to the first.
All sizes stay, so it remains possible where k and 2k - 1 forbid a relocation. Where both sizes allow it, the last move
is left out. A cycle with a gain can be started at a record from which every partial sum is a gain; so only partial
cycles with a gain are extended.

*Dense descent* keeps all squared distances in memory; for a few hundred records it is several times faster. With
S(i, c), the sum of the squared distances of record i from the members of cluster c, and W(c), the sum of S(i, c) over
these members, the loss of c is W(c) / (2 size). A swap of i in cluster a with o in cluster c changes the loss by

    S(i, c)/|c| - S(i, a)/|a|  +  S(o, a)/|a| - S(o, c)/|c|  -  (1/|a| + 1/|c|) times the squared distance of i and o.

The second part is at least its minimum over the members of c, which is kept for each pair of clusters; the third is at
most its value for the farthest member. If this bound shows no gain, no swap of i with a member of c is evaluated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import (
    BoolMatrix,
    BoolVector,
    Float64Matrix,
    Float64Vector,
    Int32Matrix,
    Int32Vector,
    Int64Matrix,
    Int64Vector,
)
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.pieces import pieces
from shoal.tables.constraints import NONE, ConstraintArrays, is_unconstrained, satisfies_constraints, subject_violation

MIN_SIZE, MAX_SIZE, EMPTY_CLUSTERS, MOVES = 0, 1, 2, 3  # entries of `PartitionState.counters`
SWAP_MOVES = 2


class PartitionState(NamedTuple):
    """A partition of n records: members, sizes and centroids of its clusters, some of which may be empty."""

    rows: Float64Matrix  # (n, d): coordinates, relative to the mean of the table
    labels: Int64Vector  # (n,): cluster of each record
    positions: Int64Vector  # (n,): index of each record among the members of its cluster
    members: Int64Vector  # (capacity,): records by cluster, with unused room behind those of each cluster
    columns: Float64Matrix  # (d, capacity): their coordinates, contiguous for the vector unit
    starts: Int64Vector  # (clusters + 1,): where the members of each cluster begin
    sizes: Int64Vector  # (clusters,)
    centroids: Float64Matrix  # (clusters, d)
    empty: Int64Vector  # (clusters,): a stack of the numbers of empty clusters
    counters: Int64Vector  # (4,): k, the size up to which clusters may grow, number of empty clusters, of logged moves
    moved: Int64Matrix  # (2, n + 1): log of one change: record and former cluster of each move, oldest first
    neighbours: Int32Matrix  # (n, m): nearest records of each, whose clusters are tried; the nearest first
    constraints: ConstraintArrays  # what clusters must satisfy besides their size


@njit
def build_partition_state(
    rows: Float64Matrix, labels: Int32Vector, k: int, constraints: ConstraintArrays, neighbours: Int32Matrix
) -> PartitionState:
    """Return the state of a partition. Clusters may grow to 2k - 1 records; those that are larger may only shrink."""
    n, d = rows.shape
    sizes = np.bincount(labels, minlength=max(labels.max() + 1, n // k) + 1)
    starts = np.zeros(sizes.size + 1, np.int64)
    for cluster in range(sizes.size):  # one more than its size: a swap adds the new member before it removes the old
        starts[cluster + 1] = starts[cluster] + max(2 * k, sizes[cluster] + 1)
    partition = PartitionState(
        rows,
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(starts[-1], np.int64),
        np.zeros((d, starts[-1])),
        starts,
        np.zeros(sizes.size, np.int64),
        np.zeros((sizes.size, d)),
        np.zeros(sizes.size, np.int64),
        np.zeros(4, np.int64),
        np.zeros((2, n + 1), np.int64),
        neighbours,
        constraints,
    )
    partition.counters[MIN_SIZE], partition.counters[MAX_SIZE] = k, 2 * k - 1
    for i in range(n):
        label = labels[i]
        partition.labels[i], partition.positions[i] = label, partition.sizes[label]
        partition.members[starts[label] + partition.sizes[label]] = i
        partition.columns[:, starts[label] + partition.sizes[label]] = rows[i]
        partition.sizes[label] += 1
    for cluster in range(sizes.size - 1, -1, -1):
        if sizes[cluster] == 0:
            _push_empty(partition, cluster)
    recompute_centroids(partition)
    return partition


@njit_inline
def _push_empty(partition: PartitionState, cluster: int) -> None:
    partition.empty[partition.counters[EMPTY_CLUSTERS]] = cluster
    partition.counters[EMPTY_CLUSTERS] += 1


@njit_inline
def member(partition: PartitionState, cluster: int, x: int) -> int:
    """Return the x-th member of a cluster."""
    return int(partition.members[partition.starts[cluster] + x])


@njit
def recompute_centroids(partition: PartitionState) -> None:
    """Compute all centroids from the members; each move adds a little rounding to them. O(n d)."""
    for cluster in range(partition.sizes.size):
        size = partition.sizes[cluster]
        for j in range(partition.rows.shape[1]):
            total = 0.0
            for x in range(size):
                total += partition.rows[member(partition, cluster, x), j]
            partition.centroids[cluster, j] = total / max(size, 1)


@njit
def loss(partition: PartitionState) -> float:
    """Return the sum of squared distances to the centroids. O(n d)."""
    total = 0.0
    for i in range(partition.labels.size):
        total += squared_distance_to_centroid(partition, i, partition.labels[i])
    return total


@njit_inline
def squared_distance_to_centroid(partition: PartitionState, i: int, cluster: int) -> float:
    """Return the squared distance of a record from the centroid of a cluster."""
    rows, centroids, total = partition.rows, partition.centroids, 0.0
    for j in range(rows.shape[1]):
        away = rows[i, j] - centroids[cluster, j]
        total += away * away
    return total


@njit_inline
def move(partition: PartitionState, i: int, cluster: int) -> None:
    """Move a record to another cluster and update both centroids. O(d)."""
    own, position = partition.labels[i], partition.positions[i]
    size = partition.sizes[own] - 1
    start, end = partition.starts[own] + position, partition.starts[own] + size
    last = partition.members[end]
    partition.members[start] = last
    partition.positions[last] = position
    partition.sizes[own] = size
    other_size = partition.sizes[cluster] + 1
    new = partition.starts[cluster] + other_size - 1
    partition.members[new] = i
    partition.positions[i] = other_size - 1
    partition.labels[i] = cluster
    partition.sizes[cluster] = other_size
    shrink, grow = 1.0 / max(size, 1), 1.0 / other_size
    for j in range(partition.rows.shape[1]):
        value = partition.rows[i, j]
        partition.columns[j, start] = partition.columns[j, end]
        partition.columns[j, new] = value
        partition.centroids[own, j] -= (value - partition.centroids[own, j]) * shrink
        partition.centroids[cluster, j] += (value - partition.centroids[cluster, j]) * grow


@njit_inline
def gain_of_leaving(partition: PartitionState, i: int) -> float:
    """Return by how much the loss falls when a record leaves its cluster."""
    own = partition.labels[i]
    size = partition.sizes[own]
    return float(squared_distance_to_centroid(partition, i, own) * (size / max(size - 1, 1)))


@njit_inline
def cost_to_join(partition: PartitionState, i: int, cluster: int) -> float:
    """Return by how much the loss rises when a record joins another cluster."""
    size = partition.sizes[cluster]
    return float(squared_distance_to_centroid(partition, i, cluster) * (size / (size + 1)))


@njit_inline
def cost_to_swap(partition: PartitionState, one: int, other: int) -> float:
    """Return by how much the loss rises when two records of different clusters are swapped."""
    own, target = partition.labels[one], partition.labels[other]
    weight = 1.0 / partition.sizes[own] + 1.0 / partition.sizes[target]
    total = 0.0
    for j in range(partition.rows.shape[1]):
        step = partition.rows[other, j] - partition.rows[one, j]
        total += step * (2.0 * (partition.centroids[target, j] - partition.centroids[own, j]) - weight * step)
    return total


@njit_inline
def satisfies(partition: PartitionState, cluster: int, leaving: int, joining: int) -> bool:
    """Whether a cluster satisfies the constraints without one member and with another record; -1: neither."""
    if is_unconstrained(partition.constraints):
        return True
    first = partition.starts[cluster]
    members = partition.members[first : first + partition.sizes[cluster]]
    return satisfies_constraints(partition.constraints, members, leaving, joining, partition.counters[MIN_SIZE])


@njit_inline
def may_relocate(partition: PartitionState, i: int, cluster: int) -> bool:
    """Whether the constraints allow a record to move to another cluster."""
    return (
        partition.constraints.buckets.size == 0
        and satisfies(partition, partition.labels[i], i, NONE)
        and satisfies(partition, cluster, NONE, i)
    )


@njit_inline
def may_swap(partition: PartitionState, one: int, other: int) -> bool:
    """Whether the constraints allow two records of different clusters to be swapped."""
    buckets = partition.constraints.buckets
    return (
        (buckets.size == 0 or buckets[one] == buckets[other])
        and satisfies(partition, partition.labels[one], one, other)
        and satisfies(partition, partition.labels[other], other, one)
    )


@njit_inline
def move_logged(partition: PartitionState, i: int, cluster: int) -> None:
    """Move a record and log the move."""
    x = partition.counters[MOVES]
    partition.moved[0, x], partition.moved[1, x] = i, partition.labels[i]
    partition.counters[MOVES] = x + 1
    move(partition, i, cluster)


@njit_inner
def rollback(partition: PartitionState) -> None:
    """Undo all logged moves, the last one first."""
    while partition.counters[MOVES] > 0:
        partition.counters[MOVES] -= 1
        x = partition.counters[MOVES]
        record, origin = partition.moved[0, x], partition.moved[1, x]
        own = partition.labels[record]
        if partition.sizes[own] == 1:  # the change created this cluster
            _push_empty(partition, own)
        if partition.sizes[origin] == 0:  # the change emptied that cluster
            partition.counters[EMPTY_CLUSTERS] -= 1
        move(partition, record, origin)


@njit_inline
def are_allowed(partition: PartitionState) -> bool:
    """Whether all changed clusters satisfy the constraints and, with buckets, the moves are a swap within one."""
    records, origins, buckets = partition.moved[0], partition.moved[1], partition.constraints.buckets
    if buckets.size > 0:
        one, other = records[0], records[1]
        if partition.counters[MOVES] != SWAP_MOVES or buckets[one] != buckets[other]:
            return False
        if origins[0] != partition.labels[other] or origins[1] != partition.labels[one]:
            return False
    for x in range(partition.counters[MOVES]):
        if not satisfies(partition, origins[x], NONE, NONE):
            return False
        if not satisfies(partition, partition.labels[records[x]], NONE, NONE):
            return False
    return True


THIRD_NEIGHBOURS = 5  # nearest neighbours of the second record whose clusters may be the third


SINGLE, CREATE, CYCLE, DISSOLVE = 0, 1, 2, 3
"""Kinds of changes: relocation and swap of a record, a cluster around it, a cyclic exchange; the end of a cluster."""


class Worklist(NamedTuple):
    """What has changed since it was last tried, and scratch arrays."""

    pending: BoolMatrix  # (3, n): whether the cluster of a record has changed since each kind was tried for it
    changed: BoolVector  # (clusters,): whether a cluster has changed since it was tried to dissolve it
    visited_for: Int64Vector  # (clusters,): the last record for which a cluster was tried
    swap_costs: Float64Vector  # (n,): cost of a swap with each member of a cluster
    leaving_gains: Float64Vector  # (n,): by how much the loss falls when a record leaves its cluster
    closing_costs: Float64Vector  # (clusters,): least cost for a member to join the first cluster of a cycle
    closing_records: Int64Vector  # (clusters,): that member
    closed_for: Int64Vector  # (clusters,): first record of the cycle for which the two were computed


@njit
def build_worklist(partition: PartitionState) -> Worklist:
    """Return a list of all records and clusters."""
    n, clusters = partition.labels.size, partition.sizes.size
    return Worklist(
        np.ones((3, n), np.bool_),
        np.ones(clusters, np.bool_),
        np.full(clusters, NONE),
        np.zeros(n),
        np.zeros(n),
        np.zeros(clusters),
        np.full(clusters, NONE),
        np.full(clusters, NONE),
    )


class ExchangeCycle(NamedTuple):
    """A cycle and its estimated change of the loss; ``last`` is -1 where the last move is left out."""

    change: float
    second: int
    last: int
    second_cluster: int
    third_cluster: int


@njit_inner
def cyclic_exchange(partition: PartitionState, i: int, work: Worklist, min_gain: float) -> bool:
    """Carry out the best cycle that starts with a record, and log it, if the loss falls by more than ``min_gain``.

    The moves are chosen as if each were alone; their joint change is computed while they are carried out.
    """
    own = partition.labels[i]
    gain = work.leaving_gains[i]
    best = ExchangeCycle(-min_gain, NONE, NONE, NONE, NONE)
    work.visited_for[own] = i
    for neighbour in partition.neighbours[i]:
        target = partition.labels[neighbour]
        if work.visited_for[target] == i:
            continue
        work.visited_for[target] = i
        first = cost_to_join(partition, i, target) - gain
        if first < 0.0:
            for x in range(partition.sizes[target]):
                best = _best_extension(partition, work, i, first, member(partition, target, x), best)
    if best.second == NONE:
        return False
    change = _move_in_cycle(partition, i, gain, best)
    if change < -min_gain and are_allowed(partition):
        return True
    rollback(partition)
    return False


@njit_inline
def _best_extension(
    partition: PartitionState, work: Worklist, i: int, first: float, second: int, best: ExchangeCycle
) -> ExchangeCycle:
    """Return the best of a cycle and the cycles whose second record is ``second``; ``first`` is the first change."""
    own, second_cluster = partition.labels[i], partition.labels[second]
    gain = work.leaving_gains[second]
    previous = NONE
    for x in range(min(THIRD_NEIGHBOURS, partition.neighbours.shape[1])):
        third = partition.labels[partition.neighbours[second, x]]
        if third in (own, second_cluster, previous):
            continue
        previous = third
        so_far = first + cost_to_join(partition, second, third) - gain
        if so_far >= 0.0:
            continue
        if _may_be_open(partition, own, third):
            if so_far < best.change:
                best = ExchangeCycle(so_far, second, NONE, second_cluster, third)
            continue
        if work.closed_for[third] != i:
            work.closed_for[third] = i
            _find_closing_record(partition, work, own, third)
        change = so_far + work.closing_costs[third]
        if change < best.change:
            best = ExchangeCycle(change, second, work.closing_records[third], second_cluster, third)
    return best


@njit_inline
def _may_be_open(partition: PartitionState, own: int, third: int) -> bool:
    """Whether the sizes of the first and the third cluster of a cycle allow that the last move is left out."""
    return bool(
        partition.sizes[own] > partition.counters[MIN_SIZE] and partition.sizes[third] < partition.counters[MAX_SIZE]
    )


@njit_inner
def _move_in_cycle(partition: PartitionState, i: int, gain: float, cycle: ExchangeCycle) -> float:
    """Carry out a cycle that starts with a record, whose leaving gains ``gain``; return the change of the loss."""
    own = partition.labels[i]
    change = cost_to_join(partition, i, cycle.second_cluster) - gain
    move_logged(partition, i, cycle.second_cluster)
    change += cost_to_join(partition, cycle.second, cycle.third_cluster) - gain_of_leaving(partition, cycle.second)
    move_logged(partition, cycle.second, cycle.third_cluster)
    if cycle.last != NONE:
        change += cost_to_join(partition, cycle.last, own) - gain_of_leaving(partition, cycle.last)
        move_logged(partition, cycle.last, own)
    return change


@njit_inline
def _find_closing_record(partition: PartitionState, work: Worklist, own: int, third: int) -> None:
    """Find the member of the third cluster that joins the first cluster at the least cost."""
    work.closing_costs[third], work.closing_records[third] = np.inf, NONE
    for x in range(partition.sizes[third]):
        last = member(partition, third, x)
        change = cost_to_join(partition, last, own) - work.leaving_gains[last]
        if change < work.closing_costs[third]:
            work.closing_costs[third], work.closing_records[third] = change, last


@njit_inline
def update_leaving_gains(partition: PartitionState, work: Worklist, cluster: int) -> None:
    """Compute the gains of the members of a cluster that has changed."""
    for x in range(partition.sizes[cluster]):
        i = member(partition, cluster, x)
        work.leaving_gains[i] = gain_of_leaving(partition, i)


SUM_ERROR = 1.0 + 1e-9  # factor that covers the rounding of a sum
MIN_RELATIVE_GAIN = 1e-10
"""Smallest gain that counts, relative to the mean loss of a record. Without it, changes among equal records, whose gain
is rounding, would never end."""


def descend(partition: PartitionState, rounds: int) -> None:
    """Change a partition in place until no change that is tried lowers the loss, or for ``rounds`` rounds.

    The partition satisfies its constraints before and after. Cost per round, for records whose clusters have changed:
    O(m d) to try a relocation among m neighbours, O(m k d) to try the swaps of a record.
    """
    (n, d), work = partition.rows.shape, build_worklist(partition)
    min_gain, size = MIN_RELATIVE_GAIN * loss(partition) / n, int(partition.counters[MAX_SIZE])
    # Constraints are checked only for what gains, which is rare.
    cost = partition.neighbours.shape[1] * size * (d + (0 if is_unconstrained(partition.constraints) else 10))
    for number in range(1, rounds + 1):
        changes = 0
        for kind in (SINGLE, DISSOLVE, CREATE, CYCLE):
            if kind == CYCLE and changes > 0:
                break
            total = partition.sizes.size if kind == DISSOLVE else n
            for first, end in pieces(f"descent {number}", total, cost):
                changes += _try_changes(partition, work, kind, first, end, min_gain)
        _end_round(partition, changes)
        if changes == 0:
            return


@njit
def _end_round(partition: PartitionState, changes: int) -> None:
    """Compute the centroids again after a round with changes; one kernel, so that it is compiled in any case."""
    if changes > 0:
        recompute_centroids(partition)


@njit
def _try_changes(partition: PartitionState, work: Worklist, kind: int, first: int, end: int, min_gain: float) -> int:
    """Try a kind of change for some records or clusters; carry out those that gain enough, and return their number."""
    if first == 0:
        work.visited_for.fill(NONE)
        if kind == CYCLE:
            work.closed_for.fill(NONE)
            for cluster in range(partition.sizes.size):
                update_leaving_gains(partition, work, cluster)
    changes = 0
    for i in range(first, end):
        if kind == DISSOLVE:
            changes += _try_to_dissolve(partition, work, i, min_gain)
        elif work.pending[kind, i]:
            work.pending[kind, i] = False
            changes += _try_for(partition, work, kind, i, min_gain)
    return changes


@njit_inline
def _try_for(partition: PartitionState, work: Worklist, kind: int, i: int, min_gain: float) -> int:
    """Carry out a kind of change for a record, if it gains enough; return 1 if so, else 0."""
    if kind == SINGLE:
        return _relocate_or_swap(partition, i, work, min_gain)
    if kind == CYCLE:
        return _exchange_in_cycle(partition, i, work, min_gain)
    return _keep_or_undo(partition, work, create(partition, i), min_gain) if _may_create(partition, i) else 0


@njit_inline
def _try_to_dissolve(partition: PartitionState, work: Worklist, cluster: int, min_gain: float) -> int:
    """Dissolve a cluster that has changed, if it gains enough; return 1 if so, else 0."""
    if not work.changed[cluster] or partition.sizes[cluster] == 0:
        return 0
    work.changed[cluster] = False
    return _keep_or_undo(partition, work, dissolve(partition, cluster, 0.0), min_gain)


@njit_inline
def _relocate_or_swap(partition: PartitionState, i: int, work: Worklist, min_gain: float) -> int:
    """Carry out the best relocation or swap of a record, if one gains enough; return 1 if so, else 0."""
    own = partition.labels[i]
    best, partner, target = -min_gain, NONE, NONE
    may_leave = partition.sizes[own] > partition.counters[MIN_SIZE]
    gain = gain_of_leaving(partition, i) if may_leave else 0.0
    work.visited_for[own] = i
    for neighbour in partition.neighbours[i]:
        cluster = partition.labels[neighbour]
        if work.visited_for[cluster] == i:
            continue
        work.visited_for[cluster] = i
        if may_leave and partition.sizes[cluster] < partition.counters[MAX_SIZE]:
            change = cost_to_join(partition, i, cluster) - gain
            if change < best and may_relocate(partition, i, cluster):
                best, partner, target = change, NONE, cluster
        change, other = _best_swap(partition, i, cluster, best, work.swap_costs)
        if other != NONE:
            best, partner, target = change, other, cluster
    if target == NONE:
        return 0
    move(partition, i, target)
    if partner != NONE:
        move(partition, partner, own)
    _mark_changed(partition, own, work)
    _mark_changed(partition, target, work)
    return 1


@njit_inline
def _best_swap(
    partition: PartitionState, i: int, cluster: int, limit: float, swap_costs: Float64Vector
) -> tuple[float, int]:
    """Return the change of the best swap with a member of another cluster, and it; ``limit`` and -1 if none is less."""
    best, partner, own, size = limit, NONE, partition.labels[i], partition.sizes[cluster]
    first, weight, changes = partition.starts[cluster], 1.0 / partition.sizes[own] + 1.0 / size, swap_costs[:size]
    changes[:] = 0.0
    for j in range(partition.rows.shape[1]):
        slope, value = 2.0 * (partition.centroids[cluster, j] - partition.centroids[own, j]), partition.rows[i, j]
        column = partition.columns[j, first : first + size]
        for x in range(size):
            step = column[x] - value
            changes[x] += step * (slope - weight * step)
    for x in range(size):
        if changes[x] < best and may_swap(partition, i, member(partition, cluster, x)):
            best, partner = changes[x], member(partition, cluster, x)
    return best, partner


@njit_inline
def _keep_or_undo(partition: PartitionState, work: Worklist, change: float, min_gain: float) -> int:
    """Keep the logged moves and return 1 if they gain enough and are allowed; else undo them and return 0."""
    if change < -min_gain and are_allowed(partition):
        _mark_moved(partition, work)
        return 1
    rollback(partition)
    return 0


@njit_inner
def _exchange_in_cycle(partition: PartitionState, i: int, work: Worklist, min_gain: float) -> int:
    """Carry out the best cyclic exchange that starts with a record, if it gains enough; return 1 if so, else 0."""
    if not cyclic_exchange(partition, i, work, min_gain):
        return 0
    for x in range(partition.counters[MOVES]):
        update_leaving_gains(partition, work, partition.moved[1, x])
        update_leaving_gains(partition, work, partition.labels[partition.moved[0, x]])
    _mark_moved(partition, work)
    return 1


@njit_inline
def _mark_changed(partition: PartitionState, cluster: int, work: Worklist) -> None:
    """Put a cluster and its members on the worklist."""
    work.changed[cluster] = True
    for x in range(partition.sizes[cluster]):
        for kind in range(work.pending.shape[0]):
            work.pending[kind, member(partition, cluster, x)] = True


@njit_inner
def _mark_moved(partition: PartitionState, work: Worklist) -> None:
    """Put all clusters that the logged moves changed on the worklist, and empty the log."""
    for x in range(partition.counters[MOVES]):
        _mark_changed(partition, partition.moved[1, x], work)
        _mark_changed(partition, partition.labels[partition.moved[0, x]], work)
    partition.counters[MOVES] = 0


@njit_inner
def dissolve(partition: PartitionState, cluster: int, limit: float = np.inf) -> float:
    """Move each member of a cluster to the cheapest cluster of its neighbours; return the change of the loss.

    It is infinite if a member finds no cluster, or as soon as the change cannot be below ``limit``: joining never has a
    negative cost, and leaving gains no more than the loss of the cluster. The moves are logged in all cases.
    """
    total, left = 0.0, limit
    for x in range(partition.sizes[cluster]):
        left += squared_distance_to_centroid(partition, member(partition, cluster, x), cluster) * SUM_ERROR
    while partition.sizes[cluster] > 0:
        i = member(partition, cluster, partition.sizes[cluster] - 1)
        best, target, previous = np.inf, NONE, NONE
        for neighbour in partition.neighbours[i]:
            other = partition.labels[neighbour]
            if other in (cluster, previous):
                continue
            previous = other
            if partition.sizes[other] < partition.counters[MAX_SIZE]:
                cost = cost_to_join(partition, i, other)
                if cost < best and satisfies(partition, other, NONE, i):
                    best, target = cost, other
        if target == NONE or left < best:
            return np.inf
        left -= best
        total += best - gain_of_leaving(partition, i) * (partition.sizes[cluster] > 1)
        move_logged(partition, i, target)
    _push_empty(partition, cluster)
    return total


@njit_inline
def _may_create(partition: PartitionState, i: int) -> bool:
    """Whether enough neighbours of a record are in clusters above k; each is counted, even several of one cluster."""
    k = partition.counters[MIN_SIZE]
    if partition.counters[EMPTY_CLUSTERS] == 0 or partition.sizes[partition.labels[i]] <= k:
        return False
    missing = k - 1
    for neighbour in partition.neighbours[i]:
        missing -= partition.sizes[partition.labels[neighbour]] > k
    return bool(missing <= 0)


@njit_inner
def create(partition: PartitionState, i: int) -> float:
    """Create a cluster of a record and its k - 1 nearest from clusters above k; return the change, infinite in vain."""
    k = partition.counters[MIN_SIZE]
    if partition.counters[EMPTY_CLUSTERS] == 0 or partition.sizes[partition.labels[i]] <= k:
        return np.inf
    partition.counters[EMPTY_CLUSTERS] -= 1
    cluster = partition.empty[partition.counters[EMPTY_CLUSTERS]]
    total = -gain_of_leaving(partition, i)
    move_logged(partition, i, cluster)
    for neighbour in partition.neighbours[i]:
        if partition.sizes[cluster] == k:
            return total
        if partition.labels[neighbour] != cluster and partition.sizes[partition.labels[neighbour]] > k:
            total += cost_to_join(partition, neighbour, cluster) - gain_of_leaving(partition, neighbour)
            move_logged(partition, neighbour, cluster)
    return total if partition.sizes[cluster] == k else np.inf


DENSE_UP_TO = 256  # records up to which computing all distances is faster than searching for neighbours
ROUNDS = 100  # rounds of descent at most; descent ends long before


class DenseDescentState(NamedTuple):
    """A partition of n records with all squared distances; a cluster of size 0 is empty."""

    squares: Float64Matrix  # (n, n): squared distances
    sums: Float64Matrix  # (clusters, n): S(i, c) in row c, so that a change reads and writes rows
    max_squares: Float64Matrix  # (clusters, n): upper bound on the squared distance of a record to any member
    totals: Float64Vector  # (clusters,): W
    sizes: Int64Vector  # (clusters,)
    members: Int64Matrix  # (clusters, capacity)
    labels: Int32Vector  # (n,)
    positions: Int64Vector  # (n,): index of each record among the members of its cluster
    inverse_sizes: Float64Vector  # (clusters,): 1 / size
    join_slopes: Float64Vector  # (clusters,): 1 / (size + 1); joining costs join_slope * S - join_offset
    join_offsets: Float64Vector  # (clusters,)
    swap_bounds: Float64Matrix  # (clusters, clusters): minimum of S(o, a)/|a| - S(o, c)/|c| over members o of c
    bound_versions: Int64Matrix  # (clusters, clusters): number of the last change when the bound was computed
    versions: Int64Vector  # (clusters,): number of the last change of each cluster
    examined: Int64Vector  # (n,): number of the last change when each record was last examined
    changes: Int64Vector  # (1,): number of the last change
    saved_labels: Int32Vector  # (n,): labels before a change that may be undone
    subjects: Int64Vector  # (n,): subject of each record, from 0; empty if each has its own
    max_share: float
    tally: Int64Vector  # (n,): scratch by subject, zero between two uses


@njit
def pair_squares(rows: Float64Matrix) -> Float64Matrix:
    """Return the squared distances (n, n) between records, given by their coordinates (n, d); d may be 0. O(n² d)."""
    squares = np.empty((rows.shape[0], rows.shape[0]))
    _fill_squares(np.ascontiguousarray(rows.T), squares)
    return squares


NO_SUBJECTS = np.zeros(0, np.int64)  # every record has a subject of its own


@njit
def descend_dense(
    squares: Float64Matrix, labels: Int32Vector, k: int, rounds: int, subjects: Int64Vector, max_share: float
) -> Int32Vector:
    """Return a partition whose loss no change that is tried lowers, or the one reached after ``rounds`` rounds.

    ``squares`` (n, n) are squared distances. ``labels`` (n,) is the start: clusters of k or more that satisfy the
    constraints on ``subjects``, unless these are `NO_SUBJECTS`. Neither is modified. Numbers may be left unused.
    Guarantee: so do those of the result, and none grows beyond 2k - 1; no loss above that of the start, up to rounding.
    With subjects no cluster is dissolved or created. Cost: O(n²) to start, O(n) per change; O(n²) memory.
    """
    state = _build_state(squares, labels, k, subjects, max_share)
    loss = 0.0
    for cluster in range(state.sizes.size):
        loss += _loss(state, cluster)
    min_gain = MIN_RELATIVE_GAIN * loss / labels.size
    for _ in range(rounds):
        changes = 0
        for i in range(labels.size):
            changes += _relocate_or_swap_dense(state, i, k, min_gain)
        if subjects.size == 0:
            for cluster in range(state.sizes.size):
                if state.sizes[cluster] > 0:
                    changes += _dissolve(state, cluster, k, min_gain)
            changes += _create(state, k, min_gain)
        if changes == 0:
            break
        _recompute_sums(state)
    return state.labels


@njit_inner
def _build_state(
    squares: Float64Matrix, labels: Int32Vector, k: int, subjects: Int64Vector, max_share: float
) -> DenseDescentState:
    n, clusters = squares.shape[0], squares.shape[0] // k
    for label in labels:
        clusters = max(clusters, label + 1)
    sizes = np.zeros(clusters, np.int64)
    for label in labels:
        sizes[label] += 1
    capacity = 2 * k
    for size in sizes:
        capacity = max(capacity, size + 1)
    inverse_sizes, join_slopes, join_offsets, totals = np.empty((4, clusters))
    state = DenseDescentState(
        squares=squares,
        sums=np.empty((clusters, n)),
        max_squares=np.empty((clusters, n)),
        totals=totals,
        sizes=np.zeros(clusters, np.int64),
        members=np.empty((clusters, capacity), np.int64),
        labels=labels.copy(),
        positions=np.empty(n, np.int64),
        inverse_sizes=inverse_sizes,
        join_slopes=join_slopes,
        join_offsets=join_offsets,
        swap_bounds=np.empty((clusters, clusters)),
        bound_versions=np.full((clusters, clusters), -1),
        versions=np.zeros(clusters, np.int64),
        examined=np.full(n, -1),
        changes=np.zeros(1, np.int64),
        saved_labels=labels.copy(),
        subjects=subjects,
        max_share=max_share,
        tally=np.zeros(subjects.size, np.int64),
    )
    for i in range(n):
        _append_member(state, i, labels[i])
    _recompute_sums(state)
    return state


@njit_inner
def _fill_squares(columns: Float64Matrix, squares: Float64Matrix) -> None:
    """Write the squared distances of the records of ``columns`` (d, n); two attributes per pass halve the traffic."""
    d, n = columns.shape
    if d == 0:
        squares.fill(0.0)
        return
    for i in range(n):
        away, column, value = squares[i], columns[0], columns[0, i]
        for x in range(n):
            step = column[x] - value
            away[x] = step * step
        for j in range(1, d - 1, 2):
            column, other, value, other_value = columns[j], columns[j + 1], columns[j, i], columns[j + 1, i]
            for x in range(n):
                step, other_step = column[x] - value, other[x] - other_value
                away[x] = away[x] + step * step + other_step * other_step
        if d % 2 == 0:
            column, value = columns[d - 1], columns[d - 1, i]
            for x in range(n):
                step = column[x] - value
                away[x] += step * step


@njit_inline
def _append_member(state: DenseDescentState, i: int, cluster: int) -> None:
    state.members[cluster, state.sizes[cluster]] = i
    state.positions[i] = state.sizes[cluster]
    state.sizes[cluster] += 1
    state.labels[i] = cluster


@njit_inner
def _recompute_sums(state: DenseDescentState) -> None:
    """Compute all sums from the distances; each update adds a little rounding to them. O(n²)."""
    state.sums.fill(0.0)
    state.max_squares.fill(0.0)
    for cluster in range(state.sizes.size):
        total = 0.0
        for x in range(state.sizes[cluster]):
            _add_member_distances(state, cluster, state.squares[state.members[cluster, x]])
        for x in range(state.sizes[cluster]):
            total += state.sums[cluster, state.members[cluster, x]]
        state.totals[cluster] = total
        _update_join_costs(state, cluster)


@njit_inline
def _add_member_distances(state: DenseDescentState, cluster: int, away: Float64Vector) -> None:
    """Add the squared distances (n,) from a new member to the sums and bounds of its cluster."""
    sums, largest = state.sums[cluster], state.max_squares[cluster]
    for x in range(away.size):
        sums[x] += away[x]
    for x in range(away.size):
        largest[x] = largest[x] if largest[x] > away[x] else away[x]  # noqa: FURB136 - max() is not vectorised


@njit_inline
def _update_join_costs(state: DenseDescentState, cluster: int) -> None:
    """Store the quotients from which the costs of joining a cluster are computed."""
    size = state.sizes[cluster]
    inverse, slope = 1.0 / max(size, 1), 1.0 / (size + 1)
    state.inverse_sizes[cluster], state.join_slopes[cluster] = inverse, slope
    state.join_offsets[cluster] = 0.5 * state.totals[cluster] * inverse * slope


@njit_inline
def _loss(state: DenseDescentState, cluster: int) -> float:
    return float(0.5 * state.totals[cluster] * state.inverse_sizes[cluster])


@njit_inline
def _join_cost(state: DenseDescentState, i: int, cluster: int) -> float:
    """Return by how much the loss rises when a record joins a cluster that it is not in."""
    return float(state.join_slopes[cluster] * state.sums[cluster, i] - state.join_offsets[cluster])


@njit_inline
def _leave_gain(state: DenseDescentState, i: int) -> float:
    """Return by how much the loss falls when a record leaves its cluster."""
    cluster = state.labels[i]
    rest = state.totals[cluster] - 2.0 * state.sums[cluster, i]
    return float(_loss(state, cluster) - rest / (2.0 * max(state.sizes[cluster] - 1, 1)))


@njit_inline
def _move(state: DenseDescentState, i: int, cluster: int) -> None:
    own, away = state.labels[i], state.squares[i]
    own_sums = state.sums[own]
    state.totals[own] -= 2.0 * own_sums[i]
    state.totals[cluster] += 2.0 * state.sums[cluster, i]
    for x in range(away.size):
        own_sums[x] -= away[x]
    _add_member_distances(state, cluster, away)
    state.sizes[own] -= 1
    last, position = state.members[own, state.sizes[own]], state.positions[i]
    state.members[own, position], state.positions[last] = last, position
    _append_member(state, i, cluster)
    _update_join_costs(state, own)
    _update_join_costs(state, cluster)
    state.changes[0] += 1
    state.versions[own] = state.versions[cluster] = state.changes[0]


@njit_inline
def _relocate_or_swap_dense(state: DenseDescentState, i: int, k: int, min_gain: float) -> int:
    """Carry out the best relocation or swap of a record, if one gains enough; return 1 if so, else 0."""
    own, since = state.labels[i], state.examined[i]
    if state.versions[own] > since:
        since = -1
    state.examined[i] = state.changes[0]
    best, target, partner = -min_gain, NONE, NONE
    for cluster in range(state.sizes.size):
        if state.versions[cluster] > since and cluster != own and state.sizes[cluster] > 0:
            change, other = _best_change(state, i, cluster, k, best)
            if change < best:
                best, target, partner = change, cluster, other
    if target == NONE:
        return 0
    if partner != NONE:
        _move(state, partner, own)
    _move(state, i, target)
    return 1


@njit_inline
def _best_change(state: DenseDescentState, i: int, cluster: int, k: int, limit: float) -> tuple[float, int]:
    """Return the change of the best relocation (partner -1) or swap into another cluster; ``limit`` if none is less."""
    own, best, partner = state.labels[i], limit, NONE
    if state.sizes[own] > k and state.sizes[cluster] < 2 * k - 1:
        change = _join_cost(state, i, cluster) - _leave_gain(state, i)
        if change < best and _is_allowed(state, i, cluster, NONE, k):
            best = change
    own_sums, other_sums, squares = state.sums[own], state.sums[cluster], state.squares[i]
    share, other_share = state.inverse_sizes[own], state.inverse_sizes[cluster]
    base, both = other_sums[i] * other_share - own_sums[i] * share, share + other_share
    if base + _swap_bound(state, own, cluster) - state.max_squares[cluster, i] * both < best:
        for x in range(state.sizes[cluster]):
            other = state.members[cluster, x]
            change = base + (own_sums[other] * share - other_sums[other] * other_share) - squares[other] * both
            if change < best and _is_allowed(state, i, cluster, other, k):
                best, partner = change, other
    return best, partner


@njit_inline
def _is_allowed(state: DenseDescentState, i: int, cluster: int, other: int, k: int) -> bool:
    """Whether the constraints on subjects hold if a record joins a cluster, and ``other``, if any, takes its place."""
    if state.subjects.size == 0:
        return True
    own, subjects, tally = state.labels[i], state.subjects, state.tally
    left, joined = state.members[own, : state.sizes[own]], state.members[cluster, : state.sizes[cluster]]
    violation = subject_violation(subjects, tally, left, i, other, state.max_share, k)
    return violation == 0 and subject_violation(subjects, tally, joined, other, i, state.max_share, k) == 0


@njit_inline
def _swap_bound(state: DenseDescentState, own: int, cluster: int) -> float:
    """Return the minimum over members o of ``cluster`` of S(o, own) / |own| - S(o, cluster) / |cluster|."""
    if state.bound_versions[own, cluster] < max(state.versions[own], state.versions[cluster]):
        own_sums, other_sums = state.sums[own], state.sums[cluster]
        share, other_share, least = state.inverse_sizes[own], state.inverse_sizes[cluster], np.inf
        for x in range(state.sizes[cluster]):
            other = state.members[cluster, x]
            least = min(least, own_sums[other] * share - other_sums[other] * other_share)
        state.swap_bounds[own, cluster] = least
        state.bound_versions[own, cluster] = state.changes[0]
    return float(state.swap_bounds[own, cluster])


@njit_inline
def _dissolve(state: DenseDescentState, cluster: int, k: int, min_gain: float) -> int:
    """Move each member to its cheapest other cluster, if that gains enough; return 1 if so, else 0."""
    change = -_loss(state, cluster)
    for x in range(state.sizes[cluster]):  # an estimate that skips most attempts: each member as if it moved alone
        change += _cheapest(state, state.members[cluster, x], cluster, k)[0]
        if change >= -min_gain:
            return 0
    _save_labels(state)
    change = -_loss(state, cluster)
    for i in range(state.labels.size):
        if state.saved_labels[i] == cluster:
            cost, target = _cheapest(state, i, cluster, k)
            change += cost
            if target == NONE or change >= -min_gain:
                _rollback(state)
                return 0
            _move(state, i, target)
    return 1


@njit_inline
def _cheapest(state: DenseDescentState, i: int, cluster: int, k: int) -> tuple[float, int]:
    """Return the least cost for a record to join a cluster other than ``cluster``, and which it is, or -1."""
    best, target = np.inf, NONE
    for other in range(state.sizes.size):
        if other != cluster and 0 < state.sizes[other] < 2 * k - 1:
            cost = _join_cost(state, i, other)
            if cost < best:
                best, target = cost, other
    return best, target


@njit_inline
def _create(state: DenseDescentState, k: int, min_gain: float) -> int:
    """Create clusters of records from clusters above k, where it gains enough; return their number."""
    changes = 0
    for i in range(state.labels.size):
        cluster, available = NONE, 0
        for other in range(state.sizes.size):
            available += max(0, state.sizes[other] - k)
            if state.sizes[other] == 0:
                cluster = other
        if cluster == NONE or available < k:
            return changes
        if state.sizes[state.labels[i]] > k:
            changes += _create_around(state, i, cluster, k, min_gain)
    return changes


@njit_inline
def _create_around(state: DenseDescentState, i: int, cluster: int, k: int, min_gain: float) -> int:
    """Create a cluster of a record and its k - 1 nearest in clusters above k, if it gains enough; return 1 if so."""
    _save_labels(state)
    change, record = 0.0, i
    while record != NONE and state.sizes[cluster] < k:
        change += _join_cost(state, record, cluster) - _leave_gain(state, record)
        _move(state, record, cluster)
        nearest, record = np.inf, NONE
        for x in range(state.labels.size):
            is_available = state.labels[x] != cluster and state.sizes[state.labels[x]] > k
            if is_available and state.squares[i, x] < nearest:
                nearest, record = state.squares[i, x], x
    if state.sizes[cluster] == k and change < -min_gain:
        return 1
    _rollback(state)
    return 0


@njit_inline
def _save_labels(state: DenseDescentState) -> None:
    for x in range(state.labels.size):
        state.saved_labels[x] = state.labels[x]


@njit_inline
def _rollback(state: DenseDescentState) -> None:
    for x in range(state.labels.size):
        if state.labels[x] != state.saved_labels[x]:
            _move(state, x, state.saved_labels[x])


DISSOLVE_BELOW, CREATE_BELOW, RELOCATE_BELOW, SWAP_BELOW = 0.02, 0.06, 0.3, 0.92
"""Upper ends of the ranges of a random number from 0 to 1 that select each kind of change; above: a cyclic exchange."""


@njit
def anneal(partition: PartitionState, tries: int, temperature: float, random: np.random.Generator) -> None:
    """Try ``tries`` random changes at one temperature (Metropolis). The partition satisfies its constraints throughout.

    A rise of the loss by ``temperature`` is accepted with probability 1 / e; the unit is the geometric mean of the
    variance within all clusters and within the two touched: else dense regions would be shuffled, and sparse ones not.
    """
    recompute_centroids(partition)
    mean = loss(partition) / partition.labels.size
    if mean == 0.0:
        return
    variances, neighbours = np.zeros(partition.sizes.size), partition.neighbours
    for cluster in range(variances.size):
        _update_variance(partition, cluster, variances)
    for _ in range(tries):
        i = int(random.random() * partition.labels.size)
        kind, nearness = random.random(), random.random()
        own = partition.labels[i]
        target = partition.labels[neighbours[i, int(neighbours.shape[1] * nearness * nearness)]]
        unit = np.sqrt(mean) * np.sqrt(0.5 * (variances[own] + variances[target]))  # one root could overflow
        limit = -np.log(1.0 - random.random()) * temperature * unit
        change = _try_change(partition, i, target, kind, limit, random)
        if change <= limit and are_allowed(partition):
            _accept(partition, variances)
        else:
            rollback(partition)


@njit_inline
def _try_change(
    partition: PartitionState, i: int, target: int, kind: float, limit: float, random: np.random.Generator
) -> float:
    """Try one kind of change for a record, perhaps with another cluster; return the change of the loss."""
    own = partition.labels[i]
    if kind < DISSOLVE_BELOW:
        return dissolve(partition, own)
    if kind < CREATE_BELOW:
        return create(partition, i)
    if own == target:
        return np.inf
    if kind < RELOCATE_BELOW:
        return _relocate(partition, i, target, limit)
    if kind < SWAP_BELOW:
        return _swap(partition, i, target, limit, random)
    return _exchange_cycle(partition, i, target, random)


@njit_inline
def _update_variance(partition: PartitionState, cluster: int, variances: Float64Vector) -> None:
    """Store the mean squared distance of the members of a cluster to its centroid."""
    total = 0.0
    for x in range(partition.sizes[cluster]):
        for j in range(partition.rows.shape[1]):
            away = partition.rows[member(partition, cluster, x), j] - partition.centroids[cluster, j]
            total += away * away
    variances[cluster] = total / max(partition.sizes[cluster], 1)


@njit_inner
def _accept(partition: PartitionState, variances: Float64Vector) -> None:
    """Update the variances of all clusters that the logged moves changed, and empty the log."""
    for x in range(partition.counters[MOVES]):
        _update_variance(partition, partition.moved[1, x], variances)
        _update_variance(partition, partition.labels[partition.moved[0, x]], variances)
    partition.counters[MOVES] = 0


@njit_inline
def _relocate(partition: PartitionState, i: int, target: int, limit: float) -> float:
    """Move a record if sizes and the limit allow it; return the change of the loss."""
    own = partition.labels[i]
    if partition.sizes[own] <= partition.counters[MIN_SIZE] or partition.sizes[target] >= partition.counters[MAX_SIZE]:
        return np.inf
    change = cost_to_join(partition, i, target) - gain_of_leaving(partition, i)
    if change <= limit:
        move_logged(partition, i, target)
    return change


@njit_inline
def _swap(partition: PartitionState, i: int, target: int, limit: float, random: np.random.Generator) -> float:
    """Swap a record with a random member of another cluster if the limit allows it; return the change of the loss."""
    own = partition.labels[i]
    other = member(partition, target, int(random.random() * partition.sizes[target]))
    change = cost_to_swap(partition, i, other)
    if change <= limit:
        move_logged(partition, i, target)
        move_logged(partition, other, own)
    return change


@njit_inner
def _exchange_cycle(partition: PartitionState, i: int, target: int, random: np.random.Generator) -> float:
    """Carry out a cyclic exchange, without its last move where the sizes allow it; return the change of the loss."""
    own = partition.labels[i]
    second = member(partition, target, int(random.random() * partition.sizes[target]))
    nearness = int(random.random() * partition.neighbours.shape[1])
    third = partition.labels[partition.neighbours[second, nearness]]
    if third in (own, target):
        return np.inf
    last = member(partition, third, int(random.random() * partition.sizes[third]))
    if _may_be_open(partition, own, third):
        last = NONE
    return _move_in_cycle(partition, i, gain_of_leaving(partition, i), ExchangeCycle(0.0, second, last, target, third))
