"""Attributes from keys, headers and timestamps: read like text cells, rejected if missing or repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from shoal.errors import InputError, ParameterError
from shoal.formats import JsonDecoder, JsonEncoder, Reason
from shoal.formats.csv import CsvReader
from support.making import policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

T = 1_700_000_000_000
SUBJECT = {"role": "identifier", "subject": True, "from": "key"}


@dataclass(frozen=True)
class Message:
    key: bytes | None = b"p1"
    headers: tuple[tuple[str, bytes | None], ...] = (("age", b"42"), ("ward", b"north"))
    timestamp: int = T


POLICY = policy_of(
    {
        "patient": SUBJECT,
        "age": quasi(0, 110, integer=True) | {"from": "header:age"},
        "income": quasi(0, 1000),
        "ward": unchanged_field("string") | {"from": "header:ward"},
        "at": {"role": "other", "publish_unchanged": True, "from": "timestamp"},
    }
)
VALUE = b'{"income":7.5}'


def decode(policy: Any = POLICY, value: bytes | None = VALUE, *messages: Message, **more: Any) -> Any:
    return JsonDecoder(policy, **more).decode([value] * len(messages), messages)


def test_a_record_is_read_from_all_parts_of_a_message() -> None:
    block = decode(POLICY, VALUE, Message(), Message(key=b"p2", timestamp=T + 5))
    assert block.rejected == []
    assert block.values.tolist() == [[42, 7.5], [42, 7.5]]
    assert len(set(block.subjects.tolist())) == 2
    rows = JsonEncoder(POLICY).encode_clusters([["42", "7.5"]], block.unchanged_fields, [0, 2])
    assert [json.loads(row) for row in rows] == [
        {"age": 42, "income": 7.5, "ward": "north", "at": T},
        {"age": 42, "income": 7.5, "ward": "north", "at": T + 5},
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(key=None), Reason.INVALID),
        (Message(key=b"\xff"), Reason.UNDECODABLE),
        (Message(key=b"x" * 1001), Reason.TOO_LARGE),
        (Message(headers=(("age", b"42"),)), Reason.INVALID),
        (Message(headers=(("Age", b"42"), ("ward", b""))), Reason.INVALID),
        (Message(headers=(("age", b"42"), ("ward", b""), ("age", b"42"))), Reason.INVALID),
        (Message(headers=(("age", None), ("ward", b""))), Reason.INVALID),
        (Message(headers=(("age", b"42.5"), ("ward", b""))), Reason.INVALID),
        (Message(headers=(("age", b"42"), ("ward", b"\xc3"))), Reason.UNDECODABLE),
        (Message(timestamp=-1), Reason.INVALID),
    ],
)
def test_missing_repeated_and_invalid_parts_are_rejected(message: Message, reason: Reason) -> None:
    block = decode(POLICY, VALUE, Message(), message, Message(), max_bytes=1000)
    assert block.rejected == [(1, reason)]
    assert block.index.tolist() == [0, 2]
    assert len(block.unchanged_fields) == 2


@pytest.mark.parametrize("undeclared", ["quarantine", "drop"])
def test_a_field_of_the_value_with_the_name_of_a_key_is_undeclared(undeclared: str) -> None:
    policy = policy_of({"patient": SUBJECT, "income": quasi(0, 1000)}, undeclared=undeclared)
    block = decode(policy, b'{"income":7.5,"patient":"another person"}', Message(), Message())
    if undeclared == "quarantine":
        assert block.rejected == [(0, Reason.INVALID), (1, Reason.INVALID)]
    else:
        assert block.subjects.tolist() == decode(policy, b'{"income":7.5}', Message(), Message()).subjects.tolist()


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
def test_a_subject_in_the_key_equals_the_subject_in_the_value(kind: str, one: bytes, same: bytes, other: bytes) -> None:
    subject = {"role": "identifier", "subject": True, "type": kind}
    by_key = policy_of({"patient": subject | {"from": "key"}, "income": quasi(0, 1000)})
    by_value = policy_of({"patient": subject, "income": quasi(0, 1000)})
    hashes = decode(by_key, VALUE, *(Message(key=text) for text in (one, same, other))).subjects
    assert hashes[0] == hashes[1] != hashes[2]
    value = json.dumps({"patient": one.decode(), "income": 7.5}).encode()
    assert JsonDecoder(by_value).decode([value]).subjects[0] == hashes[0]


def test_a_policy_that_reads_envelopes_requires_them() -> None:
    with pytest.raises(ParameterError, match="pass envelopes with the values"):
        JsonDecoder(POLICY).decode([VALUE])


def test_csv_with_envelope_attributes_is_refused() -> None:
    import io

    with pytest.raises(InputError, match=r": attributes\.patient is read from key.*or remove 'from' from the policy"):
        CsvReader(io.BytesIO(b"patient,age\n"), POLICY)
