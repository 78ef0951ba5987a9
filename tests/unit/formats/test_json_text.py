"""Strict JSON, and one text for each number."""

from __future__ import annotations

import json

import pytest
from shoal.formats import Reason
from shoal.formats.json_text import canonical_number, is_integer_text, prescreen, validate_strictly
from shoal.policy import JSON_NUMBER
from shoal.scales.scale import integral_to_int

pytestmark = pytest.mark.unit

CLEAN = b'{"a":1,"b":"x"}'


def unclear(*messages: bytes, keys: int = 2) -> list[int]:
    return list(prescreen(messages, keys))


@pytest.mark.parametrize(
    "message",
    [
        CLEAN,
        b'{"a": 1, "b": "x"}',
        b'{"a" :1,"b"\t:\n"x"}',
        b' {\r\n "a"\r\n:1,"b":"12:30:00"} \n',
        '{"a":1,"b":"é: ü"}'.encode(),
        b'{"a":[[{}]],"b":"[["}',
    ],
)
def test_usual_messages_are_cleared_by_the_prescreen(message: bytes) -> None:
    assert unclear() == []
    assert unclear(message) == []
    assert unclear(CLEAN, message, CLEAN) == []
    assert validate_strictly(message) is None


@pytest.mark.parametrize(
    "message",
    [
        *(b'{"a":1,"b":2,"a":1}', b'{"a":1,"b":2,"\\u0061":1}', b'{"a" :1,"a" : 2,"b":3}', b'{"a":1,"a":2,"b" :3}'),
        *(b'{"a":1,"a":2,"b"\n:"\\":"}', b'{"a":{"x":1},"b":2,"a":{"x":1}}', b'{"a":1,"b":2,"c":3,"c":4}'),
        *(b'{"a":1,"b":2,"":3,"":4}', b'{"a":1,"b":"\\":","b":2}'),
    ],
)
def test_a_repeated_key_is_found(message: bytes) -> None:
    assert unclear(CLEAN, message, CLEAN) == [1]
    assert validate_strictly(message) is Reason.INVALID


@pytest.mark.parametrize(
    "message",
    [
        b'{"a":1,"b":"\\":\\":"}',
        b'{"a":1,"b":"x :y"}',
        b'{"a":{"x":1,"y":{"x":2}},"b":2}',
        b'{"a":1,"b":2,"c":3}',
        b'{"a":{"x":1,"x":1},"b":2}',
        b'{"a":1,"b":2,"x\\":y":3}',
        b'{"a":' + b"1" * 5000 + b',"b":2,"c\\":":1}',
        b'{"a":1e999999,"b":-0.0,"c\\":":1}',
    ],
)
def test_unusual_valid_messages_pass_the_strict_check(message: bytes) -> None:
    assert unclear(CLEAN, message, CLEAN) == [1]
    assert validate_strictly(message) is None


@pytest.mark.parametrize(
    ("depth", "reason"), [(63, None), (64, None), (65, Reason.UNDECODABLE), (500, Reason.UNDECODABLE)]
)
def test_nesting_depth_is_limited_exactly(depth: int, reason: Reason | None) -> None:
    inner = b"[" * (depth - 1) + b"]" * (depth - 1)
    message = b'{"a":' + inner + b',"b":"]]]]{{{{\\"[["}'
    assert unclear(CLEAN, message, CLEAN) == [1]
    assert validate_strictly(message) is reason


def test_brackets_in_text_and_siblings_do_not_count_as_depth() -> None:
    assert validate_strictly(b'{"a":"' + b"[" * 1000 + b'","b":1}') is None
    assert validate_strictly(json.dumps({"a": [[]] * 500, "b": 1}).encode()) is None


def test_invalid_utf8_is_found_in_its_message() -> None:
    broken = b'{"a":"\xff","b":1}'
    assert unclear(CLEAN, broken) == [1]
    assert validate_strictly(broken) is Reason.UNDECODABLE


@pytest.mark.parametrize("message", [b"", b"[1,2]", b"7", b'{"a":1', b"\x00"])
def test_a_message_that_is_not_an_object_is_rejected_without_an_exception(message: bytes) -> None:
    assert validate_strictly(message) is Reason.INVALID


@pytest.mark.parametrize(
    ("message", "repeats"),
    [
        (b'{"a":{"b":1},"c":{"b":1}}', False),
        (b'{"a":{"b":1,"b":1}}', True),
        (b'{"a":[[{"b":1},{"b":1,"\\u0062":2}]]}', True),
        (b'{"a":"\\":","a":1}', True),
        (b'{"a\\\\":1,"a\\\\":1,"b":"\\":"}', True),
        (b'{"a\\\\":1,"b":"\\":"}', False),
        (b'{"a\\"":1,"a\\"":2}', True),
        (b'{"a\\"":1,"b\\"":2}', False),
        (b'{"a":{"n":' + b"9" * 5000 + b',"n":1}}', True),
        (b'{"a":{"n":' + b"9" * 5000 + b'},"n":1}', False),
    ],
)
def test_keys_are_compared_at_every_depth(message: bytes, repeats: bool) -> None:  # noqa: FBT001
    assert validate_strictly(message, checks_nested_keys=True) is (Reason.INVALID if repeats else None)
    flat = json.loads(message, object_pairs_hook=list, parse_int=len)
    assert validate_strictly(message) is (Reason.INVALID if len({key for key, _ in flat}) < len(flat) else None)


@pytest.mark.parametrize("message", [b"[]", b'[{"a":1,"a":1}]', b"1", b'"x"', b"null"])
def test_what_is_no_object_is_invalid_at_every_depth(message: bytes) -> None:
    assert validate_strictly(message, checks_nested_keys=True) is Reason.INVALID


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
    assert JSON_NUMBER.fullmatch(text) is None


@pytest.mark.parametrize("text", ["0", "-0", "10", "1.50", "-1e5", "1E+5", "0.25e-3"])
def test_texts_of_the_json_grammar_are_json_numbers(text: str) -> None:
    assert JSON_NUMBER.fullmatch(text)
