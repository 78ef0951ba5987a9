from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal.audit.reading import (
    BLANK,
    ORIGINAL_EXPORT,
    RELEASED_EXPORT,
    Token,
    byte_lines,
    form_of,
    is_wrapped,
    original_header,
    original_records,
    released_header,
    released_records,
)
from shoal.errors import InputError

pytestmark = pytest.mark.unit


def file(folder: Path, text: str, name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_the_suffix_tells_the_form() -> None:
    assert [form_of(Path(f"a.{suffix}")) for suffix in ("csv", "CSV", "jsonl", "json", "ndjson")] == [
        "csv",
        "csv",
        "jsonl",
        "jsonl",
        "jsonl",
    ]
    with pytest.raises(InputError, match=r"a\.parquet: the judge reads .*; convert"):
        form_of(Path("a.parquet"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read: No such file"):
        list(byte_lines(tmp_path / "none.jsonl"))


def test_lines_end_with_a_line_feed_and_nothing_else(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a":"\u2028"}\r\n\n{"a":\u00851}')
    assert len(list(byte_lines(path))) == 3


def test_plain_records_are_numbered_by_physical_lines(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a":1}\n\n{"a":"x"}\n{"a":1,"a":1}\n')
    assert list(original_records(path, wrapped=False)) == [
        (0, 0, {"a": Token("1")}),
        (0, 1, BLANK),
        (0, 2, {"a": "x"}),
        (0, 3, None),
    ]


def test_csv_records_are_numbered_without_the_header(tmp_path: Path) -> None:
    path = file(tmp_path, '\ufeffa,b\r\n1,"x\ny"\r\n\r\n2\n3,"x"y\n4,z', "a.csv")
    assert list(original_records(path, wrapped=False)) == [
        (0, 0, {"a": "1", "b": "x\ny"}),
        (0, 1, BLANK),
        (0, 2, None),
        (0, 3, None),
        (0, 4, {"a": "4", "b": "z"}),
    ]


def test_the_text_of_a_released_row_is_what_stands_in_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, 'a,b\n1,"x\ny"\n"1",z\r\n', "a.csv")
    assert [text for _, text, _ in released_records(path, wrapped=False)] == ['1,"x\ny"', '"1",z\r']


def test_headers(tmp_path: Path) -> None:
    assert original_header(file(tmp_path, "a,b\n", "a.csv")) == ["a", "b"]
    assert released_header(file(tmp_path, "", "a.csv")) is None
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(file(tmp_path, "", "a.csv"))
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(file(tmp_path, "\n", "a.csv"))
    with pytest.raises(InputError, match=r"line 1: a column name stands twice"):
        original_header(file(tmp_path, "a,a\n", "a.csv"))
    with pytest.raises(InputError, match=r"line 1: the header is not UTF-8 text in CSV"):
        released_header(file(tmp_path, '"a"b\n', "a.csv"))


def test_doubled_columns_make_no_row(tmp_path: Path) -> None:
    path = file(tmp_path, "a,a\n1,2\n", "a.csv")
    assert list(released_records(path, wrapped=False)) == [(0, "1,2", None)]


def test_an_export_is_known_by_its_keys(tmp_path: Path) -> None:
    line = {"partition": 0, "offset": 3, "value": {"a": 1}}
    assert is_wrapped(file(tmp_path, json.dumps(line)), ORIGINAL_EXPORT)
    assert not is_wrapped(file(tmp_path, json.dumps(line | {"key": 1})), ORIGINAL_EXPORT)
    assert not is_wrapped(file(tmp_path, json.dumps(line)), RELEASED_EXPORT)
    assert not is_wrapped(file(tmp_path, ""), RELEASED_EXPORT)
    assert not is_wrapped(file(tmp_path, '["partition", "value"]'), RELEASED_EXPORT)


@pytest.mark.parametrize(
    ("value", "record"),
    [({"a": 1}, {"a": "1"}), ('{"a":1}', {"a": "1"}), ("x", None), (None, None), (7, None), ([], None)],
)
def test_an_export_holds_a_record_or_its_text(tmp_path: Path, value: object, record: object) -> None:
    path = file(tmp_path, json.dumps({"partition": 2, "offset": 3, "value": value}))
    assert list(original_records(path, wrapped=True)) == [(2, 3, record)]


def test_a_released_export_holds_the_published_text(tmp_path: Path) -> None:
    lines = [{"partition": 1, "value": '{"a":1}'}, {"partition": 1, "value": 7}, {"partition": 1, "value": None}]
    path = file(tmp_path, "\n".join(map(json.dumps, lines)))
    assert list(released_records(path, wrapped=True)) == [(1, '{"a":1}', {"a": "1"}), (1, "", None), (1, "", None)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x", "line 2: not an export of exactly offset, partition, value; export again"),
        ('{"partition":0,"value":{}}', "line 2: not an export"),
        ('{"partition":0,"offset":"3","value":{}}', "line 2: offset must be an integer"),
        ('{"partition":0,"offset":3.0,"value":{}}', "line 2: offset must be an integer"),
        ('{"partition":null,"offset":3,"value":{}}', "line 2: partition must be an integer"),
    ],
)
def test_a_line_that_is_no_export_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = file(tmp_path, f'{{"partition":0,"offset":0,"value":{{}}}}\n{line}\n')
    with pytest.raises(InputError, match=message):
        list(original_records(path, wrapped=True))
