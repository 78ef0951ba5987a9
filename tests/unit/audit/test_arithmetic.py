from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.arithmetic import ExactGrid, spelled
from shoal.policy import Attribute, Role
from shoal.records.numerals import integral_to_int

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
        ("0.05", [1.6], "1.60"),
        ("500", [41400.0, 41500.0], "41500"),
        ("500", [0.0, 500.0], "0"),
        ("500", [500.0, 1000.0], "1000"),
        ("1", [0.5], "0"),
        ("1", [1.5], "2"),
        ("1", [2.5], "2"),
        ("1", [-0.5], "0"),
        ("1", [-1.5], "-2"),
        ("0.1", [-0.04], "0.0"),
        ("0.1", [0.1, 0.2], "0.2"),
        ("0.25", [-0.3], "-0.25"),
        ("2.5", [6.0], "5.0"),
        ("0.001", [12.0004], "12.000"),
        ("0", [1.0, 2.0, 4.0], "2.3333333333333335"),
        ("0", [1.0, 2.0, 3.0], "2.0"),
        ("0", [-0.0], "0.0"),
        ("0", [0.1] * 10, "0.1"),
        ("1", [1e300, -1e300, 3.0], "1"),
        ("1", [5e-324, 3.0], "2"),
    ],
)
def test_the_mean_is_rounded_once_and_printed_with_the_decimals_of_its_grid(
    resolution: str, values: list[float], text: str
) -> None:
    assert grid(resolution, None).mean(values) == text


def test_a_mean_that_no_float_can_hold_is_none() -> None:
    assert grid("0", None).mean([1.7e308, 1.7e308]) is None


def test_tenths_are_what_their_floats_are_and_no_more() -> None:
    # 0.15 is a little less than its decimal, 0.25 is not: the tie is a tie only where it is exact.
    assert grid("0.1").mean([0.15]) == "0.1"
    assert grid("0.1").mean([0.25]) == "0.2"
    assert grid("0.1").mean([0.35]) == "0.3"


def test_defaults_come_from_the_policy_alone() -> None:
    assert grid(None, (0, 110)).mean([1.3]) == "1.5"
    assert grid(None, (0, 110), integer=True).mean([1.3]) == "1"
    assert grid(None, (0, 110), table=True).mean([1.3]) == "1.3"


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=12),
    st.sampled_from(["0.001", "0.05", "0.1", "0.25", "1", "2", "5", "500"]),
)
def test_no_multiple_of_the_resolution_is_nearer_to_the_exact_mean(values: list[float], resolution: str) -> None:
    text = grid(resolution, None).mean(values)
    assert text is not None
    steps = Fraction(text) / Fraction(resolution)
    exact = sum(map(Fraction, values)) / len(values) / Fraction(resolution)
    assert steps.denominator == 1
    assert steps == round(exact)
    assert grid(resolution, None).holds(text)


@pytest.mark.parametrize("text", ["1.60", "-0.05", "0.00", "12.35", "100.05"])
def test_values_of_the_grid(text: str) -> None:
    assert grid("0.05").holds(text)


@pytest.mark.parametrize(
    "text", ["1.6", "1.61", "-0.00", "01.60", "1.600", "1,60", "+1.60", "1.60 ", "", "1e1", "NaN", "1" * 500 + ".00"]
)
def test_texts_off_the_grid(text: str) -> None:
    assert not grid("0.05").holds(text)


@pytest.mark.parametrize(
    ("text", "holds"), [("2.0", True), ("2", False), ("1e-05", True), ("0.00001", False), ("1e-5", False), ("x", False)]
)
def test_an_exact_mean_is_written_as_a_float(text: str, holds: bool) -> None:  # noqa: FBT001
    assert grid("0").holds(text) is holds


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("100.00", True),
        ("100.02", True),
        ("100.03", False),
        ("-100.03", False),
        ("x", False),
        ("1e999", False),
        ("1e-99999999999999999999", False),
        ("1" * 401, False),
    ],
)
def test_bounds_are_kept_half_a_step_aside(text: str, within: bool) -> None:  # noqa: FBT001
    assert grid("0.05").within(text) is within


def test_half_a_step_aside_is_within() -> None:
    assert grid("1", (0.5, 9.5)).within("0")
    assert grid("1", (0.5, 9.5)).within("10")
    assert not grid("1", (0.5, 9.5)).within("-1")


def test_without_bounds_every_number_is_within() -> None:
    assert grid("1", None).within("-1e300")
    assert not grid("1", None).within("1e999")


@given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e-3, 1e-3))
def test_a_float_has_one_spelling_which_is_the_one_that_is_published(value: float) -> None:
    assert spelled(value).encode() == msgspec.json.encode(integral_to_int(value))
    assert float(spelled(value)) == value
