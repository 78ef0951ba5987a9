"""JSON messages: the published bytes do not depend on how values are written, and no content raises an exception."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shoal.formats import CsvEncoder, JsonDecoder, JsonEncoder, Reason
from shoal.formats.json_text import canonical_number
from support.by_night import by_day
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.property

POLICY = policy_of(
    {
        "who": SUBJECT,
        "note": unchanged_field("string"),
        "age": quasi(0, 110, integer=True),
        "größe": quasi(-1, 1),
        "ticket": {"role": "identifier"},
        "amount": unchanged_field("number"),
        "count": unchanged_field("integer"),
        "ok": unchanged_field("boolean"),
        "any %": unchanged_field("any"),
    }
)
NAMES = [attribute.name for attribute in POLICY.attributes]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
FRACTIONS = st.floats(-1e15, 1e15, allow_nan=False).filter(lambda x: not x.is_integer())
NUMBERS = WHOLE | FRACTIONS
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
RECORDS = st.fixed_dictionaries(
    {
        "who": st.booleans() | WHOLE | FRACTIONS | TEXT.filter(str.strip),
        "note": st.none() | TEXT,
        "age": st.integers(-5, 120),
        "größe": st.floats(-2, 2),
        "ticket": NESTED,
        "amount": st.none() | NUMBERS,
        "count": st.none() | WHOLE,
        "ok": st.none() | st.booleans(),
        "any %": SCALARS,
    }
)


def published(policy_encoder: JsonEncoder | CsvEncoder, messages: Sequence[bytes | None]) -> tuple[object, ...]:
    """Return everything that decoder and encoder produce for some messages."""
    block = JsonDecoder(POLICY, encoder=policy_encoder).decode(messages)
    rows = policy_encoder.encode_clusters([["1", "0.5"]], block.unchanged_fields, [0, len(block)])
    return rows, block.values.tolist(), block.subjects.tolist(), block.index.tolist(), block.rejected, block.clipped


# ---------------------------------------------------------------- spelling


def write_number(draw: st.DrawFn, value: float) -> str:
    """Write a number in one of the forms that JSON allows."""
    text = canonical_number(repr(value)) or ""
    assert float(text) == value
    if draw(st.booleans()):
        return json.dumps(value)
    if value == 0:
        return draw(st.sampled_from(["0", "-0", "0.0", "-0.00", "0e9", "0E-9", "0.0e+1"]))
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    mantissa, _, exponent_text = digits.partition("e")
    exponent = int(exponent_text or 0)
    zeros = draw(st.integers(0, 5))
    shift = draw(st.integers(-3, 3))
    letter, plus = draw(st.sampled_from(["e", "E"])), draw(st.sampled_from(["", "+"]))
    spelled = mantissa + "0" * zeros
    exponent -= zeros
    if shift > 0:  # move the point to the left
        spelled = spelled.rjust(shift + 1, "0")
        spelled = f"{spelled[:-shift]}.{spelled[-shift:]}"
        exponent += shift
    return f"{sign}{spelled}{letter}{plus if exponent >= 0 else ''}{exponent}" if exponent else sign + spelled


def write_text(draw: st.DrawFn, value: str) -> str:
    """Write a string with any of its characters escaped."""
    escapes = draw(st.lists(st.booleans(), min_size=len(value), max_size=len(value)))
    plain = [json.dumps(sign, ensure_ascii=escape)[1:-1] for sign, escape in zip(value, escapes, strict=True)]
    for place, (sign, escape) in enumerate(zip(value, escapes, strict=True)):
        if escape and sign < "\x80":
            plain[place] = f"\\u{ord(sign):04{draw(st.sampled_from('xX'))}}"
        elif escape and sign == "/":
            plain[place] = "\\/"
    return '"' + "".join(plain) + '"'


def write(draw: st.DrawFn, value: Any) -> str:
    blank = st.sampled_from(["", "", " ", "\n", "\t \r\n"])
    if isinstance(value, str):
        text = write_text(draw, value)
    elif isinstance(value, dict):
        members = [f"{write(draw, key)}:{write(draw, inner)}" for key, inner in value.items()]
        text = "{" + ",".join(draw(st.permutations(members))) + "}"
    elif isinstance(value, list):
        text = "[" + ",".join(write(draw, inner) for inner in value) + "]"
    elif isinstance(value, bool) or value is None:
        text = json.dumps(value)
    else:
        text = write_number(draw, value)
    return draw(blank) + text + draw(blank)


@st.composite
def written_twice(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw one record, written in the usual way and in another."""
    record = draw(RECORDS)
    return json.dumps(record).encode(), write(draw, record).encode()


@given(st.lists(written_twice(), max_size=5))
@example([(b'{"who":7}', b'{"who":7.0}')])
def test_published_bytes_do_not_depend_on_how_the_input_is_written(pairs: list[tuple[bytes, bytes]]) -> None:
    for encoder in (JsonEncoder(POLICY), CsvEncoder(POLICY)):
        usual = published(encoder, [one for one, _ in pairs])
        other = published(encoder, [other for _, other in pairs])
        assert usual == other


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_published_fields_keep_their_value(records: list[dict[str, Any]]) -> None:
    encoder = JsonEncoder(POLICY)
    block = JsonDecoder(POLICY).decode([json.dumps(record).encode() for record in records])
    assert block.index.tolist() == list(range(len(records)))
    rows = [
        json.loads(encoder.encode_clusters([["1", "0.5"]], [fields], [0, 1])[0]) for fields in block.unchanged_fields
    ]
    order = [attribute.name for attribute in POLICY.published]
    for record, row in zip(records, rows, strict=True):
        assert list(row) == order
        assert row == {**{name: record[name] for name in order}, "age": 1, "größe": 0.5}
        same_type = [type(row[name]) is type(record[name]) for name in ("note", "ok", "count")]
        assert all(same_type)
    expected = [[min(max(r["age"], 0), 110), min(max(r["größe"], -1), 1)] for r in records]
    assert block.values.tolist() == expected


# ---------------------------------------------------------------- a simple reference implementation


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs) if len(dict(pairs)) == len(pairs) else {"\0twice": True, **dict(pairs)}


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def fits(record: Any) -> bool:
    """Return whether a record fits the policy above; plain Python, for values without extremes."""
    if not isinstance(record, dict) or set(record) != set(NAMES):
        return False
    who, scalar = record["who"], (str, int, float, bool, type(None))
    return (
        (is_number(who) or isinstance(who, bool) or (isinstance(who, str) and who.strip() != ""))
        and isinstance(record["note"], str | None)
        and is_number(record["age"])
        and float(record["age"]).is_integer()
        and is_number(record["größe"])
        and (record["amount"] is None or is_number(record["amount"]))
        and (record["count"] is None or (is_number(record["count"]) and float(record["count"]).is_integer()))
        and isinstance(record["ok"], bool | None)
        and isinstance(record["any %"], scalar)
    )


ODD = st.sampled_from(['"', ",", ":", "{", "}", "[", "]", "1", "null", '"who":1,', '"age" :', "\\", "\x00", "é", " "])


@st.composite
def nearly_right(draw: st.DrawFn) -> bytes:
    """Draw a message with one fault, none, or an arbitrary insertion."""
    record = draw(RECORDS)
    kind = draw(st.sampled_from(["value", "missing", "more", "twice", "cut", "odd", "right"]))
    name = draw(st.sampled_from(NAMES))
    if kind == "value":
        record[name] = draw(NESTED)
    elif kind == "missing":
        del record[name]
    elif kind == "more":
        record[draw(TEXT)] = draw(SCALARS)
    text = json.dumps(record, ensure_ascii=draw(st.booleans()))
    if kind == "twice":
        text = (
            f"{text[:-1]}{draw(st.sampled_from([', ', ',']))}{json.dumps(name)}{draw(st.sampled_from([':', ' :']))}1}}"
        )
    elif kind == "cut":
        text = text[: draw(st.integers(0, len(text) - 1))]
    elif kind == "odd":
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(ODD) + text[place:]
    return text.encode()


def refuse(constant: str) -> None:
    """Python's parser reads NaN and Infinity, which are not JSON."""
    raise ValueError(constant)


@given(st.lists(nearly_right() | st.binary(max_size=20), max_size=12))
@settings(max_examples=by_day(50, 200))
def test_messages_are_accepted_as_by_a_simple_reader(messages: list[bytes]) -> None:
    block = JsonDecoder(POLICY).decode(messages)
    reasons = dict(block.rejected)
    for index, message in enumerate(messages):
        try:
            record = json.loads(message.decode(), object_pairs_hook=object_of, parse_constant=refuse)
            json.dumps(record, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            assert reasons.get(index) is Reason.UNDECODABLE
        else:
            nested_twice = isinstance(record, dict) and "\0twice" not in record and "\0twice" in repr(record)
            if not nested_twice:
                assert reasons.get(index) == (None if fits(record) else Reason.INVALID)


# ---------------------------------------------------------------- hostile input


HOSTILE = st.none() | st.binary(max_size=60) | nearly_right()


@given(st.lists(HOSTILE, max_size=30), st.integers(1, 400))
@settings(max_examples=by_day(50, 200))
def test_every_message_is_either_accepted_or_rejected(messages: list[bytes | None], max_bytes: int) -> None:
    decoder = JsonDecoder(POLICY, max_bytes=max_bytes)
    block = decoder.decode(messages)
    assert sorted([*block.index.tolist(), *(index for index, _ in block.rejected)]) == list(range(len(messages)))
    assert block.rejected == sorted(block.rejected)
    assert block.values.shape == (len(block), 2)
    assert block.values.flags.c_contiguous
    assert np.isfinite(block.values).all()
    assert block.subjects.shape == block.index.shape == (len(block.unchanged_fields),)
    alone = [decoder.decode([message]) for message in messages]
    assert block.unchanged_fields == [fields for one in alone for fields in one.unchanged_fields]
    assert block.values.tolist() == [value for one in alone for value in one.values.tolist()]
    assert block.subjects.tolist() == [subject for one in alone for subject in one.subjects.tolist()]
    assert [reason for _, reason in block.rejected] == [reason for one in alone for _, reason in one.rejected]


# ---------------------------------------------------------------- output


CELLS = st.none() | st.booleans() | TEXT | NUMBERS | st.integers()


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=8), st.data())
def test_the_bytes_of_a_cluster_do_not_depend_on_the_order_of_its_members(
    members: list[tuple[Any, Any, Any]], data: st.DataObject
) -> None:
    policy = policy_of(
        {"a": unchanged_field(), "x": quasi(), "b": unchanged_field(), "c": unchanged_field(), "y": quasi()}
    )
    for encoder in (JsonEncoder(policy), CsvEncoder(policy)):
        written = []
        for order in (members, data.draw(st.permutations(members))):
            columns = [list(column) for column in zip(*order, strict=True)] or [[], [], []]
            written.append(
                encoder.encode_clusters([["1", "2.50"]], encoder.encode_unchanged(columns, len(order)), [0, len(order)])
            )
        assert written[0] == written[1] == sorted(written[0])
        if isinstance(encoder, JsonEncoder):
            expected = [{"a": a, "x": 1, "b": b, "c": c, "y": 2.5} for a, b, c in members]
            assert sorted(map(repr, map(json.loads, written[0]))) == sorted(
                map(repr, map(record_as_published, expected))
            )


def record_as_published(record: dict[str, Any]) -> dict[str, Any]:
    return {name: as_published(value) if name != "y" else value for name, value in record.items()}


def as_published(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
