"""CSV files as cells, and rows of Parquet files."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from oracle.naive_release import load_policy
from pyarrow import parquet
from shoal.audit.originals import read_originals
from shoal.audit.reading import (
    InputFile,
    original_header,
    original_records,
    released_header,
    released_records,
)
from shoal.errors import InputError
from shoal.policy import CsvDialect

pytestmark = pytest.mark.unit


PLAIN = CsvDialect()


def table(folder: Path, text: str) -> Path:
    path = folder / "a.csv"
    path.write_bytes(text.encode())
    return path


def originals(path: Path, dialect: CsvDialect = PLAIN) -> list[object]:
    return [one.record for one in original_records(InputFile.of(path, dialect))]


def released(path: Path) -> list[tuple[int, str, object]]:
    return [one[:3] for one in released_records(InputFile.of(path, PLAIN), is_export=False)]


def test_csv_records_are_numbered_without_the_header(tmp_path: Path) -> None:
    path = table(tmp_path, '\ufeffa,b\r\n1,"x\ny"\r\n\r\n2\n3,"x"y\n4,z')
    assert originals(path) == [
        {"a": "1", "b": "x\ny"},
        None,
        None,
        None,
        {"a": "4", "b": "z"},
    ]


@pytest.mark.parametrize(
    ("header", "again"),
    [
        ("id,sex,illness", "id,sex,illness"),
        ('id,sex,"illness"', '"id",sex,illness'),
        ("id, sex,illness\t", "id,sex\t, illness"),
        ("\ufeffid,sex,illness", "id,sex,illness"),
        ("id,sex,illness", "\ufeffid,sex,illness"),
        ('"id","sex","illness"', '\ufeff"id","sex","illness"'),
        (",id", ",id"),
        ("id", "id"),
    ],
)
def test_a_row_that_equals_the_header_is_no_record(tmp_path: Path, header: str, again: str) -> None:
    path = table(tmp_path, f"{header}\n{again}\n{'x,' * header.count(',')}x\n{again}\n")
    assert [one is None for one in originals(path)] == [True, False, True]


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (CsvDialect(delimiter=";", quote="'"), "id;sex\n\ufeff'id';'sex'\n"),
        (CsvDialect(delimiter="\t", escape="backslash"), 'id\tsex\n"id"\t"sex"\n'),
        (CsvDialect(encoding="utf-16"), "id,sex\n\ufeffid,sex\n"),
        (CsvDialect(encoding="cp1252", line_end="\r"), "id,sex\rid,sex\r"),
    ],
)
def test_a_row_that_equals_the_header_is_no_record_in_every_dialect(
    tmp_path: Path, dialect: CsvDialect, text: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(dialect.encoding))
    assert originals(path, dialect) == [None]


@pytest.mark.parametrize(
    "cells", ["id,illness,sex", "Id,sex,illness", "id1,sex,illness", "id,sex,", "'id',sex,illness", "x,sex,illness"]
)
def test_a_row_that_differs_from_the_header_in_a_cell_is_a_record(tmp_path: Path, cells: str) -> None:
    path = table(tmp_path, f"id,sex,illness\n{cells}\n")
    assert None not in originals(path)


def test_a_released_row_may_equal_the_header(tmp_path: Path) -> None:
    assert released(table(tmp_path, "sex,ill\nsex,ill\n")) == [(0, "sex,ill", {"sex": "sex", "ill": "ill"})]


def test_the_last_line_feed_is_no_record_if_lines_end_with_carriage_returns(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b\r\n1,2\r\n3,4\r\n")
    assert originals(path, CsvDialect(line_end="\r")) == [None, None]


def test_a_released_row_keeps_its_text(tmp_path: Path) -> None:
    path = table(tmp_path, 'a,b\n1,"x\ny"\n"1",z\r\n')
    assert [text for _, text, _ in released(path)] == ['1,"x\ny"', '"1",z\r']


def test_headers_are_read_or_refused(tmp_path: Path) -> None:
    assert original_header(table(tmp_path, "a,b\n"), PLAIN) == ["a", "b"]
    assert released_header(table(tmp_path, ""), PLAIN) is None
    assert released_header(table(tmp_path, '"a",b\n'), PLAIN) == ('"a",b', ["a", "b"])
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(table(tmp_path, ""), PLAIN)
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(table(tmp_path, "\n"), PLAIN)
    with pytest.raises(InputError, match=r"line 1: a column name is repeated"):
        original_header(table(tmp_path, "a,a\n"), PLAIN)
    with pytest.raises(InputError, match=r"line 1: the header is not CSV in utf-8"):
        released_header(table(tmp_path, '"a"b\n'), PLAIN)


def test_blanks_around_declared_names_are_ignored(tmp_path: Path) -> None:
    path = table(tmp_path, " a\t, b, c \n1,2,3\n")
    declared = frozenset({"a", " b"})
    assert original_header(path, PLAIN, declared) == ["a", " b", " c "]
    (one,) = original_records(InputFile(path, "csv", PLAIN, declared))
    assert one.record == {"a": "1", " b": "2", " c ": "3"}
    with pytest.raises(InputError, match="repeated"):
        original_header(table(tmp_path, "a, a\n"), PLAIN, declared)


def test_rows_below_repeated_column_names_are_no_records(tmp_path: Path) -> None:
    path = table(tmp_path, "a,a\n1,2\n")
    assert released(path) == [(0, "1,2", None)]


INFINITY = """
attributes:
  age:  {role: quasi_identifier, bounds: [0, 110], missing: group}
  when: {role: quasi_identifier, scale: time, unit: s, bounds: [0, 110], missing: group}
  sex:  {role: quasi_identifier, scale: nominal, missing: group}
  ward: {role: steering, scale: ordinal, order: [1, 2], missing: group}
  note: {role: confidential, type: number}
subject: every_record
steering: {by: [{attribute: ward, weight: 1}]}
privacy: {k: 2}
"""


@pytest.mark.parametrize(
    ("column", "is_usable"), [("age", False), ("when", False), ("sex", False), ("ward", False), ("note", True)]
)
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinity_in_parquet_is_no_missing_value(tmp_path: Path, column: str, value: float, *, is_usable: bool) -> None:
    names = ("age", "when", "sex", "ward", "note")
    path = tmp_path / "original.parquet"
    rows = {name: [1.0, math.nan, value if name == column else None] for name in names}
    parquet.write_table(pa.table({name: pa.array(values, pa.float64()) for name, values in rows.items()}), path)
    policy = load_policy(tmp_path, INFINITY)
    found = read_originals(policy, InputFile.of(path, policy.csv), "jsonl")
    assert [found.is_usable(index) for index in range(3)] == [True, True, is_usable]
