from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from shoal.policy import FieldType
from shoal.records.columns import MISFIT, numbers, typed

pytestmark = pytest.mark.unit

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


def test_decimal_numbers_are_read_at_once() -> None:
    assert numbers([cell for cell, _ in GOOD]).tolist() == [value for _, value in GOOD]
    assert numbers([]).shape == (0,)


@pytest.mark.parametrize("cell", BAD)
def test_anything_else_is_not_a_number_and_spoils_no_other(cell: str) -> None:
    column = numbers(["1", cell, " 2 "])
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
        ("integer", "7.5", MISFIT),
        ("integer", "x", MISFIT),
        ("integer", "1_0", MISFIT),
        ("integer", "٣", MISFIT),
        ("integer", "9" * 5000, MISFIT),
        ("number", "1.5", 1.5),
        ("number", "7", 7),
        ("number", "9007199254740993", 9007199254740993),
        ("number", "-" + "9" * 30, -int("9" * 30)),
        ("number", "1e300", 1e300),
        ("number", "  ", None),
        ("number", "1e400", MISFIT),
        ("number", "nan", MISFIT),
        ("number", "1,5", MISFIT),
        ("boolean", "true", True),
        ("boolean", " FALSE", False),
        ("boolean", "", None),
        ("boolean", "1", MISFIT),
        ("boolean", "yes", MISFIT),
        ("string", " x ", " x "),
        ("string", "", ""),
        ("any", "007", "007"),
        ("any", "", ""),
    ],
)
def test_kept_cells_are_of_their_type(kind: FieldType, cell: str, value: Any) -> None:
    for column in ([cell], [cell, ""], ["", cell, "true" if kind == "boolean" else "1"]):
        values, fits = typed(column, kind)
        place = column.index(cell)
        assert values[place] == value
        assert (values[place] is None) == (value is None)
        assert fits == (value is not MISFIT)


def test_columns_of_plain_numbers_take_the_fast_way() -> None:
    assert typed(["1", "2"], "integer") == ([1, 2], True)
    assert typed(["1", "2.5"], "number") == ([1.0, 2.5], True)
    assert typed([], "number") == ([], True)
    assert not math.isnan(numbers(["1"])[0])
