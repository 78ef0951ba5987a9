"""What clusters must satisfy in their protected attributes, as arrays for the kernels, and the kernels that check it.

References
----------
.. [1] A. Machanavajjhala, D. Kifer, J. Gehrke and M. Venkitasubramaniam, "l-Diversity: Privacy Beyond k-Anonymity", ACM
   TKDD 1(1), 2007 (distinct, entropy and recursive (c, l)-diversity). doi:10.1145/1217299.1217302
.. [2] T. M. Truta and B. Vinay, "Privacy Protection: p-Sensitive k-Anonymity Property", ICDE Workshops 2006 (distinct
   values of each of several attributes). doi:10.1109/ICDEW.2006.116
.. [3] N. Li, T. Li and S. Venkatasubramanian, "t-Closeness: Privacy Beyond k-Anonymity and l-Diversity", ICDE 2007
   (the three distances). doi:10.1109/ICDE.2007.367856
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import Float64Vector, Int8Vector, Int64Matrix, Int64Vector
from shoal.kernels.containers import shell_sort
from shoal.kernels.jit import njit_inline, njit_inner

NO_L, DISTINCT, ENTROPY, RECURSIVE = range(4)  # kinds of l-diversity
ORDERED, EQUAL, HIERARCHICAL = range(3)
"""Distances between two bins: by rank, 1 between any two, by the height of their lowest common ancestor."""


class LDiversity(NamedTuple):
    """A kind of l-diversity and its parameters."""

    kind: int  # DISTINCT, ENTROPY or RECURSIVE
    l: float  # noqa: E741 - the letter of the literature
    c: float = 0.0  # of recursive diversity


class ValueReference(NamedTuple):
    """The distribution that the values of one protected attribute are compared with. Ordered bins ascend."""

    distance: int  # ORDERED, EQUAL or HIERARCHICAL
    weights: NDArray[np.float64] | NDArray[np.int64]  # (m,): records, or share, of each bin; 0 or more, not all 0
    paths: Int64Matrix | None = None  # (m, levels)


class DiversityRule(NamedTuple):
    """What the q protected attributes of every cluster must satisfy, as arrays for the kernels.

    Attribute ``i`` has the bins ``bin_bounds[i]`` to ``bin_bounds[i + 1]`` of ``shares``, ``cumulative`` and ``paths``.
    Its part of ``cumulative_sums`` is one longer, so it begins at ``bin_bounds[i] + i``.
    """

    l_kind: int  # NO_L, DISTINCT, ENTROPY or RECURSIVE
    l: float  # noqa: E741 - the letter of the literature
    c: float  # of recursive diversity
    max_value_share: float  # largest share of one value among the records of a cluster; 1: none
    t: float  # largest distance of a cluster from the reference; 1: none
    distances: Int8Vector  # (q,): ORDERED, EQUAL or HIERARCHICAL
    bin_bounds: Int64Vector  # (q + 1,)
    shares: Float64Vector  # (bins,): share of the reference in each bin
    cumulative: Float64Vector  # (bins,): share of the reference up to and including each bin
    cumulative_sums: Float64Vector  # (bins + q,): sum of `cumulative` over all lower bins
    paths: Int64Matrix  # (bins, most levels): node of each bin at each level, leaves first; -1 beyond its levels
    node_shares: Float64Vector  # (nodes,): share of the reference below each node
    levels: Int64Vector  # (q,): levels below the root; 0 unless hierarchical


class Protection(NamedTuple):
    """A rule on q protected attributes."""

    rule: DiversityRule
    attributes: int  # q, 1 or more

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


def build_diversity_rule(
    references: Sequence[ValueReference] = (),
    *,
    l: LDiversity | None = None,  # noqa: E741 - the letter of the literature
    max_value_share: float | None = None,
    t: float | None = None,
) -> DiversityRule:
    """Return what every cluster must satisfy, for the kernels; by default nothing. Cost: O(bins × levels).

    There is one reference per protected attribute, needed with ``t`` only. Raises `ValueError` for ``t`` without one,
    weights that are all 0, or bins that are not in the order of their tree.
    """
    if t is not None and not references:
        raise ValueError("t needs the reference of each protected attribute")
    sizes = [len(reference.weights) for reference in references]
    totals = [reference.weights.sum() for reference in references]
    if not all(total > 0 for total in totals):
        raise ValueError("a reference needs a weight above 0")
    cumulative = [np.cumsum(one.weights) / one.weights.sum() for one in references]
    shares = [reference.weights / total for reference, total in zip(references, totals, strict=True)]
    paths, node_shares, levels = _trees(references, shares)
    return DiversityRule(
        NO_L if l is None else l.kind,
        0.0 if l is None else float(l.l),
        0.0 if l is None else float(l.c),
        1.0 if max_value_share is None else float(max_value_share),
        1.0 if t is None else float(t),
        np.array([reference.distance for reference in references], np.int8),
        np.cumsum([0, *sizes]),
        np.concatenate([np.zeros(0), *shares]),
        np.concatenate([np.zeros(0), *cumulative]),
        np.concatenate([np.zeros(0), *(np.append(0.0, np.cumsum(column)) for column in cumulative)]),
        paths,
        node_shares,
        levels,
    )


def _trees(
    references: Sequence[ValueReference], shares: list[Float64Vector]
) -> tuple[Int64Matrix, Float64Vector, Int64Vector]:
    """Return ``paths``, ``node_shares`` and ``levels`` of `DiversityRule`; nodes are numbered from 0 over all trees."""
    trees = [_tree_of(reference) for reference in references]
    levels = np.array([tree.shape[1] for tree in trees], np.int64)
    widest = int(levels.max(initial=0))
    paths, node_shares, count = [np.zeros((0, widest), np.int64)], [np.zeros(0)], 0
    for tree, own_shares in zip(trees, shares, strict=True):
        own = np.full((len(tree), widest), -1, np.int64)
        for level in range(tree.shape[1]):
            nodes = _nodes_of_level(tree[:, level:])
            own[:, level] = nodes + count
            node_shares.append(np.asarray(np.bincount(nodes, own_shares), np.float64))
            count += len(node_shares[-1])
        paths.append(own)
    return np.concatenate(paths), np.concatenate(node_shares), levels


def _tree_of(reference: ValueReference) -> Int64Matrix:
    """Return the paths (m, levels) of a reference; no levels unless its distance is hierarchical."""
    if reference.distance != HIERARCHICAL:
        return np.zeros((len(reference.weights), 0), np.int64)
    if reference.paths is None or not reference.paths.shape[1]:
        raise ValueError("a hierarchical distance needs the path of each bin")
    return reference.paths


def _nodes_of_level(paths: Int64Matrix) -> Int64Vector:
    """Return the node (m,) of each bin at the first level of ``paths`` (m, levels), from 0 in their order."""
    is_first = np.append(True, (paths[1:] != paths[:-1]).any(axis=1))
    if np.count_nonzero(is_first) > len(np.unique(paths[:, 0])):
        raise ValueError("the bins of a hierarchical distance must be in the order of their tree")
    return np.cumsum(is_first) - 1


NO_DIVERSITY = build_diversity_rule()  # no constraint


T_TOLERANCE = 1e-12  # rounding allowance for a distance between distributions
ENTROPY_TOLERANCE = 1e-12  # rounding allowance for an entropy, in nats
SHARE_TOLERANCE = 1e-9  # rounding allowance, in records, for the largest share of a value or of a subject


def empty_diversity_scratch(capacity: int) -> Int64Matrix:
    """Return the scratch array of `is_diverse` for clusters of up to ``capacity`` records."""
    return np.zeros((2, capacity), np.int64)


@njit_inner
def is_diverse(
    rule: DiversityRule, values: Int64Matrix, bins: Int64Matrix, members: Int64Vector, scratch: Int64Matrix
) -> bool:
    """Whether the cluster ``members`` (m,) satisfies a rule in each of q protected attributes; an empty cluster does.

    ``values`` (q, n) are the value codes of all records, of which only equality counts, and ``bins`` (q, n) their bins
    in the references, not read without t. ``scratch`` (2, m or more) is that of `empty_diversity_scratch`.

    Counts are those of records, as they are published. n is their number, n_v those with value v, r_1 >= r_2 >= ... are
    the counts in descending order:

    - distinct: at least l different values,
    - entropy: -Σ (n_v / n) log(n_v / n) >= log l,
    - recursive: r_1 < c (r_l + r_(l+1) + ...), so there are at least l different values,
    - value share: r_1 <= max_value_share n,
    - t: `distance_of` is at most t.

    Cost: O(m log m) per attribute, about; with an ordered reference O(m log bins) in addition, with a hierarchical one
    O(m levels).
    """
    return bool(excess_of(rule, values, bins, members, scratch, 0.0) <= 0.0)


@njit_inner
def excess_of(
    rule: DiversityRule,
    values: Int64Matrix,
    bins: Int64Matrix,
    members: Int64Vector,
    scratch: Int64Matrix,
    enough: float,
) -> float:
    """Return by how much a cluster violates a rule: 0 if it satisfies it, and more the farther it is from that.

    It is the sum over the attributes of: the share of the l values that is missing, or what the entropy lacks in nats,
    or r_1 - c (r_l + ...) over n; the part of the largest share that is too large; the part of the distance above t.
    Once it is above ``enough``, it may be returned without the rest. Parameters: see `is_diverse`.
    """
    total = 0.0
    if members.size == 0:
        return total
    if rule.l_kind != NO_L or rule.max_value_share < 1.0:
        for attribute in range(values.shape[0]):
            total += _excess_of_values(rule, values[attribute], members, scratch)
            if total > enough:
                return total
    if rule.t < 1.0:
        for attribute in range(bins.shape[0]):
            total += _excess_of_distance(rule, attribute, bins[attribute], members, scratch)
            if total > enough:
                return total
    return total


@njit_inline
def _excess_of_distance(
    rule: DiversityRule, attribute: int, bins: Int64Vector, members: Int64Vector, scratch: Int64Matrix
) -> float:
    """Return the distance of a cluster from the reference of one attribute above t; 0 if it is at most t."""
    own = scratch[0, : members.size]
    for x in range(members.size):
        own[x] = bins[members[x]]
    shell_sort(own)
    excess = distance_of(rule, attribute, own) - rule.t
    return excess if excess > T_TOLERANCE else 0.0


@njit_inline
def _excess_of_values(rule: DiversityRule, codes: Int64Vector, members: Int64Vector, scratch: Int64Matrix) -> float:
    """Return the excess of the values of one attribute: that of the largest share, and that of l-diversity."""
    size, own = members.size, scratch[0, : members.size]
    for x in range(size):
        own[x] = codes[members[x]]
    shell_sort(own)
    distinct, largest, start = 0, 0, 0
    for x in range(size):
        if x + 1 == size or own[x + 1] != own[x]:
            scratch[1, distinct] = x + 1 - start
            largest = max(largest, x + 1 - start)
            distinct += 1
            start = x + 1
    above = largest - rule.max_value_share * size
    excess = above / size if above > SHARE_TOLERANCE else 0.0
    if rule.l_kind == DISTINCT:
        excess += max(1.0 - distinct / rule.l, 0.0)
    elif rule.l_kind != NO_L:
        counts = scratch[1, :distinct]
        shell_sort(counts)  # sums in this order do not depend on the codes
        excess += _excess_of_counts(rule, counts, size)
    return excess


@njit_inline
def _excess_of_counts(rule: DiversityRule, counts: Int64Vector, size: int) -> float:
    """Return the excess of entropy or recursive l-diversity; ``counts`` are those of the values, ascending."""
    if rule.l_kind == ENTROPY:
        total = 0.0
        for x in range(counts.size):
            total += counts[x] * math.log(counts[x])
        excess = math.log(rule.l) - (math.log(size) - total / size)
        return excess if excess > ENTROPY_TOLERANCE else 0.0
    rest = 0
    for x in range(counts.size - int(rule.l) + 1):  # the counts but the l - 1 largest
        rest += counts[x]
    excess = counts[counts.size - 1] - rule.c * rest + SHARE_TOLERANCE
    return excess / size if excess > 0.0 else 0.0


@njit_inline
def distance_of(rule: DiversityRule, attribute: int, sorted_bins: Int64Vector) -> float:
    """Return the earth mover's distance of a cluster from the reference of one protected attribute, from 0 to 1.

    ``sorted_bins`` (m,) are the bins of its records, ascending; there is at least one. Two of m bins are apart by the
    difference of their ranks over m - 1 (ordered), by 1 (equal), or by the height of their lowest common ancestor over
    the levels below the root (hierarchical).
    """
    first, end = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1]
    if rule.distances[attribute] == ORDERED:
        cumulative = rule.cumulative[first:end]
        sums = rule.cumulative_sums[first + attribute : end + attribute + 1]
        return float(_ordered_distance(sorted_bins, cumulative, sums))
    if rule.distances[attribute] == EQUAL:
        return float(_equal_distance(sorted_bins, rule.shares[first:end]))
    return float(_hierarchical_distance(rule, sorted_bins, first, rule.levels[attribute]))


@njit_inline
def _ordered_distance(bins: Int64Vector, cumulative: Float64Vector, sums: Float64Vector) -> float:
    """Return the mean of |cumulative share in the cluster - cumulative share in the reference| over the bins.

    The first is a step function with one step per record; the second never falls. Each step crosses it at most once.
    """
    m, count = cumulative.size, bins.size
    if m == 1:
        return 0.0
    start, total = 0, 0.0
    for step in range(count + 1):
        end = bins[step] if step < count else m
        if end > start:
            height = step / count
            crossing = _first_above(cumulative, height, start, end)
            total += height * (crossing - start) - (sums[crossing] - sums[start])
            total += (sums[end] - sums[crossing]) - height * (end - crossing)
            start = end
    return max(total, 0.0) / (m - 1)


@njit_inline
def _first_above(cumulative: Float64Vector, height: float, low: int, high: int) -> int:
    """Return the first index in [low, high) with a value above ``height``; ``high`` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if cumulative[middle] > height:
            high = middle
        else:
            low = middle + 1
    return low


@njit_inline
def _equal_distance(bins: Int64Vector, shares: Float64Vector) -> float:
    """Return half the sum of |share in the cluster - share in the reference|, as 1 minus the shares both have."""
    common, x, count = 0.0, 0, bins.size
    while x < count:
        y = x
        while y < count and bins[y] == bins[x]:
            y += 1
        common += min((y - x) / count, shares[bins[x]])
        x = y
    return max(1.0 - common, 0.0)


@njit_inline
def _hierarchical_distance(rule: DiversityRule, bins: Int64Vector, first: int, levels: int) -> float:
    """Return the mean over the levels of half the sum of |share below a node in the cluster - in the reference|.

    Each edge of the tree carries that difference: the path between two leaves whose ancestor has height h has 2h edges.
    """
    total, count = 0.0, bins.size
    for level in range(levels):
        common, x = 0.0, 0
        while x < count:
            y, node = x, rule.paths[first + bins[x], level]
            while y < count and rule.paths[first + bins[y], level] == node:
                y += 1
            common += min((y - x) / count, rule.node_shares[node])
            x = y
        total += max(1.0 - common, 0.0)
    return total / levels
