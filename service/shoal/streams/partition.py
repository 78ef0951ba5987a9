"""All held records as one finished table: its partition by MDAV and descent, its feasibility, and its release.

Rule block releases all held records in this way whenever a record expires. Rules greedy, awo and block do so at the end
of the stream.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoal.arrays import LARGEST, Float64Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.kernels.containers import clear, count_up_to, number
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.sums import add_code_distances, dense_coordinates
from shoal.protection.diversity import SHARE_TOLERANCE
from shoal.streams.expiry import StreamState, Workspace, update_weight
from shoal.streams.held_records import (
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
from shoal.streams.nearest import NearestRule
from shoal.tables.constraints import ClusterConstraints
from shoal.tables.descent import DENSE_UP_TO, ROUNDS, descend_dense, pair_squares
from shoal.tables.mdav import mdav, mdav_by_scan, mdav_dense
from shoal.tables.refinement import descended, precompile_refinement, refine
from shoal.tables.repair import CodedRecords, exchange_categories, repair_subjects

MAX_CODES = 256  # distinct codes of a column up to which it gets one coordinate per code in a table of held records
SUBJECTS_TO_SPARE = 1.05
"""Different subjects that clusters have at the start, over those that they need: swaps must have a choice."""
PAIRS_UP_TO = 1000  # records with category columns up to which all squared distances are kept in memory: at most 8 MB


class PartitionFlushRule(NearestRule):
    """Base of the rules that decide on the end of the stream as on a finished table, by MDAV and descent.

    Clusters that are not feasible exchange records with others, and where that does not suffice, are merged with the
    nearest. If one cluster of all records is not feasible, rule nearest decides. Cost: that of `tables.mdav` and
    `tables.refinement`.
    """

    def precompile(self) -> None:
        """Compile all kernels by deciding on no records and on a few artificial ones."""
        super().precompile()
        most = self._stream.constraints.delta + 1
        if most > self._most_pairs:
            precompile_refinement(most)
        self._run_on_zeros(self._flush)
        self._run_on_zeros(self._merge_artificial)

    def _merge_artificial(self, decisions: DecisionBuffer, newest: int) -> None:
        """Repair and merge artificial clusters, whether they need it or not."""
        stream, rows = self._stream, held_as_table(self._stream)
        labels = np.zeros(len(rows), np.int32)
        if stream.constraints.delta >= self._most_pairs:
            repair_held(stream, rows, labels)
            cluster_size(np.zeros(len(rows), np.int64), len(rows), stream.constraints.k)
        merge_infeasible(stream, rows, labels)
        release_partition(stream, decisions, labels, newest, FLUSHED)

    @property
    def _most_pairs(self) -> int:
        """Held records up to which all squared distances are kept in memory."""
        return PAIRS_UP_TO if len(self._buffer.held.code_distances) else DENSE_UP_TO

    def _run_on_zeros(self, decide: Callable[[DecisionBuffer, int], object]) -> None:
        """Let ``decide`` process 2k artificial records, then restore the buffer and the weight."""
        held, constraints = self._buffer.held, self._stream.constraints
        count, weight = min(2 * constraints.k, self._buffer.capacity), constraints.omega_p.copy()
        held.subjects[:count] = np.arange(count)
        held.extent[:] = 0, count
        decide(empty_decision_buffer(count), count - 1)
        held.subjects[:count] = 0
        held.extent[:] = 0
        constraints.omega_p[:] = weight

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        if self._has_min_population():
            points, labels, is_feasible = self._partition()
            if len(labels) and (is_feasible or merge_infeasible(self._stream, points, labels)):
                release_partition(self._stream, decisions, labels, newest, FLUSHED)
        super()._flush(decisions, newest)

    def _has_min_population(self) -> bool:
        """Whether records are held, and of enough distinct subjects for the end of the stream to release them."""
        return self._buffer.population >= max(self._stream.constraints.population, 1)

    def _partition(self) -> tuple[Float64Matrix, Int32Vector, bool]:
        """Return the held records as points, the cluster of each, and whether all are feasible; empty if in vain."""
        stream, k = self._stream, self._stream.constraints.k
        rows = held_as_table(stream)
        if not len(rows):
            return rows, np.empty(0, np.int32), False
        points = self._points(rows)
        if len(rows) <= self._most_pairs:
            return points, *partition_dense(stream, rows)
        subjects = np.unique(self._buffer.subjects(), return_inverse=True)[1]
        if len(subjects) == subjects.max() + 1:
            return points, descended(points, mdav(points, k), k), True
        labels = mdav(points, cluster_size(subjects, len(points), k))
        repaired = labels.copy()
        if not repair_held(stream, rows, repaired):
            return points, descended(points, labels, k), False
        limits = ClusterConstraints(subjects, stream.constraints.max_share)
        return points, refine(points, [repaired], k, "descent", constraints=limits).labels, True

    def _points(self, rows: Float64Matrix) -> Float64Matrix:
        """Return a table of the held records that has coordinates for their categories, too."""
        held = self._buffer.held
        columns = len(held.code_distances)
        if not columns:
            return rows
        codes = held.codes[:columns, held.extent[HEAD] : held.extent[HEAD] + len(rows)].T
        return dense_coordinates(rows, codes, held.code_distances, MAX_CODES)


@njit
def held_as_table(stream: StreamState) -> Float64Matrix:
    """Return the held records as a table (n, d), the weighted position last; empty if they cannot be partitioned."""
    held, k, omega_p = stream.held, stream.constraints.k, stream.constraints.omega_p[0]
    head, tail, dimensions = held.extent[HEAD], held.extent[TAIL], held.coordinates.shape[0]
    if count_up_to(stream.workspace.numbering, held.subjects[head:tail], k) < k:
        return np.empty((0, dimensions))
    rows = np.empty((tail - head, dimensions + (1 if omega_p > 0.0 else 0)))
    for j in range(dimensions):
        for x in range(tail - head):
            value = held.coordinates[j, head + x]
            if not abs(value) <= LARGEST:
                return rows[:0]
            rows[x, j] = value
    if omega_p > 0.0:
        if not omega_p * float(held.positions[tail - 1] - held.positions[head]) <= LARGEST:
            return rows[:0]
        for x in range(tail - head):
            rows[x, dimensions] = omega_p * float(held.positions[head + x] - held.positions[head])
    return rows


@njit
def partition_dense(stream: StreamState, rows: Float64Matrix) -> tuple[Int32Vector, bool]:
    """Partition the held records ``rows`` (n, d) by MDAV and descent with all squared distances in memory.

    Returns the cluster of each record (n,), where numbers may be left unused, and whether each cluster satisfies k and
    ``max_share``. Where clusters do not, records are swapped; if that does not suffice, all begins again with larger
    clusters. Category columns are read as they are. Cost: O(n² (d + c)) time, O(n²) memory.
    """
    held, n, k, share = stream.held, rows.shape[0], stream.constraints.k, stream.constraints.max_share
    subjects, codes = _numbered_subjects(held, n, stream.workspace), _numbered_codes(held, n, stream.workspace)
    # A record whose code is not published loses half the squared distance of two codes.
    records = CodedRecords(rows, codes, held.code_distances / 2.0, held.codes_must_agree)
    squares, labels = np.empty((0, 0)), np.zeros(n, np.int32)
    if n >= 2 * k:
        squares = _squares(held, rows)
        labels = descend_dense(squares, _mdav(rows, squares, codes, k), k, ROUNDS, subjects[:0], share)
    swaps = repair_subjects(records, subjects, share, labels, k)
    has_changed = swaps > 0
    if swaps < 0 and n >= 2 * k:
        labels = _mdav(rows, squares, codes, cluster_size(subjects, n, k))
        swaps = repair_subjects(records, subjects, share, labels, k)
        has_changed = swaps >= 0
    if has_changed:
        labels = descend_dense(squares, labels, k, ROUNDS, subjects, share)
    if n >= 2 * k and codes.shape[0] > 0:
        exchange_categories(records, subjects if swaps >= 0 else subjects[:0], share, labels, k)
    return labels, swaps >= 0


@njit
def cluster_size(subjects: Int64Vector, n: int, k: int) -> int:
    """Return the size of n records' clusters, k or more, with which each can have k subjects, and some to spare."""
    counts = np.zeros(n, np.int64)
    for subject in subjects:
        counts[subject] += 1
    clusters = max(n // k, 1)
    while clusters > 1:
        distinct = 0
        for subject in range(n):
            distinct += min(int(counts[subject]), clusters)
        if distinct >= SUBJECTS_TO_SPARE * k * clusters:
            break
        clusters -= 1
    return n // clusters


@njit
def repair_held(stream: StreamState, rows: Float64Matrix, labels: Int32Vector) -> bool:
    """Swap held records (n, d) between clusters, in place, until all are feasible; return whether they are."""
    held, constraints = stream.held, stream.constraints
    no_codes = np.empty((0, labels.size), np.int64)
    records = CodedRecords(rows, no_codes, held.code_distances[:0], held.codes_must_agree[:0])
    subjects = _numbered_subjects(held, labels.size, stream.workspace)
    return repair_subjects(records, subjects, constraints.max_share, labels, constraints.k) >= 0


@njit
def merge_infeasible(stream: StreamState, rows: Float64Matrix, labels: Int32Vector) -> bool:
    """Merge each cluster that violates k or ``max_share`` with the nearest cluster, until none does; change ``labels``.

    Returns False if even a single cluster of all records violates the constraints.
    """
    clusters = _count_clusters(labels)
    for _ in range(clusters):
        violating = _first_infeasible(stream, labels, clusters)
        if violating < 0:
            return True
        into = _nearest_cluster(rows, labels, clusters, violating)
        if into < 0:
            return False
        for i in range(labels.size):
            if labels[i] == violating:
                labels[i] = into
    return False


@njit
def release_partition(
    stream: StreamState, decisions: DecisionBuffer, labels: Int32Vector, newest: int, cause: int
) -> None:
    """Release all held records in the clusters of a feasible partition, that of the oldest record first."""
    held, constraints = stream.held, stream.constraints
    head, tail = held.extent[HEAD], held.extent[TAIL]
    ranks = _number_by_age(labels)
    ends, members = _members(ranks, _count_clusters(ranks))
    index, start, found = decisions.counts[CLUSTERS], decisions.counts[RELEASED], ends.size
    for i in range(labels.size):
        decisions.positions[start + i] = held.positions[head + members[i]]
    for cluster in range(found):  # an array expression would add code for arrays of unequal lengths
        decisions.clusters[END, index + cluster] = start + ends[cluster]
        decisions.clusters[CAUSE, index + cluster] = cause
        decisions.clusters[NEWEST, index + cluster] = newest
    decisions.counts[CLUSTERS] = index + found
    decisions.counts[RELEASED] = start + labels.size
    held.extent[HEAD] = tail
    update_weight(constraints.omega_p, constraints.target, decisions, index)


@njit_inner
def _mdav(rows: Float64Matrix, squares: Float64Matrix, codes: Int64Matrix, size: int) -> Int32Vector:
    """Return the partition of n records by MDAV into clusters of ``size`` or more; one if there are too few records."""
    if rows.shape[0] < 2 * size:
        return np.zeros(rows.shape[0], np.int32)
    return mdav_by_scan(rows, size) if codes.shape[0] == 0 else mdav_dense(squares, size)


@njit_inner
def _squares(held: HeldRecords, rows: Float64Matrix) -> Float64Matrix:
    """Return the squared distances (n, n) of the held records, of numbers and categories."""
    squares = pair_squares(rows)
    if held.code_distances.size > 0:
        for i in range(rows.shape[0]):
            add_code_distances(held.codes, held.extent[HEAD], held.code_distances, i, squares[i])
    return squares


@njit_inner
def _numbered_codes(held: HeldRecords, n: int, workspace: Workspace) -> Int64Matrix:
    """Return the codes of held records in each category column, (c, n), numbered from 0 over all columns."""
    head, codes, first = held.extent[HEAD], np.empty((held.code_distances.size, n), np.int64), 0
    for column in range(codes.shape[0]):
        for x in range(n):
            codes[column, x] = first + number(workspace.numbering, held.codes[column, head + x])
        first += workspace.numbering.size[0]
        clear(workspace.numbering)
    return codes


@njit_inner
def _numbered_subjects(held: HeldRecords, n: int, workspace: Workspace) -> Int64Vector:
    """Return the subjects of held records (n,), numbered from 0; empty if each has its own."""
    head, subjects = held.extent[HEAD], np.empty(n, np.int64)
    for x in range(n):
        subjects[x] = number(workspace.numbering, held.subjects[head + x])
    is_distinct = workspace.numbering.size[0] == n
    clear(workspace.numbering)
    return subjects[:0] if is_distinct else subjects


@njit_inner
def _first_infeasible(stream: StreamState, labels: Int32Vector, clusters: int) -> int:
    """Return the first cluster that violates a constraint, or -1."""
    held, constraints, start = stream.held, stream.constraints, 0
    subjects = held.subjects[held.extent[HEAD] : held.extent[TAIL]]
    ends, members = _members(labels, clusters)
    for cluster in range(clusters):
        size = ends[cluster] - start
        if size:
            distinct, most = _count_subjects(subjects, members[start : ends[cluster]], stream.workspace)
            if distinct < constraints.k or most > constraints.max_share * size + SHARE_TOLERANCE:
                return cluster
        start = ends[cluster]
    return -1


@njit_inline
def _count_clusters(labels: Int32Vector) -> int:
    """Return the largest label plus 1."""
    clusters = 0
    for label in labels:
        clusters = max(clusters, label + 1)
    return clusters


@njit_inner
def _members(labels: Int32Vector, clusters: int) -> tuple[Int64Vector, Int64Vector]:
    """Return the end of each cluster in the list of members, and that list, oldest record first in each cluster."""
    sizes, members = np.zeros(clusters, np.int64), np.zeros(labels.size, np.int64)
    for label in labels:
        sizes[label] += 1
    ends, filled, end = np.zeros(clusters, np.int64), np.zeros(clusters, np.int64), 0
    for cluster in range(clusters):
        filled[cluster] = end
        end += sizes[cluster]
        ends[cluster] = end
    for i in range(labels.size):
        members[filled[labels[i]]] = i
        filled[labels[i]] += 1
    return ends, members


@njit_inner
def _number_by_age(labels: Int32Vector) -> Int32Vector:
    """Number clusters by their oldest record, leaving out empty ones."""
    ranks, renamed, found = np.full(_count_clusters(labels), -1, np.int32), np.zeros(labels.size, np.int32), 0
    for i in range(labels.size):
        if ranks[labels[i]] < 0:
            ranks[labels[i]] = found
            found += 1
        renamed[i] = ranks[labels[i]]
    return renamed


@njit_inline
def _count_subjects(subjects: Int64Vector, members: Int64Vector, workspace: Workspace) -> tuple[int, int]:
    """Return the number of distinct subjects among members, and the records of the most frequent one."""
    max_per_subject = 0
    for i in members:
        subject = number(workspace.numbering, subjects[i])
        workspace.counts[subject] += 1
        max_per_subject = max(max_per_subject, workspace.counts[subject])
    subjects_in = workspace.numbering.size[0]
    workspace.counts[:subjects_in] = 0
    clear(workspace.numbering)
    return subjects_in, max_per_subject


@njit_inner
def _nearest_cluster(rows: Float64Matrix, labels: Int32Vector, clusters: int, source: int) -> int:
    """Return the cluster whose mean is nearest to that of ``source``, or -1 if there is no other."""
    sizes, means = np.zeros(clusters), np.zeros((clusters, rows.shape[1]))
    for i in range(labels.size):
        sizes[labels[i]] += 1.0
        for j in range(rows.shape[1]):
            means[labels[i], j] += (rows[i, j] - means[labels[i], j]) / sizes[labels[i]]
    best, nearest = np.inf, -1
    for cluster in range(clusters):
        if cluster != source and sizes[cluster] > 0.0:
            squared = 0.0
            for j in range(rows.shape[1]):
                step = means[cluster, j] - means[source, j]
                squared += step * step
            if squared < best or nearest < 0:
                best, nearest = squared, cluster
    return nearest
