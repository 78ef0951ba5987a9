"""Steering: artificial attributes with weights that join the distances of a stream ([1]_, Definition 3).

The position of a record, P = position x omega_p, controls how far clusters reach in time (Algorithm 3). Two records
differ in it by omega_p times the difference of their positions, which is taken between integers first, so that it stays
exact however long the stream runs. With omega_p = 0 a stream is aggregated as by Algorithm 2.

The weight is fixed, or it follows a target for the mean excess span. A cluster of n records whose first and last
position differ by s has an excess span of s - (n - 1). The update after each cluster (`expiry.update_weight`) uses only
operations that every machine rounds alike: a restart on another machine continues with the same bits.

With ``steering.dependence`` a record is the point (X, beta Y): X are the coordinates of its quasi-identifiers, Y those
of its confidential numbers, each scaled to [0, 1] by its bounds. Records of a cluster then agree in both, so that the
relation between the published means and the confidential values is preserved.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, sections III and V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from shoal.arrays import LARGEST as LARGEST_NUMBER
from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix
from shoal.errors import ParameterError
from shoal.formats import Block, ConfidentialKeys, to_number
from shoal.policy import MAX_DELTA, Policy, Scale
from shoal.scales import Embedding
from shoal.streams.expiry import WeightTarget
from shoal.tables.arguments import is_finite_number

INITIAL_SHARE = 2 / 3
"""Initial weight of a stream that follows a target, times (target + 1), as a share of `order_keeping_weight`. Measured
spans were about inversely proportional to the weight (docs/adr/0016)."""
SMALLEST, LARGEST = 2.0**-20, 4.0
"""Smallest and largest weight as such a share: positions do not matter, and positions alone decide."""
UNKNOWN_RANGE_FACTOR = 2.0**40
"""Factor by which the range of weights is widened at both ends if the ranges of the coordinates are not known."""
_MISSING = 0.5  # coordinate of a missing confidential number: the middle of the bounds


@dataclass(frozen=True, slots=True)
class TargetSpan:
    """A weight of the position that is adjusted after each cluster to hold a mean excess span of ``span`` records.

    ``ranges`` are the widths of the ranges of the coordinates; if omitted, the limits of the weight are widened.
    ``weight`` is `StreamClusterer.weight` before a restart.
    """

    span: float
    ranges: tuple[float, ...] | None = None
    weight: float | None = None

    def initial(self, k: int, d: int, code_distances: Iterable[float] = ()) -> tuple[float, WeightTarget]:
        """Return the initial weight and the target, for clusters of k records with d coordinates."""
        ranges = (1.0,) * d if self.ranges is None else self.ranges
        bound = order_keeping_weight(k, [*ranges, *map(math.sqrt, code_distances)])
        factor = UNKNOWN_RANGE_FACTOR if self.ranges is None else 1.0
        target = WeightTarget(float(self.span), bound * SMALLEST / factor, bound * LARGEST * factor)
        weight = bound * INITIAL_SHARE / (self.span + 1.0) if self.weight is None else self.weight
        return min(max(weight, target.lowest), target.highest), target


def parse_position(position: object) -> object:
    """Return a `TargetSpan` for the mapping ``{"target_span": S}`` of a policy; any other value unchanged."""
    if isinstance(position, Mapping) and set(position) == {"target_span"}:
        return TargetSpan(position["target_span"])
    return position


def position_faults(position: object) -> list[str]:
    """Return what is wrong with a weight of the position or its target, as messages; an empty list if it is valid."""
    if isinstance(position, TargetSpan):
        if is_finite_number(position.span) and 0 <= position.span <= MAX_DELTA:
            return []
        return [f"position: target_span must be a number of records from 0 to {MAX_DELTA}"]
    return [] if is_finite_number(position) and position >= 0 else ["position: must be a finite weight, 0 or more"]


def are_weights(weights: object) -> bool:
    """Whether a value of any type is a sequence of finite numbers above 0."""
    if isinstance(weights, np.ndarray) and weights.ndim == 1:
        weights = weights.tolist()
    if not isinstance(weights, Sequence) or isinstance(weights, bytes):
        return False
    return all(is_finite_number(weight) and weight > 0 for weight in weights)


def order_keeping_weight(k: int, ranges: Sequence[float]) -> float:
    """Return the omega_p above which rule nearest keeps the arrival order: sqrt(sum of squared ranges / (2k - 1)).

    For m attributes in [0, 1], a record within k - 1 positions has a squared distance of at most m + omega_p^2 (k -
    1)^2, one beyond that at least omega_p^2 k^2. Proposition 2 of the paper has a factor k - 1 more, because P is
    scaled there.
    """
    return math.sqrt(sum(width * width for width in ranges) / (2 * k - 1))


class ConfidentialNumbers:
    """The confidential attributes of which the dependence on quasi-identifiers is preserved: those with bounds.

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
        """Return the numbers of the records of a block (n, m): NaN where missing, no number, or beyond 1e150."""
        numbers = np.empty((len(block), len(self)))
        for column, (number, keys) in enumerate(self._columns):
            found = map(to_number, keys.without_missing(block.unchanged_columns[number]))
            numbers[:, column] = [math.nan if value is None else value for value in found]
        numbers[~(np.abs(numbers) < LARGEST_NUMBER)] = np.nan
        return numbers

    def coordinates(self, numbers: Float64Matrix) -> Float64Matrix:
        """Return the numbers (n, m) scaled to [0, 1] by the bounds."""
        scaled = np.clip((numbers - self._low) / self.unit, 0.0, 1.0)
        return np.where(np.isnan(scaled), _MISSING, scaled)


class SpaceShape(NamedTuple):
    """The columns of a `DistanceSpace`, as attributes that an `Embedding` has as well."""

    ranges: tuple[float, ...]  # width of the range of each coordinate
    code_distances: Float64Vector  # (c,)
    codes_must_agree: BoolVector  # (c,)


class DistanceSpace:
    """Coordinates and codes of the records of a stream that preserves dependence, in which distances are computed.

    With ``dependence`` lambda, m quasi-identifiers and m' confidential numbers, the weight of a confidential number is
    beta = sqrt(lambda / (1 - lambda) * m / m'), so that the confidential numbers have the share lambda of the squared
    distance if all attributes have the same variance (D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí
    Allepuz, "k-Anonymous Microaggregation with Preservation of Statistical Dependence", Information Sciences 342, 2016,
    section 4). With lambda = 1 only confidential numbers count: no quasi-identifier and no steering attribute does.
    Raises `ParameterError` if no confidential attribute has bounds.
    """

    def __init__(self, policy: Policy, numbers: ConfidentialNumbers) -> None:
        share = policy.dependence
        if not len(numbers):
            raise ParameterError("bounds: missing for every confidential attribute, so that no dependence is preserved")
        self._numbers, self._has_attributes, self._beta = numbers, share < 1, 1.0
        if self._has_attributes:
            self._beta = math.sqrt(share / (1 - share) * len(policy.quasi_identifiers) / len(numbers))

    def shape(self, embedding: Embedding) -> SpaceShape:
        """Return the columns of this space for an embedding of the quasi-identifiers."""
        of_numbers = (self._beta,) * len(self._numbers)
        if not self._has_attributes:
            return SpaceShape(of_numbers, np.zeros(0), np.zeros(0, np.bool_))
        return SpaceShape((*embedding.ranges, *of_numbers), embedding.code_distances, embedding.codes_must_agree)

    def coordinates(self, embedding: Embedding, values: Float64Matrix, numbers: Float64Matrix) -> Float64Matrix:
        """Return the coordinates of records with values (n, d) and confidential numbers (n, m)."""
        scaled = self._beta * self._numbers.coordinates(numbers)
        return np.column_stack([embedding.coordinates(values), scaled]) if self._has_attributes else scaled

    def codes(self, embedding: Embedding, values: Float64Matrix) -> Int64Matrix:
        """Return the codes of records with values (n, d)."""
        return embedding.codes(values) if self._has_attributes else np.empty((len(values), 0), np.int64)
