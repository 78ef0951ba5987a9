"""A partition that can be changed record by record, and what each change would cost, in O(d).

Costs are differences of distances to centroids, not of sums of squares: nothing cancels where records lie far out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.static.constraint_arrays import ConstraintArrays, admits, are_free

__all__ = [
    "MOST",
    "SMALLEST",
    "SPARES",
    "PartitionState",
    "cost_to_join",
    "cost_to_swap",
    "gain_of_leaving",
    "gather",
    "keeps",
    "loss",
    "may_relocate",
    "may_swap",
    "member",
    "move",
    "settle",
    "square",
    "widest",
]

NOBODY = -1

SMALLEST, MOST, SPARES = 0, 1, 2


class PartitionState(NamedTuple):
    """Which records are in which cluster, and where its centroid is."""

    rows: Float64Matrix  # (n, d), about the origin
    labels: Int64Vector  # (n,)
    places: Int64Vector  # (n,): of each record among the members of its cluster
    members: Int64Vector  # cluster after cluster, each with room to grow
    columns: Float64Matrix  # (d, as many as members): their coordinates, side by side for the vector unit
    firsts: Int64Vector  # (clusters + 1,): where the members of each begin
    sizes: Int64Vector  # (clusters,)
    centres: Float64Matrix  # (clusters, d)
    spares: Int64Vector  # (clusters,): numbers of empty clusters, a stack
    state: Int64Vector  # k, most records that a cluster may grow to, how many are spare
    terms: ConstraintArrays  # what else clusters must keep


@njit
def gather(rows: Float64Matrix, labels: Int32Vector, k: int, terms: ConstraintArrays) -> PartitionState:
    """Return the partition of ``labels``; clusters above 2k - 1 may shrink, none may grow beyond."""
    n, d = rows.shape
    clusters = 0
    for label in labels:
        clusters = max(clusters, label + 1)
    sizes = np.zeros(max(clusters, n // k) + 1, np.int64)
    for label in labels:
        sizes[label] += 1
    firsts = np.zeros(sizes.size + 1, np.int64)
    most = 0
    for cluster in range(sizes.size):  # one more than it may keep: a swap brings the new one before the old one goes
        room = max(2 * k, sizes[cluster] + 1)
        firsts[cluster + 1] = firsts[cluster] + room
        most = max(most, room)
    grouping = PartitionState(
        rows,
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(firsts[-1], np.int64),
        np.zeros((d, firsts[-1])),
        firsts,
        np.zeros(sizes.size, np.int64),
        np.zeros((sizes.size, d)),
        np.zeros(sizes.size, np.int64),
        np.zeros(3, np.int64),
        ConstraintArrays(
            terms.people,
            terms.share,
            terms.spectrum,
            terms.t,
            terms.buckets,
            np.zeros((2, most + 1), np.int64),
            terms.counts,
        ),
    )
    grouping.state[SMALLEST], grouping.state[MOST] = k, 2 * k - 1
    for i in range(n):
        label = labels[i]
        grouping.labels[i], grouping.places[i] = label, grouping.sizes[label]
        grouping.members[firsts[label] + grouping.sizes[label]] = i
        grouping.columns[:, firsts[label] + grouping.sizes[label]] = rows[i]
        grouping.sizes[label] += 1
    for cluster in range(sizes.size - 1, -1, -1):
        if sizes[cluster] == 0:
            grouping.spares[grouping.state[SPARES]] = cluster
            grouping.state[SPARES] += 1
    settle(grouping)
    return grouping


@njit_in_place
def member(grouping: PartitionState, cluster: int, x: int) -> int:
    """Return the x-th member of a cluster."""
    return int(grouping.members[grouping.firsts[cluster] + x])


@njit_in_place
def widest(grouping: PartitionState) -> int:
    """Return how many moves one change may take: the members of the largest cluster, and one."""
    return int(grouping.terms.scratch.shape[1])


@njit
def settle(grouping: PartitionState) -> None:
    """Compute all centroids anew: moving them along leaves a little rounding each time."""
    for cluster in range(grouping.sizes.size):
        size = grouping.sizes[cluster]
        for j in range(grouping.rows.shape[1]):
            total = 0.0
            for x in range(size):
                total += grouping.rows[member(grouping, cluster, x), j]
            grouping.centres[cluster, j] = total / max(size, 1)


@njit
def loss(grouping: PartitionState) -> float:
    """Return the sum of squared distances to the centroids."""
    total = 0.0
    for i in range(grouping.labels.size):
        total += _square(grouping.rows, i, grouping.centres, grouping.labels[i])
    return total


@njit_in_place
def _square(rows: Float64Matrix, row: int, others: Float64Matrix, other: int) -> float:
    total = 0.0
    for j in range(rows.shape[1]):
        away = rows[row, j] - others[other, j]
        total += away * away
    return total


@njit_in_place
def square(grouping: PartitionState, i: int, cluster: int) -> float:
    """Return the squared distance of a record from the centroid of a cluster."""
    return _square(grouping.rows, i, grouping.centres, cluster)


@njit_in_place
def move(grouping: PartitionState, i: int, cluster: int) -> None:
    """Take a record out of its cluster and put it into another."""
    own, place = grouping.labels[i], grouping.places[i]
    size = grouping.sizes[own] - 1
    start, end = grouping.firsts[own] + place, grouping.firsts[own] + size
    last = grouping.members[end]
    grouping.members[start] = last
    grouping.places[last] = place
    grouping.sizes[own] = size
    other_size = grouping.sizes[cluster] + 1
    new = grouping.firsts[cluster] + other_size - 1
    grouping.members[new] = i
    grouping.places[i] = other_size - 1
    grouping.labels[i] = cluster
    grouping.sizes[cluster] = other_size
    shrink, grow = 1.0 / max(size, 1), 1.0 / other_size
    for j in range(grouping.rows.shape[1]):
        value = grouping.rows[i, j]
        grouping.columns[j, start] = grouping.columns[j, end]
        grouping.columns[j, new] = value
        grouping.centres[own, j] -= (value - grouping.centres[own, j]) * shrink
        grouping.centres[cluster, j] += (value - grouping.centres[cluster, j]) * grow


@njit_in_place
def gain_of_leaving(grouping: PartitionState, i: int) -> float:
    """Return by how much the loss falls when a record leaves its cluster."""
    own = grouping.labels[i]
    size = grouping.sizes[own]
    return float(_square(grouping.rows, i, grouping.centres, own) * (size / max(size - 1, 1)))


@njit_in_place
def cost_to_join(grouping: PartitionState, i: int, cluster: int) -> float:
    """Return by how much the loss rises when a record joins another cluster."""
    size = grouping.sizes[cluster]
    return float(_square(grouping.rows, i, grouping.centres, cluster) * (size / (size + 1)))


@njit_in_place
def cost_to_swap(grouping: PartitionState, one: int, other: int) -> float:
    """Return by how much the loss rises when two records of different clusters change places."""
    own, its = grouping.labels[one], grouping.labels[other]
    weight = 1.0 / grouping.sizes[own] + 1.0 / grouping.sizes[its]
    total = 0.0
    for j in range(grouping.rows.shape[1]):
        way = grouping.rows[other, j] - grouping.rows[one, j]
        total += way * (2.0 * (grouping.centres[its, j] - grouping.centres[own, j]) - weight * way)
    return total


@njit_in_place
def keeps(grouping: PartitionState, cluster: int, leaving: int, joining: int) -> bool:
    """Whether a cluster keeps the terms without one of its members and with another record; -1 is nobody."""
    first = grouping.firsts[cluster]
    members = grouping.members[first : first + grouping.sizes[cluster]]
    return admits(grouping.terms, members, leaving, joining, grouping.state[SMALLEST])


@njit_in_place
def may_relocate(grouping: PartitionState, i: int, cluster: int) -> bool:
    """Whether the terms let a record move to another cluster."""
    if are_free(grouping.terms):
        return True
    return (
        grouping.terms.buckets.size == 0
        and keeps(grouping, grouping.labels[i], i, NOBODY)
        and keeps(grouping, cluster, NOBODY, i)
    )


@njit_in_place
def may_swap(grouping: PartitionState, one: int, other: int) -> bool:
    """Whether the terms let two records of different clusters change places."""
    if are_free(grouping.terms):
        return True
    buckets = grouping.terms.buckets
    return (
        (buckets.size == 0 or buckets[one] == buckets[other])
        and keeps(grouping, grouping.labels[one], one, other)
        and keeps(grouping, grouping.labels[other], other, one)
    )
