"""Means of clusters are the float64 nearest to the exact mean, or reported as uncertain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.kernels.sums import divide_sums, sum_clusters

MEMBERS = st.one_of(
    st.floats(-1, 1),
    st.integers(0, 10).map(lambda tenths: tenths / 10),
    st.integers(0, 3).map(lambda steps: 1 + steps * 2.0**-52),
    st.integers(-60, 60).map(lambda exponent: 2.0**exponent),
    st.floats(-1e300, 1e300),
)
"""Numbers near ties, short decimals, powers of two, and numbers whose squares or quotients leave float64."""


@given(st.lists(MEMBERS, min_size=1, max_size=10), st.sampled_from([1.0, -1.0, 1e-20, 1e20, 1e-290]))
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:underflow")
def test_a_certain_mean_is_the_nearest_float_of_the_exact_mean(members: list[float], factor: float) -> None:
    values = [member * factor for member in members]
    totals, residuals, means = (np.empty((1, 1)) for _ in range(3))
    is_exact, is_certain = (np.empty((1, 1), np.bool_) for _ in range(2))
    bounds = np.array([0, len(values)])
    sum_clusters(np.array(values).reshape(-1, 1), bounds, totals, residuals, is_exact)
    divide_sums(totals, residuals, is_exact, bounds, means, is_certain)
    if is_certain[0, 0]:
        assert float(means[0, 0]).hex() == float(sum(map(Fraction, values)) / len(values)).hex()
    moderate = all(value == 0 or 1e-100 < abs(value) < 1e100 for value in values)
    if moderate and len(set(values)) == 1:
        assert is_certain[0, 0], "equal members have a mean that is always proven"
