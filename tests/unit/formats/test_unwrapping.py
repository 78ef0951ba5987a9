"""Records in the envelopes of Debezium, Kafka Connect and CloudEvents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from shoal.formats import Block, DropReason, JsonDecoder, Reason, RefusalCounter
from shoal.formats.json import find_json_faults
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi, unchanged_field, with_paths

pytestmark = pytest.mark.unit

MESSAGES = Path(__file__).parents[2] / "data" / "messages"
INVALID, UNDECODABLE = Reason.INVALID, Reason.UNDECODABLE
DELETES, TOMBSTONES = DropReason.DELETES, DropReason.TOMBSTONES


def lines(name: str) -> list[bytes]:
    return (MESSAGES / name).read_bytes().splitlines()


def visits(**more: Any) -> Policy:
    """Return a policy of the table of the fixtures of Debezium."""
    identifier = {"role": "identifier"}
    attributes: dict[str, dict[str, Any]] = {
        "id": identifier,
        "patient_id": SUBJECT,
        "born": quasi(-20_000, 20_000),
        "seen_at": identifier,
        "weight": quasi(0, 300),
        "sex": identifier,
        "icd": unchanged_field("string"),
        "details": unchanged_field("string"),
    }
    return policy_of(attributes, unwrap="debezium", **more)


def small(kind: str, **more: Any) -> Policy:
    return policy_of({"who": SUBJECT, "x": quasi()}, unwrap=kind, **more)


def dropping_policy(kind: str) -> Policy:
    """Return a policy that drops every message which it may drop."""
    deletes = {"deletes": "drop"} if kind == "debezium" else {}
    return small(kind, tombstones="drop", **deletes)


def decode(policy: Policy, messages: Sequence[bytes | None]) -> Block:
    return JsonDecoder(policy).decode(messages)


def dumped(*values: object) -> list[bytes | None]:
    return [json.dumps(value).encode() for value in values]


@pytest.mark.parametrize("name", ["debezium_postgres.jsonl", "debezium_postgres_schemas.jsonl"])
def test_messages_of_debezium(name: str) -> None:
    block = decode(visits(deletes="drop"), lines(name))
    assert block.index.tolist() == [0, 1, 2, 3, 6]
    assert block.rejected == []
    assert block.dropped == [(4, DELETES), (5, DELETES)]
    assert block.values.tolist() == [[-3561, 81.5], [8035, 64], [12853, 70.25], [8035, 64], [4018, 92]]
    assert block.unchanged_fields[3] == b'"icd":"E11.8","details":"{\\"ward\\": \\"north\\", \\"beds\\": 1}"'
    assert block.subjects[1] == block.subjects[3]
    kept = decode(visits(), [*lines(name), None])
    assert kept.rejected == [(4, INVALID), (5, INVALID), (7, UNDECODABLE)]
    assert kept.dropped == ()


@pytest.mark.parametrize(
    ("name", "kind", "icd", "rejected"),
    [
        ("connect_json_schemas.jsonl", "connect", "smokes", []),
        # An event with binary data, and one without data.
        ("cloudevents_structured.jsonl", "cloudevents", "icd", [(4, INVALID), (5, INVALID)]),
    ],
)
def test_messages_of_kafka_connect_and_events_in_structured_mode(
    name: str, kind: str, icd: str, rejected: list[tuple[int, Reason]]
) -> None:
    attributes = {"who": SUBJECT, "weight": quasi(0, 300), icd: unchanged_field("json")}
    policy = with_paths(policy_of(attributes, unwrap=kind, undeclared="drop"), who="patient.id")
    block = decode(policy, lines(name))
    assert block.rejected == rejected
    assert block.values.tolist() == [[81.5], [64], [70.25], [92]]
    texts = {"smokes": ["true", "false", "null", "true"], "icd": ['["J45.0"]', '["E11.9","I10"]', "[]", '["J45.1"]']}
    assert block.unchanged_fields == [f'"{icd}":{text}'.encode() for text in texts[icd]]


GOOD = {"who": "p", "x": 1}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("debezium", GOOD),
        ("debezium", {"after": GOOD}),
        ("debezium", {"op": "c", "after": {**GOOD, "more": 1}}),
        ("debezium", {"payload": {"op": "c", "after": GOOD}}),
        ("debezium", {"schema": None, "payload": [1]}),
        ("debezium", {"schema": None, "payload": {"op": "c", "after": GOOD}, "more": 1}),
        ("connect", GOOD),
        ("connect", {"payload": GOOD}),
        ("connect", {"schema": None, "payload": GOOD, "more": 1}),
        ("cloudevents", {"specversion": "1.0"}),
        ("cloudevents", {"specversion": "1.0", "data": None}),
        ("cloudevents", {"specversion": "1.0", "data_base64": "AAE="}),
        ("cloudevents", {"specversion": "1.0", "data_base64": "AAE=", "data": GOOD}),
        ("cloudevents", [{"specversion": "1.0", "data": GOOD}]),
    ],
)
def test_a_message_without_a_record_in_its_envelope_is_invalid(kind: str, message: object) -> None:
    policy = dropping_policy(kind)
    block = decode(policy, dumped(message))
    assert (block.rejected, list(block.dropped)) == ([(0, INVALID)], [])
    assert find_json_faults(policy, json.dumps(message).encode())[0].reason


@pytest.mark.parametrize("kind", ["debezium", "connect", "cloudevents"])
@pytest.mark.parametrize(
    "text", [b"", b"x", b"{", b'{"op":"\\ud800"}', b'{"op":"\xff"}', b'{"a":' * 65 + b"1" + b"}" * 65]
)
def test_a_message_that_is_not_strict_json_is_undecodable(kind: str, text: bytes) -> None:
    assert decode(dropping_policy(kind), [text]).rejected == [(0, UNDECODABLE)]


@pytest.mark.parametrize(
    "text",
    [
        b'{"op":"c","op":"d","after":{"who":"p","x":1}}',
        b'{"op":"c","after":{"who":"p","x":1},"after":{"who":"q","x":1}}',
        b'{"op":"c","after":{"who":"p","x":1,"x":1}}',
        *(b'{"op":"c","after":{"who":"p","x":1},"source":{"lsn":1,"lsn":1}}', b'{"op":"d","op":"d","after":null}'),
        b'{"schema":{"type":"a","type":"b"},"payload":{"op":"c","after":{"who":"p","x":1}}}',
    ],
)
def test_a_repeated_key_anywhere_in_the_message_is_invalid(text: bytes) -> None:
    policy = small("debezium", deletes="drop", undeclared="drop")
    assert decode(policy, [text]).rejected == [(0, INVALID)]
    assert find_json_faults(policy, text)[0].reason == "a field occurs twice; remove one of them"


@pytest.mark.parametrize(
    "message",
    [
        {"op": "d", "before": GOOD, "after": None},
        {"op": "d", "before": GOOD},
        {"op": "d", "after": GOOD},
        {"op": "u", "after": None},
        {"op": "t"},
        {"schema": {}, "payload": {"op": "d", "before": None, "after": None}},
    ],
)
def test_deletes_are_quarantined_or_dropped(message: dict[str, Any]) -> None:
    keeping, dropping = small("debezium"), small("debezium", deletes="drop")
    assert decode(keeping, dumped(message)).rejected == [(0, INVALID)]
    assert find_json_faults(keeping, json.dumps(message).encode())[0].reason.startswith("a delete;")
    block = decode(dropping, dumped(message, {"op": "c", "after": GOOD}))
    assert (block.dropped, block.rejected, block.index.tolist()) == ([(0, DELETES)], [], [1])


@pytest.mark.parametrize("kind", ["debezium", "connect"])
def test_a_payload_that_is_null_is_no_value(kind: str) -> None:
    message = dumped({"schema": {"optional": True}, "payload": None})
    assert decode(small(kind), message).rejected == [(0, UNDECODABLE)]
    assert decode(small(kind, tombstones="drop"), message).dropped == [(0, TOMBSTONES)]


def test_messages_without_a_value_are_quarantined_or_dropped() -> None:
    plain = policy_of({"who": SUBJECT, "x": quasi()})
    dropping = policy_of({"who": SUBJECT, "x": quasi()}, tombstones="drop")
    messages = [None, *dumped(GOOD), None]
    assert decode(plain, messages).rejected == [(0, UNDECODABLE), (2, UNDECODABLE)]
    block = decode(dropping, messages)
    assert (block.rejected, block.dropped, block.index.tolist()) == ([], [(0, TOMBSTONES), (2, TOMBSTONES)], [1])
    # The value null is JSON. It is not a message without a value.
    assert decode(dropping, [b"null"]).rejected == [(0, INVALID)]


def test_an_envelope_counts_for_the_largest_length() -> None:
    policy = small("debezium")
    message = dumped({"op": "c", "after": GOOD, "source": {"name": "x" * 200}})
    block = JsonDecoder(policy, max_bytes=200).decode(message)
    assert block.rejected == [(0, Reason.TOO_LARGE)]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"who":"p","x":1}', None),
        (b'{"who":"p","x":1,"x":1}', INVALID),
        (b'{"who":"p","x":"\xff"}', UNDECODABLE),
        (b'{"who":"p","x":' + b"[" * 63 + b"]" * 63 + b"}", UNDECODABLE),
        (b'{"who":"p","x":1},"payload":{"who":"p","x":1}', INVALID),
        (b'{"who":"p","x":1} , "schema":1', INVALID),
        (b"7", INVALID),
        (b"null", UNDECODABLE),
    ],
)
def test_a_known_schema_changes_no_decision(payload: bytes, reason: Reason | None) -> None:
    decoder = JsonDecoder(small("connect"))
    good, message = (b'{"schema":{"type":"struct"},"payload":%b}' % one for one in (b'{"who":"p","x":1}', payload))
    expected = [] if reason is None else [(0, reason)]
    assert decoder.decode([message]).rejected == expected
    assert decoder.decode([good, good]).rejected == []
    assert decoder.decode([message]).rejected == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("debezium_postgres.jsonl", "debezium"),
        ("debezium_postgres_schemas.jsonl", "debezium"),
        ("connect_json_schemas.jsonl", "connect"),
        ("cloudevents_structured.jsonl", "cloudevents"),
    ],
)
@pytest.mark.parametrize("undeclared", ["quarantine", "drop"])
def test_the_fault_of_a_record_in_an_envelope_names_the_envelope(name: str, kind: str, undeclared: str) -> None:
    policy = policy_of({"who": SUBJECT, "x": quasi()}, undeclared=undeclared)
    message = lines(name)[0]
    assert decode(policy, [message]).rejected == [(0, INVALID)]
    (fault,) = find_json_faults(policy, message)
    assert fault.reason.endswith(f"; set unwrap: {kind}")
    counter = RefusalCounter()
    counter.add("invalid", [fault])
    assert counter.remedy() == fault.reason


def test_a_message_of_debezium_is_named_inside_the_envelope_of_connect() -> None:
    (fault,) = find_json_faults(small("connect"), lines("debezium_postgres_schemas.jsonl")[0])
    assert fault.reason == "inside a message of Debezium; set unwrap: debezium"


def test_a_record_with_a_field_of_the_policy_is_in_no_envelope() -> None:
    policy = policy_of({"op": {"role": "identifier"}, "x": quasi()})
    kinds = [fault.kind for fault in find_json_faults(policy, b'{"op":"c","after":{}}')]
    assert kinds == ["x: missing", "a field that the policy does not declare"]
