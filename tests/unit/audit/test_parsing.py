"""Files as records: JSON lines, exports, CSV and Parquet."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest
from oracle.naive_release import load_policy
from pyarrow import parquet
from shoal.audit import reading
from shoal.audit.originals import csv_line, read_originals
from shoal.audit.reading import (
    TOMBSTONE,
    InputFile,
    JsonNumber,
    byte_lines,
    is_ended,
    line_blocks,
    original_header,
    original_records,
    released_header,
    released_records,
)
from shoal.audit.releases import CanonicalCells, CanonicalRows
from shoal.errors import InputError
from shoal.policy import CsvDialect

pytestmark = pytest.mark.unit

ORIGINAL_EXPORT = frozenset({"value", "partition", "offset"})


def file(folder: Path, text: str, name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def csv_file(folder: Path, text: str) -> Path:
    return file(folder, text, "a.csv")


PLAIN = CsvDialect()


def originals(path: Path, exported: frozenset[str] | None = None) -> list[tuple[object, ...]]:
    """Partition, offset, record, and the envelope if there is one."""
    found = original_records(InputFile.of(path, PLAIN), exported)
    return [tuple(one)[: 4 if one.envelope else 3] for one in found]


def released(path: Path, *, is_export: bool = False) -> list[tuple[int, str, object]]:
    return [one[:3] for one in released_records(InputFile.of(path, PLAIN), is_export=is_export)]


def test_the_suffix_decides_the_form() -> None:
    forms = {"csv": "csv", "CSV": "csv", "jsonl": "jsonl", "json": "jsonl", "ndjson": "jsonl"}
    assert {suffix: InputFile.of(f"a.{suffix}", PLAIN).form for suffix in forms} == forms
    with pytest.raises(InputError, match=r"a\.ods: verify reads .*; convert"):
        InputFile.of("a.ods", PLAIN)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read: No such file"):
        list(byte_lines(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("limit", "text", "fault"),
    [
        ("_FREE_BYTES", b"{}\n" * 200_000, "is more than 200 times as large when uncompressed"),
        ("_MAX_LINE_BYTES", b"a" * 400_000, "has a line of more than 64 MiB when uncompressed"),
    ],
)
def test_a_compressed_file_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, text: bytes, fault: str
) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(text))
    assert sum(map(len, byte_lines(path))) == len(text.replace(b"\n", b""))
    monkeypatch.setattr(reading, limit, 1000)
    for read in (byte_lines, line_blocks):
        with pytest.raises(InputError, match=f"{fault}; uncompress it to a file, if you trust it"):
            list(read(path))


@pytest.mark.parametrize(
    ("value", "record"),
    [({"a": 1}, {"a": "1"}), ('{"a":1}', {"a": "1"}), ("x", None), (None, TOMBSTONE), (7, None), ([], None)],
)
def test_an_export_holds_a_record_or_its_text(tmp_path: Path, value: object, record: object) -> None:
    path = file(tmp_path, json.dumps({"partition": 2, "offset": 3, "value": value}))
    assert originals(path, ORIGINAL_EXPORT) == [(2, 3, record)]


def test_a_released_export_whose_value_is_an_object_must_be_made_again(tmp_path: Path) -> None:
    """An export that parses the messages hides how they are written."""
    path = file(tmp_path, '{"partition":1,"value":"{}"}\n{"partition":1,"value":{"a":1}}')
    with pytest.raises(InputError, match=r", line 2: value is an object; it must be the text of the message; export "):
        released(path, is_export=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "x",
            "line 2: not an export of exactly offset, partition, value .and headers, key, timestamp, topic",
        ),
        ('{"partition":0,"value":{}}', "line 2: not an export"),
        ('{"partition":0,"offset":"3","value":{}}', "line 2: offset must be an integer"),
        ('{"partition":0,"offset":3.0,"value":{}}', "line 2: offset must be an integer"),
        ('{"partition":null,"offset":3,"value":{}}', "line 2: partition must be an integer"),
        ('{"partition":0,"offset":9223372036854775808,"value":{}}', "line 2: offset must be an integer of at most 18"),
        ('{"partition":%s,"offset":3,"value":{}}' % ("9" * 5000), "line 2: partition must be an integer of at most 18"),
        ('{"partition":0,"offset":3,"timestamp":"x","value":{}}', "line 2: timestamp must be an integer"),
    ],
)
def test_a_line_that_is_not_of_an_export_is_refused_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = file(tmp_path, f'{{"partition":0,"offset":0,"value":{{}}}}\n{line}\n')
    with pytest.raises(InputError, match=message):
        originals(path, ORIGINAL_EXPORT)


def test_an_export_gives_key_headers_and_timestamp(tmp_path: Path) -> None:
    line = {"partition": 0, "offset": 3, "value": {}, "key": "p", "timestamp": 7}
    headers: list[tuple[object, object]] = [
        ([["a", "1"], ["b", None], ["c", "x"], ["c", "x"]], {"header:a": "1"}),
        ([["a", {"base64": "/w=="}], ["d", 7]], {}),
    ]
    for written, read in headers:
        path = file(tmp_path, json.dumps(line | {"headers": written}))
        assert originals(path, ORIGINAL_EXPORT) == [(0, 3, {}, {"key": "p", "timestamp": JsonNumber("7")} | read)]  # type: ignore[operator]
    nothing: dict[str, object] = {"key": None, "timestamp": -1, "headers": []}
    assert originals(file(tmp_path, json.dumps(line | nothing)), ORIGINAL_EXPORT) == [(0, 3, {})]


@pytest.mark.parametrize("headers", [{}, {"a": "1"}, "a", [["a"]], [["a", "1", "2"]], [{"a": "1"}], [[1, "1"]], None])
def test_headers_that_are_not_a_list_of_pairs_are_refused(tmp_path: Path, headers: object) -> None:
    path = file(tmp_path, json.dumps({"partition": 0, "offset": 3, "value": {}, "headers": headers}))
    with pytest.raises(InputError, match=r"line 1: headers must be a list of \[name, text or null\]; export again"):
        originals(path, ORIGINAL_EXPORT)


def test_a_byte_order_mark_is_ignored_in_an_original_only(tmp_path: Path) -> None:
    assert originals(file(tmp_path, '\ufeff{"a":1}\n{"a":2}\n')) == [(0, 0, {"a": "1"}), (0, 1, {"a": "2"})]
    # A release has none.
    assert released(file(tmp_path, '\ufeff{"a":1}\n'))[0][2] is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"who":"p'),
        ("a.jsonl", "[]"),
        ("a.csv", "p9,3"),
        ("a.csv", 'p9,30,"x\n'),
    ],
)
@pytest.mark.parametrize("is_incomplete", [True, False])
def test_a_last_record_without_an_end_is_incomplete(
    tmp_path: Path,
    name: str,
    text: str,
    is_incomplete: bool,  # noqa: FBT001
) -> None:
    header = "who,age,note\n" if name == "a.csv" else ""
    path = tmp_path / name
    path.write_text(header + ('p,3,"a"b\n' if header else "{}\n") + (text if is_incomplete else ""))
    assert is_ended(InputFile.of(path, CsvDialect())) is not is_incomplete


def test_a_value_of_an_export_whose_bytes_are_not_utf8_is_no_record(tmp_path: Path) -> None:
    lines = (
        r'{"partition": 0, "offset": 0, "value": "{\"a\": 1, \"b\": \"\udcff\"}"}',
        r'{"partition": 0, "offset": 1, "value": "{\"a\": 1, \"b\": \"\ud83d\ude00\"}"}',
    )
    found = originals(file(tmp_path, "\n".join(lines) + "\n"), ORIGINAL_EXPORT)
    assert found == [(0, 0, None), (0, 1, {"a": "1", "b": "\U0001f600"})]


# ---------------------------------------------------------------- CSV and Parquet


def records(path: Path, dialect: CsvDialect = PLAIN) -> list[object]:
    return [one.record for one in original_records(InputFile.of(path, dialect))]


def test_csv_records_are_numbered_without_the_header(tmp_path: Path) -> None:
    path = csv_file(tmp_path, '\ufeffa,b\r\n1,"x\ny"\r\n\r\n2\n3,"x"y\n4,z')
    assert records(path) == [{"a": "1", "b": "x\ny"}, None, None, None, {"a": "4", "b": "z"}]


@pytest.mark.parametrize(
    ("header", "again"),
    [
        ("id,sex,illness", "id,sex,illness"),
        ('id,sex,"illness"', '"id",sex,illness'),
        ("id, sex,illness\t", "id,sex\t, illness"),
        ("\ufeffid,sex,illness", "id,sex,illness"),
        ("id,sex,illness", "\ufeffid,sex,illness"),
        (",id", ",id"),
    ],
)
def test_a_row_that_equals_the_header_is_no_record(tmp_path: Path, header: str, again: str) -> None:
    path = csv_file(tmp_path, f"{header}\n{again}\n{'x,' * header.count(',')}x\n{again}\n")
    assert [one is None for one in records(path)] == [True, False, True]


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
    assert records(path, dialect) == [None]


def test_headers_are_read_or_refused(tmp_path: Path) -> None:
    assert original_header(csv_file(tmp_path, "a,b\n"), PLAIN) == ["a", "b"]
    assert released_header(csv_file(tmp_path, ""), PLAIN) is None
    assert released_header(csv_file(tmp_path, '"a",b\n'), PLAIN) == ('"a",b', ["a", "b"])
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(csv_file(tmp_path, ""), PLAIN)
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(csv_file(tmp_path, "\n"), PLAIN)
    with pytest.raises(InputError, match=r"line 1: a column name is repeated"):
        original_header(csv_file(tmp_path, "a,a\n"), PLAIN)
    with pytest.raises(InputError, match=r"line 1: the header is not CSV in utf-8"):
        released_header(csv_file(tmp_path, '"a"b\n'), PLAIN)


def test_blanks_around_declared_names_are_ignored(tmp_path: Path) -> None:
    path = csv_file(tmp_path, " a\t, b, c \n1,2,3\n")
    declared = frozenset({"a", " b"})
    assert original_header(path, PLAIN, declared) == ["a", " b", " c "]
    (one,) = original_records(InputFile(path, "csv", PLAIN, declared))
    assert one.record == {"a": "1", " b": "2", " c ": "3"}
    with pytest.raises(InputError, match="repeated"):
        original_header(csv_file(tmp_path, "a, a\n"), PLAIN, declared)


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


# ---------------------------------------------------------------- canonical rows


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
        ('{"age":1.60,"a":"é","n":1,"b":true}', True),
        ('{"a":0.1,"n":-7,"b":null}', True),
        ('{"a":1e-7,"n":0.00001,"b":false}', True),
        ('{"a":10000000000000000,"n":-2.5e-9}', True),
        ('{"a":"\\u0000\\n"}', True),
        ('{"a":1e-07}', False),
        ('{"n":0.000001}', False),
        ('{"a":1e16}', False),
        ('{"a":100.0,"n":100}', False),
        ('{"a":0.10}', False),
        ('{"a":-0}', False),
        ('{"a":"\\u00e9"}', False),
        ('{"a":"\\/"}', False),
        ('{"\\u0061":1}', False),
        ('{"a": 1}', False),
        ('{"a":[]}', False),
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
        ("1.60,,,", True),
        ('1.60,"a""b",0.00001,false', True),
        ('1.60,"a\nb",1e-7,false', True),
        ("1.60, x,1,true", True),
        ('"1.60",x,1,true', False),
        ("1.60,x,1e-07,true", False),
        ("1.60,x,1,True", False),
        ("1.60,x,1,1", False),
        ("1.60,x, 1,true", False),
        ("1.60,x,-0,true", False),
        ("1.60,x,one,true", False),
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
