"""Annealing: random changes among near neighbours, the worse the rarer, and rarer still as time goes on.

What counts as bad is measured by the spread of the clusters that a change touches, as well as by that of all: one
temperature would melt dense regions while it merely warms sparse ones.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Vector, Int32Matrix
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.static.descent import create, dissolve
from shoal.clustering.static.partition_state import (
    MOST,
    SMALLEST,
    PartitionState,
    cost_to_join,
    cost_to_swap,
    gain_of_leaving,
    loss,
    member,
    settle,
    widest,
)
from shoal.clustering.static.undo_log import UndoLog, are_kept, empty_undo_log, rollback, step

__all__ = ["anneal"]

DISSOLVE, CREATE, RELOCATE, SWAP = 0.02, 0.06, 0.3, 0.92
"""Up to which random number which change is tried; above, a ring."""


@njit
def anneal(
    grouping: PartitionState, neighbours: Int32Matrix, tries: int, heat: float, random: np.random.Generator
) -> None:
    """Try so many changes at one heat: the rise in loss, in spreads, that is accepted once in e times."""
    settle(grouping)
    mean = loss(grouping) / grouping.labels.size
    if mean == 0.0:
        return
    spreads, trail = np.zeros(grouping.sizes.size), empty_undo_log(widest(grouping))
    for cluster in range(spreads.size):
        _measure(grouping, cluster, spreads)
    for _ in range(tries):
        i = int(random.random() * grouping.labels.size)
        lot, nearness = random.random(), random.random()
        own = grouping.labels[i]
        its = grouping.labels[neighbours[i, int(neighbours.shape[1] * nearness * nearness)]]
        scale = np.sqrt(mean) * np.sqrt(0.5 * (spreads[own] + spreads[its]))  # the product of the two may be too large
        limit = -np.log(1.0 - random.random()) * heat * scale
        if lot < DISSOLVE:
            change = dissolve(grouping, neighbours, own, trail)
        elif lot < CREATE:
            change = create(grouping, neighbours, i, trail)
        elif own != its:
            change = _exchange(grouping, neighbours, i, its, lot, limit, trail, random)
        else:
            continue
        if change <= limit and are_kept(grouping, trail):
            _remember(grouping, trail, spreads)
        else:
            rollback(grouping, trail)


@njit_in_place
def _exchange(
    grouping: PartitionState,
    neighbours: Int32Matrix,
    i: int,
    its: int,
    lot: float,
    limit: float,
    trail: UndoLog,
    random: np.random.Generator,
) -> float:
    """Try what the lot says between a record and another cluster; return the change."""
    if lot < RELOCATE:
        return _relocate(grouping, i, its, limit, trail)
    if lot < SWAP:
        return _swap(grouping, i, its, limit, trail, random)
    return _ring(grouping, neighbours, i, its, trail, random)


@njit_in_place
def _measure(grouping: PartitionState, cluster: int, spreads: Float64Vector) -> None:
    """Note the mean squared distance of the members of a cluster to its centroid."""
    total = 0.0
    for x in range(grouping.sizes[cluster]):
        for j in range(grouping.rows.shape[1]):
            away = grouping.rows[member(grouping, cluster, x), j] - grouping.centres[cluster, j]
            total += away * away
    spreads[cluster] = total / max(grouping.sizes[cluster], 1)


@njit
def _remember(grouping: PartitionState, trail: UndoLog, spreads: Float64Vector) -> None:
    """Note the spreads of all clusters that were touched, and forget the trail."""
    for x in range(trail.steps[0]):
        _measure(grouping, trail.clusters[x], spreads)
        _measure(grouping, grouping.labels[trail.records[x]], spreads)
    trail.steps[0] = 0


@njit_in_place
def _relocate(grouping: PartitionState, i: int, its: int, limit: float, trail: UndoLog) -> float:
    """Move a record, if sizes and the limit allow it; return the change."""
    if grouping.sizes[grouping.labels[i]] <= grouping.state[SMALLEST] or grouping.sizes[its] >= grouping.state[MOST]:
        return np.inf
    change = cost_to_join(grouping, i, its) - gain_of_leaving(grouping, i)
    if change <= limit:
        step(grouping, trail, i, its)
    return change


@njit_in_place
def _swap(
    grouping: PartitionState, i: int, its: int, limit: float, trail: UndoLog, random: np.random.Generator
) -> float:
    """Let a record change places with any member of another cluster, if the limit allows it; return the change."""
    own = grouping.labels[i]
    other = member(grouping, its, int(random.random() * grouping.sizes[its]))
    change = cost_to_swap(grouping, i, other)
    if change <= limit:
        step(grouping, trail, i, its)
        step(grouping, trail, other, own)
    return change


@njit
def _ring(
    grouping: PartitionState, neighbours: Int32Matrix, i: int, its: int, trail: UndoLog, random: np.random.Generator
) -> float:
    """Move a record to another cluster, one of that to a third and, unless sizes allow it so, one of that to the first.

    Return the change.
    """
    own = grouping.labels[i]
    second = member(grouping, its, int(random.random() * grouping.sizes[its]))
    third = grouping.labels[neighbours[second, int(random.random() * neighbours.shape[1])]]
    if third in (own, its):
        return np.inf
    last = member(grouping, third, int(random.random() * grouping.sizes[third]))
    closed = grouping.sizes[own] <= grouping.state[SMALLEST] or grouping.sizes[third] >= grouping.state[MOST]
    change = cost_to_join(grouping, i, its) - gain_of_leaving(grouping, i)
    step(grouping, trail, i, its)
    change += cost_to_join(grouping, second, third) - gain_of_leaving(grouping, second)
    step(grouping, trail, second, third)
    if closed:
        change += cost_to_join(grouping, last, own) - gain_of_leaving(grouping, last)
        step(grouping, trail, last, own)
    return change
