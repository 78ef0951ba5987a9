"""Rules nearest and awo where many records are held: the decisions of `nearest` and `growth`, through `cells`."""

from __future__ import annotations

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.stream import held as records
from shoal.clustering.stream.cell_index import BUILT, LOOKED, SPARED, Cells, enter_arrived, find, take_out
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, advance
from shoal.clustering.stream.growth import Offer, grow, price, put, write_row
from shoal.clustering.stream.held import EPOCH, GAPS, HEAD, TAIL, DecisionBuffer, HeldRecords
from shoal.clustering.stream.membership import hand_back, join
from shoal.clustering.stream.steering_kernel import follow

__all__ = ["DEARER", "DONE", "NOT_BUILT", "TOO_DEAR", "TOO_FEW", "expire_due"]

DONE, NOT_BUILT, TOO_DEAR, TOO_FEW = range(4)
"""How far `expire_due` came: the block is in; the cells are not those of who is held; they cost more than they save;
too few are held for them.
"""

DEARER = 8
"""What looking at one record through cells costs, in looks at one of many in a row."""
FURTHER = 4
"""How many more are looked for each time, where there were too few people among those found."""
PATIENCE = 16
"""So many decisions may cost as much as looking at everybody before it is said that the cells do not pay."""


@njit_in_place
def expire_due(
    held: HeldRecords,
    scratch: Workspace,
    cells: Cells,
    offer: Offer,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    steps: Int64Vector,
) -> int:
    """Let records of the block in and decide on all that becomes due, as long as the cells serve.

    ``offer``: of rule awo, or empty for rule nearest. ``steps`` (2,): how many are still to come in, and the newest
    position; both are kept up. Unless `DONE`, the oldest held record must leave.
    """
    looks = offer.records.size + 1  # at everybody, for each decision
    while True:
        cause = advance(held, scratch, demand, steps)
        if cause == records.NOT_DUE:
            return DONE
        if cells.state[BUILT] != held.gaps[EPOCH]:
            return NOT_BUILT
        live = held.line[TAIL] - held.line[HEAD] - held.gaps[GAPS]
        if live < looks + demand.k:  # with k more than may join there are enough for the next, whoever goes
            return TOO_FEW
        if DEARER * cells.state[LOOKED] > cells.state[SPARED] + PATIENCE * looks * live:
            return TOO_DEAR
        enter_arrived(cells, held)
        decided = outcome.counts[records.CLUSTERS]
        if offer.records.size > 0:
            has_decided = _grown(held, scratch, cells, offer, outcome, demand, steps[1], cause, live)
        else:
            has_decided = _nearest(held, scratch, cells, outcome, demand, steps[1], cause, live)
        if not has_decided:
            return TOO_DEAR
        follow(demand.omega_p, demand.target, outcome, decided)
        cells.state[SPARED] += looks * live


@njit_in_place
def _grown(
    held: HeldRecords,
    scratch: Workspace,
    cells: Cells,
    offer: Offer,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    newest: int,
    cause: int,
    live: int,
) -> bool:
    """Decide as `growth.expire` on one of ``live`` records, more than may join; False, undecided, as `_nearest`."""
    head, omega_p, count = held.line[HEAD], demand.omega_p[0], offer.records.size
    found, others = scratch.heap[:count], scratch.order[: demand.k - 1]
    find(cells, held, omega_p, head, scratch.reached[:count], found)
    for place in range(count):
        put(held, offer, place, found[place] - head, omega_p)
        find(cells, held, omega_p, found[place], offer.smallest, others)
        offer.prices[place] = price(offer, demand, newest - held.positions[found[place]])
    write_row(held, 0, omega_p, offer.centre)
    size = grow(held.subjects[head : held.line[TAIL]], scratch, offer, demand.k, count)
    has_enough = scratch.numbering.size[0] == demand.k
    hand_back(scratch, size, demand.max_share if has_enough else 1.0)
    if not has_enough:
        return _nearest(held, scratch, cells, outcome, demand, newest, cause, live)
    _leave(held, scratch, cells, outcome, size, newest, cause)
    return True


@njit_in_place
def _leave(
    held: HeldRecords, scratch: Workspace, cells: Cells, outcome: DecisionBuffer, size: int, newest: int, cause: int
) -> None:
    """Let the cluster go that was put together."""
    members = scratch.order[: _in_order(scratch.order[:size])]
    for record in members:
        take_out(cells, held.line[HEAD] + record)
    records.leave_gaps(held, outcome, members, newest, cause)


@njit_in_place
def _nearest(
    held: HeldRecords,
    scratch: Workspace,
    cells: Cells,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    newest: int,
    cause: int,
    live: int,
) -> bool:
    """Decide as `nearest.expire` on one of ``live`` records, k or more; False, undecided, if too many must be found."""
    head, wanted = held.line[HEAD], demand.k - 1
    subjects = held.subjects[head : held.line[TAIL]]
    while True:
        found = scratch.heap[:wanted]
        find(cells, held, demand.omega_p[0], head, scratch.reached[:wanted], found)
        for i in range(wanted):
            found[i] -= head
        size, present = _gather(subjects, found, scratch, demand.k)
        hand_back(scratch, size, demand.max_share if present == demand.k else 1.0)
        if present == demand.k:
            _leave(held, scratch, cells, outcome, size, newest, cause)
            return True
        if wanted == live - 1:
            break
        wanted = min(FURTHER * wanted, live - 1)
        if wanted * wanted > DEARER * live:
            return False
    take_out(cells, head)
    records.suppress_leaving_a_gap(held, outcome, newest, cause)
    return True


@njit_in_place
def _gather(subjects: Int64Vector, found: Int64Vector, scratch: Workspace, k: int) -> tuple[int, int]:
    """Put the oldest and those found into a cluster until it has k people; return its records, and people."""
    present, size = join(scratch, subjects, 0, 0), 1
    for record in found:
        if present == k:
            break
        present += join(scratch, subjects, record, size)
        size += 1
    return size, present


@njit_in_place
def _in_order(order: Int64Vector) -> int:
    """Bring the records of a cluster (-1: none) to the front, from old to young; return how many there are."""
    size = 0
    for record in order:
        if record >= 0:
            i = size
            while i > 0 and order[i - 1] > record:
                order[i] = order[i - 1]
                i -= 1
            order[i] = record
            size += 1
    return size
