"""Counts subjects that differ in case, white space, width or invisible characters only.

k counts subjects as the policy normalises them. If two of these are spellings of one person, a cluster holds fewer
people than it seems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.audit.clusters import RecomputedClusters
from shoal.audit.originals import Originals
from shoal.audit.verdict import counted
from shoal.policy import Policy

__all__ = ["NearDuplicates", "count_near_duplicates"]


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Subjects that every step of ``normalize`` would merge with another.

    Attributes
    ----------
    subjects : int
        Subjects of the usable originals, less their number after merging.
    clusters : int or None
        Clusters that hold at least two subjects which would be one. None if the clusters are unknown.
    below_k : int or None
        Clusters of at least k subjects that would have fewer. None as above.
    """

    subjects: int
    clusters: int | None
    below_k: int | None

    def measures(self) -> dict[str, float | int | None]:
        """Return the measures of the verdict."""
        return {
            "near_duplicate_subjects": self.subjects,
            "near_duplicate_clusters": self.clusters,
            "near_duplicate_below_k": self.below_k,
        }

    def warnings(self) -> list[str]:
        """Return a sentence if there are any, without values."""
        if not self.subjects or self.clusters == 0:
            return []
        where = "" if self.clusters is None else f", in {counted(self.clusters, 'cluster')}"
        fewer = f" ({counted(self.below_k, 'cluster')} with fewer than k people)" if self.below_k else ""
        text = (
            f"{counted(self.subjects, 'subject')} equal to another one except for case, white space, width or "
            f"invisible characters{where}: if these are spellings of one person{fewer}, set normalize: "
            "[nfkc, casefold, spaces, invisible] at the subject"
        )
        return [text]


def count_near_duplicates(
    policy: Policy, originals: Originals, clusters: RecomputedClusters | None
) -> NearDuplicates | None:
    """Count near-duplicate subjects. None if the subject is no text. Cost: O(n log n)."""
    merged = originals.merged
    if merged is None:
        return None
    subjects = len(merged) - len(np.unique(merged))
    if clusters is None:
        return NearDuplicates(subjects, None, None)
    with_pairs = below = 0
    for cluster in clusters.clusters:
        found = set(originals.subjects[list(cluster.members)].tolist())
        people = len(set(merged[list(found)].tolist()))
        with_pairs += people < len(found)
        below += people < policy.k <= len(found)
    return NearDuplicates(subjects, with_pairs, below)
