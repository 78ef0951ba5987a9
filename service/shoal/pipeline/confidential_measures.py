"""Figures of the confidential values of released clusters, for the summary and the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shoal.arrays import Float64Matrix, Int64Vector
from shoal.pipeline.confidential_numbers import ConfidentialNumbers, ValueLoss
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
    """

    within: float = 0.0
    total: float = 0.0

    @classmethod
    def join(cls, parts: Iterable[ConfidentialStats]) -> ConfidentialStats:
        """Return the figures of the clusters of all parts."""
        listed = list(parts)
        return cls(within=sum(part.within for part in listed), total=sum(part.total for part in listed))


NO_CONFIDENTIAL_STATS = ConfidentialStats()
"""Of a block with which no cluster was decided, or of a policy that measures no confidential value."""


class ConfidentialMeasures:
    """Totals of the confidential values of a stream.

    Parameters
    ----------
    policy : Policy
    """

    def __init__(self, policy: Policy) -> None:
        numbers = ConfidentialNumbers(policy)
        self._loss = ValueLoss(numbers) if len(numbers) else None

    @property
    def has_figures(self) -> bool:
        """Whether the policy measures confidential values at all."""
        return self._loss is not None

    def add(self, numbers: Float64Matrix, cluster_bounds: Int64Vector) -> ConfidentialStats:
        """Add decided clusters; the parameters are those of `ValueLoss.add`."""
        if self._loss is None:
            return NO_CONFIDENTIAL_STATS
        return ConfidentialStats(*self._loss.add(numbers, cluster_bounds))

    def as_dict(self, d_x: float | None) -> dict[str, Any]:
        """Return the figures as written by ``--summary``: those that the policy asks for.

        ``d_x`` is the share of the variation of quasi-identifiers that is within clusters.
        """
        return {} if self._loss is None else {"d_x": d_x, "d_y": self._loss.d_y}
