"""Rule nearest where many records are held: the same decisions as in `nearest`, by looking into `cells`."""

from __future__ import annotations

from shoal.kernel import held as records
from shoal.kernel.arrays import Int64Vector
from shoal.kernel.cells import BUILT, LOOKED, SPARED, Cells, enter_arrived, find, take_out
from shoal.kernel.expiry import Demand, Scratch, advance
from shoal.kernel.held import EPOCH, GAPS, HEAD, TAIL, Held, Outcome
from shoal.kernel.jit import njit_in_place
from shoal.kernel.membership import cap, join
from shoal.kernel.nearest import expire
from shoal.kernel.steering import follow
from shoal.kernel.subjects import clear

__all__ = ["DEARER", "DONE", "NOT_BUILT", "TOO_DEAR", "by_scan", "expire_due"]

DONE, NOT_BUILT, TOO_DEAR = range(3)
"""How far `expire_due` came: the block is in; the cells are not those of who is held; they cost more than they save."""

DEARER = 8
"""What looking at one record through cells costs, in looks at one of many in a row."""
FURTHER = 4
"""How many more are looked for each time, where there were too few people among those found."""
PATIENCE = 16
"""So many decisions may cost as much as looking at everybody before it is said that the cells do not pay."""


@njit_in_place
def expire_due(held: Held, scratch: Scratch, cells: Cells, outcome: Outcome, demand: Demand, steps: Int64Vector) -> int:
    """Let records of the block in and decide on all that becomes due, as long as the cells serve.

    ``steps`` (2,): how many are still to come in, and the newest position; both are kept up. Unless `DONE`, the oldest
    held record must leave.
    """
    while True:
        cause = advance(held, scratch, demand, steps)
        if cause == records.NOT_DUE:
            return DONE
        if cells.state[BUILT] != held.gaps[EPOCH]:
            return NOT_BUILT
        live = held.line[TAIL] - held.line[HEAD] - held.gaps[GAPS]
        if DEARER * cells.state[LOOKED] > cells.state[SPARED] + PATIENCE * live:
            return TOO_DEAR
        enter_arrived(cells, held)
        decided = outcome.counts[records.CLUSTERS]
        if not _expire(held, scratch, cells, outcome, demand, steps[1], cause, live):
            return TOO_DEAR
        follow(demand.omega_p, demand.target, outcome, decided)
        cells.state[SPARED] += live


@njit_in_place
def by_scan(held: Held, scratch: Scratch, outcome: Outcome, demand: Demand, steps: Int64Vector) -> None:
    """Do as `expire_due` by looking at everybody; there must be no gaps."""
    while True:
        cause = advance(held, scratch, demand, steps)
        if cause == records.NOT_DUE:
            return
        expire(held, scratch, outcome, demand, steps[1], cause)


@njit_in_place
def _expire(
    held: Held, scratch: Scratch, cells: Cells, outcome: Outcome, demand: Demand, newest: int, cause: int, live: int
) -> bool:
    """Decide as `nearest.expire` on one of ``live`` records; return False, undecided, where too many must be found."""
    head, wanted = held.line[HEAD], demand.k - 1
    subjects = held.subjects[head : held.line[TAIL]]
    while live > wanted:
        found = scratch.heap[:wanted]
        find(cells, held, demand.omega_p[0], scratch.reached[:wanted], found)
        for i in range(wanted):
            found[i] -= head
        size, present = _gather(subjects, found, scratch, demand.k)
        if present == demand.k:
            if size > demand.k:
                cap(scratch, size, demand.max_share)
            _forget_subjects(scratch)
            members = scratch.order[: _in_order(scratch.order[:size])]
            for record in members:
                take_out(cells, head + record)
            records.leave_gaps(held, outcome, members, newest, cause)
            return True
        _forget_subjects(scratch)
        if wanted == live - 1:
            break
        wanted = min(FURTHER * wanted, live - 1)
        if wanted * wanted > DEARER * live:
            return False
    take_out(cells, head)
    records.suppress_leaving_a_gap(held, outcome, newest, cause)
    return True


@njit_in_place
def _gather(subjects: Int64Vector, found: Int64Vector, scratch: Scratch, k: int) -> tuple[int, int]:
    """Put the oldest and those found into a cluster until it has k people; return its records, and people."""
    present, size = join(scratch, subjects, 0, 0), 1
    for record in found:
        if present == k:
            break
        present += join(scratch, subjects, record, size)
        size += 1
    return size, present


@njit_in_place
def _forget_subjects(scratch: Scratch) -> None:
    scratch.counts[: scratch.numbering.size[0]] = 0
    clear(scratch.numbering)


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
