"""MD: clusters round the two records that are farthest apart."""

from __future__ import annotations

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static import md_kernel as kernel
from shoal.clustering.static.leftovers import join_as_block

__all__ = ["md"]

LEAF = 64


def md(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into clusters of k to 2k - 1 by maximum distance.

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
    Two clusters are formed while 2k records are left; k to 2k - 1 that stay over are one cluster; fewer join, as a
    block, the cluster with the centroid nearest to theirs. Ties go to the first pair, and to the lowest record.
    The survey's O(n³ / k) is not needed: each record remembers its farthest partner, and is asked again (through a
    k-d tree) only where that partner is gone and the bound it leaves is the largest. O(n² / k) at least.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section III.
    .. [2] J. Domingo-Ferrer and J. M. Mateo-Sanz, "Practical Data-Oriented Microaggregation for Statistical Disclosure
       Control", IEEE TKDE 14(1), 2002. doi:10.1109/69.979982
    """
    labels = kernel.by_pairs(values, k, LEAF)
    if len(values) >= 2 * k:
        join_as_block(values, labels, int(labels.max()) + 1)
    return labels
