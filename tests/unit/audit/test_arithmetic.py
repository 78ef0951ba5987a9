from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.reading import canonical_float
from shoal.audit.scales import ExactGrid
from shoal.policy import Attribute, Role
from shoal.scales.scale import integral_to_int

pytestmark = pytest.mark.unit


def grid(
    resolution: str | None,
    bounds: tuple[float, float] | None = (-100, 100),
    *,
    integer: bool = False,
    table: bool = False,
) -> ExactGrid:
    step = None if resolution is None else Decimal(resolution)
    return ExactGrid(
        Attribute("a", Role.QUASI_IDENTIFIER, bounds=bounds, integer=integer, resolution=step), table=table
    )


@pytest.mark.parametrize(
    ("resolution", "values", "text"),
    [
        *(("0.05", [1.6], "1.60"), ("500", [41400.0, 41500.0], "41500"), ("500", [0.0, 500.0], "0")),
        *(("500", [500.0, 1000.0], "1000"), ("1", [0.5], "0"), ("1", [1.5], "2"), ("1", [2.5], "2")),
        *(("1", [-0.5], "0"), ("1", [-1.5], "-2"), ("0.1", [-0.04], "0.0"), ("0.1", [0.1, 0.2], "0.2")),
        *(("0.25", [-0.3], "-0.25"), ("2.5", [6.0], "5.0"), ("0.001", [12.0004], "12.000")),
        *(("0", [1.0, 2.0, 4.0], "2.3333333333333335"), ("0", [1.0, 2.0, 3.0], "2.0"), ("0", [-0.0], "0.0")),
        *(("0", [0.1] * 10, "0.1"), ("0", [0.1] * 3, "0.1"), ("0", [0.1, 0.2, 0.3], "0.2")),
        *(("0", [1.7e308, 1.7e308], "1.7e+308"), ("0", [5e-324, 5e-324, 0.0], "5e-324")),
        *(("1", [1e300, -1e300, 3.0], "1"), ("1", [5e-324, 3.0], "2")),
    ],
)
def test_the_mean_is_rounded_once_and_printed_with_the_decimals_of_its_grid(
    resolution: str, values: list[float], text: str
) -> None:
    assert grid(resolution, None).mean(values) == text


def test_ties_are_decided_by_the_exact_value_of_the_float() -> None:
    # The float64 of 0.15 is below 0.15 and that of 0.25 is exact: only the second is a tie.
    assert grid("0.1").mean([0.15]) == "0.1"
    assert grid("0.1").mean([0.25]) == "0.2"
    assert grid("0.1").mean([0.35]) == "0.3"


def test_the_default_step_comes_from_the_policy() -> None:
    assert grid(None, (0, 110)).mean([1.3]) == "1.5"
    assert grid(None, (0, 110), integer=True).mean([1.3]) == "1"
    assert grid(None, (0, 110), table=True).mean([1.3]) == "1.3"


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=12),
    st.sampled_from(["0.001", "0.05", "0.1", "0.25", "1", "2", "5", "500"]),
)
def test_no_multiple_of_the_resolution_is_nearer_to_the_exact_mean(values: list[float], resolution: str) -> None:
    text = grid(resolution, None).mean(values)
    steps = Fraction(text) / Fraction(resolution)
    exact = sum(map(Fraction, values)) / len(values) / Fraction(resolution)
    assert steps.denominator == 1
    assert steps == round(exact)
    assert grid(resolution, None).contains(text)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12))
def test_without_a_step_the_mean_is_the_nearest_float_and_within_the_range_of_the_values(values: list[float]) -> None:
    mean = float(grid("0", None).mean(values))
    assert min(values) <= mean <= max(values)
    exact = sum(map(Fraction, values), Fraction()) / len(values)
    assert all(abs(Fraction(mean) - exact) <= abs(Fraction(near) - exact) for near in neighbours(mean))


def neighbours(value: float) -> list[float]:
    return [near for end in (-math.inf, math.inf) if math.isfinite(near := math.nextafter(value, end))]


@pytest.mark.parametrize("text", ["1.60", "-0.05", "0.00", "12.35", "100.05"])
def test_a_grid_contains_its_multiples_in_canonical_form(text: str) -> None:
    assert grid("0.05").contains(text)


@pytest.mark.parametrize(
    "text", ["1.6", "1.61", "-0.00", "01.60", "1.600", "1,60", "+1.60", "1.60 ", "", "1e1", "NaN", "1" * 500 + ".00"]
)
def test_a_grid_contains_no_other_text(text: str) -> None:
    assert not grid("0.05").contains(text)


@pytest.mark.parametrize(
    ("text", "holds"), [("2.0", True), ("2", False), ("1e-05", True), ("0.00001", False), ("1e-5", False), ("x", False)]
)
def test_without_a_step_the_canonical_form_is_that_of_float64(text: str, holds: bool) -> None:  # noqa: FBT001
    assert grid("0").contains(text) is holds


@pytest.mark.parametrize(
    ("text", "within"),
    [
        *(("100.00", True), ("100.02", True), ("100.03", False), ("-100.03", False), ("x", False), ("1e999", False)),
        *(("1e-99999999999999999999", False), ("1" * 401, False)),
    ],
)
def test_bounds_are_widened_by_half_a_step(text: str, within: bool) -> None:  # noqa: FBT001
    assert grid("0.05").within_bounds(text) is within


def test_a_value_half_a_step_outside_is_within_bounds() -> None:
    assert grid("1", (0.5, 9.5)).within_bounds("0")
    assert grid("1", (0.5, 9.5)).within_bounds("10")
    assert not grid("1", (0.5, 9.5)).within_bounds("-1")


def test_without_bounds_every_finite_number_is_within() -> None:
    assert grid("1", None).within_bounds("-1e300")
    assert not grid("1", None).within_bounds("1e999")


@given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e-3, 1e-3))
def test_the_canonical_form_of_a_float_is_the_published_one(value: float) -> None:
    assert canonical_float(value).encode() == msgspec.json.encode(integral_to_int(value))
    assert float(canonical_float(value)) == value
