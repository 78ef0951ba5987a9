"""Attributes from keys, headers and timestamps: read like cells, refused where anything is missing or doubled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from shoal.errors import InputError, ParameterError
from shoal.records import CsvEncoder, CsvReader, Encoder, JsonDecoder, Reason
from support.making import KEY, kept, policy_of, quasi

pytestmark = pytest.mark.unit

T = 1_700_000_000_000
SUBJECT = {"role": "identifier", "subject": True, "from": "key"}


@dataclass(frozen=True)
class Around:
    key: bytes | None = b"p1"
    headers: tuple[tuple[str, bytes | None], ...] = (("age", b"42"), ("ward", b"north"))
    timestamp: int = T


POLICY = policy_of(
    {
        "patient": SUBJECT,
        "age": quasi(0, 110, integer=True) | {"from": "header:age"},
        "income": quasi(0, 1000),
        "ward": kept("string") | {"from": "header:ward"},
        "at": {"role": "other", "publish_unchanged": True, "from": "timestamp"},
    }
)
VALUE = b'{"income":7.5}'


def take(policy: Any = POLICY, value: bytes | None = VALUE, *around: Around, **more: Any) -> Any:
    return JsonDecoder(policy, hash_key=KEY, **more).take([value] * len(around), around)


def test_a_record_is_put_together_from_all_parts_of_a_message() -> None:
    block = take(POLICY, VALUE, Around(), Around(key=b"p2", timestamp=T + 5))
    assert block.rejected == []
    assert block.values.tolist() == [[42, 7.5], [42, 7.5]]
    assert len(set(block.subjects.tolist())) == 2
    rows = Encoder(POLICY).rows([["42", "7.5"]], block.tails, [0, 2])
    assert [json.loads(row) for row in rows] == [
        {"age": 42, "income": 7.5, "ward": "north", "at": T},
        {"age": 42, "income": 7.5, "ward": "north", "at": T + 5},
    ]


@pytest.mark.parametrize(
    ("around", "reason"),
    [
        (Around(key=None), Reason.INVALID),
        (Around(key=b""), Reason.INVALID),
        (Around(key=b"  "), Reason.INVALID),
        (Around(key=b"\xff"), Reason.UNDECODABLE),
        (Around(key=b"\xed\xa0\x80"), Reason.UNDECODABLE),
        (Around(key=b"x" * 1001), Reason.TOO_LARGE),
        (Around(headers=(("age", b"42"),)), Reason.INVALID),
        (Around(headers=(("Age", b"42"), ("ward", b""))), Reason.INVALID),
        (Around(headers=(("age", b"42"), ("ward", b""), ("age", b"42"))), Reason.INVALID),
        (Around(headers=(("age", None), ("ward", b""))), Reason.INVALID),
        (Around(headers=(("age", b"old"), ("ward", b""))), Reason.INVALID),
        (Around(headers=(("age", b"42.5"), ("ward", b""))), Reason.INVALID),
        (Around(headers=(("age", b"1e999"), ("ward", b""))), Reason.INVALID),
        (Around(headers=(("age", b"42"), ("ward", b"\xc3"))), Reason.UNDECODABLE),
        (Around(timestamp=-1), Reason.INVALID),
    ],
)
def test_what_is_missing_doubled_or_no_text_is_refused(around: Around, reason: Reason) -> None:
    block = take(POLICY, VALUE, Around(), around, Around(), max_bytes=1000)
    assert block.rejected == [(1, reason)]
    assert block.index.tolist() == [0, 2]
    assert len(block.tails) == 2


def test_headers_that_are_not_declared_are_not_looked_at() -> None:
    more = (("age", b"42"), ("ward", b"north"), ("trace", b"\xff"), ("trace", None), ("", b""))
    assert take(POLICY, VALUE, Around(), Around(headers=more)).rejected == []


@pytest.mark.parametrize("undeclared", ["quarantine", "drop"])
def test_a_field_of_the_value_with_the_name_of_a_key_is_undeclared(undeclared: str) -> None:
    policy = policy_of({"patient": SUBJECT, "income": quasi(0, 1000)}, undeclared=undeclared)
    block = take(policy, b'{"income":7.5,"patient":"somebody else"}', Around(), Around())
    if undeclared == "quarantine":
        assert block.rejected == [(0, Reason.INVALID), (1, Reason.INVALID)]
    else:
        assert block.subjects.tolist() == take(policy, b'{"income":7.5}', Around(), Around()).subjects.tolist()


@pytest.mark.parametrize(
    ("kind", "one", "same", "other"),
    [
        ("any", b"7", b" 007.0 ", b"8"),
        ("any", "Zo\u00eb".encode(), "Zoe\u0308".encode(), b"Zoe"),
        ("integer", b"70", b"7e1", b"71"),
        ("number", b"0.5", b"+.50", b"-0.5"),
        ("boolean", b"true", b"TRUE", b"false"),
        ("string", b"7", b" 7\n", b"007"),
    ],
)
def test_a_person_in_the_key_is_the_person_in_the_value(kind: str, one: bytes, same: bytes, other: bytes) -> None:
    about = {"role": "identifier", "subject": True, "type": kind}
    by_key = policy_of({"patient": about | {"from": "key"}, "income": quasi(0, 1000)})
    by_value = policy_of({"patient": about, "income": quasi(0, 1000)})
    hashes = take(by_key, VALUE, *(Around(key=text) for text in (one, same, other))).subjects
    assert hashes[0] == hashes[1] != hashes[2]
    value = json.dumps({"patient": one.decode(), "income": 7.5}).encode()
    assert JsonDecoder(by_value, hash_key=KEY).take([value]).subjects[0] == hashes[0]


def test_a_timestamp_is_a_coordinate_in_milliseconds() -> None:
    policy = policy_of({"patient": SUBJECT, "at": quasi(T, T + 1000) | {"from": "timestamp"}})
    block = take(policy, b"{}", *(Around(timestamp=T + step) for step in (-5, 0, 7, 2000)))
    assert block.values.ravel().tolist() == [T, T, T + 7, T + 1000]
    assert block.clipped == 2


def test_kept_fields_from_headers_have_the_types_of_cells() -> None:
    policy = policy_of(
        {"patient": SUBJECT, "x": quasi()}
        | {kind: kept(kind) | {"from": f"header:{kind}"} for kind in ("integer", "number", "boolean", "any")}
    )
    good = (("integer", b" 7 "), ("number", b"7.50"), ("boolean", b"True"), ("any", b"007"))
    empty = (("integer", b""), ("number", b""), ("boolean", b""), ("any", b""))
    block = take(policy, b'{"x":1}', Around(headers=good), Around(headers=empty))
    rows = Encoder(policy).rows([["1"], ["1"]], block.tails, [0, 1, 2])
    assert rows == [
        b'{"x":1,"integer":7,"number":7.5,"boolean":true,"any":"007"}',
        b'{"x":1,"integer":null,"number":null,"boolean":null,"any":""}',
    ]
    bad = (("integer", b"7.5"), *good[1:])
    assert take(policy, b'{"x":1}', Around(headers=bad)).rejected == [(0, Reason.INVALID)]
    assert len(take(policy, b'{"x":1}', Around(headers=good), encoder=CsvEncoder(policy)).tails) == 1


def test_blocks_are_cut_together_with_their_envelopes() -> None:
    around = [Around(key=b"p%d" % (i % 7), timestamp=T + i) for i in range(1300)]
    around[1100] = Around(key=None)
    block = take(POLICY, VALUE, *around)
    assert block.rejected == [(1100, Reason.INVALID)]
    assert len(np.unique(block.subjects)) == 7
    assert block.subjects[700] == block.subjects[0]


def test_values_alone_are_not_enough_for_such_a_policy() -> None:
    with pytest.raises(ParameterError, match="values alone"):
        JsonDecoder(POLICY).take([VALUE])
    assert not JsonDecoder(policy_of({"x": quasi()})).reads_envelopes


def test_a_csv_file_has_no_keys() -> None:
    import io

    with pytest.raises(InputError, match=r": attributes\.patient is read from key.*or leave 'from' out"):
        CsvReader(io.BytesIO(b"patient,age\n"), POLICY)
