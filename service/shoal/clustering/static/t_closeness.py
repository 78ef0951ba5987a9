"""Partitions that are t-close: by steering (Algorithm 1), and strictly, by chains through buckets."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.static import emd
from shoal.clustering.static.bucket_chains import build_bucket_chains
from shoal.clustering.static.centroids import centroids_of
from shoal.clustering.static.confidential import Confidential, distances_of, spectrum_of
from shoal.clustering.static.constraint_arrays import SLACK
from shoal.clustering.static.mdav import mdav

__all__ = ["TClosePartition", "fewest_buckets", "steered", "strict"]

TRIES = 32
"""Numbers of buckets that are tried, one after the other, before what is there is handed back as it is."""


class TClosePartition(NamedTuple):
    """Labels (n,), and the bucket of each record (n,): swaps within one keep a record of each in a cluster."""

    labels: Int32Vector
    buckets: Int64Vector


def fewest_buckets(n: int, k: int, t: float) -> int:
    """Return b = max(k, ceil(n / (2 (n - 1) t + 1))): clusters of one record from each bucket can then be t-close."""
    return max(k, math.ceil(n / (2 * (n - 1) * t + 1) - 1e-9))


def steered(
    values: Float64Matrix, k: int, confidential: Confidential, t: float, *, weight: float = math.inf
) -> TClosePartition:
    """Partition by MDAV, steered by an artificial attribute that tells records of one bucket apart.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster.
    confidential : Confidential
        Whose distribution shall be close to that of the table.
    t : float
        How close: largest earth mover's distance.
    weight : float
        Of the artificial attribute (ω_c), in ranges of the widest attribute. By default so large that every cluster
        takes one record of each bucket, if their number divides n: a little more than (|B1| - 1) sqrt(d).

    Returns
    -------
    Close
        Not t-close by itself: the smaller the weight, the less is lost and the farther clusters are from the table.

    Notes
    -----
    Records are cut into b buckets by their confidential value (ties by their order), larger ones first; the value of
    the artificial attribute is handed on from each record to the nearest of the next bucket, visited in order of the
    table. The paper leaves that order open, and the printed bound of Proposition 1 forgets sqrt(d); where b does not
    divide n the proposition is false.

    References
    ----------
    .. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of
       Data Sets and Data Streams", ICDM Workshops 2017, Algorithm 1. doi:10.1109/ICDMW.2017.141
    """
    b = fewest_buckets(len(values), k, t)
    order = np.argsort(confidential.bins, kind="stable")
    parts = np.array_split(order, b)
    chain = build_bucket_chains(values, *_laid(parts))
    longest = len(parts[0])
    if math.isinf(weight):
        weight = (longest - 1) * math.sqrt(values.shape[1]) * (1 + 1e-9) + 1e-9
    added = chain / max(longest - 1, 1) * (weight * float(np.ptp(values, axis=0).max()))
    return TClosePartition(
        mdav(np.ascontiguousarray(np.column_stack([values, added])), b), _bucket_of(parts, len(values))
    )


def strict(values: Float64Matrix, k: int, confidential: Confidential, t: float) -> TClosePartition:
    """Partition so that every cluster has one record of each bucket, and is t-close.

    Parameters
    ----------
    values, k, confidential, t
        As of `steered`; 2 <= k <= n.

    Returns
    -------
    Close
        Verified to be t-close, unless 32 numbers of buckets were tried in vain: values that many records share can ask
        for larger clusters than buckets are good for. Then it is the last one, and clusters must be joined.

    Notes
    -----
    With b buckets of M = floor(n / b) records, chains through all buckets are the clusters; the n - Mb records left
    over are those in the middle of the order, and join the nearest cluster that stays close. If a cluster is too far
    from the table, b is raised by one.
    Cost: O(n log n) for few attributes, O(n² / b) for many.

    References
    ----------
    .. [1] As of `steered`; what is kept strictly is Proposition 2 of J. Soria-Comas et al., "t-Closeness through
       Microaggregation", IEEE TKDE 27(11), 2015. doi:10.1109/TKDE.2015.2435777
    """
    n = len(values)
    first = fewest_buckets(n, k, t)
    close = _chained(values, first, confidential, t)
    for b in range(first + 1, min(first + TRIES, n) + 1):
        if distances_of((confidential,), 0, close.labels).max() <= t + SLACK:
            break
        close = _chained(values, b, confidential, t)
    return close


def _chained(values: Float64Matrix, b: int, confidential: Confidential, t: float) -> TClosePartition:
    n = len(values)
    more = n % b
    order = np.argsort(confidential.bins, kind="stable")
    middle = (n - more) // 2
    extra = np.sort(order[middle : middle + more])
    parts = np.split(np.delete(order, np.arange(middle, middle + more)), b)
    labels = build_bucket_chains(values, *_laid(parts)).astype(np.int32)
    buckets = _bucket_of(parts, n)
    if more:
        labels[extra] = -1
        _take_in(values, labels, extra, confidential, t)
        buckets[extra] = b
    return TClosePartition(labels, buckets)


def _take_in(
    values: Float64Matrix, labels: Int32Vector, extra: Int64Vector, confidential: Confidential, t: float
) -> None:
    """Give each record of label -1 to the cluster with the nearest centroid that stays t-close, else to the nearest."""
    spectrum, inside = spectrum_of((confidential,)), labels >= 0
    counts = np.bincount(labels[inside])
    centres = centroids_of(values[inside], labels[inside])
    order = np.flatnonzero(inside)
    own = np.split(order[np.argsort(labels[inside], kind="stable")], np.cumsum(counts)[:-1])
    for i in extra.tolist():
        nearest = np.argsort(((centres - values[i]) ** 2).sum(axis=1), kind="stable")
        for cluster in nearest.tolist():
            members = np.append(own[cluster], i)
            members = members[np.argsort(confidential.bins[members], kind="stable")]
            if emd.distances(spectrum, 0, members, np.array([0, len(members)]))[0] <= t + SLACK:
                break
        else:
            cluster = nearest[0]
        labels[i] = cluster
        own[cluster] = np.append(own[cluster], i)
        counts[cluster] += 1
        centres[cluster] += (values[i] - centres[cluster]) / counts[cluster]


def _laid(parts: list[Int64Vector]) -> tuple[Int64Vector, Int64Vector]:
    """Return buckets one after the other, each in order of the table, and where they begin."""
    return np.concatenate([np.sort(part) for part in parts]), np.cumsum([0, *map(len, parts)])


def _bucket_of(parts: list[Int64Vector], n: int) -> Int64Vector:
    buckets = np.zeros(n, np.int64)
    for number, part in enumerate(parts):
        buckets[part] = number
    return buckets
