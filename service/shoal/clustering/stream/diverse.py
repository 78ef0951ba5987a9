"""The stream rules under l-diversity, t-closeness and a largest share of one value.

Each rule decides as it does without them if its cluster satisfies them. Otherwise the cluster of the oldest record
grows under the constraints (`diverse_growth`); if none is found, that record is suppressed.

Parameters that all kernels of the rules share are described in `expiry`.
"""

from __future__ import annotations

import numpy as np

from shoal.arrays import Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit, njit_inner
from shoal.clustering.stream.buffer import Buffer
from shoal.clustering.stream.candidates import Candidates
from shoal.clustering.stream.diverse_growth import (
    DiversityState,
    empty_diversity_state,
    grow_diverse,
    is_cluster_diverse,
)
from shoal.clustering.stream.expiry import (
    NEWEST_POSITION,
    StreamConstraints,
    Workspace,
    append_until_due,
    has_min_population,
)
from shoal.clustering.stream.growth import GrowthRule, select_by_growth
from shoal.clustering.stream.held_records import (
    CLUSTERS,
    END,
    FLUSHED,
    HEAD,
    NOT_DUE,
    TAIL,
    DecisionBuffer,
    HeldRecords,
    empty_decision_buffer,
    trim,
)
from shoal.clustering.stream.held_table import HeldTable, precompile_table
from shoal.clustering.stream.nearest import release_or_suppress, select_by_distance
from shoal.clustering.stream.partition import PartitionFlushRule, held_as_table, release_partition
from shoal.clustering.stream.protection import Protection
from shoal.clustering.stream.steering import NO_TARGET, update_weight
from shoal.clustering.stream.undominated import select_undominated

__all__ = ["DiverseBlockRule", "DiverseGrowthRule", "DiverseNearestRule"]

ALL = -1
"""Decide on all records."""


class _DiverseRule(PartitionFlushRule):
    """Base of the rules under a protection: the end of the stream is decided on as a table under the same constraints.

    Notes
    -----
    With t, the held records are partitioned as by ``microaggregate(algorithm="auto", refine="descent")``, else as with
    ``algorithm="mdav"``. If even a single cluster of all records violates the constraints, or there is a p % rule, the
    oldest record is decided on until none is held.
    """

    _protection: Protection
    _state: DiversityState

    def precompile(self) -> None:
        """Compile all kernels by deciding on no records and on a few artificial ones."""
        self._decide_staged(empty_decision_buffer(0), 0)
        self._decide(empty_decision_buffer(0), np.zeros(2, np.int64), FLUSHED, ALL)
        self._run_on_zeros(self._release_artificial)
        precompile_table(has_t=self._protection.has_bins, limits_values=self._protection.limits_values)

    def _release_artificial(self, decisions: DecisionBuffer, newest: int) -> None:
        """Release artificial records as at the end of the stream, whatever the protection."""
        held, constraints = self._buffer.held, self._constraints
        are_held_diverse(held, self._state)
        labels = np.zeros(len(held_as_table(held, self._workspace, constraints)), np.int32)
        release_partition(held, decisions, constraints, labels, newest, FLUSHED)

    def _protect(self, protection: Protection) -> None:
        """Allocate what a protection needs."""
        self._protection = protection
        self._state = empty_diversity_state(protection.rule, protection.attributes, self._buffer.capacity)

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        self._decide(decisions, cursor, NOT_DUE, ALL)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        held, constraints = self._buffer.held, self._constraints
        # A table has no p % rule, so its clusters could violate it: then they grow one after the other.
        if not constraints.dominance.share and self._has_min_population():
            table = self._table()
            labels = None if table is None else table.partition()
            if labels is not None:
                release_partition(held, decisions, constraints, labels, newest, FLUSHED)
        self._decide(decisions, np.array([0, newest]), FLUSHED, ALL)

    def _table(self) -> HeldTable | None:
        """Return the held records as a table; None if they cannot be one cluster."""
        held = self._buffer.held
        if not are_held_diverse(held, self._state):
            return None
        rows = held_as_table(held, self._workspace, self._constraints)
        return HeldTable(held, self._points(rows), self._constraints, self._protection) if len(rows) else None

    def _decide(self, decisions: DecisionBuffer, cursor: Int64Vector, cause: int, most: int) -> None:
        """Decide on up to ``most`` records that are due for the given cause, or on each that expires (`NOT_DUE`)."""
        raise NotImplementedError


class DiverseNearestRule(_DiverseRule):
    """Rule nearest; a cluster that is not diverse is replaced by one that grows around the oldest record.

    Parameters
    ----------
    buffer, constraints
        As of `NearestRule`.
    protection : Protection
        What the protected attributes of every cluster must satisfy.

    Notes
    -----
    Cost per cluster: that of `NearestRule`, and O(n held (d + q)) for each size n that is tried.
    """

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, protection: Protection) -> None:
        super().__init__(buffer, constraints)
        self._protect(protection)

    def _decide(self, decisions: DecisionBuffer, cursor: Int64Vector, cause: int, most: int) -> None:
        decide_diversely_by_distance(
            self._buffer.held, self._workspace, decisions, self._constraints, self._state, cursor, cause, most
        )


class DiverseGrowthRule(_DiverseRule, GrowthRule):
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
        GrowthRule.__init__(self, buffer, constraints, opportunity_weight)
        self._protect(protection)

    def _decide(self, decisions: DecisionBuffer, cursor: Int64Vector, cause: int, most: int) -> None:
        self._decide_on(self._buffer.held, decisions, self._constraints, cursor, cause, most)

    def _decide_on(
        self,
        held: HeldRecords,
        decisions: DecisionBuffer,
        constraints: StreamConstraints,
        cursor: Int64Vector,
        cause: int,
        most: int,
    ) -> None:
        decide_diversely_by_growth(
            held, self._workspace, self._candidates, decisions, constraints, self._state, cursor, cause, most
        )


class DiverseBlockRule(DiverseGrowthRule):
    """When a record expires, all held records are released in the clusters of a partition under the constraints.

    Notes
    -----
    Parameters are those of `DiverseGrowthRule`. Without t, the partition is that of `BlockRule`. With t, it is made
    of clusters that grow around the oldest record in turn. Clusters that violate a constraint are merged with near
    ones, and descent without a violation follows. If even a single cluster of all held records violates the
    constraints, only the oldest record is decided on, as by `DiverseGrowthRule`.
    """

    def _release_artificial(self, decisions: DecisionBuffer, newest: int) -> None:
        if not self._protection.has_bins:
            self._partition()
        super()._release_artificial(decisions, newest)

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        held, workspace, constraints = self._buffer.held, self._workspace, self._constraints
        while (cause := next_due(held, workspace, constraints, cursor)) != NOT_DUE:
            newest = int(cursor[NEWEST_POSITION])
            labels = self._block_labels(newest)
            if labels is None:
                self._decide(decisions, cursor, cause, 1)
            else:
                release_partition(held, decisions, constraints, labels, newest, cause)

    def _block_labels(self, newest: int) -> Int32Vector | None:
        """Return the cluster of each held record; None if one cluster of all violates the constraints."""
        table = self._table()
        if table is None:
            return None
        return table.repaired(self._grown(newest) if self._protection.has_bins else self._partition()[1])

    def _grown(self, newest: int) -> Int32Vector:
        """Return clusters that grow around the oldest record in turn; records of none are a cluster of their own."""
        held = HeldRecords._make(array.copy() for array in self._buffer.held)
        head, tail = held.extent.tolist()
        decisions = empty_decision_buffer(tail - head)
        # The records are not those at the end of the stream, the only ones that wait for a minimum population.
        constraints = self._constraints._replace(
            omega_p=self._constraints.omega_p.copy(), target=NO_TARGET, population=0
        )
        self._decide_on(held, decisions, constraints, np.array([0, newest]), FLUSHED, ALL)
        found = trim(decisions)
        labels = np.full(tail - head, found.clusters.shape[1], np.int32)
        sizes = np.diff(found.clusters[END], prepend=0)
        slots = np.searchsorted(self._buffer.positions(), found.positions)
        labels[slots] = np.repeat(np.arange(len(sizes)), sizes)
        return labels


@njit
def next_due(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, cursor: Int64Vector) -> int:
    """Append staged records until one expires, and return the cause; `NOT_DUE` when all are appended."""
    return int(append_until_due(held, workspace, constraints, cursor))


@njit
def are_held_diverse(held: HeldRecords, state: DiversityState) -> bool:
    """Whether a cluster of all held records satisfies the rule."""
    count = held.extent[TAIL] - held.extent[HEAD]
    return bool(count > 0 and is_cluster_diverse(held, state, np.arange(count)))


@njit
def decide_diversely_by_distance(
    held: HeldRecords,
    workspace: Workspace,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    state: DiversityState,
    cursor: Int64Vector,
    given_cause: int,
    most: int,
) -> None:
    """Append staged records one by one and decide on each that expires; or decide on held records for a given cause.

    ``given_cause`` is `NOT_DUE`, or the cause for which up to ``most`` records are decided on.
    """
    decided = 0
    while decided != most:
        cause = _next_cause(held, workspace, constraints, cursor, given_cause)
        if cause == NOT_DUE:
            return
        decided += 1
        if constraints.dominance.share > 0.0:
            size = select_undominated(held, workspace, constraints, constraints.k)
        else:
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
    given_cause: int,
    most: int,
) -> None:
    """Decide as `decide_diversely_by_distance` does, with the clusters of `GrowthRule`."""
    decided = 0
    while decided != most:
        cause = _next_cause(held, workspace, constraints, cursor, given_cause)
        if cause == NOT_DUE:
            return
        decided += 1
        size = select_by_growth(held, workspace, candidates, constraints, cursor[NEWEST_POSITION])
        if candidates.opportunity_weight[0] > 0.0:
            count = held.extent[TAIL] - held.extent[HEAD]
            state.opportunity_costs[:count] = 0.0
            for candidate in range(min(candidates.records.size, count - 1) if size > 0 else 0):
                state.opportunity_costs[candidates.records[candidate]] = candidates.opportunity_costs[candidate]
        _decide_oldest(held, workspace, decisions, constraints, state, cursor[NEWEST_POSITION], cause, size, True)


@njit_inner
def _next_cause(
    held: HeldRecords, workspace: Workspace, constraints: StreamConstraints, cursor: Int64Vector, given_cause: int
) -> int:
    """Return why the next record is decided on, or `NOT_DUE`."""
    if given_cause == NOT_DUE:
        return int(append_until_due(held, workspace, constraints, cursor))
    return given_cause if held.extent[HEAD] < held.extent[TAIL] else NOT_DUE


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
    """Release the cluster of the rule, ``workspace.members[:size]``, if it is diverse; else grow one, or suppress.

    At the end of the stream no record is released while too few subjects are held for it.
    """
    clusters_before = decisions.counts[CLUSTERS]
    if cause == FLUSHED and clusters_before == 0 and not has_min_population(held, workspace, constraints):
        size = 0
    elif size == 0 or not is_cluster_diverse(held, state, workspace.members[:size]):
        size = grow_diverse(held, workspace, constraints, state, moves)
    release_or_suppress(held, workspace, decisions, size, newest, cause)
    update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)
