"""Descent: change a partition among near neighbours until no change that is tried lowers the loss.

The changes are: one record relocates, two records swap, a cluster is dissolved into its neighbours, a cluster is
created around a record, and three clusters exchange records in a cycle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolMatrix, BoolVector, Float64Vector, Int32Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_inline, njit_inner
from shoal.clustering.static.constraints import NONE
from shoal.clustering.static.cyclic_exchange import (
    ExchangeCosts,
    cyclic_exchange,
    empty_exchange_costs,
    reset_exchange_costs,
    update_leaving_gains,
)
from shoal.clustering.static.partition_state import (
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

__all__ = ["MIN_RELATIVE_GAIN", "create", "descend", "dissolve"]

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
