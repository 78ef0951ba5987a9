"""What all rules share: when a record expires, the constraints on its cluster, and the cluster while it grows.

A held record expires when an arrival is delta or more positions after it, or when an expiry key of an arrival exceeds
its own by more than the limit. It is then due: a rule must decide on it before the next record is appended. Positions
ascend and keys never decrease, so the expiring record is always the oldest one.

Parameters of the kernels of all rules: ``held``, ``workspace``, ``constraints``; ``decisions``, to which decisions are
appended; ``cursor`` (2,), the number of staged records still to be appended (`STAGED`) and the position of the last
record that was appended (`NEWEST_POSITION`), which kernels update; ``newest``, the position of the last record that
arrived; ``cause``, why the oldest record expires (see `held_records`).

A *member* is an index into `Workspace.members`. Members are added in the order of their distance, so the last added
member of a subject is its farthest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.distances import add_code_distances
from shoal.kernels.jit import njit_inline
from shoal.kernels.subject_codes import Numbering, clear, empty_numbering, number
from shoal.protection import SHARE_TOLERANCE
from shoal.streams.held_records import (
    BY_CLOCK,
    CLUSTERS,
    END,
    HEAD,
    NOT_DUE,
    TAIL,
    DecisionBuffer,
    HeldRecords,
    append_next,
    cause_of_oldest,
    release,
    suppress,
)

__all__ = [
    "NEWEST_POSITION",
    "NO_TARGET",
    "STAGED",
    "Candidates",
    "StreamConstraints",
    "WeightTarget",
    "Workspace",
    "add_candidate_code_distances",
    "add_member",
    "all_distinct",
    "append_until_due",
    "empty_candidates",
    "empty_workspace",
    "has_min_population",
    "limit_shares_and_reset",
    "opportunity_cost",
    "release_or_suppress",
    "set_candidate",
    "sort_by_age",
    "squared_distances",
    "squared_distances_from",
    "update_weight",
    "write_point",
]

STAGED, NEWEST_POSITION = range(2)
"""Entries of the cursor."""
GAIN = 0.05
"""Change of the logarithm of the weight after a cluster whose excess span is one target above the target."""
MAX_EXCESS = 4.0
"""Largest excess over the target that counts, in targets. It limits the effect of one outlying record."""


class WeightTarget(NamedTuple):
    """What the weight of the position follows; see `steering`."""

    span: float  # mean excess span to hold, in records; negative if the weight is fixed
    lowest: float  # limits of the weight
    highest: float


NO_TARGET = WeightTarget(-1.0, 0.0, 0.0)
"""The weight is fixed."""


class StreamConstraints(NamedTuple):
    """The constraints of a stream."""

    k: int  # smallest number of distinct subjects in a cluster
    delta: int  # largest delay, in positions
    omega_p: Float64Vector  # (1,): weight of the position, in units of the coordinates; changes if there is a target
    max_share: float  # largest share of one subject in a cluster
    expiry_limits: Int64Vector  # (C,): largest difference of each expiry key between the newest and a held record
    population: int  # distinct subjects that must be held before a clock or the end releases records; 0: no limit
    target: WeightTarget  # what the weight of the position follows


class Workspace(NamedTuple):
    """Scratch arrays of one decision, each as long as the buffer."""

    distances: Float64Vector  # squared distance of each record from the oldest one
    nearest_distances: Float64Vector  # the smallest of these distances
    members: Int64Vector  # records of the cluster, in the order in which they were added; -1: removed again
    heap: Int64Vector  # records in heap order; free scratch
    subject_numbers: Int64Vector  # number of the subject of each member
    previous: Int64Vector  # for each member, the member of its subject that was added before it, or -1
    counts: Int64Vector  # members of each subject, by its number
    farthest: Int64Vector  # the member of each subject that was added last
    totals: Float64Vector  # free scratch
    numbering: Numbering  # numbers of the subjects of this decision


class Candidates(NamedTuple):
    """Records that may be added to the cluster, and scratch arrays of one decision."""

    records: Int64Vector  # (L,): the nearest to the oldest record first
    points: Float64Matrix  # (L, d + 1): coordinates and weighted position
    opportunity_costs: Float64Vector  # (L,): expected cost of leaving each candidate out of the cluster
    codes: Int64Matrix  # (c, L): one row per category column
    code_sums: Float64Vector  # (L,): sum of the squared distances from the members in the category columns
    is_member: BoolVector  # (L,)
    centroid: Float64Vector  # (d + 1,): mean of the members
    smallest_squared_distances: Float64Vector  # (k - 1,): those of one candidate from other held records; scratch
    opportunity_weight: Float64Vector  # (1,): weight of opportunity costs; 0 for rule greedy


def empty_workspace(capacity: int) -> Workspace:
    """Allocate the scratch arrays once."""
    members, heap, subject_numbers, previous, counts, farthest = np.zeros((6, capacity), np.int64)
    distances, nearest_distances, totals = np.zeros((3, capacity))
    numbering = empty_numbering(capacity)
    return Workspace(
        distances, nearest_distances, members, heap, subject_numbers, previous, counts, farthest, totals, numbering
    )


def empty_candidates(capacity: int, dimensions: int, k: int, opportunity_weight: float, columns: int = 0) -> Candidates:
    """Allocate the arrays of a rule once, for at most ``capacity`` candidates with so many category columns."""
    return Candidates(
        records=np.zeros(capacity, np.int64),
        points=np.zeros((capacity, dimensions + 1)),
        opportunity_costs=np.zeros(capacity),
        codes=np.zeros((columns, capacity), np.int64),
        code_sums=np.zeros(capacity),
        is_member=np.zeros(capacity, np.bool_),
        centroid=np.zeros(dimensions + 1),
        smallest_squared_distances=np.zeros(k - 1),
        opportunity_weight=np.full(1, opportunity_weight),
    )


@njit_inline
def append_until_due(
    held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, cursor: Int64Vector
) -> int:
    """Append staged records until a held record expires; return the cause, or `NOT_DUE` when all are appended."""
    while True:
        cause = due_cause(held, workspace, constraints, cursor[NEWEST_POSITION])
        if cause != NOT_DUE or cursor[STAGED] == 0:
            return int(cause)
        cursor[NEWEST_POSITION] = append_next(held)
        cursor[STAGED] -= 1


@njit_inline
def due_cause(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, newest: int) -> int:
    """Return why the oldest record expires, or `NOT_DUE`. A clock does not count while too few subjects are held."""
    cause = cause_of_oldest(held, newest, constraints.delta, constraints.expiry_limits, 0)
    if cause == BY_CLOCK and not has_min_population(held, workspace, constraints):
        cause = cause_of_oldest(held, newest, constraints.delta, constraints.expiry_limits, 1)
    return int(cause)


@njit_inline
def has_min_population(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints) -> bool:
    """Whether enough distinct subjects are held for a clock or the end of the stream to release records."""
    if constraints.population == 0:
        return True
    for slot in range(held.extent[HEAD], held.extent[TAIL]):
        if not held.removed[slot] and number(workspace.numbering, held.subjects[slot]) + 1 >= constraints.population:
            break
    counted = workspace.numbering.size[0]
    clear(workspace.numbering)
    return bool(counted >= constraints.population)


@njit_inline
def release_or_suppress(
    held: HeldRecords, workspace: Workspace, decisions: DecisionBuffer, size: int, newest: int, cause: int
) -> None:
    """Release the cluster of so many records in ``workspace.members``; suppress the oldest record if there is none."""
    if size > 0:
        release(held, decisions, workspace.members[:size], newest, cause)
    else:
        suppress(held, decisions, newest, cause)


@njit_inline
def update_weight(omega_p: Float64Vector, target: WeightTarget, decisions: DecisionBuffer, first: int) -> None:
    """Adjust the weight omega_p (1,) to the clusters decided since there were ``first`` of them."""
    if target.span < 0.0:
        return
    start = decisions.clusters[END, first - 1] if first > 0 else 0
    for cluster in range(first, decisions.counts[CLUSTERS]):
        end = decisions.clusters[END, cluster]
        excess = float(decisions.positions[end - 1] - decisions.positions[start] - (end - start - 1))
        # Half of the change of the logarithm. The quotient below approximates the exponential to the third order.
        half = 0.5 * GAIN * min((excess - target.span) / (target.span + 1.0), MAX_EXCESS)
        moved = omega_p[0] * ((1.0 + half) / (1.0 - half))
        omega_p[0] = min(max(moved, target.lowest), target.highest)
        start = end


@njit_inline
def squared_distances(held: HeldRecords, omega_p: float, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from the oldest one."""
    squared_distances_from(held, omega_p, 0, distances)


@njit_inline
def squared_distances_from(held: HeldRecords, omega_p: float, record: int, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from one of them.

    The sum begins with the position and takes the attributes in order, then the category columns, so that results do
    not depend on the machine.
    """
    head, count = held.extent[HEAD], distances.size
    if omega_p > 0.0:
        positions = held.positions[head : head + count]
        origin = positions[record]
        for x in range(count):
            step = omega_p * float(positions[x] - origin)
            distances[x] = step * step
    else:
        distances[:] = 0.0
    dimensions = held.coordinates.shape[0]
    for row in range(0, dimensions - 1, 2):  # two per pass halve the memory traffic; the sum keeps its order
        one, two = held.coordinates[row, head : head + count], held.coordinates[row + 1, head : head + count]
        centre_one, centre_two = one[record], two[record]
        for x in range(count):
            e, f = one[x] - centre_one, two[x] - centre_two
            distances[x] = distances[x] + e * e + f * f
    if dimensions % 2:
        one = held.coordinates[dimensions - 1, head : head + count]
        centre_one = one[record]
        for x in range(count):
            e = one[x] - centre_one
            distances[x] = distances[x] + e * e
    add_code_distances(held.codes, head, held.code_distances, record, distances)


@njit_inline
def all_distinct(subjects: Int64Vector, nearest: Int64Vector, workspace: Workspace) -> bool:
    """Whether the records ``nearest`` belong to distinct subjects."""
    for x in nearest:
        number(workspace.numbering, subjects[x])
    differ = workspace.numbering.size[0] == nearest.size
    clear(workspace.numbering)
    return bool(differ)


@njit_inline
def add_member(workspace: Workspace, subjects: Int64Vector, record: int, member: int) -> None:
    """Write a record to entry ``member`` of the cluster."""
    subject = number(workspace.numbering, subjects[record])
    if workspace.counts[subject] == 0:
        workspace.farthest[subject] = -1
    workspace.members[member] = record
    workspace.subject_numbers[member] = subject
    workspace.previous[member] = workspace.farthest[subject]
    workspace.farthest[subject] = member
    workspace.counts[subject] += 1


@njit_inline
def limit_shares_and_reset(workspace: Workspace, size: int, max_share: float) -> int:
    """Remove members above ``max_share`` and clear what `add_member` filled; return how many members are kept."""
    kept = _limit_shares(workspace, size, max_share)
    workspace.counts[: workspace.numbering.size[0]] = 0
    clear(workspace.numbering)
    return int(kept)


@njit_inline
def _limit_shares(workspace: Workspace, kept: int, max_share: float) -> int:
    """Remove the farthest member of a subject above its share until no subject is above; return how many are kept.

    Every subject keeps a member: one record among k or more subjects is never above a share of 1/k.
    """
    counts = workspace.counts[: workspace.numbering.size[0]]
    while True:
        farthest = _farthest_above_share(counts, workspace.farthest, max_share * kept + SHARE_TOLERANCE)
        if farthest < 0:
            return kept
        _remove_member(workspace, farthest)
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
def _remove_member(workspace: Workspace, member: int) -> None:
    """Remove the last added member of a subject; its entry in ``members`` becomes -1."""
    subject = workspace.subject_numbers[member]
    workspace.farthest[subject] = workspace.previous[member]
    workspace.counts[subject] -= 1
    workspace.members[member] = -1


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


@njit_inline
def set_candidate(held: HeldRecords, candidates: Candidates, candidate: int, record: int, omega_p: float) -> None:
    """Write a record to entry ``candidate``, with an opportunity cost of 0."""
    candidates.records[candidate] = record
    candidates.is_member[candidate] = False
    candidates.opportunity_costs[candidate] = 0.0
    candidates.code_sums[candidate] = 0.0
    for column in range(candidates.codes.shape[0]):
        candidates.codes[column, candidate] = held.codes[column, held.extent[HEAD] + record]
    write_point(held, record, omega_p, candidates.points[candidate])


@njit_inline
def write_point(held: HeldRecords, record: int, omega_p: float, point: Float64Vector) -> None:
    """Write the coordinates and the weighted position of a record.

    The position is counted from that of the oldest record: the difference is small, so that its float is exact.
    """
    slot, last = held.extent[HEAD] + record, point.size - 1
    for j in range(last):
        point[j] = held.coordinates[j, slot]
    point[last] = omega_p * float(held.positions[slot] - held.positions[held.extent[HEAD]])


@njit_inline
def opportunity_cost(candidates: Candidates, constraints: StreamConstraints, age: int) -> float:
    """Return the opportunity cost of the record of this age whose ``smallest_squared_distances`` are given."""
    factor = (
        candidates.opportunity_weight[0] * 0.5 / float(candidates.smallest_squared_distances.size * constraints.delta)
    )
    total = 0.0
    for distance in candidates.smallest_squared_distances:
        total += distance
    return float(factor * float(age) * total)


@njit_inline
def add_candidate_code_distances(held: HeldRecords, candidates: Candidates, record: int, count: int) -> None:
    """Add the squared distances from a new member to the sums of the first ``count`` candidates."""
    sums = candidates.code_sums[:count]
    for column in range(candidates.codes.shape[0]):
        codes, distance = candidates.codes[column, :count], held.code_distances[column]
        own = held.codes[column, held.extent[HEAD] + record]
        for candidate in range(count):
            sums[candidate] += distance if codes[candidate] != own else 0.0
