"""Output records with fields inside objects."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from shoal.formats import CsvEncoder, JsonDecoder, JsonEncoder
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit


def policy(**to: str | tuple[str, ...]) -> Policy:
    """Return a policy of quasi-identifiers a, b, c and unchanged fields x, y, z; a name may have another path."""
    names: dict[str, Any] = {"a": quasi(), "x": unchanged_field(), "b": quasi(), "y": unchanged_field("json")}
    flat = policy_of({"who": SUBJECT, **names, "c": quasi(), "z": unchanged_field("string")})
    paths = {name: tuple(path.split(".")) if isinstance(path, str) else path for name, path in to.items()}
    return replace(flat, attributes=tuple(replace(one, to=paths.get(one.name, one.to)) for one in flat.attributes))


RECORD = {"who": "p", "a": 1, "b": 2, "c": 3, "x": "X", "y": [{"k": None}], "z": None}


def row(to: Policy, *, csv: bool = False) -> str:
    encoder = CsvEncoder(to) if csv else JsonEncoder(to)
    block = JsonDecoder(to, encoder=encoder).decode([json.dumps(RECORD).encode()])
    return encoder.encode_clusters([["1", "2", "3"]], block.unchanged_fields, [0, 1])[0].decode()


@pytest.mark.parametrize(
    ("to", "written"),
    [
        ({}, '{"a":1,"x":"X","b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "n"}, '{"n":1,"x":"X","b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "p.a"}, '{"p":{"a":1},"x":"X","b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "p.a", "x": "p.x"}, '{"p":{"a":1,"x":"X"},"b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "p.a", "c": "p.c"}, '{"p":{"a":1,"c":3},"x":"X","b":2,"y":[{"k":null}],"z":null}'),
        ({"x": "p.x", "b": "p.q.b", "z": "p.q.z"}, '{"a":1,"p":{"x":"X","q":{"b":2,"z":null}},"y":[{"k":null}],"c":3}'),
        (
            {"a": "p.q.r.a", "b": "p.q.b", "z": "p.z", "y": "s.y", "c": "s.c"},
            '{"p":{"q":{"r":{"a":1},"b":2},"z":null},"x":"X","s":{"y":[{"k":null}],"c":3}}',
        ),
        (
            {"c": "p.q.c", "z": "p.s.z", "a": "p.q.a"},
            '{"p":{"q":{"a":1,"c":3},"s":{"z":null}},"x":"X","b":2,"y":[{"k":null}]}',
        ),
        ({"a": ("%b", 'q"'), "b": ("%b", "ü")}, '{"%b":{"q\\"":1,"ü":2},"x":"X","y":[{"k":null}],"c":3,"z":null}'),
    ],
)
def test_fields_are_grouped_by_their_objects(to: dict[str, Any], written: str) -> None:
    assert row(policy(**to)) == written
    assert json.loads(written)  # the expected text is valid JSON


def test_members_of_a_cluster_are_sorted_by_their_bytes() -> None:
    to = policy(a="p.a", z="p.z")
    encoder = JsonEncoder(to)
    messages = [json.dumps({**RECORD, "z": text, "x": number}).encode() for number, text in enumerate("cab")]
    block = JsonDecoder(to, encoder=encoder).decode(messages)
    rows = encoder.encode_clusters([["1", "2", "3"]], block.unchanged_fields, [0, 3])
    assert [json.loads(one)["p"]["z"] for one in rows] == ["a", "b", "c"]
    assert rows == sorted(rows)


def test_columns_of_csv_have_dotted_names_in_the_order_of_the_policy() -> None:
    to = policy(a="p.a", c="p.c", z="p.z,1")
    assert CsvEncoder(to).header() == b'p.a,x,b,y,p.c,"p.z,1"'
    assert row(to, csv=True) == '1,X,2,"[{""k"":null}]",3,'
