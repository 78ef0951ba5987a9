"""Unchanged fields of type ``json`` in the audit."""

from __future__ import annotations

import pytest
from shoal.audit.fields import document_reader, released_document_reader
from shoal.audit.reading import json_document

pytestmark = pytest.mark.unit


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
