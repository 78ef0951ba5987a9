"""Published centroids compared with exact rational arithmetic."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.scales import ExactGrid
from shoal.policy import Attribute, Role
from shoal.scales import PublicationGrid, exact_means

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


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.sampled_from(RESOLUTIONS), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(members: list[float], resolution: str, random: Random) -> None:
    shuffled = random.sample(members, len(members))
    texts, _ = PublicationGrid([Decimal(resolution)]).published(*flat([members, shuffled]))
    assert texts[0] == texts[1]


@given(CLUSTERS | st.lists(st.lists(NEAR_ONE, min_size=1, max_size=12), min_size=1, max_size=5))
def test_means_are_rounded_once(clusters: list[list[float]]) -> None:
    means = exact_means(*flat(clusters))
    assert means.tolist() == [[rounded_once(members)] for members in clusters]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12))
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_mean_is_within_the_range_of_the_members(members: list[float]) -> None:
    (mean,) = exact_means(*flat([members])).ravel().tolist()
    assert min(members) <= mean <= max(members)
    assert mean == rounded_once(members)


@given(NUMBERS | NEAR_ONE, st.integers(1, 50))
def test_equal_members_publish_their_own_value(value: float, size: int) -> None:
    texts, values = PublicationGrid([Decimal(0)]).published(*flat([[value] * size]))
    assert texts == [[repr(value + 0.0)]]
    assert values.tolist() == [[value]]


@given(st.lists(st.lists(NEAR_ONE | NUMBERS, min_size=1, max_size=12), min_size=1, max_size=5))
def test_engine_and_verification_write_the_same_mean(clusters: list[list[float]]) -> None:
    grid = ExactGrid(Attribute("a", Role.QUASI_IDENTIFIER, resolution=Decimal(0)), table=True)
    texts, _ = PublicationGrid([Decimal(0)]).published(*flat(clusters))
    assert texts == [[grid.mean(members)] for members in clusters]
