"""What a block of records led to: clusters that were decided on, and who leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

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

    Attributes
    ----------
    clusters : list of DecidedCluster
        In the order of decision.
    suppressed : list of int
        Offsets of suppressed records.
    figures : ReleaseStats or None
        None where no cluster was decided and no record left.
    spread : float
        By how much the total sum of squares grew, scaled to [0, 1].
    early : int
        Clusters decided because an offset went out of ``reach``.
    released : list of int
        Offsets of the records that leave with this block (`pipeline.release`).
    rows : list of bytes
        Published bytes of these records, in the order in which they leave. They are as many as ``released``, and are
        not aligned with it where the members of a cluster are shuffled.
    """

    clusters: list[DecidedCluster]
    suppressed: list[int]
    figures: ReleaseStats | None = None
    spread: float = 0.0
    early: int = 0
    released: list[int] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)


def joined(outcomes: list[BlockDecisions]) -> BlockDecisions:
    """Join the decisions on the parts of a block."""
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
        [place for outcome in outcomes for place in outcome.released],
        [row for outcome in outcomes for row in outcome.rows],
    )
