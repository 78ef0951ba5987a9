"""What is wrong with categories, times and missing values: the field and a reason, never the value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shoal.formats import RefusalCounter
from shoal.formats.csv import CsvDecoder
from shoal.formats.json import find_json_faults
from shoal.policy import Policy
from support.making import policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

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
        (NOMINAL, ["canary"], "a list or an object"),
        (NOMINAL, None, "null"),
        (NOMINAL, "", "empty"),
        (NOMINAL, "NA", "a value of missing_values"),
        (NOMINAL | GROUP, {"a": 1}, "a list or an object"),
        (ORDINAL, "canary", "not in its order"),
        (ORDINAL, 1, "not in its order"),
        (ICD, "canary", "not in the taxonomy"),
        (DATE, "2021-02-29", "not a time in ISO 8601"),
        (DATE | BOUNDS, "2021-01-01", "outside its bounds"),
        (DATE | {"unit": "s"}, "1", "not a number of seconds since 1970"),
        (DATE | {"unit": "ms"}, [1], "a list or an object"),
        (quasi() | GROUP, "canary", "not a finite number"),
        (quasi() | GROUP | {"integer": True}, 1.5, "not a whole number"),
        (quasi(), "NA", "a value of missing_values"),
        (quasi(), 99, "a value of missing_values"),
        (NOMINAL, 99, "a value of missing_values"),
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
        (DATE, "1.1.2020", "not a time in ISO 8601"),
        (DATE | BOUNDS, "2019-12-31", "outside its bounds"),
        (DATE | {"unit": "s"}, "2020-01-01", "not a number of seconds since 1970"),
        (quasi() | GROUP, "canary", "not a finite number"),
        (quasi(), "NA", "a value of missing_values"),
        (quasi(), "99.0", "a value of missing_values"),
        (DATE | {"unit": "s"}, " 099", "a value of missing_values"),
    ],
)
def test_faults_of_csv(attribute: dict[str, Any], cell: str, reason: str) -> None:
    faults = CsvDecoder(policy_with(attribute), ["note", "x"]).explain(["1", cell])
    assert [fault.location for fault in faults] == [f", column 2 (x): {reason}"]


@pytest.mark.parametrize("attribute", [NOMINAL, ORDINAL, ICD, DATE, quasi()])
def test_a_value_that_may_be_missing_is_no_fault(attribute: dict[str, Any]) -> None:
    policy = policy_with(attribute | GROUP)
    for record in ({"x": None, "note": 1}, {"x": "", "note": 1}, {"x": "NA", "note": 1}, {"note": 1}):
        assert [fault.kind for fault in find_json_faults(policy, json.dumps(record).encode())] == [UNKNOWN]
    assert [fault.kind for fault in CsvDecoder(policy, ["x", "note"]).explain(["NA", "1"])] == [UNKNOWN]


def test_a_subject_that_is_a_missing_value_is_a_fault() -> None:
    policy = policy_of(
        {"id": {"role": "identifier", "subject": True, "type": "any"}, "x": quasi()}, missing_values=["", "NA"]
    )
    expected = ["id: not a valid subject"]
    assert [fault.kind for fault in find_json_faults(policy, b'{"id":"NA","x":1}')] == expected
    assert [fault.kind for fault in CsvDecoder(policy, ["id", "x"]).explain([" NA ", "1"])] == expected


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
    ],
)
def test_each_fault_has_a_remedy(attribute: dict[str, Any], value: Any, remedy: str) -> None:
    counter = RefusalCounter()
    message = json.dumps({"x": value, "note": 1}).encode()
    counter.add("invalid", find_json_faults(policy_with(attribute), message))
    assert counter.remedy() == remedy


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
