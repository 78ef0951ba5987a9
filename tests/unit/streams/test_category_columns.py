"""Category columns of streams: what is validated, and cases at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.errors import ParameterError
from shoal.streams import StreamAggregator, StreamClusterer, partition
from shoal.streams.steering import TargetSpan

pytestmark = pytest.mark.unit

TWO = np.array([1.0, 0.5])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([1.0], "code_distances: must be an array of float64"),
        (np.ones(10_001), "with c up to 10000"),
        (np.array([-1.0]), "code_distances: must be from 0 to 1e"),
        (np.array([1e151]), "code_distances: must be from 0 to 1e"),
    ],
)
def test_invalid_distances_of_columns_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        StreamClusterer(2, 4, 1, code_distances=wrong)


@pytest.mark.parametrize("none", [None, np.zeros(0)])
def test_a_record_needs_a_coordinate_or_a_category_column(none: Any) -> None:
    with pytest.raises(ParameterError, match="d: must be a whole number from 1"):
        StreamClusterer(2, 4, 0, code_distances=none)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (None, "codes: missing, code_distances requires 2 columns"),
        (np.zeros((3, 1), np.int64), r"codes: must be an array of int64, shape \(3, 2\)"),
        (np.zeros((3, 2)), "codes"),
    ],
)
def test_invalid_codes_are_refused_and_change_nothing(codes: Any, message: str) -> None:
    stream = StreamClusterer(2, 4, 1, code_distances=TWO)
    with pytest.raises(ParameterError, match=message):
        stream.push(np.zeros((3, 1)), codes=codes)
    assert (stream.held, stream.next_position) == (0, 0)


def test_the_weight_that_follows_a_target_starts_from_all_distances() -> None:
    numeric = StreamClusterer(2, 9, 2, position=TargetSpan(4.0, (1.0, 2.0)))
    both = StreamClusterer(2, 9, 1, position=TargetSpan(4.0, (1.0,)), code_distances=np.array([4.0]))
    categories = StreamClusterer(2, 9, 0, position=TargetSpan(4.0, ()), code_distances=np.array([4.0, 1.0]))
    assert numeric.weight == both.weight == pytest.approx(categories.weight, rel=1e-15)


def test_the_index_for_many_records_is_not_used_with_categories() -> None:
    random = np.random.default_rng(0)
    codes = random.integers(0, 3, (4_210, 1))
    stream = StreamClusterer(2, 4_200, 1, rule="awo", code_distances=np.array([1e6]))
    decided = stream.push(random.random((4_210, 1)), codes=codes)
    assert len(decided.positions) == 20
    pairs = codes[decided.positions].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()


@pytest.mark.parametrize("rule", ["greedy", "block"])
def test_many_held_records_are_partitioned_by_coordinates(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "PAIRS_UP_TO", 5)
    stream = StreamClusterer(2, 40, 0, rule=rule, code_distances=np.array([1.0]))
    stream.push(np.zeros((30, 0)), codes=np.arange(30)[:, None] % 3)
    decided = stream.flush()
    clusters = np.split(decided.positions, decided.cluster_bounds[1:-1])
    assert sorted(np.concatenate(clusters).tolist()) == list(range(30))
    assert all(len(set((members % 3).tolist())) == 1 for members in clusters)


@pytest.mark.parametrize(("width", "centroids"), [(1, [[0.25]]), (0, [[]])])
def test_the_aggregator_reads_codes_and_publishes_means_of_numbers_only(width: int, centroids: Any) -> None:
    stream = StreamAggregator(2, 2, code_distances=[1.0, 0.0])
    out = stream.push(np.array([[0.0], [0.1], [0.5]])[:, :width], codes=[[7, 1], [8, 1], [7, 2]])
    assert (out.positions.tolist(), out.centroids.tolist()) == ([0, 2], centroids)
    assert stream.flush().suppressed.tolist() == [1]


@pytest.mark.parametrize("wrong", [["a"], [[1.0]], [-1.0], [True]])
def test_the_aggregator_refuses_invalid_distances(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="code_distances: must be"):
        StreamAggregator(2, 2, code_distances=wrong)


@pytest.mark.parametrize("wrong", [None, [[1]], [[1.0], [2.0]], [["a"], ["b"]]])
def test_the_aggregator_refuses_invalid_codes(wrong: Any) -> None:
    stream = StreamAggregator(2, 2, code_distances=[1.0])
    with pytest.raises(ParameterError, match="codes: "):
        stream.push([[0.0], [1.0]], codes=wrong)
    assert stream.push([[0.0], [1.0]], codes=[[1], [2]]).positions.tolist() == []
