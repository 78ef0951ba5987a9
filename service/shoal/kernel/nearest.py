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
from shoal.kernel.arrays import Float64Vector, Int64Vector
from shoal.kernel.heaps import build, sink
from shoal.kernel.held import HEAD, TAIL, Held, Outcome
from shoal.kernel.jit import njit
from shoal.kernel.tally import DISTINCT, Tally

__all__ = ["Demand", "Scratch", "empty_scratch", "expire_due", "expire_rest"]

SHARE_TOLERANCE = 1e-9
"""What a share may exceed its cap by: 0.3 of 10 records are 3, whatever the rounding of 0.3."""


class Demand(NamedTuple):
    """What is asked for: ``k`` subjects, ``delta`` positions, weight ``omega_p``, ``max_share``, ``reach`` (C,)."""

    k: int
    delta: int
    omega_p: float
    max_share: float
    reach: Int64Vector


class Scratch(NamedTuple):
    """Arrays that live for one decision; all of the buffer's capacity.

    ``distances`` to the expiring record; ``order`` and ``heap`` hold records by their distance from the head;
    ``counts`` per owner, zero between decisions; ``who`` owners in the cluster; ``last`` per owner and ``before`` per
    place in ``order`` chain the records of one owner from the farthest to the nearest; ``book`` (1,) length of ``who``.
    """

    distances: Float64Vector
    order: Int64Vector
    heap: Int64Vector
    counts: Int64Vector
    who: Int64Vector
    last: Int64Vector
    before: Int64Vector
    book: Int64Vector


def empty_scratch(capacity: int) -> Scratch:
    """Allocate the scratch arrays once."""
    order, heap, counts, who, last, before = np.zeros((6, capacity), np.int64)
    return Scratch(np.zeros(capacity), order, heap, counts, who, last, before, np.zeros(1, np.int64))


@njit
def expire_due(held: Held, tally: Tally, scratch: Scratch, outcome: Outcome, demand: Demand, arriving: int) -> None:
    """Let the next ``arriving`` records of the block in, one by one, and decide on all that becomes due."""
    for _ in range(arriving):
        newest = records.arrive(held, tally)
        cause = records.due(held, newest, demand.delta, demand.reach)
        while cause != records.NOT_DUE:
            _expire(held, tally, scratch, outcome, demand, newest, cause, demand.k)
            cause = records.due(held, newest, demand.delta, demand.reach)


@njit
def expire_rest(held: Held, tally: Tally, scratch: Scratch, outcome: Outcome, demand: Demand, newest: int) -> None:
    """Decide on all held records: the stream has ended.

    Fewer than 2k subjects leave as one cluster, for two could not be filled; fewer than k are suppressed.
    """
    while held.line[HEAD] < held.line[TAIL]:
        wanted = demand.k
        if tally.book[DISTINCT] < 2 * demand.k:
            wanted = held.line[TAIL] - held.line[HEAD] + 1  # never reached: all records are taken
        _expire(held, tally, scratch, outcome, demand, newest, records.FLUSHED, wanted)


@njit
def _expire(
    held: Held,
    tally: Tally,
    scratch: Scratch,
    outcome: Outcome,
    demand: Demand,
    newest: int,
    cause: int,
    wanted: int,
) -> None:
    """Release the oldest record in a cluster of ``wanted`` subjects, or suppress it if fewer than k are held."""
    if tally.book[DISTINCT] < demand.k:
        records.suppress(held, tally, outcome, newest, cause)
        return
    head, tail = held.line[HEAD], held.line[TAIL]
    distances, owners = scratch.distances[: tail - head], held.owners[head:tail]
    _measure(held, demand.omega_p, distances)
    size = 0
    if wanted == demand.k:
        size = _select(distances, owners, scratch, demand.k)
    if size == 0:
        size = _grow(distances, owners, scratch, wanted)
        size = _hand_back(owners, scratch, size, demand.max_share)
    members = scratch.order[:size]
    members.sort()
    records.release(held, tally, outcome, members, newest, cause)


@njit
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


@njit
def _select(distances: Float64Vector, owners: Int64Vector, scratch: Scratch, k: int) -> int:
    """Write the oldest record and the k - 1 nearest to ``order``; return k, or 0 if a subject occurs twice.

    The heap holds the best so far, worst on top. Records come from old to young, so an equal one never displaces.
    """
    if distances.size < k:
        return 0
    order, counts = scratch.order, scratch.counts
    near = order[1:k]
    for x in range(1, k):
        near[x - 1] = x
    build(near, distances, True)
    worst = distances[near[0]]
    for x in range(k, distances.size):
        if distances[x] < worst:
            near[0] = x
            sink(near, near.size, 0, distances, True)
            worst = distances[near[0]]
    order[0] = 0
    repeated = False
    for i in range(k):
        counts[owners[order[i]]] += 1
    for i in range(k):
        repeated = repeated or counts[owners[order[i]]] > 1
    for i in range(k):
        counts[owners[order[i]]] = 0
    return 0 if repeated else k


@njit
def _grow(distances: Float64Vector, owners: Int64Vector, scratch: Scratch, wanted: int) -> int:
    """Write records to ``order`` from the nearest on until ``wanted`` subjects are in; return how many.

    ``counts`` and ``who`` are left filled for `_hand_back`, which clears them.
    """
    order, counts, who = scratch.order, scratch.counts, scratch.who
    heap = scratch.heap[: distances.size - 1]
    for x in range(heap.size):
        heap[x] = x + 1
    build(heap, distances, False)
    record, size, subjects, remaining = 0, 0, 0, heap.size
    while True:
        owner = owners[record]
        if counts[owner] == 0:
            who[subjects] = owner
            subjects += 1
        counts[owner] += 1
        order[size] = record
        size += 1
        if subjects >= wanted or remaining == 0:
            break
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sink(heap, remaining, 0, distances, False)
    scratch.book[0] = subjects
    return size


@njit
def _hand_back(owners: Int64Vector, scratch: Scratch, size: int, max_share: float) -> int:
    """Take the farthest record of a subject above its share out of ``order`` until there is none; return the new size.

    Ends with every subject still in: one record of k or more subjects is never above a share of 1/k.
    """
    order, counts, who, last, before = scratch.order, scratch.counts, scratch.who, scratch.last, scratch.before
    who = who[: scratch.book[0]]
    for owner in who:
        last[owner] = -1
    for i in range(size):
        before[i] = last[owners[order[i]]]
        last[owners[order[i]]] = i
    left = size
    while True:
        farthest = _farthest_surplus(who, counts, last, max_share * left + SHARE_TOLERANCE)
        if farthest < 0:
            break
        owner = owners[order[farthest]]
        last[owner] = before[farthest]
        counts[owner] -= 1
        order[farthest] = -1
        left -= 1
    for owner in who:
        counts[owner] = 0
    kept = order[:size][order[:size] >= 0]
    order[:left] = kept
    return left


@njit
def _farthest_surplus(who: Int64Vector, counts: Int64Vector, last: Int64Vector, allowed: float) -> int:
    """Return the place of the farthest record among subjects with more than ``allowed`` records, or -1."""
    farthest = -1
    for owner in who:
        if counts[owner] > allowed:
            farthest = max(farthest, last[owner])
    return farthest
