"""Simulated annealing of a partition: random changes among near neighbours; ones that raise the loss become rarer.

A rise of the loss is judged relative to the variance of the clusters that a change touches and to that of all. With one
temperature for all, dense regions would be shuffled while sparse regions hardly change.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Vector, Int32Matrix
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.tables.descent import create, dissolve
from shoal.tables.partition_state import (
    MAX_SIZE,
    MIN_SIZE,
    PartitionState,
    UndoLog,
    are_allowed,
    cost_to_join,
    cost_to_swap,
    empty_undo_log,
    gain_of_leaving,
    loss,
    max_moves,
    member,
    move_logged,
    recompute_centroids,
    rollback,
)

__all__ = ["anneal"]

DISSOLVE, CREATE, RELOCATE, SWAP = 0.02, 0.06, 0.3, 0.92
"""Upper ends of the ranges of a random number from 0 to 1 that select each kind of change; above: a cyclic exchange."""


@njit
def anneal(
    partition: PartitionState,
    neighbours: Int32Matrix,
    tries: int,
    temperature: float,
    random: np.random.Generator,
) -> None:
    """Try random changes at one temperature (Metropolis); the partition is changed in place.

    Parameters
    ----------
    partition : PartitionState
        It satisfies its constraints, and does so afterwards.
    neighbours : ndarray of int32, shape (n, m)
        Nearest neighbours of each record, the nearest first; nearer ones are drawn more often.
    tries : int
        Changes to try.
    temperature : float
        A rise of the loss by this much is accepted with probability 1 / e. The unit is the geometric mean of the
        variance within all clusters and that within the two clusters touched.
    random : numpy.random.Generator
        Source of all draws.
    """
    recompute_centroids(partition)
    mean = loss(partition) / partition.labels.size
    if mean == 0.0:
        return
    variances, log = np.zeros(partition.sizes.size), empty_undo_log(max_moves(partition))
    for cluster in range(variances.size):
        _update_variance(partition, cluster, variances)
    for _ in range(tries):
        i = int(random.random() * partition.labels.size)
        kind, nearness = random.random(), random.random()
        own = partition.labels[i]
        target = partition.labels[neighbours[i, int(neighbours.shape[1] * nearness * nearness)]]
        unit = np.sqrt(mean) * np.sqrt(0.5 * (variances[own] + variances[target]))  # one root could overflow
        limit = -np.log(1.0 - random.random()) * temperature * unit
        if kind < DISSOLVE:
            change = dissolve(partition, neighbours, own, log)
        elif kind < CREATE:
            change = create(partition, neighbours, i, log)
        elif own != target:
            change = _exchange(partition, neighbours, i, target, kind, limit, log, random)
        else:
            continue
        if change <= limit and are_allowed(partition, log):
            _accept(partition, log, variances)
        else:
            rollback(partition, log)


@njit_inline
def _exchange(
    partition: PartitionState,
    neighbours: Int32Matrix,
    i: int,
    target: int,
    kind: float,
    limit: float,
    log: UndoLog,
    random: np.random.Generator,
) -> float:
    """Try one kind of change between a record and another cluster; return the change of the loss."""
    if kind < RELOCATE:
        return _relocate(partition, i, target, limit, log)
    if kind < SWAP:
        return _swap(partition, i, target, limit, log, random)
    return _exchange_cycle(partition, neighbours, i, target, log, random)


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
def _accept(partition: PartitionState, log: UndoLog, variances: Float64Vector) -> None:
    """Update the variances of all clusters that the logged moves changed, and empty the log."""
    for x in range(log.size[0]):
        _update_variance(partition, log.origins[x], variances)
        _update_variance(partition, partition.labels[log.records[x]], variances)
    log.size[0] = 0


@njit_inline
def _relocate(partition: PartitionState, i: int, target: int, limit: float, log: UndoLog) -> float:
    """Move a record if sizes and the limit allow it; return the change of the loss."""
    own = partition.labels[i]
    if partition.sizes[own] <= partition.counters[MIN_SIZE] or partition.sizes[target] >= partition.counters[MAX_SIZE]:
        return np.inf
    change = cost_to_join(partition, i, target) - gain_of_leaving(partition, i)
    if change <= limit:
        move_logged(partition, log, i, target)
    return change


@njit_inline
def _swap(
    partition: PartitionState, i: int, target: int, limit: float, log: UndoLog, random: np.random.Generator
) -> float:
    """Swap a record with a random member of another cluster if the limit allows it; return the change of the loss."""
    own = partition.labels[i]
    other = member(partition, target, int(random.random() * partition.sizes[target]))
    change = cost_to_swap(partition, i, other)
    if change <= limit:
        move_logged(partition, log, i, target)
        move_logged(partition, log, other, own)
    return change


@njit_inner
def _exchange_cycle(
    partition: PartitionState,
    neighbours: Int32Matrix,
    i: int,
    target: int,
    log: UndoLog,
    random: np.random.Generator,
) -> float:
    """Move a record to another cluster, a member of that to a third, and a member of the third to the first.

    The last move is left out where the sizes allow it. Return the change of the loss.
    """
    own = partition.labels[i]
    second = member(partition, target, int(random.random() * partition.sizes[target]))
    third = partition.labels[neighbours[second, int(random.random() * neighbours.shape[1])]]
    if third in (own, target):
        return np.inf
    last = member(partition, third, int(random.random() * partition.sizes[third]))
    is_closed = (
        partition.sizes[own] <= partition.counters[MIN_SIZE] or partition.sizes[third] >= partition.counters[MAX_SIZE]
    )
    change = cost_to_join(partition, i, target) - gain_of_leaving(partition, i)
    move_logged(partition, log, i, target)
    change += cost_to_join(partition, second, third) - gain_of_leaving(partition, second)
    move_logged(partition, log, second, third)
    if is_closed:
        change += cost_to_join(partition, last, own) - gain_of_leaving(partition, last)
        move_logged(partition, log, last, own)
    return change
