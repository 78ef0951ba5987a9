from __future__ import annotations

import io
from typing import Any

import pytest
from shoal.formats import Reason
from shoal.formats.csv import CsvCells, CsvDecoder, CsvReader
from support.making import SUBJECT, policy_of, quasi, unchanged_field, usual_policy

pytestmark = pytest.mark.unit

UNDECODABLE, INVALID, TOO_LARGE = Reason.UNDECODABLE, Reason.INVALID, Reason.TOO_LARGE
GOOD = ["p1", "t1", "42", "1234.5", "flu", "7"]


def changed(index: int, cell: str) -> CsvCells:
    return [*GOOD[:index], cell, *GOOD[index + 1 :]]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (None, UNDECODABLE),
        ([], INVALID),
        (GOOD[:-1], INVALID),
        ([*GOOD, ""], INVALID),
        (changed(0, ""), INVALID),
        (changed(0, " \u2003"), INVALID),
        (changed(2, ""), INVALID),
        (changed(2, "42.5"), INVALID),
        (changed(3, "１"), INVALID),
        (changed(3, "1e400"), INVALID),
        (changed(4, "x" * 2000), TOO_LARGE),
    ],
)
def test_a_bad_record_does_not_affect_the_others(cells: CsvCells, reason: Reason) -> None:
    block = CsvDecoder(usual_policy(), max_bytes=1000).decode([GOOD, cells, GOOD, GOOD, cells])
    assert block.index.tolist() == [0, 2, 3]
    assert block.rejected == [(1, reason), (4, reason)]
    assert block.values.tolist() == [[42.0, 1234.5]] * 3
    assert block.unchanged_fields == [b"flu,7"] * 3


@pytest.mark.parametrize(("index", "cell"), [(1, ""), (1, "x" * 5000), (2, "42.0"), (2, "4.2e1"), (4, ""), (5, "")])
def test_valid_cells(index: int, cell: str) -> None:
    assert len(CsvDecoder(usual_policy(), max_bytes=1000).decode([changed(index, cell)])) == 1


def test_passthrough_cells_of_another_type_are_invalid() -> None:
    policy = policy_of(
        {"x": quasi(), "n": unchanged_field("integer"), "b": unchanged_field("boolean"), "s": unchanged_field("any")}
    )
    cells: list[CsvCells] = [["1", "1", "true", "a"], ["1", "1.5", "", "b"], ["1", "", "yes", "c"], ["1", "", "", "d"]]
    block = CsvDecoder(policy).decode(cells)
    assert block.rejected == [(1, INVALID), (2, INVALID)]
    assert block.unchanged_fields == [b"1,true,a", b",,d"]


def test_columns_are_found_by_their_names() -> None:
    policy = policy_of({"x": quasi(), "y": unchanged_field(), "who": SUBJECT}, undeclared="drop")
    decoder = CsvDecoder(policy, ["more", "who", "y", "x"])
    block = decoder.decode([["?", "p", "kept", "5"]])
    assert block.values.tolist() == [[5.0]]
    assert block.unchanged_fields == [b"kept"]
    assert block.subjects == CsvDecoder(policy).decode([["5", "kept", "p"]]).subjects


def test_blocks_without_accepted_records() -> None:
    nothing: list[list[CsvCells]] = [[], [None, []]]
    for cells in nothing:
        block = CsvDecoder(usual_policy()).decode(cells)
        assert block.values.shape == (0, 2)
        assert len(block) == len(block.subjects) == 0
        assert [index for index, _ in block.rejected] == list(range(len(cells)))


TEXTS: dict[str, dict[str, Any]] = {
    "id": {"role": "identifier", "subject": True},
    "sex": {"role": "quasi_identifier", "scale": "nominal"},
    "illness": unchanged_field("string"),
}
"""Attributes of which each accepts any text."""


def rejected(text: bytes, **more: Any) -> list[tuple[int, Reason]]:
    policy = policy_of(TEXTS, **more)
    reader = CsvReader(io.BytesIO(text), policy)
    return CsvDecoder(policy, reader.columns).decode([cells for part in reader for cells in part]).rejected


@pytest.mark.parametrize(
    ("header", "again"),
    [
        ("id,sex,illness", "id,sex,illness"),
        ("illness,id,sex", "illness,id,sex"),
        ('id,sex,"illness"', '"id",sex,illness'),
        ("id, sex,illness\t", "id,sex\t, illness"),
        ("\ufeffid,sex,illness", "id,sex,illness"),
        ("id,sex,illness", "\ufeffid,sex,illness"),
        ('"id","sex","illness"', '\ufeff"id","sex","illness"'),
    ],
)
def test_a_record_that_equals_the_header_is_invalid(header: str, again: str) -> None:
    assert rejected(f"{header}\na,f,flu\n{again}\nb,f,flu\n{again}".encode()) == [(1, INVALID), (3, INVALID)]


@pytest.mark.parametrize(
    "csv",
    [
        {"delimiter": ";"},
        {"delimiter": "tab", "quote": "'"},
        {"delimiter": "|", "escape": "backslash"},
        {"encoding": "utf-16"},
        {"encoding": "utf-16-be"},
        {"encoding": "utf-8-sig", "line_end": "crlf"},
        {"encoding": "cp1252", "line_end": "cr"},
        {"multiline": True},
    ],
)
def test_a_repeated_header_is_invalid_in_every_dialect(csv: dict[str, Any]) -> None:
    dialect = policy_of(TEXTS, csv=csv).csv
    mark = "\ufeff" if dialect.encoding.startswith("utf") else ""
    rows = [["id", "'sex'", "illness"], ["a", "f", "flu"], [f"{mark}'id'", "sex", "'illness'"], ["b", "f", "flu"]]
    lines = [dialect.delimiter.join(row).replace("'", dialect.quote) + dialect.line_end for row in rows]
    assert rejected("".join(lines).encode(dialect.encoding), csv=csv) == [(1, INVALID)]


@pytest.mark.parametrize(
    "cells",
    [
        *("id,illness,sex", "Id,sex,illness", "id,sex,ill ness", "id1,sex,illness", "id,sex,", "'id',sex,illness"),
        "x,sex,illness",
    ],
)
def test_a_record_that_differs_from_the_header_in_a_cell_is_accepted(cells: str) -> None:
    assert rejected(f"id,sex,illness\n{cells}\n".encode()) == []


def test_undeclared_columns_are_compared_with_the_header_too() -> None:
    text = b",id,sex,illness,longest name\n,id,sex,illness,longest name\n,id,sex,illness,1\n"
    assert rejected(text, undeclared="drop") == [(0, INVALID)]


def test_a_value_that_equals_the_name_of_the_only_column_is_invalid() -> None:
    policy = policy_of({"sex": {"role": "quasi_identifier", "scale": "nominal"}})
    assert CsvDecoder(policy).decode([["f"], ["sex"], ["sexes"]]).rejected == [(1, INVALID)]


def test_a_repeated_header_is_invalid_whatever_is_too_large() -> None:
    policy = policy_of(TEXTS)
    block = CsvDecoder(policy, max_bytes=5).decode([["id", "sex", "illness"], ["a", "sex", "illness"]])
    assert block.rejected == [(0, INVALID), (1, TOO_LARGE)]
