"""Moves that can be taken back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.static.constraint_arrays import are_free
from shoal.clustering.static.partition_state import SPARES, PartitionState, keeps, move

__all__ = ["UndoLog", "are_kept", "empty_undo_log", "rollback", "step"]

NOBODY = -1
A_SWAP = 2


class UndoLog(NamedTuple):
    """What was moved and from where, so that it can be taken back."""

    records: Int64Vector
    clusters: Int64Vector
    steps: Int64Vector  # (1,): how many


@njit
def empty_undo_log(room: int) -> UndoLog:
    """Return a trail of up to ``room`` moves."""
    return UndoLog(np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(1, np.int64))


@njit_in_place
def step(grouping: PartitionState, trail: UndoLog, i: int, cluster: int) -> None:
    """Move a record and remember it."""
    x = trail.steps[0]
    trail.records[x], trail.clusters[x] = i, grouping.labels[i]
    trail.steps[0] = x + 1
    move(grouping, i, cluster)


@njit
def rollback(grouping: PartitionState, trail: UndoLog) -> None:
    """Undo all moves of a trail, the last one first."""
    while trail.steps[0] > 0:
        trail.steps[0] -= 1
        x = trail.steps[0]
        own = grouping.labels[trail.records[x]]
        if grouping.sizes[own] == 1:  # was made of a spare one
            grouping.spares[grouping.state[SPARES]] = own
            grouping.state[SPARES] += 1
        if grouping.sizes[trail.clusters[x]] == 0:  # was made spare
            grouping.state[SPARES] -= 1
        move(grouping, trail.records[x], trail.clusters[x])


@njit
def are_kept(grouping: PartitionState, trail: UndoLog) -> bool:
    """Whether all clusters that a trail has touched keep the terms; with buckets, whether it is a swap within one."""
    if are_free(grouping.terms):
        return True
    buckets = grouping.terms.buckets
    if buckets.size > 0:
        one, other = trail.records[0], trail.records[1]
        if trail.steps[0] != A_SWAP or buckets[one] != buckets[other]:
            return False
        if trail.clusters[0] != grouping.labels[other] or trail.clusters[1] != grouping.labels[one]:
            return False
    for x in range(trail.steps[0]):
        if not keeps(grouping, trail.clusters[x], NOBODY, NOBODY):
            return False
        if not keeps(grouping, grouping.labels[trail.records[x]], NOBODY, NOBODY):
            return False
    return True
