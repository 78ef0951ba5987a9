"""What a caller asks of every cluster beside k records: people, shares, closeness; and partitions mended to keep it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.neighbours import neighbours_of
from shoal.clustering.static.centroids import centroids_of
from shoal.clustering.static.confidential import Confidential, distances_of, spectrum_of
from shoal.clustering.static.constraint_arrays import SHARE_SLACK, SLACK, ConstraintArrays, no_constraints
from shoal.clustering.static.pairing import pair_clusters

__all__ = ["ClusterConstraints", "merge_until_feasible", "surplus", "violating_clusters"]

LEAF = 64
NEAR = 8
"""Clusters that one may be joined with in one round."""
FEW, ROUNDS = 16, 20
"""Clusters that lack something: so few, or what is left after so many rounds, take in others one after the other."""


@dataclass(frozen=True, slots=True)
class ClusterConstraints:
    """Terms over n records; what is left out asks for nothing.

    ``people`` int64 (n,): codes of subjects; each cluster must have k of them, and none may own more than
    ``max_share`` of it. ``confidential``: attributes whose distribution in a cluster may be ``t`` from that in the
    table at most. ``buckets`` int64 (n,): records of one bucket alone may change places in refinement.
    """

    people: Int64Vector | None = None
    max_share: float = 1.0
    confidential: tuple[Confidential, ...] = ()
    t: float | None = None
    buckets: Int64Vector | None = None

    @property
    def are_none(self) -> bool:
        """Whether any partition into clusters of k records will do."""
        return self.people is None and self.t is None

    def ordered(self, order: Int64Vector) -> ConstraintArrays:
        """Return them for the kernels, the records in another order."""
        terms = no_constraints()
        if self.people is not None:
            counts = np.zeros(int(self.people.max()) + 1, np.int64)
            terms = terms._replace(people=self.people[order], share=self.max_share, counts=counts)
        if self.t is not None:
            spectrum = spectrum_of(self.confidential)
            terms = terms._replace(spectrum=spectrum._replace(bins=spectrum.bins[:, order]), t=self.t)
        return terms if self.buckets is None else terms._replace(buckets=self.buckets[order])


def violating_clusters(labels: Int32Vector, k: int, demands: ClusterConstraints) -> BoolVector:
    """Return which clusters (G,) do not keep what is asked of them. O(n log n)."""
    sizes = np.bincount(labels)
    lacks = sizes < k
    if demands.people is not None:
        order = np.lexsort((demands.people, labels))
        cluster, person = labels[order], demands.people[order]
        starts = np.flatnonzero(np.append(True, (cluster[1:] != cluster[:-1]) | (person[1:] != person[:-1])))
        different = np.bincount(cluster[starts], minlength=len(sizes))
        heaviest = np.zeros(len(sizes), np.int64)
        np.maximum.at(heaviest, cluster[starts], np.diff(np.append(starts, len(labels))))
        lacks |= (different < k) | (heaviest > demands.max_share * sizes + SHARE_SLACK)
    if demands.t is not None:
        for attribute in range(len(demands.confidential)):
            lacks |= distances_of(demands.confidential, attribute, labels) > demands.t + SLACK
    return lacks


def merge_until_feasible(
    values: Float64Matrix, labels: Int32Vector, k: int, demands: ClusterConstraints
) -> Int32Vector:
    """Join clusters that lack something with the nearest, until none does or one is left.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        Coordinates; not modified.
    labels : ndarray of int32, shape (n,)
        A partition; not modified.
    k : int
        Smallest cluster, in people where they are known.
    demands : Demands
        What is asked for.

    Returns
    -------
    ndarray of int32, shape (n,)
        New. All demands are kept if the table as one cluster keeps them: of two clusters that are joined, no share is
        larger than the larger of the two, and no distance from the table either.

    Notes
    -----
    Each round joins pairs whose centroids are near, so that no chain swallows the table. What is joined needlessly can
    be parted again by refinement. The last few take in as many of the nearest as they need, at once: a person of half
    the table would otherwise have the others join him one by one.
    Cost: O(n log n) per round, a few rounds.
    """
    for number in count():
        lacks = violating_clusters(labels, k, demands)
        if not lacks.any() or len(lacks) == 1:
            break
        if lacks.sum() <= FEW or number >= ROUNDS:
            labels = _take_in(values, labels, k, demands, int(np.flatnonzero(lacks)[0]))
            continue
        centres = np.ascontiguousarray(centroids_of(values, labels))
        near = neighbours_of(centres, min(NEAR, len(centres) - 1), LEAF)
        joined = np.unique(pair_clusters(near, lacks), return_inverse=True)[1]
        labels = joined.astype(np.int32)[labels]
    return labels


def _take_in(
    values: Float64Matrix, labels: Int32Vector, k: int, demands: ClusterConstraints, cluster: int
) -> Int32Vector:
    """Join a cluster with as many of those nearest to its centroid as it takes until it lacks nothing, at least one."""
    centres = centroids_of(values, labels)
    away = ((centres - centres[cluster]) ** 2).sum(axis=1)
    away[cluster] = -1.0
    ranks = np.empty(len(away), np.int64)
    ranks[np.argsort(away, kind="stable")] = np.arange(len(away))
    order = ranks[labels]

    def is_enough(others: int) -> bool:
        return not violating_clusters((order > others).astype(np.int32), k, demands)[0]

    low, high = 0, 1
    while high < len(away) - 1 and not is_enough(high):
        low, high = high, min(2 * high, len(away) - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return np.maximum(order - high, 0).astype(np.int32)


def surplus(people: Int64Vector, max_share: float, far: Float64Matrix) -> BoolVector:
    """Return the records (n,) without which no subject owns more than its share of the whole table.

    Of a subject above its share the records farthest from the centroid of the table go, ties to the later ones; ``far``
    (n, d) are coordinates. As few as possible: of at most c records of each subject, c is the largest number that is
    no more than its share of what stays.
    """
    _, own, counts = np.unique(people, return_inverse=True, return_counts=True)
    low, high = 1, int(counts.max())
    while low < high:
        middle = (low + high + 1) // 2
        if middle <= max_share * np.minimum(counts, middle).sum() + SHARE_SLACK:
            low = middle
        else:
            high = middle - 1
    if low == counts.max():
        return np.zeros(len(people), np.bool_)
    away = ((far - far.mean(axis=0)) ** 2).sum(axis=1)
    order = np.lexsort((np.arange(len(people)), away, own))
    ranks = np.arange(len(people)) - np.repeat(np.cumsum(counts) - counts, counts)
    gone = np.zeros(len(people), np.bool_)
    gone[order[ranks >= low]] = True
    return gone
