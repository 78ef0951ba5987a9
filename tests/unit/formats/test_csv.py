"""Decoding cells, repeated headers, and CSV dialects: what is read, refused and written."""

from __future__ import annotations

import io
from typing import Any

import pytest
from shoal.errors import ConfigError
from shoal.formats import CsvEncoder, Reason
from shoal.formats.csv import CsvCells, CsvDecoder, CsvReader
from shoal.policy import Policy
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
        (changed(0, " \u2003"), INVALID),
        (changed(2, ""), INVALID),
        (changed(2, "42.5"), INVALID),
        (changed(3, "１"), INVALID),
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


def test_columns_are_found_by_their_names() -> None:
    policy = policy_of({"x": quasi(), "y": unchanged_field(), "who": SUBJECT}, undeclared="drop")
    decoder = CsvDecoder(policy, ["more", "who", "y", "x"])
    block = decoder.decode([["?", "p", "kept", "5"]])
    assert block.values.tolist() == [[5.0]]
    assert block.unchanged_fields == [b"kept"]
    assert block.subjects == CsvDecoder(policy).decode([["5", "kept", "p"]]).subjects


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
    "csv", [{"encoding": "utf-16"}, {"delimiter": "tab", "quote": "'", "line_end": "cr"}, {"multiline": True}]
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


def test_a_value_that_equals_the_name_of_the_only_column_is_invalid() -> None:
    policy = policy_of({"sex": {"role": "quasi_identifier", "scale": "nominal"}})
    assert CsvDecoder(policy).decode([["f"], ["sex"], ["sexes"]]).rejected == [(1, INVALID)]


FIELDS = {
    "who": {"role": "identifier", "subject": True},
    "x": quasi(),
    "n": unchanged_field("number"),
    "t": unchanged_field("string"),
}


def policy(**csv: Any) -> Policy:
    return policy_of(FIELDS, csv=csv)


def read(policy: Policy, text: bytes) -> list[list[str] | None]:
    return [record for part in CsvReader(io.BytesIO(text), policy) for record in part]


def block_of(policy: Policy, text: bytes) -> Any:
    reader = CsvReader(io.BytesIO(text), policy)
    return CsvDecoder(policy, reader.columns).decode([record for part in reader for record in part])


def test_a_dialect_has_one_decimal_sign() -> None:
    text = b"who;x;n;t\na;1,5;-,25;1,5\nb;1.5;1;t\nc;1;1.5;t\nd;1.000,5;1;t\ne;;1;t\nf;1;;t\n"
    block = block_of(policy(delimiter=";", decimal=","), text)
    assert block.values.ravel().tolist() == [1.5, 1]
    assert block.rejected == [(1, Reason.INVALID), (2, Reason.INVALID), (3, Reason.INVALID), (4, Reason.INVALID)]
    encoder = CsvEncoder(policy(delimiter=";", decimal=","))
    assert encoder.encode_clusters([["1.5"], ["1"]], block.unchanged_fields, [0, 1, 2]) == [b"1,5;-0,25;1,5", b"1;;t"]
    assert block_of(policy(delimiter=";"), text).values.ravel().tolist() == [1.5, 1, 1]


def test_a_missing_subject_with_a_decimal_comma_is_named_as_it_is_read() -> None:
    lacking = policy_of(FIELDS, csv={"delimiter": ";", "decimal": ","}, missing_values=["", "-1.5"])
    decoder, cells = CsvDecoder(lacking), ["-1,50", "1", "", ""]
    assert decoder.decode([cells]).rejected == [(0, Reason.INVALID)]
    assert [fault.kind for fault in decoder.explain(cells)] == ["who: not a valid subject"]


def test_a_record_that_the_output_encoding_cannot_represent_is_rejected() -> None:
    dialect_policy = policy(output={"encoding": "cp1252"})
    block = block_of(dialect_policy, "who,x,n,t\na,1,2,é\nb,1,2,日\nc,1,2,€\n".encode())
    assert block.rejected == [(1, Reason.INVALID)]
    assert len(block.unchanged_fields) == 2
    with pytest.raises(ConfigError, match=r"csv\.encoding: cp1252 cannot represent .* attributes\.日; .*csv\.output"):
        CsvEncoder(policy_of({**FIELDS, "日": unchanged_field()}, csv={"encoding": "cp1252"}))


@pytest.mark.parametrize(
    ("encoding", "bad"),
    [("utf-8", b"\xff"), ("cp1252", b"\x81"), ("utf-16-le", b"\x00\xd8"), ("utf-16-be", b"\xdc\x00")],
)
def test_invalid_bytes_affect_their_own_record_only(encoding: str, bad: bytes) -> None:
    dialect_policy, good = policy(encoding=encoding), "who,x,n,t\na,1,2,t\n".encode(encoding)
    text = good + "b,1,2,".encode(encoding) + bad + "\nc,1,2,t\n".encode(encoding)
    assert read(dialect_policy, text) == [["a", "1", "2", "t"], None, ["c", "1", "2", "t"]]
