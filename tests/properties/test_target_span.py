"""Every rule holds a target for the mean excess span on drifting data, with a weight within its limits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from shoal.arrays import Float64Matrix, Float64Vector
from shoal.streams import StreamAggregator
from shoal.streams.clusterer import StreamClusterer
from shoal.streams.steering import TargetSpan, order_keeping_weight

pytestmark = pytest.mark.property

RULES = ("nearest", "greedy", "awo", "block")
K, DELTA = 10, 100
SETTLING = 70
"""Clusters during which the weight adapts to data that have changed abruptly."""


def drifting(count: int, seed: int = 0) -> Float64Matrix:
    """A mixture, the same mixture scaled by eight, and another distribution: a third of the stream each."""
    random = np.random.default_rng(seed)
    third, centres = count // 3, random.random((8, 4))
    mixture = [centres[random.integers(0, 8, third)] + random.normal(0, 0.03, (third, 4)) for _ in range(2)]
    return np.concatenate([mixture[0], 8 * mixture[1], random.random((third, 4)) ** 2])


def spans(stream: StreamClusterer, coordinates: Float64Matrix) -> tuple[Float64Vector, Float64Vector, list[float]]:
    """Return the excess span of each cluster, the newest position at its decision, and the weight after each block."""
    found, when, weights = [], [], []
    for start in range(0, len(coordinates), 64):
        decided = stream.push(coordinates[start : start + 64])
        for (first, end), newest in zip(
            pairwise(decided.cluster_bounds.tolist()), decided.newest.tolist(), strict=True
        ):
            members = decided.positions[first:end]
            found.append(float(members[-1] - members[0] - (len(members) - 1)))
            when.append(float(newest))
        weights.append(stream.weight)
    return np.array(found), np.array(when), weights


def steered(rule: str, span: float, d: int = 4, **options: float) -> StreamClusterer:
    return StreamClusterer(K, DELTA, d, rule=rule, position=TargetSpan(span, (1.0,) * d, **options))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("span", [5, 20, 40])
def test_a_target_is_held_while_the_data_drift(rule: str, span: float) -> None:
    coordinates = drifting(18_000)
    found, when, _ = spans(steered(rule, span), coordinates)
    for third in range(3):
        of_third = found[when * 3 // len(coordinates) == third]
        assert of_third[SETTLING:].mean() == pytest.approx(span, rel=0.05)
        # Including the clusters during which the weight adapts.
        assert of_third.mean() == pytest.approx(span, rel=0.15)


@pytest.mark.parametrize("rule", RULES)
def test_a_target_of_0_gives_consecutive_clusters_and_a_bounded_weight(rule: str) -> None:
    coordinates = drifting(9_000)[:3_000]
    found, _, weights = spans(steered(rule, 0), coordinates)
    most = 4 * order_keeping_weight(K, (1.0,) * 4)
    assert max(weights) <= most
    assert weights == sorted(weights)
    assert found[-100:].mean() < 0.2


@pytest.mark.parametrize("rule", RULES)
def test_an_unreachable_target_gives_the_lowest_weight_which_has_no_effect(rule: str) -> None:
    coordinates = drifting(9_000)[:3_000]
    stream = steered(rule, 1000)
    spans(stream, coordinates)
    lowest = order_keeping_weight(K, (1.0,) * 4) * 2.0**-20
    assert stream.weight == lowest
    ends = [StreamClusterer(K, DELTA, 4, rule=rule, position=weight).push(coordinates) for weight in (0.0, lowest)]
    assert np.array_equal(ends[0].positions, ends[1].positions)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cut", [1, 7, 999, 4000])
def test_the_weight_does_not_depend_on_blocks(rule: str, cut: int) -> None:
    coordinates = drifting(2_400)[400:1_900]
    whole, in_blocks = steered(rule, 10), steered(rule, 10)
    expected = whole.push(coordinates)
    parts = [in_blocks.push(coordinates[start : start + cut]) for start in range(0, len(coordinates), cut)]
    assert np.array_equal(np.concatenate([part.positions for part in parts]), expected.positions)
    assert in_blocks.weight == whole.weight


def test_the_aggregator_accepts_a_target_in_the_form_of_a_policy_in_any_units() -> None:
    values = drifting(9_000) * 1e6
    stream = StreamAggregator(K, DELTA, position={"target_span": 20})
    found = []
    for start in range(0, len(values), 500):
        out = stream.push(values[start : start + 500])
        found += [
            out.positions[end - 1] - out.positions[first] - (end - first - 1)
            for first, end in pairwise(out.offsets.tolist())
        ]
    assert np.mean(found[len(found) // 2 :]) == pytest.approx(20, rel=0.15)
