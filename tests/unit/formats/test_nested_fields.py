"""Fields inside the objects of a message."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from shoal.formats import Block, JsonDecoder, Reason
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi, unchanged_field, with_paths

pytestmark = pytest.mark.unit

INVALID = Reason.INVALID


def nested_policy(**more: Any) -> Policy:
    return with_paths(
        policy_of(
            {
                "who": SUBJECT,
                "age": quasi(0, 110),
                "weight": quasi(0, 300),
                "ill": unchanged_field("string"),
                "at": unchanged_field("integer"),
            },
            **more,
        ),
        who="patient.id",
        age="patient.born.age",
        weight="vitals.weight",
        ill="patient.ill",
    )


def record(**patient: Any) -> dict[str, Any]:
    return {"at": 7, "vitals": {"weight": 81.5}, "patient": {"id": "p1", "born": {"age": 42}, "ill": "flu", **patient}}


def decode(policy: Policy, *messages: dict[str, Any] | bytes) -> Block:
    texts = [text if isinstance(text, bytes) else json.dumps(text).encode() for text in messages]
    return JsonDecoder(policy).decode(texts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"vitals": {"weight": 81.5}, "at": 7},
        {**record(), "patient": None},
        {**record(), "patient": [record()["patient"]]},
        {**record(), "patient": {}},
        record(born=None),
        record(born={"age": None}),
        record(born={"age": {"years": 42}}),
        {**record(), "vitals.weight": 81.5, "vitals": {}},
    ],
)
def test_a_record_without_a_declared_field_is_invalid(wrong: dict[str, Any]) -> None:
    for undeclared in ("quarantine", "drop"):
        assert decode(nested_policy(undeclared=undeclared), record(), wrong).rejected == [(1, INVALID)]


@pytest.mark.parametrize(
    "extra",
    [
        {**record(), "more": 1},
        {**record(), "more": {"deep": {"deeper": 1}}},
        {**record(), "patient.ill": 1},
        {**record(), "vitals": {"weight": 81.5, "height": 1.8}},
        record(name="x"),
        record(born={"age": 42, "in": {"town": "y"}}),
        record(__faust=1),
    ],
)
def test_an_undeclared_field_at_any_depth_is_rejected_or_dropped(extra: dict[str, Any]) -> None:
    assert decode(nested_policy(), extra).rejected == [(0, INVALID)]
    lenient = decode(nested_policy(undeclared="drop"), extra, record())
    assert lenient.rejected == []
    assert lenient.unchanged_fields == [b'"ill":"flu","at":7'] * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"at": 7', b'"at": 7, "at": 7'),
        (b'"ill": "flu"', b'"ill": "flu", "\\u0069ll": "flu"'),
        (b'"age": 42', b'"age": 42, "age": 43'),
        (b'"vitals": {"weight": 81.5}', b'"vitals": {"weight": 81.5}, "vitals": {"weight": 81.5}'),
        (b'"at": 7', b'"at": 7, "more": {"x": [{"y": 1, "y": 2}]}'),
        (b'"at": 7', b'"at": 7, "more": {"x": 1, "x": 1}, "n": ' + b"9" * 5000),
    ],
)
def test_a_repeated_key_is_invalid_at_any_depth(old: bytes, new: bytes) -> None:
    good = json.dumps(record()).encode()
    assert old in good
    for undeclared in ("quarantine", "drop"):
        assert decode(nested_policy(undeclared=undeclared), good, good.replace(old, new)).rejected == [(1, INVALID)]


def test_a_key_may_occur_once_in_each_of_several_objects() -> None:
    policy = nested_policy(undeclared="drop")
    twice = {**record(), "more": [{"x": 1}, {"x": 2}], "other": {"x": '":', "at": 1}}
    assert decode(policy, twice).rejected == []
    assert decode(policy, json.dumps(twice).replace('": ', '" : ').encode()).rejected == []
    assert decode(policy, json.dumps(twice).encode()[:-1] + b',"n":' + b"9" * 5000 + b"}").rejected == []


def test_absent_fields_are_missing_where_they_may_be() -> None:
    policy = with_paths(
        policy_of({"who": SUBJECT, "a": quasi(), "b": quasi(), "c": quasi(), "d": quasi()}),
        missing={"b", "c", "d"},
        b="x.b",
        c="x.y.c",
        d="x.y.d",
    )
    whole = {"who": "p", "a": 1, "x": {"b": 2, "y": {"c": 3, "d": 4}}}
    none, nan = [1, np.nan, np.nan, np.nan], np.nan
    parts: list[dict[str, Any]] = [{}, {"x": None}, {"x": {}}, {"x": {"b": 2}}, {"x": {"b": 2, "y": None}}]
    records = [whole, *({"who": "p", "a": 1, **part} for part in (*parts, {"x": {"y": {"d": 4}}}))]
    expected = [[1, 2, 3, 4], none, none, none, [1, 2, nan, nan], [1, 2, nan, nan], [1, nan, nan, 4]]
    np.testing.assert_array_equal(decode(policy, *records).values, expected)
