"""What the protected attributes of every cluster of a stream must satisfy, and the check of the decided clusters.

The check counts and measures from the definitions, in numpy. It shares no arithmetic with the kernels that form the
clusters. It does share their input: the rule (limits, and the shares, bounds and paths of the bins of a reference), and
the value code and bin of each record. So it does not find a wrong code or bin; the judge reads those anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.protection import DISTINCT, ENTROPY, NO_L, ORDERED, RECURSIVE, DiversityRule

__all__ = ["Protection", "distances_of_clusters", "violated_constraint"]

TOLERANCE = 1e-9
"""Rounding allowance for counts, shares times counts, and distances."""


class Protection(NamedTuple):
    """A rule on q protected attributes.

    Attributes
    ----------
    rule : DiversityRule
    attributes : int
        Number of protected attributes q, 1 or more.
    """

    rule: DiversityRule
    attributes: int

    @property
    def has_bins(self) -> bool:
        """Whether records need bins."""
        return self.rule.t < 1.0

    @property
    def limits_values(self) -> bool:
        """Whether there is l-diversity or a largest share of one value."""
        return self.rule.l_kind != NO_L or self.rule.max_value_share < 1.0

    @property
    def rows(self) -> int:
        """Codes that a held record needs: a value code per attribute, and with t a bin."""
        return self.attributes * (2 if self.has_bins else 1)


def violated_constraint(protection: Protection, codes: Int64Matrix, ends: Int64Vector) -> str:
    """Return the constraint that a cluster violates, in words; an empty string if none does.

    Parameters
    ----------
    protection : Protection
    codes : ndarray of int64, shape (n, rows)
        Value codes of the members, cluster after cluster, and behind them their bins.
    ends : ndarray of int64, shape (G,)
        Cluster g ends before ``codes[ends[g]]``; none is empty.
    """
    sizes = np.diff(ends, prepend=0)
    clusters = np.repeat(np.arange(len(ends)), sizes)
    for attribute in range(protection.attributes):
        found = _violated_by_values(protection.rule, codes[:, attribute], clusters, sizes)
        if found:
            return found
        if protection.has_bins:
            bins = codes[:, protection.attributes + attribute]
            distances = distances_of_clusters(protection.rule, attribute, bins, clusters, sizes)
            if (distances > protection.rule.t + TOLERANCE).any():
                return f"is farther than {protection.rule.t} from the reference"
    return ""


def _violated_by_values(rule: DiversityRule, values: Int64Vector, clusters: Int64Vector, sizes: Int64Vector) -> str:
    """Return which of l-diversity and the largest share a cluster violates in one attribute."""
    order = np.lexsort((values, clusters))
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1) | (np.diff(values[order], prepend=0) != 0))
    counts, owners = np.diff(starts, append=len(order)), clusters[order][starts]
    largest = np.zeros(len(sizes), np.int64)
    np.maximum.at(largest, owners, counts)
    if (largest > rule.max_value_share * sizes + TOLERANCE).any():
        return f"has a value with a share above {rule.max_value_share}"
    if rule.l_kind == NO_L:
        return ""
    if rule.l_kind == DISTINCT:
        is_diverse = np.bincount(owners, minlength=len(sizes)) >= rule.l
    elif rule.l_kind == ENTROPY:
        shares = counts / sizes[owners]
        is_diverse = np.bincount(owners, -shares * np.log(shares), len(sizes)) >= np.log(rule.l) - TOLERANCE
    else:
        is_diverse = largest < rule.c * _sum_of_rare(counts, owners, sizes, int(rule.l)) - TOLERANCE
    return "" if is_diverse.all() else f"has no {_NAMES[rule.l_kind]} {rule.l:g}-diversity"


_NAMES = {DISTINCT: "distinct", ENTROPY: "entropy", RECURSIVE: "recursive"}


def _sum_of_rare(counts: Int64Vector, owners: Int64Vector, sizes: Int64Vector, l: int) -> Float64Vector:  # noqa: E741
    """Return for each cluster the records of all values but the l - 1 most frequent."""
    order = np.lexsort((-counts, owners))
    first = np.searchsorted(owners[order], np.arange(len(sizes)))
    ranks = np.arange(len(order)) - first[owners[order]]
    rare = order[ranks >= l - 1]
    return np.asarray(np.bincount(owners[rare], counts[rare], len(sizes)), np.float64)


def distances_of_clusters(
    rule: DiversityRule, attribute: int, bins: Int64Vector, clusters: Int64Vector, sizes: Int64Vector
) -> Float64Vector:
    """Return the earth mover's distance of each cluster from the reference of an attribute, shape (G,).

    ``bins`` and ``clusters``, shape (n,), are the bin and the number of the cluster of each member.
    """
    part = slice(rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1])
    reference = rule.shares[part]
    m = len(reference)
    counts = np.bincount(clusters * m + bins, minlength=len(sizes) * m).reshape(-1, m)
    differences: Float64Matrix = counts / sizes[:, None] - reference
    if rule.distances[attribute] == ORDERED:
        ordered: Float64Vector = np.abs(np.cumsum(differences, axis=1))[:, :-1].sum(axis=1)
        return ordered / max(m - 1, 1)
    levels = int(rule.levels[attribute])
    found: Float64Vector = np.zeros(len(sizes))
    if not levels:
        found += np.abs(differences).sum(axis=1)
        return found / 2
    for level in range(levels):
        found += np.abs(_sums_by_node(differences, rule.paths[part, level])).sum(axis=1)
    return found / (2 * levels)


def _sums_by_node(differences: Float64Matrix, nodes: Int64Vector) -> Float64Matrix:
    """Return the sums (G, nodes) of the columns below each node."""
    _, owners = np.unique(nodes, return_inverse=True)
    sums = np.zeros((owners.max() + 1, len(differences)))
    np.add.at(sums, owners, differences.T)
    return sums.T
