"""Figures of the confidential values of released clusters, for the summary and the metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.diversity import DiversityRule
from shoal.clustering.static.value_counts import count_values
from shoal.clustering.stream.protection import distances_of_clusters
from shoal.pipeline.confidential_numbers import ConfidentialNumbers, ValueLoss
from shoal.pipeline.record_store import StoredRecords
from shoal.policy import Policy

__all__ = ["NO_CONFIDENTIAL_STATS", "ConfidentialMeasures", "ConfidentialStats"]


@dataclass(frozen=True, slots=True)
class ConfidentialStats:
    """Figures of the clusters decided with one block.

    Attributes
    ----------
    within, total : float
        How much the sums of squares of confidential numbers within clusters and in total have grown; each attribute in
        units of its bounds.
    fewest_values : float
        Smallest number of distinct values of a protected attribute in a cluster.
    value_share : float
        Largest share of one value of a protected attribute in the records of a cluster.
    distance : float
        Largest earth mover's distance of a cluster from the reference of a protected attribute.

    Notes
    -----
    The last three are infinite where nothing was measured.
    """

    within: float = 0.0
    total: float = 0.0
    fewest_values: float = math.inf
    value_share: float = -math.inf
    distance: float = -math.inf

    @classmethod
    def join(cls, parts: Iterable[ConfidentialStats]) -> ConfidentialStats:
        """Return the figures of the clusters of all parts, of which there is at least one."""
        listed = list(parts)
        return cls(
            sum(part.within for part in listed),
            sum(part.total for part in listed),
            min(part.fewest_values for part in listed),
            max(part.value_share for part in listed),
            max(part.distance for part in listed),
        )


NO_CONFIDENTIAL_STATS = ConfidentialStats()
"""Of a block with which no cluster was decided, or of a policy that measures no confidential value."""


class ConfidentialMeasures:
    """Totals of the confidential values of a stream.

    Parameters
    ----------
    policy : Policy
        It measures D_Y if it preserves dependence, and l, shares and distances if it protects values.
    rule : DiversityRule or None
        The constraints of the policy on its protected attributes, as of `ValueIndex`.
    """

    def __init__(self, policy: Policy, rule: DiversityRule | None) -> None:
        numbers = ConfidentialNumbers(policy)
        self._loss = ValueLoss(numbers) if len(numbers) else None
        self._rule = rule
        self._names = [attribute.name for attribute in policy.protected]
        self._has_references = policy.t is not None
        self._clusters = 0
        self._sums, self._max = (dict.fromkeys(self._names, 0.0) for _ in range(2))
        self._extremes = NO_CONFIDENTIAL_STATS

    @property
    def has_figures(self) -> bool:
        """Whether the policy measures confidential values at all."""
        return self._loss is not None or self._rule is not None

    @property
    def has_protection(self) -> bool:
        """Whether the policy protects values: records may be suppressed for want of other values."""
        return self._rule is not None

    def add(self, members: StoredRecords, cluster_bounds: Int64Vector) -> ConfidentialStats:
        """Add decided clusters, and return their figures.

        Parameters
        ----------
        members : StoredRecords
            Cluster after cluster, at least one.
        cluster_bounds : ndarray of int64, shape (G + 1,)
            Start of each cluster, and the number of members.
        """
        if not self.has_figures:
            return NO_CONFIDENTIAL_STATS
        within, total = (0.0, 0.0) if self._loss is None else self._loss.add(members.numbers, cluster_bounds)
        found = ConfidentialStats(within, total)
        if self._rule is not None:
            found = ConfidentialStats.join((found, self._add_protected(self._rule, members, cluster_bounds)))
        self._extremes = ConfidentialStats.join((self._extremes, found))
        return found

    def _add_protected(
        self, rule: DiversityRule, members: StoredRecords, cluster_bounds: Int64Vector
    ) -> ConfidentialStats:
        sizes = np.diff(cluster_bounds)
        owners = np.arange(len(sizes), dtype=np.int32).repeat(sizes)
        self._clusters += len(sizes)
        fewest, share, farthest = math.inf, -math.inf, -math.inf
        for number, name in enumerate(self._names):
            values = count_values(members.protected[:, number], owners)
            fewest = min(fewest, float(values.distinct.min()))
            share = max(share, float((values.largest / sizes).max()))
            if self._has_references:
                bins = members.protected[:, len(self._names) + number]
                distances = distances_of_clusters(rule, number, bins, owners.astype(np.int64), sizes)
                self._sums[name] += float(distances.sum())
                self._max[name] = max(self._max[name], float(distances.max()))
                farthest = max(farthest, float(distances.max()))
        return ConfidentialStats(fewest_values=fewest, value_share=share, distance=farthest)

    def as_dict(self, d_x: float | None) -> dict[str, Any]:
        """Return the figures as written by ``--summary``: those that the policy asks for, null without clusters.

        ``d_x`` is the share of the variation of quasi-identifiers that is within clusters.
        """
        figures: dict[str, Any] = {} if self._loss is None else {"d_x": d_x, "d_y": self._loss.d_y}
        if self._rule is None:
            return figures
        if self._has_references:
            figures["emd"] = {name: self._distance_of(name) for name in self._names}
        has_clusters = self._clusters > 0
        figures["l"] = {"min": int(self._extremes.fewest_values) if has_clusters else None}
        figures["value_share"] = {"max": self._extremes.value_share if has_clusters else None}
        return figures

    def _distance_of(self, name: str) -> dict[str, float | None]:
        if not self._clusters:
            return {"mean": None, "max": None}
        return {"mean": self._sums[name] / self._clusters, "max": self._max[name]}
