"""Spreads of quasi-identifiers: learned from published values, limits of outliers; the committed adaptive state."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from shoal.arrays import Float64Matrix, Float64Vector
from shoal.errors import InputError
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import AdaptiveState
from shoal.streams.spreads import Spreads

pytestmark = pytest.mark.unit

A_STREAM: dict[str, Any] = {
    "attributes": {
        "free": {"role": "quasi_identifier", "resolution": 0},
        "bound": {"role": "quasi_identifier", "bounds": [0, 10]},
        "stepped": {"role": "quasi_identifier", "resolution": 5, "missing": "group"},
        "grade": {"role": "quasi_identifier", "scale": "ordinal", "order": ["a", "b", "c"]},
        "at": {"role": "quasi_identifier", "scale": "time", "resolution": "h"},
        "city": {"role": "quasi_identifier", "scale": "nominal"},
    },
    "subject": "every_record",
    "privacy": {"k": 2},
    "stream": {"delta": 99},
}
POLICY = Policy.from_document(Document.model_validate(A_STREAM))
FREE, BOUND, STEPPED, GRADE, AT = range(5)
UNIFORM = 3.4641
"""Width of a range of evenly distributed values, in standard deviations."""
HOUR = 3_600_000.0


def published(count: int, **columns: Float64Vector) -> Float64Matrix:
    """Return published values of clusters: of all attributes one value, but for the columns that are given."""
    values = np.tile(np.array([1.0, 2.0, 10.0, 1.0, 5 * HOUR, 0.0]), (count, 1))
    for name, column in columns.items():
        values[:, list(A_STREAM["attributes"]).index(name)] = column
    return values


def fitted(values: Float64Matrix, spreads: Spreads | None = None) -> Spreads:
    """Publish clusters of ten records, and start another epoch."""
    spreads = Spreads(POLICY) if spreads is None else spreads
    spreads.partial_fit(values, np.full(len(values), 10))
    spreads.start_epoch(spreads.state.epoch + 1)
    return spreads


def normal(count: int, spread: float, mean: float = 0.0, seed: int = 1) -> Float64Vector:
    found: Float64Vector = np.random.default_rng(seed).normal(mean, spread, count)
    return found


def test_nothing_is_learned_if_distances_are_scaled_by_bounds() -> None:
    attributes = {"x": {"role": "quasi_identifier", "bounds": [0, 1]}}
    document = A_STREAM | {"attributes": attributes, "steering": {"scaling": "bounds"}}
    assert Spreads.of(Policy.from_document(Document.model_validate(document)), None) is None


def test_before_anything_is_known_or_if_values_are_equal_the_policy_gives_the_widths() -> None:
    spreads = Spreads(POLICY)
    assert spreads.scaling.centers.tolist() == [0.0, 5.0, 0.0, 1.0, 0.0]
    assert not spreads.start_epoch(3)
    for scaling in (spreads.scaling, fitted(published(100)).scaling):
        assert scaling.widths.tolist() == [1.0, 10.0, 1000.0, 2.0, 200 * HOUR]


def test_32_clusters_suffice() -> None:
    assert not fitted(published(31, free=normal(31, 3.0))).are_learned
    assert fitted(published(32, free=normal(32, 3.0))).are_learned


def test_widths_are_those_of_the_published_values() -> None:
    spreads = fitted(published(150, free=normal(150, 3.0), stepped=normal(150, 200.0, 1e6)))
    assert spreads.scaling.widths[FREE] == pytest.approx(UNIFORM * 3.0, rel=0.2)
    assert spreads.scaling.widths[STEPPED] == pytest.approx(UNIFORM * 200.0, rel=0.2)
    assert spreads.scaling.centers[STEPPED] == pytest.approx(1e6, abs=60.0)
    assert spreads.scaling.centers[FREE] == 0.0, "nothing can be missing"


def test_loose_bounds_change_no_width_that_is_learned() -> None:
    loose_bounds = {"bound": {"role": "quasi_identifier", "bounds": [0, 1000], "resolution": 0.05}}
    document = A_STREAM | {"attributes": A_STREAM["attributes"] | loose_bounds}
    wider = Policy.from_document(Document.model_validate(document))
    values = published(200, bound=normal(200, 0.5, 5.0))
    loose = fitted(values, Spreads(wider))
    assert loose.scaling.widths[BOUND] == fitted(values).scaling.widths[BOUND]


def test_an_extreme_among_the_first_values_of_one_release_counts_little() -> None:
    values = normal(20, 1.0)
    before = fitted(published(60, free=np.concatenate([values, normal(40, 1.0, seed=2)]))).scaling.widths[FREE]
    values[2] = 1e12
    spreads = Spreads(POLICY)
    for part in (values, normal(40, 1.0, seed=2)):
        spreads.partial_fit(published(len(part), free=part), np.full(len(part), 10))
    spreads.start_epoch(0)
    assert spreads.scaling.widths[FREE] < 2 * before


def test_an_extreme_among_the_held_records_does_not_count() -> None:
    held = np.zeros((200, 6))
    held[:, FREE] = normal(200, 3.0)
    before = Spreads(POLICY).scaling_of_held(held).widths[FREE]
    held[7, FREE] = 1e12
    assert Spreads(POLICY).scaling_of_held(held).widths[FREE] < 1.5 * before


def test_a_width_grows_by_a_bounded_factor() -> None:
    spreads = fitted(published(400, free=normal(400, 1.0)))
    before = spreads.scaling.widths[FREE]
    fitted(published(100, free=np.full(100, 1e12)), spreads)
    assert spreads.scaling.widths[FREE] < 1.014**100 * before


def test_a_width_is_not_below_a_step_of_what_is_published() -> None:
    spreads = fitted(published(100, stepped=normal(100, 0.01), grade=1 + normal(100, 0.001), at=normal(100, 1.0)))
    assert spreads.scaling.widths[STEPPED] == 5.0
    assert spreads.scaling.widths[GRADE] == 1.0
    assert spreads.scaling.widths[AT] == HOUR


def test_a_cluster_that_publishes_null_changes_nothing() -> None:
    values = published(100, free=normal(100, 1.0), at=normal(100, HOUR), stepped=normal(100, 50.0))
    spreads = fitted(values)
    before = spreads.state
    spreads.partial_fit(np.full((5, 6), np.nan), np.full(5, 10))
    after = spreads.state
    assert after.clusters_seen == before.clusters_seen + 5
    for name in ("means", "variances", "last", "step_variances", "drifts"):
        assert getattr(after, name).tolist() == getattr(before, name).tolist()


def test_squared_distances_of_a_clock_count_half_of_what_it_grows_within_delta() -> None:
    """An hour passes per record; a hundred records are held together, so that the clock grows by 100 hours."""
    times = 10 * HOUR * np.arange(2000.0)
    spreads = fitted(published(2000, at=times))
    assert spreads.scaling.widths[AT] == pytest.approx(100 * HOUR / 0.7, rel=0.05)


def test_a_time_without_a_trend_is_no_clock() -> None:
    spreads = fitted(published(1500, at=normal(1500, 1000 * HOUR)))
    assert spreads.scaling.widths[AT] == pytest.approx(UNIFORM * 1000 * HOUR, rel=0.15)


def test_widths_are_shown_by_name_once_they_are_learned() -> None:
    begun, learned = fitted(published(31)), fitted(published(32))
    names = ["free", "bound", "stepped", "grade", "at"]
    assert AdaptiveState(spreads=begun.state).as_dict(POLICY) == {"widths": dict.fromkeys(names)}
    shown = dict(zip(names, [1.0, 10.0, 1000.0, 2.0, 200 * HOUR], strict=True))
    assert AdaptiveState(spreads=learned.state).as_dict(POLICY) == {"widths": shown}


def test_sixteen_bytes_an_attribute_are_committed_and_as_many_more_of_a_time() -> None:
    """And 8 for the center of an attribute that may be missing, 16 for two counts, and the version."""
    assert AdaptiveState.size(POLICY) == 1 + 16 + 5 * 16 + 8 + 16
    assert len(AdaptiveState(spreads=Spreads(POLICY).state).to_bytes(POLICY)) == 121


@pytest.mark.parametrize("place", [25, 100])
def test_a_state_that_is_no_number_is_refused(place: int) -> None:
    data = bytearray(AdaptiveState(spreads=fitted(published(60, free=normal(60, 1.0))).state).to_bytes(POLICY))
    data[place : place + 4] = b"\x7f\xf0\x00\x00"
    with pytest.raises(InputError, match="corrupt"):
        AdaptiveState.from_bytes(bytes(data), POLICY)


def steered_by(position: object) -> Policy:
    attributes = {"x": {"role": "quasi_identifier", "scale": "nominal"}}
    document = A_STREAM | {"attributes": attributes, "steering": {"position": position}}
    return Policy.from_document(Document.model_validate(document))


STEERED = steered_by({"target_span": 3})


@pytest.mark.parametrize("weight", [5e-324, 0.1, 1 / 3, 1e300])
def test_a_weight_is_read_back_to_the_bit(weight: float) -> None:
    data = AdaptiveState(weight).to_bytes(STEERED)
    assert len(data) == AdaptiveState.size(STEERED)
    assert AdaptiveState.from_bytes(data, STEERED).position_weight == weight


@pytest.mark.parametrize(
    "data",
    [
        b"\2",
        b"\1" + struct.pack(">d", 1.0),
        b"\2" + struct.pack(">d", float("nan")),
        b"\2" + struct.pack(">d", 0.0),
        b"\2" + struct.pack(">d", 1.0) + b"\0",
    ],
)
def test_invalid_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="committed adaptive state"):
        AdaptiveState.from_bytes(data, STEERED)


def test_a_fixed_weight_needs_no_bytes_and_refuses_a_state() -> None:
    assert AdaptiveState.size(steered_by(0.1)) == 0
    assert AdaptiveState().to_bytes(STEERED) == b""
    assert AdaptiveState.from_bytes(b"", STEERED) == AdaptiveState()
    with pytest.raises(InputError):
        AdaptiveState.from_bytes(AdaptiveState(0.1).to_bytes(STEERED), steered_by(0.1))
