"""Rule nearest under the p % rule, whose kernels are compiled only for policies that have it.

Parameters that all kernels of the rules share are described in `expiry`.
"""

from __future__ import annotations

from shoal.arrays import Float64Matrix, Int64Vector
from shoal.clustering.numba.heaps import heapify, sift_down
from shoal.clustering.numba.jit import njit, njit_inline
from shoal.clustering.numba.subject_codes import clear
from shoal.clustering.stream.dominance import dominating_subject
from shoal.clustering.stream.expiry import NEWEST_POSITION, StreamConstraints, Workspace, squared_distances
from shoal.clustering.stream.held_records import CLUSTERS, HEAD, NOT_DUE, TAIL, DecisionBuffer, HeldRecords
from shoal.clustering.stream.membership import add_member, limit_shares, remove_member, sort_by_age
from shoal.clustering.stream.nearest import (
    NearestRule,
    next_decision,
    release_or_suppress,
    suppress_small_population,
)
from shoal.clustering.stream.steering import update_weight

__all__ = ["UndominatedRule", "decide_all_undominated", "select_undominated"]

MAX_EXTRA = 4
"""Largest number of records, divided by k, that are added beyond those for the wanted subjects."""


class UndominatedRule(NearestRule):
    """Rule nearest with clusters that satisfy the p % rule. The parameters are those of `NearestRule`."""

    def _decide_all(self, decisions: DecisionBuffer, cursor: Int64Vector, *, is_flush: bool) -> None:
        decide_all_undominated(self._buffer.held, self._workspace, decisions, self._constraints, cursor, is_flush)


@njit
def decide_all_undominated(
    held: HeldRecords,
    workspace: Workspace,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
    is_flush: bool,  # noqa: FBT001 - kernels take no keywords
) -> None:
    """Decide as `nearest.decide_all_by_distance` does, on clusters that satisfy the p % rule."""
    if is_flush:
        suppress_small_population(held, workspace, decisions, constraints, cursor[NEWEST_POSITION])
    while True:
        cause, wanted = next_decision(held, workspace, constraints, cursor, is_flush)
        if cause == NOT_DUE:
            return
        clusters_before = decisions.counts[CLUSTERS]
        size = select_undominated(held, workspace, constraints, wanted)
        release_or_suppress(held, workspace, decisions, size, cursor[NEWEST_POSITION], cause)
        update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)


@njit_inline
def select_undominated(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, wanted: int) -> int:
    """Select a cluster of the oldest record as `nearest.select_by_distance` does, one that satisfies the p % rule.

    The farthest records of a subject that violates the rule are removed; then the next nearest record is added. The
    oldest record itself is not removed: if its subject violates the rule, records are added until it no longer does.
    There is no cluster if the rule is still violated when all held records, or `MAX_EXTRA` k more, were tried.
    """
    head, tail = held.extent[HEAD], held.extent[TAIL]
    distances, subjects, amounts = (
        workspace.distances[: tail - head],
        held.subjects[head:tail],
        held.amounts[:, head:tail],
    )
    squared_distances(held, constraints.omega_p[0], distances)
    heap = workspace.heap[: distances.size - 1]
    for x in range(heap.size):
        heap[x] = x + 1
    heapify(heap, distances)
    record, size, kept, subjects_in, remaining, extra_left = 0, 0, 0, 0, heap.size, MAX_EXTRA * constraints.k
    while True:
        subjects_in += add_member(workspace, subjects, record, size)
        size, kept = size + 1, kept + 1
        is_last = remaining == 0 or extra_left == 0
        fits = False
        if subjects_in >= wanted or is_last:
            subjects_in, kept, fits = _remove_dominating(amounts, workspace, constraints, size, subjects_in, kept)
            extra_left -= 1
        if is_last or (fits and subjects_in >= wanted):
            break
        record = heap[0]
        remaining -= 1
        heap[0] = heap[remaining]
        sift_down(heap, remaining, 0, distances)
    workspace.counts[: workspace.numbering.size[0]] = 0
    clear(workspace.numbering)
    if not (fits and (subjects_in >= wanted or remaining == 0)):
        return 0
    sort_by_age(workspace.members[:size], workspace.heap[: tail - head])
    return int(kept)


@njit_inline
def _remove_dominating(
    amounts: Float64Matrix, workspace: Workspace, constraints: StreamConstraints, size: int, subjects_in: int, kept: int
) -> tuple[int, int, bool]:
    """Remove records above ``max_share``, and the farthest records of subjects that violate the p % rule.

    Takes and returns the numbers of subjects and members. The last value returned tells whether the cluster may be
    released. It may not if the oldest record would have to be removed, or if fewer than k subjects remain.
    """
    while subjects_in >= constraints.k:
        kept = limit_shares(workspace, kept, constraints.max_share)
        counts = workspace.counts[: workspace.numbering.size[0]]
        subject = dominating_subject(
            amounts,
            workspace.members[:size],
            workspace.subject_numbers,
            counts,
            workspace.totals,
            constraints.dominance,
        )
        if subject < 0:
            return subjects_in, kept, True
        if workspace.members[workspace.farthest[subject]] == 0:
            break
        remove_member(workspace, workspace.farthest[subject])
        kept -= 1
        subjects_in -= workspace.counts[subject] == 0
    return subjects_in, kept, False
