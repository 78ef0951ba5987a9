"""Numeric confidential attributes of a stream: their place in the distance, and how much clusters mix them.

With ``steering.dependence`` a record is the point (X, beta Y): X are the coordinates of its quasi-identifiers, Y those
of its confidential numbers, each scaled to [0, 1] by its bounds. Records of a cluster then agree in both, so that the
relation between the published means and the confidential values is preserved.

Figures of the confidential values of released clusters, for the summary and the metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.formats import Block, ConfidentialKeys, to_number
from shoal.policy import Policy, Scale
from shoal.protection import DiversityRule
from shoal.scales import Embedding
from shoal.scales.loss import LossTotals
from shoal.streams.protection import distances_of_clusters
from shoal.streams.record_store import StoredRecords
from shoal.tables.constraints import count_values

__all__ = [
    "NO_CONFIDENTIAL_STATS",
    "ConfidentialMeasures",
    "ConfidentialNumbers",
    "ConfidentialStats",
    "DistanceSpace",
    "ValueLoss",
]

_MISSING = 0.5
"""Coordinate of a missing value: the middle of the bounds."""


class ConfidentialNumbers:
    """The confidential attributes of which the dependence on quasi-identifiers is preserved: those with bounds.

    Parameters
    ----------
    policy : Policy
        Of a stream.

    Notes
    -----
    A value outside the bounds is published as it is. In distances it counts as the nearest bound, and a missing value,
    or a text that is not a number, as the middle of the bounds.
    """

    def __init__(self, policy: Policy) -> None:
        chosen = [
            (number, attribute)
            for number, attribute in enumerate(policy.unchanged_fields)
            if attribute in policy.dependence_attributes
        ]
        self._columns = [(number, ConfidentialKeys(attribute, policy.missing_values)) for number, attribute in chosen]
        self.attributes = tuple(replace(attribute, scale=Scale.NUMERIC) for _, attribute in chosen)
        bounds = np.array([attribute.bounds for attribute in self.attributes]).reshape(-1, 2)
        self._low, self.unit = bounds[:, 0], bounds[:, 1] - bounds[:, 0]

    def __len__(self) -> int:
        return len(self._columns)

    def read(self, block: Block) -> Float64Matrix:
        """Return the numbers of the records of a block (n, m): NaN where missing, no number, or beyond 1e150.

        The block must have been decoded with its unchanged columns, unless there are no such attributes.
        """
        numbers = np.empty((len(block), len(self)))
        for column, (number, keys) in enumerate(self._columns):
            numbers[:, column] = _to_numbers(keys.without_missing(block.unchanged_columns[number]))
        numbers[~(np.abs(numbers) < LARGEST)] = np.nan
        return numbers

    def coordinates(self, numbers: Float64Matrix) -> Float64Matrix:
        """Return the numbers (n, m) scaled to [0, 1] by the bounds."""
        scaled = np.clip((numbers - self._low) / self.unit, 0.0, 1.0)
        return np.where(np.isnan(scaled), _MISSING, scaled)


class DistanceSpace:
    """The space in which the distances of the records of a stream are computed.

    Parameters
    ----------
    policy : Policy
    numbers : ConfidentialNumbers
        Of this policy.

    Raises
    ------
    ParameterError
        Dependence is to be preserved, and no confidential attribute has bounds.

    Notes
    -----
    With ``dependence`` lambda, m quasi-identifiers and m' confidential numbers, the weight of a confidential number is
    beta = sqrt(lambda / (1 - lambda) * m / m'), so that the confidential numbers have the share lambda of the squared
    distance if all attributes have the same variance [1]_. With lambda = 1 only confidential numbers count: no
    quasi-identifier and no steering attribute does.

    References
    ----------
    .. [1] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
       Preservation of Statistical Dependence", Information Sciences 342, 2016, section 4.
    """

    def __init__(self, policy: Policy, numbers: ConfidentialNumbers) -> None:
        share = policy.dependence
        if share > 0 and not len(numbers):
            raise ParameterError("bounds: missing for every confidential attribute, so that no dependence is preserved")
        self._numbers = numbers
        self._has_numbers, self._has_attributes = share > 0, share < 1
        self._beta = 1.0
        if 0 < share < 1:
            self._beta = math.sqrt(share / (1 - share) * len(policy.quasi_identifiers) / len(numbers))

    def dimensions(self, embedding: Embedding) -> int:
        """Return the number of coordinates of a record, without codes."""
        return len(self.ranges(embedding))

    def ranges(self, embedding: Embedding) -> tuple[float, ...]:
        """Return the width of the range of each coordinate."""
        widths = embedding.ranges if self._has_attributes else ()
        return (*widths, *[self._beta] * len(self._numbers)) if self._has_numbers else widths

    def code_distances(self, embedding: Embedding) -> Float64Vector:
        """Return the squared distances of the columns of codes."""
        return embedding.code_distances if self._has_attributes else np.zeros(0)

    def codes_must_agree(self, embedding: Embedding) -> BoolVector:
        """Return in which columns of codes a cluster publishes a code only if all members have it."""
        return embedding.codes_must_agree if self._has_attributes else np.zeros(0, np.bool_)

    def coordinates(self, embedding: Embedding, values: Float64Matrix, numbers: Float64Matrix) -> Float64Matrix:
        """Return the coordinates of records with values (n, d) and confidential numbers (n, m)."""
        if not self._has_numbers:
            return embedding.coordinates(values)
        scaled = self._beta * self._numbers.coordinates(numbers)
        return np.column_stack([embedding.coordinates(values), scaled]) if self._has_attributes else scaled

    def codes(self, embedding: Embedding, values: Float64Matrix) -> Int64Matrix:
        """Return the codes of records with values (n, d)."""
        return embedding.codes(values) if self._has_attributes else np.empty((len(values), 0), np.int64)


class ValueLoss:
    """Sums for D_Y: the share of the variation of confidential numbers that is within clusters.

    Parameters
    ----------
    numbers : ConfidentialNumbers
    """

    def __init__(self, numbers: ConfidentialNumbers) -> None:
        self._unit, self._totals = numbers.unit, LossTotals(numbers.attributes)

    def add(self, numbers: Float64Matrix, cluster_bounds: Int64Vector) -> tuple[float, float]:
        """Add clusters, and return how much the sums of squares within clusters and in total have grown.

        Parameters
        ----------
        numbers : ndarray of float64, shape (E, m)
            Confidential numbers, cluster after cluster; NaN where missing; E >= 1.
        cluster_bounds : ndarray of int64, shape (G + 1,)
            Start of each cluster, and E.

        Returns
        -------
        within, total : float
            With each attribute in units of its bounds.
        """
        if not len(self._unit):
            return 0.0, 0.0
        means = _means_of_clusters(numbers, cluster_bounds).repeat(np.diff(cluster_bounds), axis=0)
        residues = (numbers - means) / self._unit
        growth = self._totals.add(numbers, means, residues)
        return float(np.nansum(residues * residues)), float((growth / self._unit**2).sum())

    @property
    def d_y(self) -> float | None:
        """Sum of squares within clusters over the total sum of squares, on z-scores; None if no number varies."""
        total = self._totals.sst
        return self._totals.sse / total if total else None


def _to_numbers(column: Sequence[Any]) -> Float64Vector:
    """Return a column of any JSON scalars as numbers; NaN for what is missing or not a number."""
    found = map(to_number, column)
    return np.fromiter((math.nan if number is None else number for number in found), np.float64, len(column))


def _means_of_clusters(numbers: Float64Matrix, cluster_bounds: Int64Vector) -> Float64Matrix:
    """Return the means of the present numbers of each cluster (G, m); NaN where none is present."""
    present = ~np.isnan(numbers)
    starts = cluster_bounds[:-1]
    counts = np.add.reduceat(present.astype(np.int64), starts, axis=0)
    sums = np.add.reduceat(np.where(present, numbers, 0.0), starts, axis=0)
    means: Float64Matrix = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


@dataclass(frozen=True, slots=True)
class ConfidentialStats:
    """Figures of the clusters decided with one block.

    Attributes
    ----------
    within, total : float
        How much the sums of squares of confidential numbers within clusters and in total have grown; each attribute in
        units of its bounds.
    fewest_values : float
        Smallest number of distinct values of a protected attribute in a cluster.
    value_share : float
        Largest share of one value of a protected attribute in the records of a cluster.
    distance : float
        Largest earth mover's distance of a cluster from the reference of a protected attribute.

    Notes
    -----
    The last three are infinite where nothing was measured.
    """

    within: float = 0.0
    total: float = 0.0
    fewest_values: float = math.inf
    value_share: float = -math.inf
    distance: float = -math.inf

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
    """Totals of the confidential values of a stream.

    Parameters
    ----------
    policy : Policy
        It measures D_Y if it preserves dependence, and l, shares and distances if it protects values.
    rule : DiversityRule or None
        The constraints of the policy on its protected attributes, as of `ValueIndex`.
    """

    def __init__(self, policy: Policy, rule: DiversityRule | None) -> None:
        numbers = ConfidentialNumbers(policy)
        self._loss = ValueLoss(numbers) if len(numbers) else None
        self._rule = rule
        self._names = [attribute.name for attribute in policy.protected]
        self._has_references = policy.t is not None
        self._clusters = 0
        self._sums, self._max = (dict.fromkeys(self._names, 0.0) for _ in range(2))
        self._extremes = NO_CONFIDENTIAL_STATS

    @property
    def has_figures(self) -> bool:
        """Whether the policy measures confidential values at all."""
        return self._loss is not None or self._rule is not None

    @property
    def has_protection(self) -> bool:
        """Whether the policy protects values: records may be suppressed for want of other values."""
        return self._rule is not None

    def add(self, members: StoredRecords, cluster_bounds: Int64Vector) -> ConfidentialStats:
        """Add decided clusters, and return their figures.

        Parameters
        ----------
        members : StoredRecords
            Cluster after cluster, at least one.
        cluster_bounds : ndarray of int64, shape (G + 1,)
            Start of each cluster, and the number of members.
        """
        if not self.has_figures:
            return NO_CONFIDENTIAL_STATS
        within, total = (0.0, 0.0) if self._loss is None else self._loss.add(members.numbers, cluster_bounds)
        found = ConfidentialStats(within, total)
        if self._rule is not None:
            found = ConfidentialStats.join((found, self._add_protected(self._rule, members, cluster_bounds)))
        self._extremes = ConfidentialStats.join((self._extremes, found))
        return found

    def _add_protected(
        self, rule: DiversityRule, members: StoredRecords, cluster_bounds: Int64Vector
    ) -> ConfidentialStats:
        sizes = np.diff(cluster_bounds)
        owners = np.arange(len(sizes), dtype=np.int32).repeat(sizes)
        self._clusters += len(sizes)
        fewest, share, farthest = math.inf, -math.inf, -math.inf
        for number, name in enumerate(self._names):
            values = count_values(members.protected[:, number], owners)
            fewest = min(fewest, float(values.distinct.min()))
            share = max(share, float((values.largest / sizes).max()))
            if self._has_references:
                bins = members.protected[:, len(self._names) + number]
                distances = distances_of_clusters(rule, number, bins, owners.astype(np.int64), sizes)
                self._sums[name] += float(distances.sum())
                self._max[name] = max(self._max[name], float(distances.max()))
                farthest = max(farthest, float(distances.max()))
        return ConfidentialStats(fewest_values=fewest, value_share=share, distance=farthest)

    def as_dict(self, d_x: float | None) -> dict[str, Any]:
        """Return the figures as written by ``--summary``: those that the policy asks for, null without clusters.

        ``d_x`` is the share of the variation of quasi-identifiers that is within clusters.
        """
        figures: dict[str, Any] = {} if self._loss is None else {"d_x": d_x, "d_y": self._loss.d_y}
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
