"""Partitions built for t-closeness: by steering (Algorithm 1), and strictly, by chains through buckets."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.kernels.jit import njit
from shoal.kernels.kd_tree import LOWEST, build, empty_neighbour_search, nearest, remove
from shoal.kernels.pieces import pieces, search_cost
from shoal.protection.diversity import ORDERED, T_TOLERANCE, build_diversity_rule
from shoal.tables.constraints import ConfidentialAttribute, cluster_distances, emd_of_clusters
from shoal.tables.mdav import mdav
from shoal.tables.measures import centroids_of

LEAF_SIZE = 32
MAX_ATTEMPTS = 32
"""Numbers of buckets that `strict` tries, one after the other, before it returns a partition that is not t-close."""


STEP = 8  # without an order, the number of buckets is raised by one STEP-th: the first number is that of ordered values


class TClosePartition(NamedTuple):
    """A partition of n records, and the buckets that it was built from."""

    labels: Int32Vector  # (n,): cluster of each record
    buckets: Int64Vector  # (n,): bucket of each record; swaps within a bucket keep a record of each in a cluster


def fewest_buckets(n: int, k: int, t: float) -> int:
    """Return b = max(k, ceil(n / (2 (n - 1) t + 1))): clusters of one record from each of b buckets can be t-close."""
    return max(k, math.ceil(n / (2 * (n - 1) * t + 1) - 1e-9))


def steered(
    values: Float64Matrix,
    k: int,
    confidential: ConfidentialAttribute,
    t: float | None,
    *,
    weight: float = math.inf,
    target_t: float = 1.0,
) -> TClosePartition:
    """Partition by MDAV on the values and an artificial attribute that separates the records of one bucket.

    ``weight`` (ω_c) is that of the artificial attribute, in ranges of the widest attribute. By default it is a little
    more than (|B1| - 1) sqrt(d): every cluster then takes one record of each bucket, if the number of buckets divides
    n. The result need not be t-close: a smaller weight loses less and leaves clusters farther from the table. Where
    nothing must be t-close (``t`` is None), ``target_t`` takes its place: it sets the number of buckets.

    The records are sorted by their confidential value, ties by their order, and cut into b buckets, larger ones first.
    Each record passes its value of the artificial attribute on to the nearest record of the next bucket that has none.
    Buckets are visited in the order of the table, which the paper leaves open. The printed bound of Proposition 1 lacks
    the factor sqrt(d), and where b does not divide n the proposition is false.
    Cost: that of `mdav`, and O(n log n) for few attributes.

    References
    ----------
    .. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of
       Data Sets and Data Streams", ICDM Workshops 2017, Algorithm 1. doi:10.1109/ICDMW.2017.141
    """
    b = fewest_buckets(len(values), k, target_t if t is None else t)
    order = np.argsort(confidential.bins, kind="stable")
    parts = np.array_split(order, b)
    listed, bounds, buckets = _listed(parts, len(values))
    chains = _bucket_chains(values, listed, bounds)
    longest = len(parts[0])
    if math.isinf(weight):
        weight = (longest - 1) * math.sqrt(values.shape[1]) * (1 + 1e-9) + 1e-9
    artificial = chains / max(longest - 1, 1) * (weight * float(np.ptp(values, axis=0).max()))
    labels = mdav(np.ascontiguousarray(np.column_stack([values, artificial])), b)
    return TClosePartition(labels, buckets)


def strict(values: Float64Matrix, k: int, confidential: ConfidentialAttribute, t: float) -> TClosePartition:
    """Partition into clusters of one record of each bucket, with as many buckets as t-closeness needs.

    Guarantee: checked to be t-close, each record taken for a person. Only if 33 numbers of buckets were tried in vain,
    which needs values that many records share, or a reference that differs from the table, it is the last one tried,
    and its clusters must be merged.

    With b buckets of M = floor(n / b) records, the clusters are chains through all buckets. The n - Mb records in the
    middle of the order are left over; each joins the nearest cluster that stays t-close. If a cluster is too far from
    the reference, b is raised: by one for ordered values, else by an eighth. For categories, the order is that of the
    bins, so that records of one node of a taxonomy are in neighbouring buckets.
    Cost: O(n log n) for few attributes, O(n² / b) for many.

    References
    ----------
    .. [1] As of `steered`; the strict bound is Proposition 2 of J. Soria-Comas et al., "t-Closeness through
       Microaggregation", IEEE TKDE 27(11), 2015. doi:10.1109/TKDE.2015.2435777
    """
    n = len(values)
    b = fewest_buckets(n, k, t)
    is_ordered = confidential.compared_with().distance == ORDERED
    found = _partition_by_chains(values, b, confidential, t)
    for _ in range(MAX_ATTEMPTS):
        if b == n or emd_of_clusters(confidential, found.labels).max() <= t + T_TOLERANCE:
            break
        b = min(b + (1 if is_ordered else max(b // STEP, 1)), n)
        found = _partition_by_chains(values, b, confidential, t)
    return found


def _partition_by_chains(
    values: Float64Matrix, b: int, confidential: ConfidentialAttribute, t: float
) -> TClosePartition:
    """Return the chains through ``b`` buckets as clusters; records left over are in one more bucket."""
    n = len(values)
    count = n % b
    order = np.argsort(confidential.bins, kind="stable")
    middle = (n - count) // 2
    leftovers = np.sort(order[middle : middle + count])
    parts = np.split(np.delete(order, np.arange(middle, middle + count)), b)
    listed, bounds, buckets = _listed(parts, n)
    labels = _bucket_chains(values, listed, bounds).astype(np.int32)
    if count:
        labels[leftovers] = -1
        _assign_leftovers(values, labels, leftovers, confidential, t)
        buckets[leftovers] = b
    return TClosePartition(labels, buckets)


def _assign_leftovers(
    values: Float64Matrix, labels: Int32Vector, leftovers: Int64Vector, confidential: ConfidentialAttribute, t: float
) -> None:
    """Assign each record of label -1 to the nearest cluster that stays t-close with it, else to the nearest."""
    rule, inside = build_diversity_rule([confidential.compared_with()], t=t), labels >= 0
    counts = np.bincount(labels[inside])
    centroids = centroids_of(values[inside], labels[inside])
    order = np.flatnonzero(inside)
    own = np.split(order[np.argsort(labels[inside], kind="stable")], np.cumsum(counts)[:-1])
    for i in leftovers.tolist():
        by_distance = np.argsort(((centroids - values[i]) ** 2).sum(axis=1), kind="stable")
        for cluster in by_distance.tolist():
            bins = np.sort(confidential.bins[np.append(own[cluster], i)])
            size = len(bins)
            found = cluster_distances(rule, bins, np.ones(size), np.array([0, size]), np.array([size]))
            if found[0] <= t + T_TOLERANCE:
                break
        else:
            cluster = by_distance[0]
        labels[i] = cluster
        own[cluster] = np.append(own[cluster], i)
        counts[cluster] += 1
        centroids[cluster] += (values[i] - centroids[cluster]) / counts[cluster]


def _listed(parts: list[Int64Vector], n: int) -> tuple[Int64Vector, Int64Vector, Int64Vector]:
    """Return buckets one after the other, each in the order of the table; their bounds; the bucket of each record."""
    buckets = np.zeros(n, np.int64)
    for number, part in enumerate(parts):
        buckets[part] = number
    return np.concatenate([np.sort(part) for part in parts]), np.cumsum([0, *map(len, parts)]), buckets


def _bucket_chains(values: Float64Matrix, order: Int64Vector, bucket_bounds: Int64Vector) -> Int64Vector:
    """Return the chain (n,) of each record, from 0; 0 for a record in no bucket.

    The records of the first bucket start the chains. Each record of a later one, none larger, continues the chain of
    the nearest record of the bucket before that no other record has continued; ties go to the first.
    """
    chain, largest = np.zeros(len(values), np.int64), int(np.diff(bucket_bounds).max())
    chain[order[: bucket_bounds[1]]] = np.arange(bucket_bounds[1])
    for first, end in pieces("chains", len(bucket_bounds) - 2, largest * search_cost(largest, values.shape[1])):
        _continue_chains(values, order, bucket_bounds, first + 1, end + 1, chain)
    return chain


@njit
def _continue_chains(
    values: Float64Matrix, order: Int64Vector, bucket_bounds: Int64Vector, first: int, end: int, chain: Int64Vector
) -> None:
    """Continue the chains (n,) through some buckets."""
    before = order[bucket_bounds[first - 1] : bucket_bounds[first]]
    for bucket in range(first, end):
        current = order[bucket_bounds[bucket] : bucket_bounds[bucket + 1]]
        tree, search = build(values[before], LEAF_SIZE), empty_neighbour_search(1, LEAF_SIZE)
        leaf = 0
        for i in current:
            nearest(tree, values[i], leaf, search, LOWEST)
            x = search.records[0]
            leaf = tree.leaves[x]
            remove(tree, x)
            chain[i] = chain[before[x]]
        before = current
