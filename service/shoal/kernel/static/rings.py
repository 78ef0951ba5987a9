"""Rings: a record moves to a second cluster, one of that to a third, and one of the third to the first.

Sizes stay as they are, so a ring is what is left to try where k and 2k - 1 forbid a relocation. If a ring gains, it can
be begun at a record such that it gains at every step of the way; so only steps that gain so far are followed.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.kernel.arrays import Int32Matrix, Int64Vector
from shoal.kernel.jit import njit, njit_in_place
from shoal.kernel.static.grouping import MOST, SMALLEST, Grouping, cost_to_join, gain_of_leaving, member
from shoal.kernel.static.trail import Trail, are_kept, step, take_back

__all__ = ["turn"]

NOBODY = -1
NEAR = 5
"""Neighbours of the second record whose clusters may be the third."""


class Ring(NamedTuple):
    """The best ring so far: its estimated change, its records, its second and third cluster; the last may be nobody."""

    change: float
    second: int
    last: int
    its: int
    third: int


@njit
def turn(
    grouping: Grouping, neighbours: Int32Matrix, i: int, stamps: Int64Vector, trail: Trail, worthwhile: float
) -> bool:
    """Do the best ring that begins with a record, if it gains; the trail then tells what was moved.

    The three steps are chosen as if each were alone; what they do together is computed as they are done.
    """
    own = grouping.labels[i]
    gain = gain_of_leaving(grouping, i)
    best = Ring(-worthwhile, NOBODY, NOBODY, NOBODY, NOBODY)
    stamps[own] = i
    for neighbour in neighbours[i]:
        its = grouping.labels[neighbour]
        if stamps[its] == i:
            continue
        stamps[its] = i
        first = cost_to_join(grouping, i, its) - gain
        if first < 0.0:
            for x in range(grouping.sizes[its]):
                best = _extended(grouping, neighbours, own, first, member(grouping, its, x), best)
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
    take_back(grouping, trail)
    return False


@njit
def _extended(grouping: Grouping, neighbours: Int32Matrix, own: int, first: float, second: int, best: Ring) -> Ring:
    """Return the better of a ring and those that go on with a second record."""
    its = grouping.labels[second]
    gain = gain_of_leaving(grouping, second)
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
                best = Ring(so_far, second, NOBODY, its, third)
            continue
        best = _closed(grouping, own, so_far, second, third, best)
    return best


@njit_in_place
def _closed(grouping: Grouping, own: int, so_far: float, second: int, third: int, best: Ring) -> Ring:
    """Return the better of a ring and those that end with a record of the third cluster."""
    for x in range(grouping.sizes[third]):
        last = member(grouping, third, x)
        change = so_far + cost_to_join(grouping, last, own) - gain_of_leaving(grouping, last)
        if change < best.change:
            best = Ring(change, second, last, grouping.labels[second], third)
    return best
