"""Times of the audit: texts and epoch numbers to milliseconds, and means on the step of the policy."""

from __future__ import annotations

import pytest
from shoal.audit.scales import TimeGrid, epoch_ms, iso_ms
from shoal.policy import TimeStep

pytestmark = pytest.mark.unit

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        *(("1970-01-01", 0), ("1969-12-31", -DAY), ("2000-02-29", 951_782_400_000), ("1970-01-01T00:00Z", 0)),
        *(("1970-01-01 01:02:03", 3_723_000), ("1970-01-01T01:00+01:00", 0), ("1970-01-01T00:00-0130", 5_400_000)),
        *(("2023-11-21Z", 1_700_524_800_000), ("1970-01-02+01:00", 82_800_000), ("1970-01-01-0130", 5_400_000)),
        *(("1970-01-01T00:00:00.0005Z", 0), ("1970-01-01T00:00:00.0015Z", 2), ("1970-01-01T00:00:00.123456789", 123)),
        *(("0001-01-01", -62_135_596_800_000), ("9999-12-31T23:59:59.999Z", 253_402_300_799_999)),
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
        *(("1.5", "s", 1500), ("0.5", "ms", 0), ("1.5", "ms", 2), ("-2", "s", -2000), ("+5.", "s", 5000)),
        *(("0.0005", "s", 0), ("1.0015", "s", 1002), ("1e-400", "ms", 0), ("1e300", "s", None), ("1e400", "s", None)),
        *(("3e14", "ms", None), ("253402300799.9995", "s", None), ("1700000000123500", "us", 1_700_000_000_124)),
        *(("1700000000124500", "us", 1_700_000_000_124), ("-500.5", "us", -1)),
        *(("253402300799999499", "us", 253_402_300_799_999), ("253402300799999500", "us", None), ("2e18", "us", None)),
        *(("19682", "days", 1_700_524_800_000), ("-0.25", "days", -21_600_000), ("1e-400", "days", 0)),
        *(("-719162", "days", -62_135_596_800_000), ("-719163", "days", None), ("2932897", "days", None)),
    ],
)
def test_an_epoch_number_is_read(number: str, unit: str, milliseconds: int | None) -> None:
    assert epoch_ms(number, unit) == milliseconds


@pytest.mark.parametrize(
    ("step", "unit", "values", "text"),
    [
        ("day", None, [0, 2 * DAY], "1970-01-02"),
        ("day", None, [0, DAY], "1970-01-01"),
        ("day", None, [DAY, 2 * DAY], "1970-01-03"),
        ("day", None, [-DAY], "1969-12-31"),
        ("2day", None, [3 * DAY + 1], "1970-01-05"),
        ("h", None, [5_400_000], "1970-01-01T02:00:00Z"),
        ("15min", None, [899_999], "1970-01-01T00:15:00Z"),
        ("s", "s", [1500], "2"),
        ("s", "ms", [2500], "2000"),
        ("day", "s", [-DAY - 1], "-86400"),
        ("month", None, [31 * DAY // 2], "1970-01-01"),
        ("month", None, [31 * DAY // 2 + 1], "1970-02-01"),
        ("month", None, [45 * DAY], "1970-03-01"),
        ("month", "ms", [-1], "0"),
        ("year", None, [365 * DAY // 2], "1970-01-01"),
        ("year", None, [365 * DAY + 365 * DAY // 2], "1972-01-01"),
        ("year", None, [-366 * DAY], "1969-01-01"),
        ("s", "us", [1500], "2000000"),
        ("day", "days", [-DAY - 1], "-1"),
        ("month", "days", [45 * DAY], "59"),
        # The nearest time is outside the years 0001 to 9999.
        ("s", None, [253_402_300_799_999], "9999-12-31T23:59:59Z"),
        ("day", "days", [253_402_300_799_999], "2932896"),
        ("month", None, [253_402_300_799_999], "9999-12-01"),
        ("year", None, [253_402_300_799_999], "9999-01-01"),
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
        *(("day", None, "1970-01-02", True), ("day", None, "1970-01-02T00:00:00Z", False)),
        *(("h", None, "1970-01-02T01:00:00Z", True), ("h", None, "1970-01-02T01:00Z", False)),
        *(("h", None, "1970-01-02T01:30:00Z", False), ("h", None, "1970-01-02", False)),
        *(("month", None, "1970-03-01", True), ("month", None, "1970-03-02", False)),
        *(("year", None, "1970-03-01", False), ("h", "s", "7200", True), ("h", "s", "7201", False)),
        *(("h", "s", "7200.0", False), ("h", "s", "+7200", False), ("h", "s", "-0", False)),
        *(("h", "ms", "7200000", True), ("h", "us", "7200000000", True), ("h", "us", "7200000001", False)),
        *(("day", "days", "19682", True), ("2day", "days", "19681", False), ("day", "days", "2932896", True)),
        *(("day", "days", "2932897", False), ("year", None, "0001-01-01", True)),
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
