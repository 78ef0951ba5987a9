"""Exact sums, coordinates of categories, sorting, the heap and numbers of subjects, compared with plain Python."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from shoal.kernels.containers import clear, count_up_to, empty_numbering, fill_heap, number, pop_nearest, shell_sort
from shoal.kernels.sums import dense_coordinates, divide_sums, sum_clusters

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("values", "exact"),
    [
        ([0.1] * 10, True),
        ([1e16, 1.0, -1e16], True),
        ([1e300, 1.0, 1e-300, -1e300], False),
        ([5e-324, -5e-324, 5e-324], True),
        ([-0.0, -0.0], True),
        ([1.7e308, 1.7e308], False),
        ([1.7976931348623157e308, 2.0**969, 2.0**969], False),  # overflows in the last addition
    ],
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_sum_is_exact_or_reported_as_inexact(values: list[float], exact: bool) -> None:  # noqa: FBT001
    totals, residuals, is_exact = np.empty((1, 1)), np.empty((1, 1)), np.empty((1, 1), np.bool_)
    sum_clusters(np.array(values).reshape(-1, 1), np.array([0, len(values)]), totals, residuals, is_exact)
    assert is_exact[0, 0] == exact
    if exact:
        assert totals[0, 0] == math.fsum(values)
        assert Fraction(totals[0, 0]) + Fraction(residuals[0, 0]) == sum(map(Fraction, values))
        assert math.copysign(1.0, totals[0, 0]) == 1.0 or totals[0, 0] < 0


@pytest.mark.parametrize(
    ("values", "mean", "certain"),
    [
        ([0.1, 0.1, 0.1], 0.1, True),  # the float of the sum, divided by 3, is 0.10000000000000002
        ([1.0, 2.0, 4.0], 2.3333333333333335, True),
        ([1.0, 1.0000000000000002], 1.0, True),  # a tie of which the correction is exact
        ([1.0000000000000002, 1.0000000000000004], 1.0000000000000004, True),
        ([1e-290, 1e-306, 1e-306], 3.3333333333333335e-291, False),  # the correction could underflow
        ([1.7e308, -1.7e308, 3.0], 1.0, True),
        ([-0.0, -0.0], 0.0, True),
    ],
)
def test_a_mean_is_rounded_once_or_reported_as_uncertain(values: list[float], mean: float, certain: bool) -> None:  # noqa: FBT001
    totals, residuals, means = (np.empty((1, 1)) for _ in range(3))
    is_exact, is_certain = np.empty((1, 1), np.bool_), np.empty((1, 1), np.bool_)
    bounds = np.array([0, len(values)])
    sum_clusters(np.array(values).reshape(-1, 1), bounds, totals, residuals, is_exact)
    divide_sums(totals, residuals, is_exact, bounds, means, is_certain)
    assert is_certain[0, 0] == certain
    if certain:
        assert repr(float(means[0, 0])) == repr(mean)


def test_each_code_gets_a_coordinate_in_the_order_of_first_records() -> None:
    codes = np.array([[9, 4], [-3, 4], [9, 4]])
    points = dense_coordinates(np.array([[0.5], [0.25], [0.0]]), codes, np.array([2.0, 8.0]))
    assert points.tolist() == [[0.5, 1.0, 0.0], [0.25, 0.0, 1.0], [0.0, 1.0, 0.0]]


def test_records_that_differ_in_nothing_have_one_coordinate() -> None:
    assert dense_coordinates(np.zeros((3, 0)), np.full((3, 2), 7), np.ones(2)).tolist() == [[0.0], [0.0], [0.0]]
    assert dense_coordinates(np.zeros((0, 0)), np.zeros((0, 1), np.int64), np.ones(1)).shape == (0, 1)


def test_numeric_coordinates_alone_stay_as_they_are() -> None:
    numeric = np.array([[0.5, 2.0], [0.25, -1.0]])
    points = dense_coordinates(numeric, np.zeros((2, 0), np.int64), np.zeros(0))
    assert points.tolist() == numeric.tolist()
    assert not np.shares_memory(points, numeric)


def test_many_codes_get_64_coordinates_with_about_their_distance() -> None:
    codes = np.arange(400).reshape(-1, 1) % 200
    points = dense_coordinates(np.zeros((400, 0)), codes, np.array([3.0]), 100)
    assert points.shape == (400, 64)
    assert (points[:200] == points[200:]).all()
    squares = [float(((points[i] - points[j]) ** 2).sum()) for i, j in combinations(range(0, 200, 5), 2)]
    assert 2.9 < np.mean(squares) < 3.1
    assert 1.5 < min(squares) <= max(squares) < 4.5
    assert dense_coordinates(np.zeros((400, 0)), codes, np.array([3.0]), 200).shape == (400, 200)


@pytest.mark.parametrize("m", [0, 1, 2, 3, 13, 14, 400])
def test_codes_are_sorted(m: int) -> None:
    codes = np.random.default_rng(m).integers(-5, m + 1, m)
    expected = sorted(codes.tolist())
    shell_sort(codes)
    assert codes.tolist() == expected


def test_a_heap_returns_records_by_distance_and_the_older_first() -> None:
    distances, heap = np.random.default_rng(1).integers(0, 4, 41).astype(np.float64), np.zeros(40, np.int64)
    fill_heap(heap, distances)
    returned = [pop_nearest(heap, size, distances) for size in range(40, 0, -1)]
    assert returned == sorted(range(1, 41), key=lambda x: (distances[x], x))


def test_subjects_are_numbered_by_first_occurrence_until_cleared() -> None:
    numbering = empty_numbering(50)
    codes = [7, -7, 2**62, -(2**62), 7, 0, 64, 128, 192, 64]  # the last ones collide in one slot
    for _ in range(2):
        assert [number(numbering, code) for code in codes] == [0, 1, 2, 3, 0, 4, 5, 6, 7, 5]
        clear(numbering)
        assert not numbering.slots.any()


@pytest.mark.parametrize(("enough", "counted"), [(1, 1), (2, 2), (3, 3), (4, 3), (100, 3)])
def test_subjects_are_counted_up_to_a_limit(enough: int, counted: int) -> None:
    numbering = empty_numbering(10)
    assert count_up_to(numbering, np.array([5, 5, 6, 7, 5]), enough) == counted
    assert not numbering.slots.any()
