"""When a held record expires, the constraints on its cluster, and the scratch arrays of one decision.

A held record expires when an arrival is delta or more positions after it, or when an expiry key of an arrival exceeds
its own by more than the limit. It is then due: a rule must decide on it before the next record is appended. Positions
ascend and keys never decrease, so the expiring record is always the oldest one.

Parameters that all kernels of the rules share
----------------------------------------------
held : HeldRecords
workspace : Workspace
decisions : DecisionBuffer
    Decisions are appended to it.
constraints : StreamConstraints
cursor : int64 (2,)
    Number of staged records still to be appended (`STAGED`), and position of the last record that was appended
    (`NEWEST_POSITION`). Kernels update both.
newest : int
    Position of the last record that arrived.
cause : int
    Why the oldest record expires; see `held_records`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.clustering.numba.distances import add_code_distances
from shoal.clustering.numba.jit import njit_inline
from shoal.clustering.numba.subject_codes import Numbering, clear, empty_numbering, number
from shoal.clustering.stream.dominance import Dominance
from shoal.clustering.stream.held_records import (
    BY_CLOCK,
    HEAD,
    NOT_DUE,
    TAIL,
    HeldRecords,
    append_next,
    cause_of_oldest,
)
from shoal.clustering.stream.steering import WeightTarget

__all__ = [
    "NEWEST_POSITION",
    "STAGED",
    "StreamConstraints",
    "Workspace",
    "append_until_due",
    "due_cause",
    "empty_workspace",
    "has_min_population",
    "squared_distances",
    "squared_distances_from",
]

STAGED, NEWEST_POSITION = range(2)
"""Entries of the cursor."""


class StreamConstraints(NamedTuple):
    """The constraints of a stream.

    Attributes
    ----------
    k : int
        Smallest number of distinct subjects in a cluster.
    delta : int
        Largest delay, in positions.
    omega_p : float64 (1,)
        Weight of the position, in units of the coordinates per position. It changes if there is a target.
    max_share : float
        Largest share of one subject in a cluster.
    expiry_limits : int64 (C,)
        Largest difference of each expiry key between the newest and a held record.
    population : int
        Distinct subjects that must be held before the first expiry key, a clock, or the end of the stream releases
        records; 0 for no such limit.
    dominance : Dominance
        The p % rule.
    target : WeightTarget
        What the weight of the position follows.
    """

    k: int
    delta: int
    omega_p: Float64Vector
    max_share: float
    expiry_limits: Int64Vector
    population: int
    dominance: Dominance
    target: WeightTarget


class Workspace(NamedTuple):
    """Scratch arrays of one decision, each as long as the buffer.

    Attributes
    ----------
    distances : float64
        Squared distance of each record from the oldest one.
    nearest_distances : float64
        The smallest of these distances.
    members : int64
        Records of the cluster, in the order in which they were added; -1 for a record that was removed again.
    heap : int64
        Records in heap order; also free scratch.
    subject_numbers : int64
        Number of the subject of each member.
    previous : int64
        For each member, the member of the same subject that was added before it, or -1.
    counts, farthest, totals : int64, int64, float64
        By number of the subject: its members, the member that was added last, and its contribution.
    numbering : Numbering
        Numbers of the subjects of this decision.
    """

    distances: Float64Vector
    nearest_distances: Float64Vector
    members: Int64Vector
    heap: Int64Vector
    subject_numbers: Int64Vector
    previous: Int64Vector
    counts: Int64Vector
    farthest: Int64Vector
    totals: Float64Vector
    numbering: Numbering


def empty_workspace(capacity: int) -> Workspace:
    """Allocate the scratch arrays once."""
    members, heap, subject_numbers, previous, counts, farthest = np.zeros((6, capacity), np.int64)
    distances, nearest_distances, totals = np.zeros((3, capacity))
    numbering = empty_numbering(capacity)
    return Workspace(
        distances, nearest_distances, members, heap, subject_numbers, previous, counts, farthest, totals, numbering
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
