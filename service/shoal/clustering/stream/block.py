"""Rule block: all that is held leaves, in the clusters of a partition of finished tables."""

from __future__ import annotations

import numpy as np

from shoal.arrays import LARGEST, Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.numba.subject_codes import clear, count_up_to, number
from shoal.clustering.static.descent_dense import DENSE_UP_TO, ROUNDS, descend_dense
from shoal.clustering.static.mdav import mdav_by_scan
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, advance
from shoal.clustering.stream.growth import Offer, expire
from shoal.clustering.stream.held import (
    CAUSE,
    CLUSTERS,
    END,
    HEAD,
    NEWEST,
    NOT_DUE,
    RELEASED,
    TAIL,
    DecisionBuffer,
    HeldRecords,
)
from shoal.clustering.stream.membership import SHARE_TOLERANCE
from shoal.clustering.stream.steering_kernel import follow

__all__ = ["expire_due", "is_fit", "make_fit", "release", "table_of"]


@njit
def expire_due(
    held: HeldRecords,
    scratch: Workspace,
    offer: Offer,
    outcome: DecisionBuffer,
    demand: StreamConstraints,
    steps: Int64Vector,
    refused: int,
) -> int:
    """Let records of the block in and decide on all that becomes due, until more are held than this can partition.

    Parameters
    ----------
    held, scratch, offer, outcome, demand
        Of the stream.
    steps : ndarray of int64, shape (2,)
        How many records are still to come in, and the newest position; both are kept up.
    refused : int
        Cause for which the oldest record must leave without the others, in a cluster that grows, or `NOT_DUE`.

    Returns
    -------
    int
        Cause for which all that is held must leave now, in the clusters of the caller, or `NOT_DUE`: the block is in.
    """
    if refused != NOT_DUE:
        expire(held, scratch, offer, outcome, demand, steps[1], refused)
    while True:
        cause = advance(held, scratch, demand, steps)
        if cause == NOT_DUE or held.line[TAIL] - held.line[HEAD] > DENSE_UP_TO:
            return cause
        rows = table_of(held, scratch, demand)
        if rows.shape[0] > 0:
            labels = _partition(rows, demand.k)
            if is_fit(held, labels, scratch, demand):
                release(held, outcome, demand, labels, steps[1], cause)
                continue
        expire(held, scratch, offer, outcome, demand, steps[1], cause)


@njit
def table_of(held: HeldRecords, scratch: Workspace, demand: StreamConstraints) -> Float64Matrix:
    """Return all that is held as a table (n, d), weighted positions last; empty if it cannot be partitioned.

    It can if there are k people and no coordinate has a square that overflows.
    """
    head, tail, dimensions = held.line[HEAD], held.line[TAIL], held.coordinates.shape[0]
    if count_up_to(scratch.numbering, held.subjects[head:tail], demand.k) < demand.k:
        return np.empty((0, dimensions))
    rows = np.empty((tail - head, dimensions + (1 if demand.omega_p[0] > 0.0 else 0)))
    for j in range(dimensions):
        for x in range(tail - head):
            value = held.coordinates[j, head + x]
            if not abs(value) <= LARGEST:
                return rows[:0]
            rows[x, j] = value
    if demand.omega_p[0] > 0.0:
        if not demand.omega_p[0] * float(held.positions[tail - 1] - held.positions[head]) <= LARGEST:
            return rows[:0]
        for x in range(tail - head):
            rows[x, dimensions] = demand.omega_p[0] * float(held.positions[head + x] - held.positions[head])
    return rows


@njit
def _partition(rows: Float64Matrix, k: int) -> Int32Vector:
    """Do what `clustering.static` does with a table of few records: MDAV, then descent."""
    labels = mdav_by_scan(rows, k)
    return labels if rows.shape[0] < 2 * k else descend_dense(rows, labels, k, ROUNDS)


@njit
def release(
    held: HeldRecords, outcome: DecisionBuffer, demand: StreamConstraints, labels: Int32Vector, newest: int, cause: int
) -> None:
    """Let everything leave in the clusters of a fit partition."""
    decided = outcome.counts[CLUSTERS]
    _release_all(held, outcome, labels, newest, cause)
    follow(demand.omega_p, demand.target, outcome, decided)


@njit
def is_fit(held: HeldRecords, labels: Int32Vector, scratch: Workspace, demand: StreamConstraints) -> bool:
    """Whether each cluster of a partition of all that is held has k people, and nobody too much of it."""
    subjects = held.subjects[held.line[HEAD] : held.line[TAIL]]
    if count_up_to(scratch.numbering, subjects, subjects.size) == subjects.size:
        return True  # a person each, and a partition into clusters of k
    return _first_unfit(subjects, labels, _count_clusters(labels), scratch, demand) < 0


@njit
def make_fit(
    held: HeldRecords, rows: Float64Matrix, labels: Int32Vector, scratch: Workspace, demand: StreamConstraints
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
    subjects, clusters = held.subjects[held.line[HEAD] : held.line[TAIL]], _count_clusters(labels)
    for _ in range(clusters):
        unfit = _first_unfit(subjects, labels, clusters, scratch, demand)
        if unfit < 0:
            return True
        into = _nearest_other(rows, labels, clusters, unfit)
        if into < 0:
            return False
        for i in range(labels.size):
            if labels[i] == unfit:
                labels[i] = into
    return False


@njit
def _first_unfit(
    subjects: Int64Vector, labels: Int32Vector, clusters: int, scratch: Workspace, demand: StreamConstraints
) -> int:
    """Return the first cluster that must not leave, or -1."""
    ends, members = _members(labels, clusters)
    start = 0
    for cluster in range(clusters):
        size = ends[cluster] - start
        if size:
            present, heaviest = _count(subjects, members[start : ends[cluster]], scratch)
            if present < demand.k or heaviest > demand.max_share * size + SHARE_TOLERANCE:
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
def _by_age(labels: Int32Vector) -> Int32Vector:
    """Number clusters by their oldest record, leaving out those without one."""
    ranks, renamed, found = np.full(_count_clusters(labels), -1, np.int32), np.zeros(labels.size, np.int32), 0
    for i in range(labels.size):
        if ranks[labels[i]] < 0:
            ranks[labels[i]] = found
            found += 1
        renamed[i] = ranks[labels[i]]
    return renamed


@njit_in_place
def _count(subjects: Int64Vector, members: Int64Vector, scratch: Workspace) -> tuple[int, int]:
    """Return how many people there are among members, and how many records the heaviest has."""
    heaviest = 0
    for i in members:
        owner = number(scratch.numbering, subjects[i])
        scratch.counts[owner] += 1
        heaviest = max(heaviest, scratch.counts[owner])
    present = scratch.numbering.size[0]
    scratch.counts[:present] = 0
    clear(scratch.numbering)
    return present, heaviest


@njit
def _nearest_other(rows: Float64Matrix, labels: Int32Vector, clusters: int, one: int) -> int:
    """Return the cluster whose mean is nearest to that of one, or -1 if there is no other."""
    sizes, means = np.zeros(clusters), np.zeros((clusters, rows.shape[1]))
    for i in range(labels.size):
        sizes[labels[i]] += 1.0
        for j in range(rows.shape[1]):
            means[labels[i], j] += (rows[i, j] - means[labels[i], j]) / sizes[labels[i]]
    best, nearest = np.inf, -1
    for cluster in range(clusters):
        if cluster != one and sizes[cluster] > 0.0:
            away = 0.0
            for j in range(rows.shape[1]):
                step = means[cluster, j] - means[one, j]
                away += step * step
            if away < best or nearest < 0:
                best, nearest = away, cluster
    return nearest


@njit
def _release_all(held: HeldRecords, outcome: DecisionBuffer, labels: Int32Vector, newest: int, cause: int) -> None:
    """Write all clusters down, that of the oldest record first, and forget everything that is held."""
    head, tail = held.line[HEAD], held.line[TAIL]
    ranks = _by_age(labels)
    ends, members = _members(ranks, _count_clusters(ranks))
    index, start, found = outcome.counts[CLUSTERS], outcome.counts[RELEASED], ends.size
    for i in range(labels.size):
        outcome.positions[start + i] = held.positions[head + members[i]]
    outcome.clusters[END, index : index + found] = start + ends
    outcome.clusters[CAUSE, index : index + found] = cause
    outcome.clusters[NEWEST, index : index + found] = newest
    outcome.counts[CLUSTERS] = index + found
    outcome.counts[RELEASED] = start + labels.size
    held.line[HEAD] = tail
