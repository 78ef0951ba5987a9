"""MDAV: a cluster round the record farthest from the centroid of what is left, and one on the opposite side."""

from __future__ import annotations

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static import mdav_kernel as kernel

__all__ = ["SMALL", "mdav"]

SMALL = 400
"""Records below which reading all of them is as fast as asking a tree."""
LEAF = 64


def mdav(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into clusters of k to 2k - 1 by maximum distance to the average vector.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Records of a cluster, 2 <= k <= n.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered in order of creation.

    Notes
    -----
    Guarantees: all clusters have k records but the last, which has k to 2k - 1. Ties go to the lowest record; centroids
    are exact to the last bit; hence one result, whichever way it is computed.
    Ends as the generic form of [2]_: while 3k are left, two clusters; while 2k are left, one; the rest is one. The
    survey's own ending (loop while 2k are left, fewer than k join a cluster) is another description of the same
    partition where its leftovers join the last cluster, which they mostly do.
    Cost: O(n² d / k) time up to 400 records. Above, through a k-d tree that records are taken out of and a list
    sorted by the distance to a former centroid: nearly O(n log n) for few attributes, never more than O(n² d / k) for
    many. O(n d) memory.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section IV.
    .. [2] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through
       Microaggregation", Data Mining and Knowledge Discovery 11(2), 2005, MDAV-generic. doi:10.1007/s10618-005-0007-5
    """
    return kernel.by_scan(values, k) if len(values) <= SMALL else kernel.by_tree(values, k, LEAF)
