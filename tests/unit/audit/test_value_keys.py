"""Spellings of confidential values in the audit: which count as one."""

from __future__ import annotations

from decimal import Decimal

import pytest
from shoal.audit.fields import MISSING, is_number, key_reader, number_of
from shoal.policy import FieldType

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("kind", "texts", "distinct"),
    [
        ("any", ("1", "1.0", '"1"', '"1.0"', '" 1 "', '"1e0"', '"10E-1"', '"0.1e1"'), 1),
        ("any", ("0", '"-0"', '"0.000"', '"0e7"', "-0"), 1),
        ("any", ('"007"', "7", '"+7"', '"7."', '".7"'), 5),
        ("any", ("true", "false", '"true"', "1", "0"), 4),
        ("any", ("null", '""', '"  "', '"\\t"'), 1),
        ("any", ('"null"', "null", "0"), 3),
        ("any", ('"a"', '" a"', '"a "', '"a\\u00a0"'), 1),
        ("any", ('"\\u00e9"', '"e\\u0301"'), 1),
        ("string", ('"flu"', '"fl\\u200bu"', '"\\ufeffflu"', '"flu\\u00ad"', '"\\uff46lu"', '"\\u3000flu\\u200b "'), 1),
        ("string", ('"\\u00e9"', '"e\\u200d\\u0301"', '"e\\u0301"'), 1),
        ("any", ('"\\u200b"', "null", '"\\u00a0\\u200b"'), 1),
        ("any", ('"\\uff11"', "1", '"1\\u200b"', '"+1"'), 2),
        ("json", ('["\\ufb02u"]', '["flu"]', '["flu\\u2060"]', '["Flu"]'), 2),
        ("any", ('"a"', '"A"', '"a b"', '"a  b"'), 4),
        ("any", ("9007199254740992", '"9007199254740993"'), 2),
        ("any", ('"1e999999999"', '"1e999999998"', '"1e99999999999999999999"', '"1e99999999999999999998"'), 4),
        ("string", ('"007"', '"7"', '"7.0"'), 3),
        ("string", ('"7"', '" 7"', '"7\\n"'), 1),
        ("integer", ("7", "-7", "70", "700"), 4),
        ("number", ("0.5", "5", "50", "5e-7"), 4),
        ("boolean", ("true", "false", "null"), 3),
        ("json", ('{"a":1}', '{"a":1.0}', '"a"', '"a "', "null"), 3),
        ("json", ('{"a":1,"b":[true]}', '{"b":[true],"a":1}', '{"b":[false],"a":1}'), 2),
    ],
)
def test_spellings_of_one_value_have_one_key(kind: FieldType, texts: tuple[str, ...], distinct: int) -> None:
    read = key_reader(kind, ("",))
    assert len(set(map(read, texts))) == distinct


def test_every_text_that_stands_for_a_missing_value_is_the_same_value() -> None:
    read = key_reader("any", ("", "n/a", "99", "e\u0301"))
    texts = ("null", '""', '"n/a"', '" n/a "', "99", '"99.0"', '"\\u00e9"')
    assert [read(text) for text in texts] == [MISSING] * 7
    assert MISSING not in {read(text) for text in ('"N/A"', '"na"', "-99", "990", "false")}


def test_an_empty_text_is_missing_whatever_the_policy_says() -> None:
    read = key_reader("string", ("?",))
    assert read("null") == read('"?"') == read('""') == read('" "') == MISSING


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1200", "1200"),
        ("-0.5", "-0.5"),
        ('"12e-3"', "0.012"),
        ('"0.0"', "0"),
        ('"9007199254740993"', "9007199254740993"),
    ],
)
def test_a_key_keeps_the_exact_number(text: str, number: str) -> None:
    key = key_reader("any", ())(text)
    assert is_number(key)
    assert number_of(key) == Decimal(number)


def test_texts_truth_values_and_missing_values_are_no_numbers() -> None:
    read = key_reader("any", ("",))
    assert not any(map(is_number, map(read, ('"n1"', "true", "null", '"1,5"', '"NaN"', '"Infinity"', '"1e"'))))
