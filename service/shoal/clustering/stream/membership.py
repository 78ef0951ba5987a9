"""Who is in a cluster that is being put together: joining it, being handed back, and their order in the end."""

from __future__ import annotations

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.numba.subject_codes import clear, number
from shoal.clustering.stream.expiry import Workspace

__all__ = ["SHARE_TOLERANCE", "all_differ", "cap", "hand_back", "join", "order_by_age", "take_out"]

SHARE_TOLERANCE = 1e-9
"""What a share may exceed its cap by: 0.3 of 10 records are 3, whatever the rounding of 0.3."""


@njit_in_place
def all_differ(subjects: Int64Vector, nearest: Int64Vector, scratch: Workspace) -> bool:
    """Whether no subject occurs twice."""
    for x in nearest:
        number(scratch.numbering, subjects[x])
    differ = scratch.numbering.size[0] == nearest.size
    clear(scratch.numbering)
    return bool(differ)


@njit_in_place
def join(scratch: Workspace, subjects: Int64Vector, record: int, place: int) -> int:
    """Write a record to a place behind the cluster; return 1 if its subject has no other record in it, else 0."""
    owner = number(scratch.numbering, subjects[record])
    if scratch.counts[owner] == 0:
        scratch.last[owner] = -1
    scratch.order[place] = record
    scratch.owners[place] = owner
    scratch.before[place] = scratch.last[owner]
    scratch.last[owner] = place
    scratch.counts[owner] += 1
    return 1 if scratch.counts[owner] == 1 else 0


@njit_in_place
def take_out(scratch: Workspace, place: int) -> None:
    """Take the farthest record of a subject out of the cluster; its place in ``order`` becomes -1."""
    owner = scratch.owners[place]
    scratch.last[owner] = scratch.before[place]
    scratch.counts[owner] -= 1
    scratch.order[place] = -1


@njit_in_place
def hand_back(scratch: Workspace, size: int, max_share: float) -> int:
    """Take what is above its share out of the cluster, and clear what `join` filled; return how many stay."""
    left = cap(scratch, size, max_share)
    scratch.counts[: scratch.numbering.size[0]] = 0
    clear(scratch.numbering)
    return int(left)


@njit_in_place
def cap(scratch: Workspace, left: int, max_share: float) -> int:
    """Take the farthest record of a subject above its share out, until none is above; return how many are left.

    Every subject stays in: one record among k or more subjects is never above a share of 1/k.
    """
    counts = scratch.counts[: scratch.numbering.size[0]]
    while True:
        farthest = _farthest_surplus(counts, scratch.last, max_share * left + SHARE_TOLERANCE)
        if farthest < 0:
            return left
        take_out(scratch, farthest)
        left -= 1


@njit_in_place
def _farthest_surplus(counts: Int64Vector, last: Int64Vector, allowed: float) -> int:
    """Return the place of the farthest record among subjects with more than ``allowed`` records, or -1."""
    farthest = -1
    for owner in range(counts.size):
        if counts[owner] > allowed:
            farthest = max(farthest, last[owner])
    return farthest


@njit_in_place
def order_by_age(order: Int64Vector, marks: Int64Vector) -> None:
    """Bring the records in ``order`` (-1: none) to its front, from old to young; ``marks`` is one per held record."""
    marks[:] = 0
    for x in order:
        if x >= 0:
            marks[x] = 1
    found = 0
    for x in range(marks.size):
        if marks[x]:
            order[found] = x
            found += 1
