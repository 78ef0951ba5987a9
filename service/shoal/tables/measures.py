"""Measures of a partition: centroids, information loss, distance-based record linkage and confidential values."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.kernels.jit import njit, njit_inner
from shoal.kernels.kd_tree import ANY, Tree, build, empty_neighbour_search, nearest
from shoal.kernels.pieces import pieces, search_cost
from shoal.kernels.sums import squared_distance


def centroids_of(values: Float64Matrix, labels: Int32Vector) -> Float64Matrix:
    """Return the centroid of each cluster, shape (clusters, d). No cluster may be empty. O(n d)."""
    counts = np.bincount(labels)
    return np.stack([np.bincount(labels, column) / counts for column in values.T], axis=1)


def loss_of(values: Float64Matrix, labels: Int32Vector) -> float:
    """Return the loss of a partition: the sum of squared distances of the records to the centroids of clusters."""
    counts = np.bincount(labels)
    residues = ((column - (np.bincount(labels, column) / counts)[labels]) for column in values.T)
    return float(sum(np.square(residue).sum() for residue in residues))  # a dot product would start BLAS threads


LEAF_SIZE = 64
NEAREST = 8  # nearest records that are searched first; all records are scanned only if they are all equally far


def expected_links(
    rows: Float64Matrix, published: Float64Matrix, members: Int64Vector, cluster_bounds: Int64Vector
) -> Float64Vector:
    """Return the expected number of correctly linked members of each cluster, shape (clusters,).

    ``members`` (n,) lists the records by cluster. A published record is linked to the nearest original one; of m
    equally near ones, to each with probability 1 / m. O(clusters log n) for few attributes, else O(clusters n).
    """
    tree, links = build(rows, LEAF_SIZE), np.zeros(len(published))
    for first, end in pieces("linkage", len(published), search_cost(*rows.shape)):
        _write_links(tree, rows, published, members, cluster_bounds, first, end, links)
    return links


@njit
def _write_links(
    tree: Tree,
    rows: Float64Matrix,
    published: Float64Matrix,
    members: Int64Vector,
    cluster_bounds: Int64Vector,
    first: int,
    end: int,
    links: Float64Vector,
) -> None:
    search = empty_neighbour_search(min(NEAREST, rows.shape[0]), LEAF_SIZE)
    for cluster in range(first, end):
        own = members[cluster_bounds[cluster] : cluster_bounds[cluster + 1]]
        point = published[cluster]
        nearest(tree, point, tree.leaves[own[0]], search, ANY)
        least, last = search.distances[0], search.distances.size - 1
        ties = 0
        if search.distances[last] > least:
            while search.distances[ties] == least:
                ties += 1
        members_at = _count_at(rows, own, point, least)
        if members_at > 0:
            links[cluster] = members_at / (ties if ties > 0 else _count_at(rows, members, point, least))


@njit_inner
def _count_at(rows: Float64Matrix, records: Int64Vector, point: Float64Vector, distance: float) -> int:
    """Return how many of some records are at a squared distance from a point."""
    count = 0
    for i in records:
        count += squared_distance(rows, i, point) == distance
    return count


CATEGORY = 0.02  # width of a category of a confidential number, in standard deviations


def confidential_loss(labels: Int32Vector, numbers: Float64Matrix) -> float | None:
    """Return ``d_y``: sum of squares within clusters over total sum of squares of z-scores; None if nothing varies."""
    within = total = 0.0
    for column in numbers.T:
        known = ~np.isnan(column)
        own, values = labels[known], column[known]
        counts = np.bincount(own)
        residue = values - (np.bincount(own, values) / np.maximum(counts, 1))[own]
        within += float(residue @ residue)
        centred = values - values.mean() if len(values) else values
        total += float(centred @ centred)
    return within / total if total else None


def distinct_categories(labels: Int32Vector, numbers: Float64Matrix) -> float | None:
    """Return ``l_avg``: the smallest number of categories of any numeric confidential attribute, mean over clusters.

    A category is a z-score rounded to the nearest 0.02, as in [1]_. (The text of [1]_ has 0.2, but its counts of
    categories agree with 0.02.) Missing values form a category. Arguments as of `confidential_loss`. O(m n log n).

    References
    ----------
    .. [1] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
       Preservation of Statistical Dependence", Information Sciences 342, 2016.
    """
    if not numbers.shape[1]:
        return None
    fewest: Int64Vector | None = None
    for column in numbers.T:
        categories = np.where(np.isnan(column), -np.inf, np.rint(column / CATEGORY))
        order = np.lexsort((categories, labels))
        cluster, category = labels[order], categories[order]
        is_first = np.append(True, (cluster[1:] != cluster[:-1]) | (category[1:] != category[:-1]))
        different = np.bincount(cluster[is_first])
        fewest = different if fewest is None else np.minimum(fewest, different)
    return None if fewest is None else float(fewest.mean())


def linkage_share(values: Float64Matrix, published: Float64Matrix, labels: Int32Vector, bounds: Int64Vector) -> float:
    """Return ``dld``, distance-based record linkage: the share of records that are linked to their own published row.

    Values (n, d) and published ones (G, d) are converted to z-scores, each with their own mean and deviation. A
    published record is linked to its nearest originals (`expected_links`).
    """
    sizes = np.diff(bounds)
    mean = (published * sizes[:, None]).sum(axis=0) / sizes.sum()
    deviation = np.sqrt((((published - mean) ** 2) * sizes[:, None]).sum(axis=0) / sizes.sum())
    queries = (published - mean) / _divisor(published, deviation)
    rows = (values - values.mean(axis=0)) / _divisor(values, values.std(axis=0))
    members = np.argsort(labels, kind="stable")
    links = expected_links(np.ascontiguousarray(rows), np.ascontiguousarray(queries), members, bounds)
    return float(links.sum() / len(values))


def _divisor(columns: Float64Matrix, deviation: Float64Vector) -> Float64Vector:
    """Return the deviations (d,), and 1 for constant columns."""
    return np.where((np.ptp(columns, axis=0) > 0) & (deviation > 0), deviation, 1.0)
