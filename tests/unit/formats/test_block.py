"""Columns of values, and selecting records of a block."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from shoal.formats import Block, Reason
from shoal.formats.block import MISMATCH, parse_values
from shoal.policy import FieldType
from shoal.scales.numeric import parse_numbers

pytestmark = pytest.mark.unit

SLICE = 512


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


def test_slice_keeps_consecutive_records() -> None:
    chosen = block().slice(slice(1, 3))
    assert chosen.values.tolist() == [[1.0], [2.0]]
    assert chosen.subjects.tolist() == [11, 12]
    assert chosen.unchanged_fields == [b"b", b"c"]
    assert chosen.index.tolist() == [1, 2]
    assert chosen.unchanged_columns == [["b", "c"]]
    assert (chosen.rejected, chosen.clipped) == ([(3, Reason.INVALID)], 7)
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
        ("integer", "7.0", 7.0),
        ("integer", "1e3", 1000.0),
        ("integer", "9007199254740993", 9007199254740993),
        ("integer", "9" * 30, int("9" * 30)),
        ("integer", "", None),
        ("integer", "7.5", MISMATCH),
        ("integer", "x", MISMATCH),
        ("integer", "1_0", MISMATCH),
        ("integer", "٣", MISMATCH),
        ("integer", "9" * 5000, MISMATCH),
        ("number", "1.5", 1.5),
        ("number", "7", 7),
        ("number", "9007199254740993", 9007199254740993),
        ("number", "-" + "9" * 30, -int("9" * 30)),
        ("number", "1e300", 1e300),
        ("number", "  ", None),
        ("number", "1e400", MISMATCH),
        ("number", "nan", MISMATCH),
        ("number", "1,5", MISMATCH),
        ("boolean", "true", True),
        ("boolean", " FALSE", False),
        ("boolean", "", None),
        ("boolean", "1", MISMATCH),
        ("boolean", "yes", MISMATCH),
        ("string", " x ", " x "),
        ("string", "", ""),
        ("any", "007", "007"),
        ("any", "", ""),
    ],
)
def test_passthrough_cells_are_parsed_to_their_type(kind: FieldType, cell: str, value: Any) -> None:
    for column in ([cell], [cell, ""], ["", cell, "true" if kind == "boolean" else "1"]):
        values, all_match = parse_values(column, kind)
        index = column.index(cell)
        assert values[index] == value
        assert (values[index] is None) == (value is None)
        assert all_match == (value is not MISMATCH)


def test_columns_of_plain_numbers_are_parsed_at_once() -> None:
    assert parse_values(["1", "2"], "integer") == ([1, 2], True)
    assert parse_values(["1", "2.5"], "number") == ([1.0, 2.5], True)
    assert parse_values([], "number") == ([], True)
    assert not math.isnan(parse_numbers(["1"])[0])
