"""The arithmetic of measurements, and which arrival decides a cluster."""

from __future__ import annotations

import json
import math

import pytest
from kafka_to_kafka import document, policy
from latency import decided_clusters
from measuring import Trend, percentile, trend

pytestmark = pytest.mark.unit


def test_a_percentile_is_the_nearest_rank() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 1.0) == 100.0
    assert percentile([7.0], 0.01) == 7.0
    assert math.isnan(percentile([], 0.5))


@pytest.mark.parametrize(
    ("times", "values", "expected"),
    [
        (range(600), [3.0 + 0.25 * time for time in range(600)], (0.25, 0.0)),
        # Residuals of 1, -2, 1 thirds around the line through the mean, over a spread of 2.
        (range(3), [0.0, 0.0, 2.0], (1.0, math.sqrt((1 + 4 + 1) / 9 / 2))),
        # Each group of two samples has the same mean, however far its samples are from it.
        (range(24), [5.0, -5.0] * 12, (0.0, 0.0)),
    ],
)
def test_the_slope_and_its_error_are_those_of_consecutive_groups_of_samples(
    times: range, values: list[float], expected: tuple[float, float]
) -> None:
    assert tuple(trend([float(time) for time in times], values)) == pytest.approx(expected, abs=1e-12)


def test_a_slope_within_two_standard_errors_or_a_tolerance_is_noise() -> None:
    assert Trend(1.9, 1.0).is_within_noise(0.0)
    assert not Trend(2.1, 1.0).is_within_noise(0.0)
    assert Trend(2.1, 1.0).is_within_noise(2.5)
    assert Trend(-9.0, 1.0).is_within_noise(0.0)
    assert not Trend(math.nan, math.nan).is_within_noise(1.0)
    assert math.isnan(trend([0.0, 1.0], [1.0, 2.0]).slope), "two samples have no slope"


def test_a_cluster_is_decided_by_the_arrival_after_delta_others() -> None:
    content = document("localhost:9092", "in", "out")
    assert content["stream"] == {"delta": 100}
    fixed = {"age": 50, "income": 1000, "latitude": 0.0, "longitude": 0.0, "note": ""}
    values = [json.dumps({"who": f"p{number}", **fixed, "serial": number}).encode() for number in range(160)]
    found = decided_clusters(policy("localhost:9092", "in", "out"), values)
    decided_at, members = found[0]
    assert decided_at == 100
    assert 0 in members
    assert len(members) >= 10
    assert all(by >= max(of) for by, of in found)
