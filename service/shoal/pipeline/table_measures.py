"""What a partition of a finished table costs and what it shows: the figures of a batch's summary."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.static import ConfidentialAttribute, emd_of_clusters
from shoal.clustering.static.record_linkage import expected_links

__all__ = ["UNKNOWN", "closeness", "disclosure", "distinct_categories", "losses", "preserved"]

UNKNOWN: dict[str, Any] = {"emd": {"mean": None, "max": None}, "emd_of": {}}
"""Distances where there are no clusters of whole records."""
CATEGORY = 0.02
"""Width of a category of a confidential number, in standard deviations."""


def losses(values: Float64Matrix, published: Float64Matrix, span: Float64Vector) -> dict[str, float | None]:
    """Return ``sse``, ``sst``, ``information_loss``, ``mse``, ``mae``, ``d_x``.

    Parameters
    ----------
    values, published : ndarray of float64, shape (n, d)
        Quasi-identifiers in their own units, as read (clipped) and as published; n >= 1.
    span : ndarray of float64, shape (d,)
        What values are divided by for ``mse`` and ``mae``: bounds, or the table's own range; 0 where nothing varies.

    Notes
    -----
    ``sse`` and ``sst`` on z-scores (ddof = 0), an attribute that does not vary counts for nothing; ``mse`` and ``mae``:
    mean squared and mean Euclidean distance; ``d_x`` is sse / sst. Residuals are squared themselves, so that
    nothing cancels.
    """
    n = len(values)
    centred = values - values.mean(axis=0)
    spread = np.einsum("ij,ij->j", centred, centred)
    del centred
    error = values - published
    varied = (np.ptp(values, axis=0) > 0) & (spread > 0)  # the mean of equal numbers may be off by its last bit
    sse = float((np.einsum("ij,ij->j", error, error)[varied] / spread[varied]).sum() * n)
    sst = float(np.count_nonzero(varied) * n)
    error /= np.where(span > 0, span, 1.0)
    squared = np.einsum("ij,ij->i", error, error)
    return {
        "sse": sse,
        "sst": sst,
        "information_loss": 100 * sse / sst if sst else 0.0,
        "mse": float(squared.mean()),
        "mae": float(np.sqrt(squared).mean()),
        "d_x": sse / sst if sst else None,
    }


def preserved(labels: Int32Vector, numbers: Float64Matrix) -> float | None:
    """Return ``d_y``: the share of the spread of confidential numbers that lies within clusters.

    Parameters
    ----------
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0.
    numbers : ndarray of float64, shape (n, m)
        ConfidentialAttribute numbers, as z-scores; NaN where there is none. None where m is 0.
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
    """Return ``l_avg``: mean over clusters of the fewest different categories that any confidential number has in it.

    A category is a z-score rounded to the nearest 0.02, as in [1]_ (whose text has 0.2, and whose counts of categories
    say 0.02). Arguments as in `preserved`; no number is a category of its own. O(n log n) per attribute.

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
        fresh = np.append(True, (cluster[1:] != cluster[:-1]) | (category[1:] != category[:-1]))
        different = np.bincount(cluster[fresh])
        fewest = different if fewest is None else np.minimum(fewest, different)
    return None if fewest is None else float(fewest.mean())


def closeness(labels: Int32Vector, confidential: tuple[ConfidentialAttribute, ...], names: list[str]) -> dict[str, Any]:
    """Return ``emd`` (mean over clusters and max, of the attribute that is farthest) and ``emd_of`` each attribute."""
    found: dict[str, Any] = {}
    for attribute, name in zip(confidential, names, strict=True):
        distances = emd_of_clusters(attribute, labels)
        found[name] = {"mean": float(distances.mean()), "max": float(distances.max())}
    worst = max(found.values(), key=lambda about: about["max"], default={"mean": None, "max": None})
    return {"emd": dict(worst), "emd_of": found}


def disclosure(values: Float64Matrix, published: Float64Matrix, labels: Int32Vector, offsets: Int64Vector) -> float:
    """Return ``dld``: the share of records that distance linkage finds.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        Quasi-identifiers in their own units.
    published : ndarray of float64, shape (G, d)
        Of each cluster.
    labels : ndarray of int32, shape (n,)
        Cluster of each record.
    offsets : ndarray of int64, shape (G + 1,)
        Where clusters begin among records in order of labels.

    Notes
    -----
    Both sides are z-scores, each by its own mean and deviation. A published record is linked to the originals nearest
    to it, and found with chance 1 / ties if its own is among them. One search per cluster in a k-d tree: O(G log n) for
    few attributes, O(G n) for many.
    """
    sizes = np.diff(offsets)
    mean = (published * sizes[:, None]).sum(axis=0) / sizes.sum()
    deviation = np.sqrt((((published - mean) ** 2) * sizes[:, None]).sum(axis=0) / sizes.sum())
    queries = (published - mean) / _divisor(published, deviation)
    rows = (values - values.mean(axis=0)) / _divisor(values, values.std(axis=0))
    members = np.argsort(labels, kind="stable")
    links = expected_links(np.ascontiguousarray(rows), np.ascontiguousarray(queries), members, offsets)
    return float(links.sum() / len(values))


def _divisor(columns: Float64Matrix, deviation: Float64Vector) -> Float64Vector:
    """Return deviations (d,), 1 for columns that do not vary."""
    return np.where((np.ptp(columns, axis=0) > 0) & (deviation > 0), deviation, 1.0)
