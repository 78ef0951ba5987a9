"""A release can carry data beside its values, in the bytes of its file. The judge compares the bytes."""

from __future__ import annotations

import io
import json
import random
import re
import struct
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.audit import Verdict, verify
from shoal.cli import main
from shoal.errors import InputError
from shoal.policy import Policy

pytestmark = pytest.mark.privacy

COUNT = 24
ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "resolution": 1},
    "income": {"role": "quasi_identifier", "bounds": [0, 100_000]},
    "note": {"role": "confidential", "type": "string"},
    "cost": {"role": "confidential", "type": "number"},
    "seen": {"role": "confidential"},
}
ROWS = [
    {
        "who": f"p{number}",
        "age": 20 + number * 3 % 60,
        "income": 1000.5 + number * 997 % 5000,
        "note": f"note {number * 7 % 24}",
        "cost": None if number % 5 == 0 else 0.0 if number % 5 == 1 else number / 4,
        "seen": date(2024, 1, 1) + timedelta(days=number * 11 % 24),
    }
    for number in range(COUNT)
]
SCHEMA = pa.schema(
    {
        "who": pa.string(),
        "age": pa.int32(),
        "income": pa.float64(),
        "note": pa.dictionary(pa.int32(), pa.string()),
        "cost": pa.float64(),
        "seen": pa.date32(),
    }
)
CREATED_BY = f"parquet-cpp-arrow version {pa.__version__}".encode()


def policy_in(folder: Path) -> Path:
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"attributes": ATTRIBUTES, "privacy": {"k": 3}}))
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, its release as Parquet, and the evidence."""
    folder = tmp_path_factory.mktemp("sound")
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), folder / "in.parquet")
    paths = [policy_in(folder), folder / "in.parquet", folder / "out.parquet", folder / "evidence"]
    policy, source, out, evidence = map(str, paths)
    command = ["batch", policy, "-i", source, "-o", out, "--evidence", evidence, "--algorithm", "mdav"]
    assert main(command) == 0
    return folder


def judged(sound: Path, released: Path) -> Verdict:
    return verify(Policy.load(sound / "policy.yaml"), sound / "in.parquet", released, sound / "evidence")


def written(table: pa.Table, **options: Any) -> bytes:
    """Write a table with the options of the product's writer, and others."""
    file = io.BytesIO()
    pq.write_table(table, file, **{"compression": "zstd"} | options)
    return file.getvalue()


def with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, pa.field(name, column.type), column)


def of_type(name: str, kind: pa.DataType) -> Callable[[pa.Table], bytes]:
    return lambda table: written(with_column(table, name, table[name].combine_chunks().cast(kind)))


def with_metadata(table: pa.Table) -> bytes:
    return written(table.replace_schema_metadata({"rows": json.dumps([row["who"] for row in ROWS])}))


def with_field_metadata(table: pa.Table) -> bytes:
    fields = [field.with_metadata({"offsets": "0,4,2"}) for field in table.schema]
    return written(table.cast(pa.schema(fields)))


def with_offsets_in_nan_payloads(table: pa.Table) -> bytes:
    column = table["cost"].to_numpy(zero_copy_only=False)
    bits = [
        struct.unpack("<Q", struct.pack("<d", value))[0] if value == value else 0x7FF8_0000_0000_0000 | number  # noqa: PLR0124
        for number, value in enumerate(column.tolist())
    ]
    return written(with_column(table, "cost", pa.array(np.array(bits, np.uint64).view(np.float64), from_pandas=False)))


def with_nan_for_null(table: pa.Table) -> bytes:
    values = [float("nan") if value is None else value for value in table["cost"].to_pylist()]
    return written(with_column(table, "cost", pa.array(values, pa.float64(), from_pandas=False)))


def with_negative_zero(table: pa.Table) -> bytes:
    values = table["cost"].to_pylist()
    values[values.index(0.0)] = -0.0
    return written(with_column(table, "cost", pa.array(values, pa.float64())))


def with_an_unused_dictionary_entry(table: pa.Table) -> bytes:
    column = table["note"].combine_chunks()
    entries = pa.array([*column.dictionary.to_pylist(), "patient p3"])
    return written(with_column(table, "note", pa.DictionaryArray.from_arrays(column.indices, entries)))


def with_a_permuted_dictionary(table: pa.Table) -> bytes:
    column = table["note"].combine_chunks()
    entries = sorted(column.dictionary.to_pylist())
    indices = pa.array([entries.index(value) for value in column.to_pylist()], pa.int32())
    return written(with_column(table, "note", pa.DictionaryArray.from_arrays(indices, pa.array(entries))))


def with_split_row_groups(table: pa.Table) -> bytes:
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
        for start, end in ((0, 5), (5, 6), (6, COUNT)):
            writer.write_table(table.slice(start, end - start))
    return file.getvalue()


def with_bytes_between(table: pa.Table) -> bytes:
    """Put bytes between the pages and the footer, where no reader looks."""
    content = written(table)
    footer = int.from_bytes(content[-8:-4], "little")
    return content[: -8 - footer] + b"the patient of row 3 is p3" + content[-8 - footer :]


def with_another_creator(table: pa.Table) -> bytes:
    return written(table).replace(CREATED_BY, CREATED_BY[:-6] + b"p3, p9")


def with_appended_bytes(table: pa.Table) -> bytes:
    """Repeat the whole footer behind the file: readers use the last one only."""
    content = written(table)
    footer = int.from_bytes(content[-8:-4], "little")
    return content + b"p3 p9 p4" + content[-8 - footer :]


def with_a_renamed_timezone(table: pa.Table) -> bytes:
    column = table["seen"].combine_chunks().cast(pa.timestamp("ms")).cast(pa.timestamp("ms", tz="Etc/GMT+3"))
    return written(with_column(table, "seen", column))


FALSIFICATIONS: dict[str, Callable[[pa.Table], bytes]] = {
    "records in the metadata of the file": with_metadata,
    "offsets in the metadata of columns": with_field_metadata,
    "offsets in NaN payloads": with_offsets_in_nan_payloads,
    "NaN for null": with_nan_for_null,
    "negative zero": with_negative_zero,
    "an unused entry of a dictionary": with_an_unused_dictionary_entry,
    "a permuted dictionary": with_a_permuted_dictionary,
    "row groups of other sizes": with_split_row_groups,
    "bytes before the footer": with_bytes_between,
    "bytes before a second footer": with_appended_bytes,
    "another creator": with_another_creator,
    "a time zone": with_a_renamed_timezone,
    "another width of integers": of_type("age", pa.int16()),
    "floats for integers": of_type("age", pa.float64()),
    "large strings": of_type("note", pa.large_string()),
    "binary": of_type("note", pa.binary()),
    "another compression": lambda table: written(table, compression="snappy"),
    "another level of compression": lambda table: written(table, compression_level=9),
    "no dictionaries": lambda table: written(table, use_dictionary=False),
    "no statistics": lambda table: written(table, write_statistics=False),
    "small pages": lambda table: written(table, data_page_size=16, write_batch_size=2),
    "a sort order": lambda table: written(table, sorting_columns=[pq.SortingColumn(0)]),
    "an index of pages": lambda table: written(table, write_page_index=True),
    "checksums of pages": lambda table: written(table, write_page_checksum=True),
    "another version of the format": lambda table: written(table, version="1.0"),
    "pages of version 2": lambda table: written(table, data_page_version="2.0"),
    "no Arrow schema": lambda table: written(table, store_schema=False),
    "columns that may not be null": lambda table: written(
        table.cast(pa.schema([field.with_nullable(field.name != "age") for field in table.schema]))
    ),
}


UNDECIDED = {
    "an unused entry of a dictionary",
    "a permuted dictionary",
    "another level of compression",
    "small pages",
    "checksums of pages",
    "pages of version 2",
}
"""These differ in compressed pages alone, as a file of another build of the compression library may."""


def test_the_release_of_the_product_holds(sound: Path) -> None:
    found = judged(sound, sound / "out.parquet")
    assert found.exit_code == 0, found.text()
    assert found["bytes"].status == "holds"
    # `written` makes the falsified files below. Without a change it writes the bytes of the product.
    assert written(pq.read_table(sound / "out.parquet")) == (sound / "out.parquet").read_bytes()


@pytest.mark.parametrize("falsified", FALSIFICATIONS)
def test_a_parquet_file_that_carries_more_is_broken(sound: Path, tmp_path: Path, falsified: str) -> None:
    content = FALSIFICATIONS[falsified](pq.read_table(sound / "out.parquet"))
    assert content != (sound / "out.parquet").read_bytes()
    (tmp_path / "out.parquet").write_bytes(content)
    found = judged(sound, tmp_path / "out.parquet")
    assert found.exit_code == (2 if falsified in UNDECIDED else 1), found.text()
    assert "p3" not in found.text()


def test_a_file_of_another_pyarrow_is_undecided_with_the_remedy(sound: Path, tmp_path: Path) -> None:
    other = CREATED_BY[:-1] + (b"8" if CREATED_BY[-1:] != b"8" else b"7")
    content = (sound / "out.parquet").read_bytes().replace(CREATED_BY, other)
    (tmp_path / "out.parquet").write_bytes(content)
    found = judged(sound, tmp_path / "out.parquet")
    assert (found.exit_code, found["bytes"].status) == (2, "not examined")
    version = other.decode().removeprefix("parquet-cpp-arrow version ")
    assert f"install pyarrow=={version} and verify again" in found.undecided[0]
    # A value that is off is found with every version.
    table = pq.read_table(sound / "out.parquet")
    wrong = with_column(table, "age", pa.array([0] * COUNT, pa.int32()))
    (tmp_path / "out.parquet").write_bytes(written(wrong).replace(CREATED_BY, other))
    assert judged(sound, tmp_path / "out.parquet").exit_code == 1


def test_types_that_another_format_does_not_give_are_undecided_with_the_remedy(sound: Path, tmp_path: Path) -> None:
    lines = (json.dumps(row | {"seen": str(row["seen"])}) + "\n" for row in ROWS)
    (tmp_path / "in.jsonl").write_text("".join(lines))
    policy = Policy.load(sound / "policy.yaml")
    found = verify(policy, tmp_path / "in.jsonl", sound / "out.parquet", sound / "evidence")
    assert found.exit_code == 2, found.text()
    assert "give the Parquet file that was released as --original" in found.undecided[0]
    # The release of the copy itself has the types of the policy, and holds beside both.
    command = ["batch", str(sound / "policy.yaml"), "-i", str(tmp_path / "in.jsonl"), "-o"]
    command += [str(tmp_path / "out.parquet"), "--evidence", str(tmp_path / "evidence"), "--algorithm", "mdav"]
    assert main(command) == 0
    for original in (tmp_path / "in.jsonl", sound / "in.parquet"):
        again = verify(policy, original, tmp_path / "out.parquet", tmp_path / "evidence")
        assert again.exit_code == 0, again.text()


@pytest.mark.parametrize("seed", range(2))
def test_no_change_of_a_few_bytes_holds_or_ends_in_another_error(sound: Path, tmp_path: Path, seed: int) -> None:
    draw, whole = random.Random(seed), (sound / "out.parquet").read_bytes()
    for _ in range(50):
        content = bytearray(whole)
        for _ in range(draw.choice([1, 1, 3])):
            position = draw.randrange(len(content))
            content[position : position + draw.randrange(2)] = draw.randbytes(draw.randrange(2))
        if content == whole:
            continue
        (tmp_path / "out.parquet").write_bytes(content)
        try:
            found = judged(sound, tmp_path / "out.parquet")
        except InputError:
            continue
        assert found.exit_code in {1, 2}, found.text()


def test_statistics_without_a_python_value_are_broken(sound: Path, tmp_path: Path) -> None:
    table = pq.read_table(sound / "out.parquet")
    column = pa.array([2**31 - 1, *range(COUNT - 1)], pa.int32()).cast(pa.date32())
    (tmp_path / "out.parquet").write_bytes(written(with_column(table, "seen", column), use_dictionary=False))
    assert judged(sound, tmp_path / "out.parquet").exit_code == 1


@pytest.mark.parametrize("broken", [b"", b"PAR1", b"PAR1PAR1", b"age,income,note,cost,seen\n"])
def test_what_is_not_parquet_is_refused(sound: Path, tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "out.parquet").write_bytes(broken)
    with pytest.raises(InputError, match="not a readable Parquet file; write it again"):
        judged(sound, tmp_path / "out.parquet")


def test_text_that_is_not_utf_8_is_refused(sound: Path, tmp_path: Path) -> None:
    table = pq.read_table(sound / "out.parquet")
    raw = pa.array([b"p\xff\xfe3"] * COUNT, pa.binary())
    column = pa.StringArray.from_buffers(COUNT, raw.buffers()[1], raw.buffers()[2])
    (tmp_path / "out.parquet").write_bytes(written(with_column(table, "note", column)))
    with pytest.raises(InputError, match="not a readable Parquet file; write it again"):
        judged(sound, tmp_path / "out.parquet")


def test_columns_of_one_name_are_broken(sound: Path, tmp_path: Path) -> None:
    table = pq.read_table(sound / "out.parquet")
    (tmp_path / "out.parquet").write_bytes(written(table.append_column("age", table["income"])))
    found = judged(sound, tmp_path / "out.parquet")
    assert found.exit_code == 1, found.text()


# ---------------------------------------------------------------- CSV and JSON lines

TEXT_ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "resolution": 1},
    "note": {"role": "confidential", "type": "string"},
    "cost": {"role": "confidential", "type": "number"},
}
TEXT_ROWS = [("p0", 30, "é, x", 0), ("p1", 30, "y", 100), ("p2", 33, "z", 0.5), ("p3", 33, "z", 7)]
EVIDENCE = '{"partition":0,"cluster":0,"offsets":[0,1]}\n{"partition":0,"cluster":1,"offsets":[2,3]}\n'


def judged_text(folder: Path, name: str, content: bytes, **csv: Any) -> Verdict:
    """Judge a release as CSV or JSON lines of four records of four people."""
    (folder / "policy.yaml").write_text(
        json.dumps({"attributes": TEXT_ATTRIBUTES, "privacy": {"k": 2}, "csv": {"output": csv}})
    )
    keys = ("who", "age", "note", "cost")
    lines = (json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in TEXT_ROWS)
    (folder / "in.jsonl").write_text("".join(lines))
    (folder / "evidence").write_text(EVIDENCE)
    (folder / name).write_bytes(content)
    policy = Policy.load(folder / "policy.yaml")
    return verify(policy, folder / "in.jsonl", folder / name, folder / "evidence")


LINES = (
    '{"age":30,"note":"y","cost":100}\n{"age":30,"note":"é, x","cost":0}\n'
    '{"age":33,"note":"z","cost":0.5}\n{"age":33,"note":"z","cost":7}\n'
).encode()
CELLS = 'age,note,cost\n30,"é, x",0\n30,y,100\n33,z,0.5\n33,z,7\n'.encode()


@pytest.mark.parametrize(("name", "content"), [("out.jsonl", LINES), ("out.csv", CELLS)])
def test_sound_text_holds(tmp_path: Path, name: str, content: bytes) -> None:
    found = judged_text(tmp_path, name, content)
    assert found.exit_code == 0, found.text()
    assert found["bytes"].status == "holds"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("out.jsonl", b"\n", b"\r\n"),
        ("out.jsonl", b'{"age":33,"note":"z","cost":7}\n', b'{"age":33,"note":"z","cost":7}'),
        ("out.jsonl", b'"cost":7}\n', b'"cost":7}\n\n'),
        ("out.jsonl", b'"cost":7}\n', b'"cost":7}\n \t'),
        ("out.jsonl", b'"cost":0}\n', b'"cost":0}\n\n'),
        ("out.jsonl", b'"cost":100}', b'"cost":100} '),
        ("out.jsonl", b'"cost":100}', b'"cost": 100}'),
        ("out.jsonl", b'{"age":30,"note":"y"', b'\xef\xbb\xbf{"age":30,"note":"y"'),
        ("out.jsonl", b'"cost":100', b'"cost":1e2'),
        ("out.jsonl", b'"cost":100', b'"cost":100.0'),
        ("out.jsonl", b'"cost":0}', b'"cost":-0}'),
        ("out.jsonl", b'"cost":0}', b'"cost":-0.0}'),
        ("out.jsonl", b'"age":30,"note":"y"', b'"age":30.0,"note":"y"'),
        ("out.jsonl", b'"note":"y"', b'"note":"\\u0079"'),
        ("out.jsonl", b'"note":"y"', b'"note":"p3","note":"y"'),
        ("out.jsonl", b'"age":30,"note":"y"', b'"note":"y","age":30'),
        ("out.jsonl", "é".encode(), b"\\u00e9"),
        ("out.jsonl", "é".encode(), b"e\xcc\x81"),
        ("out.jsonl", "é".encode(), b"\xe9"),
        ("out.jsonl", "é".encode(), b"\xe0\x83\xa9"),
        ("out.csv", b"\n", b"\r\n"),
        ("out.csv", b"33,z,7\n", b"33,z,7"),
        ("out.csv", b"33,z,7\n", b"33,z,7\n\n"),
        ("out.csv", b"33,z,7\n", b"33,z,7\n "),
        ("out.csv", b"33,z,7\n", b"\n33,z,7\n"),
        ("out.csv", b"33,z,7\n", b"33,z,7\r\n"),
        ("out.csv", b"33,z,7\n", b"33,z,7 \n"),
        ("out.csv", b"33,z,7\n", b"33,z,7,\n"),
        ("out.csv", b"33,z,7\n", b'33,"z",7\n'),
        ("out.csv", b"33,z,7\n", b'33,z,"7"\n'),
        ("out.csv", b"33,z,7\n", b"33,z,7.0\n"),
        ("out.csv", b"33,z,7\n", b"33,z,07\n"),
        ("out.csv", b"33,z,7\n", b"33,z,+7\n"),
        ("out.csv", b"30,y,100\n", b"30,y,1e2\n"),
        ("out.csv", b"age,note,cost\n", b"\xef\xbb\xbfage,note,cost\n"),
        ("out.csv", b"age,note,cost\n", b'"age",note,cost\n'),
        ("out.csv", b"age,note,cost\n", b"age,note,cost\r\n"),
        ("out.csv", b"age,note,cost\n", b"age,note,cost \n"),
        ("out.csv", b"age,note,cost\n", b"\nage,note,cost\n"),
        ("out.csv", "é".encode(), b"\xe9"),
    ],
)
def test_text_that_is_spelled_otherwise_is_broken(tmp_path: Path, name: str, before: bytes, after: bytes) -> None:
    content = LINES if name == "out.jsonl" else CELLS
    assert before in content
    found = judged_text(tmp_path, name, content.replace(before, after))
    assert found.exit_code == 1, found.text()


@pytest.mark.parametrize(
    ("encoding", "sound", "falsified"),
    [
        ("utf-8-sig", "utf-8-sig", "utf-8"),
        ("utf-16", "utf-16", "utf-16-be with a mark"),
        ("utf-16-le", "utf-16-le", "utf-16"),
        ("utf-16-be", "utf-16-be", "utf-16-be with a mark"),
    ],
)
def test_one_encoding_has_one_byte_order_mark_or_none(
    tmp_path: Path, encoding: str, sound: str, falsified: str
) -> None:
    text = CELLS.decode()
    found = judged_text(tmp_path, "out.csv", text.encode(sound), encoding=encoding)
    assert found.exit_code == 0, found.text()
    content = b"\xfe\xff" + text.encode("utf-16-be") if falsified.endswith("mark") else text.encode(falsified)
    found = judged_text(tmp_path, "out.csv", content, encoding=encoding)
    assert found.exit_code == 1, found.text()
    assert found["bytes"].failed or found["columns"].failed


@pytest.mark.parametrize("line_end", ["crlf", "cr"])
def test_other_line_ends_of_the_policy_are_judged_too(tmp_path: Path, line_end: str) -> None:
    end = {"crlf": b"\r\n", "cr": b"\r"}[line_end]
    sound = CELLS.replace(b"\n", end)
    found = judged_text(tmp_path, "out.csv", sound, line_end=line_end)
    assert found.exit_code == 0, found.text()
    for falsified in (sound[: -len(end)], sound + end, sound[: -len(end)] + b"\n", sound.replace(b"33", b"\n33", 1)):
        found = judged_text(tmp_path, "out.csv", falsified, line_end=line_end)
        assert found.exit_code == 1, found.text()


# ---------------------------------------------------------------- exports of topics

ORIGINAL_LINES = [
    {"partition": 0, "offset": offset, "value": json.dumps(dict(zip(("who", "age", "note", "cost"), row, strict=True)))}
    for offset, row in enumerate(TEXT_ROWS)
]
EXPORTED = [{"partition": 0, "value": line} for line in LINES.decode().splitlines()]


def judged_export(folder: Path, content: str) -> Verdict:
    """Judge an export of a topic with the same records."""
    (folder / "policy.yaml").write_text(
        json.dumps({"attributes": TEXT_ATTRIBUTES, "privacy": {"k": 2}, "stream": {"delta": 4}})
    )
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ORIGINAL_LINES))
    (folder / "evidence").write_text(EVIDENCE)
    (folder / "out.jsonl").write_text(content, encoding="utf-8")
    policy = Policy.load(folder / "policy.yaml")
    return verify(policy, folder / "in.jsonl", folder / "out.jsonl", folder / "evidence")


def compact(line: object, *, ascii_only: bool = False) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=ascii_only)


@pytest.mark.parametrize(
    "lines",
    [
        [json.dumps(line) for line in EXPORTED],
        [json.dumps(line, ensure_ascii=False) for line in EXPORTED],
        [compact(line) for line in EXPORTED],
        [compact(line, ascii_only=True) for line in EXPORTED],
        [json.dumps(dict(reversed(line.items()))) for line in EXPORTED],
        [json.dumps(line | {"key": None, "headers": []}) for line in EXPORTED],
        [json.dumps({"headers": None} | line) for line in EXPORTED],
        [json.dumps({"headers": {}} | line) for line in EXPORTED],
    ],
)
def test_an_export_in_one_form_holds(tmp_path: Path, lines: list[str]) -> None:
    found = judged_export(tmp_path, "".join(line + "\n" for line in lines))
    assert found.exit_code == 0, found.text()
    assert judged_export(tmp_path, "\n".join(lines)).exit_code == 0


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (3, lambda line: line.replace(":", ": ", 1)),
        (3, lambda line: line.replace(",", ", ", 1)),
        (3, lambda line: line + " "),
        (1, lambda line: line + " "),
        (1, lambda line: line + "\t\r"),
        (1, lambda line: line.replace(",", " ,", 1)),
        (2, lambda line: " " + line),
        (2, lambda line: line + "\r"),
        (2, lambda line: line.replace("{", "{ ", 1)),
        (2, lambda line: re.sub('"value":', '"value" :', line)),
        (2, lambda line: compact(dict(reversed(json.loads(line).items())))),
        (3, lambda line: line.replace("z", "\\u007a")),
        (3, lambda line: line.replace('"value"', '"\\u0076alue"')),
        (3, lambda line: line.replace('"partition":0', '"partition":-0')),
        (3, lambda line: line.replace('"partition":0', '"partition":0.0')),
        (3, lambda line: line.replace('"partition":0', '"partition":0e0')),
        (3, lambda line: line.replace('"partition":0', '"partition":0,"partition":0')),
        (3, lambda line: line.replace('"partition":0', '"partition":"0"')),
        (3, lambda line: line[:-1] + ',"offset":3}'),
        (3, lambda line: line[:-1] + ',"key":null}'),
        (3, lambda line: line + "\n"),
        (4, lambda line: line + "\n\n"),
    ],
)
def test_an_export_whose_lines_have_several_forms_is_refused(
    tmp_path: Path, number: int, change: Callable[[str], str]
) -> None:
    lines = [compact(line) for line in EXPORTED]
    changed = change(lines[number - 1])
    assert changed != lines[number - 1]
    lines[number - 1] = changed
    with pytest.raises(InputError, match=r"line [1-5]: .*export again"):
        judged_export(tmp_path, "".join(line + "\n" for line in lines))


def test_escapes_in_some_lines_only_are_refused(tmp_path: Path) -> None:
    lines = [compact(EXPORTED[1]), compact(EXPORTED[1], ascii_only=True)]
    with pytest.raises(InputError, match="line 2: written in another way than the lines before it"):
        judged_export(tmp_path, "\n".join(lines))


def test_each_line_in_a_form_of_its_own_is_refused(tmp_path: Path) -> None:
    forms: list[Callable[[object], str]] = [json.dumps, compact, compact, json.dumps]
    lines = [form(line) for form, line in zip(forms, EXPORTED, strict=True)]
    with pytest.raises(InputError, match="line 2: written in another way than the lines before it"):
        judged_export(tmp_path, "".join(line + "\n" for line in lines))


@pytest.mark.parametrize(
    "envelope",
    [
        {"key": "p3"},
        {"key": ""},
        {"key": 7},
        {"headers": [["offset", "3"]]},
        {"headers": {"offset": "3"}},
        {"headers": ""},
    ],
)
def test_a_released_message_with_a_key_or_headers_is_broken(tmp_path: Path, envelope: dict[str, Any]) -> None:
    nothing = dict.fromkeys(envelope)
    lines = [line | (envelope if number == 2 else nothing) for number, line in enumerate(EXPORTED)]
    found = judged_export(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    assert found.exit_code == 1, found.text()
    assert found["envelope"].places == (3,)


def test_an_export_that_shows_keys_and_headers_was_examined_for_them(tmp_path: Path) -> None:
    plain = judged_export(tmp_path, "".join(json.dumps(line) + "\n" for line in EXPORTED))
    assert "envelope" not in {check.name for check in plain.checks}
    shown = "".join(json.dumps(line | {"key": None, "headers": []}) + "\n" for line in EXPORTED)
    assert judged_export(tmp_path, shown)["envelope"].status == "holds"
