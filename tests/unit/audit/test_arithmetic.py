from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.reading import canonical_float
from shoal.audit.scales import ExactGrid, TimeGrid, epoch_ms, iso_ms
from shoal.policy import Attribute, Role, TimeStep
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
        ("0.05", [1.6], "1.60"),
        ("500", [500.0, 1000.0], "1000"),
        ("1", [0.5], "0"),
        ("1", [1.5], "2"),
        ("1", [-0.5], "0"),
        ("1", [-1.5], "-2"),
        ("0.1", [-0.04], "0.0"),
        ("0.1", [0.15], "0.1"),  # the float64 is below 0.15
        ("0.1", [0.25], "0.2"),  # the float64 is exact: a tie
        ("2.5", [6.0], "5.0"),
        ("0", [1.0, 2.0, 3.0], "2.0"),
        ("0", [-0.0], "0.0"),
        ("0", [1.7e308, 1.7e308], "1.7e+308"),
        ("1", [1e300, -1e300, 3.0], "1"),
    ],
)
def test_the_mean_is_rounded_once_and_printed_with_the_decimals_of_its_grid(
    resolution: str, values: list[float], text: str
) -> None:
    assert grid(resolution, None).mean(values) == text


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
        ("100.02", True),
        ("100.03", False),
        ("-100.03", False),
        ("x", False),
        ("1e999", False),
        ("1e-99999999999999999999", False),
        ("1" * 401, False),
    ],
)
def test_bounds_are_widened_by_half_a_step(text: str, within: bool) -> None:  # noqa: FBT001
    assert grid("0.05").within_bounds(text) is within


@given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e-3, 1e-3))
def test_the_canonical_form_of_a_float_is_the_published_one(value: float) -> None:
    assert canonical_float(value).encode() == msgspec.json.encode(integral_to_int(value))
    assert float(canonical_float(value)) == value


# ---------------------------------------------------------------- times


DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1969-12-31", -DAY),
        ("2000-02-29", 951_782_400_000),
        ("1970-01-01 01:02:03", 3_723_000),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T00:00-0130", 5_400_000),
        ("2023-11-21Z", 1_700_524_800_000),
        ("1970-01-02+01:00", 82_800_000),
        ("1970-01-01T00:00:00.0005Z", 0),
        ("1970-01-01T00:00:00.0015Z", 2),
        ("0001-01-01", -62_135_596_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_a_time_is_read(text: str, milliseconds: int) -> None:
    assert iso_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "2001-02-29", "2001-2-3", "0000-01-01", "2001-01-01T24:00", "2001-01-01T12", "2001-01-01T12:60"),
        *("2001-01-01T12:00:60", "2001-01-01T12:00:00.", "2001-01-01T12:00:00.1234567890", "2001-01-01z"),
        *("2001-01-01 Z", "2001-01-01+24:00", "0001-01-01+00:01", "2001-01-01T12:00+24:00", "2001-01-01T12:00+1"),
        *(" 2001-01-01", "2001-01-01\n", "٢٠٠١-01-01", "0001-01-01T00:00+00:01", "9999-12-31T23:59:59.9999Z"),
    ],
)
def test_any_other_text_is_no_time(text: str) -> None:
    assert iso_ms(text) is None


@pytest.mark.parametrize(
    ("number", "unit", "milliseconds"),
    [
        ("1.5", "s", 1500),
        ("+5.", "s", 5000),
        ("0.5", "ms", 0),
        ("1e-400", "ms", 0),
        ("1e400", "s", None),
        ("253402300799.9995", "s", None),
        ("1700000000123500", "us", 1_700_000_000_124),
        ("1700000000124500", "us", 1_700_000_000_124),
        ("253402300799999499", "us", 253_402_300_799_999),
        ("253402300799999500", "us", None),
        ("-0.25", "days", -21_600_000),
        ("-719162", "days", -62_135_596_800_000),
        ("-719163", "days", None),
    ],
)
def test_an_epoch_number_is_read(number: str, unit: str, milliseconds: int | None) -> None:
    assert epoch_ms(number, unit) == milliseconds


@pytest.mark.parametrize(
    ("step", "unit", "values", "text"),
    [
        ("day", None, [0, 2 * DAY], "1970-01-02"),
        ("day", None, [0, DAY], "1970-01-01"),
        ("2day", None, [3 * DAY + 1], "1970-01-05"),
        ("h", None, [5_400_000], "1970-01-01T02:00:00Z"),
        ("15min", None, [899_999], "1970-01-01T00:15:00Z"),
        ("s", "ms", [2500], "2000"),
        ("day", "s", [-DAY - 1], "-86400"),
        ("month", None, [31 * DAY // 2], "1970-01-01"),
        ("month", None, [31 * DAY // 2 + 1], "1970-02-01"),
        ("month", "ms", [-1], "0"),
        ("year", None, [365 * DAY + 365 * DAY // 2], "1972-01-01"),
        ("day", "days", [-DAY - 1], "-1"),
        ("month", "days", [45 * DAY], "59"),
        # The nearest time is outside the years 0001 to 9999.
        ("s", None, [253_402_300_799_999], "9999-12-31T23:59:59Z"),
        ("month", None, [253_402_300_799_999], "9999-12-01"),
        ("7day", None, [-62_135_596_800_000], "0001-01-04"),
        ("999999day", None, [253_402_300_799_999], "7445-10-23"),
    ],
)
def test_a_mean_is_rounded_to_the_nearest_step(step: str, unit: str | None, values: list[int], text: str) -> None:
    found = TimeStep.parse(step)
    assert found is not None
    assert TimeGrid(found, unit).mean(values) == text


@pytest.mark.parametrize(
    ("step", "unit", "text", "is_allowed"),
    [
        ("day", None, "1970-01-02T00:00:00Z", False),
        ("h", None, "1970-01-02T01:00:00Z", True),
        ("h", None, "1970-01-02T01:00Z", False),
        ("h", None, "1970-01-02T01:30:00Z", False),
        ("month", None, "1970-03-02", False),
        ("year", None, "1970-03-01", False),
        ("h", "s", "7200", True),
        ("h", "s", "7200.0", False),
        ("h", "s", "-0", False),
        ("h", "us", "7200000001", False),
        ("2day", "days", "19681", False),
        ("day", "days", "2932896", True),
        ("day", "days", "2932897", False),
        ("year", None, "0001-01-01", True),
    ],
)
def test_a_published_time_is_of_its_step_in_its_only_spelling(
    step: str,
    unit: str | None,
    text: str,
    is_allowed: bool,  # noqa: FBT001
) -> None:
    found = TimeStep.parse(step)
    assert found is not None
    assert (TimeGrid(found, unit).parse(text) is not None) == is_allowed
