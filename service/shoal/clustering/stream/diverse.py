"""The stream rules under l-diversity, t-closeness and a largest share of one value.

Each rule decides as it does without them if its cluster satisfies them. Otherwise the cluster of the oldest record
grows under the constraints (`diverse_growth`); if none is found, that record is suppressed.

Parameters that all kernels of the rules share are described in `expiry`.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit, njit_inner
from shoal.clustering.stream.buffer import Buffer
from shoal.clustering.stream.candidates import Candidates
from shoal.clustering.stream.diverse_growth import (
    DiversityState,
    empty_diversity_state,
    grow_diverse,
    is_cluster_diverse,
)
from shoal.clustering.stream.expiry import NEWEST_POSITION, StreamConstraints, Workspace, append_until_due
from shoal.clustering.stream.growth import GrowthRule, select_by_growth
from shoal.clustering.stream.held_records import CLUSTERS, FLUSHED, HEAD, NOT_DUE, TAIL, DecisionBuffer, HeldRecords
from shoal.clustering.stream.nearest import NearestRule, release_or_suppress, select_by_distance
from shoal.clustering.stream.protection import Protection
from shoal.clustering.stream.steering import update_weight

__all__ = ["DiverseGrowthRule", "DiverseNearestRule"]


class DiverseNearestRule(NearestRule):
    """Rule nearest; a cluster that is not diverse is replaced by one that grows around the oldest record.

    Parameters
    ----------
    buffer, constraints
        As of `NearestRule`.
    protection : Protection
        What the protected attributes of every cluster must satisfy.
    """

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, protection: Protection) -> None:
        super().__init__(buffer, constraints)
        self._state = empty_diversity_state(protection.rule, protection.attributes, buffer.capacity)

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        self._decide(decisions, cursor, is_flush=False)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        self._decide(decisions, np.array([0, newest]), is_flush=True)

    def _decide(self, decisions: DecisionBuffer, cursor: Int64Vector, *, is_flush: bool) -> None:
        decide_diversely_by_distance(
            self._buffer.held, self._workspace, decisions, self._constraints, self._state, cursor, is_flush
        )


class DiverseGrowthRule(GrowthRule):
    """Rules greedy and awo; a cluster that is not diverse is replaced by one that grows under the constraints.

    Parameters
    ----------
    buffer, constraints, opportunity_weight
        As of `GrowthRule`.
    protection : Protection
        As of `DiverseNearestRule`.
    """

    def __init__(
        self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float, protection: Protection
    ) -> None:
        super().__init__(buffer, constraints, opportunity_weight)
        self._state = empty_diversity_state(protection.rule, protection.attributes, buffer.capacity)

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        self._decide(decisions, cursor, is_flush=False)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        self._decide(decisions, np.array([0, newest]), is_flush=True)

    def _decide(self, decisions: DecisionBuffer, cursor: Int64Vector, *, is_flush: bool) -> None:
        decide_diversely_by_growth(
            self._buffer.held,
            self._workspace,
            self._candidates,
            decisions,
            self._constraints,
            self._state,
            cursor,
            is_flush,
        )


@njit
def decide_diversely_by_distance(
    held: HeldRecords,
    workspace: Workspace,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    state: DiversityState,
    cursor: Int64Vector,
    is_flush: bool,  # noqa: FBT001 - kernels take no keywords
) -> None:
    """Append staged records one by one and decide on each expiring record; in a flush, decide on all held records."""
    while True:
        cause = _next_cause(held, workspace, constraints, cursor, is_flush)
        if cause == NOT_DUE:
            return
        size = select_by_distance(held, workspace, constraints, constraints.k)
        _decide_oldest(held, workspace, decisions, constraints, state, cursor[NEWEST_POSITION], cause, size, False)


@njit
def decide_diversely_by_growth(
    held: HeldRecords,
    workspace: Workspace,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    state: DiversityState,
    cursor: Int64Vector,
    is_flush: bool,  # noqa: FBT001 - kernels take no keywords
) -> None:
    """Append staged records one by one and decide on each expiring record; in a flush, decide on all held records."""
    while True:
        cause = _next_cause(held, workspace, constraints, cursor, is_flush)
        if cause == NOT_DUE:
            return
        size = select_by_growth(held, workspace, candidates, constraints, cursor[NEWEST_POSITION])
        if size > 0 and candidates.opportunity_weight[0] > 0.0:
            count = held.extent[TAIL] - held.extent[HEAD]
            state.opportunity_costs[:count] = 0.0
            for candidate in range(min(candidates.records.size, count - 1)):
                state.opportunity_costs[candidates.records[candidate]] = candidates.opportunity_costs[candidate]
        _decide_oldest(held, workspace, decisions, constraints, state, cursor[NEWEST_POSITION], cause, size, True)


@njit_inner
def _next_cause(
    held: HeldRecords,
    workspace: Workspace,
    constraints: StreamConstraints,
    cursor: Int64Vector,
    is_flush: bool,  # noqa: FBT001 - kernels take no keywords
) -> int:
    """Return why the next record is decided on, or `NOT_DUE`."""
    if is_flush:
        return FLUSHED if held.extent[HEAD] < held.extent[TAIL] else NOT_DUE
    return int(append_until_due(held, workspace, constraints, cursor))


@njit_inner
def _decide_oldest(
    held: HeldRecords,
    workspace: Workspace,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    state: DiversityState,
    newest: int,
    cause: int,
    size: int,
    moves: bool,  # noqa: FBT001 - kernels take no keywords
) -> None:
    """Release the cluster of the rule, ``workspace.members[:size]``, if it is diverse; else grow one, or suppress."""
    clusters_before = decisions.counts[CLUSTERS]
    if size == 0 or not is_cluster_diverse(held, state, workspace.members[:size]):
        size = grow_diverse(held, workspace, constraints, state, moves)
    release_or_suppress(held, workspace, decisions, size, newest, cause)
    update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)
