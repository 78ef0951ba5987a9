"""Checks the members of clusters and recomputes the rows that they must have become.

The clusters come from the evidence or are inferred from the release. Each is checked for members that exist and fit
the policy, for members of other clusters, for k subjects and for the limit on one subject's share.

The arrivals of a stream: which records arrived at the clusterer, and how many between two of them.

The delay of a stream is counted in arrivals, per partition. Offsets do not count, because a log has gaps. A record does
not arrive if it is unusable, above ``privacy.per_subject``, too large, or dated too far ahead. If files do not show
whether a record arrived, counts get a lower and an upper bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.audit.evidence import EvidenceCluster
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import DEFAULT_MAX_BYTES, UNKNOWN_TIMESTAMP, UNUSABLE, Originals
from shoal.audit.published_values import PublishedValues
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import PerSubject, Policy

__all__ = [
    "SHARE_TOLERANCE",
    "AdmissionLimits",
    "Arrivals",
    "BoolVector",
    "Counted",
    "Int64Vector",
    "RecomputedCluster",
    "RecomputedClusters",
    "StreamArrivals",
    "arrivals_of",
    "check_clusters",
    "clusters_by_partition",
    "has_repeated_numbers",
    "released_above_limit",
]

BoolVector: TypeAlias = npt.NDArray[np.bool_]
Counted: TypeAlias = Literal["certain", "unless claimed", "all"]
Int64Vector: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The records of one partition that may have arrived, in the order of their offsets.

    The position of a record is its index in these arrays.

    Attributes
    ----------
    indices, offsets : ndarray of int64, shape (n,)
        Indices of the originals, and their offsets.
    is_sure : ndarray of bool, shape (n,)
        Whether the record arrived for certain.
    at_least : ndarray of int64, shape (n,)
        Number of records up to and including this position that arrived for certain.
    """

    indices: Int64Vector
    offsets: Int64Vector
    is_sure: BoolVector
    at_least: Int64Vector

    def __len__(self) -> int:
        return len(self.indices)

    def positions_of(self, offsets: Int64Vector) -> Int64Vector:
        """Return the positions of offsets. For an offset without such a record: the position of the next record."""
        return np.searchsorted(self.offsets, offsets).astype(np.int64)


@dataclass(frozen=True, slots=True)
class StreamArrivals:
    """The arrivals of all partitions of a stream.

    Attributes
    ----------
    by_partition : dict of int to Arrivals
    may_be_in_lost_window : ndarray of bool, shape (n,)
        Which of all originals a restart may have suppressed because of ``privacy.per_subject``.
    is_window_whole : ndarray of bool, shape (n,)
        True if the original begins at or before the first offset of the record's quota window. If the log did too, a
        restart counted the whole window again.
    """

    by_partition: dict[int, Arrivals]
    may_be_in_lost_window: BoolVector
    is_window_whole: BoolVector

    def has_as_many(self, other: StreamArrivals) -> bool:
        """Whether both have the same number of certain arrivals in each partition."""
        pairs = ((found, other.by_partition[partition]) for partition, found in self.by_partition.items())
        return all(np.count_nonzero(one.is_sure) == np.count_nonzero(two.is_sure) for one, two in pairs)


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Which originals exceed a limit of the policy, computed once for all checks.

    Attributes
    ----------
    exceeds_quota : ndarray of bool, shape (n,)
        Which usable records exceed ``privacy.per_subject``. In each window the first records of a subject arrive.
    is_too_large, may_be_too_large : ndarray of bool, shape (n,)
        True if the smallest (largest) possible size exceeds ``kafka.max_record_bytes``.
    """

    exceeds_quota: BoolVector
    is_too_large: BoolVector
    may_be_too_large: BoolVector

    @classmethod
    def of(cls, policy: Policy, originals: Originals) -> AdmissionLimits:
        """Compare all records with the limits. Cost: O(n)."""
        limit = DEFAULT_MAX_BYTES if policy.kafka is None else policy.kafka.max_record_bytes
        is_too_large, may_be_too_large = (originals.sizes > limit).T
        is_counted = (originals.subjects != UNUSABLE) & ~is_too_large
        return cls(_exceeds_quota(policy.per_subject, originals, is_counted), is_too_large, may_be_too_large)


def _exceeds_quota(option: PerSubject | None, originals: Originals, is_counted: BoolVector) -> BoolVector:
    exceeds = np.zeros(len(originals), np.bool_)
    if option is None:
        return exceeds
    for chosen in originals.by_partition.values():
        usable = chosen[is_counted[chosen]]
        windows = (originals.offsets[usable] // option.window).tolist()
        counts: Counter[tuple[int, int]] = Counter()
        for index, key in zip(
            usable.tolist(), zip(windows, originals.subjects[usable].tolist(), strict=True), strict=True
        ):
            counts[key] += 1
            exceeds[index] = counts[key] > option.max
    return exceeds


def arrivals_of(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    is_released: BoolVector,
    reasons: Mapping[int, str] | None,
    *,
    counted: Counted = "certain",
    ahead: Collection[int] = (),
) -> StreamArrivals:
    """Return the arrivals of each partition. Cost: O(n log n).

    Parameters
    ----------
    policy : Policy
    originals : Originals
    limits : AdmissionLimits
    is_released : ndarray of bool, shape (n,)
        Whether each record is a member of a cluster. Unusable records are never members.
    reasons : mapping of int to str, or None
        Reason of each referenced original, by its index; None without a quarantine file.
    counted : {"certain", "unless claimed", "all"}
        Which records count as certain arrivals. "certain": files prove the arrival. "all": no file shows that a limit
        is exceeded; the quarantine is ignored. "unless claimed": as "all", without records whose rejection is only
        claimed.
    ahead : collection of int
        Indices of the records that are claimed to be rejected by the clock.
    """
    usable = originals.subjects != UNUSABLE
    excess, unclear = limits.exceeds_quota, limits.may_be_too_large.copy()
    if not originals.is_ended:
        unclear[-1] = True
    possible = usable & ~excess & ~limits.is_too_large
    sure = possible & ~unclear if counted == "certain" else possible.copy()
    if counted == "unless claimed":
        possible[list(ahead)] = sure[list(ahead)] = False
    if originals.is_export and counted == "certain" and reasons is None:
        sure &= _is_not_ahead(originals, is_released)  # a service also rejects records by its clock
    elif originals.is_export and counted == "certain" and reasons is not None:
        # The quarantine says which records were rejected, and which arrived; a restart may have suppressed the others.
        suppressed, others = _referenced(reasons, len(originals))
        possible, sure = usable & ~others & ~(suppressed & excess), suppressed & ~excess
    possible |= is_released
    may_be_in_lost_window = _may_be_in_lost_window(policy, originals, is_released, possible)
    is_window_whole = _is_window_whole(policy, originals)
    may_be_lost = {
        "certain": may_be_in_lost_window,
        "unless claimed": may_be_in_lost_window & ~is_window_whole,
        "all": np.zeros_like(sure),
    }
    sure = (sure & usable & ~may_be_lost[counted]) | is_released
    by_partition = {
        partition: _arrivals(originals, chosen[possible[chosen]], sure)
        for partition, chosen in originals.by_partition.items()
    }
    return StreamArrivals(by_partition, may_be_in_lost_window, is_window_whole)


def _is_not_ahead(originals: Originals, is_released: BoolVector) -> BoolVector:
    """Return which records were not rejected by the clock, as released records show, shape (n,). Cost: O(n log n).

    True if a released record with a lower offset has the same or a later timestamp. The service did not reject this
    record by its clock.
    """
    found = np.zeros(len(originals), np.bool_)
    for chosen in originals.by_partition.values():
        timestamps = originals.timestamps[chosen]
        latest = np.maximum.accumulate(np.where(is_released[chosen], timestamps, UNKNOWN_TIMESTAMP))
        latest_before = np.concatenate(([UNKNOWN_TIMESTAMP], latest[:-1]))
        found[chosen] = (timestamps != UNKNOWN_TIMESTAMP) & (timestamps <= latest_before)
    return found


def _is_window_whole(policy: Policy, originals: Originals) -> BoolVector:
    """Return `StreamArrivals.is_window_whole`: an array, shape (n,)."""
    found = np.ones(len(originals), np.bool_)
    option = policy.per_subject
    if option is None:
        return found
    for chosen in originals.by_partition.values():
        offsets = originals.offsets[chosen]
        found[chosen] = offsets - offsets % option.window >= offsets[0]
    return found


def _may_be_in_lost_window(
    policy: Policy, originals: Originals, is_released: BoolVector, may_arrive: BoolVector
) -> BoolVector:
    """Return which records a restart may have suppressed because of ``privacy.per_subject``, shape (n,). Cost: O(n).

    A restarted service suppresses the rest of a quota window whose first records it cannot read again. If a record of
    the window was released more than delta arrivals later, the restart did not suppress this record.

    Parameters
    ----------
    policy : Policy
    originals : Originals
    is_released, may_arrive : ndarray of bool, shape (n,)
        Which records were released, and which may have arrived.
    """
    lost = np.zeros(len(originals), np.bool_)
    option = policy.per_subject
    if option is None or policy.stream is None or not originals.is_export:
        return lost
    for chosen in originals.by_partition.values():
        ranks = np.cumsum(may_arrive[chosen])
        windows = originals.offsets[chosen] // option.window
        starts = np.flatnonzero(np.diff(windows, prepend=windows[0] - 1))
        latest = np.maximum.reduceat(np.where(is_released[chosen], ranks, 0), starts)
        sizes = np.diff(np.append(starts, len(chosen)))
        lost[chosen] = np.repeat(latest, sizes) - ranks <= policy.stream.delta
    return lost


def _referenced(reasons: Mapping[int, str], count: int) -> tuple[BoolVector, BoolVector]:
    """Return which records are referenced as suppressed, and which for another reason."""
    suppressed, others = np.zeros((2, count), np.bool_)
    for index, reason in reasons.items():
        (suppressed if reason == "suppressed" else others)[index] = True
    return suppressed, others


def _arrivals(originals: Originals, indices: Int64Vector, sure: BoolVector) -> Arrivals:
    return Arrivals(indices, originals.offsets[indices], sure[indices], np.cumsum(sure[indices]))


SHARE_TOLERANCE = Fraction(1, 10**9)
"""The limit is a float64 and a share is a ratio: a share this far above the limit is accepted."""


@dataclass(frozen=True, slots=True)
class RecomputedCluster:
    """A cluster with the rows that it must have become.

    Attributes
    ----------
    partition : int
    label : int or str
        How checks name it.
    members : tuple of int
        Indices of usable originals.
    quasi : str
        Text of the recomputed quasi-identifiers, the same for all members.
    unchanged : list of str
        Texts of the unchanged fields, one per member.
    number : int
        Its number in the evidence.
    """

    partition: int
    label: int | str
    members: tuple[int, ...]
    quasi: str
    unchanged: list[str]
    number: int = 0


@dataclass(slots=True)
class RecomputedClusters:
    """All clusters that have members, the checks on them, and figures that a summary may state.

    Attributes
    ----------
    clusters : list of RecomputedCluster
    checks : list of CheckCounter
    count : int
        Number of clusters, including those without a usable member.
    is_released : bytearray
        1 for each original that is a member of a cluster.
    fewest_subjects : int or None
        Fewest subjects of a cluster.
    largest_share : float or None
        Largest share of one subject in a cluster.
    """

    clusters: list[RecomputedCluster]
    checks: list[CheckCounter]
    count: int = 0
    is_released: bytearray = field(default_factory=bytearray)
    fewest_subjects: int | None = None
    largest_share: float | None = None

    def is_member(self) -> npt.NDArray[np.bool_]:
        """Return `is_released` as an array, shape (n,); a copy."""
        return np.frombuffer(bytes(self.is_released), np.bool_)


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
    """Return the question that is open if a topic has released records above the limit; empty if it has none.

    They show that the service had another limit than the policy, so the policy does not say which records it rejected.
    """
    count = int(np.count_nonzero(limits.is_too_large & found.is_member()))
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
    """Check the members of each cluster and recompute its rows. Cost: O(n) time and memory.

    In a file, a record above ``kafka.max_record_bytes`` does not fit the policy. A service may have another limit.
    """
    existing = CheckCounter("existing", "clusters hold only records that exist and fit the policy", "cluster")
    once = CheckCounter("once", "every record is in at most one cluster", "cluster")
    subjects = CheckCounter("subjects", f"every cluster holds at least {policy.k} different subjects", "cluster")
    shares = CheckCounter("share", f"no subject owns more than {policy.max_share:g} of a cluster", "cluster")
    found = RecomputedClusters([], [subjects, shares, once, existing], is_released=bytearray(len(originals)))
    max_share = Fraction(policy.max_share) + SHARE_TOLERANCE
    pending: list[tuple[EvidenceCluster, tuple[int, ...]]] = []
    refused = np.zeros(len(originals), np.bool_) if originals.is_export else limits.is_too_large
    for cluster in evidence_clusters:
        found.count += 1
        members = _usable_members(originals, cluster, existing, refused)
        once.expect(_mark_released(found.is_released, members), cluster.label)
        counts = Counter(originals.subjects[list(members)].tolist())
        subjects.expect(len(counts) >= policy.k, cluster.label)
        largest = max(counts.values(), default=0)
        shares.expect(not members or Fraction(largest, len(members)) <= max_share, cluster.label)
        _note_extremes(found, len(counts), largest / max(len(members), 1))
        if members:
            pending.append((cluster, members))
    originals.count_categories(found.is_member())
    for cluster, members in pending:
        quasi = _centroid(originals, members, published)
        unchanged = originals.unchanged_of(members)
        found.clusters.append(
            RecomputedCluster(cluster.partition, cluster.label, members, quasi, unchanged, cluster.number)
        )
    subjects.worst, shares.worst = found.fewest_subjects, found.largest_share
    return found


def _usable_members(
    originals: Originals, cluster: EvidenceCluster, existing: CheckCounter, refused: BoolVector
) -> tuple[int, ...]:
    """Return the usable members; one that does not exist, does not fit the policy or is refused fails the check."""
    found = [originals.find(cluster.partition, offset) for offset in cluster.offsets]
    # A record that is named twice stays twice: it needs two rows, and the release has only one.
    members = tuple(index for index in found if index is not None and originals.is_usable(index))
    existing.expect(len(members) == len(found) and not refused[list(members)].any(), cluster.label)
    return members


def _mark_released(is_released: bytearray, members: tuple[int, ...]) -> bool:
    """Mark the members; return whether they are distinct and none was marked before."""
    is_free = len(set(members)) == len(members) and not any(map(is_released.__getitem__, members))
    for index in members:
        is_released[index] = 1
    return is_free


def _note_extremes(found: RecomputedClusters, subjects: int, share: float) -> None:
    if found.fewest_subjects is None or subjects < found.fewest_subjects:
        found.fewest_subjects = subjects
    if found.largest_share is None or share > found.largest_share:
        found.largest_share = share


def _centroid(originals: Originals, members: tuple[int, ...], published: Sequence[PublishedValues]) -> str:
    columns = originals.values[list(members)].T.tolist()
    known = originals.categories or (None,) * len(published)
    return FIELD_SEPARATOR.join(
        one.of_members(column, categories) for one, column, categories in zip(published, columns, known, strict=True)
    )
