"""Checks the members of clusters, of the evidence or inferred, and recomputes the rows that they must have become."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.audit.evidence import EvidenceCluster
from shoal.audit.fields import FIELD_SEPARATOR, ChosenTexts, Int32Vector, Int64Vector
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.scales import PublishedCategories, PublishedValues
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import PerSubject, Policy

BoolVector: TypeAlias = npt.NDArray[np.bool_]
SHARE_TOLERANCE = Fraction(1, 10**9)
"""The limit is a float64 and a share is a ratio: a share this far above the limit is accepted."""
_MEMBERS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Which originals exceed a limit of the policy, computed once for all checks."""

    exceeds_quota: BoolVector  # usable, and not among the first ones that ``privacy.per_subject`` admits
    is_too_large: BoolVector  # the smallest possible size exceeds ``kafka.max_record_bytes``
    may_be_too_large: BoolVector  # the largest possible size does

    @classmethod
    def of(cls, policy: Policy, originals: Originals) -> AdmissionLimits:
        """Count what each subject sent in each quota window. Cost: O(n log n)."""
        is_too_large, may_be_too_large = originals.is_above_limit.T
        is_counted = (originals.subjects != UNUSABLE) & ~is_too_large
        return cls(_exceeds_quota(policy.per_subject, originals, is_counted), is_too_large, may_be_too_large)


@dataclass(frozen=True, slots=True)
class RecomputedCluster:
    """A cluster with the rows that it must have become."""

    partition: int
    label: int | str
    members: Int64Vector  # indices of usable originals
    quasi: str  # text of the recomputed quasi-identifiers, the same for all members
    unchanged: Collection[str]  # texts of the unchanged fields of each member
    number: int = 0


@dataclass(slots=True)
class RecomputedClusters:
    """All clusters that have members, the checks on them, and figures that a summary may state."""

    clusters: list[RecomputedCluster]
    checks: list[CheckCounter]
    is_released: BoolVector  # (n,): which originals are members of a cluster
    count: int = 0  # with the clusters that have no usable member
    fewest_subjects: int | None = None
    largest_share: float | None = None


def clusters_by_partition(clusters: Iterable[RecomputedCluster]) -> defaultdict[int, list[RecomputedCluster]]:
    """Return the clusters of each partition, in their order."""
    found: defaultdict[int, list[RecomputedCluster]] = defaultdict(list)
    for cluster in clusters:
        found[cluster.partition].append(cluster)
    return found


def has_repeated_numbers(clusters: Sequence[RecomputedCluster]) -> bool:
    """Whether two of these clusters, all of one partition, have the same number in the evidence."""
    return len({cluster.number for cluster in clusters}) < len(clusters)


def released_above_limit(limits: AdmissionLimits, found: RecomputedClusters) -> list[str]:
    """Return the question that is open if records above the limit were released: the service had another limit."""
    count = int(np.count_nonzero(limits.is_too_large & found.is_released))
    if not count:
        return []
    remedy = "set it in the policy to the limit of the service"
    return [f"{counted(count, 'record')} released although larger than kafka.max_record_bytes: {remedy}"]


def check_clusters(
    policy: Policy,
    originals: Originals,
    evidence_clusters: Iterable[EvidenceCluster],
    published: Sequence[PublishedValues],
    limits: AdmissionLimits,
) -> RecomputedClusters:
    """Check the members of each cluster and recompute its rows. Cost: O(n) time and memory."""
    existing = CheckCounter("existing", "clusters hold only records that exist and fit the policy", "cluster")
    once = CheckCounter("once", "every record is in at most one cluster", "cluster")
    subjects = CheckCounter("subjects", f"every cluster holds at least {policy.k} different subjects", "cluster")
    shares = CheckCounter("share", f"no subject owns more than {policy.max_share:g} of a cluster", "cluster")
    stated = list(evidence_clusters)
    found = RecomputedClusters([], [subjects, shares, once, existing], np.zeros(len(originals), np.bool_), len(stated))
    if not stated:
        return found

    def label(place: int) -> int | str:
        return stated[place].label

    named = np.array([len(cluster.offsets) for cluster in stated])
    members, place_of = _usable_members(originals, stated, named)
    sizes = np.bincount(place_of, minlength=len(stated))
    # A service may have another limit than the policy states.
    refused = np.zeros(len(originals), np.bool_) if originals.is_export else limits.is_too_large
    existing.expect_all((sizes == named) & ~_holds(refused[members], place_of, len(stated)), label)
    once.expect_all(~_holds(_is_repeated(members, len(originals)), place_of, len(stated)), label)
    found.is_released[members] = True
    people, most = _count_people(originals.subjects[members], place_of, len(stated))
    subjects.expect_all(people >= policy.k, label)
    subjects.worst = found.fewest_subjects = int(people.min())
    _check_shares(policy, most, sizes, shares, label)
    found.largest_share = shares.worst
    for column, one in enumerate(published):
        if isinstance(one, PublishedCategories):
            codes = originals.values[found.is_released, column]
            one.categories.counts = Counter(codes[~np.isnan(codes)].tolist())
    chosen = np.flatnonzero(sizes)
    quasi = _centroids(originals, members, sizes[chosen], published)
    ends = np.cumsum(sizes[chosen]).tolist()
    for place, text, size, end in zip(chosen.tolist(), quasi, sizes[chosen].tolist(), ends, strict=True):
        cluster, own = stated[place], members[end - size : end]
        unchanged = ChosenTexts(originals.unchanged, own)  # the same array: a copy of it would need as much again
        found.clusters.append(RecomputedCluster(cluster.partition, cluster.label, own, text, unchanged, cluster.number))
    return found


def check_per_subject(option: PerSubject, originals: Originals, clusters: Sequence[RecomputedCluster]) -> CheckCounter:
    """Check how many records of one subject were released from each window of offsets."""
    claim = (
        f"at most {counted(option.max, 'record')} of one subject {'was' if option.max == 1 else 'were'} released from "
        f"each window of {counted(option.window, 'offset')}"
    )
    check = CheckCounter("releases", claim, "window")
    members = members_of(clusters)
    windows, partitions = originals.offsets[members] // option.window, originals.partitions[members]
    order, starts = equal_runs(originals.subjects[members], windows, partitions)
    counts = np.diff(starts, append=len(members))
    for first, count in zip(order[starts], counts.tolist(), strict=True):
        partition, window = int(partitions[first]), int(windows[first])
        check.expect(count <= option.max, f"{partition}/{window}" if partition else window)
    check.worst = int(counts.max()) if len(counts) else None
    return check


def members_of(clusters: Iterable[RecomputedCluster]) -> Int64Vector:
    """Return the members of clusters one after the other."""
    return np.concatenate([np.zeros(0, np.int64), *(cluster.members for cluster in clusters)])


def starts_of(clusters: Sequence[RecomputedCluster]) -> Int64Vector:
    """Return where the members of each cluster begin among `members_of`."""
    sizes = np.array([len(cluster.members) for cluster in clusters], np.int64)
    return np.cumsum(sizes) - sizes


def equal_runs(*keys: Int64Vector) -> tuple[Int64Vector, Int64Vector]:
    """Return an order by the last key first, stable, and where in it each run of equal keys begins."""
    order = np.lexsort(keys)
    is_start = np.ones(len(order), np.bool_)
    is_start[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    return order, np.flatnonzero(is_start)


def _exceeds_quota(option: PerSubject | None, originals: Originals, is_counted: BoolVector) -> BoolVector:
    exceeds = np.zeros(len(originals), np.bool_)
    if option is None:
        return exceeds
    for chosen in originals.by_partition.values():
        usable = chosen[is_counted[chosen]]
        order, starts = equal_runs(originals.subjects[usable], originals.offsets[usable] // option.window)
        earlier = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        exceeds[usable[order]] = earlier >= option.max
    return exceeds


def _usable_members(
    originals: Originals, stated: Sequence[EvidenceCluster], named: Int64Vector
) -> tuple[Int64Vector, Int32Vector]:
    """Return the usable members of all clusters, and the place of the cluster of each.

    A record that is named twice stays twice: it needs two rows, and the release has only one.
    """
    found = np.concatenate([cluster.offsets for cluster in stated])
    partitions = np.array([cluster.partition for cluster in stated])
    for partition in np.unique(partitions).tolist():
        here = np.repeat(partitions == partition, named)
        found[here] = originals.find_all(partition, found[here])
    is_member = found >= 0
    is_member[is_member] = originals.subjects[found[is_member]] != UNUSABLE
    return found[is_member], np.repeat(np.arange(len(stated), dtype=np.int32), named)[is_member]


def _holds(is_wrong: BoolVector, place_of: Int32Vector, count: int) -> BoolVector:
    """Return which of so many clusters hold a member that is wrong."""
    return np.bincount(place_of[is_wrong], minlength=count) > 0


def _is_repeated(members: Int64Vector, records: int) -> BoolVector:
    """Return which members are named before in the same cluster or an earlier one."""
    found = np.zeros(len(members), np.bool_)
    if np.bincount(members, minlength=records).max(initial=0) > 1:
        found[:] = True
        found[np.unique(members, return_index=True)[1]] = False
    return found


def _count_people(subjects: Int64Vector, place_of: Int32Vector, count: int) -> tuple[Int64Vector, Int64Vector]:
    """Return the different subjects of each of so many clusters, and the most members that are of one subject."""
    width = int(subjects.max(initial=0)) + 1
    pairs = place_of.astype(np.int64)
    pairs *= width
    pairs += subjects
    pairs.sort()
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    places = pairs[starts] // width
    most = np.zeros(count, np.int64)
    np.maximum.at(most, places, np.diff(starts, append=len(pairs)))
    return np.bincount(places, minlength=count), most


def _check_shares(
    policy: Policy, most: Int64Vector, sizes: Int64Vector, shares: CheckCounter, label: Callable[[int], int | str]
) -> None:
    """Check the largest share of a subject in each cluster. Shares are exact: each pair of counts is judged once."""
    max_share = Fraction(policy.max_share) + SHARE_TOLERANCE
    width = int(sizes.max()) + 1
    pairs, codes = np.unique(most * width + sizes, return_inverse=True)
    found = [Fraction(pair // width, max(pair % width, 1)) for pair in pairs.tolist()]
    shares.expect_all(np.array([share <= max_share for share in found])[codes], label)
    shares.worst = float(max(found))


def _centroids(
    originals: Originals, members: Int64Vector, sizes: Int64Vector, published: Sequence[PublishedValues]
) -> list[str]:
    """Return the published texts of clusters whose members follow each other, computed for some clusters at a time."""
    found: list[str] = []
    ends = np.cumsum(sizes)
    while len(found) < len(sizes):
        first = len(found)
        start = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, start + _MEMBERS_AT_ONCE)), first + 1)
        own, own_sizes = members[start : int(ends[last - 1])], sizes[first:last]
        subjects = originals.subjects[own]
        columns = [
            one.of_clusters(originals.values[own, column], subjects, own_sizes) for column, one in enumerate(published)
        ]
        found += map(FIELD_SEPARATOR.join, zip(*columns, strict=True)) if columns else [""] * len(own_sizes)
    return found
