"""I."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.stream import held_records as records
from shoal.clustering.stream.buffer import Buffer
from shoal.clustering.stream.cell_index import (
    BUILT_AT,
    NONE,
    SCAN_COST,
    SEARCH_COST,
    CellIndex,
    build,
    empty_cell_index,
    find_nearest,
    insert_arrived,
    remove_from_index,
)
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, append_until_due
from shoal.clustering.stream.growth import (
    Candidates,
    GrowthRule,
    empty_candidates,
    grow,
    opportunity_cost,
    set_candidate,
    write_row,
)
from shoal.clustering.stream.held_records import (
    COMPACTIONS,
    GAP_COUNT,
    HEAD,
    TAIL,
    DecisionBuffer,
    HeldRecords,
    empty_decision_buffer,
)
from shoal.clustering.stream.membership import add_member, cap_and_reset
from shoal.clustering.stream.nearest import NearestRule
from shoal.clustering.stream.steering import update_weight

__all__ = ["IndexedExpiry", "IndexedGrowthRule", "IndexedNearestRule", "expire_due"]

Scan: TypeAlias = Callable[[DecisionBuffer, Int64Vector], None]

BUILD_COST = 160
"""What building cells costs for each record, in looks at one of many in a row."""

RETRY_AFTER = 1 << 16
"""Records that arrive before cells are tried again where they did not pay."""

DONE, NOT_BUILT, TOO_COSTLY, TOO_FEW = range(4)
"""How far `expire_due` came: the block is in; the cells are not those of who is held; they cost more than they save;
too few are held for them.
"""

LOOKUP_COST = 8
"""What looking at one record through cells costs, in looks at one of many in a row."""

WIDENING = 4
"""How many more are looked for each time, where there were too few people among those found."""

TRIAL_DECISIONS = 16
"""So many decisions may cost as much as looking at everybody before it is said that the cells do not pay."""


class IndexedExpiry:
    """Decides through cells, or by looking at everybody; the decisions are the same.

    Parameters
    ----------
    buffer, demand, scratch
        Of the rule.
    offer : Offer
        Of rule awo; an empty one stands for rule nearest.
    fewest : int
        Records from which on cells are built.
    scan : callable
        Decides by looking at everybody, on what ``steps`` say is still to come in.

    Notes
    -----
    Whatever is looked at to find them, nothing of that need outlive a restart. Where cells do not pay (many attributes,
    large k, one person's flood) everybody is looked at, and cells are tried again `REST` records later. Looks are
    counted for that, not seconds.
    """

    def __init__(
        self,
        buffer: Buffer,
        constraints: StreamConstraints,
        workspace: Workspace,
        candidates: Candidates,
        min_held: int,
        scan: Scan,
    ) -> None:
        self._buffer, self._constraints, self._workspace, self._candidates, self._scan = (
            buffer,
            constraints,
            workspace,
            candidates,
            scan,
        )
        self._index = empty_cell_index(buffer.capacity, len(buffer.held.coordinates))
        self._min_held, self._retry_in, self._built_over = min_held, 0, 0

    def precompile(self) -> None:
        """Build over nobody, so that all is compiled now and not while the first records wait."""
        self._build_index()
        self._scan_rest(empty_decision_buffer(0), np.zeros(2, np.int64))

    def expire_due(self, decisions: DecisionBuffer, staged: int) -> None:
        """Let a slice in, record by record, and decide on all that becomes due on the way."""
        cursor, held, workspace, candidates = (
            np.array([staged, -1]),
            self._buffer.held,
            self._workspace,
            self._candidates,
        )
        index, constraints = self._index, self._constraints
        self._retry_in = max(0, self._retry_in - staged)
        while (status := expire_due(held, workspace, index, candidates, decisions, constraints, cursor)) != DONE:
            if not self._should_build(status):
                self._scan_rest(decisions, cursor)
                return
            self._build_index()

    def _should_build(self, status: int) -> bool:
        """Whether to build cells anew; where they did not pay, not for a while."""
        if status == TOO_FEW or len(self._buffer) < self._min_held:
            return False
        if status == TOO_COSTLY or not self._was_worthwhile():
            self._retry_in = RETRY_AFTER
        return self._retry_in == 0

    def _was_worthwhile(self) -> bool:
        """Whether the cells that were built last have spared more than they cost; none have cost nothing."""
        cost = LOOKUP_COST * self._index.state[SEARCH_COST] + BUILD_COST * self._built_over
        return bool(cost <= self._index.state[SCAN_COST])

    def _build_index(self) -> None:
        self._built_over = len(self._buffer)
        build(self._index, self._buffer.held, self._workspace.members, self._workspace.distances)

    def _scan_rest(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        """Decide on what is left of a slice without cells, and forget them."""
        self._index.state[SEARCH_COST] = self._index.state[SCAN_COST] = self._built_over = 0
        self._index.state[BUILT_AT] = NONE
        if self._buffer.held.gap_state[GAP_COUNT]:
            self._buffer.compact(int(cursor[0]))
        self._scan(decisions, cursor)


class _IndexedRule(NearestRule):
    """I."""

    _indexed: IndexedExpiry

    def precompile(self) -> None:
        """P."""
        super().precompile()
        self._indexed.precompile()

    def _expire_due(self, decisions: DecisionBuffer, staged: int) -> None:
        self._indexed.expire_due(decisions, staged)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        self._buffer.compact()
        super()._flush(decisions, newest)


class IndexedNearestRule(_IndexedRule):
    """I."""

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, min_held: int) -> None:
        super().__init__(buffer, constraints)
        no_candidates = empty_candidates(0, len(buffer.held.coordinates), constraints.k, 0.0)
        self._indexed = IndexedExpiry(buffer, constraints, self._workspace, no_candidates, min_held, self._scan)


class IndexedGrowthRule(_IndexedRule, GrowthRule):
    """I."""

    def __init__(
        self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float, min_held: int
    ) -> None:
        super().__init__(buffer, constraints, opportunity_weight)
        self._indexed = IndexedExpiry(buffer, constraints, self._workspace, self._candidates, min_held, self._scan)


@njit_in_place
def expire_due(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
) -> int:
    """Let records of the block in and decide on all that becomes due, as long as the cells serve.

    ``offer``: of rule awo, or empty for rule nearest. ``steps`` (2,): how many are still to come in, and the newest
    position; both are kept up. Unless `DONE`, the oldest held record must leave.
    """
    scans = candidates.records.size + 1  # at everybody, for each decision
    while True:
        cause = append_until_due(held, workspace, constraints, cursor)
        if cause == records.NOT_DUE:
            return DONE
        if index.state[BUILT_AT] != held.gap_state[COMPACTIONS]:
            return NOT_BUILT
        held_count = held.extent[TAIL] - held.extent[HEAD] - held.gap_state[GAP_COUNT]
        if held_count < scans + constraints.k:  # with k more than may join there are enough for the next, whoever goes
            return TOO_FEW
        if LOOKUP_COST * index.state[SEARCH_COST] > index.state[SCAN_COST] + TRIAL_DECISIONS * scans * held_count:
            return TOO_COSTLY
        insert_arrived(index, held)
        clusters_before = decisions.counts[records.CLUSTERS]
        if candidates.records.size > 0:
            has_decided = _decide_by_growth(
                held, workspace, index, candidates, decisions, constraints, cursor[1], cause, held_count
            )
        else:
            has_decided = _decide_by_distance(
                held, workspace, index, decisions, constraints, cursor[1], cause, held_count
            )
        if not has_decided:
            return TOO_COSTLY
        update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)
        index.state[SCAN_COST] += scans * held_count


@njit_in_place
def _decide_by_growth(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    newest: int,
    cause: int,
    held_count: int,
) -> bool:
    """Decide as `growth.expire` on one of ``live`` records, more than may join; False, undecided, as `_nearest`."""
    head, omega_p, count = held.extent[HEAD], constraints.omega_p[0], candidates.records.size
    found, others = workspace.heap[:count], workspace.members[: constraints.k - 1]
    find_nearest(index, held, omega_p, head, workspace.nearest_distances[:count], found)
    for candidate in range(count):
        set_candidate(held, candidates, candidate, found[candidate] - head, omega_p)
        find_nearest(index, held, omega_p, found[candidate], candidates.smallest_distances, others)
        candidates.opportunity_costs[candidate] = opportunity_cost(
            candidates, constraints, newest - held.positions[found[candidate]]
        )
    write_row(held, 0, omega_p, candidates.centre)
    size = grow(held.subjects[head : held.extent[TAIL]], workspace, candidates, constraints.k, count)
    has_enough = workspace.numbering.size[0] == constraints.k
    cap_and_reset(workspace, size, constraints.max_share if has_enough else 1.0)
    if not has_enough:
        return _decide_by_distance(held, workspace, index, decisions, constraints, newest, cause, held_count)
    _release(held, workspace, index, decisions, size, newest, cause)
    return True


@njit_in_place
def _release(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    decisions: DecisionBuffer,
    size: int,
    newest: int,
    cause: int,
) -> None:
    """Let the cluster go that was put together."""
    members = workspace.members[: _sort_members(workspace.members[:size])]
    for record in members:
        remove_from_index(index, held.extent[HEAD] + record)
    records.release_in_place(held, decisions, members, newest, cause)


@njit_in_place
def _decide_by_distance(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    newest: int,
    cause: int,
    held_count: int,
) -> bool:
    """Decide as `nearest.expire` on one of ``live`` records, k or more; False, undecided, if too many must be found."""
    head, wanted = held.extent[HEAD], constraints.k - 1
    subjects = held.subjects[head : held.extent[TAIL]]
    while True:
        found = workspace.heap[:wanted]
        find_nearest(index, held, constraints.omega_p[0], head, workspace.nearest_distances[:wanted], found)
        for i in range(wanted):
            found[i] -= head
        size, subjects_in = _add_found(subjects, found, workspace, constraints.k)
        cap_and_reset(workspace, size, constraints.max_share if subjects_in == constraints.k else 1.0)
        if subjects_in == constraints.k:
            _release(held, workspace, index, decisions, size, newest, cause)
            return True
        if wanted == held_count - 1:
            break
        wanted = min(WIDENING * wanted, held_count - 1)
        if wanted * wanted > LOOKUP_COST * held_count:
            return False
    remove_from_index(index, head)
    records.suppress_in_place(held, decisions, newest, cause)
    return True


@njit_in_place
def _add_found(subjects: Int64Vector, found: Int64Vector, workspace: Workspace, k: int) -> tuple[int, int]:
    """Put the oldest and those found into a cluster until it has k people; return its records, and people."""
    subjects_in, size = add_member(workspace, subjects, 0, 0), 1
    for record in found:
        if subjects_in == k:
            break
        subjects_in += add_member(workspace, subjects, record, size)
        size += 1
    return size, subjects_in


@njit_in_place
def _sort_members(members: Int64Vector) -> int:
    """Bring the records of a cluster (-1: none) to the front, from old to young; return how many there are."""
    size = 0
    for record in members:
        if record >= 0:
            i = size
            while i > 0 and members[i - 1] > record:
                members[i] = members[i - 1]
                i -= 1
            members[i] = record
            size += 1
    return size
