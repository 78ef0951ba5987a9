"""When a record must leave, what is asked of the cluster it leaves in, and the arrays one decision works on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.numba.subject_codes import Numbering, clear, empty_numbering, number
from shoal.clustering.stream import held as records
from shoal.clustering.stream.dominance_kernel import Dominance
from shoal.clustering.stream.held import HEAD, TAIL, HeldRecords
from shoal.clustering.stream.steering_kernel import Target

__all__ = [
    "StreamConstraints",
    "Workspace",
    "advance",
    "due",
    "empty_workspace",
    "is_populated",
    "measure",
    "measure_from",
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
    reach: Int64Vector
    population: int
    dominance: Dominance
    target: Target


class Workspace(NamedTuple):
    """Arrays that live for one decision, all as long as the buffer; records are named by their distance from the head.

    ``distances`` to the expiring record; ``reached`` the k - 1 smallest of them; ``order`` the cluster; ``heap``;
    ``owners`` by place in the cluster: number of the subject; ``before``: place of the next nearer record of the same
    subject, or -1; ``counts``, ``last`` and ``totals`` by number: records in the cluster, place of the farthest,
    contribution.
    """

    distances: Float64Vector
    reached: Float64Vector
    order: Int64Vector
    heap: Int64Vector
    owners: Int64Vector
    before: Int64Vector
    counts: Int64Vector
    last: Int64Vector
    totals: Float64Vector
    numbering: Numbering


def empty_workspace(capacity: int) -> Workspace:
    """Allocate the scratch arrays once."""
    order, heap, owners, before, counts, last = np.zeros((6, capacity), np.int64)
    distances, reached, totals = np.zeros((3, capacity))
    numbering = empty_numbering(capacity)
    return Workspace(distances, reached, order, heap, owners, before, counts, last, totals, numbering)


@njit_in_place
def advance(held: HeldRecords, scratch: Workspace, demand: StreamConstraints, steps: Int64Vector) -> int:
    """Let records of the block in until one of those held must leave; return the cause, or `NOT_DUE` at its end.

    ``steps`` (2,): how many are still to come in, and the newest position; both are kept up.
    """
    while True:
        cause = due(held, scratch, demand, steps[1])
        if cause != records.NOT_DUE or steps[0] == 0:
            return int(cause)
        steps[1] = records.arrive(held)
        steps[0] -= 1


@njit_in_place
def due(held: HeldRecords, scratch: Workspace, demand: StreamConstraints, newest: int) -> int:
    """Return the cause for which the oldest record must leave, if not a clock that too few people hold up."""
    cause = records.due(held, newest, demand.delta, demand.reach, 0)
    if cause == records.BY_CLOCK and not is_populated(held, scratch, demand):
        cause = records.due(held, newest, demand.delta, demand.reach, 1)
    return int(cause)


@njit_in_place
def is_populated(held: HeldRecords, scratch: Workspace, demand: StreamConstraints) -> bool:
    """Whether as many subjects are held as a clock or the end of the stream needs to let them go."""
    if demand.population == 0:
        return True
    for place in range(held.line[HEAD], held.line[TAIL]):
        if not held.gone[place] and number(scratch.numbering, held.subjects[place]) + 1 >= demand.population:
            break
    counted = scratch.numbering.size[0]
    clear(scratch.numbering)
    return bool(counted >= demand.population)


@njit_in_place
def measure(held: HeldRecords, omega_p: float, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from the oldest."""
    measure_from(held, omega_p, 0, distances)


@njit_in_place
def measure_from(held: HeldRecords, omega_p: float, record: int, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from one of them, given by its distance from the head.

    Position first, then attribute by attribute.
    """
    head, count = held.line[HEAD], distances.size
    if omega_p > 0.0:
        positions = held.positions[head : head + count]
        its = positions[record]
        for x in range(count):
            step = omega_p * float(positions[x] - its)
            distances[x] = step * step
    else:
        distances[:] = 0.0
    dimensions = held.coordinates.shape[0]
    for row in range(0, dimensions - 1, 2):  # two at a time halve the traffic; the sum keeps its order
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
