"""The parts of messages that attributes are read from, and the dialect of CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.policy import Policy
from support.policy_files import SOURCES, faults, load, with_sources

pytestmark = pytest.mark.unit


def test_attributes_can_be_read_from_every_message_part(tmp_path: Path) -> None:
    policy = Policy.load(with_sources(tmp_path, "from: 'header:age: of'", "from: timestamp"))
    assert [str(a.source) for a in policy.attributes] == ["key", "header:age: of", "timestamp"]
    assert [a.name for a in policy.envelope_attributes] == ["patient", "age", "ward"]
    assert policy.value_attributes == ()
    assert [about.get("from") for about in policy.resolved()["attributes"].values()] == [
        "key",
        "header:age: of",
        "timestamp",
    ]


def test_the_source_of_an_attribute_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    usual = Policy.load(with_sources(tmp_path))
    assert usual.fingerprint == Policy.load(with_sources(tmp_path, "integer: true, from: value")).fingerprint
    assert usual.fingerprint != Policy.load(with_sources(tmp_path, "integer: true, from: timestamp")).fingerprint


@pytest.mark.parametrize(
    ("age", "ward", "path", "words"),
    [
        ("from: headers", "type: any", "attributes.age.from", "key, timestamp, header:NAME or the path"),
        ("from: seen_at", "type: any", "attributes.age.from", "; give value.seen_at for this field"),
        ("from: 'header:'", "type: any", "attributes.age.from", "key, timestamp, header:NAME or the path"),
        ("from: 7", "type: any", "attributes.age.from", ""),
        ("from: key", "type: any", "attributes.age.from", "attributes.patient already"),
        ("from: 'header:a'", "from: 'header:a'", "attributes.ward.from", "attributes.age already"),
        ('from: "header:\\ud800"', "type: any", "attributes.age.from", "surrogate"),
        ("integer: true", "from: timestamp, type: string", "attributes.ward.type", "milliseconds"),
    ],
)
def test_invalid_sources_are_refused(age: str, ward: str, path: str, words: str, tmp_path: Path) -> None:
    ((found, (line, message)),) = faults(SOURCES.format(age=age, ward=ward), tmp_path).items()
    assert (found, line) == (path, 3 if "age" in path else 4)
    assert words in message


def test_a_timestamp_is_neither_subject_nor_confidential(tmp_path: Path) -> None:
    text = SOURCES.replace("from: key", "from: timestamp").format(age="integer: true", ward="type: any")
    found = faults(text, tmp_path)
    assert set(found) == {"attributes.patient.from"}
    text = SOURCES.format(age="integer: true", ward="from: timestamp").replace(
        "role: other, publish_unchanged: true", "role: confidential"
    )
    found = faults(text, tmp_path)
    assert set(found) == {"attributes.ward.role"}
    assert "quasi_identifier" in found["attributes.ward.role"][1]


@pytest.mark.parametrize(
    ("text", "path", "line", "words"),
    [
        ("csv: {delimiter: '#'}", "csv.delimiter", 6, ""),
        ("csv: {encoding: utf-7}", "csv.encoding", 6, "cp1252"),
        ("csv:\n  decimal: ','", "csv.decimal", 7, "give another delimiter"),
        ("csv:\n  delimiter: ';'\n  decimal: ','\n  output: {delimiter: ','}", "csv.output.decimal", 9, "delimiter"),
        ("csv: {separator: ';'}", "csv.separator", 6, "unknown field"),
        ("csv: {output: {output: {}}}", "csv.output.output", 6, "not allowed inside csv.output; remove it"),
        ("csv: {output: {multiline: true}}", "csv.output.multiline", 6, "not allowed inside csv.output; remove it"),
    ],
)
def test_invalid_dialects_are_refused(text: str, path: str, line: int, words: str, tmp_path: Path) -> None:
    found = faults(SOURCES.format(age="integer: true", ward="type: any") + text + "\n", tmp_path)
    assert {name: place for name, (place, _) in found.items()} == {path: line}
    assert words in found[path][1]


def test_the_output_inherits_the_dialect_of_the_input(tmp_path: Path) -> None:
    usual = Policy.load(with_sources(tmp_path))
    dialect = "csv: {delimiter: tab, encoding: cp1252, line_end: crlf, output: {encoding: utf-8}}\n"
    policy = load(SOURCES.format(age="integer: true", ward="type: any") + dialect, tmp_path)
    assert (policy.csv.delimiter, policy.csv.encoding, policy.csv.line_end) == ("\t", "cp1252", "\r\n")
    output = policy.csv_output
    assert (output.delimiter, output.encoding, output.line_end) == ("\t", "utf-8", "\r\n")
    assert policy.fingerprint == usual.fingerprint
    assert policy.resolved()["csv"]["output"]["encoding"] == "utf-8"
    assert "csv" not in usual.resolved()
