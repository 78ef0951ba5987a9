"""Statistics of released clusters, and the totals of a run: what was released, suppressed and lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.stream.clusterer import Decisions

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
        Squared and plain Euclidean distance of a record from its published values, in units of the attributes' ranges.
    """

    size: Int64Vector
    subjects: Int64Vector
    max_per_subject: Int64Vector
    excess_span: Int64Vector
    delay: Int64Vector
    displacement: Int64Vector
    squared: Float64Vector
    absolute: Float64Vector


_NO_COUNTS, _NO_LOSS = np.zeros(0, np.int64), np.zeros(0)
EMPTY_STATS = ReleaseStats(_NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_LOSS, _NO_LOSS)
"""Statistics of a block with which nothing was decided."""


def measure_clusters(
    decided: Decisions, values: Float64Matrix, published: Float64Matrix, unit: Float64Vector, next_rank: int
) -> ReleaseStats:
    """Return the statistics of decided clusters, as if all their records were released with the decision.

    Parameters
    ----------
    decided : Decisions
        At least one cluster.
    values, published : ndarray of float64, shape (E, d)
        Quasi-identifiers as read (clipped) and as published, original units.
    unit : ndarray of float64, shape (d,)
        Width of the range of each attribute.
    next_rank : int
        Rank in the output of the first of these records.
    """
    sizes = np.diff(decided.cluster_bounds)
    starts, ends = decided.cluster_bounds[:-1], decided.cluster_bounds[1:]
    # A suppressed record counts in the order of release, as if it were released without being seen.
    suppressed_before = np.searchsorted(decided.suppressed_before, np.arange(len(sizes)), side="right")
    ranks = next_rank + np.arange(len(decided.positions)) + suppressed_before.repeat(sizes)
    scaled = (values - published) / unit
    squared = np.einsum("ij,ij->i", scaled, scaled)
    displacement: Int64Vector = np.abs(ranks - decided.positions)
    return ReleaseStats(
        size=sizes,
        subjects=decided.subjects,
        max_per_subject=decided.max_per_subject,
        excess_span=decided.positions[ends - 1] - decided.positions[starts] - (sizes - 1),
        delay=decided.newest.repeat(sizes) - decided.positions,
        displacement=displacement,
        squared=squared,
        absolute=np.sqrt(squared),
    )


@dataclass(slots=True)
class RunSummary:
    """Totals since the start of the process.

    Notes
    -----
    Guarantee: ``records_in = released + suppressed + quarantined + waiting``. The last is
    `PartitionPipeline.waiting_count`, ``held`` in the JSON.
    """

    attributes: int
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
    _sums: Counter[str] = field(default_factory=Counter)
    _min: dict[str, float] = field(default_factory=dict)
    _max: dict[str, float] = field(default_factory=dict)
    _squared_error: Float64Vector = field(init=False)
    _mean: Float64Vector = field(init=False)
    _centred_squares: Float64Vector = field(init=False)

    def __post_init__(self) -> None:
        """Start the sums of each attribute at zero."""
        self._squared_error, self._mean, self._centred_squares = (np.zeros(self.attributes) for _ in range(3))

    def add_clusters(self, stats: ReleaseStats, values: Float64Matrix, published: Float64Matrix) -> Float64Vector:
        """Add the clusters decided with one block. Their released records are added by `add_released`.

        Parameters
        ----------
        stats : ReleaseStats
            Of these clusters.
        values, published : ndarray of float64, shape (E, d)
            Quasi-identifiers as read (clipped) and as published, original units; E >= 1.

        Returns
        -------
        ndarray of float64, shape (d,)
            Growth of the total sum of squares of each attribute, original units squared.
        """
        before = self._centred_squares.copy()
        self._add_loss(values, published)
        self.decided += len(values)
        self.clusters += len(stats.size)
        self._add_columns(size=stats.size, subjects=stats.subjects, excess_span=stats.excess_span)
        self._add_columns(share=stats.max_per_subject / stats.size)
        self._add_columns(squared=stats.squared, absolute=stats.absolute)
        return self._centred_squares - before

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

    def _add_loss(self, values: Float64Matrix, published: Float64Matrix) -> None:
        # Means and sums of squares of two samples are combined without a second pass (Chan et al. 1983).
        error = values - published
        self._squared_error += np.einsum("ij,ij->j", error, error)
        count, before = len(values), self.decided
        mean = values.mean(axis=0)
        centred = values - mean
        step = mean - self._mean
        between = step * step * (before * count / (before + count))
        self._centred_squares += np.einsum("ij,ij->j", centred, centred) + between
        self._mean += step * (count / (before + count))

    @property
    def sse(self) -> float:
        """Sum of squared errors on z-scores (ddof = 0) of the records of all clusters."""
        varied = self._centred_squares > 0
        return float((self._squared_error[varied] / self._centred_squares[varied]).sum() * self.decided)

    @property
    def sst(self) -> float:
        """Total sum of squares on z-scores: records times attributes that vary."""
        return float(np.count_nonzero(self._centred_squares > 0) * self.decided)

    def as_dict(self, waiting: int, elapsed_s: float) -> dict[str, Any]:
        """Return the summary of a stream as written by ``--summary``; a figure without records is null.

        Parameters
        ----------
        waiting : int
            Records that are neither released nor suppressed (`PartitionPipeline.waiting_count`).
        elapsed_s : float
            Duration of the run in seconds.
        """
        sse, sst = (self.sse, self.sst) if self.decided else (None, None)
        return {
            "records_in": self.records_in,
            "released": self.released,
            "suppressed": dict(self.suppressed),
            "quarantined": dict(self.quarantined),
            "clipped": self.clipped,
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
            "sse": sse,
            "sst": sst,
            "information_loss": 100 * sse / sst if sse is not None and sst else None,
            "displacement": self._mean_and_max("displacement", self.released),
            "excess_span": self._mean_and_max("excess_span", self.clusters),
            "delay": self._mean_and_max("delay", self.released),
            "elapsed_s": elapsed_s,
            "records_per_s": self.records_in / elapsed_s if elapsed_s > 0 else None,
        }

    def _mean_of(self, name: str, count: int) -> float | None:
        return self._sums[name] / count if count else None

    def _mean_and_max(self, name: str, count: int) -> dict[str, float | None]:
        return {"mean": self._mean_of(name, count), "max": self._max.get(name)}
