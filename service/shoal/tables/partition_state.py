"""A partition that can be changed record by record, the cost of each change in O(d), and a log to undo changes.

Costs are differences of distances to centroids, not of sums of squares, so nothing cancels far from the origin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.tables.constraints import NONE, ConstraintArrays, is_unconstrained, satisfies_constraints

__all__ = [
    "EMPTY_CLUSTERS",
    "MAX_SIZE",
    "MIN_SIZE",
    "PartitionState",
    "UndoLog",
    "are_allowed",
    "build_partition_state",
    "cost_to_join",
    "cost_to_swap",
    "empty_undo_log",
    "gain_of_leaving",
    "loss",
    "max_moves",
    "may_relocate",
    "may_swap",
    "member",
    "move",
    "move_logged",
    "recompute_centroids",
    "rollback",
    "satisfies",
    "squared_distance_to_centroid",
]

MIN_SIZE, MAX_SIZE, EMPTY_CLUSTERS = 0, 1, 2
"""Entries of `PartitionState.counters`."""
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
    counters: Int64Vector  # (3,): k, the size up to which clusters may grow, the number of empty clusters
    constraints: ConstraintArrays  # what clusters must satisfy besides their size


@njit
def build_partition_state(
    rows: Float64Matrix, labels: Int32Vector, k: int, constraints: ConstraintArrays
) -> PartitionState:
    """Return the state for the partition ``labels`` (n,) of ``rows`` (n, d).

    Clusters may grow to 2k - 1 records. Clusters that are larger from the start may only shrink.
    """
    n, d = rows.shape
    clusters = 0
    for label in labels:
        clusters = max(clusters, label + 1)
    sizes = np.zeros(max(clusters, n // k) + 1, np.int64)
    for label in labels:
        sizes[label] += 1
    starts = np.zeros(sizes.size + 1, np.int64)
    largest = 0
    for cluster in range(sizes.size):  # one more than its size: a swap adds the new member before it removes the old
        room = max(2 * k, sizes[cluster] + 1)
        starts[cluster + 1] = starts[cluster] + room
        largest = max(largest, room)
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
        np.zeros(3, np.int64),
        ConstraintArrays(
            constraints.subjects,
            constraints.max_share,
            constraints.rule,
            constraints.values,
            constraints.bins,
            constraints.buckets,
            np.zeros((3, largest + 1), np.int64),
            constraints.counts,
        ),
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
            partition.empty[partition.counters[EMPTY_CLUSTERS]] = cluster
            partition.counters[EMPTY_CLUSTERS] += 1
    recompute_centroids(partition)
    return partition


@njit_inline
def member(partition: PartitionState, cluster: int, x: int) -> int:
    """Return the x-th member of a cluster."""
    return int(partition.members[partition.starts[cluster] + x])


@njit_inline
def max_moves(partition: PartitionState) -> int:
    """Return an upper bound on the moves of one change: the size of the largest cluster plus one."""
    return int(partition.constraints.scratch.shape[1])


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
    first = partition.starts[cluster]
    members = partition.members[first : first + partition.sizes[cluster]]
    return satisfies_constraints(partition.constraints, members, leaving, joining, partition.counters[MIN_SIZE])


@njit_inline
def may_relocate(partition: PartitionState, i: int, cluster: int) -> bool:
    """Whether the constraints allow a record to move to another cluster."""
    if is_unconstrained(partition.constraints):
        return True
    return (
        partition.constraints.buckets.size == 0
        and satisfies(partition, partition.labels[i], i, NONE)
        and satisfies(partition, cluster, NONE, i)
    )


@njit_inline
def may_swap(partition: PartitionState, one: int, other: int) -> bool:
    """Whether the constraints allow two records of different clusters to be swapped."""
    if is_unconstrained(partition.constraints):
        return True
    buckets = partition.constraints.buckets
    return (
        (buckets.size == 0 or buckets[one] == buckets[other])
        and satisfies(partition, partition.labels[one], one, other)
        and satisfies(partition, partition.labels[other], other, one)
    )


class UndoLog(NamedTuple):
    """The moves of one change, oldest first."""

    records: Int64Vector  # (capacity,): the record of each move
    origins: Int64Vector  # (capacity,): the cluster that it was moved from
    size: Int64Vector  # (1,): number of moves


@njit_inner
def empty_undo_log(capacity: int) -> UndoLog:
    """Return an empty log with room for ``capacity`` moves."""
    return UndoLog(np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(1, np.int64))


@njit_inline
def move_logged(partition: PartitionState, log: UndoLog, i: int, cluster: int) -> None:
    """Move a record and log the move."""
    x = log.size[0]
    log.records[x], log.origins[x] = i, partition.labels[i]
    log.size[0] = x + 1
    move(partition, i, cluster)


@njit_inner
def rollback(partition: PartitionState, log: UndoLog) -> None:
    """Undo all moves of a log, the last one first, and empty the log."""
    while log.size[0] > 0:
        log.size[0] -= 1
        x = log.size[0]
        own = partition.labels[log.records[x]]
        if partition.sizes[own] == 1:  # the change created this cluster
            partition.empty[partition.counters[EMPTY_CLUSTERS]] = own
            partition.counters[EMPTY_CLUSTERS] += 1
        if partition.sizes[log.origins[x]] == 0:  # the change emptied that cluster
            partition.counters[EMPTY_CLUSTERS] -= 1
        move(partition, log.records[x], log.origins[x])


@njit_inner
def are_allowed(partition: PartitionState, log: UndoLog) -> bool:
    """Whether the constraints allow the logged moves.

    All clusters that were changed must satisfy them; with buckets, the moves must be a swap within one bucket.
    """
    if is_unconstrained(partition.constraints):
        return True
    buckets = partition.constraints.buckets
    if buckets.size > 0:
        one, other = log.records[0], log.records[1]
        if log.size[0] != SWAP_MOVES or buckets[one] != buckets[other]:
            return False
        if log.origins[0] != partition.labels[other] or log.origins[1] != partition.labels[one]:
            return False
    for x in range(log.size[0]):
        if not satisfies(partition, log.origins[x], NONE, NONE):
            return False
        if not satisfies(partition, partition.labels[log.records[x]], NONE, NONE):
            return False
    return True
