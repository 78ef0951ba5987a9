"""A record gives the same block, however it is nested, wrapped and spelt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.formats import Block, JsonDecoder
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi, unchanged_field, with_paths

pytestmark = pytest.mark.property

NAMES = ("who", "age", "sex", "ill", "codes")
SEGMENTS = st.lists(st.sampled_from(["a", "b", 'q"', "ü", "%"]), max_size=3).map(tuple)
VALUES = st.fixed_dictionaries(
    {
        "who": st.sampled_from(["p1", "p2", "", None]),
        "age": st.one_of(st.integers(0, 120), st.just("x"), st.none()),
        "sex": st.one_of(st.sampled_from(["M", "F"]), st.booleans(), st.just(1.5), st.none()),
        "ill": st.one_of(st.text(max_size=5), st.none(), st.just(7)),
        "codes": st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
            max_leaves=5,
        ),
    }
)
ENVELOPES: dict[str | None, Any] = {
    None: lambda record: record,
    "debezium": lambda record: {"before": None, "after": record, "op": "c", "source": {"a": {"b": 1}}},
    "connect": lambda record: {"schema": {"type": "struct", "fields": []}, "payload": record},
    "cloudevents": lambda record: {"specversion": "1.0", "id": "1", "data": record},
}


def flat_policy(unwrap: str | None) -> Policy:
    attributes = {
        "who": SUBJECT,
        "age": quasi(0, 110, integer=True),
        "sex": quasi(None, scale="nominal", missing="group"),
        "ill": unchanged_field("string"),
        "codes": unchanged_field("json"),
    }
    return policy_of(attributes, **({} if unwrap is None else {"unwrap": unwrap}))


def nested(record: dict[str, Any], paths: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, path in paths.items():
        inner = found
        for one in path[:-1]:
            inner = inner.setdefault(one, {})
        inner[path[-1]] = record[name]
    return found


def contents(block: Block) -> tuple[Any, ...]:
    values = [[repr(value) for value in row] for row in block.values.tolist()]
    return (
        values,
        block.subjects.tolist(),
        block.unchanged_fields,
        block.index.tolist(),
        block.rejected,
        block.categories,
    )


@given(
    records=st.lists(VALUES, min_size=1, max_size=4),
    outer=st.tuples(*[SEGMENTS] * len(NAMES)),
    unwrap=st.sampled_from(list(ENVELOPES)),
    spacing=st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
    is_ascii=st.booleans(),
)
def test_nesting_and_envelopes_change_nothing(
    records: list[dict[str, Any]],
    outer: tuple[tuple[str, ...], ...],
    unwrap: str | None,
    spacing: tuple[str, str],
    is_ascii: bool,  # noqa: FBT001
) -> None:
    # The last names are those of the attributes, so that no path is the beginning of another one.
    paths = {name: (*segments, name) for name, segments in zip(NAMES, outer, strict=True)}
    flat = flat_policy(None)
    expected = JsonDecoder(flat).decode([json.dumps(record).encode() for record in records])
    messages = [
        json.dumps(ENVELOPES[unwrap](nested(record, paths)), separators=spacing, ensure_ascii=is_ascii).encode()
        for record in records
    ]
    decoder = JsonDecoder(with_paths(flat_policy(unwrap), **paths))
    assert contents(decoder.decode(messages)) == contents(expected)
