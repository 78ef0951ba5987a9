"""Steering: weights of the position and the bound that keeps records in order."""

from __future__ import annotations

import math

import pytest
from shoal.streams.steering import order_keeping_weight, position_faults

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("omega_p", [0.0, 1e-9, 3, 1e300])
def test_valid_weights_of_the_position(omega_p: float) -> None:
    assert position_faults(omega_p) == []


@pytest.mark.parametrize("omega_p", [-1e-9, math.nan, math.inf])
def test_invalid_weights_of_the_position(omega_p: float) -> None:
    assert position_faults(omega_p) == ["position: must be a finite weight, 0 or more"]


def test_the_order_keeping_weight_is_that_of_the_squared_ranges() -> None:
    assert order_keeping_weight(10, [1.0, 1.0]) == pytest.approx(math.sqrt(2 / 19))
    assert order_keeping_weight(2, [2.0]) == pytest.approx(2 / math.sqrt(3))
