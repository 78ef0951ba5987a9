"""Microaggregation of tables as users write it: it must type-check and run."""

from __future__ import annotations

from time import monotonic
from typing import assert_type

import numpy as np
import pytest
from numpy.typing import NDArray
from shoal import microaggregate
from shoal.tables import ALGORITHMS, REFINEMENTS, BudgetUsed, parameters_of

pytestmark = pytest.mark.typing


def test_a_list_of_lists() -> None:
    labels = microaggregate([[30, 1200.5], [31, 900.0], [64, 800.0], [65, 850.0]], k=2)
    assert_type(labels, NDArray[np.int32])
    assert labels[0] == labels[1] != labels[2] == labels[3]


def test_everything_by_name() -> None:
    values = np.random.default_rng(0).random((100, 3))
    labels = microaggregate(
        values, k=5, algorithm="vmdav", refine="descent", seed=1, parameters={"gamma": 0.5}, budget_used=None
    )
    assert labels.dtype == np.int32
    assert set(ALGORITHMS) == {"md", "mdav", "vmdav", "hilbert", "optimal", "genetic", "approximate"}
    assert set(REFINEMENTS) == {"none", "descent", "anneal", "exact"}
    assert {name: parameters_of(name) for name in ALGORITHMS}["vmdav"] == {"gamma": 0.2}


def test_annealing_for_a_time() -> None:
    began = monotonic()

    def for_a_moment(_: int) -> float:
        return (monotonic() - began) / 0.2

    budget_used: BudgetUsed = for_a_moment
    assert (
        len(microaggregate(np.random.default_rng(0).random((100, 3)), 5, "auto", "anneal", budget_used=budget_used))
        == 100
    )
