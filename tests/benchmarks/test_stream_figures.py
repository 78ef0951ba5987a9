"""What the benchmark measures streams with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from stream_figures import Clusters, figures_of, run_rule

pytestmark = pytest.mark.unit


def test_the_figures_of_a_stream_worked_out_by_hand() -> None:
    values = np.array([[0.0], [4.0], [2.0], [8.0]])
    clusters = Clusters(
        np.array([0, 2, 1, 3]), np.array([0, 2, 4]), np.array([[1.0], [6.0]]), np.array([2, 3], np.int64), 0
    )
    run = figures_of(values, clusters, 2.0)
    assert (run.mse, run.mae) == (2.5, 1.5)
    assert (run.moved, run.moved_most) == (0.5, 1.0)
    assert (run.span, run.span_most) == (1.0, 1.0)
    assert (run.delay, run.delay_most) == (1.0, 2.0)
    assert (run.released, run.suppressed, run.per_s) == (4, 0, 2.0)


def test_a_suppressed_record_counts_as_if_the_mean_had_been_released() -> None:
    values = np.array([[1.0], [3.0], [8.0]])
    run = figures_of(values, Clusters(np.array([0, 1]), np.array([0, 2]), np.array([[2.0]]), np.array([2]), 1), 1.0)
    assert (run.mse, run.mse_of_all) == (1.0, (2.0 + 16.0) / 3)


def test_a_large_weight_of_the_position_keeps_the_order() -> None:
    values = np.random.default_rng(1).random((200, 2))
    for rule in ("nearest", "awo", "block"):
        run = run_rule(values, 5, 20, rule, 5.0)
        assert run.moved == run.span == 0.0
        assert run.delay_most <= 20
        assert not math.isnan(sum(run))
