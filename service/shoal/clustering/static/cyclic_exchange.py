"""Rings: a record moves to a second cluster, one of that to a third, and one of the third to the first.

Sizes stay as they are, so a ring is what is left to try where k and 2k - 1 forbid a relocation. If a ring gains, it can
be begun at a record such that it gains at every step of the way; so only steps that gain so far are followed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int32Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.static.partition_state import (
    MOST,
    SMALLEST,
    PartitionState,
    cost_to_join,
    gain_of_leaving,
    member,
)
from shoal.clustering.static.undo_log import UndoLog, are_kept, rollback, step

__all__ = ["Gains", "cyclic_exchange", "empty_gains", "weigh", "weigh_all"]

NOBODY = -1
NEAR = 5
"""Neighbours of the second record whose clusters may be the third."""


class Gains(NamedTuple):
    """By how much the loss falls when a record leaves its cluster, and how one best closes a ring."""

    each: Float64Vector  # (n,)
    closing: Float64Vector  # (clusters,): the least that it costs a member to join the first cluster
    lasts: Int64Vector  # (clusters,): that member
    asked: Int64Vector  # (clusters,): the record with which the ring begins


class ExchangeCycle(NamedTuple):
    """The best ring so far: its estimated change, its records, its second and third cluster; the last may be nobody."""

    change: float
    second: int
    last: int
    its: int
    third: int


@njit
def empty_gains(n: int, clusters: int) -> Gains:
    """Return room for n records."""
    return Gains(np.zeros(n), np.zeros(clusters), np.full(clusters, NOBODY), np.full(clusters, NOBODY))


@njit
def weigh_all(grouping: PartitionState, gains: Gains) -> None:
    """Compute all gains, and forget how rings were closed."""
    gains.asked.fill(NOBODY)
    for cluster in range(grouping.sizes.size):
        weigh(grouping, gains, cluster)


@njit_in_place
def weigh(grouping: PartitionState, gains: Gains, cluster: int) -> None:
    """Compute what leaving a cluster gains."""
    for x in range(grouping.sizes[cluster]):
        i = member(grouping, cluster, x)
        gains.each[i] = gain_of_leaving(grouping, i)


@njit
def cyclic_exchange(
    grouping: PartitionState,
    neighbours: Int32Matrix,
    i: int,
    stamps: Int64Vector,
    trail: UndoLog,
    gains: Gains,
    worthwhile: float,
) -> bool:
    """Do the best ring that begins with a record, if it gains; the trail then tells what was moved.

    The three steps are chosen as if each were alone; what they do together is computed as they are done.
    """
    own = grouping.labels[i]
    gain = gains.each[i]
    best = ExchangeCycle(-worthwhile, NOBODY, NOBODY, NOBODY, NOBODY)
    stamps[own] = i
    for neighbour in neighbours[i]:
        its = grouping.labels[neighbour]
        if stamps[its] == i:
            continue
        stamps[its] = i
        first = cost_to_join(grouping, i, its) - gain
        if first < 0.0:
            for x in range(grouping.sizes[its]):
                best = _extended(grouping, neighbours, gains, i, first, member(grouping, its, x), best)
    if best.second == NOBODY:
        return False
    change = cost_to_join(grouping, i, best.its) - gain
    step(grouping, trail, i, best.its)
    change += cost_to_join(grouping, best.second, best.third) - gain_of_leaving(grouping, best.second)
    step(grouping, trail, best.second, best.third)
    if best.last != NOBODY:
        change += cost_to_join(grouping, best.last, own) - gain_of_leaving(grouping, best.last)
        step(grouping, trail, best.last, own)
    if change < -worthwhile and are_kept(grouping, trail):
        return True
    rollback(grouping, trail)
    return False


@njit_in_place
def _extended(
    grouping: PartitionState,
    neighbours: Int32Matrix,
    gains: Gains,
    i: int,
    first: float,
    second: int,
    best: ExchangeCycle,
) -> ExchangeCycle:
    """Return the better of a ring and those that go on with a second record."""
    own, its = grouping.labels[i], grouping.labels[second]
    gain = gains.each[second]
    seen = NOBODY
    for x in range(min(NEAR, neighbours.shape[1])):
        third = grouping.labels[neighbours[second, x]]
        if third in (own, its, seen):
            continue
        seen = third
        so_far = first + cost_to_join(grouping, second, third) - gain
        if so_far >= 0.0:
            continue
        if grouping.sizes[own] > grouping.state[SMALLEST] and grouping.sizes[third] < grouping.state[MOST]:
            if so_far < best.change:
                best = ExchangeCycle(so_far, second, NOBODY, its, third)
            continue
        if gains.asked[third] != i:
            gains.asked[third] = i
            _close(grouping, gains, own, third)
        if so_far + gains.closing[third] < best.change:
            best = ExchangeCycle(so_far + gains.closing[third], second, gains.lasts[third], its, third)
    return best


@njit_in_place
def _close(grouping: PartitionState, gains: Gains, own: int, third: int) -> None:
    """Find the member of the third cluster with which it costs least to close a ring."""
    gains.closing[third], gains.lasts[third] = np.inf, NOBODY
    for x in range(grouping.sizes[third]):
        last = member(grouping, third, x)
        change = cost_to_join(grouping, last, own) - gains.each[last]
        if change < gains.closing[third]:
            gains.closing[third], gains.lasts[third] = change, last
