"""What all rules share: when a record expires, the constraints on its cluster, and the cluster while it grows.

A held record expires when an arrival is delta or more positions after it, or when an expiry key of an arrival exceeds
its own by more than the limit. It is then due: a rule must decide on it before the next record is appended. Positions
ascend and keys never decrease, so the expiring record is always the oldest one.

Parameters of the kernels of all rules: ``stream``; ``decisions``, to which decisions are appended; ``cursor`` (2,), the
number of staged records still to be appended (`STAGED`) and the position of the last record that was appended
(`NEWEST_POSITION`), which kernels update; ``newest``, the position of the last record that arrived; ``cause``, why the
oldest record expires (see `held_records`).

A *member* is an index into `Workspace.members`. Members are added in the order of their distance, so the last added
member of a subject is its farthest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.containers import Numbering, clear, empty_numbering, number
from shoal.kernels.jit import njit_inline
from shoal.kernels.sums import add_code_distances
from shoal.protection.diversity import SHARE_TOLERANCE
from shoal.streams.held_records import (
    BY_CLOCK,
    CLUSTERS,
    END,
    HEAD,
    NOT_DUE,
    TAIL,
    Buffer,
    DecisionBuffer,
    HeldRecords,
    append_next,
    cause_of_oldest,
    empty_decision_buffer,
    release,
    suppress,
    trim,
)

STAGED, NEWEST_POSITION = range(2)
"""Entries of the cursor."""
GAIN = 0.05  # change of the logarithm of the weight after a cluster whose excess span is one target above the target
MAX_EXCESS = 4.0
"""Largest excess over the target that counts, in targets. It limits the effect of one outlying record."""


class WeightTarget(NamedTuple):
    """What the weight of the position follows; see `steering`."""

    span: float  # mean excess span to hold, in records; negative if the weight is fixed
    lowest: float  # limits of the weight
    highest: float


NO_TARGET = WeightTarget(-1.0, 0.0, 0.0)  # the weight is fixed


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


class StreamState(NamedTuple):
    """What the kernels of every rule read and write."""

    held: HeldRecords
    workspace: Workspace
    constraints: StreamConstraints


def empty_workspace(capacity: int) -> Workspace:
    """Allocate the scratch arrays once."""
    members, heap, subject_numbers, previous, counts, farthest = np.zeros((6, capacity), np.int64)
    distances, nearest_distances, totals = np.zeros((3, capacity))
    numbering = empty_numbering(capacity)
    return Workspace(
        distances, nearest_distances, members, heap, subject_numbers, previous, counts, farthest, totals, numbering
    )


class Rule(ABC):
    """Decides which held records form a cluster. Only the rule changes the held records."""

    def __init__(self, buffer: Buffer, constraints: StreamConstraints) -> None:
        self._buffer, self._stream = buffer, StreamState(buffer.held, empty_workspace(buffer.capacity), constraints)

    def precompile(self) -> None:
        """Compile all kernels by calls without records, so that no record waits for the compiler later."""
        self._decide_due(empty_decision_buffer(0), np.array([0, -1]))
        self._flush(empty_decision_buffer(0), -1)

    def decide(self, integers: Int64Matrix, coordinates: Float64Matrix, decisions: DecisionBuffer) -> None:
        """Append validated records one by one, as `Buffer.stage` takes them, and decide on each that becomes due."""
        done = 0
        while done < len(coordinates):
            staged = self._buffer.stage(integers[:, done:], coordinates[done:])
            self._decide_due(decisions, np.array([staged, -1]))
            done += staged

    def flush(self, newest: int) -> DecisionBuffer:
        """Decide on all held records; ``newest`` is the position of the last record that arrived."""
        decisions = empty_decision_buffer(len(self._buffer))
        self._flush(decisions, newest)
        return trim(decisions)

    @abstractmethod
    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        """Append the staged records one by one and decide on each record that becomes due."""

    @abstractmethod
    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        """Decide on all held records."""


@njit_inline
def append_until_due(stream: StreamState, cursor: Int64Vector) -> int:
    """Append staged records until a held record expires; return the cause, or `NOT_DUE` when all are appended.

    A clock does not count while too few subjects are held.
    """
    held, constraints = stream.held, stream.constraints
    while True:
        newest = cursor[NEWEST_POSITION]
        cause = cause_of_oldest(held, newest, constraints.delta, constraints.expiry_limits, 0)
        if cause == BY_CLOCK and not has_min_population(stream):
            cause = cause_of_oldest(held, newest, constraints.delta, constraints.expiry_limits, 1)
        if cause != NOT_DUE or cursor[STAGED] == 0:
            return int(cause)
        cursor[NEWEST_POSITION] = append_next(held)
        cursor[STAGED] -= 1


@njit_inline
def has_min_population(stream: StreamState) -> bool:
    """Whether enough distinct subjects are held for a clock or the end of the stream to release records."""
    held, numbering, population = stream.held, stream.workspace.numbering, stream.constraints.population
    if population == 0:
        return True
    for slot in range(held.extent[HEAD], held.extent[TAIL]):
        if not held.removed[slot] and number(numbering, held.subjects[slot]) + 1 >= population:
            break
    counted = numbering.size[0]
    clear(numbering)
    return bool(counted >= population)


@njit_inline
def release_or_suppress(stream: StreamState, decisions: DecisionBuffer, size: int, newest: int, cause: int) -> None:
    """Release the cluster of so many records in `Workspace.members`; suppress the oldest record if there is none."""
    clusters_before = decisions.counts[CLUSTERS]
    if size > 0:
        release(stream.held, decisions, stream.workspace.members[:size], newest, cause)
    else:
        suppress(stream.held, decisions, newest, cause)
    update_weight(stream.constraints.omega_p, stream.constraints.target, decisions, clusters_before)


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
def squared_distances(held: HeldRecords, omega_p: float, record: int, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from one of them; the order of the sum is fixed."""
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
    """Remove the farthest member of a subject above ``max_share`` until none is above; return how many are kept.

    Its entry in ``members`` becomes -1. What `add_member` filled is cleared. Every subject keeps a member.
    """
    kept, counts = size, workspace.counts[: workspace.numbering.size[0]]
    while True:
        allowed, farthest = max_share * kept + SHARE_TOLERANCE, -1
        for one in range(counts.size):
            if counts[one] > allowed:
                farthest = max(farthest, workspace.farthest[one])
        if farthest < 0:
            break
        subject = workspace.subject_numbers[farthest]
        workspace.farthest[subject] = workspace.previous[farthest]
        counts[subject] -= 1
        workspace.members[farthest] = -1
        kept -= 1
    counts[:] = 0
    clear(workspace.numbering)
    return int(kept)


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
def write_point(held: HeldRecords, record: int, omega_p: float, point: Float64Vector) -> None:
    """Write the coordinates and the weighted position of a record, counted from the oldest so that it is exact."""
    slot, last = held.extent[HEAD] + record, point.size - 1
    for j in range(last):
        point[j] = held.coordinates[j, slot]
    point[last] = omega_p * float(held.positions[slot] - held.positions[held.extent[HEAD]])
