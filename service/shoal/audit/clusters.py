"""Clusters: who is in them, and the rows they must have become.

In: clusters as named (by evidence, or rebuilt from the release) and the originals. Out: the checks on members,
and for each cluster the texts of its rows, recomputed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from shoal.audit.arithmetic import ExactGrid
from shoal.audit.check_counter import CheckCounter
from shoal.audit.evidence import ClaimedCluster
from shoal.audit.originals import Originals
from shoal.policy import Policy

__all__ = ["RecomputedCluster", "RecomputedClusters", "judge_clusters"]

SLACK = Fraction(1, 10**9)
"""A share is a ratio and a cap is a float64: this far above is not above."""


@dataclass(frozen=True, slots=True)
class RecomputedCluster:
    """Its members (indices of usable originals) and their rows: one text of quasi-identifiers, kept texts."""

    partition: int
    place: int | str
    members: tuple[int, ...]
    quasi: str
    kept: list[str]


@dataclass(slots=True)
class RecomputedClusters:
    """All clusters, the checks on them and the extremes that a summary may name."""

    found: list[RecomputedCluster]
    checks: list[CheckCounter]
    named: int = 0
    used: bytearray = field(default_factory=bytearray)
    fewest_subjects: int | None = None
    largest_share: float | None = None


def judge_clusters(
    policy: Policy, originals: Originals, named: Iterable[ClaimedCluster], grids: list[ExactGrid]
) -> RecomputedClusters:
    """Judge the members of each cluster and recompute its rows."""
    existing = CheckCounter("existing", "clusters hold only records that exist and fit the policy", "cluster")
    once = CheckCounter("once", "every record is in at most one cluster", "cluster")
    subjects = CheckCounter("subjects", f"every cluster holds at least {policy.k} different subjects", "cluster")
    shares = CheckCounter("share", f"no subject owns more than {policy.max_share:g} of a cluster", "cluster")
    clusters = RecomputedClusters([], [subjects, shares, once, existing], used=bytearray(len(originals)))
    cap = Fraction(policy.max_share) + SLACK
    for name in named:
        clusters.named += 1
        members = _members(originals, name, existing)
        once.expect(_take(clusters.used, members), name.place)
        people = Counter(originals.subjects[list(members)].tolist())
        subjects.expect(len(people) >= policy.k, name.place)
        heaviest = max(people.values(), default=0)
        shares.expect(not members or Fraction(heaviest, len(members)) <= cap, name.place)
        _note_extremes(clusters, len(people), heaviest / max(len(members), 1))
        if members:
            quasi = _centroid(originals, members, grids)
            kept = originals.kept_of(members)
            clusters.found.append(RecomputedCluster(name.partition, name.place, members, quasi, kept))
    subjects.worst, shares.worst = clusters.fewest_subjects, clusters.largest_share
    return clusters


def _members(originals: Originals, named: ClaimedCluster, existing: CheckCounter) -> tuple[int, ...]:
    """Find the records of a cluster; one that does not exist or does not fit counts against it."""
    found = [originals.find(named.partition, offset) for offset in named.offsets]
    members = tuple(index for index in found if index is not None and originals.is_usable(index))
    # A record named twice stays twice: it claims two rows, and the release will not have them.
    existing.expect(len(members) == len(found), named.place)
    return members


def _take(used: bytearray, members: tuple[int, ...]) -> bool:
    """Mark members as used; whether all of them were free and different."""
    free = len(set(members)) == len(members) and not any(map(used.__getitem__, members))
    for index in members:
        used[index] = 1
    return free


def _note_extremes(clusters: RecomputedClusters, subjects: int, share: float) -> None:
    if clusters.fewest_subjects is None or subjects < clusters.fewest_subjects:
        clusters.fewest_subjects = subjects
    if clusters.largest_share is None or share > clusters.largest_share:
        clusters.largest_share = share


def _centroid(originals: Originals, members: tuple[int, ...], grids: list[ExactGrid]) -> str:
    columns = originals.values[list(members)].T.tolist()
    # An empty text equals no published number.
    return "\x00".join(grid.mean(column) or "" for grid, column in zip(grids, columns, strict=True))
