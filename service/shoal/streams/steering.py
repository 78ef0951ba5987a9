"""Steering: an artificial attribute with a weight that controls how far clusters reach in time ([1]_, Definition 3).

In a stream the artificial attribute is the position of a record, P = position x omega_p (Algorithm 3). It is not
stored. Two records differ in it by omega_p times the difference of their positions. The difference is taken between
integers first, so that it stays exact however long the stream runs. With omega_p = 0 a stream is aggregated as by
Algorithm 2.

The weight is fixed, or it follows a target for the mean excess span. A cluster of n records whose first and last
position differ by s has an excess span of s - (n - 1); it is 0 for consecutive records. After each cluster the weight
is multiplied by more than 1 if the cluster spans more than the target, and by less than 1 if it spans less. The update
uses sums, products and quotients only, which every machine rounds alike: a restart on another machine continues with
the same bits.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, sections III and V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector
from shoal.kernels.jit import njit_inline
from shoal.policy import MAX_DELTA
from shoal.streams.held_records import CLUSTERS, END, DecisionBuffer
from shoal.tables.arguments import is_finite_number

__all__ = [
    "NO_TARGET",
    "TargetSpan",
    "WeightTarget",
    "are_weights",
    "order_keeping_weight",
    "parse_position",
    "position_faults",
    "update_weight",
]

INITIAL_SHARE = 2 / 3
"""Initial weight of a stream that follows a target, times (target + 1), as a share of the weight that keeps records in
order (`order_keeping_weight`). Measured spans were about inversely proportional to the weight (docs/adr/0016).
"""

SMALLEST = 2.0**-20
"""Smallest weight as such a share. With it positions do not matter."""

LARGEST = 4.0
"""Largest weight as such a share. With it positions alone decide."""

UNKNOWN_RANGE_FACTOR = 2.0**40
"""Factor by which the range of weights is widened at both ends if the ranges of the coordinates are not known."""

GAIN = 0.05
"""Change of the logarithm of the weight after a cluster whose excess span is one target above the target."""

MAX_EXCESS = 4.0
"""Largest excess over the target that counts, in targets. It limits the effect of one outlying record."""


class WeightTarget(NamedTuple):
    """What the weight of the position follows.

    Attributes
    ----------
    span : float
        Mean excess span to hold, in records; negative if the weight is fixed.
    lowest, highest : float
        Limits of the weight.
    """

    span: float
    lowest: float
    highest: float


NO_TARGET = WeightTarget(-1.0, 0.0, 0.0)
"""The weight is fixed."""


@dataclass(frozen=True, slots=True)
class TargetSpan:
    """A weight of the position that is adjusted after each cluster to hold a mean excess span.

    Attributes
    ----------
    span : float
        Mean excess span to hold, in records: positions from the first to the last record of a cluster, beyond its size.
    ranges : tuple of float, optional
        Width of the range of each numeric coordinate. If omitted, the limits of the weight are widened.
    weight : float, optional
        Initial weight, as `StreamClusterer.weight` returned it before a restart. If omitted, it is estimated.
    """

    span: float
    ranges: tuple[float, ...] | None = None
    weight: float | None = None

    def initial(self, k: int, d: int, code_distances: Iterable[float] = ()) -> tuple[float, WeightTarget]:
        """Return the initial weight and the target, for clusters of k records with d coordinates.

        ``code_distances`` are the squared distances of category columns.
        """
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
    """Return the omega_p above which rule nearest releases records in arrival order.

    Parameters
    ----------
    k : int
        Records in a cluster; every record must be a subject of its own.
    ranges : sequence of float
        Width of the range of each coordinate: 1 for an attribute scaled to [0, 1], times its weight.

    Returns
    -------
    float
        sqrt(sum of squared ranges / (2k - 1)), in units of the coordinates per position.

    Notes
    -----
    For m attributes in [0, 1], a record within k - 1 positions of the expiring one has a squared distance of at most
    m + omega_p^2 (k - 1)^2. A record beyond that has at least omega_p^2 k^2. Above the returned weight the first is
    smaller, so the k oldest records are taken and, by induction, clusters are always consecutive.
    Proposition 2 of the paper states (k - 1) sqrt(m / (2k - 1)). The factor k - 1 results if P is scaled so that k
    consecutive positions span omega_p. Here P is not scaled, as in step 1 of Algorithm 3, and needs no such factor.

    Examples
    --------
    >>> round(order_keeping_weight(10, [1.0, 1.0]), 3)
    0.324
    """
    return math.sqrt(sum(width * width for width in ranges) / (2 * k - 1))


@njit_inline
def update_weight(omega_p: Float64Vector, target: WeightTarget, decisions: DecisionBuffer, first: int) -> None:
    """Adjust the weight omega_p (1,) to the clusters decided since there were ``first`` of them."""
    if target.span < 0.0:
        return
    start = decisions.clusters[END, first - 1] if first > 0 else 0
    for cluster in range(first, decisions.counts[CLUSTERS]):
        end = decisions.clusters[END, cluster]
        excess = float(decisions.positions[end - 1] - decisions.positions[start] - (end - start - 1))
        # Half of the change of the logarithm. The quotient below approximates the exponential to the third order.
        half = 0.5 * GAIN * min((excess - target.span) / (target.span + 1.0), MAX_EXCESS)
        moved = omega_p[0] * ((1.0 + half) / (1.0 - half))
        omega_p[0] = min(max(moved, target.lowest), target.highest)
        start = end
