"""A stream of numbers, ranks, categories and times: decisions, rows and losses; missing values; restarts."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from shoal.errors import ParameterError
from shoal.formats import Block, JsonEncoder
from shoal.policy import Policy, Role, Scale, TimeStep
from shoal.scales import CategoryIndex, Embedding, Scaling
from shoal.streams import BlockDecisions, PartitionPipeline
from shoal.streams.held_records import Decisions
from support.scales import AREAS, attribute, block_of, policy_with

pytestmark = pytest.mark.unit

DAY = 86_400_000.0
ATTRIBUTES = (
    attribute("age", Scale.NUMERIC, bounds=(0.0, 100.0), integer=True, missing="group"),
    attribute("grade", Scale.ORDINAL, order=("low", "middle", "high"), missing="mean"),
    attribute("sex", Scale.NOMINAL, missing="group"),
    attribute("area", Scale.NOMINAL, taxonomy=AREAS, publish="ancestor"),
    attribute("day", Scale.TIME, bounds=(0.0, 100 * DAY), time_step=TimeStep(1, "day")),
)
POLICY = policy_with(*ATTRIBUTES, k=3, delta=12)


def rows_of(count: int, seed: int = 1) -> list[list[Any]]:
    draw = np.random.default_rng(seed)
    areas = ['"AK"', '"CA"', '"NY"', '"MA"', '"XX"', '"YY"']
    return [
        [
            None if draw.random() < 0.2 else int(draw.integers(100)),
            None if draw.random() < 0.2 else int(draw.integers(3)),
            [None, '"F"', '"M"', "true"][draw.integers(4)],
            areas[draw.integers(6)],
            float(draw.integers(100)) * DAY,
        ]
        for _ in range(count)
    ]


def push(pipeline: PartitionPipeline, block: Block, first: int, **more: Any) -> BlockDecisions:
    offsets = first + np.arange(len(block))
    return pipeline.push(block, np.column_stack([np.zeros_like(offsets), offsets]), **more)


def run(policy: Policy, rows: list[list[Any]], cut: int) -> tuple[list[BlockDecisions], PartitionPipeline]:
    pipeline = PartitionPipeline(policy, JsonEncoder(policy))
    parts = [
        push(pipeline, block_of(policy, rows[start : start + cut], start), start) for start in range(0, len(rows), cut)
    ]
    return [*parts, pipeline.flush()], pipeline


def clusters_of(parts: list[BlockDecisions]) -> list[tuple[list[int], tuple[str, ...]]]:
    return [(cluster.offsets, cluster.centroid) for part in parts for cluster in part.clusters]


def test_similar_records_share_a_cluster() -> None:
    policy = policy_with(attribute("sex", Scale.NOMINAL), k=2, delta=7)
    rows = [['"F"'], ['"M"'], ['"F"'], ['"M"'], ['"M"'], ["true"], ['"M"'], ["true"]]
    found = clusters_of(run(policy, rows, 3)[0])
    assert min(found) == ([0, 2], ('"F"',))
    assert sorted(centroid for _, centroid in found) == [('"F"',), ('"M"',), ('"M"',), ("true",)]


def test_steering_attributes_form_clusters_and_are_not_published() -> None:
    ward = attribute("ward", Scale.NOMINAL, role=Role.STEERING, weight=5.0)
    age = attribute("age", Scale.NUMERIC, bounds=(0.0, 100.0), integer=True)
    rows = [[10, '"A"'], [12, '"B"'], [50, '"A"'], [52, '"B"']]
    found = clusters_of(run(policy_with(ward, age, k=2, delta=3), rows, 4)[0])
    assert sorted(found) == [([0, 2], ("30",)), ([1, 3], ("32",))]


def test_the_summary_has_the_loss_of_each_attribute_in_its_own_measure() -> None:
    rows = rows_of(120)
    parts, pipeline = run(POLICY, rows, 50)
    summary = pipeline.summary.as_dict(0, 1.0)
    nodes = {"AK": ["AK", "West"], "CA": ["CA", "West"], "NY": ["NY", "East"], "MA": ["MA", "East"]}
    totals: dict[str, list[float]] = {name: [] for name in ("age", "grade", "sex", "area", "day")}
    pairs: dict[str, list[tuple[float, float]]] = {"age": [], "day": []}
    squares = []
    for offsets, texts in clusters_of(parts):
        age, grade, sex, area, day = map(json.loads, texts)
        for offset in offsets:
            one = rows[offset]
            far = {
                "age": abs(one[0] - age) / 100 if None not in (one[0], age) else float((one[0], age) != (None, None))
            }
            rank = None if grade is None else ["low", "middle", "high"].index(grade)
            far["grade"] = abs(one[1] - rank) / 2 if None not in (one[1], rank) else float(one[1] != rank)
            far["sex"] = float((None if one[2] is None else json.loads(one[2])) != sex)
            name = one[3].strip('"')
            far["area"] = 0.0 if name == area else 0.5 if area in nodes.get(name, []) else 1.0
            days = float(np.datetime64(day, "ms").astype(np.int64))
            far["day"] = abs(one[4] - days) / (100 * DAY)
            for key, distance in far.items():
                totals[key].append(distance)
            squares.append(sum(distance**2 for distance in far.values()))
            if None not in (one[0], age):
                pairs["age"].append((one[0], age))
            pairs["day"].append((one[4], days))
    assert summary["mse"] == pytest.approx(np.mean(squares))
    assert summary["mae"] == pytest.approx(np.mean(np.sqrt(squares)))
    losses = {}
    for name, both in pairs.items():
        values, published = np.array(both, float).T
        losses[name] = ((values - published) ** 2).sum() / ((values - values.mean()) ** 2).sum()
    sse = sum(losses[name] * len(both) for name, both in pairs.items())
    assert (summary["sse"], summary["sst"]) == pytest.approx((sse, sum(map(len, pairs.values()))))
    losses |= {name: np.mean(totals[name]) for name in ("grade", "sex", "area")}
    assert summary["loss"] == pytest.approx(losses)
    numeric = sum(float(part.stats.numeric_squared.sum()) for part in parts if part.stats is not None)
    expected = [((values - published) / 100) ** 2 for values, published in pairs["age"]]
    expected += [((values - published) / (100 * DAY)) ** 2 for values, published in pairs["day"]]
    assert numeric == pytest.approx(sum(expected))


def test_a_stream_without_numbers_has_no_sum_of_squares() -> None:
    _, pipeline = run(policy_with(attribute("sex", Scale.NOMINAL)), [['"F"']] * 6, 6)
    summary = pipeline.summary.as_dict(0, 1.0)
    assert [summary[name] for name in ("sse", "sst", "information_loss")] == [None] * 3
    assert (summary["mse"], summary["loss"]) == (0.0, {"sex": 0.0})


SCALED = policy_with(
    attribute("age", Scale.NUMERIC, bounds=(0.0, 100.0), integer=True, missing="group", weight=2.0),
    attribute("pay", Scale.NUMERIC, missing="mean", resolution=Decimal(5)),
    attribute("sex", Scale.NOMINAL, missing="group", weight=3.0),
    attribute("area", Scale.NOMINAL, taxonomy=AREAS, publish="ancestor"),
    attribute("home", Scale.NOMINAL, taxonomy=AREAS, publish="median"),
    attribute("ward", Scale.NUMERIC, role=Role.STEERING, bounds=(0.0, 10.0), missing="group"),
)


def test_by_spreads_categories_are_two_variances_apart_and_a_missing_number_half_a_variance() -> None:
    index = CategoryIndex(SCALED)
    scaling = Scaling(widths=np.array([20.0, 400.0]), centers=np.array([40.0, 1000.0]))
    embedding = Embedding.of(SCALED, scaling, index.trees, index.texts)
    rows: list[list[Any]] = [[50, 1200, '"F"', '"AK"', '"AK"', 3.0], [None, None, None, '"CA"', '"XX"', None]]
    points = embedding.coordinates(index.encode(block_of(SCALED, rows)).values)
    assert points.tolist() == [[5.0, 3.0, 0.3], [4.0, 2.5, 0.5]]
    # A variance is a twelfth, because coordinates are in widths of evenly distributed values.
    a_variance = 1 / 12
    squares = [0.5 * 4, 2 * 9, 1, 1, 1, 1, 0.5]
    assert embedding.code_distances == pytest.approx(np.array(squares) * a_variance)
    assert embedding.codes_must_agree.tolist() == [False, False, True, True, False, False, False]
    assert embedding.unit.tolist() == [100.0, 400.0, 1.0, 1.0, 1.0], "losses are measured in units of the bounds"


def test_by_bounds_two_categories_are_as_far_apart_as_the_bounds_of_a_number() -> None:
    bounded = replace(SCALED, attributes=tuple(a for a in SCALED.attributes if a.name != "pay"))
    index = CategoryIndex(bounded)
    embedding = Embedding.of(bounded, None, index.trees, index.texts)
    rows: list[list[Any]] = [[50, '"F"', '"AK"', '"AK"', 3.0], [None, None, '"CA"', '"XX"', None]]
    assert embedding.coordinates(index.encode(block_of(bounded, rows)).values).tolist() == [[1.0, 0.3], [1.0, 0.5]]
    assert embedding.code_distances.tolist() == [4.0, 9.0, 0.5, 0.5, 0.5, 0.5, 1.0]


def test_a_steering_number_without_bounds_is_refused() -> None:
    ward = attribute("ward", Scale.NUMERIC, role=Role.STEERING)
    with pytest.raises(ParameterError, match="bounds: missing for ward; spreads are learned from published values"):
        PartitionPipeline(policy := policy_with(ATTRIBUTES[0], ward), JsonEncoder(policy))


def test_the_figures_of_a_long_block_are_those_of_its_records_one_by_one() -> None:
    """Scalings change within the block, and with them the unit of an attribute without bounds."""
    free = attribute("free", Scale.NUMERIC)
    policy = policy_with(free, attribute("age", Scale.NUMERIC, bounds=(0.0, 100.0)), k=3, delta=12)
    draw = np.random.default_rng(3)
    rows = [[float(draw.normal(0.0, 1.0 + i / 100)), float(draw.integers(100))] for i in range(700)]
    (parts, pipeline), (singles, other) = run(policy, rows, 700), run(policy, rows, 1)
    assert clusters_of(parts) == clusters_of(singles)
    found, expected = (one.summary.as_dict(0, 1.0) for one in (pipeline, other))
    assert {name: found[name] for name in ("released", "clusters", "held")} == {
        "released": 700,
        "clusters": len(clusters_of(singles)),
        "held": 0,
    }
    for name in ("mse", "mae", "sse", "information_loss"):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)
    for name in ("excess_span", "displacement", "delay", "cluster_size"):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)
    growth, of_singles = (sum(part.sst_growth for part in run_of) for run_of in (parts, singles))
    assert growth == pytest.approx(of_singles, rel=1e-9)


def test_a_part_of_decisions_is_as_that_of_a_call_of_its_own() -> None:
    columns = {
        "positions": [4, 5, 6, 8, 7],
        "cluster_bounds": [0, 2, 3, 5],
        "subjects": [2, 1, 2],
        "max_per_subject": [1, 1, 1],
        "causes": [0, 0, 1],
        "newest": [9, 9, 12],
        "suppressed": [3, 10],
        "suppressed_newest": [9, 12],
        "suppressed_causes": [0, 1],
        "suppressed_before": [1, 3],
    }
    found = Decisions(**{name: np.array(column) for name, column in columns.items()}).part(slice(2, 3), slice(1, 2))
    assert {name: getattr(found, name).tolist() for name in columns} == {
        "positions": [8, 7],
        "cluster_bounds": [0, 2],
        "subjects": [2],
        "max_per_subject": [1],
        "causes": [1],
        "newest": [12],
        "suppressed": [10],
        "suppressed_newest": [12],
        "suppressed_causes": [1],
        "suppressed_before": [1],
    }
