"""What every cluster must satisfy besides its size, and how a partition is merged until its clusters do.

`ClusterConstraints` is what a caller states. `ConstraintArrays` is the same for the kernels that change a partition.

References
----------
.. [1] N. Li, T. Li and S. Venkatasubramanian, "t-Closeness: Privacy Beyond k-Anonymity and l-Diversity", ICDE 2007.
   doi:10.1109/ICDE.2007.367856
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.kd_tree import neighbours_of
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    ENTROPY_TOLERANCE,
    EQUAL,
    ORDERED,
    SHARE_TOLERANCE,
    T_TOLERANCE,
    DiversityRule,
    DiversityScratch,
    LDiversity,
    ValueReference,
    build_diversity_rule,
    distance_of,
    empty_diversity_scratch,
    excess_of,
    is_diverse,
    people_of,
)
from shoal.tables.measures import centroids_of


class ValueCounts(NamedTuple):
    """In how many records each value occurs in each cluster, cluster after cluster, the most frequent value first."""

    counts: Int64Vector  # (entries,): records with one value in one cluster
    starts: Int64Vector  # (clusters,): where the counts of each cluster begin
    sizes: Int64Vector  # (clusters,): records of each cluster

    @property
    def distinct(self) -> Int64Vector:
        """Different values of each cluster."""
        return np.diff(np.append(self.starts, len(self.counts)))

    @property
    def largest(self) -> Int64Vector:
        """Records with the most frequent value of each cluster."""
        return self.counts[self.starts]

    def satisfy(self, l: LDiversity | None, max_value_share: float | None) -> BoolVector:  # noqa: E741
        """Return which clusters, of one record per person, satisfy l-diversity and the largest share of a value."""
        fine: BoolVector = np.ones(len(self.sizes), np.bool_)
        if max_value_share is not None:
            fine &= self.largest <= max_value_share * self.sizes + SHARE_TOLERANCE
        if l is None:
            return fine
        if l.kind == DISTINCT:
            fine &= self.distinct >= l.l
        elif l.kind == ENTROPY:
            products = np.add.reduceat(self.counts * np.log(self.counts), self.starts)
            fine &= np.log(self.sizes) - products / self.sizes >= np.log(l.l) - ENTROPY_TOLERANCE
        else:
            ranks = np.arange(len(self.counts)) - np.repeat(self.starts, self.distinct)
            rest = np.add.reduceat(np.where(ranks >= int(l.l) - 1, self.counts, 0), self.starts)
            fine &= self.largest < l.c * rest - SHARE_TOLERANCE
        return fine


def count_values(codes: Int64Vector, labels: Int32Vector) -> ValueCounts:
    """Count the values of each cluster; ``codes`` (n,) are those of the records. No cluster is empty. O(n log n)."""
    order = np.lexsort((codes, labels))
    cluster, code = labels[order], codes[order]
    firsts = np.flatnonzero(np.append(True, (cluster[1:] != cluster[:-1]) | (code[1:] != code[:-1])))
    counts, owners = np.diff(np.append(firsts, len(labels))), cluster[firsts]
    by_count = np.lexsort((-counts, owners))
    starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
    return ValueCounts(counts[by_count], starts, np.bincount(labels))


class ConfidentialAttribute(NamedTuple):
    """One confidential attribute of n records.

    Attributes
    ----------
    bins : ndarray of int64, shape (n,)
        Bin of each value in the reference, 0 to m - 1; ordered bins ascend, and equal values have equal bins.
    ordered : bool
        Without ``reference``: whether the values are ordered, and neighbouring values are 1 / (m - 1) apart. Otherwise
        they are categories, and any two of them are 1 apart.
    reference : ValueReference, optional
        What the distribution in a cluster is compared with, and the distance of two bins. By default the distribution
        in the table, and the distance that ``ordered`` says.
    values : ndarray of int64, shape (n,), optional
        Code of each value, of which only equality counts; for l-diversity and the largest share of a value. By default
        the bins. It is needed where different values have one bin of a given reference.
    """

    bins: Int64Vector
    ordered: bool
    reference: ValueReference | None = None
    values: Int64Vector | None = None

    @property
    def codes(self) -> Int64Vector:
        """Code of each value (n,)."""
        return self.bins if self.values is None else self.values

    def compared_with(self, subjects: Int64Vector | None = None) -> ValueReference:
        """Return the reference; by default that of the table, in which each of the ``subjects`` weighs one. O(n)."""
        if self.reference is not None:
            return self.reference
        weights: NDArray[np.int64] | Float64Vector = np.bincount(self.bins)
        if subjects is not None:
            weights = np.bincount(self.bins, person_weights(subjects))
        return ValueReference(ORDERED if self.ordered else EQUAL, weights)


def person_weights(subjects: Int64Vector) -> Float64Vector:
    """Return for each record of a table one over the records of its subject, shape (n,)."""
    return people_of(np.zeros(len(subjects), np.int64), subjects).weights


def emd_of_clusters(
    attribute: ConfidentialAttribute, labels: Int32Vector, subjects: Int64Vector | None = None
) -> Float64Vector:
    """Return the earth mover's distance of each cluster from the reference, for one attribute.

    Parameters
    ----------
    attribute : ConfidentialAttribute
        Of n records.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0; no cluster is empty.
    subjects : ndarray of int64, shape (n,), optional
        Subject of each record: each weighs one in each of its clusters. By default each record is another subject.

    Returns
    -------
    ndarray of float64, shape (clusters,)
        Distances from 0 to 1.

    Notes
    -----
    Ordered values: the mean, over the distinct values but the last, of the absolute difference of the two cumulative
    shares (formula (1) of [1]_). Categories: half the sum of the absolute differences of the shares. With a taxonomy:
    the mean of the latter over its levels.
    Cost: O(n log n).

    References
    ----------
    .. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of
       Data Sets and Data Streams", ICDM Workshops 2017. doi:10.1109/ICDMW.2017.141
    """
    rule = build_diversity_rule([attribute.compared_with(subjects)], t=0.0)
    order = np.lexsort((attribute.bins, labels))
    bounds = np.append(0, np.cumsum(np.bincount(labels)))
    people = people_of(labels, subjects)
    return cluster_distances(rule, attribute.bins[order], people.weights[order], bounds, people.counts)


@njit
def cluster_distances(
    rule: DiversityRule, bins: Int64Vector, weights: Float64Vector, bounds: Int64Vector, people: Int64Vector
) -> Float64Vector:
    """Return the distance of each cluster from the reference; ``bins`` (n,) ascend within each, and have weights."""
    found = np.empty(bounds.size - 1)
    for cluster in range(found.size):
        own = slice(bounds[cluster], bounds[cluster + 1])
        found[cluster] = distance_of(rule, 0, bins[own], weights[own], people[cluster])
    return found


NONE = -1  # in place of a record or a cluster: there is none
LEAF_SIZE = 64
CANDIDATES = 8  # nearest clusters that a cluster may be merged with in one round
PARTNERS = 32  # nearest clusters that are tried one by one if people have records in several clusters
SEQUENTIAL_BELOW, PAIRING_ROUNDS = 16, 20
"""With so few violating clusters, or after so many rounds of pairing, clusters are merged one at a time."""


@dataclass(frozen=True, slots=True)
class ClusterConstraints:
    """What every cluster of n records must satisfy besides having k records. By default nothing.

    Attributes
    ----------
    subjects : ndarray of int64, shape (n,), optional
        Subject of each record, as codes from 0. A cluster must then have k different subjects, who are the people that
        ``t``, ``l`` and ``max_value_share`` count. By default each record is another subject.
    max_share : float
        Largest share of a cluster's records that one subject may own, above 0, at most 1.
    confidential : tuple of ConfidentialAttribute
        Protected attributes: each must satisfy ``t``, ``l`` and ``max_value_share``.
    t : float, optional
        Largest earth mover's distance of a cluster from the reference (t-closeness).
    l : LDiversity, optional
        l-diversity of each cluster.
    max_value_share : float, optional
        Largest share of the people of a cluster who have one value, above 0, at most 1.
    buckets : ndarray of int64, shape (n,), optional
        Bucket of each record. Refinement may then swap two records of one bucket, and change nothing else.
    """

    subjects: Int64Vector | None = None
    max_share: float = 1.0
    confidential: tuple[ConfidentialAttribute, ...] = ()
    t: float | None = None
    buckets: Int64Vector | None = None
    l: LDiversity | None = None  # noqa: E741 - the letter of the literature
    max_value_share: float | None = None

    @property
    def are_none(self) -> bool:
        """Whether every partition into clusters of k records satisfies them."""
        return self.subjects is None and self.t is None and not self.limit_values

    @property
    def limit_values(self) -> bool:
        """Whether l-diversity or a largest share of a value is stated."""
        return self.l is not None or self.max_value_share is not None

    def of(self, records: Int64Vector) -> ClusterConstraints:
        """Return what every cluster of some of the records must satisfy; references stay those of the table."""
        confidential = tuple(
            attribute._replace(
                bins=attribute.bins[records],
                reference=attribute.compared_with(self.subjects) if self.t is not None else attribute.reference,
                values=None if attribute.values is None else attribute.values[records],
            )
            for attribute in self.confidential
        )
        subjects = None if self.subjects is None else self.subjects[records]
        buckets = None if self.buckets is None else self.buckets[records]
        return replace(self, subjects=subjects, confidential=confidential, buckets=buckets)

    def arrays(self, order: Int64Vector) -> ConstraintArrays:
        """Return them for the kernels, for the records that ``order`` lists, in its order."""
        most = len(order) + 1
        arrays = no_constraints()._replace(members=np.zeros(most, np.int64), scratch=empty_diversity_scratch(most))
        if self.subjects is not None:
            counts = np.zeros(int(self.subjects.max()) + 1, np.int64)
            arrays = arrays._replace(subjects=self.subjects[order], max_share=self.max_share, counts=counts)
        if self.t is not None or self.limit_values:
            given = () if self.t is None else self.confidential
            references = [attribute.compared_with(self.subjects) for attribute in given]
            rule = build_diversity_rule(references, l=self.l, max_value_share=self.max_value_share, t=self.t)
            arrays = arrays._replace(rule=rule)
        if self.t is not None:
            arrays = arrays._replace(bins=np.stack([attribute.bins[order] for attribute in self.confidential]))
        if self.limit_values:
            arrays = arrays._replace(values=np.stack([attribute.codes[order] for attribute in self.confidential]))
        return arrays if self.buckets is None else arrays._replace(buckets=self.buckets[order])


def violating_clusters(labels: Int32Vector, k: int, constraints: ClusterConstraints) -> BoolVector:
    """Return which clusters have fewer than k records or violate a constraint, shape (clusters,). O(n log n)."""
    sizes, is_single = np.bincount(labels), True
    violating, too_few = np.zeros(len(sizes), np.bool_), sizes < k
    if constraints.subjects is not None:
        owners = count_values(constraints.subjects, labels)
        too_few |= (owners.distinct < k) | (owners.largest > constraints.max_share * sizes + SHARE_TOLERANCE)
        is_single = bool((owners.distinct == sizes).all())
    if constraints.t is not None:
        for attribute in constraints.confidential:
            violating |= emd_of_clusters(attribute, labels, constraints.subjects) > constraints.t + T_TOLERANCE
    if constraints.limit_values and is_single:
        for attribute in constraints.confidential:
            counts = count_values(attribute.codes, labels)
            violating |= ~counts.satisfy(constraints.l, constraints.max_value_share)
    elif constraints.limit_values:
        order = np.argsort(labels, kind="stable")
        mark_violating(replace(constraints, t=None).arrays(order), np.cumsum(sizes), violating)
    return violating | too_few


@njit
def mark_violating(constraints: ConstraintArrays, ends: Int64Vector, violating: BoolVector) -> None:
    """Mark the clusters whose values violate the constraints; cluster g of the records in their order ends so."""
    start = 0
    for cluster in range(ends.size):
        members = constraints.members[: ends[cluster] - start]
        for x in range(members.size):
            members[x] = start + x
        if not violating[cluster]:
            violating[cluster] = not _satisfies_rule(constraints, constraints.rule, constraints.subjects, members)
        start = ends[cluster]


def merge_until_feasible(
    values: Float64Matrix, labels: Int32Vector, k: int, constraints: ClusterConstraints
) -> Int32Vector:
    """Merge violating clusters with their nearest until no cluster violates a constraint, or one cluster is left.

    Guarantee: all clusters satisfy the constraints if the whole table, as one cluster, does. If no person has records
    in both of two clusters, merging them never raises the larger of their two shares, of subjects and of values, or of
    their two distances from the reference. Otherwise it may: the caller checks what is left.
    Each round merges pairs of near clusters, so that clusters do not grow into one chain. The last few are merged with
    as many of their nearest as they need in one step: otherwise a subject that owns half of the table would take one
    round per neighbour. Cost: O(n log n) per round, a few rounds.
    """
    for number in count():
        violating = violating_clusters(labels, k, constraints)
        if not violating.any() or len(violating) == 1:
            break
        if violating.sum() <= SEQUENTIAL_BELOW or number >= PAIRING_ROUNDS:
            labels = _merge_one(values, labels, k, constraints, int(np.flatnonzero(violating)[0]))
            continue
        centroids = np.ascontiguousarray(centroids_of(values, labels))
        nearest = neighbours_of(centroids, min(CANDIDATES, len(centroids) - 1), LEAF_SIZE)
        merged = np.unique(_pair_clusters(nearest, violating), return_inverse=True)[1]
        labels = merged.astype(np.int32)[labels]
    return labels


def _merge_one(
    values: Float64Matrix, labels: Int32Vector, k: int, constraints: ClusterConstraints, cluster: int
) -> Int32Vector:
    """Merge one cluster with as few of those nearest to its centroid as make it feasible, at least one.

    If the nearest one has people in common with it, one of the next that makes it feasible is preferred.
    """
    centroids = centroids_of(values, labels)
    away = ((centroids - centroids[cluster]) ** 2).sum(axis=1)
    away[cluster] = -1.0
    ranks = np.empty(len(away), np.int64)
    ranks[np.argsort(away, kind="stable")] = np.arange(len(away))
    order = ranks[labels]
    partner = _feasible_partner(order, k, constraints)
    if partner != NONE:
        order = np.where(order == partner, 0, order - (order > partner))
        return order.astype(np.int32)

    def is_feasible(others: int) -> bool:
        return not violating_clusters((order > others).astype(np.int32), k, constraints)[0]

    low, high = 0, 1
    while high < len(away) - 1 and not is_feasible(high):
        low, high = high, min(2 * high, len(away) - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_feasible(middle) else (middle, high)
    return np.maximum(order - high, 0).astype(np.int32)


def _feasible_partner(order: Int64Vector, k: int, constraints: ClusterConstraints) -> int:
    """Return the nearest cluster with which cluster 0 is feasible; -1 if none is, or people do not repeat."""
    if constraints.subjects is None or (constraints.t is None and not constraints.limit_values):
        return NONE
    own = np.flatnonzero(order == 0)
    for other in range(1, min(PARTNERS, int(order.max())) + 1):
        both = np.append(own, np.flatnonzero(order == other))
        if other == 1 and len(np.unique(constraints.subjects[both])) == len(both):
            return NONE
        if not violating_clusters(np.zeros(len(both), np.int32), k, constraints.of(both))[0]:
            return other
    return NONE


def records_above_share(subjects: Int64Vector, max_share: float, values: Float64Matrix) -> BoolVector:
    """Return the records to suppress so that no subject owns more than its share of the whole table.

    Parameters
    ----------
    subjects : ndarray of int64, shape (n,)
        Subject of each record, as codes.
    max_share : float
        Largest share of the remaining records that one subject may own.
    values : ndarray of float64, shape (n, d)
        Coordinates.

    Returns
    -------
    ndarray of bool, shape (n,)
        As few records as possible. If every subject keeps at most c records, c is the largest number that is no more
        than its share of what remains. Of a subject above c, the records farthest from the centroid of the table are
        suppressed; ties go to the later records. O(n log n).
    """
    _, own, counts = np.unique(subjects, return_inverse=True, return_counts=True)
    low, high = 1, int(counts.max())
    while low < high:
        middle = (low + high + 1) // 2
        if middle <= max_share * np.minimum(counts, middle).sum() + SHARE_TOLERANCE:
            low = middle
        else:
            high = middle - 1
    if low == counts.max():
        return np.zeros(len(subjects), np.bool_)
    away = ((values - values.mean(axis=0)) ** 2).sum(axis=1)
    order = np.lexsort((np.arange(len(subjects)), away, own))
    ranks = np.arange(len(subjects)) - np.repeat(np.cumsum(counts) - counts, counts)
    suppressed = np.zeros(len(subjects), np.bool_)
    suppressed[order[ranks >= low]] = True
    return suppressed


@njit
def _pair_clusters(neighbours: Int32Matrix, violating: BoolVector) -> Int64Vector:
    """Return the cluster that each becomes part of: a violating one takes the nearest that is in no pair yet."""
    target, paired = np.arange(violating.size), np.zeros(violating.size, np.bool_)
    for cluster in range(violating.size):
        if not violating[cluster] or paired[cluster]:
            continue
        for other in neighbours[cluster]:
            if not paired[other]:
                paired[cluster] = paired[other] = True
                target[cluster] = other
                break
    return target


class ConstraintArrays(NamedTuple):
    """The constraints of n records for the kernels; an empty array states none, and no code is compiled for no rule."""

    subjects: Int64Vector  # (n,): subject of each record, as codes from 0
    max_share: float
    rule: DiversityRule | None
    values: Int64Matrix  # (q, n): value codes, for l-diversity and the largest share of a value
    bins: Int64Matrix  # (q, n): bins, for t-closeness
    buckets: Int64Vector  # (n,): only two records of one bucket may swap, and nothing else may change
    members: Int64Vector  # (capacity,): scratch, members of the cluster that is being checked
    scratch: DiversityScratch
    counts: Int64Vector  # (subjects,): scratch, zero between two checks


def no_constraints() -> ConstraintArrays:
    """Return arrays that state no constraint."""
    codes, none = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
    return ConstraintArrays(codes, 1.0, None, none, none, codes, codes, empty_diversity_scratch(0), codes)


@njit
def is_unconstrained(constraints: ConstraintArrays) -> bool:
    """Whether no constraint is stated."""
    return (
        constraints.subjects.size == 0
        and constraints.values.shape[0] == 0
        and constraints.bins.shape[0] == 0
        and constraints.buckets.size == 0
    )


@njit_inline
def satisfies_constraints(
    constraints: ConstraintArrays, members: Int64Vector, leaving: int, joining: int, k: int
) -> bool:
    """Whether a cluster satisfies the constraints without one member and with another record; -1 stands for neither."""
    count = _collect(constraints, members, leaving, joining)
    if count == 0:
        return True
    violation, people = _check_subjects(constraints, count, k)
    if violation > 0:
        return False
    # Without a person of several records each record is a person, which takes less time.
    subjects = constraints.subjects if people < count else constraints.subjects[:0]
    return bool(_satisfies_rule(constraints, constraints.rule, subjects, constraints.members[:count]))


@njit_inner
def excess_of_constraints(
    constraints: ConstraintArrays, members: Int64Vector, leaving: int, joining: int, k: int
) -> float:
    """Return `excess_of` of the rule plus the violation of the constraints on subjects, as of `subject_violation`."""
    count = _collect(constraints, members, leaving, joining)
    violation, people = _check_subjects(constraints, count, k)
    excess = float(violation)
    if constraints.rule is not None:
        subjects = constraints.subjects if people < count else constraints.subjects[:0]
        values, bins, own = constraints.values, constraints.bins, constraints.members[:count]
        excess += excess_of(constraints.rule, values, bins, subjects, own, constraints.scratch, np.inf)
    return excess


@njit_inline
def _collect(constraints: ConstraintArrays, members: Int64Vector, leaving: int, joining: int) -> int:
    """Write members without one and with another record to the scratch and return their number."""
    kept, count = constraints.members, 0
    for x in range(members.size):
        if members[x] != leaving:
            kept[count] = members[x]
            count += 1
    if joining != NONE:
        kept[count] = joining
        count += 1
    return count


@njit_inner
def _satisfies_rule(
    constraints: ConstraintArrays, rule: DiversityRule | None, subjects: Int64Vector, members: Int64Vector
) -> bool:
    """Whether a cluster satisfies a rule, if there is one: the rest is not compiled for a rule that is None."""
    if rule is None:
        return True
    return bool(is_diverse(rule, constraints.values, constraints.bins, subjects, members, constraints.scratch))


@njit_inline
def _check_subjects(constraints: ConstraintArrays, count: int, k: int) -> tuple[int, int]:
    """Return the violation of the constraints on subjects by the collected cluster, and how many it has."""
    if constraints.subjects.size == 0:
        return 0, count
    records, counts = constraints.members[:count], constraints.counts
    _, distinct, most = _count_subjects(constraints.subjects, counts, records, NONE, NONE)
    return _violation(count, distinct, most, constraints.max_share, k), distinct


@njit_inline
def subject_violation(
    subjects: Int64Vector,
    tally: Int64Vector,
    members: Int64Vector,
    leaving: int,
    joining: int,
    max_share: float,
    k: int,
) -> int:
    """Return how many subjects a cluster lacks, plus the records of one subject above its share; 0 if none. O(m).

    ``leaving`` is left out and ``joining`` counted; -1 for none. ``tally``: a zero per subject, before and after.
    """
    size, distinct, most = _count_subjects(subjects, tally, members, leaving, joining)
    return _violation(size, distinct, most, max_share, k)


@njit_inline
def _violation(size: int, distinct: int, most: int, max_share: float, k: int) -> int:
    above = 0
    if most > max_share * size + SHARE_TOLERANCE:
        above = max(1, int(np.ceil(most - max_share * size - SHARE_TOLERANCE)))
    return max(0, k - distinct) + above


@njit_inline
def _count_subjects(
    subjects: Int64Vector, tally: Int64Vector, members: Int64Vector, leaving: int, joining: int
) -> tuple[int, int, int]:
    """Return the records of a cluster, its subjects, and most records of one; arguments as of `subject_violation`."""
    size, distinct, most = 0, 0, 0
    for x in range(members.size + 1):
        record = joining if x == members.size else members[x]
        if record != NONE and record != leaving:  # noqa: PLR1714 - a tuple would not be inlined
            tally[subjects[record]] += 1
            distinct += tally[subjects[record]] == 1
            most = max(most, tally[subjects[record]])
            size += 1
    for x in range(members.size + 1):
        record = joining if x == members.size else members[x]
        if record != NONE:
            tally[subjects[record]] = 0
    return size, distinct, most
