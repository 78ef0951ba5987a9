"""``steering.dependence`` in a stream: confidential numbers join the distance, and D_X and D_Y say what it costs."""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from shoal.arrays import Float64Matrix
from shoal.formats import Block, JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.scales import Embedding
from shoal.streams import PartitionPipeline
from shoal.streams.steering import ConfidentialNumbers, DistanceSpace

pytestmark = pytest.mark.unit


def policy_of(dependence: float, k: int = 3, delta: int = 60, **more: Any) -> Policy:
    attributes = {
        "who": {"role": "identifier", "subject": True},
        "a": {"role": "quasi_identifier", "bounds": [0, 100], "integer": True},
        "b": {"role": "quasi_identifier", "bounds": [0, 10], "resolution": 0.01},
        "pay": {"role": "confidential", "type": "number", "bounds": [1000, 3000]},
        "note": {"role": "confidential", "type": "string"},
    }
    sections = {"privacy": {"k": k}, "stream": {"delta": delta, "rule": "awo"}, "steering": {"dependence": dependence}}
    return Policy.from_document(Document.model_validate({"attributes": attributes, **sections, **more}))


def records(count: int = 400) -> list[dict[str, Any]]:
    random = np.random.default_rng(3)
    found = [
        {"who": number, "a": int(random.integers(0, 101)), "b": round(float(random.uniform(0, 10)), 2), "note": ""}
        for number in range(count)
    ]
    for number, pay in enumerate(random.uniform(900, 3100, count).round(1).tolist()):
        found[number]["pay"] = None if number % 17 == 0 else pay
    return found


def decoded(policy: Policy, found: list[dict[str, Any]]) -> Block:
    return JsonDecoder(policy).decode([json.dumps(record).encode() for record in found])


def coordinates(policy: Policy, found: list[dict[str, Any]]) -> Float64Matrix:
    numbers, block = ConfidentialNumbers(policy), decoded(policy, found)
    return DistanceSpace(policy, numbers).coordinates(Embedding.of(policy), block.values, numbers.read(block))


def released(policy: Policy, found: list[dict[str, Any]]) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    pipeline = PartitionPipeline(policy, JsonEncoder(policy))
    block = decoded(policy, found)
    parts = [pipeline.push(block, np.column_stack([0 * block.index, block.index])), pipeline.flush()]
    clusters = [[json.loads(row) for row in cluster.rows] for part in parts for cluster in part.clusters]
    return clusters, pipeline.summary.as_dict(pipeline.waiting_count, 1.0)


@pytest.mark.parametrize(
    ("dependence", "expected"),
    # sqrt(0.2 / 0.8 * 2 attributes / 1 number) = 0.7071; the pay is a quarter of its range.
    [(0.2, [0.25, 0.5, 0.7071067811865476 * 0.25]), (1.0, [0.25])],
)
def test_a_record_is_a_point_of_both_kinds_of_attributes(dependence: float, expected: list[float]) -> None:
    (point,) = coordinates(policy_of(dependence), [{"who": 1, "a": 25, "b": 5, "pay": 1500, "note": "x"}])
    assert point.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("pay", "place"), [(None, 0.5), (999, 0.0), (5e9, 1.0), (3000, 1.0)])
def test_a_value_that_is_missing_is_in_the_middle_and_one_outside_at_the_bound(pay: float | None, place: float) -> None:
    (point,) = coordinates(policy_of(1.0), [{"who": 1, "a": 25, "b": 5, "pay": pay, "note": "x"}])
    assert point.tolist() == [place]


def test_a_number_that_the_policy_lists_as_missing_is_in_the_middle() -> None:
    policy = policy_of(1.0, missing_values=["", "1500"])
    found = [{"who": "x", "a": 25, "b": 5, "pay": pay, "note": "x"} for pay in (1500, 1500.5)]
    assert coordinates(policy, found)[:, 0].tolist() == [0.5, 0.25025]


def test_values_outside_the_bounds_are_published_as_they_are() -> None:
    data = records()
    clusters, _ = released(policy_of(0.5), data)
    found = [row["pay"] for cluster in clusters for row in cluster]
    assert sorted(p for p in found if p is not None) == sorted(r["pay"] for r in data if r["pay"] is not None)
    assert min(found, key=lambda pay: pay or 1000) < 1000


def test_full_dependence_makes_clusters_of_equal_values_whatever_the_quasi_identifiers_are() -> None:
    data = [record | {"pay": 1000 + 500 * (number % 4)} for number, record in enumerate(records(200))]
    clusters, summary = released(policy_of(1.0), data)
    assert {len({row["pay"] for row in cluster}) for cluster in clusters} == {1}
    assert summary["d_y"] == 0.0


def test_more_dependence_loses_more_of_the_quasi_identifiers_and_less_of_the_values() -> None:
    found = [released(policy_of(share), records())[1] for share in (0.001, 0.5, 0.9)]
    assert found[0]["d_x"] < found[1]["d_x"] < found[2]["d_x"]
    assert found[0]["d_y"] > found[1]["d_y"] > found[2]["d_y"]


def test_d_x_and_d_y_equal_a_plain_computation() -> None:
    clusters, summary = released(policy_of(0.3), records())
    pays = [[row["pay"] for row in cluster if row["pay"] is not None] for cluster in clusters]
    everyone = [pay for cluster in pays for pay in cluster]
    total = sum((pay - fmean(everyone)) ** 2 for pay in everyone)
    within = sum((pay - fmean(cluster)) ** 2 for cluster in pays for pay in cluster)
    assert summary["d_y"] == pytest.approx(within / total)
    assert summary["d_x"] == pytest.approx(summary["information_loss"] / 100)


def test_numbers_that_no_range_can_hold_are_missing_in_the_figures() -> None:
    data = [record | ({"pay": 1e300} if record["who"] < 10 else {}) for record in records(100)]
    assert 0 < released(policy_of(0.3), data)[1]["d_y"] < 1
