"""Whether one person's contribution to a mean could be worked out by another: the p %-rule over held records.

References
----------
.. [1] L. H. Cox, "Linear sensitivity measures in statistical disclosure control", Journal of Statistical Planning and
   Inference 5(2), 1981. doi:10.1016/0378-3758(81)90025-4
.. [2] A. Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapter 4. doi:10.1002/9781118348239
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.jit import njit_in_place

__all__ = ["Dominance", "dominating"]

TOLERANCE = 1e-9
"""Sums of contributions are off by far less; in doubt a cluster does not leave."""


class Dominance(NamedTuple):
    """What is asked for: ``share`` = p / 100 (0: nothing), over a amounts of each record.

    ``references`` (a, R): points that everybody knows, from which contributions are counted.
    """

    share: float
    references: Float64Matrix


@njit_in_place
def dominating(
    amounts: Float64Matrix,
    order: Int64Vector,
    owners: Int64Vector,
    counts: Int64Vector,
    totals: Float64Vector,
    rule: Dominance,
) -> int:
    """Return the number of a subject whose contribution could be worked out too closely, or -1.

    ``amounts`` (a, held) of the held records, ``order`` the cluster (-1: handed back), ``owners`` its subjects by
    place, ``counts`` (subjects,) their records in it; ``totals`` is scratch, one per subject. Of several subjects the
    one of the first amount and reference is told, of equal ones the farthest.
    """
    for row in range(rule.references.shape[0]):
        for column in range(rule.references.shape[1]):
            totals[: counts.size] = 0.0
            for place in range(order.size):
                if order[place] >= 0:
                    totals[owners[place]] += abs(amounts[row, order[place]] - rule.references[row, column])
            first, second = _two_largest(totals[: counts.size])
            if _is_open(totals[: counts.size], first, second, rule.share):
                return first
    return -1


@njit_in_place
def _two_largest(totals: Float64Vector) -> tuple[int, int]:
    """Return the places of the largest and the second largest of two or more, the farthest of equal ones."""
    first, second = 0, -1
    for owner in range(1, totals.size):
        if totals[owner] >= totals[first]:
            first, second = owner, first
        elif second < 0 or totals[owner] >= totals[second]:
            second = owner
    return first, second


@njit_in_place
def _is_open(totals: Float64Vector, first: int, second: int, share: float) -> bool:
    """Whether the others leave the largest contribution open; not if nobody contributes anything."""
    rest = 0.0  # added up, and not what is left of the sum: that would lose its last digits
    for owner in range(totals.size):
        if owner not in (first, second):
            rest += totals[owner]
    largest = totals[first]
    return bool(largest > 0.0 and rest < share * largest * (1.0 + TOLERANCE))
