"""What the audit counted of a release, to be compared with its summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shoal.audit.arrivals import AdmissionLimits, BoolVector
from shoal.audit.clusters import RecomputedClusters
from shoal.audit.evidence import Summary, is_count
from shoal.audit.losses import SQUARES, Losses
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.refusals import Refusal
from shoal.audit.structure import Dropped
from shoal.audit.value_figures import Figures

__all__ = [
    "AuditedCounts",
    "count_release",
    "read_lines",
    "read_records",
    "refusal_bounds",
]


@dataclass(frozen=True, slots=True)
class AuditedCounts:
    """What the audit counted; None where it could not.

    Attributes
    ----------
    records : int
        Records of the original.
    reached : int
        Records up to the last one that is released or referenced; of an exported topic all records.
    rows, clusters, smallest, largest : int
        Released rows, clusters, and the sizes of the smallest and the largest cluster.
    fewest_subjects : int
        Fewest subjects of a cluster.
    largest_share : float
        Largest share of one subject in a cluster.
    suppressed, held : int
        Largest numbers of records that the run can have suppressed and that it can still hold.
    certain : int
        Records that the run must have suppressed.
    quarantined : (int, int)
        Fewest and most records of a file that the run can have refused.
    refused : mapping of str to (int, int)
        The same for each reason. Of a topic, or where nothing is known: empty.
    are_exact : bool
        Whether ``suppressed`` and ``held`` are the numbers themselves.
    dropped : mapping of str to int
        Messages that are dropped, by kind.
    losses : Losses or None
        None if they are not known.
    values : dict
        What the summary may state of confidential values (`measure_values`).
    """

    records: int
    reached: int
    rows: int
    clusters: int | None
    smallest: int | None
    largest: int | None
    fewest_subjects: int | None
    largest_share: float | None
    suppressed: int | None = None
    held: int | None = None
    are_exact: bool = False
    certain: int = 0
    quarantined: tuple[int, int] | None = None
    refused: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    losses: Losses | None = None
    values: Figures = field(default_factory=dict)

    @property
    def compared(self) -> frozenset[str]:
        """The fields of a summary that are compared with these counts."""
        found = {"records_in", "records", "released", "suppressed", "quarantined", "held", "dropped", "clusters"}
        found |= {"cluster_size", "subjects", "share", "policy"} | {path[0] for path in self.values}
        if self.losses is not None:
            found |= {"loss"} if any(loss is not None for loss in self.losses.by_attribute.values()) else set()
            found |= {"sse", "sst"} if self.losses.sse is not None else set()
            found |= SQUARES if self.losses.sst else set()
            found |= {"mean_loss"} if self.losses.mean is not None else set()
            found |= {"clocks"} if self.losses.clocks is not None else set()
        return frozenset(found)

    def without_clusters(self) -> AuditedCounts:
        """Return the same without what is known of the clusters."""
        return replace(
            self,
            clusters=None,
            smallest=None,
            largest=None,
            fewest_subjects=None,
            largest_share=None,
            losses=None,
            values={},
        )


def count_release(
    originals: Originals,
    found: RecomputedClusters | None,
    limits: AdmissionLimits,
    *,
    rows: int,
    referenced_end: int,
    records_in: int | None,
) -> AuditedCounts:
    """Return what original, clusters and rows show.

    Parameters
    ----------
    originals : Originals
    found : RecomputedClusters or None
        None if the clusters are not known.
    limits : AdmissionLimits
    rows : int
        Number of released rows.
    referenced_end : int
        Lines up to the last one that is referenced.
    records_in : int or None
        Number of records that the summary counts as read.
    """
    released_end = 0 if found is None else found.is_released.rfind(1) + 1
    read_end = len(originals) if originals.is_export else max(referenced_end, released_end)
    is_released = None if found is None else found.is_released
    quarantined, by_reason = refusal_bounds(originals, limits, is_released, records_in)
    sizes = [] if found is None else [len(cluster.members) for cluster in found.clusters]
    return AuditedCounts(
        records=originals.records,
        reached=originals.records_of(read_end),
        rows=rows,
        clusters=None if found is None else found.count,
        smallest=min(sizes, default=None),
        largest=max(sizes, default=None),
        fewest_subjects=None if found is None else found.fewest_subjects,
        largest_share=None if found is None else found.largest_share,
        quarantined=quarantined,
        refused=by_reason,
        dropped={reason.value: len(originals.drops.get(reason, ())) for reason in Dropped},
    )


def refusal_bounds(
    originals: Originals, limits: AdmissionLimits, is_released: bytearray | None, records_in: int | None
) -> tuple[tuple[int, int] | None, dict[str, tuple[int, int]]]:
    """Return the fewest and the most records of a file that the run refused, and the same by reason.

    Unusable records and those that are too large are refused, and those near the limit may be. Nothing is known of a
    topic.
    """
    if originals.is_export:
        return None, {}
    most = len(originals) if records_in is None else originals.end_of(records_in)
    # A run that follows a file does not read a last record without end.
    fewest = most - 1 if records_in is None and not originals.is_ended else most
    is_unpublished = originals.subjects != UNUSABLE
    if is_released is not None:
        is_unpublished &= ~np.frombuffer(bytes(is_released), np.bool_)
    too_large, perhaps = limits.is_too_large & is_unpublished, limits.may_be_too_large & is_unpublished

    def bounds(is_certain: BoolVector, is_possible: BoolVector) -> tuple[int, int]:
        return int(np.count_nonzero(is_certain[:fewest])), int(np.count_nonzero(is_possible[:most]))

    unusable = originals.refusals
    by_reason = {
        reason.word: bounds(
            (unusable == reason) | (too_large & (reason is Refusal.TOO_LARGE)),
            ((unusable & reason) > 0) | (perhaps & (reason is Refusal.TOO_LARGE)),
        )
        for reason in Refusal
    }
    return bounds((unusable > 0) | too_large, (unusable > 0) | perhaps), by_reason


def read_records(summary: Summary) -> int | None:
    """Return the number of records that a summary counts as read; None if it does not say."""
    value = summary.get("records_in")
    return value if is_count(value) else None


def read_lines(summary: Summary, originals: Originals) -> int | None:
    """Return the number of first lines that hold the records which a summary counts as read; None as above."""
    records = read_records(summary)
    return None if records is None else originals.end_of(records)
