"""Coordinates of categories, compared with plain Python."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from shoal.kernels.sums import dense_coordinates

pytestmark = pytest.mark.unit


def test_records_that_differ_in_nothing_have_one_coordinate() -> None:
    assert dense_coordinates(np.zeros((3, 0)), np.full((3, 2), 7), np.ones(2)).tolist() == [[0.0], [0.0], [0.0]]
    assert dense_coordinates(np.zeros((0, 0)), np.zeros((0, 1), np.int64), np.ones(1)).shape == (0, 1)


def test_many_codes_get_64_coordinates_with_about_their_distance() -> None:
    codes = np.arange(400).reshape(-1, 1) % 200
    points = dense_coordinates(np.zeros((400, 0)), codes, np.array([3.0]), 100)
    assert points.shape == (400, 64)
    assert (points[:200] == points[200:]).all()
    squares = [float(((points[i] - points[j]) ** 2).sum()) for i, j in combinations(range(0, 200, 5), 2)]
    assert 2.9 < np.mean(squares) < 3.1
    assert 1.5 < min(squares) <= max(squares) < 4.5
    assert dense_coordinates(np.zeros((400, 0)), codes, np.array([3.0]), 200).shape == (400, 200)
