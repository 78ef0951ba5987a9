"""The stream clusterer: parameters, ``max_share``, and the end of the stream."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from oracle.naive import log_of
from shoal.errors import ParameterError
from shoal.streams import StreamClusterer

pytestmark = pytest.mark.unit


def test_one_error_names_all_invalid_parameters() -> None:
    with pytest.raises(ParameterError) as raised:
        StreamClusterer(1, 0, 0, rule="best", position=-1.0, max_share=1.5, expiry_limits=[-1])
    names = [fault.split(":")[0] for fault in str(raised.value).split("; ")]
    assert names == ["k", "delta", "max_share", "position", "rule", "d", "expiry_limits"]


@pytest.mark.parametrize("k", [3, 7, 10, 49])
def test_a_share_of_one_in_k_is_valid_despite_rounding(k: int) -> None:
    stream = StreamClusterer(k, 100, 1, max_share=1 / k)
    decided = stream.push(np.zeros((400, 1)), np.arange(400) % (k + 1))
    assert decided.max_per_subject.tolist() == [1] * len(decided.max_per_subject)
    assert len(decided.max_per_subject) > 0


def test_a_share_of_three_tenths_of_ten_is_three() -> None:
    stream = StreamClusterer(5, 9, 1, max_share=0.3)
    coordinates = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2], [2.0], [2.1], [3.0], [4.0]])
    decided = stream.push(coordinates, np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 4]))
    assert decided.positions.tolist() == list(range(10))
    assert decided.max_per_subject.tolist() == [3]


def test_records_above_the_cap_stay_held_but_never_the_due_record() -> None:
    stream = StreamClusterer(2, 5, 1, max_share=0.5)
    coordinates = np.array([[0.0], [1.0], [-1.0], [0.5], [9.0], [3.0]])
    decided = stream.push(coordinates, np.array([0, 0, 0, 0, 0, 1]))
    assert decided.positions.tolist() == [0, 5]  # 1, 2 and 3 were nearer, and all of subject 0
    assert stream.held_positions().tolist() == [1, 2, 3, 4]


def test_records_above_the_cap_at_the_end_of_the_stream_are_decided_on_in_turn() -> None:
    stream = StreamClusterer(2, 20, 1)
    stream.push(np.arange(7.0).reshape(-1, 1), np.array([0, 0, 0, 0, 1, 1, 2]))
    decided = stream.flush()
    clusters = [decided.positions[start:end].tolist() for start, end in pairwise(decided.cluster_bounds.tolist())]
    assert clusters == [[0, 1, 2, 4, 5, 6]]
    assert decided.suppressed.tolist() == [3]
    assert decided.suppressed_before.tolist() == [1]


def test_records_can_be_pushed_after_a_flush() -> None:
    stream = StreamClusterer(2, 3, 1)
    coordinates = np.arange(12.0).reshape(-1, 1)
    first = [stream.push(coordinates[:5]), stream.flush()]
    again = StreamClusterer(2, 3, 1)
    expected = [again.push(coordinates[:7]), again.flush()]
    second = [stream.push(coordinates[5:]), stream.flush()]
    assert log_of(first)[0][1] == (0, 1)
    assert [tuple(p - 5 for p in entry[1]) for entry in log_of(second)] == [entry[1] for entry in log_of(expected)]
    assert stream.held == 0


def test_returned_arrays_are_copies() -> None:
    stream = StreamClusterer(2, 3, 1)
    coordinates = np.array([[0.0], [5.0], [0.1], [5.1]])
    decided = stream.push(coordinates)
    for array in (decided.positions, decided.cluster_bounds, decided.newest, decided.suppressed):
        array[:] = -1
    coordinates[:] = 9.0
    assert stream.flush().positions.tolist() == [1, 3]


@pytest.mark.parametrize("integer", [np.int32, np.int64, np.uint8])
def test_parameters_may_be_numpy_integers(integer: type[np.integer[Any]]) -> None:
    stream = StreamClusterer(integer(2), integer(3), 1)  # type: ignore[arg-type]  # users take integers from arrays
    assert stream.push(np.zeros((4, 1))).positions.tolist() == [0, 1]


def test_a_gap_in_positions_is_not_a_delay() -> None:
    stream = StreamClusterer(2, 4, 1)
    stream.push(np.zeros((3, 1)), positions=np.array([0, 1, 2]))
    decided = stream.push(np.zeros((1, 1)), positions=np.array([1000]))
    assert decided.positions.tolist() == [0, 1, 2, 1000]
    assert decided.suppressed.tolist() == []


def test_a_rule_without_a_class_is_an_error_and_not_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.streams.clusterer.RULES", ("nearest", "greedy", "awo", "block", "novel"))
    with pytest.raises(ParameterError, match="rule"):
        StreamClusterer(3, 10, 1, rule="novel")
