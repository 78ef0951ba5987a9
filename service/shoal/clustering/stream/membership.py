"""The members of a growing cluster: adding records, removing them under ``max_share``, and sorting them by age.

A *member* is an index into `Workspace.members`. Members are added in the order of their distance, so the last added
member of a subject is its farthest.
"""

from __future__ import annotations

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit_inline
from shoal.clustering.numba.subject_codes import clear, number
from shoal.clustering.stream.expiry import Workspace

__all__ = [
    "SHARE_TOLERANCE",
    "add_member",
    "all_distinct",
    "limit_shares",
    "limit_shares_and_reset",
    "remove_member",
    "sort_by_age",
]

SHARE_TOLERANCE = 1e-9
"""Excess over ``max_share`` that is ignored: 0.3 of 10 records are 3, whatever the rounding of 0.3."""


@njit_inline
def all_distinct(subjects: Int64Vector, nearest: Int64Vector, workspace: Workspace) -> bool:
    """Whether the records ``nearest`` belong to distinct subjects."""
    for x in nearest:
        number(workspace.numbering, subjects[x])
    differ = workspace.numbering.size[0] == nearest.size
    clear(workspace.numbering)
    return bool(differ)


@njit_inline
def add_member(workspace: Workspace, subjects: Int64Vector, record: int, member: int) -> int:
    """Write a record to entry ``member`` of the cluster; return 1 if it is the first member of its subject, else 0."""
    subject = number(workspace.numbering, subjects[record])
    if workspace.counts[subject] == 0:
        workspace.farthest[subject] = -1
    workspace.members[member] = record
    workspace.subject_numbers[member] = subject
    workspace.previous[member] = workspace.farthest[subject]
    workspace.farthest[subject] = member
    workspace.counts[subject] += 1
    return 1 if workspace.counts[subject] == 1 else 0


@njit_inline
def remove_member(workspace: Workspace, member: int) -> None:
    """Remove the last added member of a subject; its entry in ``members`` becomes -1."""
    subject = workspace.subject_numbers[member]
    workspace.farthest[subject] = workspace.previous[member]
    workspace.counts[subject] -= 1
    workspace.members[member] = -1


@njit_inline
def limit_shares_and_reset(workspace: Workspace, size: int, max_share: float) -> int:
    """Remove members above ``max_share`` and clear what `add_member` filled; return how many members are kept."""
    kept = limit_shares(workspace, size, max_share)
    workspace.counts[: workspace.numbering.size[0]] = 0
    clear(workspace.numbering)
    return int(kept)


@njit_inline
def limit_shares(workspace: Workspace, kept: int, max_share: float) -> int:
    """Remove the farthest member of a subject above its share until no subject is above; return how many are kept.

    Every subject keeps a member: one record among k or more subjects is never above a share of 1/k.
    """
    counts = workspace.counts[: workspace.numbering.size[0]]
    while True:
        farthest = _farthest_above_share(counts, workspace.farthest, max_share * kept + SHARE_TOLERANCE)
        if farthest < 0:
            return kept
        remove_member(workspace, farthest)
        kept -= 1


@njit_inline
def _farthest_above_share(counts: Int64Vector, farthest_of: Int64Vector, allowed: float) -> int:
    """Return the farthest member among subjects with more than ``allowed`` records, or -1."""
    farthest = -1
    for subject in range(counts.size):
        if counts[subject] > allowed:
            farthest = max(farthest, farthest_of[subject])
    return farthest


@njit_inline
def sort_by_age(members: Int64Vector, is_member: Int64Vector) -> None:
    """Move the records in ``members`` (-1: removed) to its front, oldest first; ``is_member`` is scratch."""
    is_member[:] = 0
    for x in members:
        if x >= 0:
            is_member[x] = 1
    found = 0
    for x in range(is_member.size):
        if is_member[x]:
            members[found] = x
            found += 1
