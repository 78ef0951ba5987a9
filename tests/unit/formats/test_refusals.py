"""Counts of refused records by reason and field."""

from __future__ import annotations

import json

import pytest
from shoal.formats import RecordFault, RefusalCounter, is_notable
from shoal.formats import faults as module
from shoal.formats.csv import CsvDecoder
from shoal.formats.json import find_json_faults
from shoal.policy import Policy
from shoal.policy.schema import Document

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
            ["ill: missing", "a field that the policy does not declare; declare it, or set undeclared: drop"],
        ),
        ({"who": "p", "age": 1, "__faust": {"ns": "x"}, "pay": None, "ill": None}, ["pay: null"]),
        ({"who": "who", "age": "age", "pay": "pay", "ill": "ill"}, ["each field has its own name as its value"]),
    ],
)
def test_all_faults_of_a_json_record_are_found(record: dict[str, object], kinds: list[str]) -> None:
    assert [fault.kind for fault in find_json_faults(policy(), json.dumps(record).encode())] == kinds


def test_a_number_beyond_float64_is_named() -> None:
    message = b'{"who": "p", "age": 1, "pay": 1, "ill": 1e999}'
    assert [fault.location for fault in find_json_faults(policy(), message)] == [", field ill: not a finite number"]


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


def test_kinds_beyond_the_tenth_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KINDS", 1)
    counter = RefusalCounter()
    for name in "abbc":
        counter.add("invalid", [RecordFault("null", name)])
    assert counter.texts(9) == ["2 of 9 invalid: b: null", "2 more kinds"]
    monkeypatch.setattr(module, "MAX_KINDS", 2)
    assert counter.texts(9)[2:] == ["1 more kind"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RecordFault("empty", "age"), "age: fill the values in, remove the records, or give the field another role"),
        (RecordFault("not of type integer", "ward"), "ward: declare the type that the values have, or type: any"),
        (
            RecordFault("not a finite number", "sex"),
            "sex: a quasi-identifier must be a number; if the field is a category",
        ),
        (RecordFault("not JSON"), "write each record as one JSON object (RFC 8259) in UTF-8, in a file on one line"),
        (
            RecordFault("not UTF-8, or nested too deeply"),
            "write the records in UTF-8, with objects and lists at most 64 deep",
        ),
        (
            RecordFault(NOT_CSV),
            "correct csv.quote, csv.escape and csv.encoding in the policy, or the lines of the file",
        ),
        (RecordFault("a field occurs twice; remove one of them"), "a field occurs twice; remove one of them"),
        (RecordFault("equals the header"), "remove the lines that repeat the header; a file that was"),
        (RecordFault("dated more than an hour ahead"), "dated more than an hour ahead"),
    ],
)
def test_the_remedy_for_the_most_frequent_kind_is_named(fault: RecordFault, words: str) -> None:
    counter = RefusalCounter()
    assert counter.remedy() == ""
    counter.add("invalid", [fault], 2)
    counter.add("undecodable", [RecordFault("null", "z")])
    assert counter.remedy().startswith(words)


def test_fields_with_the_same_fault_have_one_remedy() -> None:
    counter = RefusalCounter()
    for field, count in (("sex", 3), ("ward", 9), ("age", 1)):
        counter.add("invalid", [RecordFault("not a finite number", field)], count)
    counter.add("invalid", [RecordFault("empty", "pay")], 7)
    assert counter.remedy().startswith("ward, sex, age: a quasi-identifier must be a number")


@pytest.mark.parametrize(
    ("records_in", "released", "refused", "expected"),
    [(0, 0, 0, False), (100, 99, 1, False), (100, 98, 2, True), (10, 0, 0, True)],
)
def test_an_empty_release_and_more_than_one_refused_record_in_a_hundred_are_notable(
    records_in: int, released: int, refused: int, *, expected: bool
) -> None:
    assert is_notable(records_in, released, refused) is expected
