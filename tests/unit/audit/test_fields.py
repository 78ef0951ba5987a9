"""Fields of records in the audit: quasi-identifiers, subjects, unchanged fields, and keys of confidential values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import load_policy
from shoal.audit.fields import (
    MISSING,
    Dropped,
    MessageStructure,
    RecordReader,
    UsableRecord,
    document_reader,
    key_reader,
    released_document_reader,
    released_reader,
    unchanged_reader,
)
from shoal.audit.reading import Form, InputFile, JsonNumber, JsonObject, as_record, json_document, original_records
from shoal.policy import FieldType, Policy
from support.making import SUBJECT, policy_of, quasi

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  who:  {{role: identifier, subject: true, type: {subject}}}
  id:   {{role: identifier}}
  age:  {{role: quasi_identifier, bounds: [0, 110], integer: true}}
  size: {{role: quasi_identifier, bounds: [-1.5, 2.5], out_of_bounds: quarantine}}
  job:  {{role: other, type: {unchanged}, publish_unchanged: true}}
undeclared: {undeclared}
privacy: {{k: 2}}
stream: {{delta: 20}}
"""
GOOD = {"who": "p", "id": 1, "age": 40, "size": 0.5, "job": "x"}


def take(folder: Path, line: str, form: Form = "jsonl", **settings: str) -> UsableRecord | None:
    settings = {"subject": "any", "unchanged": "any", "undeclared": "quarantine"} | settings
    policy = load_policy(folder, POLICY.format(**settings))
    path = folder / f"original.{form}"
    path.write_bytes(line.encode("utf-8", "surrogateescape"))
    one = next(original_records(InputFile.of(path, policy.csv)))
    return RecordReader(policy, form, "jsonl").read(one.record, one.envelope)


@pytest.mark.parametrize(
    ("subject", "steps", "who", "is_usable"),
    [
        ("any", "", '"unknown"', False),
        ("any", "", '" unknown "', False),
        ("any", "", '"Unknown"', True),
        ("any", "", "-1.0", False),
        ("integer", "", "-1", False),
        ("string", "", '"-1.0"', True),
        ("string", ", normalize: [casefold]", '"UNKNOWN"', False),
    ],
)
def test_a_missing_value_is_no_subject(tmp_path: Path, subject: str, steps: str, who: str, *, is_usable: bool) -> None:
    line = json.dumps(GOOD).replace('"p"', who)
    found = take(tmp_path, line, subject=subject + steps, undeclared="quarantine\nmissing_values: ['', unknown, '-1']")
    assert (found is not None) is is_usable


def test_values_out_of_bounds_are_clipped_where_the_policy_clips(tmp_path: Path) -> None:
    found = take(tmp_path, json.dumps(GOOD | {"age": 1000}))
    assert found is not None
    assert found.values == (110.0, 0.5)


@pytest.mark.parametrize(
    ("opened", "closed", "is_usable"),
    [
        ("[" * 63, "]" * 63, True),
        ("[" * 64, "]" * 64, False),
        ('{"a":' * 64, "}" * 64, False),
    ],
)
def test_a_record_is_nested_at_most_64_deep(tmp_path: Path, opened: str, closed: str, *, is_usable: bool) -> None:
    line = json.dumps(GOOD | {"id": 0}).replace('"id": 0', f'"id": {opened}{"1" if ":" in opened else ""}{closed}')
    assert (take(tmp_path, line) is not None) is is_usable


@pytest.mark.parametrize(
    ("number", "is_usable"),
    [
        ("1" * 4300, True),
        ("1" * 4301, False),
        ("-" + "1" * 4300, False),
        ("1e308", True),
        ("1e309", False),
        ('"1e999"', True),
    ],
)
def test_a_number_as_subject_is_an_integer_or_a_finite_float64(tmp_path: Path, number: str, *, is_usable: bool) -> None:
    line = json.dumps(GOOD).replace('"p"', number)
    assert (take(tmp_path, line) is not None) is is_usable


def test_the_model_name_that_faust_adds_is_ignored(tmp_path: Path) -> None:
    assert take(tmp_path, json.dumps(GOOD | {"__faust": {"ns": "app.Visit"}})) == take(tmp_path, json.dumps(GOOD))
    short = {name: value for name, value in GOOD.items() if name != "job"}
    assert take(tmp_path, json.dumps(short | {"__faust": 1})) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"age": "40"},
        {"age": True},
        {"age": None},
        {"age": 40.5},
        {"size": 2.6},
        {"who": None},
        {"who": " \t"},
        {"who": ["p"]},
        {"job": ["x"]},
        {"extra": 1},
        {"job": "\ud800"},
        {"who": "\ud800"},
    ],
)
def test_a_record_that_does_not_fit_is_unusable(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert take(tmp_path, json.dumps(GOOD | changed)) is None


@pytest.mark.parametrize("name", GOOD)
def test_a_record_without_a_declared_field_is_unusable(tmp_path: Path, name: str) -> None:
    assert take(tmp_path, json.dumps({key: value for key, value in GOOD.items() if key != name})) is None


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{",
        json.dumps(GOOD)[:-1] + ',"age":40}',
        json.dumps(GOOD).replace("40", "NaN"),
        json.dumps(GOOD).replace("40", "1e400"),
        json.dumps(GOOD).replace('"x"', "1e400"),
        json.dumps(GOOD).replace('"x"', "1" * 5000),
        json.dumps(GOOD).replace('"x"', '"\udc80"'),
        json.dumps(GOOD).replace('"x"', "[" * 100_000),
        json.dumps(GOOD) * 2,
    ],
)
def test_a_line_that_is_not_a_record_is_unusable(tmp_path: Path, line: str) -> None:
    assert take(tmp_path, line + "\n") is None


# ---------------------------------------------------------------- subjects


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        ("any", [7, 7.0, "7", "7 ", "007", "7.0", "70e-1", "+7"]),
        ("integer", [7, 7.0, "7", "7 ", "007"]),
        ("any", [0, -0.0, "0", "000", "-0"]),
        ("string", ["Ame\u0301lie", "Amélie", " Amélie\n"]),
        ("boolean", [True, "true", " true"]),
        ("any", [9007199254740993, "9007199254740993.0"]),
    ],
)
def test_spellings_of_one_subject_are_equal(tmp_path: Path, kind: str, same: list[object]) -> None:
    found = {take(tmp_path, json.dumps(GOOD | {"who": who}), subject=kind) for who in same}
    assert None not in found
    assert len(found) == 1


@pytest.mark.parametrize(
    ("kind", "different"),
    [
        ("any", [7, 70, -7, 0.7, "seven", "٧", "7 0", "0x7", "1e9999999999999999999"]),
        ("string", ["7", "07", "7.0"]),
        ("any", [9007199254740993, 9007199254740992]),
    ],
)
def test_different_subjects_stay_different(tmp_path: Path, kind: str, different: list[object]) -> None:
    found = [take(tmp_path, json.dumps(GOOD | {"who": who}), subject=kind) for who in different]
    assert len({one.subject for one in found if one is not None}) == len(different)


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("string", [7, True, None, ""]),
        ("integer", ["seven", 7.5, True, ""]),
        ("number", ["seven", False]),
        ("boolean", [1, "yes", 0]),
    ],
)
def test_a_subject_of_another_type_makes_the_record_unusable(tmp_path: Path, kind: str, refused: list[object]) -> None:
    assert {take(tmp_path, json.dumps(GOOD | {"who": who}), subject=kind) for who in refused} == {None}


# ---------------------------------------------------------------- unchanged fields


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("any", JsonNumber("1"), "1"),
        ("any", JsonNumber("1.0"), "1"),
        ("any", JsonNumber("-0.0"), "0"),
        ("any", JsonNumber("1e23"), "1" + "0" * 23),
        ("any", JsonNumber("1" * 4300), "1" * 4300),
        ("any", JsonNumber("1" * 4301), None),
        ("any", True, "true"),
        ("any", "1", '"1"'),
        ("any", None, "null"),
        ("any", 'é"\\\n\x00/', '"é\\"\\\\\\n\\u0000/"'),
        ("any", JsonObject(), None),
        ("string", "x", '"x"'),
        ("string", JsonNumber("1"), None),
        ("integer", JsonNumber("7.0"), "7"),
        ("integer", JsonNumber("7.5"), None),
        ("integer", "7", None),
        ("integer", True, None),
        ("number", JsonNumber("7.5"), "7.5"),
        ("number", "7.5", None),
        ("boolean", False, "false"),
        ("boolean", "false", None),
    ],
)
def test_unchanged_values_of_json_are_compared_by_type_and_value(
    kind: FieldType, value: object, text: str | None
) -> None:
    assert unchanged_reader(kind, "jsonl", "jsonl")(value) == text


@pytest.mark.parametrize(
    ("kind", "cell", "text"),
    [
        ("any", "7", '"7"'),
        ("any", "", '""'),
        ("string", " x ", '" x "'),
        ("integer", " 007 ", "7"),
        ("integer", "", "null"),
        ("integer", "7.5", None),
        ("number", "1e2", "100"),
        ("number", ".5", "0.5"),
        ("number", "inf", None),
        ("number", "٧", None),
        ("boolean", "true", "true"),
        ("boolean", "1", None),
    ],
)
def test_unchanged_values_of_csv_are_texts_until_a_type_is_declared(
    kind: FieldType, cell: str, text: str | None
) -> None:
    assert unchanged_reader(kind, "csv", "csv")(cell) == text


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("any", JsonNumber("1e2"), '"100"'),
        ("any", None, '""'),
        ("any", True, '"true"'),
        ("string", JsonNumber("1"), None),
        ("integer", None, "null"),
    ],
)
def test_json_values_are_compared_with_the_cells_they_become(kind: FieldType, value: object, text: str | None) -> None:
    assert unchanged_reader(kind, "jsonl", "csv")(value) == text


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (JsonNumber("1.5E-7"), "1.5e-7"),
        (JsonNumber("1e-5"), "0.00001"),
        ("1e-05", "1e-05"),
        (JsonNumber("1e2"), "100"),
        ("1e2", "1e2"),
        ("007", "007"),
        (True, "true"),
        (None, ""),
    ],
)
def test_a_value_of_any_type_becomes_one_cell(value: object, cell: str) -> None:
    expected = unchanged_reader("any", "jsonl", "csv")(value)
    assert released_reader("any", "jsonl", "csv")(cell) == expected
    others = ["x", "1.50e-7", "1.5e-07", "0100", " 7", "1E2", "100.0", "1e-5"]
    assert expected not in {released_reader("any", "jsonl", "csv")(other) for other in others}


# ---------------------------------------------------------------- CSV


CSV = "who,id,age,size,job\n"


def test_a_csv_record_is_read(tmp_path: Path) -> None:
    assert take(tmp_path, CSV + 'p,1, 40 ,.5,"x\ny"\n', "csv") == UsableRecord((40.0, 0.5), '"x\\ny"', "p")


@pytest.mark.parametrize(
    "line",
    [
        "p,1,40.5,0.5,x",
        "p,1,nan,0.5,x",
        "p,1,,0.5,x",
        "p,1,٤٠,0.5,x",
        "p,1,1e999,0.5,x",
        "p,1,40,9,x",
        ",1,40,0.5,x",
        "p,1,40,0.5",
        "p,1,40,0.5,x,y",
        'p,1,40,0.5,"x"y',
        "p,1,40,0.5,\udcff",
    ],
)
def test_a_csv_record_that_does_not_fit_is_unusable(tmp_path: Path, line: str) -> None:
    assert take(tmp_path, CSV + line + "\n", "csv") is None


# ---------------------------------------------------------------- keys of confidential values


@pytest.mark.parametrize(
    ("kind", "texts", "distinct"),
    [
        ("any", ('"007"', "7", '"+7"', '"7."', '".7"'), 5),
        ("any", ("true", "false", '"true"', "1", "0"), 4),
        ("any", ('"\\u200b"', "null", '"\\u00a0\\u200b"'), 1),
        ("any", ('"\\uff11"', "1", '"1\\u200b"', '"+1"'), 2),
        ("any", ("9007199254740992", '"9007199254740993"'), 2),
        ("any", ('"1e999999999"', '"1e999999998"', '"1e99999999999999999999"', '"1e99999999999999999998"'), 4),
        ("string", ('"007"', '"7"', '"7.0"'), 3),
        ("string", ('"flu"', '"fl\\u200bu"', '"\\ufeffflu"', '"\\uff46lu"', '"\\u3000flu\\u200b "'), 1),
        ("boolean", ("true", "false", "null"), 3),
        ("json", ('{"a":1,"b":[true]}', '{"b":[true],"a":1}', '{"b":[false],"a":1}'), 2),
        ("json", ('["\\ufb02u"]', '["flu"]', '["flu\\u2060"]', '["Flu"]'), 2),
    ],
)
def test_spellings_of_one_value_have_one_key(kind: FieldType, texts: tuple[str, ...], distinct: int) -> None:
    read = key_reader(kind, ("",))
    assert len(set(map(read, texts))) == distinct


def test_every_text_that_stands_for_a_missing_value_is_the_same_value() -> None:
    read = key_reader("any", ("", "n/a", "99", "e\u0301"))
    texts = ("null", '""', '"n/a"', '" n/a "', "99", '"99.0"', '"\\u00e9"')
    assert [read(text) for text in texts] == [MISSING] * 7
    assert MISSING not in {read(text) for text in ('"N/A"', '"na"', "-99", "990", "false")}


# ---------------------------------------------------------------- fields of type json


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('[1, 2.50, "a\\u00e9\\n"]', '[1,2.5,"aé\\n"]'),
        ('{"b": {"x": [], "y": {}}, "a": null}', '{"b":{"x":[],"y":{}},"a":null}'),
        ("[100.0, 1e2, 100, 1e22, 1E-7, 0.00001, -0, -0.0]", "[100.0,100.0,100,1e22,1e-7,0.00001,0,-0.0]"),
        ("[123456789012345678901234567890]", "[123456789012345678901234567890]"),
        ("true", "true"),
        ("null", "null"),
        ('{"a": 1, "a": 2}', None),
        ('[{"a": 1, "\\u0061": 2}]', None),
        ('["\\ud800"]', None),
        ("[1e400]", None),
    ],
)
def test_a_document_has_one_compact_text(text: str, canonical: str | None) -> None:
    assert document_reader("jsonl", "jsonl", 100)(json_document(text)) == canonical
    if canonical not in {None, "null"}:
        assert released_document_reader("jsonl")(json_document(text)) == canonical


def test_a_document_that_is_too_long_is_unusable() -> None:
    assert document_reader("jsonl", "jsonl", 4)(json_document('"é"')) == '"é"'
    assert document_reader("jsonl", "jsonl", 3)(json_document('"é"')) is None


@pytest.mark.parametrize(
    ("cell", "text"), [("", "null"), (" [1, 2]\t", '"[1,2]"'), ("[1", None), ("null", "null"), ('"a"', '"\\"a\\""')]
)
def test_a_cell_holds_the_text_of_a_document(cell: str, text: str | None) -> None:
    assert document_reader("csv", "csv", 100)(cell) == text


@pytest.mark.parametrize(("cell", "text"), [("", "null"), ("[1,2]", '"[1,2]"'), ("[1, 2]", None), ("null", None)])
def test_a_released_cell_has_no_other_spelling(cell: str, text: str | None) -> None:
    assert released_document_reader("csv")(cell) == text


# ---------------------------------------------------------------- envelopes and nested fields


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
