"""Fields of type json: arrays and objects that are published as text."""

from __future__ import annotations

from typing import Any

import pytest
from shoal.formats import Block, CsvEncoder, JsonDecoder, JsonEncoder, Reason
from shoal.formats.csv import CsvDecoder
from shoal.formats.json_text import canonical_json
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

INVALID, TOO_LARGE = Reason.INVALID, Reason.TOO_LARGE


def policy(**more: Any) -> Policy:
    return policy_of({"who": SUBJECT, "x": quasi(), "j": {**unchanged_field("json"), **more}, "n": unchanged_field()})


def decode(*values: str, **more: Any) -> Block:
    messages = [b'{"who":"p","x":1,"j":%b,"n":2.50}' % value.encode() for value in values]
    return JsonDecoder(policy(**more)).decode(messages)


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("[]", "[]"),
        ("{}", "{}"),
        (' [ 1 , "a" ,\n{ "b" : null } ] ', '[1,"a",{"b":null}]'),
        ('{"b":1,"a":{"c":[true,false]}}', '{"b":1,"a":{"c":[true,false]}}'),
        ("[1.50,1e2,-0.0,1.0,1e-7]", "[1.5,100.0,-0.0,1.0,1e-7]"),
        ("[" + "9" * 40 + "]", "[" + "9" * 40 + "]"),
        ('"\\u00e9\\u0041\\/"', '"éA/"'),
        ('["\\u0000\\n\\\\"]', '["\\u0000\\n\\\\"]'),
        ("5", "5"),
        ("true", "true"),
    ],
)
def test_a_value_is_published_in_one_form(text: str, published: str) -> None:
    assert canonical_json(text.encode()) == published
    assert decode(text).unchanged_fields == [f'"j":{published},"n":2.5'.encode()]
    assert canonical_json(published.encode()) == published


def test_null_is_published_as_null() -> None:
    assert canonical_json(b" null ") is None
    assert decode("null").unchanged_fields == [b'"j":null,"n":2.5']


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '[{"a":1,"b":2},[{"a":1,"\\u0061":1}]]', '{"a":1,"a":"\\":"}', "[1e999]", "[" + "9" * 5000 + "]"],
)
def test_a_value_that_cannot_be_encoded_again_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not JSON|a key is repeated)$"):
        canonical_json(text.encode())
    assert decode("[]", text, "[]").rejected == [(1, INVALID)]
    assert decode("[]", text, "[]").index.tolist() == [0, 2]


def test_a_repeated_key_is_not_confused_with_text_or_other_objects() -> None:
    text = '[{"a":"\\":"},{"a":"\\":"}]'
    assert canonical_json(text.encode()) == text


def test_a_longer_value_than_the_limit_is_too_large() -> None:
    assert decode('["' + "x" * 9996 + '"]', '["' + "x" * 9997 + '"]').rejected == [(1, TOO_LARGE)]
    block = decode('["éé"]', '["ééé"]', "[ 1 , 2 ]", "null", max_bytes=8)
    assert block.rejected == [(1, TOO_LARGE)]
    assert block.index.tolist() == [0, 2, 3]


def test_a_field_of_type_json_is_required() -> None:
    assert JsonDecoder(policy()).decode([b'{"who":"p","x":1,"n":2}']).rejected == [(0, INVALID)]


def test_csv_output_has_the_text_in_a_cell() -> None:
    encoder = CsvEncoder(policy())
    decoder = JsonDecoder(policy(), encoder=encoder)
    block = decoder.decode(
        [b'{"who":"p","x":1,"j":%b,"n":2}' % text for text in (b'["a",1.5]', b"null", b"[]", b'"t"')]
    )
    rows = encoder.encode_clusters([["1"]] * 4, block.unchanged_fields, range(5))
    assert rows == [b'1,"[""a"",1.5]",2', b"1,,2", b"1,[],2", b'1,"""t""",2']


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


def test_decimal_commas_are_none_of_json() -> None:
    with_commas = policy_of(
        {"who": SUBJECT, "x": quasi(), "j": unchanged_field("json")}, csv={"decimal": ",", "delimiter": ";"}
    )
    encoder = CsvEncoder(with_commas)
    block = CsvDecoder(with_commas, ("who", "x", "j"), encoder=encoder).decode([["p", "1,5", "[1.5,2]"]])
    assert encoder.encode_clusters([["1.5"]], block.unchanged_fields, [0, 1]) == [b"1,5;[1.5,2]"]
