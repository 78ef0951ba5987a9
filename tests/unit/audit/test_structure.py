"""Envelopes and nested fields in the audit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from shoal.audit.fields import Dropped, MessageStructure, nested_order
from shoal.audit.reading import TOMBSTONE, Record, as_record, json_document
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi

pytestmark = pytest.mark.unit


def policy(**more: Any) -> Policy:
    attributes = {
        "who": SUBJECT | {"from": "value.patient.id"},
        "age": quasi(0, 110) | {"from": "value.patient.born.age"},
        "mass": quasi(0, 300, missing="group") | {"from": "value.vitals.mass"},
    }
    return policy_of(attributes, **more)


def flat_policy(**more: Any) -> Policy:
    return policy_of({"who": SUBJECT, "age": quasi(0, 110)}, **more)


def content(settings: Policy, message: object) -> object:
    text = message if isinstance(message, str) else json.dumps(message)
    found = MessageStructure(settings, "jsonl").content(as_record(json_document(text)))
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else found


PATIENT = {"id": "p1", "born": {"age": 42}}


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ({"patient": PATIENT, "vitals": {"mass": 7}}, {"who": "p1", "age": "42", "mass": "7"}),
        ({"patient": PATIENT}, {"who": "p1", "age": "42"}),
        ({"patient": PATIENT, "vitals": None}, {"who": "p1", "age": "42"}),
        ({"patient": PATIENT, "__faust": {"ns": "x"}}, {"who": "p1", "age": "42"}),
        ({"patient": {"id": "p1"}}, {"who": "p1"}),
    ],
)
def test_fields_are_found_inside_objects(message: object, fields: dict[str, str]) -> None:
    assert content(policy(), message) == fields


@pytest.mark.parametrize(
    "message",
    [
        {"patient": PATIENT, "more": 1},
        {"patient": PATIENT, "more": {}},
        {"patient": PATIENT | {"name": "x"}},
        {"patient": PATIENT | {"__faust": 1}},
        {"patient": PATIENT, "vitals": 5},
        {"patient": None},
        {"patient": [PATIENT]},
        '{"patient": {"id": "p1", "id": "p1", "born": {"age": 42}}}',
        '{"patient": {"id": "p1", "born": {"age": [{"x": 1, "x": 1}]}}}',
    ],
)
def test_any_other_structure_is_no_record(message: object) -> None:
    assert content(policy(), message) is None


def test_undeclared_fields_can_be_dropped() -> None:
    message = {"patient": PATIENT | {"name": "x"}, "more": 1}
    assert content(policy(undeclared="drop"), message) == {"who": "p1", "age": "42"}


ROW = {"who": "p1", "age": 42}
FIELDS = {"who": "p1", "age": "42"}


@pytest.mark.parametrize(
    ("unwrap", "message", "found"),
    [
        ("debezium", {"before": None, "after": ROW, "op": "c"}, FIELDS),
        ("debezium", {"schema": {}, "payload": {"after": ROW, "op": "u"}}, FIELDS),
        ("debezium", {"after": None, "op": "d"}, Dropped.DELETES),
        ("debezium", {"after": ROW, "op": "d"}, Dropped.DELETES),
        ("debezium", {"op": "u"}, Dropped.DELETES),
        ("debezium", {"after": ROW}, None),
        ("debezium", {"after": ROW, "op": 1}, None),
        ("debezium", {"after": 5, "op": "c"}, None),
        ("debezium", {"schema": {}, "payload": None}, Dropped.TOMBSTONES),
        ("debezium", {"schema": {}, "payload": 5}, None),
        ("connect", {"schema": {}, "payload": ROW}, FIELDS),
        ("connect", {"schema": None, "payload": None}, Dropped.TOMBSTONES),
        ("connect", {"payload": ROW}, None),
        ("connect", ROW, None),
        ("cloudevents", {"specversion": "1.0", "data": ROW}, FIELDS),
        ("cloudevents", {"specversion": "1.0", "data": None}, None),
        ("cloudevents", {"specversion": "1.0", "data": ROW, "data_base64": ""}, None),
        ("cloudevents", {"data": ROW}, None),
        ("debezium", '{"after": {"who": "p1", "age": 42}, "op": "c", "source": {"a": 1, "a": 1}}', None),
    ],
)
def test_records_are_taken_out_of_envelopes(unwrap: str, message: object, found: object) -> None:
    settings = replace(flat_policy(unwrap=unwrap), deletes="drop", tombstones="drop")
    assert content(settings, message) == found
    kept = replace(settings, deletes="quarantine", tombstones="quarantine")
    assert content(kept, message) == (None if isinstance(found, Dropped) else found)


@pytest.mark.parametrize(("tombstones", "found"), [("drop", Dropped.TOMBSTONES), ("quarantine", None)])
def test_a_message_without_a_value_is_no_record(tombstones: str, found: Dropped | None) -> None:
    assert MessageStructure(flat_policy(tombstones=tombstones), "jsonl").content(TOMBSTONE) is found


def test_a_flat_record_is_returned_as_it_is() -> None:
    record: Record = {"who": "p1", "more": 1}
    assert MessageStructure(flat_policy(), "jsonl").content(record) is record


def test_an_object_stands_where_its_first_field_is_declared() -> None:
    assert nested_order([("a", "x"), ("b",), ("a", "y", "z"), ("c",), ("a", "y", "w")]) == [
        *(("a", "x"), ("a", "y", "z"), ("a", "y", "w"), ("b",), ("c",))
    ]
