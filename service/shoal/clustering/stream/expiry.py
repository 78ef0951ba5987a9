"""Exp."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.numba.subject_codes import Numbering, clear, empty_numbering, number
from shoal.clustering.stream import held_records as records
from shoal.clustering.stream.dominance import Dominance
from shoal.clustering.stream.held_records import HEAD, TAIL, HeldRecords
from shoal.clustering.stream.steering import WeightTarget

__all__ = [
    "StreamConstraints",
    "Workspace",
    "append_until_due",
    "due_cause",
    "empty_workspace",
    "has_min_population",
    "squared_distances",
    "squared_distances_from",
]


class StreamConstraints(NamedTuple):
    """What is asked for: ``k`` subjects, ``delta`` positions, weight ``omega_p`` (1,), ``max_share``, ``reach`` (C,).

    And, if it is asked for: the ``population`` without which no clock lets anybody go (else 0), ``dominance``, and the
    ``target`` that the weight follows, which changes from cluster to cluster then.
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
    """Arrays that live for one decision, all as long as the buffer; records are named by their distance from the head.

    ``distances`` to the expiring record; ``nearest_distances`` the k - 1 smallest of them; ``members`` the cluster;
    ``heap``;
    ``owners`` by place in the cluster: number of the subject; ``previous``: place of the next nearer record of the same
    subject, or -1; ``counts``, ``farthest`` and ``totals`` by number: records in the cluster, place of the farthest,
    contribution.
    """

    distances: Float64Vector
    nearest_distances: Float64Vector
    members: Int64Vector
    heap: Int64Vector
    owners: Int64Vector
    previous: Int64Vector
    counts: Int64Vector
    farthest: Int64Vector
    totals: Float64Vector
    numbering: Numbering


def empty_workspace(capacity: int) -> Workspace:
    """Allocate the scratch arrays once."""
    members, heap, owners, previous, counts, farthest = np.zeros((6, capacity), np.int64)
    distances, nearest_distances, totals = np.zeros((3, capacity))
    numbering = empty_numbering(capacity)
    return Workspace(distances, nearest_distances, members, heap, owners, previous, counts, farthest, totals, numbering)


@njit_in_place
def append_until_due(
    held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, cursor: Int64Vector
) -> int:
    """Let records of the block in until one of those held must leave; return the cause, or `NOT_DUE` at its end.

    ``steps`` (2,): how many are still to come in, and the newest position; both are kept up.
    """
    while True:
        cause = due_cause(held, workspace, constraints, cursor[1])
        if cause != records.NOT_DUE or cursor[0] == 0:
            return int(cause)
        cursor[1] = records.append_next(held)
        cursor[0] -= 1


@njit_in_place
def due_cause(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, newest: int) -> int:
    """Return the cause for which the oldest record must leave, if not a clock that too few people hold up."""
    cause = records.cause_of_oldest(held, newest, constraints.delta, constraints.expiry_limits, 0)
    if cause == records.BY_CLOCK and not has_min_population(held, workspace, constraints):
        cause = records.cause_of_oldest(held, newest, constraints.delta, constraints.expiry_limits, 1)
    return int(cause)


@njit_in_place
def has_min_population(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints) -> bool:
    """Whether as many subjects are held as a clock or the end of the stream needs to let them go."""
    if constraints.population == 0:
        return True
    for slot in range(held.extent[HEAD], held.extent[TAIL]):
        if not held.removed[slot] and number(workspace.numbering, held.subjects[slot]) + 1 >= constraints.population:
            break
    counted = workspace.numbering.size[0]
    clear(workspace.numbering)
    return bool(counted >= constraints.population)


@njit_in_place
def squared_distances(held: HeldRecords, omega_p: float, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from the oldest."""
    squared_distances_from(held, omega_p, 0, distances)


@njit_in_place
def squared_distances_from(held: HeldRecords, omega_p: float, record: int, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from one of them, given by its distance from the head.

    Position first, then attribute by attribute.
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
    for row in range(0, dimensions - 1, 2):  # two at a time halve the traffic; the sum keeps its members
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
