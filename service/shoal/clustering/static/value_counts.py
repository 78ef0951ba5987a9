"""How often each confidential value occurs in each cluster, and whether the counts satisfy l-diversity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.diversity import DISTINCT, ENTROPY, ENTROPY_TOLERANCE, SHARE_TOLERANCE, LDiversity

__all__ = ["ValueCounts", "count_values"]


class ValueCounts(NamedTuple):
    """Counts of the values in each cluster, cluster after cluster, the most frequent value of each first.

    Attributes
    ----------
    counts : ndarray of int64, shape (entries,)
        Records with one value in one cluster.
    starts : ndarray of int64, shape (clusters,)
        Where the counts of each cluster begin.
    sizes : ndarray of int64, shape (clusters,)
        Records of each cluster.
    """

    counts: Int64Vector
    starts: Int64Vector
    sizes: Int64Vector

    @property
    def distinct(self) -> Int64Vector:
        """Different values of each cluster."""
        return np.diff(np.append(self.starts, len(self.counts)))

    @property
    def largest(self) -> Int64Vector:
        """Records with the most frequent value of each cluster."""
        return self.counts[self.starts]

    @property
    def entropies(self) -> Float64Vector:
        """Entropy of the values of each cluster, in nats."""
        products: Float64Vector = np.add.reduceat(self.counts * np.log(self.counts), self.starts)
        entropies: Float64Vector = np.log(self.sizes) - products / self.sizes
        return entropies

    def beyond(self, most_frequent: int) -> Int64Vector:
        """Return the records of each cluster without those of its ``most_frequent`` values."""
        ranks = np.arange(len(self.counts)) - np.repeat(self.starts, self.distinct)
        rest: Int64Vector = np.add.reduceat(np.where(ranks >= most_frequent, self.counts, 0), self.starts)
        return rest

    def satisfy(self, l: LDiversity | None, max_value_share: float | None) -> BoolVector:  # noqa: E741
        """Return which clusters satisfy l-diversity and the largest share of a value, shape (clusters,)."""
        fine: BoolVector = np.ones(len(self.sizes), np.bool_)
        if max_value_share is not None:
            fine &= self.largest <= max_value_share * self.sizes + SHARE_TOLERANCE
        if l is None:
            return fine
        if l.kind == DISTINCT:
            fine &= self.distinct >= l.l
        elif l.kind == ENTROPY:
            fine &= self.entropies >= np.log(l.l) - ENTROPY_TOLERANCE
        else:
            fine &= self.largest < l.c * self.beyond(int(l.l) - 1) - SHARE_TOLERANCE
        return fine


def count_values(codes: Int64Vector, labels: Int32Vector) -> ValueCounts:
    """Count the values of each cluster. O(n log n).

    Parameters
    ----------
    codes : ndarray of int64, shape (n,)
        Code of the value of each record.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0; no cluster is empty.
    """
    order = np.lexsort((codes, labels))
    cluster, code = labels[order], codes[order]
    firsts = np.flatnonzero(np.append(True, (cluster[1:] != cluster[:-1]) | (code[1:] != code[:-1])))
    counts, owners = np.diff(np.append(firsts, len(labels))), cluster[firsts]
    by_count = np.lexsort((-counts, owners))
    starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
    return ValueCounts(counts[by_count], starts, np.bincount(labels))
