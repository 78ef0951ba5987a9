"""Steering: artificial attributes with a weight that pull a partition where it shall go ([1]_, Definition 3).

In a stream there is one, the position of a record: P = position x omega_p (Algorithm 3). It is not stored.
Two records differ in it by omega_p times the difference of their positions, which is taken in whole numbers first, so
that it stays exact after years of stream. With omega_p = 0 the stream is microaggregated as by Algorithm 2.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, sections III and V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from shoal.clustering.stream.steering_kernel import Target
from shoal.policy import MAX_DELTA

__all__ = [
    "FIXED",
    "TargetSpan",
    "are_weights",
    "is_finite_number",
    "order_keeping_weight",
    "position_faults",
    "position_of",
]

BEGINNING = 2 / 3
SMALLEST = 2.0**-20
LARGEST = 4.0
"""First (divided by target + 1), smallest and largest weight that follows a target, as shares of the weight that keeps
the order. At the smallest positions count for nothing, at the largest no rule finds anything else to go by. Spans were
about as the inverse of the weight, on all data that were tried (docs/adr/0016)."""
UNKNOWN = 2.0**40
"""How much further either way where nobody says how large coordinates are."""

FIXED = Target(-1.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class TargetSpan:
    """A weight of the position that changes from cluster to cluster, so that these span so much on average.

    Attributes
    ----------
    span : float
        Mean excess span to hold, in records: positions from the first to the last of a cluster, beyond its size.
    ranges : sequence of float, optional
        Width of the range of each coordinate. Left out: not known, the weight may go as far as it must.
    weight : float, optional
        Weight to begin with, as `StreamClusterer.weight` has told it before. Left out: what suits
        the target, as far as can be told.
    """

    span: float
    ranges: tuple[float, ...] | None = None
    weight: float | None = None

    def beginning(self, k: int, d: int) -> tuple[float, Target]:
        """Return the weight to begin with and what it follows, for clusters of k and d coordinates."""
        most = order_keeping_weight(k, self.ranges or (1.0,) * d)
        further = UNKNOWN if self.ranges is None else 1.0
        target = Target(float(self.span), most * SMALLEST / further, most * LARGEST * further)
        weight = most * BEGINNING / (self.span + 1.0) if self.weight is None else self.weight
        return min(max(weight, target.lowest), target.highest), target


def position_of(position: object) -> object:
    """Return a target where ``{"target_span": S}`` is given, as a policy says it; else what is given."""
    if isinstance(position, Mapping) and set(position) == {"target_span"}:
        return TargetSpan(position["target_span"])
    return position


def position_faults(position: object) -> list[str]:
    """Say what is wrong with a weight of the position, or a target for it; empty if nothing is."""
    if isinstance(position, TargetSpan):
        if is_finite_number(position.span) and 0 <= position.span <= MAX_DELTA:
            return []
        return [f"position: target_span must be a number of records from 0 to {MAX_DELTA}"]
    return [] if is_finite_number(position) and position >= 0 else ["position: must be a finite weight, 0 or more"]


def are_weights(weights: object) -> bool:
    """Whether a parameter, whatever its kind, is a sequence of finite numbers above 0."""
    if isinstance(weights, np.ndarray) and weights.ndim == 1:
        weights = weights.tolist()
    if not isinstance(weights, Sequence) or isinstance(weights, bytes):
        return False
    return all(is_finite_number(weight) and weight > 0 for weight in weights)


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether a parameter, whatever its kind, is a number that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return bool(-sys.float_info.max <= value <= sys.float_info.max)


def order_keeping_weight(k: int, ranges: Sequence[float]) -> float:
    """Return the omega_p above which rule nearest does not reorder at all.

    Parameters
    ----------
    k : int
        Records in a cluster; every record must be its own subject.
    ranges : sequence of float
        Width of the range of each coordinate: 1 for an attribute scaled to [0, 1], times its weight.

    Returns
    -------
    float
        sqrt(sum of squared ranges / (2k - 1)), in units of the coordinates per position.

    Notes
    -----
    Records within k - 1 positions of the expiring one are at a squared distance of at most m + omega_p^2 (k - 1)^2 for
    m attributes in [0, 1]; those beyond are at omega_p^2 k^2 or more. Above the returned weight the first is the
    smaller, so the k oldest are taken and, by induction, these are always consecutive.
    Proposition 2 of the paper says (k - 1) sqrt(m / (2k - 1)): the factor k - 1 is what results if P is scaled so that
    k consecutive positions span omega_p. Here P is raw, as step 1 of Algorithm 3 writes it, and needs no such factor.

    Examples
    --------
    >>> round(order_keeping_weight(10, [1.0, 1.0]), 3)
    0.324
    """
    return math.sqrt(sum(width * width for width in ranges) / (2 * k - 1))
