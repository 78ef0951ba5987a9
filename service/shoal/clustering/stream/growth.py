"""Rules awo and greedy: the expiring record's cluster grows round its own mean, record by record.

Greedy takes whoever raises the loss least. AWO asks besides what it would cost to leave a record behind, its
opportunity cost: little where others like it are held, much where it lies alone, and more the older it is. Without
prices AWO is greedy; both differ from nearest, which looks at the expiring record and not at the mean of those who join
it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.heaps import build, sink
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.numba.subject_codes import count_up_to
from shoal.clustering.stream import held as records
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, advance, measure, measure_from
from shoal.clustering.stream.held import HEAD, TAIL, DecisionBuffer, HeldRecords
from shoal.clustering.stream.membership import hand_back, join, order_by_age
from shoal.clustering.stream.nearest import release_grown
from shoal.clustering.stream.steering_kernel import follow

__all__ = ["Offer", "empty_offer", "expire", "expire_due", "grow", "price", "put", "write_row"]


class Offer(NamedTuple):
    """Those who may join, and arrays that live for one decision.

    ``records`` (L,) by their distance from the head, the nearest first; ``rows`` (L, d + 1) their coordinates and
    weighted position; ``prices`` (L,) of leaving each behind; ``joined`` (L,); ``centre`` (d + 1,); ``smallest``
    (k - 1,) squared distances. ``pressure`` (1,): lambda, 0 for greedy.
    """

    records: Int64Vector
    rows: Float64Matrix
    prices: Float64Vector
    joined: BoolVector
    centre: Float64Vector
    smallest: Float64Vector
    pressure: Float64Vector


def empty_offer(most: int, dimensions: int, k: int, pressure: float) -> Offer:
    """Allocate the arrays of a rule once, for at most so many records that may join."""
    return Offer(
        records=np.zeros(most, np.int64),
        rows=np.zeros((most, dimensions + 1)),
        prices=np.zeros(most),
        joined=np.zeros(most, np.bool_),
        centre=np.zeros(dimensions + 1),
        smallest=np.zeros(k - 1),
        pressure=np.full(1, pressure),
    )


@njit_in_place
def expire_due(
    held: HeldRecords,
    scratch: Workspace,
    offer: Offer,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    steps: Int64Vector,
) -> None:
    """Let records of the block in, one by one, and decide on all that becomes due; ``steps`` as for rule nearest."""
    while True:
        cause = advance(held, scratch, demand, steps)
        if cause == records.NOT_DUE:
            return
        expire(held, scratch, offer, outcome, demand, steps[1], cause)


@njit_in_place
def expire(
    held: HeldRecords,
    scratch: Workspace,
    offer: Offer,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    newest: int,
    cause: int,
) -> None:
    """Decide on the oldest record, and let the weight of the position follow."""
    decided = outcome.counts[records.CLUSTERS]
    _expire(held, scratch, offer, outcome, demand, newest, cause)
    follow(demand.omega_p, demand.target, outcome, decided)


@njit_in_place
def _expire(
    held: HeldRecords,
    scratch: Workspace,
    offer: Offer,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    newest: int,
    cause: int,
) -> None:
    """Release the oldest record in a cluster that grows to k subjects, or suppress it if fewer are held."""
    head, tail = held.line[HEAD], held.line[TAIL]
    subjects = held.subjects[head:tail]
    if count_up_to(scratch.numbering, subjects, demand.k) < demand.k:
        records.suppress(held, outcome, newest, cause)
        return
    count = _list_nearest(held, scratch, offer, demand.omega_p[0])
    if offer.pressure[0] > 0.0:
        _price(held, scratch, offer, demand, count, newest)
    write_row(held, 0, demand.omega_p[0], offer.centre)
    size = grow(subjects, scratch, offer, demand.k, count)
    if scratch.numbering.size[0] < demand.k:
        # All that may join are the same few people: the rule for them is the one that looks at everybody.
        hand_back(scratch, size, 1.0)
        release_grown(held, scratch, outcome, demand, newest, cause, demand.k)
        return
    left = hand_back(scratch, size, demand.max_share)
    if size == demand.k:
        _guard(held, scratch, offer, demand.k)
    order_by_age(scratch.order[:size], scratch.heap[: tail - head])
    records.release(held, outcome, scratch.order[:left], newest, cause)


@njit_in_place
def _list_nearest(held: HeldRecords, scratch: Workspace, offer: Offer, omega_p: float) -> int:
    """Write the records nearest to the oldest into the offer; return how many. Of equally near ones the older."""
    head, tail = held.line[HEAD], held.line[TAIL]
    distances, heap = scratch.distances[: tail - head], scratch.heap[: tail - head - 1]
    measure(held, omega_p, distances)
    for x in range(heap.size):
        heap[x] = x + 1
    build(heap, distances)
    count, remaining = min(offer.records.size, heap.size), heap.size
    for place in range(count):
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sink(heap, remaining, 0, distances)
        put(held, offer, place, record, omega_p)
    return count


@njit_in_place
def put(held: HeldRecords, offer: Offer, place: int, record: int, omega_p: float) -> None:
    """Put a record on a place of the offer; its price is 0 for now."""
    offer.records[place] = record
    offer.joined[place] = False
    offer.prices[place] = 0.0
    write_row(held, record, omega_p, offer.rows[place])


@njit_in_place
def write_row(held: HeldRecords, record: int, omega_p: float, row: Float64Vector) -> None:
    """Write the coordinates of a record; its position counts from that of the oldest, so that it stays exact."""
    place, last = held.line[HEAD] + record, row.size - 1
    for j in range(last):
        row[j] = held.coordinates[j, place]
    row[last] = omega_p * float(held.positions[place] - held.positions[held.line[HEAD]])


@njit_in_place
def _price(
    held: HeldRecords, scratch: Workspace, offer: Offer, demand: StreamConstraints, count: int, newest: int
) -> None:
    """Write what it will cost to leave each behind: half its mean distance to k - 1 others, by age."""
    head, tail = held.line[HEAD], held.line[TAIL]
    distances = scratch.distances[: tail - head]
    for place in range(count):
        record = offer.records[place]
        measure_from(held, demand.omega_p[0], record, distances)
        distances[record] = np.inf
        _list_smallest(distances, offer.smallest)
        offer.prices[place] = price(offer, demand, newest - held.positions[head + record])


@njit_in_place
def price(offer: Offer, demand: StreamConstraints, age: int) -> float:
    """Return what it will cost to leave a record behind whose smallest distances are in the offer."""
    share, total = offer.pressure[0] * 0.5 / float(offer.smallest.size * demand.delta), 0.0
    for distance in offer.smallest:
        total += distance
    return float(share * float(age) * total)


@njit_in_place
def _list_smallest(distances: Float64Vector, smallest: Float64Vector) -> None:
    """Write the ``smallest.size`` smallest distances, from the smallest on."""
    last = smallest.size - 1
    smallest[:] = np.inf
    for distance in distances:
        if distance < smallest[last]:
            i = last
            while i > 0 and smallest[i - 1] > distance:
                smallest[i] = smallest[i - 1]
                i -= 1
            smallest[i] = distance


@njit_in_place
def grow(subjects: Int64Vector, scratch: Workspace, offer: Offer, k: int, count: int) -> int:
    """Write the cluster to ``order`` until k subjects are in, or nobody is left who may join; return its size.

    Fills what `membership.join` fills; the numbering stays filled.
    """
    centre, width = offer.centre, offer.centre.size
    join(scratch, subjects, 0, 0)
    size = 1
    while scratch.numbering.size[0] < k and size <= count:
        weight, best, chosen = size / (size + 1.0), np.inf, -1
        for place in range(count):
            if not offer.joined[place]:
                away = 0.0
                for j in range(width):
                    step = offer.rows[place, j] - centre[j]
                    away += step * step
                cost = weight * away - offer.prices[place]
                if cost < best or chosen < 0:
                    best, chosen = cost, place
        offer.joined[chosen] = True
        join(scratch, subjects, offer.records[chosen], size)
        size += 1
        for j in range(width):
            centre[j] += (offer.rows[chosen, j] - centre[j]) / size
    return size


@njit_in_place
def _guard(held: HeldRecords, scratch: Workspace, offer: Offer, k: int) -> None:
    """Take old records along, as far as that keeps enough people for the next that expires.

    After a decision ``held - k`` records are left, and as many more arrive before the oldest of these expires as it is
    younger than this one. If that makes fewer than k it would be suppressed: it takes the place of the younger member
    that is farthest from the mean. All members are different people, and stay so.
    """
    head, tail = held.line[HEAD], held.line[TAIL]
    positions, order, inside = held.positions[head:tail], scratch.order[:k], scratch.heap[: tail - head]
    inside[:] = 0
    for record in order:
        inside[record] = 1
    oldest = 0
    for _ in range(k):
        while oldest < inside.size and inside[oldest]:
            oldest += 1
        if oldest == inside.size or inside.size - k + positions[oldest] - positions[0] >= k:
            return
        place = _whom_to_replace(held, offer, order, oldest)
        if place < 0:
            return
        inside[order[place]], inside[oldest] = 0, 1
        order[place] = oldest


@njit_in_place
def _whom_to_replace(held: HeldRecords, offer: Offer, order: Int64Vector, record: int) -> int:
    """Return the place of the farthest member that is younger than a record and may go for it, or -1."""
    subjects = held.subjects[held.line[HEAD] : held.line[TAIL]]
    farthest, chosen = -1.0, -1
    for place in range(order.size):
        if subjects[order[place]] == subjects[record]:
            return place if order[place] > record else -1
        if order[place] > record:
            away = _away(held, order[place], offer.centre)
            if away > farthest:
                farthest, chosen = away, place
    return chosen


@njit_in_place
def _away(held: HeldRecords, record: int, centre: Float64Vector) -> float:
    total = 0.0
    for j in range(centre.size - 1):
        step = held.coordinates[j, held.line[HEAD] + record] - centre[j]
        total += step * step
    return total
