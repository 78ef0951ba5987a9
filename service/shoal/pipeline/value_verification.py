"""The last check of a table: each cluster keeps k, l-diversity, all shares and t-closeness by a second computation.

It counts and measures from the definitions, in numpy, and shares no arithmetic with what forms clusters. It does share
their input: the codes and bins of the records, and the weights and paths of a reference. So it does not find a wrong
code or bin; the judge reads those anew.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.static import ConfidentialAttribute
from shoal.errors import AnonymityViolation
from shoal.policy import Diversity, Policy

__all__ = ["verify_subjects", "verify_values"]

TOLERANCE = 1e-9
"""Rounding allowance for counts and distances."""


def verify_subjects(policy: Policy, subjects: Int64Vector, order: Int64Vector, bounds: Int64Vector) -> Int64Matrix:
    """Verify that each record is in one cluster, and k and the largest share of each cluster.

    Parameters
    ----------
    policy : Policy
    subjects : ndarray of int64, shape (n,)
        Subject of each record.
    order : ndarray of int64, shape (n,)
        Records, cluster after cluster.
    bounds : ndarray of int64, shape (clusters + 1,)
        Where each cluster begins in ``order``, and n.

    Returns
    -------
    ndarray of int64, shape (2, clusters)
        Row 0: number of distinct subjects of each cluster. Row 1: largest number of records of one subject.

    Raises
    ------
    AnonymityViolation
        A record is missing or in two clusters, or a cluster violates ``privacy.k`` or ``privacy.max_share``. Nothing
        was written.
    """
    count, sizes = len(subjects), np.diff(bounds)
    if len(order) != count or (np.bincount(order, minlength=count) != 1).any() or sizes.sum() != count:
        raise AnonymityViolation("a record is not in exactly one cluster; nothing was written")
    owners = np.repeat(np.arange(len(sizes)), sizes)
    codes = np.unique(subjects, return_inverse=True)[1]
    pairs, records = np.unique(owners * count + codes[order], return_counts=True)
    found = np.bincount(pairs // count, minlength=len(sizes))
    largest = np.zeros(len(sizes), np.int64)
    np.maximum.at(largest, pairs // count, records)
    if (found < policy.k).any():
        raise AnonymityViolation(f"a cluster has fewer than {policy.k} subjects; nothing was written")
    if (largest > policy.max_share * sizes + TOLERANCE).any():
        raise AnonymityViolation(f"a subject has a share above {policy.max_share} of a cluster; nothing was written")
    return np.stack([found, largest])


def verify_values(policy: Policy, protected: tuple[ConfidentialAttribute, ...], labels: Int32Vector) -> None:
    """Verify the protected attributes of each cluster.

    Parameters
    ----------
    policy : Policy
    protected : tuple of ConfidentialAttribute
        The protected attributes of n records.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0; no cluster is empty.

    Raises
    ------
    AnonymityViolation
        A cluster violates ``privacy.l``, ``privacy.max_value_share`` or ``privacy.t``. Nothing was written.
    """
    sizes = np.bincount(labels)
    for attribute in protected:
        counts = _Counts(attribute.codes, labels)
        share = policy.max_value_share
        if share is not None and (counts.largest > share * sizes + TOLERANCE).any():
            raise AnonymityViolation("a cluster exceeds privacy.max_value_share; nothing was written")
        if policy.diversity is not None and not counts.satisfy(policy.diversity, sizes).all():
            raise AnonymityViolation("a cluster violates privacy.l; nothing was written")
        if policy.t is not None and not (_distances(attribute, labels) <= policy.t + TOLERANCE).all():
            raise AnonymityViolation("a cluster is farther from the reference than privacy.t; nothing was written")


class _Counts:
    """How often each value occurs in each cluster: one entry per pair that occurs, rarest first in each cluster."""

    def __init__(self, codes: Int64Vector, labels: Int32Vector) -> None:
        pairs, counts = np.unique(np.stack([labels.astype(np.int64), codes]), axis=1, return_counts=True)
        order = np.lexsort((counts, pairs[0]))
        self._owners, self._counts = pairs[0][order], counts[order]
        self._clusters = int(labels.max()) + 1
        self._ends = np.cumsum(np.bincount(self._owners))

    @property
    def largest(self) -> Int64Vector:
        """Records with the most frequent value of each cluster."""
        return self._counts[self._ends - 1]

    def satisfy(self, diversity: Diversity, sizes: Int64Vector) -> BoolVector:
        """Return which clusters are diverse."""
        if diversity.kind == "distinct":
            return np.asarray(np.bincount(self._owners) >= diversity.l, np.bool_)
        if diversity.kind == "entropy":
            shares = self._counts / sizes[self._owners]
            entropies = np.bincount(self._owners, shares * np.log(1 / shares))
            return np.asarray(entropies >= math.log(diversity.l) - TOLERANCE, np.bool_)
        ranks_from_last = self._ends[self._owners] - np.arange(len(self._owners))  # 1 for the most frequent value
        rest = np.bincount(self._owners, self._counts * (ranks_from_last >= diversity.l), self._clusters)
        return np.asarray(self.largest < (diversity.c or 0.0) * rest - TOLERANCE, np.bool_)


def _distances(attribute: ConfidentialAttribute, labels: Int32Vector) -> Float64Vector:
    """Return the earth mover's distance of each cluster from its reference, shape (clusters,)."""
    reference = attribute.compared_with()
    shares = reference.weights / reference.weights.sum()
    if attribute.ordered:
        return _ordered_distances(attribute.bins, labels, shares)
    paths = reference.paths
    if paths is None or not paths.shape[1]:
        return _differences(attribute.bins, labels, shares)
    total: Float64Vector = np.zeros(int(labels.max()) + 1)
    for nodes in paths.T:
        owners = np.unique(nodes, return_inverse=True)[1]
        total += _differences(owners[attribute.bins], labels, np.asarray(np.bincount(owners, shares), np.float64))
    total /= paths.shape[1]
    return total


def _differences(bins: Int64Vector, labels: Int32Vector, shares: Float64Vector) -> Float64Vector:
    """Return half the sum of |share in the cluster - share in the reference| over all bins, shape (clusters,)."""
    pairs, counts = np.unique(np.stack([labels.astype(np.int64), bins]), axis=1, return_counts=True)
    own = counts / np.bincount(labels)[pairs[0]]
    other = shares[pairs[1]]
    differences = np.bincount(pairs[0], np.abs(own - other))
    absent = shares.sum() - np.bincount(pairs[0], other)  # bins that do not occur in the cluster
    return np.asarray((differences + absent) / 2, np.float64)


def _ordered_distances(bins: Int64Vector, labels: Int32Vector, shares: Float64Vector) -> Float64Vector:
    """Return the mean of |cumulative share in the cluster - in the reference| over all bins but the last.

    The records of a cluster, in the order of their bins, cut the bins into parts. In part j the cumulative share of the
    cluster is j over its size; that of the reference passes it at one bin, which is searched.
    """
    m = len(shares)
    if m == 1:
        return np.zeros(int(labels.max()) + 1)
    cumulative = np.cumsum(shares)[:-1]
    sums = np.append(0.0, np.cumsum(cumulative))
    sizes = np.bincount(labels)
    edges = np.minimum(bins[np.lexsort((bins, labels))], m - 1)
    firsts = np.cumsum(sizes) - sizes
    low, high = np.insert(edges, firsts, 0), np.insert(edges, firsts + sizes, m - 1)
    parts = sizes + 1
    owners = np.repeat(np.arange(len(sizes)), parts)
    steps = np.arange(len(owners)) - np.repeat(np.cumsum(parts) - parts, parts)
    heights = steps / sizes[owners]
    crossings = np.clip(np.searchsorted(cumulative, heights, side="right"), low, high)
    above = heights * (crossings - low) - (sums[crossings] - sums[low])
    below = (sums[high] - sums[crossings]) - heights * (high - crossings)
    return np.asarray(np.bincount(owners, above + below) / (m - 1), np.float64)
