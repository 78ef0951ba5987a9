"""Rule nearest: the expiring record leaves with its nearest held neighbours (Algorithms 2 and 3 of [1]_, Note 1).

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.heaps import build, sink
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.numba.subject_codes import clear, count_up_to
from shoal.clustering.stream import held as records
from shoal.clustering.stream.dominance_kernel import dominating
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, advance, is_populated, measure
from shoal.clustering.stream.held import HEAD, TAIL, DecisionBuffer, HeldRecords
from shoal.clustering.stream.membership import all_differ, cap, hand_back, join, order_by_age, take_out
from shoal.clustering.stream.steering_kernel import follow

__all__ = ["expire", "expire_due", "expire_rest", "release_grown"]

PATIENCE = 4
"""A cluster takes at most so many times k records more to keep one person's contribution from standing out."""


@njit_in_place
def expire_due(
    held: HeldRecords, scratch: Workspace, outcome: DecisionBuffer, demand: StreamConstraints, steps: Int64Vector
) -> None:
    """Let records of the block in, one by one, and decide on all that becomes due.

    ``steps`` (2,): how many are still to come in, and the newest position; both are kept up.
    """
    while True:
        cause = advance(held, scratch, demand, steps)
        if cause == records.NOT_DUE:
            return
        expire(held, scratch, outcome, demand, steps[1], cause)


@njit_in_place
def expire_rest(
    held: HeldRecords, scratch: Workspace, outcome: DecisionBuffer, demand: StreamConstraints, newest: int
) -> None:
    """Decide on all held records: the stream has ended.

    Fewer than 2k subjects leave as one cluster, for two could not be filled; fewer than k are suppressed, or fewer
    than the population asked for.
    """
    if not is_populated(held, scratch, demand):
        while held.line[HEAD] < held.line[TAIL]:
            records.suppress(held, outcome, newest, records.FLUSHED)
    while held.line[HEAD] < held.line[TAIL]:
        subjects = held.subjects[held.line[HEAD] : held.line[TAIL]]
        if demand.k <= count_up_to(scratch.numbering, subjects, 2 * demand.k) < 2 * demand.k:
            decided = outcome.counts[records.CLUSTERS]
            if demand.dominance.share > 0.0:
                _release_balanced(held, scratch, outcome, demand, newest, records.FLUSHED, subjects.size + 1)
            else:
                release_grown(held, scratch, outcome, demand, newest, records.FLUSHED, subjects.size + 1)
            follow(demand.omega_p, demand.target, outcome, decided)
        else:
            expire(held, scratch, outcome, demand, newest, records.FLUSHED)


@njit_in_place
def expire(
    held: HeldRecords, scratch: Workspace, outcome: DecisionBuffer, demand: StreamConstraints, newest: int, cause: int
) -> None:
    """Release the oldest record in a cluster of k subjects, or suppress it if fewer are held."""
    decided = outcome.counts[records.CLUSTERS]
    _expire(held, scratch, outcome, demand, newest, cause)
    follow(demand.omega_p, demand.target, outcome, decided)


@njit_in_place
def _expire(
    held: HeldRecords, scratch: Workspace, outcome: DecisionBuffer, demand: StreamConstraints, newest: int, cause: int
) -> None:
    head, tail = held.line[HEAD], held.line[TAIL]
    if demand.dominance.share > 0.0:
        _release_balanced(held, scratch, outcome, demand, newest, cause, demand.k)
        return
    if tail - head >= demand.k:
        distances, subjects = scratch.distances[: tail - head], held.subjects[head:tail]
        measure(held, demand.omega_p[0], distances)
        nearest = scratch.order[: demand.k]
        _select(distances, scratch.reached[: demand.k - 1], scratch.heap, nearest)
        if all_differ(subjects, nearest, scratch):
            records.release(held, outcome, nearest, newest, cause)
            return
        if count_up_to(scratch.numbering, subjects, demand.k) == demand.k:
            release_grown(held, scratch, outcome, demand, newest, cause, demand.k)
            return
    records.suppress(held, outcome, newest, cause)


@njit_in_place
def release_grown(
    held: HeldRecords,
    scratch: Workspace,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    newest: int,
    cause: int,
    wanted: int,
) -> None:
    """Release the oldest record with its nearest until ``wanted`` subjects are in, less what is above the cap."""
    head, tail = held.line[HEAD], held.line[TAIL]
    distances, subjects = scratch.distances[: tail - head], held.subjects[head:tail]
    measure(held, demand.omega_p[0], distances)
    size = _grow(distances, subjects, scratch, wanted)
    left = hand_back(scratch, size, demand.max_share)
    order_by_age(scratch.order[:size], scratch.heap[: tail - head])
    records.release(held, outcome, scratch.order[:left], newest, cause)


@njit_in_place
def _release_balanced(
    held: HeldRecords,
    scratch: Workspace,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    newest: int,
    cause: int,
    wanted: int,
) -> None:
    """Release the oldest record as `release_grown` does, in a cluster in which nobody's contribution stands out.

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
    measure(held, demand.omega_p[0], distances)
    heap = scratch.heap[: distances.size - 1]
    for x in range(heap.size):
        heap[x] = x + 1
    build(heap, distances)
    record, size, left, present, remaining, patience = 0, 0, 0, 0, heap.size, PATIENCE * demand.k
    while True:
        present += join(scratch, subjects, record, size)
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
        order_by_age(scratch.order[:size], scratch.heap[: tail - head])
        records.release(held, outcome, scratch.order[:left], newest, cause)
    else:
        records.suppress(held, outcome, newest, cause)


@njit_in_place
def _balance(
    amounts: Float64Matrix, scratch: Workspace, demand: StreamConstraints, size: int, present: int, left: int
) -> tuple[int, int, bool]:
    """Hand back what is above its share, and the farthest records of whoever stands out, but not the expiring one.

    ``present`` subjects and ``left`` records are in the cluster before, and are returned; and whether it may leave.
    """
    while present >= demand.k:
        left = cap(scratch, left, demand.max_share)
        counts = scratch.counts[: scratch.numbering.size[0]]
        owner = dominating(amounts, scratch.order[:size], scratch.owners, counts, scratch.totals, demand.dominance)
        if owner < 0:
            return present, left, True
        if scratch.order[scratch.last[owner]] == 0:
            break
        take_out(scratch, scratch.last[owner])
        left -= 1
        present -= scratch.counts[owner] == 0
    return present, left, False


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
def _grow(distances: Float64Vector, subjects: Int64Vector, scratch: Workspace, wanted: int) -> int:
    """Write records to ``order`` from the nearest on until ``wanted`` subjects are in; return how many.

    Fills ``owners``, ``before``, ``counts`` and ``last`` on the way; the numbering stays filled.
    """
    heap = scratch.heap[: distances.size - 1]
    for x in range(heap.size):
        heap[x] = x + 1
    build(heap, distances)
    record, size, remaining = 0, 0, heap.size
    while True:
        join(scratch, subjects, record, size)
        size += 1
        if scratch.numbering.size[0] >= wanted or remaining == 0:
            return size
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sink(heap, remaining, 0, distances)
