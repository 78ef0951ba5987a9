"""Metrics of the confidential values of released clusters. They are all stepped, and none has a label."""

from __future__ import annotations

from math import floor, log10

from prometheus_client import CollectorRegistry, Counter

from shoal.pipeline.confidential_measures import NO_CONFIDENTIAL_STATS, ConfidentialStats

__all__ = ["ConfidentialMetrics", "three_digits"]


class ConfidentialMetrics:
    """The metrics of policies that measure confidential values.

    Parameters
    ----------
    registry : CollectorRegistry
        Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sse = Counter(
            "shoal_confidential_sse_total",
            "Squared distance of confidential numbers from the means of clusters, scaled to [0, 1]; stepped",
            registry=registry,
        )
        self.sst = Counter(
            "shoal_confidential_sst_total",
            "Total sum of squares of confidential numbers, scaled likewise; stepped",
            registry=registry,
        )
        self._pending = NO_CONFIDENTIAL_STATS

    def observe(self, stats: ConfidentialStats) -> None:
        """Add figures that are published with the next step."""
        self._pending = ConfidentialStats.join((self._pending, stats))

    def publish_step(self) -> None:
        """Publish the figures that were added since the last step, with three digits."""
        self.sse.inc(three_digits(self._pending.within))
        self.sst.inc(three_digits(self._pending.total))
        self._pending = NO_CONFIDENTIAL_STATS


def three_digits(number: float) -> float:
    """Round to three significant digits."""
    if number == 0:
        return 0.0
    return round(number, 2 - floor(log10(abs(number))))
