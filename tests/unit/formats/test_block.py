"""Selecting records of a block, and columns of numbers, unchanged cells and times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from shoal.formats import Block, Reason
from shoal.formats.block import MISMATCH, parse_values
from shoal.policy import FieldType
from shoal.scales.numeric import parse_numbers
from shoal.scales.time import parse_epoch_times, parse_iso_times

pytestmark = pytest.mark.unit


def block() -> Block:
    """Return a block of messages 0 to 4, of which 3 is rejected."""
    return Block(
        values=np.array([[0.0], [1.0], [2.0], [4.0]]),
        subjects=np.array([10, 11, 12, 14], dtype=np.int64),
        unchanged_fields=[b"a", b"b", b"c", b"e"],
        index=np.array([0, 1, 2, 4], dtype=np.int64),
        rejected=[(3, Reason.INVALID)],
        clipped=7,
        unchanged_columns=[["a", "b", "c", "e"]],
    )


def test_filter_keeps_the_records_of_the_mask() -> None:
    chosen = block().filter(np.array([True, False, False, True]))
    assert chosen.values.tolist() == [[0.0], [4.0]]
    assert chosen.subjects.tolist() == [10, 14]
    assert chosen.unchanged_fields == [b"a", b"e"]
    assert chosen.index.tolist() == [0, 4]
    assert chosen.unchanged_columns == [["a", "e"]]
    assert (chosen.rejected, chosen.clipped) == ([(3, Reason.INVALID)], 7)
    assert block().slice(slice(1, 3)).unchanged_columns == [["b", "c"]]
    whole = block()
    assert whole.slice(slice(0, 4)) is whole


GOOD = [
    ("1", 1.0),
    (" 2\t", 2.0),
    ("-3.5", -3.5),
    ("+4", 4.0),
    (".5", 0.5),
    ("5.", 5.0),
    ("1e3", 1000.0),
    ("2E-2", 0.02),
    ("007", 7.0),
]
BAD = ["", " ", "x", "nan", "NaN", "inf", "-Infinity", "1_000", "0x1", "１２", "٣", "1e400", "1,5", "1 2", "--1", "1e"]
BAD += ["1\n", "1\u00a0", "1\x0b", "\ufeff1", "e5", ".", "true", "1" * 400, "#", "1d", "½"]


def test_decimal_numbers_are_parsed() -> None:
    assert parse_numbers([cell for cell, _ in GOOD]).tolist() == [value for _, value in GOOD]
    assert parse_numbers([]).shape == (0,)


@pytest.mark.parametrize("cell", BAD)
def test_other_cells_are_nan_and_do_not_affect_the_rest(cell: str) -> None:
    column = parse_numbers(["1", cell, " 2 "])
    assert column[[0, 2]].tolist() == [1.0, 2.0]
    assert np.isnan(column[1])


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        ("integer", "7", 7),
        ("integer", " 007 ", 7),
        ("integer", "1e3", 1000.0),
        ("integer", "9" * 30, int("9" * 30)),
        ("integer", "", None),
        ("integer", "7.5", MISMATCH),
        ("integer", "x", MISMATCH),
        ("integer", "1_0", MISMATCH),
        ("integer", "٣", MISMATCH),
        ("integer", "9" * 5000, MISMATCH),
        ("number", "1.5", 1.5),
        ("number", "9007199254740993", 9007199254740993),
        ("number", "-" + "9" * 30, -int("9" * 30)),
        ("number", "1e300", 1e300),
        ("number", "  ", None),
        ("number", "1e400", MISMATCH),
        ("number", "1,5", MISMATCH),
        ("boolean", "true", True),
        ("boolean", " FALSE", False),
        ("boolean", "", None),
        ("boolean", "1", MISMATCH),
        ("string", " x ", " x "),
        ("string", "", ""),
        ("any", "007", "007"),
    ],
)
def test_passthrough_cells_are_parsed_to_their_type(kind: FieldType, cell: str, value: Any) -> None:
    for column in ([cell], [cell, ""], ["", cell, "true" if kind == "boolean" else "1"]):
        values, all_match = parse_values(column, kind)
        index = column.index(cell)
        assert values[index] == value
        assert (values[index] is None) == (value is None)
        assert all_match == (value is not MISMATCH)


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
        ("1700000000.00050000000000000001", 1_700_000_000_001, 1_700_000_000),
        ("1e-400", 0, 0),
        ("0." + "0" * 5000 + "1", 0, 0),
        ("+7.", 7_000, 7),
        ("253402300799.999", 253_402_300_799_999, 253_402_300_800),
        ("253402300799.9995", math.inf, 253_402_300_800),
        ("253402300800000", math.inf, math.inf),
        ("-62135596800.001", math.inf, -62_135_596_800),
        ("-62135596800001", math.inf, math.inf),
        *((text, math.inf, math.inf) for text in ("9" * 18, "9" * 400, "-1e999999999999", "9223372036854775808")),
        *((text, math.inf, math.inf) for text in ("", "-", "--1", "nan", "1_0", "0x1", "１", " 1", "2020-01-01")),
    ],
)
def test_a_time_since_1970_is_read_exactly(text: str, seconds: float, milliseconds: float) -> None:
    for others in ([], ["1"], ["0.5"]):
        assert parse_epoch_times([text, *others], "s")[0] == seconds
        assert parse_epoch_times([text, *others], "ms")[0] == milliseconds
