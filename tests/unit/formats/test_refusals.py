"""What is wrong with refused records, their counts and remedies: field and reason, never a value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shoal.formats import RecordFault, RefusalCounter, is_notable
from shoal.formats import faults as module
from shoal.formats.csv import CsvDecoder
from shoal.formats.json import find_json_faults
from shoal.policy import Policy
from shoal.policy.schema import Document
from support.making import policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit


def policy(**more: object) -> Policy:
    attributes = {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "out_of_bounds": "quarantine"},
        "pay": {"role": "quasi_identifier", "bounds": [0, 1000]},
        "ill": {"role": "confidential", "type": "number"},
    }
    content = {"attributes": attributes, "privacy": {"k": 3}, "stream": {"delta": 10}} | more
    return Policy.from_document(Document.model_validate(content))


NOT_CSV = (
    "invalid quotation marks or bytes for the CSV dialect of the policy, or a cell of more than 131,072 characters"
)
HEADER = ["ill", "age", "pay", "who"]


@pytest.mark.parametrize(
    ("cells", "locations"),
    [
        (
            ["canary", "", "x", " "],
            [
                ", column 4 (who): not a valid subject",
                ", column 2 (age): empty",
                ", column 3 (pay): not a finite number",
                ", column 1 (ill): not of type number",
            ],
        ),
        (["1", "1.5", "2000", "p"], [", column 2 (age): not a whole number"]),
        (["1", "120", "", "p"], [", column 2 (age): outside its bounds", ", column 3 (pay): empty"]),
        (["1", "2"], [": 2 cells, but the header has 4"]),
        (["ill", "age", " pay", "who"], [": equals the header"]),
        (None, [": " + NOT_CSV]),
    ],
)
def test_all_faults_of_a_csv_record_are_found(cells: list[str] | None, locations: list[str]) -> None:
    assert [fault.location for fault in CsvDecoder(policy(), HEADER).explain(cells)] == locations


@pytest.mark.parametrize(
    ("record", "kinds"),
    [
        (
            {"who": None, "age": None, "pay": "canary", "ill": [1]},
            ["who: not a valid subject", "age: null", "pay: not a finite number", "ill: a list or an object"],
        ),
        ({"who": "p", "pay": 1}, ["age: missing", "ill: missing"]),
        (
            {"who": "p", "age": 1, "pay": 1, "canary": 1},
            ["ill: missing", "a field that the policy does not declare"],
        ),
        ({"who": "p", "age": 1, "__faust": {"ns": "x"}, "pay": None, "ill": None}, ["pay: null"]),
        ({"who": "who", "age": "age", "pay": "pay", "ill": "ill"}, ["each field has its own name as its value"]),
    ],
)
def test_all_faults_of_a_json_record_are_found(record: dict[str, object], kinds: list[str]) -> None:
    assert [fault.kind for fault in find_json_faults(policy(), json.dumps(record).encode())] == kinds


def test_kinds_are_counted_and_the_most_frequent_comes_first() -> None:
    counter = RefusalCounter()
    for fault in (
        RecordFault("not JSON"),
        RecordFault("null", "age"),
        RecordFault("null", "age", 3),
        RecordFault("another number of cells than the header", detail="7 cells, but the header has 2"),
    ):
        counter.add("invalid", [fault])
    counter.add("too_large", [])
    assert counter.total == 5
    assert counter.texts(7874) == [
        "2 of 7,874 invalid: age: null",
        "1 of 7,874 invalid: another number of cells than the header",
        "1 of 7,874 invalid: not JSON",
        "1 of 7,874 too_large",
    ]


def test_each_field_at_fault_is_counted_once_for_each_record() -> None:
    counter = RefusalCounter()
    counter.add("invalid", [RecordFault("empty", "age", 1), RecordFault("empty", "pay", 2)])
    counter.add("invalid", [RecordFault("empty", "pay", 2)] * 2)
    assert counter.total == 2
    assert counter.texts(9) == ["2 of 9 invalid: pay: empty", "1 of 9 invalid: age: empty"]


def test_the_remedy_is_that_of_the_most_frequent_kind_and_names_its_fields() -> None:
    counter = RefusalCounter()
    assert counter.remedy() == ""
    for reason, field, count in (("null", "z", 2), ("not of type integer", "ward", 3), ("not of type integer", "a", 1)):
        counter.add("invalid", [RecordFault(reason, field)], count)
    assert counter.remedy() == "ward, a: declare the type that the values have, or type: any"


def test_kinds_beyond_the_tenth_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KINDS", 1)
    counter = RefusalCounter()
    for name in "abbc":
        counter.add("invalid", [RecordFault("null", name)])
    assert counter.texts(9) == ["2 of 9 invalid: b: null", "2 more kinds"]
    monkeypatch.setattr(module, "MAX_KINDS", 2)
    assert counter.texts(9)[2:] == ["1 more kind"]


@pytest.mark.parametrize(
    ("records_in", "released", "refused", "expected"),
    [(0, 0, 0, False), (100, 99, 1, False), (100, 98, 2, True), (10, 0, 0, True)],
)
def test_an_empty_release_and_more_than_one_refused_record_in_a_hundred_are_notable(
    records_in: int, released: int, refused: int, *, expected: bool
) -> None:
    assert is_notable(records_in, released, refused) is expected


def test_a_number_beyond_float64_is_named() -> None:
    message = b'{"who": "p", "age": 1, "pay": 1, "ill": 1e999}'
    assert [fault.location for fault in find_json_faults(policy(), message)] == [", field ill: not a finite number"]


NOMINAL = {"role": "quasi_identifier", "scale": "nominal"}
ORDINAL = {"role": "quasi_identifier", "scale": "ordinal", "order": ["low", "high"]}
ICD = NOMINAL | {"taxonomy": {"A": ["A1", "A2"]}, "unknown": "quarantine"}
DATE = {"role": "quasi_identifier", "scale": "time"}
GROUP = {"missing": "group"}
BOUNDS = {"bounds": ["2020-01-01", "2020-12-31"], "out_of_bounds": "quarantine"}
UNKNOWN = "the record does not fit the policy"


def policy_with(attribute: dict[str, Any]) -> Policy:
    return policy_of({"x": attribute, "note": unchanged_field()}, missing_values=["", "NA", "99", "true"])


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        (NOMINAL, 1.5, "not a text, truth value or whole number"),
        (NOMINAL, None, "null"),
        (NOMINAL, "NA", "a value of missing_values"),
        (NOMINAL | GROUP, {"a": 1}, "a list or an object"),
        (ORDINAL, "canary", "not in its order"),
        (ICD, "canary", "not in the taxonomy"),
        (DATE, "2021-02-29", "not a time in ISO 8601"),
        (DATE | BOUNDS, "2021-01-01", "outside its bounds"),
        (DATE | {"unit": "s"}, "1", "not a number of seconds since 1970"),
        (DATE | {"unit": "ms"}, [1], "a list or an object"),
        (quasi() | GROUP, "canary", "not a finite number"),
        (quasi() | GROUP | {"integer": True}, 1.5, "not a whole number"),
        (quasi(), 99, "a value of missing_values"),
        (ICD, True, "a value of missing_values"),
        (DATE | {"unit": "s"}, 99.0, "a value of missing_values"),
        (quasi(0, 110) | {"out_of_bounds": "quarantine"}, 120, "outside its bounds"),
    ],
)
def test_faults_of_json(attribute: dict[str, Any], value: Any, reason: str) -> None:
    message = json.dumps({"x": value, "note": 1}).encode()
    assert [fault.kind for fault in find_json_faults(policy_with(attribute), message)] == [f"x: {reason}"]


@pytest.mark.parametrize(
    ("attribute", "cell", "reason"),
    [
        (NOMINAL, " ", "empty"),
        (NOMINAL, " NA", "a value of missing_values"),
        (ORDINAL, "canary", "not in its order"),
        (ICD, "canary", "not in the taxonomy"),
        (DATE, "1.1.2020", "a date in another form than ISO 8601"),
        (DATE | BOUNDS, "2019-12-31", "outside its bounds"),
        (DATE | {"unit": "s"}, "2020-01-01", "a text of a time, not a number as unit says"),
        (quasi(), "99.0", "a value of missing_values"),
        (DATE | {"unit": "s"}, " 099", "a value of missing_values"),
    ],
)
def test_faults_of_csv(attribute: dict[str, Any], cell: str, reason: str) -> None:
    faults = CsvDecoder(policy_with(attribute), ["note", "x"]).explain(["1", cell])
    assert [fault.location for fault in faults] == [f", column 2 (x): {reason}"]


@pytest.mark.parametrize("attribute", [NOMINAL, ORDINAL | {"order": [1, 2]}, ICD | {"unknown": "root"}])
def test_a_whole_number_with_a_point_is_no_fault(attribute: dict[str, Any]) -> None:
    message = b'{"x":1.0}'
    assert [fault.kind for fault in find_json_faults(policy_with(attribute), message)] == ["note: missing"]


@pytest.mark.parametrize(
    ("attribute", "value", "remedy"),
    [
        (ORDINAL, "canary", "x: add the category to order, or correct the values"),
        (ICD, "canary", "x: add the category to the taxonomy, or set unknown: root"),
        (NOMINAL, 1.5, "x: write categories as texts, or set scale: numeric"),
        (DATE, "canary", "x: write times as 2026-07-14 or 2026-07-14T09:30:00Z, or set unit"),
        (DATE | {"unit": "s"}, "canary", "x: correct the values or the unit; leave unit out for times in ISO 8601"),
        (
            {"role": "quasi_identifier", "bounds": [0, 9]},
            "canary",
            "x: a quasi-identifier must be a number; if the field",
        ),
    ],
)
def test_each_fault_has_a_remedy(attribute: dict[str, Any], value: Any, remedy: str) -> None:
    counter = RefusalCounter()
    message = json.dumps({"x": value, "note": 1}).encode()
    counter.add("invalid", find_json_faults(policy_with(attribute), message))
    assert counter.remedy().startswith(remedy)


JSON_FIELD = {"role": "confidential", "type": "json", "max_bytes": 12}
NOT_JSON = (
    "codes: a value must be JSON (RFC 8259) with each name once in an object and no number beyond float64; correct the "
    "values"
)
LONG = "codes: raise max_bytes of the attribute, or shorten the values"


@pytest.mark.parametrize(
    ("text", "reason", "remedy"),
    [
        ('{"a":1,"a":2}', "not of type json", NOT_JSON),
        ("[1e999]", "not of type json", NOT_JSON),
        ('[ "canary-canary" ]', "longer than its max_bytes", LONG),
        ("[1,          2]", "", ""),
    ],
)
def test_faults_of_fields_of_type_json(text: str, reason: str, remedy: str) -> None:
    policy = policy_of({"x": quasi(), "codes": JSON_FIELD})
    expected = [f"codes: {reason}" if reason else UNKNOWN]
    faults = find_json_faults(policy, b'{"x":1,"codes":%b}' % text.encode())
    assert [fault.kind for fault in faults] == expected
    assert [fault.kind for fault in CsvDecoder(policy, ["codes", "x"]).explain([text, "1"])] == expected
    counter = RefusalCounter()
    counter.add("invalid", faults)
    assert counter.remedy() == (remedy or UNKNOWN)


def test_a_nested_field_of_type_json_has_its_fault() -> None:
    policy = policy_of({"x": quasi(), "codes": JSON_FIELD | {"from": 'a."b'}}, unwrap="debezium")
    message = b'{"before":null,"after":{"x":1,"a":{"\\"b":[1e999]}},"op":"c"}'
    assert [fault.kind for fault in find_json_faults(policy, message)] == ["codes: not of type json"]
