"""l-diversity and the share of one value in the audit, worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from shoal.audit.confidential import effective_values, is_recursive_diverse, largest_share, recursive_ratio

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("counts", "values"),
    [([5], 1.0), ([1, 1, 1], 3.0), ([2, 2], 2.0), ([2, 1, 1], 2 * math.sqrt(2)), ([3, 1], 4 / 3**0.75)],
)
def test_effective_values_are_those_of_equal_frequency_with_the_same_entropy(counts: list[int], values: float) -> None:
    assert effective_values(counts) == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize(
    ("counts", "c", "l", "holds"),
    [
        ([4, 2, 2], 2, 2, True),  # 4 < 2 * 4
        ([4, 2, 2], 2, 3, False),  # 4 < 2 * 2 does not hold: equal is not less
        ([3, 2, 2], 2, 3, True),
        ([4, 4], 1, 2, False),
        ([4, 4], 1.5, 2, True),
        ([1, 1, 1], 0.5, 2, False),  # 1 < 0.5 * 2 does not hold
        ([1, 1, 1, 1], 0.5, 2, True),
        ([9, 1], 100, 3, False),  # fewer than l values
        ([5], 100, 2, False),
        ([100, 90, 10], 1, 2, False),
        ([100, 90, 11], 1, 2, True),
        ([11, 10], 1.1, 2, False),  # the float64 of 1.1 is above 11/10
        ([22, 10], 2.2, 2, False),
    ],
)
def test_recursive_diversity_compares_the_most_frequent_value_with_the_rest(
    counts: list[int],
    c: float,
    l: int,  # noqa: E741
    holds: bool,  # noqa: FBT001
) -> None:
    assert is_recursive_diverse(counts, c, l) is holds
    assert is_recursive_diverse(counts[::-1], c, l) is holds


def test_the_ratio_is_that_of_the_most_frequent_value_and_the_tail() -> None:
    assert recursive_ratio([2, 6, 1], 2) == 2.0
    assert recursive_ratio([2, 6, 1], 3) == 6.0
    assert recursive_ratio([2, 6, 1], 4) == math.inf


def test_the_largest_share_is_exact() -> None:
    assert largest_share([2, 3, 1]) == Fraction(1, 2)
    assert largest_share([7]) == 1
