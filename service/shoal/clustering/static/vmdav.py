"""V-MDAV: clusters of variable size, for data that lie in clumps."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static import vmdav_kernel as kernel
from shoal.clustering.static.leftovers import join_as_block

__all__ = ["vmdav"]

LEAF = 64


def vmdav(values: Float64Matrix, k: int, *, gamma: float = 0.2) -> Int32Vector:
    """Partition records into clusters of k and more by variable-size MDAV.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    gamma : float
        How readily a cluster grows: by the record nearest to it, while its squared distance is below gamma times that
        to the next record outside. 0 never; about 0.2 for scattered data, about 1.1 for clumps.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered in order of creation.

    Notes
    -----
    Clusters grow up to 2k - 1. Fewer than k records that stay over join "their closest group" [1]_, read as: all of
    them the one with the centroid nearest to theirs, which may then have up to 3k - 2. The paper leaves open whether
    the distances it compares are squared; they are, as this alone gives its Table I. The centroid is that of all
    records, once. Ties go to the lowest record.
    Cost: nearly O(n k log n) for few attributes, O(n² d) for many.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section V.
    .. [2] A. Solanas and A. Martínez-Ballesté, "V-MDAV: A Multivariate Microaggregation with Variable Group Size",
       COMPSTAT 2006.
    """
    order = np.argsort(-kernel.squares_from_centroid(values), kind="stable")
    labels = kernel.by_tree(values, k, gamma, LEAF, order)
    join_as_block(values, labels, int(labels.max()) + 1)
    return labels
