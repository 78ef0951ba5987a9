"""Coordinates of category columns."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from shoal.kernels.sums import dense_coordinates

pytestmark = pytest.mark.unit


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
    assert min(squares) > 1.5
    assert max(squares) < 4.5
    assert dense_coordinates(np.zeros((400, 0)), codes, np.array([3.0]), 200).shape == (400, 200)
