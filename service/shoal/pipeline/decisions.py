"""What a block of records led to: clusters that were decided on, and who leaves."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from shoal.pipeline.reorder_buffer import PendingRow
from shoal.pipeline.stats import ReleaseStats

__all__ = ["BlockDecisions", "DecidedCluster", "joined"]


class DecidedCluster(NamedTuple):
    """A cluster that has been decided on.

    ``places`` are the members' offsets (or line numbers), ascending; ``rows`` their published bytes, sorted:
    the two orders have nothing to do with each other, unless the policy says to reveal the order. ``number`` counts
    clusters of the partition from 0.
    """

    number: int
    places: list[int]
    rows: list[bytes]
    centroid: tuple[str, ...]
    subjects: int


@dataclass(frozen=True, slots=True)
class BlockDecisions:
    """What one block led to.

    Clusters in order of decision, offsets suppressed, the figures (None where nothing was decided and nothing left),
    by how much the total sum of squares grew (scaled to [0, 1]), and how many clusters left because of ``reach``.
    ``slots``: what leaves now, in the order of the input; None: the clusters do, as a whole.
    """

    clusters: list[DecidedCluster]
    suppressed: list[int]
    figures: ReleaseStats | None = None
    spread: float = 0.0
    early: int = 0
    slots: list[PendingRow] | None = None

    @property
    def left(self) -> list[int]:
        """Offsets of the records that leave now."""
        if self.slots is not None:
            return [slot.place for slot in self.slots]
        return [place for cluster in self.clusters for place in cluster.places]


def joined(outcomes: list[BlockDecisions]) -> BlockDecisions:
    """Put together what the parts of a block led to."""
    if len(outcomes) == 1:
        return outcomes[0]
    figures = [outcome.figures for outcome in outcomes if outcome.figures is not None]
    columns = ([getattr(part, column.name) for part in figures] for column in fields(ReleaseStats))
    return BlockDecisions(
        [cluster for outcome in outcomes for cluster in outcome.clusters],
        [place for outcome in outcomes for place in outcome.suppressed],
        ReleaseStats(*(np.concatenate(parts) for parts in columns)) if figures else None,
        sum(outcome.spread for outcome in outcomes),
        sum(outcome.early for outcome in outcomes),
        None if outcomes[0].slots is None else [slot for outcome in outcomes for slot in outcome.slots or ()],
    )
