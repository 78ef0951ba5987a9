"""MDAV: a cluster around the record farthest from the centroid of what is left, and one on the opposite side; V-MDAV.

`FarthestPointIndex` finds the record farthest from a centre that moves slowly while records are removed. Records are
listed by their distance to a former centre, the farthest first. No distance to the current centre differs from that by
more than the centre has moved, so only the first records of the list can be the farthest. (A k-d tree does not help:
the farthest records lie on a sphere around the centre, and all boxes on it have nearly the same largest distance.)

`mdav_dense` needs squared distances only. The squared distance of a record from the centroid of m records is 1/m times
the sum of its squared distances from them, less a term that is equal for all records. So the record farthest from the
centroid is the one with the largest sum, and the sums are updated whenever records leave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.kd_tree import NeighbourSearch, Tree, build, empty_neighbour_search, farthest, nearest, remove
from shoal.kernels.pieces import pieces, search_cost
from shoal.kernels.sums import centroid, squared_distance, subtract, sum_all

HEAD, END, STEPS = 0, 1, 2
MAX_STEPS = 4  # steps along the list, per record left, before it is sorted again
RADIX_BITS = 11  # bits that one pass of the radix sort looks at
SAFETY = 1.0 - 1e-6
"""Factor on a distance that covers the error of the approximate order and of a sum of two square roots."""


class FarthestPointIndex(NamedTuple):
    """Records by falling distance to a reference point; empty until the first call of `farthest_point`."""

    rows: Float64Matrix  # (n, d): coordinates in the order of the list
    records: Int64Vector  # (n,)
    distances: Float64Vector  # (n,): to the reference point, not squared, falling
    reference: Float64Vector  # (d,)
    state: Int64Vector  # (3,): first entry of the list, its end, steps along it since it was sorted


@njit_inner
def farthest_point(
    index: FarthestPointIndex, values: Float64Matrix, free: BoolVector, left: int, centre: Float64Vector
) -> int:
    """Return the farthest of the ``left`` free records; ties go to the lowest. Others must not become free again."""
    if index.state[END] == 0 or index.state[STEPS] > MAX_STEPS * left:
        _rebuild(index, values, free, centre)
    while not free[index.records[index.state[HEAD]]]:
        index.state[HEAD] += 1
    drift = 0.0
    for j in range(centre.size):
        away = centre[j] - index.reference[j]
        drift += away * away
    drift = np.sqrt(drift)
    best, root, farthest = -1.0, -1.0, -1
    start, end = index.state[HEAD], index.state[END]
    x = start
    while x < end and index.distances[x] + drift >= root * SAFETY:
        record = index.records[x]
        if free[record]:
            distance = squared_distance(index.rows, x, centre)
            if distance > best or (distance == best and record < farthest):
                best, root, farthest = distance, np.sqrt(distance), record
        x += 1
    index.state[STEPS] += x - start
    return int(farthest)


@njit_inner
def _rebuild(index: FarthestPointIndex, values: Float64Matrix, free: BoolVector, centre: Float64Vector) -> None:
    """List the free records by their distance to a new reference point."""
    size = 0
    for record in range(free.size):
        if free[record]:
            index.records[size] = record
            index.distances[size] = np.sqrt(squared_distance(values, record, centre))
            size += 1
    _sort_descending(index.records[:size], index.distances[:size])
    for x in range(size):
        for j in range(centre.size):
            index.rows[x, j] = values[index.records[x], j]
    for j in range(centre.size):
        index.reference[j] = centre[j]
    index.state[HEAD], index.state[END], index.state[STEPS] = 0, size, 0


@njit_inner
def _sort_descending(records: Int64Vector, distances: Float64Vector) -> None:
    """Sort records by falling distance, as far as the leading 33 bits show it: a radix sort is the fastest."""
    other_records, other_distances = np.empty_like(records), np.empty_like(distances)
    counts = np.zeros((1 << RADIX_BITS) + 1, np.int64)
    for shift in (64 - 3 * RADIX_BITS + 1, 64 - 2 * RADIX_BITS + 1, 64 - RADIX_BITS + 1):
        bits = distances.view(np.int64)
        counts.fill(0)
        for x in range(bits.size):
            counts[_digit(bits[x], shift) + 1] += 1
        for digit in range(1 << RADIX_BITS):
            counts[digit + 1] += counts[digit]
        for x in range(bits.size):
            digit = _digit(bits[x], shift)
            other_records[counts[digit]], other_distances[counts[digit]] = records[x], distances[x]
            counts[digit] += 1
        for x in range(bits.size):
            records[x], distances[x] = other_records[x], other_distances[x]


@njit_inline
def _digit(bits: int, shift: int) -> int:
    """Return one digit of a number, inverted, so that larger numbers come first."""
    return (1 << RADIX_BITS) - 1 - ((bits >> shift) & ((1 << RADIX_BITS) - 1))


SCAN_UP_TO = 400  # records up to which a scan of all of them is as fast as a tree
LEAF_SIZE = 64


def mdav(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into clusters of k to 2k - 1 by maximum distance to the average vector, in order of creation.

    Guarantee: every cluster has k records except the last, which has k to 2k - 1. Ties go to the lowest record, and
    centroids are exact to the last bit, so the result does not depend on how it is computed. The end is that of [2]_:
    while 3k records are left, two clusters are formed; while 2k are left, one; the rest is one cluster.
    Cost: O(n² d / k) up to 400 records. Above, a k-d tree from which records are removed and a list sorted by the
    distance to a former centroid give nearly O(n log n) for few attributes, and never more. O(n d) memory.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section IV.
    .. [2] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through
       Microaggregation", Data Mining and Knowledge Discovery 11(2), 2005, MDAV-generic. doi:10.1007/s10618-005-0007-5
    """
    return mdav_by_scan(values, k) if len(values) <= SCAN_UP_TO else mdav_by_tree(values, k, LEAF_SIZE)


@njit
def mdav_by_scan(values: Float64Matrix, k: int) -> Int32Vector:
    """Return the labels of MDAV; every cluster scans all records that are left. O(n² d / k)."""
    n, d = values.shape
    labels, rest, members = np.full(n, -1, np.int32), np.arange(n), np.zeros(k, np.int64)
    sums, centre, away = sum_all(values), np.zeros(d), np.zeros(n)
    left, label, opposite = n, 0, -1
    while left >= 2 * k:
        if opposite < 0:
            centroid(sums, left, centre)
            seed = write_distances(values, rest[:left], centre, away)
        else:
            seed = write_distances(values, rest[:left], values[opposite], away)
        write_distances(values, rest[:left], values[seed], away)
        take_nearest(away, rest[:left], seed, labels, label, members)
        for record in members:
            subtract(sums, values[record])
        left -= k
        opposite = seed if opposite < 0 else -1
        label += 1
    for x in range(left):
        labels[rest[x]] = label
    return labels


@njit_inner
def write_distances(values: Float64Matrix, rest: Int64Vector, point: Float64Vector, away: Float64Vector) -> int:
    """Write the squared distances of the records of ``rest`` from a point to ``away`` (n,); return the farthest."""
    best, record = -1.0, -1
    for x in range(rest.size):
        distance = squared_distance(values, rest[x], point)
        away[rest[x]] = distance
        if distance > best:
            best, record = distance, rest[x]
    return int(record)


@njit_inner
def take_nearest(
    away: Float64Vector, rest: Int64Vector, seed: int, labels: Int32Vector, label: int, members: Int64Vector
) -> None:
    """Form a cluster of a seed and the k - 1 records with the smallest ``away`` (n,), and label them.

    ``rest`` lists the records that are left, ascending; it is compacted. The cluster is written to ``members`` (k,):
    the seed first, then from near to far; of ties, the lowest record first.
    """
    distances = np.full(members.size, np.inf)
    distances[0] = -np.inf
    members[0] = seed
    for x in range(rest.size):
        record = rest[x]
        if record != seed and away[record] < distances[-1]:
            i = members.size - 1
            while distances[i - 1] > away[record]:
                distances[i] = distances[i - 1]
                members[i] = members[i - 1]
                i -= 1
            distances[i] = away[record]
            members[i] = record
    for record in members:
        labels[record] = label
    remaining = 0
    for x in range(rest.size):
        rest[remaining] = rest[x]
        remaining += labels[rest[x]] < 0


@njit_inline
def _largest(values: Float64Vector, rest: Int64Vector) -> int:
    """Return the first record of ``rest`` with the largest value."""
    best, record = -np.inf, rest[0]
    for x in range(rest.size):
        if values[rest[x]] > best:
            best, record = values[rest[x]], rest[x]
    return int(record)


def mdav_by_tree(values: Float64Matrix, k: int, leaf_size: int) -> Int32Vector:
    """Return the labels of MDAV, found through a k-d tree with leaves of at most ``leaf_size`` records."""
    n, d = values.shape
    labels, tree, clusters = np.full(n, -1, np.int32), build(values, leaf_size), max(n // k - 1, 0)
    state = np.zeros(3, np.int64)
    index = FarthestPointIndex(np.zeros((n, d)), np.zeros(n, np.int64), np.zeros(n), np.zeros(d), state)
    free, sums, seeds = np.ones(n, np.bool_), np.zeros((2, d)), np.zeros(clusters, np.int64)
    for first, end in pieces("MDAV", clusters, 3 * search_cost(n, d)):
        _take_clusters(values, k, tree, index, free, sums, first, end, seeds, labels)
    labels[labels < 0] = clusters
    return labels


@njit
def _take_clusters(
    values: Float64Matrix,
    k: int,
    tree: Tree,
    index: FarthestPointIndex,
    free: BoolVector,
    sums: Float64Matrix,
    first: int,
    end: int,
    seeds: Int64Vector,
    labels: Int32Vector,
) -> None:
    """Form some clusters of k records one after the other; write their seeds, of which every second is opposite.

    ``sums`` are those of the records that are left, as `sum_all` returns them; they are set before the first cluster.
    """
    if first == 0:
        sums[:] = sum_all(values)
    search, centre = empty_neighbour_search(k - 1, tree.records.shape[1]), np.zeros(values.shape[1])
    for label in range(first, end):
        if label % 2 == 0:
            left = free.size - label * k
            centroid(sums, left, centre)
            seed = farthest_point(index, values, free, left, centre)
        else:
            seed = farthest(tree, values[seeds[label - 1]], search)
        seeds[label] = seed
        remove(tree, seed)
        nearest(tree, values[seed], tree.leaves[seed], search)
        _assign(labels, free, seed, label)
        subtract(sums, values[seed])
        for record in search.records:
            remove(tree, record)
            _assign(labels, free, record, label)
            subtract(sums, values[record])


@njit_inline
def _assign(labels: Int32Vector, free: BoolVector, record: int, label: int) -> None:
    labels[record] = label
    free[record] = False


@njit_inner
def mdav_dense(squares: Float64Matrix, k: int) -> Int32Vector:
    """Partition records as `mdav` does, from their squared distances (n, n), not modified. O(n²); O(n) memory.

    The sums are floats: of records whose distances from a centroid differ by rounding only, either may be chosen.
    """
    n = squares.shape[0]
    labels, rest, sums = np.full(n, -1, np.int32), np.arange(n), np.zeros(n)
    for i in range(n):
        _add(sums, squares[i], 1.0)
    members = np.zeros(k, np.int64)
    left, label, opposite = n, 0, -1
    while left >= 2 * k:
        seed = _largest(sums if opposite < 0 else squares[opposite], rest[:left])
        take_nearest(squares[seed], rest[:left], seed, labels, label, members)
        for record in members:
            _add(sums, squares[record], -1.0)
        left -= k
        opposite = seed if opposite < 0 else -1
        label += 1
    for x in range(left):
        labels[rest[x]] = label
    return labels


@njit_inline
def _add(sums: Float64Vector, away: Float64Vector, factor: float) -> None:
    """Add ``factor``, 1 or -1, times the distances from one record (n,) to the sums of all records."""
    for x in range(sums.size):
        sums[x] += factor * away[x]


def vmdav(values: Float64Matrix, k: int, *, gamma: float = 0.2) -> Int32Vector:
    """Partition records into clusters of k to 3k - 2 by variable-size MDAV, in order of creation.

    ``gamma`` says how readily a cluster grows, up to 2k - 1: the nearest record outside joins it while the squared
    distance to the cluster is below gamma times the squared distance to the next record outside. 0: never; about 0.2
    for scattered data, about 1.1 for data in groups. The centroid whose farthest record starts the next cluster is that
    of all records. Ties go to the lowest record. Two points are open in the paper. Fewer than k records that are left
    over join "their closest group" [1]_: here, as a block, the cluster with the centroid nearest to theirs. The
    distances that gamma compares are squared here: only this gives Table I of [1]_. Cost: nearly O(n k log n) for few
    attributes, O(n² d) for many.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section V.
    .. [2] A. Solanas and A. Martínez-Ballesté, "V-MDAV: A Multivariate Microaggregation with Variable Group Size",
       COMPSTAT 2006.
    """
    order = np.argsort(-_squared_distances_to_centroid(values), kind="stable")
    (n, d), labels = values.shape, np.full(len(values), -1, np.int32)
    tree, left = build(values, LEAF_SIZE), np.array([n, 0])
    for first, end in pieces("V-MDAV", n, k * search_cost(n, d)):
        _form_clusters(values, k, gamma, tree, order[first:end], left, labels)
    join_as_block(values, labels, int(labels.max()) + 1)
    return labels


@njit
def _squared_distances_to_centroid(values: Float64Matrix) -> Float64Vector:
    """Return the squared distance of each record (n,) to the centroid of all records."""
    n, d = values.shape
    centre, distances = np.zeros(d), np.zeros(n)
    centroid(sum_all(values), n, centre)
    for i in range(n):
        distances[i] = squared_distance(values, i, centre)
    return distances


@njit
def _form_clusters(
    values: Float64Matrix,
    k: int,
    gamma: float,
    tree: Tree,
    order: Int64Vector,
    state: Int64Vector,
    labels: Int32Vector,
) -> None:
    """Form the clusters of V-MDAV that some records start, the farthest first; -1 stays the label of the others.

    ``state`` holds how many records are left, and how many clusters there are.
    """
    leaf_size = tree.records.shape[1]
    found = empty_neighbour_search(k - 1, leaf_size)
    one, two = empty_neighbour_search(1, leaf_size), empty_neighbour_search(2, leaf_size)
    members = np.zeros(2 * k - 1, np.int64)
    left, label = state[0], state[1]
    for seed in order:
        if left < k:
            break
        if labels[seed] >= 0:
            continue
        remove(tree, seed)
        nearest(tree, values[seed], tree.leaves[seed], found)
        members[0] = seed
        members[1:k] = found.records
        for record in found.records:
            remove(tree, record)
        size = k
        while size < 2 * k - 1 and size < left:
            distance, record = _nearest_outside(tree, values, members[:size], one)
            nearest(tree, values[record], tree.leaves[record], two)
            others = two.distances[1] if two.records[0] == record else two.distances[0]
            if not (gamma > 0.0 and distance < gamma * others):
                break
            remove(tree, record)
            members[size] = record
            size += 1
        for x in range(size):
            labels[members[x]] = label
        left -= size
        label += 1
    state[0], state[1] = left, label


@njit_inner
def _nearest_outside(
    tree: Tree, values: Float64Matrix, members: Int64Vector, one: NeighbourSearch
) -> tuple[float, int]:
    """Return the squared distance between a cluster and the nearest record that is left, and that record."""
    best, record = np.inf, np.iinfo(np.int64).max
    for member in members:
        nearest(tree, values[member], tree.leaves[member], one)
        if one.distances[0] < best or (one.distances[0] == best and one.records[0] < record):
            best, record = one.distances[0], one.records[0]
    return best, record


@njit
def join_as_block(values: Float64Matrix, labels: Int32Vector, clusters: int) -> None:
    """Assign all records of label -1, as one block, to the cluster whose centroid is nearest to theirs, in place."""
    sums, counts = np.zeros((clusters + 1, values.shape[1])), np.zeros(clusters + 1)  # the last is that of the block
    for i in range(labels.size):
        cluster = labels[i] if labels[i] >= 0 else clusters
        counts[cluster] += 1.0
        sums[cluster] += values[i]
    if counts[clusters] == 0.0:
        return
    block, distances = sums[clusters] / counts[clusters], np.zeros(clusters)
    for cluster in range(clusters):
        sums[cluster] /= counts[cluster]
        distances[cluster] = squared_distance(sums, cluster, block)
    nearest = np.argmin(distances)
    for i in range(labels.size):
        if labels[i] < 0:
            labels[i] = nearest
