"""Falsified releases: Parquet: what a file can carry beside the values that a reader shows."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from shoal.files import Files as Paths
from shoal.files import parse_algorithm_options, run_batch
from shoal.policy import Policy
from shoal.policy.schema import Document
from support.named_falsifications import Falsification, Files

__all__ = ["FALSIFICATIONS", "released_parquet"]

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
        policy = Policy.from_document(Document.model_validate(DOCUMENT))
        files = Paths(source=source, target=target, evidence=evidence)
        run_batch(policy, files, parse_algorithm_options("mdav", None, (), 0))
        return Files(DOCUMENT, {name: path.read_bytes() for name, path in paths.items()})


def content(change: Callable[[bytes], bytes]) -> Callable[[], Files]:
    """Return a maker of a release whose bytes are changed."""

    def make() -> Files:
        files = dict(released_parquet().files)
        files["released.parquet"] = change(files["released.parquet"])
        return Files(DOCUMENT, files)

    return make


def written(change: Change, **options: Any) -> Callable[[], Files]:
    """Return a maker of a release with another table, or other options of the writer."""

    def rewrite(released: bytes) -> bytes:
        out = io.BytesIO()
        pq.write_table(change(pq.read_table(io.BytesIO(released))), out, **options)
        return out.getvalue()

    return content(rewrite)


def column(table: Table, name: str, values: Any) -> Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def cast(name: str, kind: Any) -> Change:
    return lambda table: column(table, name, table[name].cast(kind))


def marked_zero(name: str) -> Change:
    """Return a change that makes the first zero of a column negative."""

    def change(table: Table) -> Table:
        values = table[name].to_pylist()
        values[values.index(0.0)] = -0.0
        return column(table, name, pa.array(values, pa.float64()))

    return change


def _nan(payload: int) -> float:
    bits = struct.pack("<Q", 0x7FF8 << 48 | payload)
    value = float(struct.unpack("<d", bits)[0])
    assert math.isnan(value)
    return value


def nan_payloads(table: Table) -> Table:
    """Write each null dose as NaN, which carries the number of the row."""
    doses = [_nan(row) if dose is None else dose for row, dose in enumerate(table["dose"].to_pylist())]
    return column(table, "dose", pa.array(doses, pa.float64()))


def with_metadata(table: Table) -> Table:
    fields = [field.with_metadata({"o": "17"}) for field in table.schema]
    return table.cast(pa.schema(fields))


def groups(table: Table, sizes: Sequence[int]) -> bytes:
    """Return a file with row groups of these sizes, and the rest."""
    out = io.BytesIO()
    with pq.ParquetWriter(out, table.schema) as writer:
        start = 0
        for size in (*sizes, len(table) - sum(sizes)):
            writer.write_table(table.slice(start, size))
            start += size
    return out.getvalue()


def same(table: Table) -> Table:
    return table


_ENTRIES: tuple[tuple[str, int, str, Callable[[], Files]], ...] = (
    (
        "raw records in the metadata of the file",
        1,
        "bytes",
        written(lambda table: table.replace_schema_metadata({"raw": "p1,41"})),
    ),
    ("an offset in the metadata of each column", 1, "bytes", written(with_metadata)),
    ("row numbers in the payloads of NaN", 1, "bytes", written(nan_payloads)),
    ("a mean of -0.0 in one row", 1, "bytes", written(marked_zero("change"))),
    ("a dose of -0.0 in one row", 1, "bytes", written(marked_zero("dose"))),
    (
        "row groups of chosen sizes",
        1,
        "bytes",
        content(lambda raw: groups(pq.read_table(io.BytesIO(raw)), (17, 3, 29))),
    ),
    ("another compression", 1, "bytes", written(same, compression="gzip")),
    ("pages of another size", 1, "bytes", written(same, data_page_size=64)),
    ("without a dictionary", 1, "bytes", written(same, use_dictionary=False)),
    ("bytes after the end", 2, "refused", content(lambda raw: raw + b"p1,41")),
    ("bytes before the footer", 1, "bytes", content(lambda raw: _before_the_footer(raw, b"p1,41"))),
    ("a column besides", 1, "columns", written(lambda table: table.append_column("n", pa.array(range(len(table)))))),
    ("columns in another order", 1, "columns", written(lambda table: table.select(["age", "change", "dose", "ward"]))),
    (
        "a column under another name",
        1,
        "columns",
        written(lambda table: table.rename_columns(["Change", "age", "dose", "ward"])),
    ),
    ("ages as 16-bit integers", 1, "bytes", written(cast("age", pa.int16()))),
    ("ages as texts", 1, "bytes", written(cast("age", pa.string()))),
    ("doses as 32-bit floats", 1, "bytes", written(cast("dose", pa.float32()))),
    (
        "wards as a dictionary",
        1,
        "bytes",
        written(lambda table: column(table, "ward", table["ward"].dictionary_encode())),
    ),
    ("a row twice", 1, "nothing_else", written(lambda table: pa.concat_tables([table, table.slice(0, 1)]))),
    ("a row missing", 1, "nothing_missing", written(lambda table: table.slice(1))),
    ("rows in the reverse order", 1, "byte_order", written(lambda table: table.take(list(range(len(table)))[::-1]))),
)


def _before_the_footer(released: bytes, hidden: bytes) -> bytes:
    """Put bytes between the last column and the footer, whose length says where it begins."""
    length = struct.unpack("<I", released[-8:-4])[0]
    start = len(released) - 8 - length
    return released[:start] + hidden + released[start:]


FALSIFICATIONS: list[Falsification] = [
    Falsification(f"Parquet: {name}", "table", make, code, check) for name, code, check, make in _ENTRIES
]
