"""The judge compares the contents of a release: the values of Parquet, and the rows of CSV and JSON lines."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.audit import Verdict, verify
from shoal.cli import main
from shoal.errors import InputError
from shoal.policy import Policy

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


def with_two_groups(table: pa.Table) -> bytes:
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema) as writer:
        for start, end in ((0, 5), (5, COUNT)):
            writer.write_table(table.slice(start, end - start))
    return file.getvalue()


OTHER_BYTES: dict[str, Callable[[pa.Table], bytes]] = {
    "metadata": lambda table: written(table.replace_schema_metadata({"a": "b"})),
    "another width of integers": of_type("age", pa.int16()),
    "large strings": of_type("note", pa.large_string()),
    "another compression": lambda table: written(table, compression="snappy", use_dictionary=False),
    "row groups of other sizes": with_two_groups,
}
"""The same values in other bytes."""


@pytest.mark.parametrize("change", OTHER_BYTES)
def test_the_same_values_in_other_bytes_hold(sound: Path, tmp_path: Path, change: str) -> None:
    content = OTHER_BYTES[change](pq.read_table(sound / "out.parquet"))
    assert content != (sound / "out.parquet").read_bytes()
    (tmp_path / "out.parquet").write_bytes(content)
    found = judged(sound, tmp_path / "out.parquet")
    assert found.exit_code == 0, found.text()


def test_a_release_of_parquet_is_judged_beside_a_copy_of_its_original(sound: Path, tmp_path: Path) -> None:
    lines = (json.dumps(row | {"seen": str(row["seen"])}) + "\n" for row in ROWS)
    (tmp_path / "in.jsonl").write_text("".join(lines))
    policy = Policy.load(sound / "policy.yaml")
    found = verify(policy, tmp_path / "in.jsonl", sound / "out.parquet", sound / "evidence")
    assert found.exit_code == 0, found.text()


@pytest.mark.parametrize("seed", range(2))
def test_a_change_of_a_few_bytes_ends_in_no_other_error(sound: Path, tmp_path: Path, seed: int) -> None:
    draw, whole = random.Random(seed), (sound / "out.parquet").read_bytes()
    for _ in range(50):
        content = bytearray(whole)
        for _ in range(draw.choice([1, 1, 3])):
            position = draw.randrange(len(content))
            content[position : position + draw.randrange(2)] = draw.randbytes(draw.randrange(2))
        (tmp_path / "out.parquet").write_bytes(content)
        with suppress(InputError):
            assert judged(sound, tmp_path / "out.parquet").exit_code in {0, 1, 2}


@pytest.mark.parametrize("broken", [b"", b"PAR1", b"PAR1PAR1", b"age,income,note,cost,seen\n"])
def test_what_is_not_parquet_is_refused(sound: Path, tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "out.parquet").write_bytes(broken)
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
PEOPLE: list[Any] = [dict(zip(TEXT_ATTRIBUTES, row, strict=True)) for row in TEXT_ROWS]
EVIDENCE = '{"partition":0,"cluster":0,"offsets":[0,1]}\n{"partition":0,"cluster":1,"offsets":[2,3]}\n'


def judged_text(folder: Path, name: str, content: bytes, original: list[Any] = PEOPLE, **sections: Any) -> Verdict:
    """Judge a release of four records of four people under a policy with these further sections."""
    document = {"attributes": TEXT_ATTRIBUTES, "privacy": {"k": 2}, **sections}
    (folder / "policy.yaml").write_text(json.dumps(document))
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in original))
    (folder / "evidence").write_text(EVIDENCE)
    (folder / name).write_bytes(content)
    policy = Policy.load(folder / "policy.yaml")
    return verify(policy, folder / "in.jsonl", folder / name, folder / "evidence")


LINES = (
    '{"age":30,"note":"y","cost":100}\n{"age":30,"note":"é, x","cost":0}\n'
    '{"age":33,"note":"z","cost":0.5}\n{"age":33,"note":"z","cost":7}\n'
).encode()
CELLS = 'age,note,cost\n30,"é, x",0\n30,y,100\n33,z,0.5\n33,z,7\n'.encode()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("out.jsonl", b'"cost":7}\n', b'"cost":7}\n \t'),
        ("out.jsonl", b'"cost":100}', b'"cost":100} '),
        ("out.jsonl", b'"cost":100', b'"cost":1e2'),
        ("out.jsonl", b'"cost":0}', b'"cost":-0.0}'),
        ("out.jsonl", "é".encode(), b"e\xcc\x81"),
        ("out.jsonl", "é".encode(), b"\xe0\x83\xa9"),
        ("out.csv", b"33,z,7\n", b"33,z,7\n\n"),
        ("out.csv", b"33,z,7\n", b"33,z,7\r\n"),
        ("out.csv", b"33,z,7\n", b'33,z,"7"\n'),
        ("out.csv", b"33,z,7\n", b"33,z,7.0\n"),
        ("out.csv", b"30,y,100\n", b"30,y,1e2\n"),
        ("out.csv", b"age,note,cost\n", b"\xef\xbb\xbfage,note,cost\n"),
        ("out.csv", b"age,note,cost\n", b'"age",note,cost\n'),
    ],
)
def test_text_that_is_spelled_otherwise_is_broken(tmp_path: Path, name: str, before: bytes, after: bytes) -> None:
    content = LINES if name == "out.jsonl" else CELLS
    assert before in content
    found = judged_text(tmp_path, name, content.replace(before, after))
    assert found.exit_code == 1, found.text()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_every_encoding_of_the_policy_is_read(tmp_path: Path, encoding: str) -> None:
    text, csv = CELLS.decode(), {"output": {"encoding": encoding}}
    found = judged_text(tmp_path, "out.csv", text.encode(encoding), csv=csv)
    assert found.exit_code == 0, found.text()
    found = judged_text(tmp_path, "out.csv", text.replace("33,z,7", "33,z,8").encode(encoding), csv=csv)
    assert found.exit_code == 1, found.text()


@pytest.mark.parametrize("line_end", ["crlf", "cr"])
def test_other_line_ends_of_the_policy_are_judged_too(tmp_path: Path, line_end: str) -> None:
    end = {"crlf": b"\r\n", "cr": b"\r"}[line_end]
    sound, csv = CELLS.replace(b"\n", end), {"output": {"line_end": line_end}}
    found = judged_text(tmp_path, "out.csv", sound, csv=csv)
    assert found.exit_code == 0, found.text()
    for falsified in (sound + end, sound[: -len(end)] + b"\n", sound.replace(b"33", b"\n33", 1)):
        found = judged_text(tmp_path, "out.csv", falsified, csv=csv)
        assert found.exit_code == 1, found.text()


# ---------------------------------------------------------------- exports of topics

MESSAGES = [{"partition": 0, "offset": offset, "value": json.dumps(one)} for offset, one in enumerate(PEOPLE)]
EXPORTED = [{"partition": 0, "value": line} for line in LINES.decode().splitlines()]


def compact(line: object, *, ascii_only: bool = False) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=ascii_only)


@pytest.mark.parametrize(
    "lines",
    [
        [json.dumps(line) for line in EXPORTED],
        [json.dumps(line, ensure_ascii=False) for line in EXPORTED],
        [compact(line) for line in EXPORTED],
        [json.dumps(dict(reversed(line.items()))) for line in EXPORTED],
        [json.dumps(line | {"key": None, "headers": []}) for line in EXPORTED],
        [json.dumps(EXPORTED[0]), *(compact(line, ascii_only=True) + " \r" for line in EXPORTED[1:])],
        [json.dumps(EXPORTED[0] | {"key": None}), *(compact(dict(reversed(line.items()))) for line in EXPORTED[1:])],
    ],
)
def test_an_export_in_any_form_holds(tmp_path: Path, lines: list[str]) -> None:
    for content in ("".join(line + "\n" for line in lines), "\n".join(lines)):
        found = judged_text(tmp_path, "out.jsonl", content.encode(), MESSAGES, stream={"delta": 4})
        assert found.exit_code == 0, found.text()
