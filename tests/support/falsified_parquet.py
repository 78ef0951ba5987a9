"""Falsified releases: Parquet: other values, columns and rows. Bytes beside the values are not judged."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from shoal.files import Files as Paths
from shoal.files import parse_algorithm_options, run_batch
from support.making import policy_of
from support.named_falsifications import Falsification, Files, maker

Table: TypeAlias = Any
Change: TypeAlias = Callable[[Table], Table]

DOCUMENT: dict[str, Any] = {
    "attributes": {
        "patient": {"role": "identifier", "subject": True},
        "change": {"role": "quasi_identifier", "bounds": [-10, 10], "resolution": 0.5},
        "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "resolution": 1},
        "dose": {"role": "confidential", "type": "number", "publish_unchanged": True},
        "ward": {"role": "other", "type": "string", "publish_unchanged": True},
    },
    "privacy": {"k": 3},
}


@cache
def released_parquet() -> Files:
    """Return a sound release of a table, as Shoal writes it. Means and doses are often zero, some doses are null."""
    people = range(90)
    table = pa.table(
        {
            "patient": [f"p{one}" for one in people],
            "change": [float(one % 5 - 2) for one in people],
            "age": [20 + one * 7 % 60 for one in people],
            "dose": [None if one % 9 == 4 else float(one % 4) for one in people],
            "ward": [("north", "south")[one % 2] for one in people],
        }
    )
    with TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in ("original.parquet", "released.parquet", "evidence.jsonl")}
        pq.write_table(table, paths["original.parquet"])
        source, target, evidence = map(str, paths.values())
        files = Paths(source=source, target=target, evidence=evidence)
        run_batch(policy_of(**DOCUMENT), files, parse_algorithm_options("mdav", None, (), 0))
        return Files(DOCUMENT, {name: path.read_bytes() for name, path in paths.items()})


@maker
def content(change: Callable[[bytes], bytes]) -> Files:
    """Return a release whose bytes are changed."""
    files = released_parquet().files
    return Files(DOCUMENT, files | {"released.parquet": change(files["released.parquet"])})


def written(change: Change, **options: Any) -> Callable[[], Files]:
    """Return a release with another table, or other options of the writer."""

    def rewrite(released: bytes) -> bytes:
        out = io.BytesIO()
        pq.write_table(change(pq.read_table(io.BytesIO(released))), out, **options)
        return out.getvalue()

    return content(rewrite)


def column(table: Table, name: str, values: Any) -> Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def higher(name: str, step: float = 0.5) -> Change:
    """Return a change that adds a step to the first zero of a column."""

    def change(table: Table) -> Table:
        values = table[name].to_pylist()
        values[values.index(0.0)] = step
        return column(table, name, pa.array(values, pa.float64()))

    return change


_ENTRIES: tuple[tuple[str, str, Callable[[], Files]], ...] = (
    ("bytes after the end", "refused", content(lambda raw: raw + b"p1,41")),
    ("a column besides", "columns", written(lambda table: table.append_column("n", pa.array(range(len(table)))))),
    ("columns in another order", "columns", written(lambda table: table.select(["age", "change", "dose", "ward"]))),
    (
        "a column under another name",
        "columns",
        written(lambda table: table.rename_columns(["Change", "age", "dose", "ward"])),
    ),
    ("ages as texts", "grid", written(lambda table: column(table, "age", table["age"].cast(pa.string())))),
    ("a mean of one row a step higher", "nothing_else", written(higher("change"))),
    ("an infinite dose", "nothing_else", written(higher("dose", float("inf")))),
    ("a row twice", "nothing_else", written(lambda table: pa.concat_tables([table, table.slice(0, 1)]))),
    ("a row missing", "nothing_missing", written(lambda table: table.slice(1))),
    ("rows in the reverse order", "byte_order", written(lambda table: table.take(list(range(len(table)))[::-1]))),
)

FALSIFICATIONS: list[Falsification] = [
    Falsification(f"Parquet: {name}", "table", check, make) for name, check, make in _ENTRIES
]
