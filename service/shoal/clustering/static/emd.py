"""Earth mover's distance (EMD) between the confidential values of a cluster and those of the whole table.

References
----------
.. [1] N. Li, T. Li and S. Venkatasubramanian, "t-Closeness: Privacy Beyond k-Anonymity and l-Diversity", ICDE 2007.
   doi:10.1109/ICDE.2007.367856
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_inline

__all__ = [
    "ConfidentialAttribute",
    "ReferenceDistribution",
    "cluster_distances",
    "distance_of_sorted",
    "emd_of_clusters",
    "reference_distribution",
]


class ConfidentialAttribute(NamedTuple):
    """One confidential attribute of n records.

    Attributes
    ----------
    bins : ndarray of int64, shape (n,)
        Code of each value, 0 to m - 1, in ascending order of the values; equal values have equal codes.
    ordered : bool
        True: the values are ordered, and neighbouring values are 1 / (m - 1) apart. False: the values are categories,
        and any two of them are 1 apart.
    """

    bins: Int64Vector
    ordered: bool


class ReferenceDistribution(NamedTuple):
    """The distribution of a confidential attributes in the whole table, as arrays for the kernels.

    Attribute ``i`` has the bins ``bin_bounds[i]`` to ``bin_bounds[i + 1]`` of ``shares`` and ``cumulative``. Its part
    of ``cumulative_sums`` is one longer, so it begins at ``bin_bounds[i] + i``.
    """

    bins: Int64Matrix  # (a, n): code of each record
    bin_bounds: Int64Vector  # (a + 1,)
    shares: Float64Vector  # share of the table in each bin
    cumulative: Float64Vector  # share of the table up to and including each bin
    cumulative_sums: Float64Vector  # sum of `cumulative` over all lower bins
    ordered: BoolVector  # (a,)


def reference_distribution(attributes: tuple[ConfidentialAttribute, ...]) -> ReferenceDistribution:
    """Return the distribution of some attributes in the table. O(a n)."""
    counts = [np.bincount(attribute.bins) for attribute in attributes]
    shares = [count / count.sum() for count in counts]
    cumulative = [np.cumsum(count) / count.sum() for count in counts]
    return ReferenceDistribution(
        bins=np.stack([attribute.bins for attribute in attributes]),
        bin_bounds=np.cumsum([0, *map(len, counts)]),
        shares=np.concatenate(shares),
        cumulative=np.concatenate(cumulative),
        cumulative_sums=np.concatenate([np.append(0.0, np.cumsum(column)) for column in cumulative]),
        ordered=np.array([attribute.ordered for attribute in attributes]),
    )


def emd_of_clusters(attribute: ConfidentialAttribute, labels: Int32Vector) -> Float64Vector:
    """Return the earth mover's distance of each cluster from the table, for one attribute.

    Parameters
    ----------
    attribute : ConfidentialAttribute
        Of n records.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0; no cluster is empty.

    Returns
    -------
    ndarray of float64, shape (clusters,)
        Distances from 0 to 1.

    Notes
    -----
    Ordered values: the mean, over the distinct values but the last, of the absolute difference of the two cumulative
    shares (formula (1) of [1]_). Categories: half the sum of the absolute differences of the shares.
    Cost: O(n log n).

    References
    ----------
    .. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of
       Data Sets and Data Streams", ICDM Workshops 2017. doi:10.1109/ICDMW.2017.141
    """
    reference = reference_distribution((attribute,))
    order = np.lexsort((attribute.bins, labels))
    cluster_bounds = np.append(0, np.cumsum(np.bincount(labels)))
    return cluster_distances(reference, 0, order, cluster_bounds)


@njit
def cluster_distances(
    reference: ReferenceDistribution, attribute: int, order: Int64Vector, cluster_bounds: Int64Vector
) -> Float64Vector:
    """Return the distance of each cluster from the table, shape (clusters,).

    ``order`` (n,) lists the records by cluster and, within a cluster, by bin. Cluster g is
    ``order[cluster_bounds[g]:cluster_bounds[g + 1]]``. O(size log bins) per cluster.
    """
    found = np.empty(cluster_bounds.size - 1)
    bins = reference.bins[attribute][order]
    for cluster in range(found.size):
        found[cluster] = distance_of_sorted(
            reference, attribute, bins[cluster_bounds[cluster] : cluster_bounds[cluster + 1]]
        )
    return found


@njit_inline
def distance_of_sorted(reference: ReferenceDistribution, attribute: int, bins: Int64Vector) -> float:
    """Return the distance of one cluster from the table; ``bins`` are those of its records, ascending."""
    first, end = reference.bin_bounds[attribute], reference.bin_bounds[attribute + 1]
    if reference.ordered[attribute]:
        cumulative = reference.cumulative[first:end]
        sums = reference.cumulative_sums[first + attribute : end + attribute + 1]
        return float(_ordered_distance(bins, cumulative, sums))
    return float(_categorical_distance(bins, reference.shares[first:end]))


@njit_inline
def _ordered_distance(bins: Int64Vector, cumulative: Float64Vector, sums: Float64Vector) -> float:
    """Return the mean of |cumulative share in the cluster - cumulative share in the table| over the bins.

    The cluster's cumulative share is a step function with one step per record; the table's never falls. Each step
    crosses it at most once, and the crossing is found by bisection.
    """
    m, count = cumulative.size, bins.size
    if m == 1:
        return 0.0
    start, total = 0, 0.0
    for step in range(count + 1):
        end = bins[step] if step < count else m
        if end > start:
            height = step / count
            crossing = _first_above(cumulative, height, start, end)
            total += height * (crossing - start) - (sums[crossing] - sums[start])
            total += (sums[end] - sums[crossing]) - height * (end - crossing)
            start = end
    return max(total, 0.0) / (m - 1)


@njit_inline
def _first_above(cumulative: Float64Vector, height: float, low: int, high: int) -> int:
    """Return the first index in [low, high) with a value above ``height``; ``high`` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if cumulative[middle] > height:
            high = middle
        else:
            low = middle + 1
    return low


@njit_inline
def _categorical_distance(bins: Int64Vector, shares: Float64Vector) -> float:
    """Return half the sum of |share in the cluster - share in the table|, as 1 minus the shares both have."""
    common, x, count = 0.0, 0, bins.size
    while x < count:
        y = x
        while y < count and bins[y] == bins[x]:
            y += 1
        common += min((y - x) / count, shares[bins[x]])
        x = y
    return max(1.0 - common, 0.0)
