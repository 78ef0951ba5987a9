from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal.audit.reading import (
    BLANK,
    File,
    Token,
    byte_lines,
    form_of,
    names_of_first,
    original_records,
    released_records,
)
from shoal.audit.tables import original_header, released_header
from shoal.errors import InputError
from shoal.policy import CsvDialect

pytestmark = pytest.mark.unit

ORIGINAL_EXPORT = frozenset({"value", "partition", "offset"})


def file(folder: Path, text: str, name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


PLAIN = CsvDialect()


def originals(path: Path, exported: frozenset[str] | None = None) -> list[tuple[object, ...]]:
    """Partition, offset, record, and what stood around it where there is any."""
    found = original_records(File.of(path, PLAIN), exported)
    return [tuple(one) if one.around else tuple(one)[:3] for one in found]


def released(path: Path, *, wrapped: bool = False) -> list[tuple[int, str, object]]:
    return list(released_records(File.of(path, PLAIN), wrapped=wrapped))


def test_the_suffix_tells_the_form() -> None:
    assert [form_of(Path(f"a.{suffix}")) for suffix in ("csv", "CSV", "jsonl", "json", "ndjson")] == [
        "csv",
        "csv",
        "jsonl",
        "jsonl",
        "jsonl",
    ]
    with pytest.raises(InputError, match=r"a\.xlsx: the judge reads .*; convert"):
        form_of(Path("a.xlsx"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read: No such file"):
        list(byte_lines(tmp_path / "none.jsonl"))


def test_lines_end_with_a_line_feed_and_nothing_else(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a":"\u2028"}\r\n\n{"a":\u00851}')
    assert len(list(byte_lines(path))) == 3


def test_plain_records_are_numbered_by_physical_lines(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a":1}\n\n{"a":"x"}\n{"a":1,"a":1}\n')
    assert originals(path) == [
        (0, 0, {"a": Token("1")}),
        (0, 1, BLANK),
        (0, 2, {"a": "x"}),
        (0, 3, None),
    ]


def test_csv_records_are_numbered_without_the_header(tmp_path: Path) -> None:
    path = file(tmp_path, '\ufeffa,b\r\n1,"x\ny"\r\n\r\n2\n3,"x"y\n4,z', "a.csv")
    assert originals(path) == [
        (0, 0, {"a": "1", "b": "x\ny"}),
        (0, 1, BLANK),
        (0, 2, None),
        (0, 3, None),
        (0, 4, {"a": "4", "b": "z"}),
    ]


def test_what_stands_behind_the_last_carriage_return_of_windows_lines_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\r\n1,2\r\n3,4\r\n")
    found = list(original_records(File.of(path, CsvDialect(line_end="\r"))))
    assert [one.record for one in found] == [None, None]


def test_the_text_of_a_released_row_is_what_stands_in_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, 'a,b\n1,"x\ny"\n"1",z\r\n', "a.csv")
    assert [text for _, text, _ in released(path)] == ['1,"x\ny"', '"1",z\r']


def test_headers(tmp_path: Path) -> None:
    assert original_header(file(tmp_path, "a,b\n", "a.csv"), PLAIN) == ["a", "b"]
    assert released_header(file(tmp_path, "", "a.csv"), PLAIN) is None
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(file(tmp_path, "", "a.csv"), PLAIN)
    with pytest.raises(InputError, match=r"line 1: no header"):
        original_header(file(tmp_path, "\n", "a.csv"), PLAIN)
    with pytest.raises(InputError, match=r"line 1: a column name stands twice"):
        original_header(file(tmp_path, "a,a\n", "a.csv"), PLAIN)
    with pytest.raises(InputError, match=r"line 1: the header is no utf-8 text in CSV"):
        released_header(file(tmp_path, '"a"b\n', "a.csv"), PLAIN)


def test_doubled_columns_make_no_row(tmp_path: Path) -> None:
    path = file(tmp_path, "a,a\n1,2\n", "a.csv")
    assert released(path) == [(0, "1,2", None)]


def test_an_export_is_known_by_its_keys(tmp_path: Path) -> None:
    line = {"partition": 0, "offset": 3, "value": {"a": 1}}
    assert names_of_first(file(tmp_path, json.dumps(line))) == ORIGINAL_EXPORT
    assert names_of_first(file(tmp_path, json.dumps(line | {"key": 1}))) == ORIGINAL_EXPORT | {"key"}
    assert names_of_first(file(tmp_path, "\ufeff" + json.dumps(line))) == ORIGINAL_EXPORT
    assert names_of_first(file(tmp_path, "")) == frozenset()
    assert names_of_first(file(tmp_path, '["partition", "value"]')) == frozenset()


@pytest.mark.parametrize(
    ("value", "record"),
    [({"a": 1}, {"a": "1"}), ('{"a":1}', {"a": "1"}), ("x", None), (None, None), (7, None), ([], None)],
)
def test_an_export_holds_a_record_or_its_text(tmp_path: Path, value: object, record: object) -> None:
    path = file(tmp_path, json.dumps({"partition": 2, "offset": 3, "value": value}))
    assert originals(path, ORIGINAL_EXPORT) == [(2, 3, record)]


def test_a_released_export_holds_the_published_text(tmp_path: Path) -> None:
    lines = [{"partition": 1, "value": '{"a":1}'}, {"partition": 1, "value": 7}, {"partition": 1, "value": None}]
    path = file(tmp_path, "\n".join(map(json.dumps, lines)))
    assert released(path, wrapped=True) == [(1, '{"a":1}', {"a": "1"}), (1, "", None), (1, "", None)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x", "line 2: not an export of exactly offset, partition, value .and headers, key, timestamp.; export again"),
        ('{"partition":0,"value":{}}', "line 2: not an export"),
        ('{"partition":0,"offset":"3","value":{}}', "line 2: offset must be an integer"),
        ('{"partition":0,"offset":3.0,"value":{}}', "line 2: offset must be an integer"),
        ('{"partition":null,"offset":3,"value":{}}', "line 2: partition must be an integer"),
    ],
)
def test_a_line_that_is_no_export_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = file(tmp_path, f'{{"partition":0,"offset":0,"value":{{}}}}\n{line}\n')
    with pytest.raises(InputError, match=message):
        originals(path, ORIGINAL_EXPORT)


def test_an_export_tells_what_stood_around_a_value(tmp_path: Path) -> None:
    line = {"partition": 0, "offset": 3, "value": {}, "key": "p", "timestamp": 7}
    headers: list[tuple[object, object]] = [
        ([["a", "1"], ["b", None], ["c", "x"], ["c", "x"]], {"header:a": "1"}),
        ([["a", {"base64": "/w=="}], ["d", 7]], {}),
    ]
    for written, read in headers:
        path = file(tmp_path, json.dumps(line | {"headers": written}))
        assert originals(path, ORIGINAL_EXPORT) == [(0, 3, {}, {"key": "p", "timestamp": Token("7")} | read)]  # type: ignore[operator]
    nothing: dict[str, object] = {"key": None, "timestamp": -1, "headers": []}
    assert originals(file(tmp_path, json.dumps(line | nothing)), ORIGINAL_EXPORT) == [(0, 3, {})]


@pytest.mark.parametrize("headers", [{}, {"a": "1"}, "a", [["a"]], [["a", "1", "2"]], [{"a": "1"}], [[1, "1"]], None])
def test_headers_that_are_no_list_of_pairs_are_named(tmp_path: Path, headers: object) -> None:
    path = file(tmp_path, json.dumps({"partition": 0, "offset": 3, "value": {}, "headers": headers}))
    with pytest.raises(InputError, match=r"line 1: headers must be a list of \[name, text or null\]; export again"):
        originals(path, ORIGINAL_EXPORT)


def test_a_mark_at_the_beginning_is_no_part_of_the_first_record(tmp_path: Path) -> None:
    assert originals(file(tmp_path, '\ufeff{"a":1}\n{"a":2}\n')) == [(0, 0, {"a": "1"}), (0, 1, {"a": "2"})]
    # Nobody needs one in a release.
    assert released(file(tmp_path, '\ufeff{"a":1}\n'))[0][2] is None
