"""Ranges of attributes without bounds: initial widths, learning from published means, limits of one outlier."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.arrays import Float64Matrix
from shoal.pipeline import AdaptiveState
from shoal.pipeline.online_scaler import OnlineScaler
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit

WARMUP_CLUSTERS = 64
MAX_CHANGE = 2.0
MIN_EPOCH = 128
MAX_WIDTH = 2.0**54

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


def new_scaler() -> OnlineScaler:
    return OnlineScaler(POLICY.quasi_identifiers, 10)


def fitted(scaler: OnlineScaler, means: Float64Matrix) -> OnlineScaler:
    """Publish means of the first attribute, ten clusters an epoch."""
    for start in range(0, len(means), 10):
        scaler.start_epoch(scaler.state.epoch + 1)
        scaler.partial_fit(np.column_stack([means[start : start + 10]] * 4))
    scaler.start_epoch(scaler.state.epoch + 1)
    return scaler


def test_the_initial_width_is_200_steps_or_1() -> None:
    assert new_scaler().widths.tolist() == [1.0, 1000.0, 200.0]
    scaler = new_scaler()
    assert not scaler.start_epoch(3)
    assert scaler.widths.tolist() == [1.0, 1000.0, 200.0]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("middle", [0.0, 1e5])
def test_the_range_of_uniform_means_is_learned_within_100_clusters_in_any_unit(unit: float, middle: float) -> None:
    means = (np.random.default_rng(1).random(400) + middle) * unit
    assert fitted(new_scaler(), means[:100]).widths[0] == pytest.approx(unit, rel=0.5)
    assert fitted(new_scaler(), means).widths[0] == pytest.approx(unit, rel=0.3)


def test_an_outlier_counts_as_three_mean_distances() -> None:
    means = np.random.default_rng(2).random(200)
    near, far = means.copy(), means.copy()
    near[150], far[150] = 4.0, 1e15
    assert fitted(new_scaler(), far).state.mean_distances[0] == pytest.approx(
        fitted(new_scaler(), near).state.mean_distances[0]
    )
    assert fitted(new_scaler(), far).widths[0] < 1.3 * fitted(new_scaler(), means).widths[0]


def test_a_width_changes_by_a_factor_of_two_at_most_per_epoch() -> None:
    random = np.random.default_rng(3)
    scaler = fitted(new_scaler(), random.random(WARMUP_CLUSTERS + 6))
    before = scaler.widths[0]
    for _ in range(5):
        scaler.partial_fit(1e12 * random.random((100, 4)))
        scaler.start_epoch(scaler.state.epoch + 1)
        assert scaler.widths[0] <= before * MAX_CHANGE
        before = scaler.widths[0]


def test_a_width_has_a_minimum_and_a_maximum() -> None:
    close = np.resize([0.0, 1e-15], 3000)
    assert (fitted(new_scaler(), close).widths >= [1e-12, 5.0, 1.0]).all()
    assert fitted(new_scaler(), 2.0**53 * np.resize([1.0, -1.0], 3000)).widths[0] <= MAX_WIDTH


def test_equal_means_do_not_change_a_width() -> None:
    assert fitted(new_scaler(), np.full(300, 7.0)).widths.tolist() == [1.0, 1000.0, 200.0]


def test_an_epoch_has_delta_or_128_offsets_and_never_goes_back() -> None:
    scaler = new_scaler()
    assert scaler.epoch_end(0) == MIN_EPOCH
    assert OnlineScaler(POLICY.quasi_identifiers, 5000).epoch_end(1) == 10_000
    scaler.start_epoch(7)
    assert scaler.epoch_of(3) == 7
    assert not scaler.start_epoch(6)


def test_a_scaler_continues_from_the_committed_state() -> None:
    means = np.random.default_rng(4).random(200)
    complete, begun = fitted(new_scaler(), means), fitted(new_scaler(), means[:70])
    data = AdaptiveState(scaler=begun.state).to_bytes()
    assert len(data) == AdaptiveState.size(POLICY)
    again = OnlineScaler(POLICY.quasi_identifiers, 10, AdaptiveState.from_bytes(data, POLICY).scaler)
    rest = np.column_stack([means] * 4)
    begun.partial_fit(rest)
    again.partial_fit(rest)
    assert AdaptiveState(scaler=again.state).to_bytes() == AdaptiveState(scaler=begun.state).to_bytes()
    assert AdaptiveState(scaler=complete.state).to_bytes() != data


def test_a_cluster_that_publishes_null_changes_nothing() -> None:
    scaler, other = new_scaler(), new_scaler()
    for number in range(20):
        means = np.array([[number % 3, 0.5, number % 5, number % 7]], float)
        scaler.partial_fit(means)
        other.partial_fit(means)
        scaler.partial_fit(np.full((1, 4), np.nan))
        other.partial_fit(means)
    assert np.isfinite(scaler.state.mean_distances).all()
    assert scaler.state.last_means.tolist() == other.state.last_means.tolist()
