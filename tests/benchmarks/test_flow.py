"""What the benchmark measures streams with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flow import Clusters, flow_of, run_rule

pytestmark = pytest.mark.unit


def test_the_figures_of_a_stream_worked_out_by_hand() -> None:
    values = np.array([[0.0], [4.0], [2.0], [8.0]])
    clusters = Clusters(
        np.array([0, 2, 1, 3]), np.array([0, 2, 4]), np.array([[1.0], [6.0]]), np.array([2, 3], np.int64), 0
    )
    flow = flow_of(values, clusters, 2.0)
    assert (flow.mse, flow.mae) == (2.5, 1.5)
    assert (flow.moved, flow.moved_most) == (0.5, 1.0)
    assert (flow.span, flow.span_most) == (1.0, 1.0)
    assert (flow.delay, flow.delay_most) == (1.0, 2.0)
    assert (flow.released, flow.suppressed, flow.per_s) == (4, 0, 2.0)


def test_a_suppressed_record_counts_as_if_the_mean_had_been_released() -> None:
    values = np.array([[1.0], [3.0], [8.0]])
    flow = flow_of(values, Clusters(np.array([0, 1]), np.array([0, 2]), np.array([[2.0]]), np.array([2]), 1), 1.0)
    assert (flow.mse, flow.mse_of_all) == (1.0, (2.0 + 16.0) / 3)


def test_a_large_weight_of_the_position_keeps_the_order() -> None:
    values = np.random.default_rng(1).random((200, 2))
    for rule in ("nearest", "awo", "block"):
        flow = run_rule(values, 5, 20, rule, 5.0)
        assert flow.moved == flow.span == 0.0
        assert flow.delay_most <= 20
        assert not math.isnan(sum(flow))
