"""Published means compared with exact rational arithmetic: numbers on their grid, and times on their step."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from shoal.audit.scales import ExactGrid, TimeGrid
from shoal.kernels.sums import divide_sums, sum_clusters
from shoal.policy import Attribute, EpochUnit, Role, TimeStep
from shoal.scales import PublicationGrid, exact_means
from shoal.scales.time import TimePublisher

pytestmark = pytest.mark.property

RESOLUTIONS = ["0", "0.001", "0.05", "0.1", "0.25", "1", "2.5", "500", "1e-9"]

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300),
    st.floats(-1e5, 1e5),
    st.integers(-40, 40).map(lambda n: n / 4),  # ties
    st.integers(-2000, 2000).map(lambda n: n * 0.05),  # near ties
    st.sampled_from([1e16, -1e16, 1e300, -1e300, 5e-324, -5e-324, 0.0, -0.0]),  # cancellation
)
CLUSTERS = st.lists(st.lists(NUMBERS, min_size=1, max_size=12), min_size=1, max_size=5)


NEAR_ONE = st.floats(1.0, 4.0)
"""Sums of these need a bit more than a float has, so that rounding them before the division shows."""


def rounded_once(members: list[float]) -> float:
    """The float nearest to the exact mean, ties to even; zero without sign."""
    return float(sum(map(Fraction, members), Fraction()) / len(members)) + 0.0


def expected_text(members: list[float], resolution: Decimal) -> str:
    """The definition: exact mean, one rounding with ties to even, the decimals of the resolution, no minus zero."""
    if not resolution:
        return repr(rounded_once(members))
    steps = round(sum(map(Fraction, members), Fraction()) / len(members) / Fraction(resolution))
    exact = Fraction(resolution) * steps
    decimals = max(0, -int(resolution.as_tuple().exponent))
    digits = str(abs(exact * 10**decimals)).zfill(decimals + 1)
    text = f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits
    return f"-{text}" if exact < 0 else text


def flat(
    clusters: list[list[float]],
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    values = np.array([[value] for members in clusters for value in members])
    return values, np.cumsum([0, *map(len, clusters)])


@given(CLUSTERS, st.sampled_from(RESOLUTIONS))
def test_published_numbers_match_the_definition(clusters: list[list[float]], resolution: str) -> None:
    step = Decimal(resolution)
    texts, values = PublicationGrid([step]).published(*flat(clusters))
    assert texts == [[expected_text(members, step)] for members in clusters]
    assert values.tolist() == [[float(text)] for (text,) in texts]


ANY_FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(CLUSTERS | st.lists(st.lists(NEAR_ONE | ANY_FLOATS, min_size=1, max_size=12), min_size=1, max_size=5))
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_means_are_rounded_once_so_that_they_are_within_the_range_of_the_members(clusters: list[list[float]]) -> None:
    means = exact_means(*flat(clusters))
    assert means.tolist() == [[rounded_once(members)] for members in clusters]


@given(st.lists(st.lists(NEAR_ONE | NUMBERS, min_size=1, max_size=12), min_size=1, max_size=5))
def test_engine_and_verification_write_the_same_mean(clusters: list[list[float]]) -> None:
    grid = ExactGrid(Attribute("a", Role.QUASI_IDENTIFIER, resolution=Decimal(0)), table=True)
    texts, _ = PublicationGrid([Decimal(0)]).published(*flat(clusters))
    assert texts == [[grid.mean(members)] for members in clusters]


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


FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in ms."""
STEPS = st.sampled_from(("s", "7s", "15min", "h", "day", "7day", "1000day", "999999day", "month", "year"))
TIMES = st.integers(FIRST, LAST) | st.integers(FIRST, FIRST + 10**11) | st.integers(LAST - 10**11, LAST)


@given(st.lists(TIMES, min_size=1, max_size=4), STEPS, st.sampled_from((None, *get_args(EpochUnit))))
@example([FIRST], "7day", None)
@example([LAST], "year", "us")
@example([LAST], "999999day", "days")
def test_engine_and_judge_publish_the_same_time(times: list[int], text: str, unit: EpochUnit | None) -> None:
    step = TimeStep.parse(text)
    assert step is not None
    assume(unit != "days" or step.is_whole_days)
    assume(unit != "years" or step == TimeStep(1, "year"))  # as policies say
    texts, published = TimePublisher(step, unit).publish(np.array(times, np.float64), np.array([0, len(times)]))
    assert FIRST <= published[0] <= LAST
    grid = TimeGrid(step, unit)
    mean = grid.mean([float(time) for time in times])
    assert texts[0].strip('"') == mean
    assert grid.parse(mean) == published[0]
