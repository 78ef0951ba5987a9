"""Strict JSON, one text for each number, and fields of type json, which are published as text."""

from __future__ import annotations

from typing import Any

import pytest
from shoal.formats import Block, JsonDecoder, JsonEncoder, Reason
from shoal.formats.csv import CsvDecoder
from shoal.formats.json_text import canonical_json, canonical_number, prescreen, validate_strictly
from shoal.policy import JSON_NUMBER, Policy
from shoal.scales.scale import integral_to_int
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

CLEAN = b'{"a":1,"b":"x"}'
UNDECODABLE, INVALID, TOO_LARGE = Reason.UNDECODABLE, Reason.INVALID, Reason.TOO_LARGE


@pytest.mark.parametrize("message", [CLEAN, b' {\r\n "a"\r\n:1,"b":"12:30:00"} \n', b'{"a":[[{}]],"b":"[["}'])
def test_usual_messages_need_no_strict_check(message: bytes) -> None:
    assert list(prescreen([CLEAN, message, CLEAN], 2)) == []
    assert validate_strictly(message) is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"a":1,"b":2,"\\u0061":1}', INVALID),
        (b'{"a":1,"a":2,"b"\n:"\\":"}', INVALID),
        (b'{"a":1,"b":2,"":3,"":4}', INVALID),
        (b'{"a":"\xff","b":1}', UNDECODABLE),
        (b'{"a":' + b"[" * 63 + b"]" * 63 + b',"b":"]]]]{{{{\\"[["}', None),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b',"b":"]]]]{{{{\\"[["}', UNDECODABLE),
        (b'{"a":1,"b":"x :y"}', None),
        (b'{"a":{"x":1,"x":1},"b":2}', None),
        (b'{"a":' + b"1" * 5000 + b',"b":2,"c\\":":1}', None),
        (b'{"a":1e999999,"b":-0.0,"c\\":":1}', None),
    ],
)
def test_unusual_messages_are_checked_strictly(message: bytes, reason: Reason | None) -> None:
    assert list(prescreen([CLEAN, message, CLEAN], 2)) == [1]
    assert validate_strictly(message) is reason


@pytest.mark.parametrize(
    ("message", "repeats"),
    [
        (b'{"a":{"b":1},"c":{"b":1}}', False),
        (b'{"a":[[{"b":1},{"b":1,"\\u0062":2}]]}', True),
        (b'{"a\\\\":1,"b":"\\":"}', False),
        (b'{"a\\"":1,"b\\"":2}', False),
        (b'{"a":{"n":' + b"9" * 5000 + b',"n":1}}', True),
        (b'{"a":{"n":' + b"9" * 5000 + b'},"n":1}', False),
        (b'[{"a":1,"a":1}]', True),
        (b'{"a":1', True),
    ],
)
def test_keys_are_compared_at_every_depth(message: bytes, repeats: bool) -> None:  # noqa: FBT001
    assert validate_strictly(message, checks_nested_keys=True) is (INVALID if repeats else None)


@pytest.mark.parametrize(
    ("value", "spellings"),
    [
        ("7", ["7", "007", "7.", "7.0", "+7", "70e-1", "0.7e1", "700E-2", ".7e+1"]),
        ("-7", ["-7", "-7.000", "-0070e-1"]),
        ("0", ["0", "-0", "0.0", "-.0", "0e5", "000"]),
        ("15e-1", ["1.5", "1.50", "01.5", "15e-1"]),
        ("123456789012345678901234567890", ["123456789012345678901234567890", "123456789012345678901234567890.0"]),
        ("1e401", ["1e401", "10e400", "1" + "0" * 401]),
        ("1e999999999999", ["1e999999999999"]),
        (None, ["", "-", ".", "e5", "7 ", "1_000", "0x1", "nan", "７", "²", "1,5", "1e", "1.2.3", "1e" + "9" * 19]),
    ],
)
def test_each_value_has_one_canonical_text(value: str | None, spellings: list[str]) -> None:
    assert {canonical_number(spelling) for spelling in spellings} == {value}


@pytest.mark.parametrize(("number", "expected"), [(1.5, 1.5), (-0.0, 0), (1e23, 10**23), (-1e300, -(10**300))])
def test_integral_floats_become_integers(number: float, expected: float) -> None:
    found = integral_to_int(number)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("text", ["01", "+1", "1.", ".5", "1e", "", "nan", "--1", "1 ", "1\n"])
def test_texts_outside_the_json_grammar_are_not_json_numbers(text: str) -> None:
    assert JSON_NUMBER.fullmatch(text) is None
    assert JSON_NUMBER.fullmatch("-1.50E+5")


def policy(**more: Any) -> Policy:
    return policy_of({"who": SUBJECT, "x": quasi(), "j": {**unchanged_field("json"), **more}, "n": unchanged_field()})


def decode(*values: str, **more: Any) -> Block:
    messages = [b'{"who":"p","x":1,"j":%b,"n":2.50}' % value.encode() for value in values]
    return JsonDecoder(policy(**more)).decode(messages)


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '[{"a":1,"b":2},[{"a":1,"\\u0061":1}]]', '{"a":1,"a":"\\":"}', "[1e999]", "[" + "9" * 5000 + "]"],
)
def test_a_value_that_cannot_be_encoded_again_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not JSON|a key is repeated)$"):
        canonical_json(text.encode())
    assert decode("[]", text, "[]").rejected == [(1, INVALID)]
    assert decode("[]", text, "[]").index.tolist() == [0, 2]


def test_a_longer_value_than_the_limit_is_too_large() -> None:
    assert decode('["' + "x" * 9996 + '"]', '["' + "x" * 9997 + '"]').rejected == [(1, TOO_LARGE)]
    block = decode('["éé"]', '["ééé"]', "[ 1 , 2 ]", "null", max_bytes=8)
    assert block.rejected == [(1, TOO_LARGE)]
    assert block.index.tolist() == [0, 2, 3]


def test_csv_input_has_the_text_in_a_cell() -> None:
    decoder = CsvDecoder(policy(), ("who", "x", "j", "n"), encoder=JsonEncoder(policy()))
    cells = ['[ 1.50, {"a":null} ]', "", "  ", "null", "{", "text", '{"a":1,"a":1}']
    block = decoder.decode([["p", "1", cell, "n"] for cell in cells])
    assert block.unchanged_fields == [
        b'"j":[1.5,{"a":null}],"n":"n"',
        b'"j":null,"n":"n"',
        b'"j":null,"n":"n"',
        b'"j":null,"n":"n"',
    ]
    assert block.rejected == [(4, INVALID), (5, INVALID), (6, INVALID)]
