"""Metrics of the confidential values of released clusters. None has a label.

All are stepped, except that `shoal_protects_values` repeats what the policy says.
"""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Counter, Gauge

from shoal.pipeline.confidential_measures import NO_CONFIDENTIAL_STATS, ConfidentialStats

__all__ = ["ConfidentialMetrics", "three_digits"]

_EXTREMES = {
    "shoal_cluster_values_min": "Smallest number of distinct values",
    "shoal_cluster_value_share_max": "Largest share of one value",
    "shoal_cluster_distance_max": "Largest earth mover's distance from the reference",
}
"""Gauges of the clusters of one step; NaN until something was measured."""


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
        self.protects_values = Gauge(
            "shoal_protects_values", "1 if the policy sets privacy.l, t or max_value_share, else 0", registry=registry
        )
        self._extremes = {
            name: Gauge(name, f"{text} of a confidential attribute, clusters of the last step", registry=registry)
            for name, text in _EXTREMES.items()
        }
        for gauge in self._extremes.values():
            gauge.set(math.nan)
        self._pending = NO_CONFIDENTIAL_STATS

    def observe(self, stats: ConfidentialStats) -> None:
        """Add figures that are published with the next step."""
        self._pending = ConfidentialStats.join((self._pending, stats))

    def publish_step(self) -> None:
        """Publish the figures that were added since the last step, with three digits."""
        self.sse.inc(three_digits(self._pending.within))
        self.sst.inc(three_digits(self._pending.total))
        figures = (self._pending.fewest_values, self._pending.value_share, self._pending.distance)
        for gauge, figure in zip(self._extremes.values(), figures, strict=True):
            if math.isfinite(figure):
                gauge.set(three_digits(figure))
        self._pending = NO_CONFIDENTIAL_STATS


def three_digits(number: float) -> float:
    """Round to three significant digits."""
    if number == 0:
        return 0.0
    return round(number, 2 - math.floor(math.log10(abs(number))))
