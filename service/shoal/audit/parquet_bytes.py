"""Compares the bytes of a released Parquet file with those that `shoal batch` writes for its rows.

A Parquet file can hold data that no reader shows: metadata, bytes between pages, unused dictionary entries, the sizes
of row groups and pages, the bits of NaN. So the values are written again with the options of the product's writer,
which this module states as literals, and the two files are compared. pyarrow of one version writes the same bytes for
the same values. Another version may not; then the bytes cannot be judged.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from shoal.audit.structure import column_name
from shoal.audit.table_parsing import NumberWriter, has_json_type, parquet_file, plain_values, rewritten_number
from shoal.policy import Attribute, Policy, Role, Scale

__all__ = ["BytesFinding", "compare_parquet"]

ArrowObject: TypeAlias = Any
"""An object of pyarrow, which has no types."""
DataType: TypeAlias = ArrowObject

ROWS_PER_GROUP = 65_536
COMPRESSION = "zstd"

_PYARROW = re.compile(r"parquet-cpp-arrow version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_SIZES = {
    "serialized_size",
    "file_offset",
    "dictionary_page_offset",
    "data_page_offset",
    "total_compressed_size",
    "total_uncompressed_size",  # with page headers, which give the compressed size in a variable number of bytes
    "total_byte_size",
}
"""Entries of a footer that depend on the compressed size of pages."""
_MAGIC_BYTES, _LENGTH_BYTES = 4, 4


@dataclass(frozen=True, slots=True)
class BytesFinding:
    """Whether the bytes are those of the writer; ``doubt`` says why this cannot be decided and what would decide it."""

    is_sound: bool
    doubt: str = ""


def compare_parquet(
    released: Path, policy: Policy, writers: Mapping[str, NumberWriter], original: Path | None
) -> BytesFinding:
    """Compare a released Parquet file with the file that `shoal batch` would write for its rows.

    Parameters
    ----------
    released : Path
    policy : Policy
    writers : mapping
        Functions that write the numbers of quasi-identifiers.
    original : Path, optional
        The original, if it is a Parquet file: columns keep its types.

    Raises
    ------
    InputError
        A file is not readable as Parquet, or pyarrow is missing.

    Notes
    -----
    Cost: O(n) time, and the memory of one row group, or of the file if the bytes differ.
    """
    with parquet_file(released) as file:
        schema = file.schema_arrow
        expected = _published_types(policy, original)
        if schema.names != list(expected):
            return BytesFinding(is_sound=False)
        kinds = [_matching(schema.field(name).type, candidates) for name, candidates in expected.items()]
        creator = _PYARROW.fullmatch(file.metadata.created_by or "")
        if creator is None:
            return BytesFinding(is_sound=False)
        if file.metadata.created_by != _created_by():
            return BytesFinding(
                is_sound=False,
                doubt=f"the release was written by pyarrow {creator[1]}, and its bytes can only be compared with those "
                f"of the same version: install pyarrow=={creator[1]} and verify again",
            )
        if None in kinds:
            doubt = "" if original else "the types of its columns are not those of the policy: give the Parquet file"
            return BytesFinding(is_sound=False, doubt=doubt and f"{doubt} that was released as --original")
        fields = list(zip(expected, kinds, strict=True))
        return _compare(released, file, fields, [writers.get(name) for name in expected])


def _compare(
    released: Path, file: ArrowObject, fields: list[tuple[str, DataType]], writers: Sequence[NumberWriter | None]
) -> BytesFinding:
    arrow = import_module("pyarrow")
    collected: list[Any] = []
    try:
        with released.open("rb") as content:
            sink = _Comparison(content)
            _write(file, fields, writers, sink, collected)
            if sink.is_equal():
                return BytesFinding(is_sound=True)
    except (arrow.ArrowException, OverflowError, TypeError):
        # The values do not fit the types: the writer would have refused them.
        return BytesFinding(is_sound=False)
    if not _differs_in_pages_only(released, file.metadata, collected[0]):
        return BytesFinding(is_sound=False)
    return BytesFinding(
        is_sound=False,
        doubt="the release differs from what pyarrow writes here in compressed pages alone (another build of zstd, or "
        "hidden data): verify it with the installation that wrote it, or release it as CSV or JSON lines",
    )


def _write(
    file: ArrowObject,
    fields: list[tuple[str, DataType]],
    writers: Sequence[NumberWriter | None],
    sink: io.RawIOBase,
    collected: list[Any],
) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    schema = arrow.schema(fields)
    with parquet.ParquetWriter(sink, schema, compression=COMPRESSION, metadata_collector=collected) as writer:
        for columns in _groups(file, writers):
            arrays = [_column(arrow, values, kind) for values, (_, kind) in zip(columns, fields, strict=True)]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=writer.schema))


def _groups(file: ArrowObject, writers: Sequence[NumberWriter | None]) -> Iterator[list[list[Any]]]:
    """Yield the columns of the writer's row groups, whatever the row groups of the file are."""
    arrow = import_module("pyarrow")
    pending: list[list[Any]] = [[] for _ in writers]
    for batch in file.iter_batches(ROWS_PER_GROUP):
        for values, column, write in zip(pending, batch.columns, writers, strict=True):
            values += [rewritten_number(value, write) for value in plain_values(arrow, column)]
        if len(pending[0]) >= ROWS_PER_GROUP:
            yield [values[:ROWS_PER_GROUP] for values in pending]
            pending = [values[ROWS_PER_GROUP:] for values in pending]
    if pending[0]:
        yield pending


def _column(arrow: ArrowObject, values: list[Any], kind: DataType) -> ArrowObject:
    if arrow.types.is_dictionary(kind):
        return _column(arrow, values, kind.value_type).dictionary_encode().cast(kind)
    if has_json_type(arrow, kind):
        return arrow.array(values, kind)
    return arrow.array(values, arrow.string()).cast(kind)


class _Comparison(io.RawIOBase):
    """Compares what is written with the content of a file, piece by piece."""

    def __init__(self, content: BinaryIO) -> None:
        super().__init__()
        self._content, self._has_equal_bytes = content, True

    def writable(self) -> bool:
        return True

    def write(self, data: ArrowObject) -> int:
        piece = bytes(data)
        self._has_equal_bytes = self._has_equal_bytes and self._content.read(len(piece)) == piece
        return len(piece)

    def is_equal(self) -> bool:
        """Whether all bytes were equal and the file has no more."""
        return self._has_equal_bytes and not self._content.read(1)


# ---------------------------------------------------------------- types of columns


def _published_types(policy: Policy, original: Path | None) -> dict[str, list[DataType]]:
    """Return the types that the writer can give each column; the writer chooses by the values where there are several.

    The file that was released may have been a copy of the original in another format, so the types of both are allowed.
    """
    arrow = import_module("pyarrow")
    source = {}
    if original is not None:
        with parquet_file(original) as file:
            names = file.schema_arrow.names
            source = {name: file.schema_arrow.field(name).type for name in names if names.count(name) == 1}
    return {column_name(a): _types_of(arrow, a, source.get(a.name)) for a in policy.published}


def _types_of(arrow: ArrowObject, attribute: Attribute, source: DataType | None) -> list[DataType]:
    if attribute.role is Role.QUASI_IDENTIFIER and attribute.scale is not Scale.NUMERIC:
        return _types_of_scale(arrow, attribute, source)
    if attribute.role is Role.QUASI_IDENTIFIER:
        step = attribute.publication_step(table=True)
        if not step or step != step.to_integral_value():
            return [arrow.float64()]
        is_integer = source is not None and arrow.types.is_integer(source)
        return [source, arrow.int64()] if is_integer else [arrow.int64()]
    declared = {
        "string": [arrow.string()],
        "integer": [arrow.int64()],
        "number": [arrow.float64()],
        "boolean": [arrow.bool_()],
        "json": [arrow.string()],
    }
    plain = [arrow.null(), arrow.bool_(), arrow.int64(), arrow.float64(), arrow.string()]
    return ([] if source is None else [source]) + declared.get(attribute.type, plain)


def _types_of_scale(arrow: ArrowObject, attribute: Attribute, source: DataType | None) -> list[DataType]:
    """Return the types of a column of times, ranks or categories."""
    if attribute.scale is Scale.TIME:
        return [arrow.string() if attribute.unit is None else arrow.int64()]
    if attribute.taxonomy is not None:
        return [arrow.string()]
    plain = [arrow.null(), arrow.bool_(), arrow.int64(), arrow.string()]
    return plain if attribute.scale is Scale.ORDINAL or source is None else [source, *plain]


def _matching(found: DataType, candidates: Sequence[DataType]) -> DataType | None:
    """Return the first candidate that is read as the type that was found; None if there is none."""
    return next((kind for kind in candidates if _as_read(kind) == found), None)


def _as_read(kind: DataType) -> DataType:
    """Return the type of a column after it was written and read: some types come back as others."""
    schema = import_module("pyarrow").schema([("a", kind)])
    return _empty_file(schema).schema_arrow.field(0).type


def _created_by() -> str:
    return str(_empty_file(import_module("pyarrow").schema([])).metadata.created_by)


def _empty_file(schema: ArrowObject) -> ArrowObject:
    parquet = import_module("pyarrow.parquet")
    file = io.BytesIO()
    parquet.ParquetWriter(file, schema).close()
    return parquet.ParquetFile(file)


# ---------------------------------------------------------------- structure


def _differs_in_pages_only(path: Path, found: ArrowObject, expected: ArrowObject) -> bool:
    """Whether two files have equal footers, apart from sizes and offsets, and the first has no bytes beside its pages.

    The compressed bytes of a page depend on the version of zstd, which a build of pyarrow may take from the system.
    """
    return (
        found.metadata == expected.metadata
        and found.schema.equals(expected.schema)
        and _footer(found) == _footer(expected)
        and _has_pages_only(path, found)
    )


def _footer(metadata: ArrowObject) -> ArrowObject:
    """Return the entries of a footer without sizes; None if its statistics have no Python values (a far date)."""
    try:
        return _without_sizes(metadata.to_dict())
    except (OverflowError, ValueError):
        return None


def _without_sizes(footer: ArrowObject) -> ArrowObject:
    if isinstance(footer, dict):
        return {name: _without_sizes(value) for name, value in footer.items() if name not in _SIZES}
    return [_without_sizes(value) for value in footer] if isinstance(footer, list) else footer


def _has_pages_only(path: Path, found: ArrowObject) -> bool:
    """Whether the pages of the columns follow each other without a gap, from the magic number to the footer."""
    end = _MAGIC_BYTES
    for start, size in _chunks(found):
        if start != end:
            return False
        end += size
    with path.open("rb") as content:
        content.seek(-_LENGTH_BYTES - _MAGIC_BYTES, os.SEEK_END)
        footer_end = content.tell()
        return end == footer_end - int.from_bytes(content.read(_LENGTH_BYTES), "little")


def _chunks(found: ArrowObject) -> Iterator[tuple[int, int]]:
    for row_group in map(found.row_group, range(found.num_row_groups)):
        for chunk in map(row_group.column, range(row_group.num_columns)):
            start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            yield start, chunk.total_compressed_size
