"""The stream engine as users write it: it must type-check, and run."""

from __future__ import annotations

from typing import assert_type

import numpy as np
import pytest
from numpy.typing import NDArray
from shoal.streams import Decisions, Released, StreamAggregator, StreamClusterer

pytestmark = pytest.mark.typing


def test_a_stream_of_lists() -> None:
    stream = StreamAggregator(k=2, delta=3, weights=[1.0, 0.5])
    out = stream.push([[30, 1200.5], [31, 900.0], [64, 800.0]], subjects=["ann", "bea", "cy"], confidential=[1, 2, 3])
    assert_type(out, Released)
    assert_type(out.centroids, NDArray[np.float64])
    last = stream.flush()
    assert_type(last.positions, NDArray[np.int64])
    assert out.positions.tolist() == []
    assert last.positions.tolist() == [0, 1, 2]


def test_a_stream_of_arrays() -> None:
    stream = StreamAggregator(10, 100, "nearest", position=0.01, max_share=0.2)
    out = stream.push(np.random.default_rng(0).random((500, 4)), np.arange(500))
    labels = np.repeat(np.arange(len(out.offsets) - 1), np.diff(out.offsets))
    assert len(out.centroids) == labels[-1] + 1


def test_a_stream_with_categories() -> None:
    stream = StreamAggregator(2, 2, code_distances=[1.0])
    assert_type(stream.push(np.zeros((1, 0)), codes=[[7]]), Released)


def test_decisions_alone() -> None:
    stream = StreamClusterer(2, 3, 1, position=0.0, expiry_limits=(30_000,))
    decided = stream.push(np.zeros((2, 1)), np.array([7, 8]), np.array([0, 1]), np.array([[0], [10]]))
    assert_type(decided, Decisions)
    assert_type(decided.causes, NDArray[np.int8])
    assert_type(stream.held, int)
    assert_type(stream.held_positions(), NDArray[np.int64])
    assert stream.held == 2
