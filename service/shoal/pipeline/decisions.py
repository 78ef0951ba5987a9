"""The result of one block of records: decided clusters, suppressed records, and the rows that are released."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from shoal.pipeline.attribute_loss import LossTotals
from shoal.pipeline.confidential_measures import NO_CONFIDENTIAL_STATS, ConfidentialStats
from shoal.pipeline.stats import ReleaseStats

__all__ = ["BlockDecisions", "DecidedCluster", "join_decisions"]


class DecidedCluster(NamedTuple):
    """A cluster whose members are final.

    Attributes
    ----------
    number : int
        Number of the cluster in its partition, from 0, in the order of decision.
    offsets : list of int
        Offsets of the members in their partition (record numbers in a file), ascending.
    rows : list of bytes
        Published bytes of the members. Sorted by their bytes, so row i need not belong to offset i; with
        ``stream.reveal_order`` row i belongs to offset i.
    centroid : tuple of str
        Published quasi-identifiers, as JSON scalars.
    subjects : int
        Number of distinct subjects.
    policy : str
        Fingerprint (SHA-256, hex) of the policy under which the cluster was decided.
    """

    number: int
    offsets: list[int]
    rows: list[bytes]
    centroid: tuple[str, ...]
    subjects: int
    policy: str


@dataclass(frozen=True, slots=True)
class BlockDecisions:
    """All decisions that one block of records, or the end of the stream, leads to.

    Attributes
    ----------
    clusters : list of DecidedCluster
        In the order of decision.
    suppressed : list of int
        Offsets of suppressed records.
    stats : ReleaseStats or None
        None where no cluster was decided and no record is released.
    sst_growth : float
        How much the total sum of squares (SST) of all clusters grew with these, in the numeric and time attributes;
        values in units of the attributes' ranges.
    early_count : int
        Number of clusters decided before delta, because the offset metadata would become too large otherwise.
    released : list of int
        Offsets of the records that are released now; see `pipeline.release`.
    rows : list of bytes
        Published bytes of the released records, in the order of release. As many as ``released``; aligned with it only
        where the order of members is revealed.
    confidential : ConfidentialStats
        Figures of the confidential values of the clusters.
    losses : LossTotals or None
        Sums of the loss of the records of the clusters; None where no cluster was decided.
    """

    clusters: list[DecidedCluster]
    suppressed: list[int]
    stats: ReleaseStats | None = None
    sst_growth: float = 0.0
    early_count: int = 0
    released: list[int] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    confidential: ConfidentialStats = NO_CONFIDENTIAL_STATS
    losses: LossTotals | None = None


def join_decisions(parts: list[BlockDecisions]) -> BlockDecisions:
    """Join the decisions on the consecutive parts of a block."""
    if len(parts) == 1:
        return parts[0]
    stats = [part.stats for part in parts if part.stats is not None]
    columns = ([getattr(one, column.name) for one in stats] for column in fields(ReleaseStats))
    return BlockDecisions(
        clusters=[cluster for part in parts for cluster in part.clusters],
        suppressed=[offset for part in parts for offset in part.suppressed],
        stats=ReleaseStats(*(np.concatenate(arrays) for arrays in columns)) if stats else None,
        sst_growth=sum(part.sst_growth for part in parts),
        early_count=sum(part.early_count for part in parts),
        released=[offset for part in parts for offset in part.released],
        rows=[row for part in parts for row in part.rows],
        confidential=ConfidentialStats.join(part.confidential for part in parts),
        losses=LossTotals.join([part.losses for part in parts if part.losses is not None]),
    )
