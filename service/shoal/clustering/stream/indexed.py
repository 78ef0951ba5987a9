"""Rules nearest and awo for large buffers: the same decisions as a full scan, found through a cell index.

An index pays where many records with few attributes are held. `IndexedExpiry` counts what searches cost and what full
scans would have cost, rebuilds the index when the buffer has been compacted, and falls back to full scans where the
index does not pay. Costs are counted in records read, not in seconds, so that they do not depend on the machine.

Parameters that all kernels of the rules share are described in `expiry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit, njit_inline
from shoal.clustering.stream.buffer import Buffer
from shoal.clustering.stream.candidates import (
    Candidates,
    empty_candidates,
    opportunity_cost,
    set_candidate,
    write_point,
)
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
from shoal.clustering.stream.expiry import NEWEST_POSITION, STAGED, StreamConstraints, Workspace, append_until_due
from shoal.clustering.stream.growth import GrowthRule, grow
from shoal.clustering.stream.held_records import (
    CLUSTERS,
    COMPACTIONS,
    GAP_COUNT,
    HEAD,
    NOT_DUE,
    TAIL,
    DecisionBuffer,
    HeldRecords,
    empty_decision_buffer,
    release_in_place,
    suppress_in_place,
)
from shoal.clustering.stream.membership import add_member, limit_shares_and_reset
from shoal.clustering.stream.nearest import NearestRule
from shoal.clustering.stream.steering import update_weight

__all__ = ["IndexedExpiry", "IndexedGrowthRule", "IndexedNearestRule", "decide_due_by_index"]

Scan: TypeAlias = Callable[[DecisionBuffer, Int64Vector], None]

BUILD_COST = 160
"""Cost of building an index, per record, in records read by a full scan."""

RETRY_AFTER = 1 << 16
"""Records that arrive before an index is tried again where it did not pay."""

DONE, NOT_BUILT, TOO_COSTLY, TOO_FEW = range(4)
"""Results of `decide_due_by_index`: all staged records are appended; the index is not built over the present slots; the
index costs more than full scans; too few records are held for an index.
"""

LOOKUP_COST = 8
"""Cost of reading one record through the index, in records read by a full scan."""

WIDENING = 4
"""Factor by which a search is widened if the records found have fewer than k subjects."""

TRIAL_DECISIONS = 16
"""Decisions for which an index may cost as much as full scans before it is given up."""


class IndexedExpiry:
    """Decides on expiring records through a cell index or by full scans; the decisions are the same.

    Parameters
    ----------
    buffer, constraints, workspace
        Those of the rule.
    candidates : Candidates
        Those of rule awo; without entries for rule nearest.
    min_held : int
        Held records from which an index is built.
    scan : callable
        Appends the remaining staged records and decides by full scans.

    Notes
    -----
    The index is not part of the state that must survive a restart. Where it does not pay (many attributes, large k, one
    subject with most records), full scans are used for the next `RETRY_AFTER` records.
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
        self._buffer, self._constraints, self._workspace = buffer, constraints, workspace
        self._candidates, self._scan = candidates, scan
        self._index = empty_cell_index(buffer.capacity, len(buffer.held.coordinates))
        self._min_held, self._retry_in, self._built_over = min_held, 0, 0

    def precompile(self) -> None:
        """Compile all kernels by building an index over no records."""
        self._build_index()
        self._scan_rest(empty_decision_buffer(0), np.zeros(2, np.int64))

    def decide_due(self, decisions: DecisionBuffer, staged: int) -> None:
        """Append so many staged records and decide on each expiring record."""
        cursor, held, workspace = np.array([staged, -1]), self._buffer.held, self._workspace
        index, candidates, constraints = self._index, self._candidates, self._constraints
        self._retry_in = max(0, self._retry_in - staged)
        while (
            status := decide_due_by_index(held, workspace, index, candidates, decisions, constraints, cursor)
        ) != DONE:
            if not self._should_build(status):
                self._scan_rest(decisions, cursor)
                return
            self._build_index()

    def _should_build(self, status: int) -> bool:
        """Whether to build the index anew; False for a while after it did not pay."""
        if status == TOO_FEW or len(self._buffer) < self._min_held:
            return False
        if status == TOO_COSTLY or not self._was_worthwhile():
            self._retry_in = RETRY_AFTER
        return self._retry_in == 0

    def _was_worthwhile(self) -> bool:
        """Whether the last index saved more than it cost; True if none has been built."""
        cost = LOOKUP_COST * self._index.state[SEARCH_COST] + BUILD_COST * self._built_over
        return bool(cost <= self._index.state[SCAN_COST])

    def _build_index(self) -> None:
        self._built_over = len(self._buffer)
        build(self._index, self._buffer.held, self._workspace.members, self._workspace.distances)

    def _scan_rest(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        """Discard the index and decide on the remaining staged records by full scans."""
        self._index.state[SEARCH_COST] = self._index.state[SCAN_COST] = self._built_over = 0
        self._index.state[BUILT_AT] = NONE
        if self._buffer.held.gap_state[GAP_COUNT]:
            self._buffer.compact(int(cursor[STAGED]))
        self._scan(decisions, cursor)


class _IndexedRule(NearestRule):
    """A rule that decides on expiring records through `IndexedExpiry`."""

    _indexed: IndexedExpiry

    def precompile(self) -> None:
        """Compile the kernels of full scans and of the index."""
        super().precompile()
        self._indexed.precompile()

    def _decide_staged(self, decisions: DecisionBuffer, staged: int) -> None:
        self._indexed.decide_due(decisions, staged)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        self._buffer.compact()
        super()._flush(decisions, newest)


class IndexedNearestRule(_IndexedRule):
    """Rule nearest for large buffers; finds the nearest records through a cell index.

    Parameters
    ----------
    buffer, constraints
        As of `NearestRule`; without the p % rule.
    min_held : int
        Held records from which an index is built.

    Notes
    -----
    Cost per cluster: about O(k + log held) for few attributes, and never much above that of `NearestRule`.
    """

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, min_held: int) -> None:
        super().__init__(buffer, constraints)
        no_candidates = empty_candidates(0, len(buffer.held.coordinates), constraints.k, 0.0)
        self._indexed = IndexedExpiry(buffer, constraints, self._workspace, no_candidates, min_held, self._decide_due)


class IndexedGrowthRule(_IndexedRule, GrowthRule):
    """Rule awo for large buffers; finds candidates and their opportunity costs through a cell index.

    Parameters
    ----------
    buffer, constraints, opportunity_weight
        As of `GrowthRule`; the weight is above 0.
    min_held : int
        Held records from which an index is built.

    Notes
    -----
    Cost per cluster: about O(k^2 + k log held) for few attributes, and never much above that of `GrowthRule`.
    """

    def __init__(
        self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float, min_held: int
    ) -> None:
        super().__init__(buffer, constraints, opportunity_weight)
        self._indexed = IndexedExpiry(
            buffer, constraints, self._workspace, self._candidates, min_held, self._decide_due
        )


@njit
def decide_due_by_index(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
) -> int:
    """Append staged records and decide on each expiring record, as long as the index pays.

    If the result is not `DONE`, the oldest held record expires and has not been decided on.
    """
    scans = candidates.records.size + 1  # full scans that one decision would take
    while True:
        cause = append_until_due(held, workspace, constraints, cursor)
        if cause == NOT_DUE:
            return DONE
        if index.state[BUILT_AT] != held.gap_state[COMPACTIONS]:
            return NOT_BUILT
        held_count = held.extent[TAIL] - held.extent[HEAD] - held.gap_state[GAP_COUNT]
        if held_count < scans + constraints.k:  # enough candidates for the next decision, whichever records leave now
            return TOO_FEW
        if LOOKUP_COST * index.state[SEARCH_COST] > index.state[SCAN_COST] + TRIAL_DECISIONS * scans * held_count:
            return TOO_COSTLY
        insert_arrived(index, held)
        clusters_before = decisions.counts[CLUSTERS]
        if candidates.records.size > 0:
            has_decided = _grow_from_index(
                held, workspace, index, candidates, decisions, constraints, cursor[NEWEST_POSITION], cause, held_count
            )
        else:
            has_decided = _release_nearest_from_index(
                held, workspace, index, decisions, constraints, cursor[NEWEST_POSITION], cause, held_count
            )
        if not has_decided:
            return TOO_COSTLY
        update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)
        index.state[SCAN_COST] += scans * held_count


@njit_inline
def _grow_from_index(
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
    """Decide as `growth.decide_by_growth` does; return False if too many records would have to be read."""
    head, omega_p, count = held.extent[HEAD], constraints.omega_p[0], candidates.records.size
    found, others = workspace.heap[:count], workspace.members[: constraints.k - 1]
    find_nearest(index, held, omega_p, head, workspace.nearest_distances[:count], found)
    for candidate in range(count):
        set_candidate(held, candidates, candidate, found[candidate] - head, omega_p)
        find_nearest(index, held, omega_p, found[candidate], candidates.smallest_squared_distances, others)
        candidates.opportunity_costs[candidate] = opportunity_cost(
            candidates, constraints, newest - held.positions[found[candidate]]
        )
    write_point(held, 0, omega_p, candidates.centroid)
    size = grow(held, workspace, candidates, constraints.k, count)
    has_enough = workspace.numbering.size[0] == constraints.k
    limit_shares_and_reset(workspace, size, constraints.max_share if has_enough else 1.0)
    if not has_enough:
        return _release_nearest_from_index(held, workspace, index, decisions, constraints, newest, cause, held_count)
    _release(held, workspace, index, decisions, size, newest, cause)
    return True


@njit_inline
def _release(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    decisions: DecisionBuffer,
    size: int,
    newest: int,
    cause: int,
) -> None:
    """Record the cluster, and remove its members from the index."""
    members = workspace.members[: _sort_members(workspace.members[:size])]
    for record in members:
        remove_from_index(index, held.extent[HEAD] + record)
    release_in_place(held, decisions, members, newest, cause)


@njit_inline
def _release_nearest_from_index(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    newest: int,
    cause: int,
    held_count: int,
) -> bool:
    """Decide as `nearest.decide_by_distance` does; return False if too many records would have to be read."""
    head, wanted = held.extent[HEAD], constraints.k - 1
    subjects = held.subjects[head : held.extent[TAIL]]
    while True:
        found = workspace.heap[:wanted]
        find_nearest(index, held, constraints.omega_p[0], head, workspace.nearest_distances[:wanted], found)
        for i in range(wanted):
            found[i] -= head
        size, subjects_in = _add_found(subjects, found, workspace, constraints.k)
        limit_shares_and_reset(workspace, size, constraints.max_share if subjects_in == constraints.k else 1.0)
        if subjects_in == constraints.k:
            _release(held, workspace, index, decisions, size, newest, cause)
            return True
        if wanted == held_count - 1:
            break
        wanted = min(WIDENING * wanted, held_count - 1)
        if wanted * wanted > LOOKUP_COST * held_count:
            return False
    remove_from_index(index, head)
    suppress_in_place(held, decisions, newest, cause)
    return True


@njit_inline
def _add_found(subjects: Int64Vector, found: Int64Vector, workspace: Workspace, k: int) -> tuple[int, int]:
    """Add the oldest record and those found until k subjects are members; return the members and subjects added."""
    subjects_in, size = add_member(workspace, subjects, 0, 0), 1
    for record in found:
        if subjects_in == k:
            break
        subjects_in += add_member(workspace, subjects, record, size)
        size += 1
    return size, subjects_in


@njit_inline
def _sort_members(members: Int64Vector) -> int:
    """Move the members (-1: removed) to the front, oldest first; return how many there are."""
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
