"""Plain reference implementations of what the papers measure; slow where that is simpler.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation", ICDMW 2017, Algorithm 1.
   doi:10.1109/ICDMW.2017.141
.. [3] J. Soria-Comas, J. Domingo-Ferrer, D. Sánchez and S. Martínez, "t-Closeness through Microaggregation: Strict
   Privacy with Enhanced Utility Preservation", IEEE TKDE 27(11), 2015, reference [30] of [1].
   doi:10.1109/TKDE.2015.2435777
.. [2] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
   Preservation of Statistical Dependence", Information Sciences 342, 2016, sections III and V
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from shoal import microaggregate

from papers.common import Table, zscores

__all__ = [
    "Risk",
    "bucket_attribute",
    "buckets_of",
    "distances",
    "diversity",
    "linked",
    "loss_share",
    "means_of",
    "merged_until_close",
    "nearest_of_each_bucket",
    "risk_of",
    "steer",
    "weighted_attributes",
]

Labels = NDArray[np.int32]
Column = NDArray[np.float64]
SLACK = 1e-12


def means_of(values: Table, labels: Labels) -> Table:
    """Return for each record the centroid of its cluster."""
    centroids = np.stack([np.bincount(labels, column) for column in values.T], axis=1)
    means: Table = (centroids / np.bincount(labels)[:, None])[labels]
    return means


def loss_share(values: Table, labels: Labels) -> float:
    """Return SSE / SST."""
    return float(((values - means_of(values, labels)) ** 2).sum() / ((values - values.mean(axis=0)) ** 2).sum())


# ---------------------------------------------------------------- t-closeness by steering [1]


class Risk(NamedTuple):
    """Risk and loss at one weight, as in the figures of [1]."""

    largest: float
    average: float
    mse: float
    mae: float
    repeated: int
    """Clusters with two records of one bucket."""


def distances(confidential: Column, labels: Labels) -> Column:
    """Return the ordered earth mover's distance of each cluster to the table, over its distinct values."""
    values, codes = np.unique(confidential, return_inverse=True)
    counts = np.zeros((int(labels.max()) + 1, len(values)))
    np.add.at(counts, (labels, codes), 1.0)
    own = np.cumsum(counts, axis=1) / counts.sum(axis=1)[:, None]
    whole = np.cumsum(counts.sum(axis=0)) / len(confidential)
    moved: Column = np.abs(own - whole).sum(axis=1) / max(len(values) - 1, 1)
    return moved


def buckets_of(confidential: Column, t: float) -> list[NDArray[np.int64]]:
    """Return the buckets of Expression (2): runs of equal size by value, then position; larger ones first."""
    n = len(confidential)
    number = max(2, math.ceil(n / (2.0 * (n - 1) * t + 1.0) - SLACK))
    return sorted(np.array_split(np.argsort(confidential, kind="stable"), number), key=len, reverse=True)


def bucket_attribute(
    known: Table, buckets: list[NDArray[np.int64]], random: np.random.Generator | None = None
) -> Column:
    """Return the attribute of steps 5 to 7 in [0, 1].

    Each record takes the number of the nearest record of the previous bucket whose number is not taken. The paper does
    not state the order in which the records of a bucket are visited: here the order of the file, or a random one.
    """
    ordered = np.sort if random is None else random.permutation
    numbers = np.zeros(len(known))
    before = ordered(buckets[0])
    numbers[before] = np.arange(len(before))
    for bucket in buckets[1:]:
        free = np.ones(len(before), bool)
        members = ordered(bucket)
        for record in members:
            away = np.where(free, ((known[before] - known[record]) ** 2).sum(axis=1), np.inf)
            nearest = int(np.argmin(away))
            free[nearest] = False
            numbers[record] = numbers[before[nearest]]
        before = members
    scaled: Column = numbers / (len(buckets[0]) - 1)
    return scaled


def steer(
    known: Table, confidential: Column, buckets: list[NDArray[np.int64]], attribute: Column, weight: float
) -> Risk:
    """Return risk and loss of Algorithm 1 at one weight; ``attribute`` is that of `bucket_attribute`."""
    labels = microaggregate(np.column_stack((known, weight * attribute)), len(buckets), "mdav")
    return risk_of(known, confidential, buckets, labels)


def risk_of(known: Table, confidential: Column, buckets: list[NDArray[np.int64]], labels: Labels) -> Risk:
    """Return risk and loss of a partition."""
    moved = distances(confidential, labels)
    squares = ((known - means_of(known, labels)) ** 2).sum(axis=1)
    bucket = np.empty(len(known), np.int64)
    for number, members in enumerate(buckets):
        bucket[members] = number
    pairs = np.unique(np.column_stack((labels, bucket)), axis=0)
    sizes = np.minimum(np.bincount(labels), len(buckets))
    repeated = int((np.bincount(pairs[:, 0]) < sizes).sum())
    return Risk(
        float(moved.max()), float(moved.mean()), float(squares.mean()), float(np.sqrt(squares).mean()), repeated
    )


def merged_until_close(known: Table, confidential: Column, k: int, t: float) -> Labels:
    """Return the first algorithm of [3]: MDAV; then the cluster farthest from the table joins the nearest one."""
    labels = microaggregate(known, k, "mdav")
    while labels.max() and (moved := distances(confidential, labels)).max() > t + SLACK:
        worst = int(moved.argmax())
        centroids = np.stack([np.bincount(labels, column) for column in known.T], axis=1) / np.bincount(labels)[:, None]
        away = ((centroids - centroids[worst]) ** 2).sum(axis=1)
        away[worst] = np.inf
        labels[labels == worst] = away.argmin()
        labels[labels > worst] -= 1
    return labels


def nearest_of_each_bucket(known: Table, buckets: list[NDArray[np.int64]]) -> Labels:
    """Return the third algorithm of [3], for equal buckets: MDAV whose clusters take the nearest of each bucket."""
    labels, free = np.full(len(known), -1, np.int32), [list(bucket) for bucket in buckets]
    record = -1
    for number in range(len(buckets[0])):
        left = np.concatenate(free)
        start = known[record] if number % 2 else known[left].mean(axis=0)
        record = int(left[((known[left] - start) ** 2).sum(axis=1).argmax()])
        for bucket in free:
            away = ((known[bucket] - known[record]) ** 2).sum(axis=1)
            labels[bucket.pop(int(away.argmin()))] = number
    return labels


# ---------------------------------------------------------------- statistical dependence [2]


def weighted_attributes(known: Table, confidential: Table, lam: float, share: float | None = None) -> Table:
    """Return (X, beta Y), beta² = lambda / (1 - lambda) · m_X / m_Y; X alone at lambda = 0, Y alone at lambda = 1.

    ``share`` is m_Y / m_X where an attribute has several columns.
    """
    if lam <= 0.0:
        return known
    if lam >= 1.0:
        return confidential
    beta = math.sqrt(lam / (1.0 - lam) / (confidential.shape[1] / known.shape[1] if share is None else share))
    return np.ascontiguousarray(np.concatenate((known, beta * confidential), axis=1))


def diversity(confidential: Table, labels: Labels, width: float) -> float:
    """Return l_avg: distinct values, rounded to ``width``, of the least diverse attribute, averaged over clusters."""
    codes = np.rint(confidential / width).astype(np.int64)
    least = np.full(int(labels.max()) + 1, len(labels))
    for column in codes.T:
        pairs = np.unique(np.column_stack((labels, column)), axis=0)
        least = np.minimum(least, np.bincount(pairs[:, 0]))
    return float(least.mean())


def linked(known: Table, published: Table) -> float:
    """Return DLD: the share of published records whose nearest original, both as z-scores, is their own; ties share."""
    originals, perturbed = zscores(known), zscores(published)
    away = np.stack([((originals - row) ** 2).sum(axis=1) for row in perturbed])
    limit = away.min(axis=1) * (1.0 + SLACK) + SLACK**1.5
    ties = (away <= limit[:, None]).sum(axis=1)
    return float(((np.diag(away) <= limit) / ties).mean())
