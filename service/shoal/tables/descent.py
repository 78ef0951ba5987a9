"""Descent: change a partition among near neighbours until no change that is tried lowers the loss.

The changes are: one record relocates, two records swap, a cluster is dissolved into its neighbours, a cluster is
created around a record, and three clusters exchange records in a cycle.

Cyclic exchange: a record moves to a second cluster, one of that to a third, and one of the third to the first.

All sizes stay as they are, so an exchange remains possible where k and 2k - 1 forbid a relocation. Where both sizes
allow it, the last move is left out. If a cycle has a gain, it can be started at a record from which every partial sum
is a gain; so only partial cycles with a gain are extended.

Descent with all squared distances in memory: each change is evaluated in a few operations.

Let S(i, c) be the sum of the squared distances of record i from the members of cluster c, and W(c) the sum of S(i, c)
over these members. The loss of c is W(c) / (2 size). The change of the loss by a relocation or a swap follows from S, W
and one distance; carrying a change out costs O(n). For a few hundred records this is several times faster than
`descent`. It ends in the same kind of local optimum: no relocation, swap or new cluster lowers the loss, and neither
does a dissolved cluster whose members join others one by one. Cyclic exchanges are not tried.

Most swaps need not be evaluated. A swap of i in cluster a with o in cluster c (sizes |a|, |c|) changes the loss by

    S(i, c)/|c| - S(i, a)/|a|  +  S(o, a)/|a| - S(o, c)/|c|  -  (1/|a| + 1/|c|) times the squared distance of i and o.

The second part is at least its minimum over the members of c, which is kept for each pair of clusters; the third is at
most its value for the farthest member. If this bound shows no gain, no swap of i with a member of c has one. A record
is compared with a cluster again only after one of the two clusters has changed.
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
from shoal.tables.constraints import NONE, subject_violation
from shoal.tables.partition_state import (
    EMPTY_CLUSTERS,
    MAX_SIZE,
    MIN_SIZE,
    PartitionState,
    UndoLog,
    are_allowed,
    cost_to_join,
    empty_undo_log,
    gain_of_leaving,
    loss,
    max_moves,
    may_relocate,
    may_swap,
    member,
    move,
    move_logged,
    recompute_centroids,
    rollback,
    satisfies,
    squared_distance_to_centroid,
)

__all__ = [
    "DENSE_UP_TO",
    "MIN_RELATIVE_GAIN",
    "NO_SUBJECTS",
    "ROUNDS",
    "ExchangeCosts",
    "create",
    "cyclic_exchange",
    "descend",
    "descend_dense",
    "dissolve",
    "empty_exchange_costs",
    "pair_squares",
    "reset_exchange_costs",
    "update_leaving_gains",
]

THIRD_NEIGHBOURS = 5
"""Nearest neighbours of the second record whose clusters may be the third."""


class ExchangeCosts(NamedTuple):
    """Costs that several cycles share."""

    leaving_gains: Float64Vector  # (n,): by how much the loss falls when a record leaves its cluster
    closing_costs: Float64Vector  # (clusters,): least cost for a member to join the first cluster of the cycle
    closing_records: Int64Vector  # (clusters,): that member
    closed_for: Int64Vector  # (clusters,): first record of the cycle for which the two were computed


class ExchangeCycle(NamedTuple):
    """A cycle and its estimated change of the loss; ``last`` is -1 where the last move is left out."""

    change: float
    second: int
    last: int
    second_cluster: int
    third_cluster: int


@njit_inner
def cyclic_exchange(
    partition: PartitionState,
    neighbours: Int32Matrix,
    i: int,
    visited_for: Int64Vector,
    log: UndoLog,
    costs: ExchangeCosts,
    min_gain: float,
) -> bool:
    """Carry out the best cycle that starts with a record, if the loss falls by more than ``min_gain``.

    The three moves are chosen as if each were alone; their joint change is computed while they are carried out.

    Parameters
    ----------
    partition : PartitionState
        Changed in place.
    neighbours : ndarray of int32, shape (n, m)
        Nearest neighbours of each record, the nearest first.
    i : int
        The first record of the cycle.
    visited_for : ndarray of int64, shape (clusters,)
        Scratch: the last record for which a cluster was tried as the second one.
    log : UndoLog
        Empty; holds the moves afterwards if the result is true.
    costs : ExchangeCosts
        Up to date for this partition.
    min_gain : float
        Smallest gain that counts.

    Returns
    -------
    bool
        Whether a cycle was carried out.
    """
    own = partition.labels[i]
    gain = costs.leaving_gains[i]
    best = ExchangeCycle(-min_gain, NONE, NONE, NONE, NONE)
    visited_for[own] = i
    for neighbour in neighbours[i]:
        target = partition.labels[neighbour]
        if visited_for[target] == i:
            continue
        visited_for[target] = i
        first = cost_to_join(partition, i, target) - gain
        if first < 0.0:
            for x in range(partition.sizes[target]):
                best = _best_extension(partition, neighbours, costs, i, first, member(partition, target, x), best)
    if best.second == NONE:
        return False
    change = cost_to_join(partition, i, best.second_cluster) - gain
    move_logged(partition, log, i, best.second_cluster)
    change += cost_to_join(partition, best.second, best.third_cluster) - gain_of_leaving(partition, best.second)
    move_logged(partition, log, best.second, best.third_cluster)
    if best.last != NONE:
        change += cost_to_join(partition, best.last, own) - gain_of_leaving(partition, best.last)
        move_logged(partition, log, best.last, own)
    if change < -min_gain and are_allowed(partition, log):
        return True
    rollback(partition, log)
    return False


@njit_inline
def _best_extension(
    partition: PartitionState,
    neighbours: Int32Matrix,
    costs: ExchangeCosts,
    i: int,
    first: float,
    second: int,
    best: ExchangeCycle,
) -> ExchangeCycle:
    """Return the best of a cycle and the cycles whose second record is ``second``; ``first`` is the first change."""
    own, second_cluster = partition.labels[i], partition.labels[second]
    gain = costs.leaving_gains[second]
    previous = NONE
    for x in range(min(THIRD_NEIGHBOURS, neighbours.shape[1])):
        third = partition.labels[neighbours[second, x]]
        if third in (own, second_cluster, previous):
            continue
        previous = third
        so_far = first + cost_to_join(partition, second, third) - gain
        if so_far >= 0.0:
            continue
        if (
            partition.sizes[own] > partition.counters[MIN_SIZE]
            and partition.sizes[third] < partition.counters[MAX_SIZE]
        ):
            if so_far < best.change:
                best = ExchangeCycle(so_far, second, NONE, second_cluster, third)
            continue
        if costs.closed_for[third] != i:
            costs.closed_for[third] = i
            _find_closing_record(partition, costs, own, third)
        if so_far + costs.closing_costs[third] < best.change:
            best = ExchangeCycle(
                so_far + costs.closing_costs[third], second, costs.closing_records[third], second_cluster, third
            )
    return best


@njit_inline
def _find_closing_record(partition: PartitionState, costs: ExchangeCosts, own: int, third: int) -> None:
    """Find the member of the third cluster that joins the first cluster at the least cost."""
    costs.closing_costs[third], costs.closing_records[third] = np.inf, NONE
    for x in range(partition.sizes[third]):
        last = member(partition, third, x)
        change = cost_to_join(partition, last, own) - costs.leaving_gains[last]
        if change < costs.closing_costs[third]:
            costs.closing_costs[third], costs.closing_records[third] = change, last


@njit_inner
def empty_exchange_costs(n: int, clusters: int) -> ExchangeCosts:
    """Return costs for n records, still to be computed by `reset_exchange_costs`."""
    return ExchangeCosts(np.zeros(n), np.zeros(clusters), np.full(clusters, NONE), np.full(clusters, NONE))


@njit_inner
def reset_exchange_costs(partition: PartitionState, costs: ExchangeCosts) -> None:
    """Compute the gains of all records, and mark all closing costs as not computed."""
    costs.closed_for.fill(NONE)
    for cluster in range(partition.sizes.size):
        update_leaving_gains(partition, costs, cluster)


@njit_inline
def update_leaving_gains(partition: PartitionState, costs: ExchangeCosts, cluster: int) -> None:
    """Compute the gains of the members of a cluster that has changed."""
    for x in range(partition.sizes[cluster]):
        i = member(partition, cluster, x)
        costs.leaving_gains[i] = gain_of_leaving(partition, i)


SINGLE, CREATE, CYCLE = 0, 1, 2
"""Kinds of changes that are tried for a record: relocation and swap, a cluster around it, a cyclic exchange."""
SUM_ERROR = 1.0 + 1e-9
"""Factor that covers the rounding of a sum."""
MIN_RELATIVE_GAIN = 1e-10
"""Smallest gain that counts, relative to the mean loss of a record. Without it, changes among equal records, whose gain
is rounding, would never end."""


class Worklist(NamedTuple):
    """What has changed since it was last tried, and scratch arrays."""

    pending: BoolMatrix  # (3, n): whether the cluster of a record has changed since each kind was tried for it
    changed: BoolVector  # (clusters,): whether a cluster has changed since it was tried to dissolve it
    visited_for: Int64Vector  # (clusters,): the last record for which a cluster was tried
    log: UndoLog
    swap_costs: Float64Vector  # (largest cluster,): cost of a swap with each of its members
    exchange_costs: ExchangeCosts


@njit
def descend(partition: PartitionState, neighbours: Int32Matrix, rounds: int) -> None:
    """Change a partition in place until no change that is tried lowers the loss, or for ``rounds`` rounds.

    Parameters
    ----------
    partition : PartitionState
        It satisfies its constraints, and does so afterwards.
    neighbours : ndarray of int32, shape (n, m)
        Nearest neighbours of each record, the nearest first; only their clusters are tried.
    rounds : int
        Rounds at most.

    Notes
    -----
    Cost: O(m d) to try a relocation, O(m k d) to try the swaps of a record, per round only for records whose clusters
    have changed.
    """
    n, clusters = partition.labels.size, partition.sizes.size
    min_gain = MIN_RELATIVE_GAIN * loss(partition) / n
    work = Worklist(
        np.ones((3, n), np.bool_),
        np.ones(clusters, np.bool_),
        np.full(clusters, NONE),
        empty_undo_log(max_moves(partition)),
        np.zeros(max_moves(partition)),
        empty_exchange_costs(n, clusters),
    )
    for _ in range(rounds):
        changes = 0
        work.visited_for.fill(NONE)
        for i in range(n):
            if work.pending[SINGLE, i]:
                work.pending[SINGLE, i] = False
                changes += _relocate_or_swap(partition, neighbours, i, work, min_gain)
        changes += _dissolve_and_create(partition, neighbours, work, min_gain)
        if changes == 0:
            changes = _exchange_cycles(partition, neighbours, work, min_gain)
        if changes == 0:
            return
        recompute_centroids(partition)


@njit_inline
def _relocate_or_swap(
    partition: PartitionState, neighbours: Int32Matrix, i: int, work: Worklist, min_gain: float
) -> int:
    """Carry out the best relocation or swap of a record, if one gains enough; return 1 if so, else 0."""
    own = partition.labels[i]
    best, partner, target = -min_gain, NONE, NONE
    may_leave = partition.sizes[own] > partition.counters[MIN_SIZE]
    gain = gain_of_leaving(partition, i) if may_leave else 0.0
    work.visited_for[own] = i
    for neighbour in neighbours[i]:
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
    """Return the change of the best swap with a member of another cluster, and that member.

    Without a swap below ``limit``, return the limit and -1. Costs are those of `cost_to_swap`, computed for all members
    at once.
    """
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


@njit_inner
def _dissolve_and_create(partition: PartitionState, neighbours: Int32Matrix, work: Worklist, min_gain: float) -> int:
    """Dissolve clusters and create clusters where it gains enough; return the number of changes."""
    changes, log = 0, work.log
    for cluster in range(partition.sizes.size):
        if work.changed[cluster] and partition.sizes[cluster] > 0:
            work.changed[cluster] = False
            change = dissolve(partition, neighbours, cluster, log, 0.0)
            if change < -min_gain and are_allowed(partition, log):
                changes += 1
                _mark_moved(partition, work)
            else:
                rollback(partition, log)
    for i in range(partition.labels.size):
        if work.pending[CREATE, i]:
            work.pending[CREATE, i] = False
            if not _may_create(partition, neighbours, i):
                continue
            if create(partition, neighbours, i, log) < -min_gain and are_allowed(partition, log):
                changes += 1
                _mark_moved(partition, work)
            else:
                rollback(partition, log)
    return changes


@njit_inner
def _exchange_cycles(partition: PartitionState, neighbours: Int32Matrix, work: Worklist, min_gain: float) -> int:
    """Carry out cyclic exchanges where they gain enough; return their number."""
    changes = 0
    work.visited_for.fill(NONE)
    reset_exchange_costs(partition, work.exchange_costs)
    for i in range(partition.labels.size):
        if work.pending[CYCLE, i]:
            work.pending[CYCLE, i] = False
            if cyclic_exchange(partition, neighbours, i, work.visited_for, work.log, work.exchange_costs, min_gain):
                changes += 1
                _update_moved_gains(partition, work)
                _mark_moved(partition, work)
    return changes


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
    log = work.log
    for x in range(log.size[0]):
        _mark_changed(partition, log.origins[x], work)
        _mark_changed(partition, partition.labels[log.records[x]], work)
    log.size[0] = 0


@njit_inner
def _update_moved_gains(partition: PartitionState, work: Worklist) -> None:
    """Update the leaving gains in all clusters that the logged moves changed."""
    log = work.log
    for x in range(log.size[0]):
        update_leaving_gains(partition, work.exchange_costs, log.origins[x])
        update_leaving_gains(partition, work.exchange_costs, partition.labels[log.records[x]])


@njit_inner
def dissolve(
    partition: PartitionState, neighbours: Int32Matrix, cluster: int, log: UndoLog, limit: float = np.inf
) -> float:
    """Move each member of a cluster to the cheapest cluster among those of its neighbours.

    Return the change of the loss; infinity if a member finds no cluster, or as soon as the change cannot be below
    ``limit``. That is known early because joining never has a negative cost, and the members' leaving gains no more
    than the loss of the cluster. The moves are logged, in all cases.
    """
    total, left = 0.0, limit
    for x in range(partition.sizes[cluster]):
        left += squared_distance_to_centroid(partition, member(partition, cluster, x), cluster) * SUM_ERROR
    while partition.sizes[cluster] > 0:
        i = member(partition, cluster, partition.sizes[cluster] - 1)
        best, target, previous = np.inf, NONE, NONE
        for neighbour in neighbours[i]:
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
        move_logged(partition, log, i, target)
    partition.empty[partition.counters[EMPTY_CLUSTERS]] = cluster
    partition.counters[EMPTY_CLUSTERS] += 1
    return total


@njit_inline
def _may_create(partition: PartitionState, neighbours: Int32Matrix, i: int) -> bool:
    """Whether enough neighbours of a record are in clusters above k; each is counted, even several of one cluster."""
    k = partition.counters[MIN_SIZE]
    if partition.counters[EMPTY_CLUSTERS] == 0 or partition.sizes[partition.labels[i]] <= k:
        return False
    missing = k - 1
    for neighbour in neighbours[i]:
        missing -= partition.sizes[partition.labels[neighbour]] > k
    return bool(missing <= 0)


@njit_inner
def create(partition: PartitionState, neighbours: Int32Matrix, i: int, log: UndoLog) -> float:
    """Create a cluster of a record and its k - 1 nearest neighbours from clusters above k.

    Return the change of the loss; infinity if there are too few such neighbours. The moves are logged, in both cases.
    """
    k = partition.counters[MIN_SIZE]
    if partition.counters[EMPTY_CLUSTERS] == 0 or partition.sizes[partition.labels[i]] <= k:
        return np.inf
    partition.counters[EMPTY_CLUSTERS] -= 1
    cluster = partition.empty[partition.counters[EMPTY_CLUSTERS]]
    total = -gain_of_leaving(partition, i)
    move_logged(partition, log, i, cluster)
    for neighbour in neighbours[i]:
        if partition.sizes[cluster] == k:
            return total
        if partition.labels[neighbour] != cluster and partition.sizes[partition.labels[neighbour]] > k:
            total += cost_to_join(partition, neighbour, cluster) - gain_of_leaving(partition, neighbour)
            move_logged(partition, log, neighbour, cluster)
    return total if partition.sizes[cluster] == k else np.inf


DENSE_UP_TO = 256
"""Records up to which computing all distances is faster than searching for neighbours."""
ROUNDS = 100
"""Rounds of descent at most; descent ends long before."""


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


NO_SUBJECTS = np.zeros(0, np.int64)
"""Every record has a subject of its own."""


@njit
def descend_dense(
    squares: Float64Matrix,
    labels: Int32Vector,
    k: int,
    rounds: int,
    subjects: Int64Vector,
    max_share: float,
) -> Int32Vector:
    """Return a partition whose loss no change that is tried lowers, or the one reached after ``rounds`` rounds.

    Parameters
    ----------
    squares : ndarray of float64, shape (n, n)
        Squared distances between the records, as of `pair_squares`; not modified.
    labels : ndarray of int32, shape (n,)
        The partition to start from: clusters of k or more, numbered from 0; not modified.
    k : int
        Smallest cluster; no cluster grows beyond 2k - 1.
    rounds : int
        Rounds at most.
    subjects : ndarray of int64, shape (n,)
        Subject of each record, from 0. Clusters of the start must then have k subjects, none with more than
        ``max_share`` of the records. `NO_SUBJECTS` if each record has a subject of its own.
    max_share : float
        Largest share of one subject in a cluster.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record; numbers may be left unused.

    Notes
    -----
    Guarantee: clusters of k or more records and, where subjects are given, of k subjects, none above its share; and no
    loss above that of the start, up to rounding. With subjects no cluster is dissolved or created.
    Cost: O(n²) to start, O(n) per change; O(n²) memory.
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
    """Return the state for a partition ``labels`` (n,) of records with the squared distances ``squares`` (n, n)."""
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
    """Write the squared distances (n, n) between the records of ``columns`` (d, n).

    Two attributes per pass halve the memory traffic.
    """
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
    """Append a record to the members of a cluster."""
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
    """Return the loss of one cluster."""
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
    """Move a record to another cluster. O(n)."""
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
    """Return the change of the best relocation or swap of a record into another cluster, and the partner of the swap.

    The partner is -1 for a relocation. Without a change below ``limit``, the change returned is the limit.
    """
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
    """Save the labels, for `_rollback`."""
    for x in range(state.labels.size):
        state.saved_labels[x] = state.labels[x]


@njit_inline
def _rollback(state: DenseDescentState) -> None:
    """Move all records back to the clusters of the saved labels."""
    for x in range(state.labels.size):
        if state.labels[x] != state.saved_labels[x]:
            _move(state, x, state.saved_labels[x])
