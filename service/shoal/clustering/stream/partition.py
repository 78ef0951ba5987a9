"""P."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoal.arrays import LARGEST, Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.numba.subject_codes import clear, count_up_to, number
from shoal.clustering.static.mdav import mdav
from shoal.clustering.static.refinement import descended, precompile_refinement
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, has_min_population
from shoal.clustering.stream.held_records import (
    CAUSE,
    CLUSTERS,
    END,
    FLUSHED,
    HEAD,
    NEWEST,
    RELEASED,
    TAIL,
    DecisionBuffer,
    HeldRecords,
    empty_decision_buffer,
)
from shoal.clustering.stream.membership import SHARE_TOLERANCE
from shoal.clustering.stream.nearest import NearestRule
from shoal.clustering.stream.steering import update_weight

__all__ = ["PartitionFlushRule", "held_as_table", "is_feasible", "merge_until_feasible", "release_partition"]


class PartitionFlushRule(NearestRule):
    """P."""

    def precompile(self) -> None:
        """P."""
        super().precompile()
        precompile_refinement(self._constraints.delta + 1)
        self._run_on_zeros(self._flush)

    def _run_on_zeros(self, decide: Callable[[DecisionBuffer, int], object]) -> None:
        """R."""
        held, constraints = self._buffer.held, self._constraints
        count, weight = min(2 * constraints.k, self._buffer.capacity), constraints.omega_p.copy()
        held.subjects[:count] = np.arange(count)
        held.extent[:] = 0, count
        decide(empty_decision_buffer(count), count - 1)
        held.subjects[:count] = 0
        held.extent[:] = 0
        constraints.omega_p[:] = weight

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        held, workspace, constraints = self._buffer.held, self._workspace, self._constraints
        if has_min_population(held, workspace, constraints) and len(self._buffer):
            rows, labels = self._partition()
            if len(labels) and merge_until_feasible(held, rows, labels, workspace, constraints):
                release_partition(held, decisions, constraints, labels, newest, FLUSHED)
        super()._flush(decisions, newest)

    def _partition(self) -> tuple[Float64Matrix, Int32Vector]:
        """P."""
        rows = held_as_table(self._buffer.held, self._workspace, self._constraints)
        k = self._constraints.k
        return rows, descended(rows, mdav(rows, k), k) if len(rows) else np.empty(0, np.int32)


@njit
def held_as_table(held: HeldRecords, workspace: Workspace, constraints: StreamConstraints) -> Float64Matrix:
    """Return all that is held as a table (n, d), weighted positions last; empty if it cannot be partitioned.

    It can if there are k people and no coordinate has a square that overflows.
    """
    head, tail, dimensions = held.extent[HEAD], held.extent[TAIL], held.coordinates.shape[0]
    if count_up_to(workspace.numbering, held.subjects[head:tail], constraints.k) < constraints.k:
        return np.empty((0, dimensions))
    rows = np.empty((tail - head, dimensions + (1 if constraints.omega_p[0] > 0.0 else 0)))
    for j in range(dimensions):
        for x in range(tail - head):
            value = held.coordinates[j, head + x]
            if not abs(value) <= LARGEST:
                return rows[:0]
            rows[x, j] = value
    if constraints.omega_p[0] > 0.0:
        if not constraints.omega_p[0] * float(held.positions[tail - 1] - held.positions[head]) <= LARGEST:
            return rows[:0]
        for x in range(tail - head):
            rows[x, dimensions] = constraints.omega_p[0] * float(held.positions[head + x] - held.positions[head])
    return rows


@njit
def is_feasible(held: HeldRecords, labels: Int32Vector, workspace: Workspace, constraints: StreamConstraints) -> bool:
    """Whether each cluster of a partition of all that is held has k people, and nobody too much of it."""
    subjects = held.subjects[held.extent[HEAD] : held.extent[TAIL]]
    if count_up_to(workspace.numbering, subjects, subjects.size) == subjects.size:
        return True  # a person each, and a partition into clusters of k
    return _first_infeasible(subjects, labels, _count_clusters(labels), workspace, constraints) < 0


@njit
def merge_until_feasible(
    held: HeldRecords, rows: Float64Matrix, labels: Int32Vector, workspace: Workspace, constraints: StreamConstraints
) -> bool:
    """Merge clusters of too few people, or with one who has too much of it, with the nearest, until all fit.

    Parameters
    ----------
    held
        Of the stream.
    rows : ndarray of float64, shape (n, d)
        Coordinates of the records.
    labels : ndarray of int32, shape (n,)
        Cluster of each, from 0; changed in place. Numbers may be left without a record.
    scratch, demand
        Of the stream.

    Returns
    -------
    bool
        False if not even all of them together fit.
    """
    subjects, clusters = held.subjects[held.extent[HEAD] : held.extent[TAIL]], _count_clusters(labels)
    for _ in range(clusters):
        infeasible = _first_infeasible(subjects, labels, clusters, workspace, constraints)
        if infeasible < 0:
            return True
        into = _nearest_cluster(rows, labels, clusters, infeasible)
        if into < 0:
            return False
        for i in range(labels.size):
            if labels[i] == infeasible:
                labels[i] = into
    return False


@njit
def release_partition(
    held: HeldRecords,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    labels: Int32Vector,
    newest: int,
    cause: int,
) -> None:
    """Let everything leave in the clusters of a fit partition."""
    clusters_before = decisions.counts[CLUSTERS]
    _release_all(held, decisions, labels, newest, cause)
    update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)


@njit
def _first_infeasible(
    subjects: Int64Vector, labels: Int32Vector, clusters: int, workspace: Workspace, constraints: StreamConstraints
) -> int:
    """Return the first cluster that must not leave, or -1."""
    ends, members = _members(labels, clusters)
    start = 0
    for cluster in range(clusters):
        size = ends[cluster] - start
        if size:
            subjects_in, heaviest = _count_subjects(subjects, members[start : ends[cluster]], workspace)
            if subjects_in < constraints.k or heaviest > constraints.max_share * size + SHARE_TOLERANCE:
                return cluster
        start = ends[cluster]
    return -1


@njit_in_place
def _count_clusters(labels: Int32Vector) -> int:
    clusters = 0
    for label in labels:
        clusters = max(clusters, label + 1)
    return clusters


@njit
def _members(labels: Int32Vector, clusters: int) -> tuple[Int64Vector, Int64Vector]:
    """Return where each cluster ends among the members of all, and these, from old to young in each."""
    sizes, members = np.zeros(clusters, np.int64), np.zeros(labels.size, np.int64)
    for label in labels:
        sizes[label] += 1
    ends = np.cumsum(sizes)
    filled = ends - sizes
    for i in range(labels.size):
        members[filled[labels[i]]] = i
        filled[labels[i]] += 1
    return ends, members


@njit
def _number_by_age(labels: Int32Vector) -> Int32Vector:
    """Number clusters by their oldest record, leaving out those without one."""
    ranks, renamed, found = np.full(_count_clusters(labels), -1, np.int32), np.zeros(labels.size, np.int32), 0
    for i in range(labels.size):
        if ranks[labels[i]] < 0:
            ranks[labels[i]] = found
            found += 1
        renamed[i] = ranks[labels[i]]
    return renamed


@njit_in_place
def _count_subjects(subjects: Int64Vector, members: Int64Vector, workspace: Workspace) -> tuple[int, int]:
    """Return how many people there are among members, and how many records the heaviest has."""
    heaviest = 0
    for i in members:
        owner = number(workspace.numbering, subjects[i])
        workspace.counts[owner] += 1
        heaviest = max(heaviest, workspace.counts[owner])
    subjects_in = workspace.numbering.size[0]
    workspace.counts[:subjects_in] = 0
    clear(workspace.numbering)
    return subjects_in, heaviest


@njit
def _nearest_cluster(rows: Float64Matrix, labels: Int32Vector, clusters: int, cluster_from: int) -> int:
    """Return the cluster whose mean is nearest to that of one, or -1 if there is no other."""
    sizes, means = np.zeros(clusters), np.zeros((clusters, rows.shape[1]))
    for i in range(labels.size):
        sizes[labels[i]] += 1.0
        for j in range(rows.shape[1]):
            means[labels[i], j] += (rows[i, j] - means[labels[i], j]) / sizes[labels[i]]
    best, nearest = np.inf, -1
    for cluster in range(clusters):
        if cluster != cluster_from and sizes[cluster] > 0.0:
            squared = 0.0
            for j in range(rows.shape[1]):
                step = means[cluster, j] - means[cluster_from, j]
                squared += step * step
            if squared < best or nearest < 0:
                best, nearest = squared, cluster
    return nearest


@njit
def _release_all(held: HeldRecords, decisions: DecisionBuffer, labels: Int32Vector, newest: int, cause: int) -> None:
    """Write all clusters down, that of the oldest record first, and forget everything that is held."""
    head, tail = held.extent[HEAD], held.extent[TAIL]
    ranks = _number_by_age(labels)
    ends, members = _members(ranks, _count_clusters(ranks))
    index, start, found = decisions.counts[CLUSTERS], decisions.counts[RELEASED], ends.size
    for i in range(labels.size):
        decisions.positions[start + i] = held.positions[head + members[i]]
    decisions.clusters[END, index : index + found] = start + ends
    decisions.clusters[CAUSE, index : index + found] = cause
    decisions.clusters[NEWEST, index : index + found] = newest
    decisions.counts[CLUSTERS] = index + found
    decisions.counts[RELEASED] = start + labels.size
    held.extent[HEAD] = tail
