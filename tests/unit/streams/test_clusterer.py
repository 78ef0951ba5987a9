"""The stream clusterer: parameters, ``max_share``, copies, the weight that keeps the order, and invalid arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from shoal.errors import GuaranteeError, ParameterError
from shoal.streams import StreamClusterer
from shoal.streams.clusterer import BlockColumns
from shoal.streams.steering import order_keeping_weight

pytestmark = pytest.mark.unit


def test_one_error_names_all_invalid_parameters() -> None:
    with pytest.raises(ParameterError) as raised:
        StreamClusterer(1, 0, 0, rule="best", position=math.inf, max_share=1.5)
    names = [fault.split(":")[0] for fault in str(raised.value).split("; ")]
    assert names == ["k", "delta", "max_share", "position", "rule", "d"]


@pytest.mark.parametrize("k", [3, 7, 10, 49])
def test_a_share_of_one_in_k_is_valid_despite_rounding(k: int) -> None:
    stream = StreamClusterer(k, 100, 1, max_share=1 / k)
    decided = stream.push(np.zeros((400, 1)), np.arange(400) % (k + 1))
    assert decided.max_per_subject.tolist() == [1] * len(decided.max_per_subject)
    assert len(decided.max_per_subject) > 0


def test_records_above_the_cap_stay_held_but_never_the_due_record() -> None:
    stream = StreamClusterer(2, 5, 1, max_share=0.5)
    coordinates = np.array([[0.0], [1.0], [-1.0], [0.5], [9.0], [3.0]])
    decided = stream.push(coordinates, np.array([0, 0, 0, 0, 0, 1]))
    assert decided.positions.tolist() == [0, 5]  # 1, 2 and 3 were nearer, and all of subject 0
    assert stream.held_positions().tolist() == [1, 2, 3, 4]


def test_a_record_that_would_find_too_few_others_replaces_the_farthest_young_member() -> None:
    # Without record 1, records 1 and 4 alone would be held when record 1 is due, and it would be suppressed.
    decided = StreamClusterer(3, 3, 1, rule="greedy").push(np.array([[0.0], [9.0], [0.1], [0.2]]))
    assert decided.positions.tolist() == [0, 1, 2]


def test_a_record_that_will_find_enough_others_stays_held() -> None:
    decided = StreamClusterer(3, 4, 1, rule="greedy").push(np.array([[0.0], [9.0], [0.1], [0.2], [0.3]]))
    assert decided.positions.tolist() == [0, 2, 3]


def test_a_block_does_not_end_before_all_its_records_are_decided() -> None:
    stream = StreamClusterer(2, 3, 1)
    stream.begin(2, BlockColumns())
    stream.decide(np.zeros((1, 1)))
    for _ in range(2):
        with pytest.raises(GuaranteeError, match="records of a block without a decision: 1"):
            stream.end()
    with pytest.raises(GuaranteeError, match="records of a block without a decision: 1"):
        stream.push(np.zeros((1, 1)))


def test_returned_arrays_are_copies_and_parameters_may_be_numpy_integers() -> None:
    k, delta = np.int32(2), np.uint8(3)
    stream = StreamClusterer(k, delta, 1)  # type: ignore[arg-type]  # users take integers from arrays
    coordinates = np.array([[0.0], [5.0], [0.1], [5.1]])
    decided = stream.push(coordinates)
    for array in (decided.positions, decided.cluster_bounds, decided.newest, decided.suppressed):
        array[:] = -1
    coordinates[:] = 9.0
    assert stream.flush().positions.tolist() == [1, 3]


def test_the_order_keeping_weight_is_that_of_the_squared_ranges() -> None:
    assert order_keeping_weight(10, [1.0, 1.0]) == pytest.approx(math.sqrt(2 / 19))
    assert order_keeping_weight(2, [2.0]) == pytest.approx(2 / math.sqrt(3))


VALID: dict[str, Any] = {
    "coordinates": np.zeros((2, 3)),
    "subjects": np.array([1, 2]),
    "positions": np.array([4, 6]),
    "expiry_keys": np.array([[5], [5]]),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"coordinates": np.zeros((2, 2))}, r"coordinates: must be an array of float64, shape \(n, 3\)"),
        ({"coordinates": [[0.0, 0.0, 0.0]]}, "coordinates"),
        ({"coordinates": np.full((2, 3), np.nan)}, "coordinates: must be finite"),
        ({"subjects": np.array([1])}, r"subjects: must be an array of int64, shape \(2,\)"),
        ({"subjects": None}, "subjects: given in some blocks"),
        ({"positions": np.array([3, 4])}, "positions: must ascend"),
        ({"positions": np.array([4, 2**62])}, "positions: must ascend"),
        ({"expiry_keys": None}, "expiry_keys: missing"),
        ({"expiry_keys": np.array([[5], [4]])}, "expiry_keys: must not decrease"),
        ({"expiry_keys": np.array([[4], [5]])}, "expiry_keys: must not decrease"),
    ],
)
def test_an_invalid_array_is_named_without_its_values(changed: dict[str, Any], message: str) -> None:
    stream = StreamClusterer(2, 5, 3, expiry_limits=(10,))
    stream.push(np.zeros((1, 3)), np.array([1]), np.array([3]), np.array([[5]]))
    with pytest.raises(ParameterError, match=message):
        stream.push(**{**VALID, **changed})
    assert (stream.next_position, stream.held) == (4, 1)
    stream.push(**VALID)
    assert stream.held_positions().tolist() == [3, 4, 6]
