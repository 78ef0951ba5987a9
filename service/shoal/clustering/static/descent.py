"""Descent: change a partition for the better among near neighbours until no change tried makes it better.

Changes are: a record relocates, two swap, a cluster is dissolved into its neighbours, a new one is created round a
record, three clusters pass a record on in a ring.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolMatrix, BoolVector, Float64Vector, Int32Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.static.cyclic_exchange import Gains, cyclic_exchange, empty_gains, weigh, weigh_all
from shoal.clustering.static.partition_state import (
    MOST,
    SMALLEST,
    SPARES,
    PartitionState,
    cost_to_join,
    gain_of_leaving,
    keeps,
    loss,
    may_relocate,
    may_swap,
    member,
    move,
    settle,
    square,
    widest,
)
from shoal.clustering.static.undo_log import UndoLog, are_kept, empty_undo_log, rollback, step

__all__ = ["NOBODY", "WORTHWHILE", "create", "descend", "dissolve"]

NOBODY = -1
ALONE, NEW, RING = 0, 1, 2
"""What is tried with a record: relocation and swap, a cluster of its own, a ring."""
ROUNDING = 1.0 + 1e-9
"""What sums may be off by."""
WORTHWHILE = 1e-10
"""Of the mean loss of a record: what a change must gain. Records of equal values would go round in circles."""


class Agenda(NamedTuple):
    """What has changed since it was last looked at, and scratch."""

    waiting: BoolMatrix  # (3, n): records in a cluster that has changed since this was tried with them
    fresh: BoolVector  # (clusters,): clusters that have changed
    stamps: Int64Vector  # (clusters,): the last record that has asked this cluster
    trail: UndoLog
    swaps: Float64Vector  # what a swap with each member of a cluster changes
    gains: Gains  # of leaving, while rings are tried


@njit
def descend(grouping: PartitionState, neighbours: Int32Matrix, rounds: int) -> None:
    """Change the partition until nothing is gained, or for so many rounds."""
    n, clusters = grouping.labels.size, grouping.sizes.size
    worthwhile = WORTHWHILE * loss(grouping) / n
    agenda = Agenda(
        np.ones((3, n), np.bool_),
        np.ones(clusters, np.bool_),
        np.full(clusters, NOBODY),
        empty_undo_log(widest(grouping)),
        np.zeros(widest(grouping)),
        empty_gains(n, clusters),
    )
    for _ in range(rounds):
        changes = 0
        agenda.stamps.fill(NOBODY)
        for i in range(n):
            if agenda.waiting[ALONE, i]:
                agenda.waiting[ALONE, i] = False
                changes += _improve(grouping, neighbours, i, agenda, worthwhile)
        changes += _rebuild(grouping, neighbours, agenda, worthwhile)
        if changes == 0:
            changes = _pass_on(grouping, neighbours, agenda, worthwhile)
        if changes == 0:
            return
        settle(grouping)


@njit_in_place
def _improve(grouping: PartitionState, neighbours: Int32Matrix, i: int, agenda: Agenda, worthwhile: float) -> int:
    """Do the best relocation or swap of a record, if there is one that pays; return whether there was."""
    own = grouping.labels[i]
    best, partner, target = -worthwhile, NOBODY, NOBODY
    may_leave = grouping.sizes[own] > grouping.state[SMALLEST]
    gain = gain_of_leaving(grouping, i) if may_leave else 0.0
    agenda.stamps[own] = i
    for neighbour in neighbours[i]:
        cluster = grouping.labels[neighbour]
        if agenda.stamps[cluster] == i:
            continue
        agenda.stamps[cluster] = i
        if may_leave and grouping.sizes[cluster] < grouping.state[MOST]:
            change = cost_to_join(grouping, i, cluster) - gain
            if change < best and may_relocate(grouping, i, cluster):
                best, partner, target = change, NOBODY, cluster
        change, other = _best_swap(grouping, i, cluster, best, agenda.swaps)
        if other != NOBODY:
            best, partner, target = change, other, cluster
    if target == NOBODY:
        return 0
    move(grouping, i, target)
    if partner != NOBODY:
        move(grouping, partner, own)
    _wake(grouping, own, agenda)
    _wake(grouping, target, agenda)
    return 1


@njit_in_place
def _best_swap(grouping: PartitionState, i: int, cluster: int, limit: float, swaps: Float64Vector) -> tuple[float, int]:
    """Return the change of the best swap with a member of another cluster, and with which; nobody from ``limit`` on.

    The changes are those of `cost_to_swap`, side by side for all members.
    """
    best, partner, own, size = limit, NOBODY, grouping.labels[i], grouping.sizes[cluster]
    first, weight, changes = grouping.firsts[cluster], 1.0 / grouping.sizes[own] + 1.0 / size, swaps[:size]
    changes[:] = 0.0
    for j in range(grouping.rows.shape[1]):
        slope, its = 2.0 * (grouping.centres[cluster, j] - grouping.centres[own, j]), grouping.rows[i, j]
        column = grouping.columns[j, first : first + size]
        for x in range(size):
            way = column[x] - its
            changes[x] += way * (slope - weight * way)
    for x in range(size):
        if changes[x] < best and may_swap(grouping, i, member(grouping, cluster, x)):
            best, partner = changes[x], member(grouping, cluster, x)
    return best, partner


@njit
def _rebuild(grouping: PartitionState, neighbours: Int32Matrix, agenda: Agenda, worthwhile: float) -> int:
    """Dissolve clusters and create clusters where it pays; return how often it did."""
    changes, trail = 0, agenda.trail
    for cluster in range(grouping.sizes.size):
        if agenda.fresh[cluster] and grouping.sizes[cluster] > 0:
            agenda.fresh[cluster] = False
            change = dissolve(grouping, neighbours, cluster, trail, 0.0)
            if change < -worthwhile and are_kept(grouping, trail):
                changes += 1
                _wake_moved(grouping, agenda)
            else:
                rollback(grouping, trail)
    for i in range(grouping.labels.size):
        if agenda.waiting[NEW, i]:
            agenda.waiting[NEW, i] = False
            if not _may_create(grouping, neighbours, i):
                continue
            if create(grouping, neighbours, i, trail) < -worthwhile and are_kept(grouping, trail):
                changes += 1
                _wake_moved(grouping, agenda)
            else:
                rollback(grouping, trail)
    return changes


@njit
def _pass_on(grouping: PartitionState, neighbours: Int32Matrix, agenda: Agenda, worthwhile: float) -> int:
    """Turn rings where it pays; return how often it did."""
    changes = 0
    agenda.stamps.fill(NOBODY)
    weigh_all(grouping, agenda.gains)
    for i in range(grouping.labels.size):
        if agenda.waiting[RING, i]:
            agenda.waiting[RING, i] = False
            if cyclic_exchange(grouping, neighbours, i, agenda.stamps, agenda.trail, agenda.gains, worthwhile):
                changes += 1
                _weigh_moved(grouping, agenda)
                _wake_moved(grouping, agenda)
    return changes


@njit_in_place
def _wake(grouping: PartitionState, cluster: int, agenda: Agenda) -> None:
    """Remember that a cluster has changed."""
    agenda.fresh[cluster] = True
    for x in range(grouping.sizes[cluster]):
        for kind in range(agenda.waiting.shape[0]):
            agenda.waiting[kind, member(grouping, cluster, x)] = True


@njit
def _weigh_moved(grouping: PartitionState, agenda: Agenda) -> None:
    trail = agenda.trail
    for x in range(trail.steps[0]):
        weigh(grouping, agenda.gains, trail.clusters[x])
        weigh(grouping, agenda.gains, grouping.labels[trail.records[x]])


@njit
def _wake_moved(grouping: PartitionState, agenda: Agenda) -> None:
    """Remember which clusters have changed, and forget the trail."""
    trail = agenda.trail
    for x in range(trail.steps[0]):
        _wake(grouping, trail.clusters[x], agenda)
        _wake(grouping, grouping.labels[trail.records[x]], agenda)
    trail.steps[0] = 0


@njit
def dissolve(
    grouping: PartitionState, neighbours: Int32Matrix, cluster: int, trail: UndoLog, limit: float = np.inf
) -> float:
    """Move all members to clusters near them, each to the cheapest; return the change, infinite if one finds none.

    It is infinite, too, as soon as it is clear that it cannot be below the limit: what joining costs is never negative,
    and all that leaving gains is the loss of the cluster.
    """
    total, left = 0.0, limit
    for x in range(grouping.sizes[cluster]):
        left += square(grouping, member(grouping, cluster, x), cluster) * ROUNDING
    while grouping.sizes[cluster] > 0:
        i = member(grouping, cluster, grouping.sizes[cluster] - 1)
        best, target, asked = np.inf, NOBODY, NOBODY
        for neighbour in neighbours[i]:
            other = grouping.labels[neighbour]
            if other in (cluster, asked):
                continue
            asked = other
            if grouping.sizes[other] < grouping.state[MOST]:
                cost = cost_to_join(grouping, i, other)
                if cost < best and keeps(grouping, other, NOBODY, i):
                    best, target = cost, other
        if target == NOBODY or left < best:
            return np.inf
        left -= best
        total += best - gain_of_leaving(grouping, i) * (grouping.sizes[cluster] > 1)
        step(grouping, trail, i, target)
    grouping.spares[grouping.state[SPARES]] = cluster
    grouping.state[SPARES] += 1
    return total


@njit_in_place
def _may_create(grouping: PartitionState, neighbours: Int32Matrix, i: int) -> bool:
    """Whether enough of a record's neighbours can be spared, if each cluster could spare any number."""
    k = grouping.state[SMALLEST]
    if grouping.state[SPARES] == 0 or grouping.sizes[grouping.labels[i]] <= k:
        return False
    missing = k - 1
    for neighbour in neighbours[i]:
        missing -= grouping.sizes[grouping.labels[neighbour]] > k
    return bool(missing <= 0)


@njit
def create(grouping: PartitionState, neighbours: Int32Matrix, i: int, trail: UndoLog) -> float:
    """Make a cluster of a record and its nearest that can be spared; return the change, infinite if too few."""
    if grouping.state[SPARES] == 0 or grouping.sizes[grouping.labels[i]] <= grouping.state[SMALLEST]:
        return np.inf
    grouping.state[SPARES] -= 1
    cluster = grouping.spares[grouping.state[SPARES]]
    k = grouping.state[SMALLEST]
    total = -gain_of_leaving(grouping, i)
    step(grouping, trail, i, cluster)
    for neighbour in neighbours[i]:
        if grouping.sizes[cluster] == k:
            return total
        if grouping.labels[neighbour] != cluster and grouping.sizes[grouping.labels[neighbour]] > k:
            total += cost_to_join(grouping, neighbour, cluster) - gain_of_leaving(grouping, neighbour)
            step(grouping, trail, neighbour, cluster)
    return total if grouping.sizes[cluster] == k else np.inf
