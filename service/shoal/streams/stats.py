"""Statistics of released clusters, and the totals of a run: what was released, suppressed and lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.policy import Attribute, Policy
from shoal.protection.value_codes import ValueIndex
from shoal.scales.loss import LossTotals, RecordDistances, mean_loss
from shoal.streams.clusterer import Decisions
from shoal.streams.confidential_numbers import ConfidentialMeasures

__all__ = ["EMPTY_STATS", "ReleaseStats", "RunSummary", "measure_clusters"]


@dataclass(frozen=True, slots=True)
class ReleaseStats:
    """Statistics of the G clusters decided with one block (E records), and of the L records released with it.

    Attributes
    ----------
    size, subjects, max_per_subject, excess_span : ndarray of int64, shape (G,)
        Records, distinct subjects, records of the subject with most records, and records of other clusters between the
        first and the last member.
    delay, displacement : ndarray of int64, shape (L,)
        Records that arrived between a record and its release, and difference of its ranks in input and output. Where
        clusters are released as a whole these are the E records, in the same order.
    squared, absolute : ndarray of float64, shape (E,)
        Squared and plain Euclidean distance of a record from its published values, in units of the attributes' ranges;
        see `pipeline.attribute_loss`.
    numeric_squared : ndarray of float64, shape (E,)
        Squared distance in the numeric and time attributes only.
    """

    size: Int64Vector
    subjects: Int64Vector
    max_per_subject: Int64Vector
    excess_span: Int64Vector
    delay: Int64Vector
    displacement: Int64Vector
    squared: Float64Vector
    absolute: Float64Vector
    numeric_squared: Float64Vector


_NO_COUNTS, _NO_LOSS = np.zeros(0, np.int64), np.zeros(0)
EMPTY_STATS = ReleaseStats(
    _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_LOSS, _NO_LOSS, _NO_LOSS
)
"""Statistics of a block with which nothing was decided."""


def measure_clusters(decided: Decisions, distances: RecordDistances, next_rank: int) -> ReleaseStats:
    """Return the statistics of decided clusters, as if all their records were released with the decision.

    Parameters
    ----------
    decided : Decisions
        At least one cluster.
    distances : RecordDistances
        Of its E records.
    next_rank : int
        Rank in the output of the first of these records.
    """
    sizes = np.diff(decided.cluster_bounds)
    starts, ends = decided.cluster_bounds[:-1], decided.cluster_bounds[1:]
    # A suppressed record counts in the order of release, as if it were released without being seen.
    suppressed_before = np.searchsorted(decided.suppressed_before, np.arange(len(sizes)), side="right")
    ranks = next_rank + np.arange(len(decided.positions)) + suppressed_before.repeat(sizes)
    displacement: Int64Vector = np.abs(ranks - decided.positions)
    return ReleaseStats(
        size=sizes,
        subjects=decided.subjects,
        max_per_subject=decided.max_per_subject,
        excess_span=decided.positions[ends - 1] - decided.positions[starts] - (sizes - 1),
        delay=decided.newest.repeat(sizes) - decided.positions,
        displacement=displacement,
        squared=distances.squared,
        absolute=np.sqrt(distances.squared),
        numeric_squared=distances.numeric_squared,
    )


@dataclass(slots=True)
class RunSummary:
    """Totals since the start of the process.

    Attributes
    ----------
    attributes : tuple of Attribute
        The quasi-identifiers.
    confidential : ConfidentialMeasures
        Totals of the confidential values of decided clusters.
    window_records : int
        Offsets of a window, within which a clock has no trend: delta + 1.
    records_in, released, clipped, clusters, decided : int
    suppressed, quarantined : Counter
        Numbers of records by reason.
    losses : LossTotals
        Loss of each quasi-identifier.

    Notes
    -----
    Guarantee: ``records_in = released + suppressed + quarantined + waiting``. The last is
    `PartitionPipeline.waiting_count`, ``held`` in the JSON.
    """

    attributes: tuple[Attribute, ...]
    confidential: ConfidentialMeasures
    window_records: int
    records_in: int = 0
    released: int = 0
    clipped: int = 0
    clusters: int = 0
    decided: int = 0
    """Records of the decided clusters; with ordered release some of them are not released yet."""
    suppressed: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    """Messages that are no records; they are not part of ``records_in``."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Values of valid records that the taxonomy of their attribute lacks, by attribute."""
    _sums: Counter[str] = field(default_factory=Counter)
    _min: dict[str, float] = field(default_factory=dict)
    _max: dict[str, float] = field(default_factory=dict)
    losses: LossTotals = field(init=False)

    def __post_init__(self) -> None:
        """Start the sums of each attribute at zero."""
        self.losses = LossTotals(self.attributes)

    @classmethod
    def of(cls, policy: Policy, values: ValueIndex | None = None) -> Self:
        """Return the summary of a policy before the first record; ``values`` is its index, if there is one already."""
        rule = ValueIndex(policy).rule if values is None else values.rule
        delta = policy.require_stream().delta
        return cls(policy.quasi_identifiers, ConfidentialMeasures(policy, rule), delta + 1)

    def add_clusters(
        self,
        stats: ReleaseStats,
        values: Float64Matrix,
        published: Float64Matrix,
        distances: Float64Matrix,
        offsets: Sequence[int],
    ) -> tuple[Float64Vector, LossTotals]:
        """Add the clusters decided with one block. Their released records are added by `add_released`.

        Parameters
        ----------
        stats : ReleaseStats
            Of these clusters, in the order of decision.
        values, published, distances : ndarray of float64, shape (E, q)
            As of `LossTotals.of`.
        offsets : sequence of int
            Of the E records; ascending within a cluster.

        Returns
        -------
        growth : ndarray of float64, shape (q,)
            Growth of the total sum of squares of each attribute, original units squared.
        losses : LossTotals
            Sums of the loss of these records.

        Notes
        -----
        Each decision concerns the oldest held record. So no record is decided later that is older than the first
        member of the last cluster, and the windows before it are closed. At most as many windows as records are held
        stay open, also if the offsets have gaps.
        """
        windows = np.array(offsets, np.int64) // self.window_records
        losses = LossTotals.of(self.attributes, values, published, distances, windows)
        growth = self.losses.merge(losses)
        if self.losses.windows is not None:
            self.losses.windows.close_before(int(windows[len(windows) - stats.size[-1]]))
        self.decided += len(values)
        self.clusters += len(stats.size)
        self._add_columns(size=stats.size, subjects=stats.subjects, excess_span=stats.excess_span)
        self._add_columns(share=stats.max_per_subject / stats.size)
        self._add_columns(squared=stats.squared, absolute=stats.absolute)
        return growth, losses

    def add_released(self, stats: ReleaseStats) -> None:
        """Add the records released with one block."""
        self.released += len(stats.delay)
        if len(stats.delay):
            self._add_columns(delay=stats.delay, displacement=stats.displacement)

    def _add_columns(self, **columns: Int64Vector | Float64Vector) -> None:
        """Update sum, minimum and maximum of columns of equal length and type."""
        rows = np.array(list(columns.values()))
        of_each = zip(
            columns, rows.sum(axis=1).tolist(), rows.min(axis=1).tolist(), rows.max(axis=1).tolist(), strict=True
        )
        for name, total, lowest, highest in of_each:
            self._sums[name] += total
            self._min[name] = min(self._min.get(name, lowest), lowest)
            self._max[name] = max(self._max.get(name, highest), highest)

    @property
    def information_loss(self) -> float | None:
        """Information loss of the numeric and time attributes in percent; None without such values."""
        sse, sst = self.losses.sse, self.losses.sst
        return 100 * sse / sst if sst else None

    def as_dict(self, waiting: int, elapsed_s: float) -> dict[str, Any]:
        """Return the summary of a stream as written by ``--summary``; a figure without records is null.

        Parameters
        ----------
        waiting : int
            Records that are neither released nor suppressed (`PartitionPipeline.waiting_count`).
        elapsed_s : float
            Duration of the run in seconds.
        """
        has_loss, losses = self.decided > 0 and self.losses.has_numbers, self.losses.by_attribute()
        return {
            "records_in": self.records_in,
            "released": self.released,
            "suppressed": dict(self.suppressed),
            "quarantined": dict(self.quarantined),
            "clipped": self.clipped,
            **({"unknown": dict(self.unknown)} if self.unknown else {}),
            "held": waiting,
            "clusters": self.clusters,
            "cluster_size": {
                "min": self._min.get("size"),
                "mean": self._mean_of("size", self.clusters),
                "max": self._max.get("size"),
            },
            "subjects": {"min": self._min.get("subjects")},
            "share": {"max": self._max.get("share")},
            "mse": self._mean_of("squared", self.decided),
            "mae": self._mean_of("absolute", self.decided),
            "sse": self.losses.sse if has_loss else None,
            "sst": self.losses.sst if has_loss else None,
            "information_loss": self.information_loss,
            "loss": losses,
            "mean_loss": mean_loss(losses),
            "clocks": self.losses.clocks,
            "displacement": self._mean_and_max("displacement", self.released),
            "excess_span": self._mean_and_max("excess_span", self.clusters),
            "delay": self._mean_and_max("delay", self.released),
            **self.confidential.as_dict(None if self.information_loss is None else self.information_loss / 100),
            "elapsed_s": elapsed_s,
            "records_per_s": self.records_in / elapsed_s if elapsed_s > 0 else None,
        }

    def _mean_of(self, name: str, count: int) -> float | None:
        return self._sums[name] / count if count else None

    def _mean_and_max(self, name: str, count: int) -> dict[str, float | None]:
        return {"mean": self._mean_of(name, count), "max": self._max.get(name)}
