"""Ranges of attributes without bounds: where they begin, how they follow what is published, what cannot move them."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.arrays import Float64Matrix
from shoal.pipeline import AdaptiveState
from shoal.pipeline.online_scaler import OnlineScaler
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit

KNOWN = 64
LARGEST_CHANGE = 2.0
SHORTEST_EPOCH = 128
WIDEST = 2.0**54

A_STREAM = {
    "attributes": {
        "free": {"role": "quasi_identifier", "resolution": 0},
        "bound": {"role": "quasi_identifier", "bounds": [0, 1]},
        "stepped": {"role": "quasi_identifier", "resolution": 5},
        "counted": {"role": "quasi_identifier", "integer": True},
    },
    "subject": "every_record",
    "privacy": {"k": 2},
    "stream": {"delta": 10},
}
POLICY = Policy.from_document(Document.model_validate(A_STREAM))


def ranges() -> OnlineScaler:
    return OnlineScaler(POLICY.quasi_identifiers, 10)


def told(found: OnlineScaler, means: Float64Matrix) -> OnlineScaler:
    """Publish means of the first attribute, ten clusters an epoch."""
    for start in range(0, len(means), 10):
        found.enter(found.state.epoch + 1)
        found.learn(np.column_stack([means[start : start + 10]] * 4))
    found.enter(found.state.epoch + 1)
    return found


def test_before_anything_is_published_a_range_is_200_steps_or_1() -> None:
    assert ranges().widths.tolist() == [1.0, 1000.0, 200.0]
    found = ranges()
    assert not found.enter(3)
    assert found.widths.tolist() == [1.0, 1000.0, 200.0]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("middle", [0.0, 1e5])
def test_a_range_of_even_values_is_found_within_a_hundred_clusters_whatever_the_unit(
    unit: float, middle: float
) -> None:
    means = (np.random.default_rng(1).random(400) + middle) * unit
    assert told(ranges(), means[:100]).widths[0] == pytest.approx(unit, rel=0.5)
    assert told(ranges(), means).widths[0] == pytest.approx(unit, rel=0.3)


def test_one_extreme_moves_a_range_no_more_than_a_mean_three_times_as_far_as_usual() -> None:
    means = np.random.default_rng(2).random(200)
    near, far = means.copy(), means.copy()
    near[150], far[150] = 4.0, 1e15
    # A distance of more than three mean ones counts for three of them.
    assert told(ranges(), far).state.distances[0] == pytest.approx(told(ranges(), near).state.distances[0])
    assert told(ranges(), far).widths[0] < 1.3 * told(ranges(), means).widths[0]


def test_from_one_epoch_to_the_next_a_known_range_changes_by_a_factor_of_two_at_most() -> None:
    random = np.random.default_rng(3)
    found = told(ranges(), random.random(KNOWN + 6))
    before = found.widths[0]
    for _ in range(5):
        found.learn(1e12 * random.random((100, 4)))
        found.enter(found.state.epoch + 1)
        assert found.widths[0] <= before * LARGEST_CHANGE
        before = found.widths[0]


def test_a_range_is_never_nothing_and_never_endless() -> None:
    close = np.resize([0.0, 1e-15], 3000)
    assert (told(ranges(), close).widths >= [1e-12, 5.0, 1.0]).all()
    assert told(ranges(), 2.0**53 * np.resize([1.0, -1.0], 3000)).widths[0] <= WIDEST


def test_equal_means_tell_nothing_of_a_scale() -> None:
    assert told(ranges(), np.full(300, 7.0)).widths.tolist() == [1.0, 1000.0, 200.0]


def test_an_epoch_is_as_long_as_delta_or_128_and_never_goes_back() -> None:
    found = ranges()
    assert found.end_of(0) == SHORTEST_EPOCH
    assert OnlineScaler(POLICY.quasi_identifiers, 5000).end_of(1) == 10_000
    found.enter(7)
    assert found.epoch_of(3) == 7
    assert not found.enter(6)


def test_what_is_committed_is_all_that_is_needed_to_go_on() -> None:
    means = np.random.default_rng(4).random(200)
    whole, begun = told(ranges(), means), told(ranges(), means[:70])
    text = AdaptiveState(ranges=begun.state).pack()
    assert len(text) == AdaptiveState.size(POLICY)
    again = OnlineScaler(POLICY.quasi_identifiers, 10, AdaptiveState.unpack(text, POLICY).ranges)
    rest = np.column_stack([means] * 4)
    begun.learn(rest)
    again.learn(rest)
    assert AdaptiveState(ranges=again.state).pack() == AdaptiveState(ranges=begun.state).pack()
    assert AdaptiveState(ranges=whole.state).pack() != text
