"""Measures of the release of a table, as in its summary: information loss, t-closeness and disclosure risk.

Distance-based record linkage: how many members of each cluster are re-identified by what was published for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.kernels.distances import squared_distance
from shoal.kernels.jit import njit, njit_inner
from shoal.kernels.kd_tree import ANY, build, empty_neighbour_search, nearest
from shoal.scales.loss import AttributeDistances, LossTotals, mean_loss, present_means
from shoal.tables.constraints import ConfidentialAttribute, count_values, emd_of_clusters
from shoal.tables.table_partition import AlgorithmSpec, TableData, TablePartition

__all__ = [
    "confidential_loss",
    "distinct_categories",
    "expected_links",
    "linkage_share",
    "mdav_baseline",
    "measure_closeness",
    "measure_diversity",
    "summarize",
]

LEAF_SIZE = 64
NEAREST = 8
"""Nearest records that are searched first; all records are scanned only if they are all equally far."""


@njit
def expected_links(
    rows: Float64Matrix, published: Float64Matrix, members: Int64Vector, cluster_bounds: Int64Vector
) -> Float64Vector:
    """Return the expected number of correctly linked members of each cluster, shape (clusters,).

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        The original records.
    published : ndarray of float64, shape (clusters, d)
        What was published for all members of each cluster.
    members : ndarray of int64, shape (n,)
        Records by cluster: those of cluster g are ``members[cluster_bounds[g]:cluster_bounds[g + 1]]``.
    cluster_bounds : ndarray of int64, shape (clusters + 1,)
        Where the members of each cluster begin.

    Notes
    -----
    A published record is linked to the nearest original record; of m equally near ones, to each with probability 1 / m.
    Cost: O(clusters log n) for few attributes, O(clusters n) for many.
    """
    tree, search = build(rows, LEAF_SIZE), empty_neighbour_search(min(NEAREST, rows.shape[0]), LEAF_SIZE)
    links = np.zeros(published.shape[0])
    for cluster in range(published.shape[0]):
        own = members[cluster_bounds[cluster] : cluster_bounds[cluster + 1]]
        point = published[cluster]
        nearest(tree, point, tree.leaves[own[0]], search, ANY)
        least, last = search.distances[0], search.distances.size - 1
        ties = 0
        if search.distances[last] > least:
            while search.distances[ties] == least:
                ties += 1
        members_at = _count_members_at(rows, own, point, least)
        if members_at > 0:
            links[cluster] = members_at / (ties if ties > 0 else _count_at(rows, point, least))
    return links


@njit_inner
def _count_members_at(rows: Float64Matrix, own: Int64Vector, point: Float64Vector, distance: float) -> int:
    """Return how many of some records are at a squared distance from a point."""
    count = 0
    for i in own:
        count += squared_distance(rows, i, point) == distance
    return count


@njit_inner
def _count_at(rows: Float64Matrix, point: Float64Vector, distance: float) -> int:
    """Return how many of all records are at a squared distance from a point."""
    count = 0
    for i in range(rows.shape[0]):
        count += squared_distance(rows, i, point) == distance
    return count


NO_CLOSENESS: dict[str, Any] = {"emd": {"mean": None, "max": None}, "emd_of": {}}
"""Measures of t-closeness where there are no clusters of whole records."""
CATEGORY = 0.02
"""Width of a category of a confidential number, in standard deviations."""


def summarize(data: TableData, partitions: list[TablePartition]) -> dict[str, Any]:
    """Return the measures of a release; with several partitions those of clusters of whole records are null."""
    sizes = np.concatenate([np.diff(partition.bounds) for partition in partitions])
    counts = np.concatenate([partition.counts for partition in partitions], axis=1)
    published = np.column_stack([partition.published[partition.labels] for partition in partitions])
    first, is_one = partitions[0], len(partitions) == 1
    closeness = NO_CLOSENESS
    if is_one:
        closeness = measure_closeness(first.labels, data.confidential, data.confidential_names)
    return {
        "clusters": len(sizes),
        "cluster_size": {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())},
        "subjects": {"min": int(counts[0].min())},
        "share": {"max": float((counts[1] / sizes).max())},
        **_losses(data, published),
        "d_y": confidential_loss(first.labels, data.scores) if is_one else None,
        **closeness,
        **(measure_diversity(data.protected, first.labels) if is_one and data.protected else {}),
        "dld": _linkage(data, published, first if is_one else None),
        "l_avg": distinct_categories(first.labels, data.scores) if is_one else None,
        "bound": first.bound if is_one else None,
        "gap": first.gap if is_one else None,
    }


def mdav_baseline(data: TableData, spec: AlgorithmSpec) -> dict[str, Any] | None:
    """Return the loss of MDAV on the same records, as a baseline for ``approximate``; None for other algorithms."""
    if spec.algorithm != "approximate" or spec.blocks:
        return None
    partition = data.partition(replace(spec, algorithm="mdav", parameters={}))[0]
    losses = _losses(data, partition.published[partition.labels])
    return {"sse": losses["sse"], "information_loss": losses["information_loss"]}


def _losses(data: TableData, published: Float64Matrix) -> dict[str, Any]:
    """Return the measures of loss; ``loss`` is that of each attribute in its own measure.

    ``sse``, ``sst``, ``information_loss`` and ``d_x`` = sse / sst are those of numeric and time attributes as z-scores;
    None if there are none. ``mse`` and ``mae`` are the mean squared and mean Euclidean distance of all attributes.
    """
    attributes = data.policy.quasi_identifiers
    values, span = data.values[:, : len(attributes)], _span(data)
    distances = AttributeDistances(attributes, data.categories.trees).measure(
        values, published, np.where(span > 0, span, 1.0)
    )
    totals = LossTotals.of(attributes, values, published, distances.each)
    sse, sst, by_attribute = totals.sse, totals.sst, totals.by_attribute()
    losses = {
        "sse": sse,
        "sst": sst,
        "information_loss": 100 * sse / sst if sst else None,
        "mse": float(distances.squared.mean()),
        "mae": float(np.sqrt(distances.squared).mean()),
        "d_x": sse / sst if sst else None,
        "loss": by_attribute,
        "mean_loss": mean_loss(by_attribute),
    }
    return losses if totals.has_numbers else losses | dict.fromkeys(("sse", "sst", "information_loss", "d_x"))


def _span(data: TableData) -> Float64Vector:
    """Return the unit of ``mse`` and ``mae`` for each attribute: width of the bounds, or range of the table."""
    attributes = data.policy.quasi_identifiers
    values = data.values[:, : len(attributes)]
    ranges = np.nan_to_num(np.fmax.reduce(values, axis=0) - np.fmin.reduce(values, axis=0), nan=0.0)
    bounds = [attribute.bounds for attribute in attributes]
    return np.array([ranges[i] if bound is None else bound[1] - bound[0] for i, bound in enumerate(bounds)])


def confidential_loss(labels: Int32Vector, numbers: Float64Matrix) -> float | None:
    """Return ``d_y``: sum of squares within clusters over total sum of squares, of numeric confidential attributes.

    Parameters
    ----------
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0.
    numbers : ndarray of float64, shape (n, m)
        Numeric confidential attributes as z-scores; NaN for a missing value.

    Returns
    -------
    float or None
        None if no attribute varies.
    """
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
    categories agree with 0.02.) Missing values form a category. Parameters are those of `confidential_loss`.
    Cost: O(n log n) per attribute.

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


def measure_closeness(
    labels: Int32Vector, confidential: tuple[ConfidentialAttribute, ...], names: Sequence[str]
) -> dict[str, Any]:
    """Return the earth mover's distances of clusters from the table.

    ``emd_of`` has mean and maximum over the clusters for each attribute; ``emd`` is that of the attribute with the
    largest maximum.
    """
    emd_of: dict[str, Any] = {}
    for attribute, name in zip(confidential, names, strict=True):
        distances = emd_of_clusters(attribute, labels)
        emd_of[name] = {"mean": float(distances.mean()), "max": float(distances.max())}
    worst = max(emd_of.values(), key=lambda distance: distance["max"], default={"mean": None, "max": None})
    return {"emd": dict(worst), "emd_of": emd_of}


def measure_diversity(protected: tuple[ConfidentialAttribute, ...], labels: Int32Vector) -> dict[str, Any]:
    """Return the smallest l and the largest share of a value, over all clusters and protected attributes.

    ``l`` has in ``min`` the smallest number of different values, ``value_share`` in ``max`` the largest share of one
    value among the records of a cluster.
    """
    counts = [count_values(attribute.codes, labels) for attribute in protected]
    return {
        "l": {"min": min(int(own.distinct.min()) for own in counts)},
        "value_share": {"max": max(float((own.largest / own.sizes).max()) for own in counts)},
    }


def _linkage(data: TableData, published: Float64Matrix, partition: TablePartition | None) -> float | None:
    """Return ``dld`` of the attributes that have an order; None if there are none. A missing value counts as the mean.

    ``partition`` is the only one; None if there are several.
    """
    attributes = data.policy.quasi_identifiers
    columns = [i for i, attribute in enumerate(attributes) if not attribute.is_nominal]
    if not columns:
        return None
    is_all = len(columns) == data.values.shape[1]
    values = _filled(data.values if is_all else data.values[:, columns])
    if partition is not None:
        rows = _filled(partition.published if is_all else partition.published[:, columns])
        return linkage_share(values, rows, partition.labels, partition.bounds)
    rows, inverse = np.unique(_filled(published[:, columns]), axis=0, return_inverse=True)
    bounds = np.append(0, np.cumsum(np.bincount(inverse)))
    return linkage_share(values, rows, inverse.astype(np.int32), bounds)


def _filled(values: Float64Matrix) -> Float64Matrix:
    """Return the values with the mean of their column for missing ones."""
    absent = np.isnan(values)
    return np.where(absent, present_means(values, ~absent)[1], values) if absent.any() else values


def linkage_share(values: Float64Matrix, published: Float64Matrix, labels: Int32Vector, bounds: Int64Vector) -> float:
    """Return ``dld``, distance-based record linkage: the share of records that are linked to their own published row.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        Quasi-identifiers in their own units.
    published : ndarray of float64, shape (G, d)
        Published values of each cluster.
    labels : ndarray of int32, shape (n,)
        Cluster of each record.
    bounds : ndarray of int64, shape (G + 1,)
        Start of each cluster among the records in the order of labels.

    Notes
    -----
    Original and published records are converted to z-scores, each with their own mean and deviation. A published record
    is linked to its nearest originals; if its own original is among t nearest ones, it counts 1 / t.
    Cost: one search per cluster in a k-d tree; O(G log n) for few attributes, O(G n) for many.
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
