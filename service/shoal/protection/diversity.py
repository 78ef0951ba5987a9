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
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import BoolVector, Float64Vector, Int8Vector, Int32Vector, Int64Matrix, Int64Vector
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
    max_value_share: float  # largest share of the people of a cluster who have one value; 1: none
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
SHARE_TOLERANCE = 1e-9  # rounding allowance, in people or records, for the largest share of a value or of a subject


class DiversityScratch(NamedTuple):
    """Scratch arrays for the check of one cluster."""

    codes: Int64Vector  # (capacity,): values or bins of the cluster, ascending, each once
    weights: Float64Vector  # (capacity,): what each of them weighs
    people: Int64Matrix  # (8, capacity): rows `PERSON` to `QUEUE`, of a cluster with several records of one person


PERSON, RECORDS, PAIRS, FIRSTS, VALUE_OF, PERSON_OF, REACHED_BY, QUEUE = range(8)


def empty_diversity_scratch(capacity: int) -> DiversityScratch:
    """Return the scratch arrays of `is_diverse` for clusters of up to ``capacity`` records."""
    return DiversityScratch(
        np.zeros(capacity, np.int64), np.zeros(capacity), np.zeros((QUEUE + 1, capacity + 1), np.int64)
    )


@njit_inner
def is_diverse(
    rule: DiversityRule,
    values: Int64Matrix,
    bins: Int64Matrix,
    subjects: Int64Vector,
    members: Int64Vector,
    scratch: DiversityScratch,
) -> bool:
    """Whether the cluster ``members`` (m,) satisfies a rule in each of q protected attributes; an empty cluster does.

    ``values`` (q, n) are the value codes of all records, of which only equality counts, and ``bins`` (q, n) their bins
    in the references, not read without t. ``subjects`` (n,) are codes, too; empty if each record is one of its own.

    People are counted. P is their number. Each weighs one, split evenly over the person's records in the cluster: w_v
    is the weight of the records with value v. h_v is the number of people who have v at all.

    - distinct: l values or more can be assigned to different people who have them,
    - entropy: -Σ (w_v / P) log(w_v / P) >= log l,
    - recursive: the largest h_v < c (r_l + r_(l+1) + ...), where r_1 >= r_2 >= ... are the w_v,
    - value share: the largest h_v <= max_value_share P,
    - t: the distance of w_v / P from the reference is at most t.

    Cost: O(m log m) per attribute, about; with an ordered reference O(m log bins) in addition, with a hierarchical one
    O(m levels), with a person of several records O(l m) for each value in distinct l-diversity.
    """
    return bool(excess_of(rule, values, bins, subjects, members, scratch, 0.0) <= 0.0)


@njit_inner
def excess_of(
    rule: DiversityRule,
    values: Int64Matrix,
    bins: Int64Matrix,
    subjects: Int64Vector,
    members: Int64Vector,
    scratch: DiversityScratch,
    enough: float,
) -> float:
    """Return by how much a cluster violates a rule: 0 if it satisfies it, and more the farther it is from that.

    It is the sum over the attributes of: the share of the l values that is missing, or what the entropy lacks in nats,
    or h - c (r_l + ...) over P; the part of the largest share that is too large; the part of the distance above t.
    Once it is above ``enough``, it may be returned without the rest. Parameters: see `is_diverse`.
    """
    total = 0.0
    if members.size == 0:
        return total
    people = _count_people(subjects, members, scratch)
    if rule.l_kind != NO_L or rule.max_value_share < 1.0:
        for attribute in range(values.shape[0]):
            total += _excess_of_values(rule, values[attribute], members, people, scratch)
            if total > enough:
                return total
    if rule.t < 1.0:
        for attribute in range(bins.shape[0]):
            distinct = _weigh(bins[attribute], members, people, scratch)
            own, weights = scratch.codes[:distinct], scratch.weights[:distinct]
            excess = distance_of(rule, attribute, own, weights, people) - rule.t
            total += excess if excess > T_TOLERANCE else 0.0
            if total > enough:
                return total
    return total


@njit_inline
def _count_people(subjects: Int64Vector, members: Int64Vector, scratch: DiversityScratch) -> int:
    """Return the people of a cluster. If one has several records, write who owns each member, and their records."""
    size = members.size
    if subjects.size == 0:
        return int(size)
    own, person, records = scratch.codes[:size], scratch.people[PERSON], scratch.people[RECORDS]
    for x in range(size):
        own[x] = subjects[members[x]]
    shell_sort(own)
    people = 0
    for x in range(size):
        if x == 0 or own[x] != own[people - 1]:
            own[people] = own[x]
            records[people] = 0
            people += 1
    if people < size:
        for x in range(size):
            person[x] = _place(own[:people], subjects[members[x]])
            records[person[x]] += 1
    return people


@njit_inline
def _place(ascending: Int64Vector, code: int) -> int:
    """Return the index of a code."""
    low, high = 0, ascending.size
    while high - low > 1:
        middle = (low + high) >> 1
        if ascending[middle] > code:
            high = middle
        else:
            low = middle
    return low


@njit_inline
def _weigh(codes: Int64Vector, members: Int64Vector, people: int, scratch: DiversityScratch) -> int:
    """Write the values of a cluster, ascending, and their weights, after `_count_people`; return their number.

    The weights are added in the order of the members, so they do not depend on the codes.
    """
    size, distinct, own, weights = members.size, 0, scratch.codes[: members.size], scratch.weights
    for x in range(size):
        own[x] = codes[members[x]]
    shell_sort(own)
    for x in range(size):
        if x == 0 or own[x] != own[distinct - 1]:
            own[distinct] = own[x]
            weights[distinct] = 0.0
            distinct += 1
        weights[distinct - 1] += 1.0
    if people < size:
        person, records, pairs = scratch.people[PERSON], scratch.people[RECORDS], scratch.people[PAIRS]
        weights[:distinct] = 0.0
        for x in range(size):
            value = _place(own[:distinct], codes[members[x]])
            weights[value] += 1.0 / records[person[x]]
            pairs[x] = value * size + person[x]
    return distinct


@njit_inline
def _excess_of_values(
    rule: DiversityRule, codes: Int64Vector, members: Int64Vector, people: int, scratch: DiversityScratch
) -> float:
    """Return the excess of the values of one attribute: that of the largest share, and that of l-diversity."""
    distinct = _weigh(codes, members, people, scratch)
    weights, largest = scratch.weights[:distinct], 0.0
    if people < members.size:
        largest = float(_group_pairs(members.size, distinct, scratch))
    else:
        for weight in weights:
            largest = max(largest, weight)
    above = largest - rule.max_value_share * people
    excess = above / people if above > SHARE_TOLERANCE else 0.0
    if rule.l_kind == DISTINCT:
        if people < members.size:
            distinct = _count_assigned(members.size, distinct, people, rule.l, scratch)
        excess += max(1.0 - distinct / rule.l, 0.0)
    elif rule.l_kind != NO_L:
        shell_sort(weights)  # sums in this order do not depend on the codes
        excess += _excess_of_weights(rule, weights, largest, people)
    return excess


@njit_inline
def _group_pairs(size: int, distinct: int, scratch: DiversityScratch) -> int:
    """Group the pairs of a value and a person by value, each once; return the most people who have one value."""
    pairs, firsts = scratch.people[PAIRS, :size], scratch.people[FIRSTS]
    shell_sort(pairs)
    count, value, largest = 0, -1, 0
    for x in range(size):
        if x == 0 or pairs[x] != pairs[count - 1]:
            if pairs[x] // size != value:
                value += 1
                firsts[value] = count
            pairs[count] = pairs[x]
            count += 1
            largest = max(largest, count - firsts[value])
    firsts[distinct] = count
    return largest


@njit_inline
def _count_assigned(size: int, distinct: int, people: int, enough: float, scratch: DiversityScratch) -> int:
    """Return how many values can be assigned to different people who have them, at most ``enough``."""
    scratch.people[VALUE_OF, :people] = -1
    assigned = 0
    for value in range(distinct):
        if assigned >= enough:
            break
        assigned += _assign(value, size, people, scratch)
    return assigned


@njit_inner
def _assign(value: int, size: int, people: int, scratch: DiversityScratch) -> bool:
    """Assign one more value to a person, others to other people if needed: an augmenting path, by breadth."""
    pairs, firsts, queue = scratch.people[PAIRS], scratch.people[FIRSTS], scratch.people[QUEUE]
    value_of, person_of, reached_by = scratch.people[VALUE_OF], scratch.people[PERSON_OF], scratch.people[REACHED_BY]
    reached_by[:people] = -1
    queue[0], done, waiting = value, 0, 1
    while done < waiting:
        current = queue[done]
        done += 1
        for x in range(firsts[current], firsts[current + 1]):
            person = pairs[x] % size
            if reached_by[person] >= 0:
                continue
            reached_by[person] = current
            if value_of[person] < 0:
                while reached_by[person] != value:
                    freed = person_of[reached_by[person]]
                    value_of[person], person_of[reached_by[person]] = reached_by[person], person
                    person = freed
                value_of[person], person_of[value] = value, person
                return True
            queue[waiting] = value_of[person]
            waiting += 1
    return False


@njit_inline
def _excess_of_weights(rule: DiversityRule, weights: Float64Vector, largest: float, people: int) -> float:
    """Return the excess of entropy or recursive l-diversity; ``weights`` are those of the values, ascending."""
    if rule.l_kind == ENTROPY:
        total = 0.0
        for weight in weights:
            total += weight * math.log(weight)
        excess = math.log(rule.l) - (math.log(people) - total / people)
        return excess if excess > ENTROPY_TOLERANCE else 0.0
    rest = 0.0
    for x in range(weights.size - int(rule.l) + 1):  # the weights but the l - 1 largest
        rest += weights[x]
    excess = largest - rule.c * rest + SHARE_TOLERANCE
    return excess / people if excess > 0.0 else 0.0


@njit_inline
def distance_of(
    rule: DiversityRule, attribute: int, sorted_bins: Int64Vector, weights: Float64Vector, people: int
) -> float:
    """Return the earth mover's distance of a cluster from the reference of one protected attribute, from 0 to 1.

    ``sorted_bins`` (m,) ascend, and are one or more; ``weights`` (m,) are what each weighs, ``people`` their sum. Two
    of b bins are apart by the difference of their ranks over b - 1 (ordered), by 1 (equal), or by the height of their
    lowest common ancestor over the levels below the root (hierarchical).
    """
    first, end = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1]
    if rule.distances[attribute] == ORDERED:
        cumulative = rule.cumulative[first:end]
        sums = rule.cumulative_sums[first + attribute : end + attribute + 1]
        return float(_ordered_distance(sorted_bins, weights, people, cumulative, sums))
    if rule.distances[attribute] == EQUAL:
        return float(_equal_distance(sorted_bins, weights, people, rule.shares[first:end]))
    return float(_hierarchical_distance(rule, sorted_bins, weights, people, first, rule.levels[attribute]))


@njit_inline
def _ordered_distance(
    bins: Int64Vector, weights: Float64Vector, people: int, cumulative: Float64Vector, sums: Float64Vector
) -> float:
    """Return the mean of |cumulative share in the cluster - cumulative share in the reference| over the bins.

    The first is a step function with one step per bin of the cluster; the second never falls. Each step crosses it at
    most once.
    """
    m, count = cumulative.size, bins.size
    if m == 1:
        return 0.0
    start, total, below = 0, 0.0, 0.0
    for step in range(count + 1):
        end = bins[step] if step < count else m
        if end > start:
            height = below / people
            crossing = _first_above(cumulative, height, start, end)
            total += height * (crossing - start) - (sums[crossing] - sums[start])
            total += (sums[end] - sums[crossing]) - height * (end - crossing)
            start = end
        if step < count:
            below += weights[step]
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
def _equal_distance(bins: Int64Vector, weights: Float64Vector, people: int, shares: Float64Vector) -> float:
    """Return half the sum of |share in the cluster - share in the reference|, as 1 minus the shares both have."""
    common, x, count = 0.0, 0, bins.size
    while x < count:
        y, weight = x, 0.0
        while y < count and bins[y] == bins[x]:
            weight += weights[y]
            y += 1
        common += min(weight / people, shares[bins[x]])
        x = y
    return max(1.0 - common, 0.0)


@njit_inline
def _hierarchical_distance(
    rule: DiversityRule, bins: Int64Vector, weights: Float64Vector, people: int, first: int, levels: int
) -> float:
    """Return the mean over the levels of half the sum of |share below a node in the cluster - in the reference|.

    Each edge of the tree carries that difference: the path between two leaves whose ancestor has height h has 2h edges.
    """
    total, count = 0.0, bins.size
    for level in range(levels):
        common, x = 0.0, 0
        while x < count:
            y, weight, node = x, 0.0, rule.paths[first + bins[x], level]
            while y < count and rule.paths[first + bins[y], level] == node:
                weight += weights[y]
                y += 1
            common += min(weight / people, rule.node_shares[node])
            x = y
        total += max(1.0 - common, 0.0)
    return total / levels


# People and values of finished clusters, counted by sorting: for the last checks, and for figures of a release. The
# definitions are those of `is_diverse`; no function is shared with the kernels above, which form clusters.

LAST_CHECK_TOLERANCE = 1e-9  # rounding allowance for counts of people, shares times counts, entropies and distances


class ClusterPeople(NamedTuple):
    """The people of G clusters of n records."""

    clusters: Int64Vector  # (n,): cluster of each record, from 0; none is empty
    persons: Int64Vector  # (n,): a number for each person in each cluster
    weights: Float64Vector  # (n,): one over the records that the person has in the cluster
    counts: Int64Vector  # (G,)


def people_of(labels: Int32Vector | Int64Vector, subjects: Int64Vector | None) -> ClusterPeople:
    """Return the people of clusters; without ``subjects`` each record is a person. O(n log n)."""
    clusters = labels.astype(np.int64)
    if subjects is None:
        return ClusterPeople(clusters, np.arange(len(clusters)), np.ones(len(clusters)), np.bincount(clusters))
    order = np.lexsort((subjects, clusters))
    owners, own = clusters[order], subjects[order]
    is_first = np.append(True, (owners[1:] != owners[:-1]) | (own[1:] != own[:-1]))[: len(order)]
    persons = np.empty(len(order), np.int64)
    persons[order] = np.cumsum(is_first) - 1
    return ClusterPeople(clusters, persons, 1 / np.bincount(persons)[persons], np.bincount(owners[is_first]))


class CountedValues:
    """The values of one attribute in clusters: what they weigh, and how many people have them. O(n log n)."""

    def __init__(self, values: Int64Vector, people: ClusterPeople) -> None:
        self._people = people
        order = np.lexsort((people.persons, values, people.clusters))
        clusters, codes, persons = people.clusters[order], values[order], people.persons[order]
        is_value = np.append(True, (clusters[1:] != clusters[:-1]) | (codes[1:] != codes[:-1]))
        is_pair = is_value | np.append(True, persons[1:] != persons[:-1])
        starts = np.flatnonzero(is_value)
        self._owners = clusters[starts]
        self._weights: Float64Vector = np.add.reduceat(people.weights[order], starts)
        self._holders = np.add.reduceat(is_pair.astype(np.int64), starts)
        self._persons = persons[is_pair]

    @property
    def largest(self) -> Int64Vector:
        """The most people of each cluster who have one value."""
        found = np.zeros(len(self._people.counts), np.int64)
        np.maximum.at(found, self._owners, self._holders)
        return found

    @property
    def distinct(self) -> Int64Vector:
        """The values of each cluster that can be assigned to different people who have them."""
        found = np.bincount(self._owners)
        last, ends = np.cumsum(found), np.cumsum(self._holders)
        for cluster in np.flatnonzero(self._people.counts < np.bincount(self._people.clusters)).tolist():
            own = range(last[cluster] - found[cluster], last[cluster])
            groups = [self._persons[ends[value] - self._holders[value] : ends[value]].tolist() for value in own]
            found[cluster] = count_assigned(groups)
        return found

    def satisfy(self, diversity: LDiversity) -> BoolVector:
        """Return which clusters are diverse."""
        counts, owners, weights = self._people.counts, self._owners, self._weights
        if diversity.kind == DISTINCT:
            return np.asarray(self.distinct >= diversity.l, np.bool_)
        if diversity.kind == ENTROPY:
            shares = weights / counts[owners]
            entropies = np.bincount(owners, -shares * np.log(shares), len(counts))
            return np.asarray(entropies >= np.log(diversity.l) - LAST_CHECK_TOLERANCE, np.bool_)
        order = np.lexsort((-weights, owners))
        first = np.searchsorted(owners[order], np.arange(len(counts)))
        rare = order[np.arange(len(order)) - first[owners[order]] >= diversity.l - 1]
        rest = np.bincount(owners[rare], weights[rare], len(counts))
        return np.asarray(self.largest < diversity.c * rest - LAST_CHECK_TOLERANCE, np.bool_)


def count_assigned(people_of_value: Sequence[Sequence[int]]) -> int:
    """Return how many values can be assigned to different people, given who has each. O(values × pairs)."""
    value_of: dict[int, int] = {}
    person_of: dict[int, int] = {}
    for first in range(len(people_of_value)):
        reached: dict[int, int] = {}
        queue, free = deque([first]), None
        while queue and free is None:
            value = queue.popleft()
            for person in people_of_value[value]:
                if person not in reached:
                    reached[person] = value
                    if person not in value_of:
                        free = person
                        break
                    queue.append(value_of[person])
        while free is not None:  # each person on the path takes the value from which it was reached
            value = value_of[free] = reached[free]
            person_of[value], free = free, person_of.get(value)
    return len(value_of)
