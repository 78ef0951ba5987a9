"""The metric of the loss of each quasi-identifier. Its label is the name of the attribute, a word of the policy."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from shoal.observability.confidential_metrics import three_digits
from shoal.pipeline.attribute_loss import LossTotals

__all__ = ["AttributeLosses"]


class AttributeLosses:
    """The loss of each quasi-identifier over the clusters of one step.

    Parameters
    ----------
    registry : CollectorRegistry
        Where the metric is registered.

    Notes
    -----
    Sums of squares are those of the step: variation between steps does not count. A time of which less than half of
    them is left after the means of the windows of each partition is measured against that, as in a summary. A loss
    stays if the attribute has none in a step.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._loss = Gauge(
            "shoal_attribute_loss",
            "Loss of a quasi-identifier in its own measure, clusters of the last step; stepped",
            ("attribute",),
            registry=registry,
        )
        self._pending: dict[tuple[str, int], LossTotals] = {}

    def observe(self, partition: tuple[str, int], losses: LossTotals) -> None:
        """Add sums that are published with the next step; ``partition``: topic and number."""
        if partition not in self._pending:
            self._pending[partition] = LossTotals(losses.attributes)
        self._pending[partition].merge(losses)

    def publish_step(self) -> None:
        """Publish the losses of what was added since the last step, with three digits."""
        for totals in self._pending.values():
            if totals.windows is not None:
                totals.windows.close()  # those of another partition have the same numbers
        joined = LossTotals.join(list(self._pending.values()))
        for name, loss in ({} if joined is None else joined.by_attribute()).items():
            if loss is not None:
                self._loss.labels(name).set(three_digits(loss))
        self._pending.clear()

    def clear(self) -> None:
        """Remove all series: the process has no partition."""
        self._loss.clear()
