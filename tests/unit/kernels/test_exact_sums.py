"""Exact sums, compared with fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from shoal.kernels.sums import divide_sums, sum_clusters

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("values", "exact"),
    [
        ([0.1] * 10, True),
        ([1e16, 1.0, -1e16], True),
        ([1e300, 1.0, 1e-300, -1e300], False),
        ([5e-324, -5e-324, 5e-324], True),
        ([-0.0, -0.0], True),
        ([1.7e308, 1.7e308], False),
        ([1.7976931348623157e308, 2.0**969, 2.0**969], False),  # overflows in the last addition
    ],
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_sum_is_exact_or_reported_as_inexact(values: list[float], exact: bool) -> None:  # noqa: FBT001
    totals, residuals, is_exact = np.empty((1, 1)), np.empty((1, 1)), np.empty((1, 1), np.bool_)
    sum_clusters(np.array(values).reshape(-1, 1), np.array([0, len(values)]), totals, residuals, is_exact)
    assert is_exact[0, 0] == exact
    if exact:
        assert totals[0, 0] == math.fsum(values)
        assert Fraction(totals[0, 0]) + Fraction(residuals[0, 0]) == sum(map(Fraction, values))
        assert math.copysign(1.0, totals[0, 0]) == 1.0 or totals[0, 0] < 0


@pytest.mark.parametrize(
    ("values", "mean", "certain"),
    [
        ([0.1, 0.1, 0.1], 0.1, True),  # the float of the sum, divided by 3, is 0.10000000000000002
        ([1.0, 2.0, 4.0], 2.3333333333333335, True),
        ([1.0, 1.0000000000000002], 1.0, True),  # a tie of which the correction is exact
        ([1.0000000000000002, 1.0000000000000004], 1.0000000000000004, True),
        ([1e-290, 1e-306, 1e-306], 3.3333333333333335e-291, False),  # the correction could underflow
        ([1.7e308, -1.7e308, 3.0], 1.0, True),
        ([-0.0, -0.0], 0.0, True),
    ],
)
def test_a_mean_is_rounded_once_or_reported_as_uncertain(values: list[float], mean: float, certain: bool) -> None:  # noqa: FBT001
    totals, residuals, is_exact = np.empty((1, 1)), np.empty((1, 1)), np.empty((1, 1), np.bool_)
    bounds = np.array([0, len(values)])
    sum_clusters(np.array(values).reshape(-1, 1), bounds, totals, residuals, is_exact)
    means, is_certain = np.empty((1, 1)), np.empty((1, 1), np.bool_)
    divide_sums(totals, residuals, is_exact, bounds, means, is_certain)
    assert is_certain[0, 0] == certain
    if certain:
        assert repr(float(means[0, 0])) == repr(mean)
