"""Distances of clusters from a reference in the audit, worked out by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest
from shoal.audit.confidential import OrderedReference, equal_distance, hierarchical_distance, nearest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("shares", "bins", "distance"),
    [
        # Cumulative shares 1/2, 1, 1 against 1/4, 1/2, 3/4: differences 1/4, 1/2, 1/4 over three steps.
        ([0.25] * 4, [0, 1], 1 / 3),
        ([0.25] * 4, [0, 3], 1 / 6),
        ([0.25] * 4, [3, 0, 2, 1], 0.0),
        ([1.0, 0.0, 0.0], [2], 1.0),
        ([1.0, 0.0, 0.0], [1], 0.5),
        ([0.0, 1.0, 0.0], [0, 2], 0.5),
        ([0.5, 0.0, 0.5], [0, 2], 0.0),
        ([0.5, 0.5], [1, 1, 1, 0], 0.25),
        ([1.0], [0, 0], 0.0),
        # Shares that sum to less than 1 by rounding are those of the whole.
        ([0.4999995, 0.4999995], [0], 0.5),
    ],
)
def test_the_ordered_distance_is_the_mean_difference_of_cumulative_shares(
    shares: list[float], bins: list[int], distance: float
) -> None:
    assert OrderedReference(shares).distance(bins) == pytest.approx(distance, abs=1e-12)


@pytest.mark.parametrize(
    ("counts", "reference", "distance"),
    [
        ({"a": 1, "b": 1}, {"a": 0.25, "b": 0.25, "c": 0.5}, 0.5),
        ({"a": 3}, {"a": 0.2, "b": 0.8}, 0.8),
        ({"x": 3}, {"a": 0.2, "b": 0.8}, 1.0),
        ({"a": 1, "x": 3}, {"a": 0.5, "b": 0.5}, 0.75),
        ({"a": 1, "b": 4}, {"a": 0.2, "b": 0.8}, 0.0),
    ],
)
def test_the_equal_distance_is_what_is_not_common(
    counts: dict[str, int], reference: dict[str, float], distance: float
) -> None:
    assert equal_distance(counts, reference) == pytest.approx(distance, abs=1e-12)


I21, I50, J18, J45 = (("I21", "heart"), ("I50", "heart"), ("J18", "lung"), ("J45", "lung"))
OTHER = ("Z", "Z")


@pytest.mark.parametrize(
    ("counts", "reference", "distance"),
    [
        ({I21: 1}, {I21: 1.0}, 0.0),
        ({I21: 1}, {I50: 1.0}, 0.5),  # the common ancestor is one of two levels high
        ({I21: 1}, {J18: 1.0}, 1.0),
        ({OTHER: 2}, {J18: 1.0}, 1.0),
        ({OTHER: 1}, {OTHER: 1.0}, 0.0),
        ({I21: 1, J18: 1}, {I50: 0.5, J45: 0.5}, 0.5),
        ({I21: 1, J18: 1}, {I21: 0.5, I50: 0.5}, 0.5),  # half goes over the root
        ({I21: 2, J18: 2}, {I21: 0.25, I50: 0.25, J18: 0.5}, 0.125),
        ({I21: 1, I50: 1, J18: 2}, {I21: 0.25, I50: 0.25, J18: 0.25, J45: 0.25}, 0.125),
    ],
)
def test_the_hierarchical_distance_is_the_height_that_shares_must_climb(
    counts: dict[tuple[str, ...], int], reference: dict[tuple[str, ...], float], distance: float
) -> None:
    assert hierarchical_distance(counts, reference) == pytest.approx(distance, abs=1e-12)


def test_a_node_and_a_leaf_of_one_name_are_two_nodes() -> None:
    assert hierarchical_distance({("a", "b"): 1}, {("b", "a"): 1.0}) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("value", "index"),
    [
        *(("-7", 0), ("1", 0), ("1.4", 0), ("2.4", 0), ("2.5", 0), ("2.500001", 1), ("4", 1), ("4.1", 2), ("5", 2)),
        *(("1e999999", 2), ("-1e999999", 0), ("1e-999999", 0)),
    ],
)
def test_a_number_belongs_to_the_nearest_listed_one_and_to_the_lower_of_two(value: str, index: int) -> None:
    listed = [Decimal(1), Decimal(4), Decimal("4.2")] if value != "4.1" else [Decimal(0), Decimal(4), Decimal("4.1")]
    assert nearest(Decimal(value), listed) == index


def test_the_middle_of_two_decimals_is_exact() -> None:
    # As float64, 0.3 - 0.2 is less than 0.2 - 0.1.
    assert nearest(Decimal("0.2"), [Decimal("0.1"), Decimal("0.3")]) == 0
