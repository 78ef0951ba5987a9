"""V-MDAV: clusters of variable size, for data that lie in groups."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.kernels.distances import squared_distance
from shoal.kernels.jit import njit, njit_inner
from shoal.kernels.kd_tree import NeighbourSearch, Tree, build, empty_neighbour_search, nearest, remove
from shoal.kernels.sums import centroid, sum_all
from shoal.tables.centroids import join_as_block

__all__ = ["vmdav"]

LEAF_SIZE = 64


def vmdav(values: Float64Matrix, k: int, *, gamma: float = 0.2) -> Int32Vector:
    """Partition records into clusters of k to 3k - 2 by variable-size MDAV.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    gamma : float
        How readily a cluster grows. The nearest record outside joins it while the squared distance to the cluster is
        below gamma times the squared distance to the next record outside. 0: never; about 0.2 for scattered data, about
        1.1 for data in groups.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered in order of creation.

    Notes
    -----
    Clusters grow to 2k - 1 records at most. The centroid whose farthest record starts the next cluster is that of all
    records, computed once. Ties go to the lowest record.
    Two points are open in the paper. Fewer than k records that are left over join "their closest group" [1]_: here they
    join, as a block, the cluster with the centroid nearest to theirs, which may then have up to 3k - 2. The distances
    that gamma compares are squared here: only this gives Table I of [1]_.
    Cost: nearly O(n k log n) for few attributes, O(n² d) for many.

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, "Privacy in Statistical Databases: k-Anonymity
       Through Microaggregation", IEEE GrC 2006, section V.
    .. [2] A. Solanas and A. Martínez-Ballesté, "V-MDAV: A Multivariate Microaggregation with Variable Group Size",
       COMPSTAT 2006.
    """
    order = np.argsort(-_squared_distances_to_centroid(values), kind="stable")
    labels = _form_clusters(values, k, gamma, LEAF_SIZE, order)
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
def _form_clusters(values: Float64Matrix, k: int, gamma: float, leaf_size: int, order: Int64Vector) -> Int32Vector:
    """Return the labels of V-MDAV; of fewer than k records that are left over, the label is -1.

    ``order`` (n,) lists the records from the farthest to the nearest to the centroid.
    """
    n = values.shape[0]
    labels = np.full(n, -1, np.int32)
    tree, found = build(values, leaf_size), empty_neighbour_search(k - 1, leaf_size)
    one, two = empty_neighbour_search(1, leaf_size), empty_neighbour_search(2, leaf_size)
    members = np.zeros(2 * k - 1, np.int64)
    left, label = n, 0
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
    return labels


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
