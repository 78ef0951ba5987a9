from __future__ import annotations

import re

import pytest
from shoal.records.numerals import JSON_NUMBER, canonical, is_integral, plain

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
def test_one_spelling_per_value(value: str, spellings: list[str]) -> None:
    assert {canonical(spelling) for spelling in spellings} == {value}


@pytest.mark.parametrize(
    "text", ["", "-", ".", "e5", "7 ", "1_000", "0x1", "nan", "inf", "Infinity", "７", "٣", "²", "1,5", "1e", "1.2.3"]
)
def test_other_texts_are_no_numbers(text: str) -> None:
    assert canonical(text) is None


def test_huge_exponents_are_not_expanded() -> None:
    assert canonical("1e999999999999") == "1e999999999999"
    assert canonical("1e" + "9" * 19) is None
    assert len(canonical("9" * 5000) or "") == 5002


def test_integral_spellings() -> None:
    assert [is_integral(canonical(text) or "") for text in ("7.0", "1e500", "1.5", "-3", "1e-3")] == [
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
    found = plain(number)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("text", ["01", "+1", "1.", ".5", "1e", "", "nan", "--1", "1 ", "1\n"])
def test_the_grammar_of_json_is_narrow(text: str) -> None:
    assert re.fullmatch(JSON_NUMBER, text) is None


@pytest.mark.parametrize("text", ["0", "-0", "10", "1.50", "-1e5", "1E+5", "0.25e-3"])
def test_the_grammar_of_json_is_whole(text: str) -> None:
    assert re.fullmatch(JSON_NUMBER, text)
