from __future__ import annotations

import re

import pytest
from shoal.formats.json_text import JSON_NUMBER, canonical_number, is_integer_text
from shoal.scales.scale import integral_to_int

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "spellings"),
    [
        ("7", ["7", "007", "7.", "7.0", "+7", "70e-1", "0.7e1", "700E-2", ".7e+1"]),
        ("-7", ["-7", "-7.000", "-0070e-1"]),
        ("0", ["0", "-0", "0.0", "-.0", "0e5", "000"]),
        ("100", ["100", "1e2", "1E+2", "100.00"]),
        ("15e-1", ["1.5", "1.50", "01.5", "15e-1"]),
        ("123456789012345678901234567890", ["123456789012345678901234567890", "123456789012345678901234567890.0"]),
        ("1e401", ["1e401", "10e400", "1" + "0" * 401]),
    ],
)
def test_each_value_has_one_canonical_text(value: str, spellings: list[str]) -> None:
    assert {canonical_number(spelling) for spelling in spellings} == {value}


@pytest.mark.parametrize(
    "text", ["", "-", ".", "e5", "7 ", "1_000", "0x1", "nan", "inf", "Infinity", "７", "٣", "²", "1,5", "1e", "1.2.3"]
)
def test_other_texts_are_not_numbers(text: str) -> None:
    assert canonical_number(text) is None


def test_huge_exponents_are_not_expanded() -> None:
    assert canonical_number("1e999999999999") == "1e999999999999"
    assert canonical_number("1e" + "9" * 19) is None
    assert len(canonical_number("9" * 5000) or "") == 5002


def test_integer_texts() -> None:
    assert [is_integer_text(canonical_number(text) or "") for text in ("7.0", "1e500", "1.5", "-3", "1e-3")] == [
        True,
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1.5, 1.5), (100.0, 100), (-0.0, 0), (1e22, 10**22), (1e23, 10**23), (-1e300, -(10**300)), (2.0**53, 2**53)],
)
def test_integral_floats_become_integers(number: float, expected: float) -> None:
    found = integral_to_int(number)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("text", ["01", "+1", "1.", ".5", "1e", "", "nan", "--1", "1 ", "1\n"])
def test_texts_outside_the_json_grammar_are_not_json_numbers(text: str) -> None:
    assert re.fullmatch(JSON_NUMBER, text) is None


@pytest.mark.parametrize("text", ["0", "-0", "10", "1.50", "-1e5", "1E+5", "0.25e-3"])
def test_texts_of_the_json_grammar_are_json_numbers(text: str) -> None:
    assert re.fullmatch(JSON_NUMBER, text)
