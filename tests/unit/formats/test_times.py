"""Times in ISO 8601 and since 1970: whole ms, and nothing but the documented forms."""

from __future__ import annotations

import math

import pytest
from shoal.scales.time import parse_epoch_times, parse_iso_times

pytestmark = pytest.mark.unit

DAY = 86_400_000
ISO_TIMES = [
    ("0001-01-01", -62_135_596_800_000),
    ("1970-01-01 00:01", 60_000),
    ("1970-01-02T03:04:05", DAY + 11_045_000),
    ("1970-01-01T01:00:00+0130", -1_800_000),
    ("1970-01-01T00:00:00-23:59", 86_340_000),
    ("1970-01-01T00:00:00.123+00:00", 123),
    ("1970-01-01T00:00:00.0005", 0),
    ("1970-01-01T00:00:00.0015", 2),
    ("1970-01-01T00:00:00.000500001", 1),
    ("1969-12-31T23:59:59.9985", -2),
    ("9999-12-31T23:59:59.999", 253_402_300_799_999),
    ("2023-11-21Z", 1_700_524_800_000),
    ("1970-01-01-0130", 5_400_000),
]
NOT_ISO_TIMES = [
    *("", " ", "now", "today", "NaT", "2020", "2020-01", "20200101", "2020-W01-1", "2020-001", "2020-1-1"),
    *("2020-00-01", "2020-13-01", "2020-01-00", "2020-01-32", "2021-02-29", "1900-02-29", "2020-04-31", "0000-01-01"),
    *("2020-01-01T", "2020-01-01T10", "2020-01-01t10:00", "2020-01-01T10:00z", "2020-01-01_10:00", "2020-01-01  10:00"),
    *("2020-01-01T24:00", "2020-01-01T10:60", "2020-01-01T10:00:60", "2020-01-01T10:00:00.", "2020-01-01T10:00:00,5"),
    *(
        *("2020-01-01T10:00:00.1234567890", "2020-01-01T10:00.5", "2020-01-01 Z", "2020-01-01z", "2020-01-01TZ"),
        *("2020-01-01+24:00", "0001-01-01+00:01", "2020-01-01T10:00 Z"),
    ),
    *("2020-01-01T10:00+1", "2020-01-01T10:00+01", "2020-01-01T10:00+24:00", "2020-01-01T10:00+01:60", "+2020-01-01"),
    *(
        *(" 2020-01-01", "2020-01-01 ", "2020-01-01\n", "2020-01-01\n2020-01-01", "２０２０-01-01"),
        "2020-01-01T10:00−01:00",
    ),
    *("-2020-01-01", "12020-01-01", "0001-01-01T00:00+00:01", "9999-12-31T23:59:59.9995", "9999-12-31T23:59-00:01"),
]


@pytest.mark.parametrize(("text", "expected"), ISO_TIMES)
def test_a_time_in_iso_8601_is_read_in_ms(text: str, expected: int) -> None:
    assert parse_iso_times([text]).tolist() == [expected]


@pytest.mark.parametrize("text", NOT_ISO_TIMES)
def test_any_other_text_is_invalid(text: str) -> None:
    assert parse_iso_times([text]).tolist() == [math.inf]


def test_the_forms_of_other_texts_do_not_matter() -> None:
    mixed = [*[text for text, _ in ISO_TIMES], *NOT_ISO_TIMES, *[text for text, _ in ISO_TIMES]]
    expected = [float(ms) for _, ms in ISO_TIMES]
    assert parse_iso_times(mixed).tolist() == [*expected, *[math.inf] * len(NOT_ISO_TIMES), *expected]
    assert parse_iso_times([]).shape == (0,)
    dates = ["2020-02-28", "2020-02-30", "2020-03-01"]
    assert parse_iso_times(dates).tolist() == [1_582_848_000_000, math.inf, 1_583_020_800_000]


@pytest.mark.parametrize(
    ("text", "seconds", "milliseconds"),
    [
        ("0", 0, 0),
        ("-86400", -86_400_000, -86_400),
        ("1.5", 1_500, 2),
        ("1700000000.00050000000000000001", 1_700_000_000_001, 1_700_000_000),
        ("1e-400", 0, 0),
        ("1e-999999999999", 0, 0),
        ("0." + "0" * 5000 + "1", 0, 0),
        ("+7.", 7_000, 7),
        ("253402300799.999", 253_402_300_799_999, 253_402_300_800),
        ("253402300799.9995", math.inf, 253_402_300_800),
        ("253402300799999", math.inf, 253_402_300_799_999),
        ("253402300800000", math.inf, math.inf),
        ("-62135596800", -62_135_596_800_000, -62_135_596_800),
        ("-62135596800.001", math.inf, -62_135_596_800),
        ("-62135596800001", math.inf, math.inf),
        *(
            (text, math.inf, math.inf)
            for text in ("9" * 18, "9" * 400, "1e400", "-1e999999999999", "9223372036854775808")
        ),
        *(
            (text, math.inf, math.inf)
            for text in ("", "-", "--1", "1-1", "nan", "inf", "1_0", "0x1", "１", " 1", "2020-01-01")
        ),
    ],
)
def test_a_time_since_1970_is_read_exactly(text: str, seconds: float, milliseconds: float) -> None:
    for others in ([], ["1"], ["0.5"]):
        assert parse_epoch_times([text, *others], "s")[0] == seconds
        assert parse_epoch_times([text, *others], "ms")[0] == milliseconds


@pytest.mark.parametrize(
    ("text", "microseconds", "days"),
    [
        ("19682", 20, 1_700_524_800_000),
        ("1500", 2, 129_600_000_000),
        ("0.00000001", 0, 1),
        ("2932897", 2_933, math.inf),
        ("-719162", -719, -62_135_596_800_000),
        ("-719163", -719, math.inf),
        ("1700000000124500.0001", 1_700_000_000_125, math.inf),
        ("253402300799999499", 253_402_300_799_999, math.inf),
        ("253402300799999500", math.inf, math.inf),
        ("-62135596800000000", -62_135_596_800_000, math.inf),
        ("-62135596800000501", math.inf, math.inf),
        *(
            (text, math.inf, math.inf)
            for text in ("9" * 18, "9" * 19, "9" * 400, "1e400", "-1e999999999999", "", "nan")
        ),
    ],
)
def test_microseconds_and_days_are_read_exactly(text: str, microseconds: float, days: float) -> None:
    for others in ([], ["1"], ["0.5"]):
        assert parse_epoch_times([text, *others], "us")[0] == microseconds
        assert parse_epoch_times([text, *others], "days")[0] == days
