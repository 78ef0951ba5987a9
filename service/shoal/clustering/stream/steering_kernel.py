"""The weight of the position while a stream runs: fixed, or following a target for the mean excess span.

A cluster of n records whose positions lie s apart has an excess span of s - (n - 1): 0 if they came in a row.
After each cluster the weight is multiplied: by more than 1 if the cluster spans more than the target, by less if less.
Only sums, products and quotients are used, which every machine rounds alike: a restart elsewhere has the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.arrays import Float64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.stream.held import CLUSTERS, END, DecisionBuffer

__all__ = ["Target", "follow"]

GAIN = 0.05
"""How far one cluster moves the logarithm of the weight, for an excess of one target above the target."""
FARTHEST = 4.0
"""No cluster counts for more than this many targets above: one far record must not throw the weight about."""


class Target(NamedTuple):
    """What the weight follows: the mean excess ``span`` (records; below 0: nothing), from ``lowest`` to ``highest``."""

    span: float
    lowest: float
    highest: float


@njit_in_place
def follow(omega_p: Float64Vector, target: Target, outcome: DecisionBuffer, before: int) -> None:
    """Move the weight (1,) by the clusters that were decided since there were ``before`` of them."""
    if target.span < 0.0:
        return
    start = outcome.clusters[END, before - 1] if before > 0 else 0
    for cluster in range(before, outcome.counts[CLUSTERS]):
        end = outcome.clusters[END, cluster]
        excess = float(outcome.positions[end - 1] - outcome.positions[start] - (end - start - 1))
        # Half the step of the logarithm; the quotient is the exponential to the third order, and never below 0.
        half = 0.5 * GAIN * min((excess - target.span) / (target.span + 1.0), FARTHEST)
        moved = omega_p[0] * ((1.0 + half) / (1.0 - half))
        omega_p[0] = min(max(moved, target.lowest), target.highest)
        start = end
