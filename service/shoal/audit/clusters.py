"""Checks the members of clusters, of the evidence or inferred, and recomputes the rows that they must have become."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.audit.evidence import EvidenceCluster
from shoal.audit.fields import FIELD_SEPARATOR, ChosenTexts, Int64Vector
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.scales import PublishedCategories, PublishedValues
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import PerSubject, Policy

BoolVector: TypeAlias = npt.NDArray[np.bool_]
SHARE_TOLERANCE = Fraction(1, 10**9)
"""The limit is a float64 and a share is a ratio: a share this far above the limit is accepted."""


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
    found = RecomputedClusters([], [subjects, shares, once, existing], np.zeros(len(originals), np.bool_))
    max_share = Fraction(policy.max_share) + SHARE_TOLERANCE
    pending: list[tuple[EvidenceCluster, Int64Vector]] = []
    # A service may have another limit than the policy states.
    refused = np.zeros(len(originals), np.bool_) if originals.is_export else limits.is_too_large
    for cluster in evidence_clusters:
        found.count += 1
        members = _usable_members(originals, cluster, existing, refused)
        is_free = len(set(members.tolist())) == len(members) and not found.is_released[members].any()
        once.expect(is_free, cluster.label)
        found.is_released[members] = True
        counts = Counter(originals.subjects[members].tolist())
        subjects.expect(len(counts) >= policy.k, cluster.label)
        share = Fraction(max(counts.values(), default=0), max(len(members), 1))
        shares.expect(share <= max_share, cluster.label)
        subjects.worst = len(counts) if subjects.worst is None else min(subjects.worst, len(counts))
        shares.worst = max(shares.worst or 0.0, float(share))
        if len(members):
            pending.append((cluster, members))
    found.fewest_subjects = None if subjects.worst is None else int(subjects.worst)
    found.largest_share = shares.worst
    for column, one in enumerate(published):
        if isinstance(one, PublishedCategories):
            codes = originals.values[found.is_released, column]
            one.categories.counts = Counter(codes[~np.isnan(codes)].tolist())
    for cluster, members in pending:
        quasi = _centroid(originals, members, published)
        unchanged = ChosenTexts(originals.unchanged, members)  # the same array: a copy of it would need as much again
        found.clusters.append(
            RecomputedCluster(cluster.partition, cluster.label, members, quasi, unchanged, cluster.number)
        )
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
    originals: Originals, cluster: EvidenceCluster, existing: CheckCounter, refused: BoolVector
) -> Int64Vector:
    """Return the usable members; one that does not exist, does not fit the policy or is refused fails the check."""
    found = originals.find_all(cluster.partition, cluster.offsets)
    # A record that is named twice stays twice: it needs two rows, and the release has only one.
    found = found[found >= 0]
    members: Int64Vector = found[originals.subjects[found] != UNUSABLE]
    existing.expect(len(members) == len(cluster.offsets) and not refused[members].any(), cluster.label)
    return members


def _centroid(originals: Originals, members: Int64Vector, published: Sequence[PublishedValues]) -> str:
    columns, subjects = originals.values[members].T.tolist(), originals.subjects[members].tolist()
    return FIELD_SEPARATOR.join(
        one.of_members(column, subjects) for one, column in zip(published, columns, strict=True)
    )
