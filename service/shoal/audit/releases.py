"""Reads the released rows and checks each of them by itself: columns, canonical form, grid, bounds.

A row is compared with others by its quasi-identifiers as printed and by the values of its unchanged fields. Its text
must be the canonical one: compact JSON, or CSV with the fewest quotes. A second way of writing the same value could
carry information, such as 1e2 for 100.0 or an escape for a letter.

Compares the bytes of a released Parquet file with those that `shoal batch` writes for its rows.

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
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from shoal.audit.fields import (
    FIELD_SEPARATOR,
    FieldPaths,
    canonical_decimal,
    column_name,
    document_text,
    nested_order,
    output_path,
    released_document_reader,
    released_reader,
    source_form,
)
from shoal.audit.originals import csv_line, is_export_of
from shoal.audit.published_values import NO_VALUE, PublishedNumbers, PublishedValues
from shoal.audit.reading import (
    RELEASED_ENVELOPE,
    RELEASED_EXPORT,
    Form,
    InputFile,
    JsonNumber,
    NumberWriter,
    Record,
    as_record,
    first_line_names,
    has_encoded_lines,
    has_json_type,
    is_parquet,
    json_text,
    parquet_file,
    plain_values,
    released_header,
    released_records,
    rewritten_number,
)
from shoal.audit.scales import DecimalSign
from shoal.audit.verdict import CheckCounter
from shoal.policy import Attribute, CsvDialect, Policy, Role, Scale

__all__ = [
    "BytesFinding",
    "CanonicalCsv",
    "CanonicalJson",
    "PartitionRows",
    "ReleasedRows",
    "compare_parquet",
    "read_release",
]

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


_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(slots=True)
class PartitionRows:
    """The released rows of one partition, in their order.

    Attributes
    ----------
    quasi, unchanged : list of str
        Texts of the quasi-identifiers and of the unchanged fields of each row.
    lines : list of int
        Number of each row in the file, from 1; a header does not count.
    is_ascending : bytearray
        1 where a row is not below the row before it in byte order.
    texts : list of str
        The rows as published; empty unless ``stores_texts``.
    """

    quasi: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    is_ascending: bytearray = field(default_factory=bytearray)
    texts: list[str] = field(default_factory=list)
    stores_texts: bool = False
    _last: str = ""

    def __len__(self) -> int:
        return len(self.quasi)

    def add(self, line: int, text: str, quasi: str, unchanged: str) -> None:
        """Append one row."""
        # The order of code points is that of UTF-8 bytes.
        self.is_ascending.append(self._last <= text)
        self._last = text
        self.quasi.append(quasi)
        self.unchanged.append(unchanged)
        self.lines.append(line)
        if self.stores_texts:
            self.texts.append(text)


@dataclass(slots=True)
class ReleasedRows:
    """All released rows by partition, the checks on single rows and on the file, and what these cannot decide.

    ``envelope``: which of ``key`` and ``headers`` the lines of an export have.
    """

    by_partition: dict[int, PartitionRows]
    checks: list[CheckCounter]
    is_export: bool
    undecided: tuple[str, ...] = ()
    envelope: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))


def read_release(
    policy: Policy,
    file: InputFile,
    published: Sequence[PublishedValues],
    *,
    original: InputFile,
    is_export: bool | None = None,
    stores_texts: bool = False,
) -> ReleasedRows:
    """Read the released file and check every row by itself.

    Parameters
    ----------
    policy : Policy
    file : InputFile
    published : sequence of PublishedValues
        One per quasi-identifier.
    original : InputFile
        The original.
    is_export : bool, optional
        Whether the file is an export of a topic; None: decide by its first line.
    stores_texts : bool
        Whether to store the rows as published. Those of an export are stored in any case.

    Raises
    ------
    InputError
        The file cannot be read at all. A malformed row is a broken check, not an error.
    """
    form = file.form
    exported = is_export_of(policy, file, RELEASED_EXPORT, RELEASED_ENVELOPE) if is_export is None else is_export
    checker = _RowChecker(policy, form, original.form, published, is_binary=is_parquet(file.path))
    header = released_header(file.path, file.dialect) if form == "csv" else None
    if header is not None:
        # A header shows field names even if no row follows.
        checker.check_header(*header)
    partitions: dict[int, PartitionRows] = {}
    writers = {column_name(one.attribute): one.grid.canonical for one in published if isinstance(one, PublishedNumbers)}
    rows = released_records(file, is_export=exported, number_writers=writers)
    envelope = CheckCounter("envelope", "released messages have neither a key nor headers")
    for line, (partition, text, record, is_bare) in enumerate(rows, 1):
        quasi, unchanged = checker.check(line, text, record)
        sorted_by = checker.json_row(record) if checker.has_other_rows else text
        partitions.setdefault(partition, PartitionRows(stores_texts=stores_texts or exported)).add(
            line, sorted_by, quasi, unchanged
        )
        if is_bare is not None:
            envelope.expect(is_bare, line)
    if exported:
        checks = [*checker.checks, *([envelope] if envelope.examined else [])]
        shown = RELEASED_ENVELOPE & first_line_names(file.path) if envelope.examined else frozenset()
        return ReleasedRows(partitions, checks, exported, envelope=shown)
    check, doubt = _check_bytes(policy, file, original, writers)
    return ReleasedRows(partitions, [*checker.checks, check], exported, (doubt,) if doubt else ())


def _check_bytes(
    policy: Policy, file: InputFile, original: InputFile, writers: Mapping[str, NumberWriter]
) -> tuple[CheckCounter, str]:
    """Check that the file has no bytes but those of its rows; return also why this cannot be decided, or ""."""
    check = CheckCounter("bytes", "the file has the bytes that Shoal writes for its rows, and no others", "file")
    if is_parquet(file.path):
        found = compare_parquet(file.path, policy, writers, original.path if is_parquet(original.path) else None)
        if found.doubt:
            check.skip(found.doubt)
            return check, found.doubt
        is_sound = found.is_sound
    else:
        # The rows themselves are checked one by one.
        is_sound = has_encoded_lines(file.path, file.dialect if file.form == "csv" else CsvDialect())
    check.expect(is_sound, "released")
    return check, ""


class _RowChecker:
    """Checks columns, canonical form, grid and bounds of single rows, and returns the texts to compare them by."""

    def __init__(
        self, policy: Policy, form: Form, original: Form, published: Sequence[PublishedValues], *, is_binary: bool
    ) -> None:
        self._columns = CheckCounter("columns", "every row has exactly the published fields, in order")
        self._hidden = CheckCounter("hidden", "no identifier and no undeclared field appears")
        self._spelling = CheckCounter("spelling", "every value is written in its canonical form")
        self._grid = CheckCounter("grid", "quasi-identifiers are multiples of their resolution")
        self._bounds = CheckCounter(
            "bounds", "quasi-identifiers are within their bounds, plus or minus half a resolution"
        )
        self._values = CheckCounter(
            "values", "categories and times are among those that the policy allows, and missing where it allows that"
        )
        self._has_values = any(not one.is_number for one in published)
        self._dialect = policy.csv_output
        self._rows = JsonRows(policy)
        # The rows of Parquet are sorted as JSON, which may have objects and values of type json.
        self.has_other_rows = is_binary and not self._rows.is_plain
        has_columns = form == "csv" or is_binary
        self._fields = FieldPaths(
            {_column_path(a) if has_columns else output_path(a): a.name for a in policy.published}
        )
        self._paths, self._names = nested_order(self._fields.paths), list(self._fields.paths.values())
        self._has_one_column = form == "csv" and len(self._paths) == 1
        self._quasi = [(one.attribute.name, one) for one in published]
        sign = DecimalSign(policy.csv_output.decimal if form == "csv" else ".")
        self._unchanged = [
            (
                a.name,
                released_document_reader(form, is_binary=is_binary)
                if a.type == "json"
                else released_reader(a.type, source_form(a, original), form, sign),
            )
            for a in policy.unchanged_fields
        ]
        self._canonical = CanonicalCsv(policy) if form == "csv" else CanonicalJson(policy, has_columns=is_binary)
        self._known: dict[tuple[str, str], tuple[bool, bool]] = {}
        self._interned: dict[str, str] = {}

    @property
    def checks(self) -> list[CheckCounter]:
        values = [self._values] if self._has_values else []
        return [self._columns, self._hidden, self._spelling, self._grid, *values, self._bounds]

    def check_header(self, text: str, names: list[str]) -> None:
        columns = [path[0] for path in self._fields.paths]
        self._columns.expect(names == columns, "header")
        self._spelling.expect(text == csv_line(names, self._dialect), "header")
        self._hidden.expect(not set(names) - set(columns), "header")

    def json_row(self, record: Record | None) -> str:
        """Return the JSON row by which a row of Parquet is sorted."""
        return "" if record is None else self._rows.text(record)

    def check(self, line: int, text: str, record: Record | None) -> tuple[str, str]:
        """Check one row; return its texts of quasi-identifiers and of unchanged fields."""
        if self._has_one_column and not text:
            # The row of a file with one column is an empty line if the value is missing.
            record = {self._paths[0][0]: ""}
        fields = [] if record is None else self._fields.items(record)
        paths = [path for path, _ in fields]
        self._columns.expect(paths == self._paths, line)
        self._hidden.expect(paths == self._paths or self._fields.paths.keys() >= set(paths), line)
        if record is None:
            return NO_VALUE, NO_VALUE
        self._spelling.expect(self._canonical.matches(text, record), line)
        record = {self._fields.paths[path]: value for path, value in fields if path in self._fields.paths}
        if not all(name in record for name in self._names):
            return NO_VALUE, NO_VALUE
        quasi = FIELD_SEPARATOR.join([self._check_value(line, name, one, record[name]) for name, one in self._quasi])
        unchanged = FIELD_SEPARATOR.join([read(record[name]) or NO_VALUE for name, read in self._unchanged])
        return self._interned.setdefault(quasi, quasi), unchanged

    def _check_value(self, line: int, name: str, published: PublishedValues, value: object) -> str:
        text = published.text_of(value)
        known = self._known.get((name, text))
        if known is None:
            known = self._known[name, text] = (published.allows(text), published.within_bounds(text))
        (self._grid if published.is_number else self._values).expect(known[0], line)
        self._bounds.expect(known[1], line)
        return text


# ---------------------------------------------------------------- canonical form


class JsonRows:
    """Writes rows of Parquet as the JSON rows by whose bytes they are sorted, with their objects."""

    def __init__(self, policy: Policy) -> None:
        columns = {output_path(a): column_name(a) for a in policy.published}
        self._columns = {path: columns[path] for path in nested_order(columns)}
        self._documents = {column_name(a) for a in policy.unchanged_fields if a.type == "json"}
        self.is_plain = not self._documents and all(len(path) == 1 for path in columns)

    def text(self, record: Record) -> str:
        """Return the text of a row, given as a mapping from column to value."""
        row: dict[str, object] = {}
        for path, column in self._columns.items():
            *above, last = path
            inner = row
            for name in above:
                found = inner.setdefault(name, {})
                inner = found if isinstance(found, dict) else {}
            inner[last] = self._value(column, record.get(column))
        return _object_text(row)

    def _value(self, column: str, value: object) -> str:
        if column in self._documents and isinstance(value, str):
            return value
        return value if isinstance(value, JsonNumber) else _canonical_value(value)


def _object_text(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return "{" + ",".join(f"{json_text(name)}:{_object_text(inner)}" for name, inner in value.items()) + "}"


class CanonicalJson:
    """The canonical form of a JSON row: no white space, the fewest escapes, one form for all numbers of a value.

    ``has_columns``: whether the row was read from Parquet, whose columns contain no objects.
    """

    def __init__(self, policy: Policy, *, has_columns: bool = False) -> None:
        place = _column_path if has_columns else output_path
        self._quasi = {place(a) for a in policy.quasi_identifiers if a.scale is Scale.NUMERIC}
        self._documents = {place(a) for a in policy.unchanged_fields if a.type == "json" and not has_columns}
        self._objects = FieldPaths({place(a): a.name for a in policy.published}).objects

    def matches(self, text: str, record: Record) -> bool:
        """Whether a row is in its canonical form, whatever its values are."""
        return text == self._object(record, ())

    def _object(self, record: Record, above: tuple[str, ...]) -> str:
        fields = (f"{json_text(name)}:{self._value((*above, name), value)}" for name, value in record.items())
        return "{" + ",".join(fields) + "}"

    def _value(self, path: tuple[str, ...], value: object) -> str:
        inner = as_record(value) if path in self._objects else None
        if inner is not None:
            return self._object(inner, path)
        # The grid check prescribes the decimals of quasi-identifiers.
        if isinstance(value, JsonNumber) and path in self._quasi:
            return value
        if path in self._documents:
            return document_text(value) or ""
        return _canonical_value(value)


def _column_path(attribute: Attribute) -> tuple[str, ...]:
    return (column_name(attribute),)


def _canonical_value(value: object) -> str:
    if isinstance(value, JsonNumber):
        return value if _is_canonical_number(value) else ""
    if isinstance(value, str):
        return json_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null"


def _is_canonical_number(text: str) -> bool:
    return _JSON_NUMBER.fullmatch(text) is not None and text == canonical_decimal(text)


class CanonicalCsv:
    """The canonical form of a CSV row: only cells that need quotes have them; numbers as in JSON."""

    def __init__(self, policy: Policy) -> None:
        self._types = {a.name: a.type for a in policy.published if a.role is not Role.QUASI_IDENTIFIER}
        self._dialect = policy.csv_output
        self._sign = DecimalSign(policy.csv_output.decimal)

    def matches(self, text: str, record: Record) -> bool:
        """Whether a row is in its canonical form, whatever its values are."""
        cells = {name: str(cell) for name, cell in record.items()}
        return text == csv_line(list(cells.values()), self._dialect) and all(
            self._is_canonical(name, cell) for name, cell in cells.items()
        )

    def _is_canonical(self, name: str, cell: str) -> bool:
        # Quasi-identifiers are checked against their grid; a text has one form only.
        match self._types.get(name, "any"):
            case "integer" | "number":
                return not cell or _is_canonical_number(self._sign.to_point(cell))
            case "boolean":
                return cell in {"", "true", "false"}
            case _:
                return True
