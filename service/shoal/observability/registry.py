"""The registry of a process: it adds the consumer group to every series."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

__all__ = ["GroupRegistry"]


class GroupRegistry(CollectorRegistry):
    """A registry whose series all have the label ``group``, also those of the process.

    One process serves one consumer group. With the label, an alert tells two pipelines apart that one job scrapes.

    Parameters
    ----------
    group : str
        Consumer group; with an empty text no label is added.
    """

    def __init__(self, group: str = "") -> None:
        super().__init__()
        self.group = group

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of a scrape."""
        for family in super().collect():
            if self.group:
                family.samples = [
                    sample._replace(labels={**sample.labels, "group": self.group}) for sample in family.samples
                ]
            yield family
