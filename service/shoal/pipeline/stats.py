"""What became of every record, and what it cost: the figures of a summary, added up block by block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector

__all__ = ["EMPTY_STATS", "ReleaseStats", "RunSummary"]


@dataclass(frozen=True, slots=True)
class ReleaseStats:
    """Figures of the clusters of one block (G clusters, E records in all), and of the L records that left with it.

    ``size``, ``subjects``, ``heaviest``, ``excess_span``: int64 (G,); ``delay``, ``displacement``: int64 (L,), in
    records; where clusters leave as a whole these are the E records, in the same order; ``squared``, ``absolute``:
    float64 (E,), squared Euclidean and Euclidean distance between the record and what was published for it,
    quasi-identifiers scaled to [0, 1] by their bounds.
    """

    size: Int64Vector
    subjects: Int64Vector
    heaviest: Int64Vector
    excess_span: Int64Vector
    delay: Int64Vector
    displacement: Int64Vector
    squared: Float64Vector
    absolute: Float64Vector


_NONE, _NO_LOSS = np.zeros(0, np.int64), np.zeros(0)
EMPTY_STATS = ReleaseStats(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NO_LOSS, _NO_LOSS)
"""Of a block in which nothing was decided."""


@dataclass(slots=True)
class RunSummary:
    """Totals since the start of the process.

    Guarantee: ``records_in = released + suppressed + quarantined + held``, where held is what the engine holds.
    """

    attributes: int
    records_in: int = 0
    released: int = 0
    clipped: int = 0
    clusters: int = 0
    decided: int = 0
    """Records of these clusters; some of them may have yet to leave."""
    suppressed: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    _sums: Counter[str] = field(default_factory=Counter)
    _lowest: dict[str, float] = field(default_factory=dict)
    _highest: dict[str, float] = field(default_factory=dict)
    _error: Float64Vector = field(init=False)
    _mean: Float64Vector = field(init=False)
    _spread: Float64Vector = field(init=False)

    def __post_init__(self) -> None:
        """Start the per-attribute sums at zero."""
        self._error, self._mean, self._spread = (np.zeros(self.attributes) for _ in range(3))

    def add(self, figures: ReleaseStats, values: Float64Matrix, published: Float64Matrix) -> Float64Vector:
        """Add the clusters of one block; those of their records that have left are added by `leave`.

        Parameters
        ----------
        figures : Figures
            Of these clusters.
        values, published : ndarray of float64, shape (E, d)
            The records' quasi-identifiers in their own units, as read (clipped) and as published; E >= 1.

        Returns
        -------
        ndarray of float64, shape (d,)
            By how much the total sum of squares of each attribute (own units) grew.
        """
        before = self._spread.copy()
        self._add_loss(values, published)
        self.decided += len(values)
        self.clusters += len(figures.size)
        self._note(size=figures.size, subjects=figures.subjects, excess_span=figures.excess_span)
        self._note(share=figures.heaviest / figures.size)
        self._note(squared=figures.squared, absolute=figures.absolute)
        return self._spread - before

    def leave(self, figures: ReleaseStats) -> None:
        """Add the records that have left."""
        self.released += len(figures.delay)
        if len(figures.delay):
            self._note(delay=figures.delay, displacement=figures.displacement)

    def _note(self, **columns: Int64Vector | Float64Vector) -> None:
        """Add columns of one length and type."""
        rows = np.array(list(columns.values()))
        of_each = zip(
            columns, rows.sum(axis=1).tolist(), rows.min(axis=1).tolist(), rows.max(axis=1).tolist(), strict=True
        )
        for name, total, lowest, highest in of_each:
            self._sums[name] += total
            self._lowest[name] = min(self._lowest.get(name, lowest), lowest)
            self._highest[name] = max(self._highest.get(name, highest), highest)

    def _add_loss(self, values: Float64Matrix, published: Float64Matrix) -> None:
        # Means and sums of squares of two parts are put together without a second pass (Chan et al. 1983).
        error = values - published
        self._error += np.einsum("ij,ij->j", error, error)
        count, before = len(values), self.decided
        mean = values.mean(axis=0)
        centred = values - mean
        step = mean - self._mean
        self._spread += np.einsum("ij,ij->j", centred, centred) + step * step * (before * count / (before + count))
        self._mean += step * (count / (before + count))

    @property
    def sse(self) -> float:
        """Sum of squared errors on z-scores (ddof = 0) of the records of all clusters."""
        varied = self._spread > 0
        return float((self._error[varied] / self._spread[varied]).sum() * self.decided)

    @property
    def sst(self) -> float:
        """Total sum of squares on z-scores: records times attributes that vary."""
        return float(np.count_nonzero(self._spread > 0) * self.decided)

    def summary(self, held: int, elapsed_s: float) -> dict[str, Any]:
        """The contract's summary of a stream; figures that do not exist yet are null."""
        sse, sst = (self.sse, self.sst) if self.decided else (None, None)
        return {
            "records_in": self.records_in,
            "released": self.released,
            "suppressed": dict(self.suppressed),
            "quarantined": dict(self.quarantined),
            "clipped": self.clipped,
            "held": held,
            "clusters": self.clusters,
            "cluster_size": {
                "min": self._lowest.get("size"),
                "mean": self._per("size", self.clusters),
                "max": self._highest.get("size"),
            },
            "subjects": {"min": self._lowest.get("subjects")},
            "share": {"max": self._highest.get("share")},
            "mse": self._per("squared", self.decided),
            "mae": self._per("absolute", self.decided),
            "sse": sse,
            "sst": sst,
            "information_loss": 100 * sse / sst if sse is not None and sst else None,
            "displacement": self._mean_and_max("displacement", self.released),
            "excess_span": self._mean_and_max("excess_span", self.clusters),
            "delay": self._mean_and_max("delay", self.released),
            "elapsed_s": elapsed_s,
            "records_per_s": self.records_in / elapsed_s if elapsed_s > 0 else None,
        }

    def _per(self, name: str, count: int) -> float | None:
        return self._sums[name] / count if count else None

    def _mean_and_max(self, name: str, count: int) -> dict[str, float | None]:
        return {"mean": self._per(name, count), "max": self._highest.get(name)}
