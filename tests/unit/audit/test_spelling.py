from __future__ import annotations

from pathlib import Path

import pytest
from oracle.naive_release import load_policy
from shoal.audit.reading import File, released_records
from shoal.audit.spelling import CsvSpelling, JsonSpelling, csv_line
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
    ("text", "kept"),
    [
        ('{"age":1.60,"a":"é","n":1,"b":true}', True),
        ('{"a":0.1,"n":-7,"b":null}', True),
        ('{"a":1e-7,"n":0.00001,"b":false}', True),
        ('{"a":10000000000000000,"n":-2.5e-9}', True),
        ('{"a":1e-07}', False),
        ('{"a":2e-09}', False),
        ('{"n":1e-05}', False),
        ('{"n":0.000001}', False),
        ('{"a":1e16}', False),
        ('{"a":1e+16}', False),
        ('{"a":100.0,"n":100}', False),
        ('{"a":"\\u0000\\n"}', True),
        ('{"a":1e2}', False),
        ('{"a":1E16}', False),
        ('{"a":0.10}', False),
        ('{"a":1.00}', False),
        ('{"a":-0}', False),
        ('{"a":"\\u00e9"}', False),
        ('{"a":"\\/"}', False),
        ('{"\\u0061":1}', False),
        ('{"a": 1}', False),
        ('{"a":1,"n":1} ', False),
        ('{"a":[]}', False),
        ('{"a":1e999}', False),
    ],
)
def test_json_has_one_text(tmp_path: Path, text: str, kept: bool) -> None:  # noqa: FBT001
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    ((_, row, record),) = released_records(File.of(path, CsvDialect()), wrapped=False)
    assert record is not None
    assert JsonSpelling(load_policy(tmp_path, POLICY)).is_kept(row, record) is kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("1.60,x,1,true", True),
        ("1.60,,,", True),
        ('1.60,"a,b",0.5,false', True),
        ('1.60,"a""b",0.00001,false', True),
        ('1.60,"a\nb",1e-7,false', True),
        ("1.60, x,1,true", True),
        ('1.60,"x",1,true', False),
        ('"1.60",x,1,true', False),
        ("1.60,x,1e-07,true", False),
        ("1.60,x,1.0,true", False),
        ("1.60,x,1,True", False),
        ("1.60,x,1,1", False),
        ("1.60,x,01,true", False),
        ("1.60,x,+1,true", False),
        ("1.60,x, 1,true", False),
        ("1.60,x,1e2,true", False),
        ("1.60,x,-0,true", False),
        ("1.60,x,one,true", False),
        ("1.60,x,1,true\r", False),
    ],
)
def test_csv_has_one_text(tmp_path: Path, text: str, kept: bool) -> None:  # noqa: FBT001
    path = tmp_path / "a.csv"
    path.write_bytes(f"age,a,n,b\n{text}\n".encode())
    ((_, row, record),) = released_records(File.of(path, CsvDialect()), wrapped=False)
    assert record is not None
    assert CsvSpelling(load_policy(tmp_path, POLICY)).is_kept(row, record) is kept


def test_a_line_is_quoted_where_it_must_be() -> None:
    assert csv_line(["a", 'b"', "c,d", "", "e\r"], CsvDialect()) == 'a,"b""","c,d",,"e\r"'
