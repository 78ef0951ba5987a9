from __future__ import annotations

import json
from pathlib import Path

import pytest
from oracle.naive_release import POLICY as NAIVE_POLICY
from oracle.naive_release import broken, load_policy, make_release
from shoal.audit.originals import csv_line
from shoal.audit.reading import InputFile, released_records
from shoal.audit.releases import CanonicalCells, CanonicalRows
from shoal.policy import CsvDialect

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  who: {role: identifier, subject: true}
  age: {role: quasi_identifier, bounds: [0, 110], resolution: 0.05}
  a:   {role: other, publish_unchanged: true}
  n:   {role: other, type: number, publish_unchanged: true}
  b:   {role: other, type: boolean, publish_unchanged: true}
privacy: {k: 2}
stream: {delta: 20}
"""


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        *(('{"age":1.60,"a":"é","n":1,"b":true}', True), ('{"a":0.1,"n":-7,"b":null}', True)),
        *(('{"a":1e-7,"n":0.00001,"b":false}', True), ('{"a":10000000000000000,"n":-2.5e-9}', True)),
        *(('{"a":1e-07}', False), ('{"a":2e-09}', False), ('{"n":1e-05}', False), ('{"n":0.000001}', False)),
        *(('{"a":1e16}', False), ('{"a":1e+16}', False), ('{"a":100.0,"n":100}', False), ('{"a":"\\u0000\\n"}', True)),
        *(('{"a":1e2}', False), ('{"a":1E16}', False), ('{"a":0.10}', False), ('{"a":1.00}', False)),
        *(('{"a":-0}', False), ('{"a":"\\u00e9"}', False), ('{"a":"\\/"}', False), ('{"\\u0061":1}', False)),
        *(('{"a": 1}', False), ('{"a":1,"n":1} ', False), ('{"a":[]}', False), ('{"a":1e999}', False)),
    ],
)
def test_a_json_row_has_one_canonical_form(tmp_path: Path, text: str, canonical: bool) -> None:  # noqa: FBT001
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    ((_, row, record, _),) = released_records(InputFile.of(path, CsvDialect()), is_export=False)
    assert record is not None
    assert (CanonicalRows(load_policy(tmp_path, POLICY)).text(record) == row) is canonical


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        *(("1.60,x,1,true", True), ("1.60,,,", True), ('1.60,"a,b",0.5,false', True)),
        *(('1.60,"a""b",0.00001,false', True), ('1.60,"a\nb",1e-7,false', True), ("1.60, x,1,true", True)),
        *(('1.60,"x",1,true', False), ('"1.60",x,1,true', False), ("1.60,x,1e-07,true", False)),
        *(("1.60,x,1.0,true", False), ("1.60,x,1,True", False), ("1.60,x,1,1", False), ("1.60,x,01,true", False)),
        *(("1.60,x,+1,true", False), ("1.60,x, 1,true", False), ("1.60,x,1e2,true", False), ("1.60,x,-0,true", False)),
        *(("1.60,x,one,true", False), ("1.60,x,1,true\r", False)),
    ],
)
def test_a_csv_row_has_one_canonical_form(tmp_path: Path, text: str, canonical: bool) -> None:  # noqa: FBT001
    path = tmp_path / "a.csv"
    path.write_bytes(f"age,a,n,b\n{text}\n".encode())
    ((_, row, record, _),) = released_records(InputFile.of(path, CsvDialect()), is_export=False)
    assert record is not None
    assert (CanonicalCells(load_policy(tmp_path, POLICY)).text(record) == row) is canonical


def test_only_cells_that_need_quotes_are_quoted() -> None:
    assert csv_line(["a", 'b"', "c,d", "", "e\r"], CsvDialect()) == 'a,"b""","c,d",,"e\r"'


@pytest.mark.parametrize(("one", "other"), [("1.5e-7", "1.5e-07"), ("100", "100.0"), ("10000000000000000", "1e16")])
def test_a_number_in_another_form_breaks_the_spelling_check(tmp_path: Path, one: str, other: str) -> None:
    naive = make_release(tmp_path, 60)
    for record in naive.records:
        record["ward"] = float(one)
    naive.regenerate()
    naive.rows = [[row.replace(json.dumps(float(one)), one) for row in rows] for rows in naive.rows]
    assert naive.verify().exit_code == 0
    naive.rows[3][0] = naive.rows[3][0].replace(one, other)
    assert "spelling" in broken(naive.verify())


def test_rows_of_a_cluster_are_equal_in_every_byte_of_their_quasi_identifiers(tmp_path: Path) -> None:
    naive = make_release(tmp_path, 60)
    naive.policy = NAIVE_POLICY.replace("resolution: 0.05", "resolution: 0")
    for record in naive.records:
        record["dose"] = 2e-9
    naive.regenerate()
    naive.rows = [[row.replace('"dose":0.00', '"dose":2e-09') for row in rows] for rows in naive.rows]
    assert naive.verify().exit_code == 0
    naive.rows[3][0] = naive.rows[3][0].replace("2e-09", "2e-9")
    assert broken(naive.verify()) >= {"grid", "nothing_else", "together"}
