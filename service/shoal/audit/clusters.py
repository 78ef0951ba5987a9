"""Checks the members of clusters and recomputes the rows that they must have become.

The clusters come from the evidence or are inferred from the release. Each is checked for members that exist and fit
the policy, for members of other clusters, for k subjects and for the cap on one subject's share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from shoal.audit.arithmetic import ExactGrid
from shoal.audit.evidence import ClaimedCluster
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

__all__ = ["RecomputedCluster", "RecomputedClusters", "check_clusters"]

SHARE_TOLERANCE = Fraction(1, 10**9)
"""A cap is a float64 and a share is a ratio: a share this far above the cap is accepted."""


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
    kept : list of str
        Texts of the kept fields, one per member.
    """

    partition: int
    label: int | str
    members: tuple[int, ...]
    quasi: str
    kept: list[str]


@dataclass(slots=True)
class RecomputedClusters:
    """All clusters that have members, the checks on them, and figures that a summary may state.

    Attributes
    ----------
    clusters : list of RecomputedCluster
    checks : list of CheckCounter
    claimed : int
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
    claimed: int = 0
    is_released: bytearray = field(default_factory=bytearray)
    fewest_subjects: int | None = None
    largest_share: float | None = None


def check_clusters(
    policy: Policy, originals: Originals, claimed: Iterable[ClaimedCluster], grids: list[ExactGrid]
) -> RecomputedClusters:
    """Check the members of each cluster and recompute its rows. Cost: O(n) time and memory."""
    existing = CheckCounter("existing", "clusters hold only records that exist and fit the policy", "cluster")
    once = CheckCounter("once", "every record is in at most one cluster", "cluster")
    subjects = CheckCounter("subjects", f"every cluster holds at least {policy.k} different subjects", "cluster")
    shares = CheckCounter("share", f"no subject owns more than {policy.max_share:g} of a cluster", "cluster")
    found = RecomputedClusters([], [subjects, shares, once, existing], is_released=bytearray(len(originals)))
    cap = Fraction(policy.max_share) + SHARE_TOLERANCE
    for claim in claimed:
        found.claimed += 1
        members = _usable_members(originals, claim, existing)
        once.expect(_mark_released(found.is_released, members), claim.label)
        counts = Counter(originals.subjects[list(members)].tolist())
        subjects.expect(len(counts) >= policy.k, claim.label)
        largest = max(counts.values(), default=0)
        shares.expect(not members or Fraction(largest, len(members)) <= cap, claim.label)
        _note_extremes(found, len(counts), largest / max(len(members), 1))
        if members:
            quasi = _centroid(originals, members, grids)
            kept = originals.kept_of(members)
            found.clusters.append(RecomputedCluster(claim.partition, claim.label, members, quasi, kept))
    subjects.worst, shares.worst = found.fewest_subjects, found.largest_share
    return found


def _usable_members(originals: Originals, claim: ClaimedCluster, existing: CheckCounter) -> tuple[int, ...]:
    """Return the usable members; one that does not exist or does not fit the policy fails the check."""
    found = [originals.find(claim.partition, offset) for offset in claim.offsets]
    # A record that is claimed twice stays twice: it claims two rows, and the release has only one.
    members = tuple(index for index in found if index is not None and originals.is_usable(index))
    existing.expect(len(members) == len(found), claim.label)
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


def _centroid(originals: Originals, members: tuple[int, ...], grids: list[ExactGrid]) -> str:
    columns = originals.values[list(members)].T.tolist()
    # An empty text stands for a mean without float64; it equals no published number.
    return FIELD_SEPARATOR.join(grid.mean(column) or "" for grid, column in zip(grids, columns, strict=True))
