"""l-diversity of three kinds and the share of one value, computed from the counts of a cluster.

Sources: Machanavajjhala, Kifer, Gehrke and Venkitasubramaniam, l-Diversity, ACM TKDD 1(1), 2007,
doi:10.1145/1217299.1217302 (distinct, entropy and recursive l-diversity); Truta and Vinay, Privacy Protection:
p-Sensitive k-Anonymity Property, ICDE Workshops 2006, doi:10.1109/ICDEW.2006.116 (distinct, beside k).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from fractions import Fraction

__all__ = ["effective_values", "is_recursive_diverse", "largest_share", "recursive_ratio"]


def effective_values(counts: Collection[int]) -> float:
    """Return the number of equally frequent values that have the entropy of these: e to the power of the entropy."""
    size = sum(counts)
    return math.exp(-math.fsum(count / size * math.log(count / size) for count in counts))


def is_recursive_diverse(counts: Collection[int], c: float, l: int) -> bool:  # noqa: E741 - the name of the field
    """Whether the most frequent value occurs less than c times as often as the l-th and all rarer ones together.

    Exact: c is the shortest decimal number of its float64, as a policy states it, so 11 < 1.1 * 10 does not hold. A
    cluster with fewer than l values is not diverse.
    """
    first, tail = _first_and_tail(counts, l)
    return first < Fraction(repr(c)) * tail


def recursive_ratio(counts: Collection[int], l: int) -> float:  # noqa: E741 - the name of the field
    """Return the count of the most frequent value over that of the l-th and all rarer ones; infinite without these."""
    first, tail = _first_and_tail(counts, l)
    return first / tail if tail else math.inf


def _first_and_tail(counts: Collection[int], l: int) -> tuple[int, int]:  # noqa: E741 - the name of the field
    ordered = sorted(counts, reverse=True)
    return ordered[0], sum(ordered[l - 1 :])


def largest_share(counts: Collection[int]) -> Fraction:
    """Return the share of the most frequent value."""
    return Fraction(max(counts), sum(counts))
