"""The records that may be added to a growing cluster, and their opportunity costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit_inline
from shoal.clustering.stream.expiry import StreamConstraints
from shoal.clustering.stream.held_records import HEAD, HeldRecords

__all__ = [
    "Candidates",
    "add_code_distances",
    "empty_candidates",
    "opportunity_cost",
    "set_candidate",
    "write_point",
]


class Candidates(NamedTuple):
    """Records that may be added to the cluster, and scratch arrays of one decision.

    Attributes
    ----------
    records : int64 (L,)
        Candidate records, the nearest to the oldest record first.
    points : float64 (L, d + 1)
        Their coordinates and weighted position.
    opportunity_costs : float64 (L,)
        Expected cost of leaving each candidate out of the cluster.
    codes : int64 (c, L)
        Their codes, one row per category column.
    code_sums : float64 (L,)
        Sum of the squared distances of each candidate from the members in the category columns.
    is_member : bool (L,)
        Whether the candidate is a member of the cluster.
    centroid : float64 (d + 1,)
        Mean of the members.
    smallest_squared_distances : float64 (k - 1,)
        The k - 1 smallest squared distances of one candidate from other held records; scratch.
    opportunity_weight : float64 (1,)
        Weight of opportunity costs; 0 for rule greedy.
    """

    records: Int64Vector
    points: Float64Matrix
    opportunity_costs: Float64Vector
    codes: Int64Matrix
    code_sums: Float64Vector
    is_member: BoolVector
    centroid: Float64Vector
    smallest_squared_distances: Float64Vector
    opportunity_weight: Float64Vector


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
def add_code_distances(held: HeldRecords, candidates: Candidates, record: int, count: int) -> None:
    """Add the squared distances from a new member to the sums of the first ``count`` candidates."""
    sums = candidates.code_sums[:count]
    for column in range(candidates.codes.shape[0]):
        codes, distance = candidates.codes[column, :count], held.code_distances[column]
        own = held.codes[column, held.extent[HEAD] + record]
        for candidate in range(count):
            sums[candidate] += distance if codes[candidate] != own else 0.0
