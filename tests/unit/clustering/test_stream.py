from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from oracle.naive import log_of
from shoal.clustering.stream import StreamAggregator, StreamClusterer
from shoal.errors import ParameterError

pytestmark = pytest.mark.unit


def test_all_parameters_that_are_wrong_are_told_at_once() -> None:
    with pytest.raises(ParameterError) as raised:
        StreamClusterer(1, 0, 0, rule="best", position=-1.0, max_share=1.5, expiry_limits=[-1])
    names = [fault.split(":")[0] for fault in str(raised.value).split("; ")]
    assert names == ["k", "delta", "max_share", "position", "rule", "d", "expiry_limits"]


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"k": 2.0}, "k: must be a whole number"),
        ({"k": True}, "k: must be a whole number"),
        ({"delta": 10.5}, "delta: must be a whole number"),
        ({"k": 12}, "delta: must be at least k - 1"),
        ({"max_share": 0.09}, "max_share: must be at least 1/k"),
        ({"max_share": 0.0}, "max_share: must be above 0"),
        ({"position": float("nan")}, "position"),
        ({"weights": [1.0, 0.0]}, "weights: must be finite numbers above 0"),
        ({"weights": [float("inf")]}, "weights"),
    ],
)
def test_a_parameter_outside_its_domain(parameters: dict[str, Any], fault: str) -> None:
    with pytest.raises(ParameterError, match=fault):
        StreamAggregator(**{"k": 10, "delta": 10, **parameters})


@pytest.mark.parametrize("k", [3, 7, 10, 49])
def test_a_share_of_one_in_k_is_allowed_however_it_was_rounded(k: int) -> None:
    stream = StreamClusterer(k, 100, 1, max_share=1 / k)
    decided = stream.push(np.zeros((400, 1)), np.arange(400) % (k + 1))
    assert decided.heaviest.tolist() == [1] * len(decided.heaviest)
    assert len(decided.heaviest) > 0


def test_a_share_of_three_tenths_of_ten_is_three() -> None:
    stream = StreamClusterer(5, 9, 1, max_share=0.3)
    coordinates = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2], [2.0], [2.1], [3.0], [4.0]])
    decided = stream.push(coordinates, np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 4]))
    assert decided.positions.tolist() == list(range(10))
    assert decided.heaviest.tolist() == [3]


def test_the_farthest_surplus_goes_back_the_younger_first_and_never_the_expiring_record() -> None:
    stream = StreamClusterer(2, 5, 1, max_share=0.5)
    coordinates = np.array([[0.0], [1.0], [-1.0], [0.5], [9.0], [3.0]])
    decided = stream.push(coordinates, np.array([0, 0, 0, 0, 0, 1]))
    assert decided.positions.tolist() == [0, 5]  # 1, 2 and 3 were nearer, and all of subject 0
    assert stream.held_positions().tolist() == [1, 2, 3, 4]


def test_what_the_cap_hands_back_at_the_end_of_the_stream_is_decided_on_in_turn() -> None:
    stream = StreamClusterer(2, 20, 1)
    stream.push(np.arange(7.0).reshape(-1, 1), np.array([0, 0, 0, 0, 1, 1, 2]))
    decided = stream.flush()
    clusters = [decided.positions[start:end].tolist() for start, end in pairwise(decided.offsets.tolist())]
    assert clusters == [[0, 1, 2, 4, 5, 6]]
    assert decided.suppressed.tolist() == [3]
    assert decided.suppressed_before.tolist() == [1]


def test_after_a_flush_the_stream_goes_on() -> None:
    stream = StreamClusterer(2, 3, 1)
    coordinates = np.arange(12.0).reshape(-1, 1)
    first = [stream.push(coordinates[:5]), stream.flush()]
    again = StreamClusterer(2, 3, 1)
    expected = [again.push(coordinates[:7]), again.flush()]
    second = [stream.push(coordinates[5:]), stream.flush()]
    assert log_of(first)[0][1] == (0, 1)
    assert [tuple(p - 5 for p in entry[1]) for entry in log_of(second)] == [entry[1] for entry in log_of(expected)]
    assert stream.held == 0


def test_decisions_belong_to_the_caller() -> None:
    stream = StreamClusterer(2, 3, 1)
    coordinates = np.array([[0.0], [5.0], [0.1], [5.1]])
    decided = stream.push(coordinates)
    for array in (decided.positions, decided.offsets, decided.newest, decided.suppressed):
        array[:] = -1
    coordinates[:] = 9.0
    assert stream.flush().positions.tolist() == [1, 3]


def test_values_come_back_as_means_of_what_was_pushed_whatever_the_weights() -> None:
    values = np.random.default_rng(2).random((300, 3)) * [1.0, 100.0, 1e-3]
    stream = StreamAggregator(4, 30, weights=[1.0, 0.01, 1000.0])
    plain = StreamClusterer(4, 30, 3, rule="awo")
    calls = [stream.push(values[:120]), stream.push(values[120:]), stream.flush()]
    expected = [plain.push(values * [1.0, 0.01, 1000.0]), plain.flush()]
    positions = np.concatenate([out.positions for out in calls])
    assert positions.tolist() == np.concatenate([decided.positions for decided in expected]).tolist()
    for out in calls:
        for centroid, (start, end) in zip(out.centroids, pairwise(out.offsets.tolist()), strict=True):
            assert centroid == pytest.approx(values[out.positions[start:end]].mean(axis=0), rel=1e-14)
    assert len(stream._values) == 256, "as few as delta and a block need"


def test_two_spellings_of_a_name_are_not_two_people() -> None:
    stream = StreamAggregator(2, 3)
    values = [[0.0], [0.0], [0.0], [0.0]]
    assert stream.push(values, ["7", "07", "7.0", " 7"]).positions.tolist() == []
    assert stream.flush().suppressed.tolist() == [1, 2, 3]


def test_names_and_numbers_of_subjects_are_the_same_people() -> None:
    random = np.random.default_rng(4)
    values, codes = random.random((500, 2)), random.integers(0, 40, 500)
    results = []
    for subjects in (codes, [f"person {code}" for code in codes]):
        stream = StreamAggregator(5, 30, max_share=0.4)
        calls = [stream.push(values[start : start + 9], subjects[start : start + 9]) for start in range(0, 500, 9)]
        results.append([out.positions.tolist() for out in [*calls, stream.flush()]])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [[1.0, np.nan]]}, "finite"),
        ({"values": [1.0, 2.0]}, "values: must be numbers"),
        ({"values": [["a", "b"]]}, "values: must be numbers"),
        ({"values": [[1.0, 2.0], [1.0]]}, "values: rows must have the same length"),
        ({"values": np.zeros((2, 0))}, "values: must be numbers"),
        ({"values": [[1.0, 2.0, 3.0]]}, "values: must have 2 columns"),
        ({"values": [[1.0, 2.0]], "subjects": ["a", "b"]}, "subjects"),
        ({"values": [[1.0, 2.0]], "confidential": ["x", "y"]}, "confidential: must have length 1"),
        ({"values": [[1.0, 2.0]], "confidential": "x"}, "confidential: must have length 1"),
    ],
)
def test_records_that_cannot_be_taken_leave_no_trace(arguments: dict[str, Any], message: str) -> None:
    stream = StreamAggregator(2, 3, weights=[1.0, 1.0])
    with pytest.raises(ParameterError, match=message):
        stream.push(**arguments)
    assert stream.flush().positions.tolist() == []
    out = stream.push([[1, 2], [3, 4], [5, 6], [7, 8]], confidential=np.zeros((4, 2)))
    assert out.positions.tolist() == [0, 1]


def test_a_stream_that_never_began_ends_with_nothing() -> None:
    out = StreamAggregator(2, 3).flush()
    assert (len(out.positions), out.offsets.tolist(), len(out.suppressed)) == (0, [0], 0)


@pytest.mark.parametrize("integer", [np.int32, np.int64, np.uint8])
def test_parameters_may_be_whole_numbers_of_numpy(integer: type[np.integer[Any]]) -> None:
    stream = StreamClusterer(integer(2), integer(3), 1)  # type: ignore[arg-type]  # users take them from arrays
    assert stream.push(np.zeros((4, 1))).positions.tolist() == [0, 1]
