"""The experiment with noise on centroids: sensitivities against brute force, scales and sizes against known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from differential_privacy import (
    gaussian_scale,
    global_sensitivity,
    individual_sensitivity,
    insensitive_order,
    least_size_by_distance,
    least_size_by_ratio,
    sizes_of,
)
from numpy.typing import NDArray

pytestmark = pytest.mark.unit


def clusters_of(values: NDArray[np.float64], sizes: list[int]) -> list[set[int]]:
    order = insensitive_order(values)
    return [set(part.tolist()) for part in np.split(order, np.cumsum(sizes)[:-1])]


def test_clusters_change_by_one_record_and_centroids_by_no_more_than_the_sensitivity() -> None:
    random = np.random.default_rng(2)
    values = random.random((67, 3))
    sizes = sizes_of(67, 10)
    assert sizes == [10, 10, 10, 10, 10, 17]
    before = clusters_of(values, sizes)
    most = individual_sensitivity(values[insensitive_order(values)], sizes)
    assert most < global_sensitivity(values, sizes) == pytest.approx(5 * 0.3 + 3 / 17)
    for _ in range(300):
        other = values.copy()
        place = int(random.integers(67))
        other[place] = random.choice([0.0, 1.0], 3) if random.random() < 0.5 else random.random(3)
        after = clusters_of(other, sizes)
        assert all(len(one - another) <= 1 for one, another in zip(before, after, strict=True))
        moved = sum(
            float(np.abs(values[list(one)].mean(axis=0) - other[list(another)].mean(axis=0)).sum())
            for one, another in zip(before, after, strict=True)
        )
        assert moved <= most


def test_the_gaussian_scale_is_that_of_the_published_calibration() -> None:
    scale = gaussian_scale(1.0, 1.0, 1e-6)
    # Half of what is lost at this scale lies on either side of the privacy curve.
    tail = [0.5 * math.erfc((x + y) / math.sqrt(2)) for x, y in ((-1 / (2 * scale), scale), (1 / (2 * scale), scale))]
    assert tail[0] - math.e * tail[1] == pytest.approx(1e-6, rel=1e-6)
    # Less than the classical bound, and proportional to the sensitivity.
    assert 4.0 < scale < math.sqrt(2 * math.log(1.25e6))
    assert gaussian_scale(3.0, 1.0, 1e-6) == pytest.approx(3 * scale)


@pytest.mark.parametrize(("t", "size"), [(0.5, 1), (0.25, 2), (0.05, 4)])
def test_the_least_size_by_distance_worked_out_by_hand(t: float, size: int) -> None:
    assert least_size_by_distance(np.array([0.25, 0.25, 0.5]), t) == size


@pytest.mark.parametrize(("factor", "size"), [(2.1, 3), (1.3, 4)])
def test_the_least_size_by_ratio_worked_out_by_hand(factor: float, size: int) -> None:
    assert least_size_by_ratio(np.array([0.25, 0.25, 0.5]), math.log(factor)) == size
