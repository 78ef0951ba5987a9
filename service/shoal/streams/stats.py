"""Statistics of released clusters, and the totals of a run: what was released, suppressed and lost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import Attribute, Policy
from shoal.protection.diversity import ClusterPeople, CountedValues, DiversityRule, people_of
from shoal.protection.value_codes import ValueIndex
from shoal.scales.loss import LossTotals, RecordDistances, mean_loss
from shoal.streams.held_records import Decisions
from shoal.streams.invariants import distances_of_clusters
from shoal.streams.steering import ConfidentialNumbers


@dataclass(frozen=True, slots=True)
class ReleaseStats:
    """Statistics of the G clusters decided with one block (E records), and of the L records released with it.

    Delay is the number of records that arrived between a record and its release, displacement the difference of its
    ranks in input and output. Where clusters are released as a whole these are the E records, in the same order.
    """

    size: Int64Vector  # (G,): records
    subjects: Int64Vector  # (G,): distinct subjects
    max_per_subject: Int64Vector  # (G,): records of the subject with most records
    excess_span: Int64Vector  # (G,): records of other clusters between the first and the last member
    delay: Int64Vector  # (L,)
    displacement: Int64Vector  # (L,)
    squared: Float64Vector  # (E,): squared distance from the published values, in units of the attributes' ranges
    absolute: Float64Vector  # (E,): plain Euclidean distance
    numeric_squared: Float64Vector  # (E,): squared distance in the numeric and time attributes only


_NO_COUNTS, _NO_LOSS = np.zeros(0, np.int64), np.zeros(0)
EMPTY_STATS = ReleaseStats(
    _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_LOSS, _NO_LOSS, _NO_LOSS
)  # of a block with which nothing was decided


def measure_clusters(decided: Decisions, distances: RecordDistances, next_rank: int) -> ReleaseStats:
    """Return the statistics of decided clusters, one or more, as if all their records were released now."""
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
    """Totals since the start of the process; within ``window_records`` offsets, delta + 1, a clock has no trend.

    Guarantee: ``records_in = released + suppressed + quarantined + waiting``. The last is
    `PartitionPipeline.waiting_count`, ``held`` in the JSON.
    """

    attributes: tuple[Attribute, ...]
    confidential: ConfidentialMeasures | None
    window_records: int
    records_in: int = 0
    released: int = 0
    clipped: int = 0
    clusters: int = 0
    decided: int = 0  # records of the decided clusters; with ordered release some of them are not released yet
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
    def of(cls, policy: Policy) -> Self:
        """Return the summary of a policy before the first record."""
        is_measured = policy.protects_values or bool(policy.dependence_attributes)
        confidential = ConfidentialMeasures(policy) if is_measured else None
        return cls(policy.quasi_identifiers, confidential, policy.require_stream().delta + 1)

    def add_clusters(
        self,
        stats: ReleaseStats,
        values: Float64Matrix,
        published: Float64Matrix,
        distances: Float64Matrix,
        offsets: Sequence[int],
    ) -> tuple[Float64Vector, LossTotals]:
        """Add the clusters decided with one block, in the order of decision; `add_released` adds their records.

        Returns the growth of the total sum of squares of each attribute (q,), in original units squared, and the sums
        of the loss of these records. Windows before the first member of the last cluster are closed: no older record is
        held.
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
        """Return the summary of a stream as written by ``--summary``; a figure without records is null."""
        has_loss, losses = self.decided > 0 and self.losses.has_numbers, self.losses.by_attribute()
        loss = self.information_loss
        d_x = None if loss is None else loss / 100
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
            "information_loss": loss,
            "loss": losses,
            "mean_loss": mean_loss(losses),
            "clocks": self.losses.clocks,
            "displacement": self._mean_and_max("displacement", self.released),
            "excess_span": self._mean_and_max("excess_span", self.clusters),
            "delay": self._mean_and_max("delay", self.released),
            **({} if self.confidential is None else self.confidential.as_dict(d_x)),
            "elapsed_s": elapsed_s,
            "records_per_s": self.records_in / elapsed_s if elapsed_s > 0 else None,
        }

    def _mean_of(self, name: str, count: int) -> float | None:
        return self._sums[name] / count if count else None

    def _mean_and_max(self, name: str, count: int) -> dict[str, float | None]:
        return {"mean": self._mean_of(name, count), "max": self._max.get(name)}


@dataclass(frozen=True, slots=True)
class ConfidentialStats:
    """Figures of the confidential values of the clusters decided with one block; infinite where not measured."""

    within: float = 0.0  # within clusters
    total: float = 0.0  # in total
    fewest_values: float = math.inf  # fewest values of a cluster that can be those of different people
    value_share: float = -math.inf  # largest share of the people of a cluster who have one value
    distance: float = -math.inf  # largest earth mover's distance of a cluster from the reference

    @classmethod
    def join(cls, parts: Iterable[ConfidentialStats]) -> ConfidentialStats:
        """Return the figures of the clusters of all parts, of which there is at least one."""
        listed = list(parts)
        return cls(
            sum(part.within for part in listed),
            sum(part.total for part in listed),
            min(part.fewest_values for part in listed),
            max(part.value_share for part in listed),
            max(part.distance for part in listed),
        )


NO_CONFIDENTIAL_STATS = ConfidentialStats()
"""Of a block with which no cluster was decided, or of a policy that measures no confidential value."""


class ConfidentialMeasures:
    """Totals of the confidential values of a stream."""

    def __init__(self, policy: Policy) -> None:
        numbers = ConfidentialNumbers(policy)
        self._unit, self._loss = numbers.unit, LossTotals(numbers.attributes) if len(numbers) else None
        self._rule = ValueIndex(policy).rule if policy.protects_values else None
        self._names = [attribute.name for attribute in policy.protected]
        self._has_references = policy.t is not None
        self._clusters = 0
        self._sums, self._max = (dict.fromkeys(self._names, 0.0) for _ in range(2))
        self._extremes = NO_CONFIDENTIAL_STATS

    @property
    def has_protection(self) -> bool:
        """Whether the policy protects values: records may be suppressed for want of other values."""
        return self._rule is not None

    def add(
        self, numbers: Float64Matrix, protected: Int64Matrix, subjects: Int64Vector, cluster_bounds: Int64Vector
    ) -> ConfidentialStats:
        """Add decided clusters, cluster after cluster, and return their figures; NaN is a missing number."""
        found = ConfidentialStats() if self._loss is None else self._add_numbers(self._loss, numbers, cluster_bounds)
        if self._rule is not None:
            clusters = np.arange(len(cluster_bounds) - 1).repeat(np.diff(cluster_bounds))
            people = people_of(clusters, subjects)
            found = ConfidentialStats.join((found, self._add_protected(self._rule, protected, people)))
        self._extremes = ConfidentialStats.join((self._extremes, found))
        return found

    def _add_numbers(self, loss: LossTotals, numbers: Float64Matrix, cluster_bounds: Int64Vector) -> ConfidentialStats:
        """Return how much the sums of squares within clusters and in total grow, each attribute in its bounds."""
        means = _means_of_clusters(numbers, cluster_bounds).repeat(np.diff(cluster_bounds), axis=0)
        residues = (numbers - means) / self._unit
        growth = loss.merge(LossTotals.of(loss.attributes, numbers, means, residues))
        return ConfidentialStats(float(np.nansum(residues * residues)), float((growth / self._unit**2).sum()))

    def _add_protected(self, rule: DiversityRule, protected: Int64Matrix, people: ClusterPeople) -> ConfidentialStats:
        self._clusters += len(people.counts)
        fewest, share, farthest = math.inf, -math.inf, -math.inf
        for number, name in enumerate(self._names):
            values = CountedValues(protected[:, number], people)
            fewest = min(fewest, float(values.distinct.min()))
            share = max(share, float((values.largest / people.counts).max()))
            if self._has_references:
                bins = protected[:, len(self._names) + number]
                distances = distances_of_clusters(rule, number, bins, people)
                self._sums[name] += float(distances.sum())
                self._max[name] = max(self._max[name], float(distances.max()))
                farthest = max(farthest, float(distances.max()))
        return ConfidentialStats(fewest_values=fewest, value_share=share, distance=farthest)

    def as_dict(self, d_x: float | None) -> dict[str, Any]:
        """Return the figures as written by ``--summary``: those that the policy asks for, null without clusters."""
        figures: dict[str, Any] = {}
        if self._loss is not None:
            total = self._loss.sst
            figures = {"d_x": d_x, "d_y": self._loss.sse / total if total else None}
        if self._rule is None:
            return figures
        if self._has_references:
            figures["emd"] = {name: self._distance_of(name) for name in self._names}
        has_clusters = self._clusters > 0
        figures["l"] = {"min": int(self._extremes.fewest_values) if has_clusters else None}
        figures["value_share"] = {"max": self._extremes.value_share if has_clusters else None}
        return figures

    def _distance_of(self, name: str) -> dict[str, float | None]:
        if not self._clusters:
            return {"mean": None, "max": None}
        return {"mean": self._sums[name] / self._clusters, "max": self._max[name]}


def _means_of_clusters(numbers: Float64Matrix, cluster_bounds: Int64Vector) -> Float64Matrix:
    """Return the means of the present numbers of each cluster (G, m); NaN where none is present."""
    present = ~np.isnan(numbers)
    starts = cluster_bounds[:-1]
    counts = np.add.reduceat(present.astype(np.int64), starts, axis=0)
    sums = np.add.reduceat(np.where(present, numbers, 0.0), starts, axis=0)
    means: Float64Matrix = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means
