"""Rule nearest: the expiring record leaves with its nearest held neighbours (Algorithms 2 and 3 of [1]_, Note 1).

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernel import held as records
from shoal.kernel.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.kernel.dominance import Dominance, dominating
from shoal.kernel.heaps import build, sink
from shoal.kernel.held import HEAD, TAIL, Held, Outcome
from shoal.kernel.jit import njit_in_place
from shoal.kernel.subjects import Numbering, clear, count_up_to, empty_numbering, number

__all__ = ["Demand", "Scratch", "empty_scratch", "expire_due", "expire_rest"]

SHARE_TOLERANCE = 1e-9
"""What a share may exceed its cap by: 0.3 of 10 records are 3, whatever the rounding of 0.3."""

PATIENCE = 4
"""A cluster takes at most so many times k records more to keep one person's contribution from standing out."""


class Demand(NamedTuple):
    """What is asked for: ``k`` subjects, ``delta`` positions, weight ``omega_p``, ``max_share``, ``reach`` (C,).

    And, if it is asked for: the ``population`` without which no clock lets anybody go (else 0), and ``dominance``.
    """

    k: int
    delta: int
    omega_p: float
    max_share: float
    reach: Int64Vector
    population: int
    dominance: Dominance


class Scratch(NamedTuple):
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


def empty_scratch(capacity: int) -> Scratch:
    """Allocate the scratch arrays once."""
    order, heap, owners, before, counts, last = np.zeros((6, capacity), np.int64)
    distances, reached, totals = np.zeros((3, capacity))
    numbering = empty_numbering(capacity)
    return Scratch(distances, reached, order, heap, owners, before, counts, last, totals, numbering)


@njit_in_place
def expire_due(held: Held, scratch: Scratch, outcome: Outcome, demand: Demand, arriving: int) -> None:
    """Let the next ``arriving`` records of the block in, one by one, and decide on all that becomes due."""
    for _ in range(arriving):
        newest = records.arrive(held)
        cause = _due(held, scratch, demand, newest)
        while cause != records.NOT_DUE:
            _expire(held, scratch, outcome, demand, newest, cause)
            cause = _due(held, scratch, demand, newest)


@njit_in_place
def expire_rest(held: Held, scratch: Scratch, outcome: Outcome, demand: Demand, newest: int) -> None:
    """Decide on all held records: the stream has ended.

    Fewer than 2k subjects leave as one cluster, for two could not be filled; fewer than k are suppressed, or fewer
    than the population asked for.
    """
    if not _is_populated(held, scratch, demand):
        while held.line[HEAD] < held.line[TAIL]:
            records.suppress(held, outcome, newest, records.FLUSHED)
    while held.line[HEAD] < held.line[TAIL]:
        subjects = held.subjects[held.line[HEAD] : held.line[TAIL]]
        if demand.k <= count_up_to(scratch.numbering, subjects, 2 * demand.k) < 2 * demand.k:
            if demand.dominance.share > 0.0:
                _release_balanced(held, scratch, outcome, demand, newest, records.FLUSHED, subjects.size + 1)
            else:
                _release_grown(held, scratch, outcome, demand, newest, records.FLUSHED, subjects.size + 1)
        else:
            _expire(held, scratch, outcome, demand, newest, records.FLUSHED)


@njit_in_place
def _due(held: Held, scratch: Scratch, demand: Demand, newest: int) -> int:
    """Return the cause for which the oldest record must leave, if not a clock that too few people hold up."""
    cause = records.due(held, newest, demand.delta, demand.reach, 0)
    if cause == records.BY_CLOCK and not _is_populated(held, scratch, demand):
        cause = records.due(held, newest, demand.delta, demand.reach, 1)
    return int(cause)


@njit_in_place
def _is_populated(held: Held, scratch: Scratch, demand: Demand) -> bool:
    """Whether as many subjects are held as a clock or the end of the stream needs to let them go."""
    if demand.population == 0:
        return True
    subjects = held.subjects[held.line[HEAD] : held.line[TAIL]]
    return bool(count_up_to(scratch.numbering, subjects, demand.population) >= demand.population)


@njit_in_place
def _expire(held: Held, scratch: Scratch, outcome: Outcome, demand: Demand, newest: int, cause: int) -> None:
    """Release the oldest record in a cluster of k subjects, or suppress it if fewer are held."""
    head, tail = held.line[HEAD], held.line[TAIL]
    if demand.dominance.share > 0.0:
        _release_balanced(held, scratch, outcome, demand, newest, cause, demand.k)
        return
    if tail - head >= demand.k:
        distances, subjects = scratch.distances[: tail - head], held.subjects[head:tail]
        _measure(held, demand.omega_p, distances)
        nearest = scratch.order[: demand.k]
        _select(distances, scratch.reached[: demand.k - 1], scratch.heap, nearest)
        if _all_differ(subjects, nearest, scratch):
            records.release(held, outcome, nearest, newest, cause)
            return
        if count_up_to(scratch.numbering, subjects, demand.k) == demand.k:
            _release_grown(held, scratch, outcome, demand, newest, cause, demand.k)
            return
    records.suppress(held, outcome, newest, cause)


@njit_in_place
def _release_grown(
    held: Held, scratch: Scratch, outcome: Outcome, demand: Demand, newest: int, cause: int, wanted: int
) -> None:
    """Release the oldest record with its nearest until ``wanted`` subjects are in, less what is above the cap."""
    head, tail = held.line[HEAD], held.line[TAIL]
    distances, subjects = scratch.distances[: tail - head], held.subjects[head:tail]
    _measure(held, demand.omega_p, distances)
    size = _grow(distances, subjects, scratch, wanted)
    left = _hand_back(scratch, size, demand.max_share)
    _order_by_age(scratch.order[:size], scratch.heap[: tail - head])
    records.release(held, outcome, scratch.order[:left], newest, cause)


@njit_in_place
def _release_balanced(
    held: Held, scratch: Scratch, outcome: Outcome, demand: Demand, newest: int, cause: int, wanted: int
) -> None:
    """Release the oldest record as `_release_grown` does, in a cluster in which nobody's contribution stands out.

    A subject that stands out is handed back, its farthest records first, and the next nearest records are taken for
    it. Where the expiring record itself stands out, more are taken until it does not. It is suppressed if that needs
    more than `PATIENCE` k records more than ``wanted`` subjects do, or all that are held.
    """
    head, tail = held.line[HEAD], held.line[TAIL]
    distances, subjects, amounts = (
        scratch.distances[: tail - head],
        held.subjects[head:tail],
        held.amounts[:, head:tail],
    )
    _measure(held, demand.omega_p, distances)
    heap = scratch.heap[: distances.size - 1]
    for x in range(heap.size):
        heap[x] = x + 1
    build(heap, distances)
    record, size, left, present, remaining, patience = 0, 0, 0, 0, heap.size, PATIENCE * demand.k
    while True:
        present += _join(scratch, subjects, record, size)
        size, left = size + 1, left + 1
        is_last = remaining == 0 or patience == 0
        fits = False
        if present >= wanted or is_last:
            present, left, fits = _balance(amounts, scratch, demand, size, present, left)
            patience -= 1
        if is_last or (fits and present >= wanted):
            break
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sink(heap, remaining, 0, distances)
    scratch.counts[: scratch.numbering.size[0]] = 0
    clear(scratch.numbering)
    if fits and (present >= wanted or remaining == 0):
        _order_by_age(scratch.order[:size], scratch.heap[: tail - head])
        records.release(held, outcome, scratch.order[:left], newest, cause)
    else:
        records.suppress(held, outcome, newest, cause)


@njit_in_place
def _balance(
    amounts: Float64Matrix, scratch: Scratch, demand: Demand, size: int, present: int, left: int
) -> tuple[int, int, bool]:
    """Hand back what is above its share, and the farthest records of whoever stands out, but not the expiring one.

    ``present`` subjects and ``left`` records are in the cluster before, and are returned; and whether it may leave.
    """
    while present >= demand.k:
        left = _cap(scratch, left, demand.max_share)
        counts = scratch.counts[: scratch.numbering.size[0]]
        owner = dominating(amounts, scratch.order[:size], scratch.owners, counts, scratch.totals, demand.dominance)
        if owner < 0:
            return present, left, True
        if scratch.order[scratch.last[owner]] == 0:
            break
        _take_out(scratch, scratch.last[owner])
        left -= 1
        present -= scratch.counts[owner] == 0
    return present, left, False


@njit_in_place
def _measure(held: Held, omega_p: float, distances: Float64Vector) -> None:
    """Write the squared distance of every held record from the oldest: position first, then attribute by attribute."""
    head, count = held.line[HEAD], distances.size
    if omega_p > 0.0:
        positions = held.positions[head : head + count]
        oldest = positions[0]
        for x in range(count):
            step = omega_p * float(positions[x] - oldest)
            distances[x] = step * step
    else:
        distances[:] = 0.0
    dimensions = held.coordinates.shape[0]
    for row in range(0, dimensions - 1, 2):  # two at a time halve the traffic; the sum keeps its order
        one, two = held.coordinates[row, head : head + count], held.coordinates[row + 1, head : head + count]
        centre_one, centre_two = one[0], two[0]
        for x in range(count):
            e, f = one[x] - centre_one, two[x] - centre_two
            distances[x] = distances[x] + e * e + f * f
    if dimensions % 2:
        one = held.coordinates[dimensions - 1, head : head + count]
        centre_one = one[0]
        for x in range(count):
            e = one[x] - centre_one
            distances[x] = distances[x] + e * e


@njit_in_place
def _select(distances: Float64Vector, reached: Float64Vector, tried: Int64Vector, nearest: Int64Vector) -> None:
    """Write the oldest record and its ``reached.size`` nearest others to ``nearest``, from old to young.

    One pass keeps the smallest distances in order, and lists in ``tried`` all records that were among the nearest for
    a while. Of these, all are taken that are nearer than the last one, and the oldest of those that are just as far.
    """
    reached[:] = np.inf
    last, count = reached.size - 1, 0
    for x in range(1, distances.size):
        distance = distances[x]
        # The first ones are listed even at an infinite distance (their squares overflow): somebody must fill up.
        if distance < reached[last] or x <= reached.size:
            tried[count] = x
            count += 1
            for i in range(last, 0, -1):
                reached[i] = min(reached[i], max(distance, reached[i - 1]))
            reached[0] = min(reached[0], distance)
    farthest, nearer = reached[last], 0
    for x in tried[:count]:
        nearer += distances[x] < farthest
    equal = reached.size - nearer
    nearest[0] = 0
    taken = 1
    for x in tried[:count]:  # the last of them is always taken, so that none is written behind the end
        fits = distances[x] == farthest and equal > 0
        equal -= fits
        nearest[taken] = x
        taken += fits or distances[x] < farthest


@njit_in_place
def _all_differ(subjects: Int64Vector, nearest: Int64Vector, scratch: Scratch) -> bool:
    """Whether no subject occurs twice."""
    for x in nearest:
        number(scratch.numbering, subjects[x])
    differ = scratch.numbering.size[0] == nearest.size
    clear(scratch.numbering)
    return bool(differ)


@njit_in_place
def _grow(distances: Float64Vector, subjects: Int64Vector, scratch: Scratch, wanted: int) -> int:
    """Write records to ``order`` from the nearest on until ``wanted`` subjects are in; return how many.

    Fills ``owners``, ``before``, ``counts`` and ``last`` on the way; the numbering stays filled.
    """
    heap = scratch.heap[: distances.size - 1]
    for x in range(heap.size):
        heap[x] = x + 1
    build(heap, distances)
    record, size, remaining = 0, 0, heap.size
    while True:
        _join(scratch, subjects, record, size)
        size += 1
        if scratch.numbering.size[0] >= wanted or remaining == 0:
            return size
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sink(heap, remaining, 0, distances)


@njit_in_place
def _join(scratch: Scratch, subjects: Int64Vector, record: int, place: int) -> int:
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
def _take_out(scratch: Scratch, place: int) -> None:
    """Take the farthest record of a subject out of the cluster; its place in ``order`` becomes -1."""
    owner = scratch.owners[place]
    scratch.last[owner] = scratch.before[place]
    scratch.counts[owner] -= 1
    scratch.order[place] = -1


@njit_in_place
def _hand_back(scratch: Scratch, size: int, max_share: float) -> int:
    """Take what is above its share out of the cluster, and clear what `_grow` filled; return how many stay."""
    left = _cap(scratch, size, max_share)
    scratch.counts[: scratch.numbering.size[0]] = 0
    clear(scratch.numbering)
    return int(left)


@njit_in_place
def _cap(scratch: Scratch, left: int, max_share: float) -> int:
    """Take the farthest record of a subject above its share out, until none is above; return how many are left.

    Every subject stays in: one record among k or more subjects is never above a share of 1/k.
    """
    counts = scratch.counts[: scratch.numbering.size[0]]
    while True:
        farthest = _farthest_surplus(counts, scratch.last, max_share * left + SHARE_TOLERANCE)
        if farthest < 0:
            return left
        _take_out(scratch, farthest)
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
def _order_by_age(order: Int64Vector, marks: Int64Vector) -> None:
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
