"""Section csv of a policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.policy import Policy
from support.policy_files import SOURCES, faults, with_sources

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "path", "line", "words"),
    [
        ("csv: {delimiter: '#'}", "csv.delimiter", 6, ""),
        ("csv: {encoding: utf-7}", "csv.encoding", 6, "cp1252"),
        ("csv:\n  decimal: ','", "csv.decimal", 7, "give another delimiter"),
        ("csv:\n  delimiter: ';'\n  decimal: ','\n  output: {delimiter: ','}", "csv.output.decimal", 9, "delimiter"),
        ("csv: {separator: ';'}", "csv.separator", 6, "unknown field"),
        ("csv: {output: {output: {}}}", "csv.output.output", 6, "unknown field"),
    ],
)
def test_invalid_dialects_are_refused(text: str, path: str, line: int, words: str, tmp_path: Path) -> None:
    found = faults(SOURCES.format(age="integer: true", ward="type: any") + text + "\n", tmp_path)
    assert {name: place for name, (place, _) in found.items()} == {path: line}
    assert words in found[path][1]


def test_the_output_inherits_the_dialect_of_the_input(tmp_path: Path) -> None:
    path = with_sources(tmp_path)
    usual = Policy.load(path)
    text = "csv: {delimiter: tab, encoding: cp1252, line_end: crlf, output: {encoding: utf-8}}\n"
    path.write_text(path.read_text() + text)
    policy = Policy.load(path)
    assert (policy.csv.delimiter, policy.csv.encoding, policy.csv.line_end) == ("\t", "cp1252", "\r\n")
    assert (policy.csv_output.delimiter, policy.csv_output.encoding, policy.csv_output.line_end) == (
        "\t",
        "utf-8",
        "\r\n",
    )
    assert policy.fingerprint == usual.fingerprint
    assert policy.resolved()["csv"]["output"]["encoding"] == "utf-8"
    assert "csv" not in usual.resolved()
