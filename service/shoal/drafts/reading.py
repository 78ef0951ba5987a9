"""Read the beginning of a file: its form, and the values of each field.

Nothing is declared yet, so the readers of `shoal.formats`, which need a policy, cannot be used. What is sniffed here is
written into the draft, and they read the file by it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from shoal.errors import ConfigError, InputError
from shoal.files import Files, open_input
from shoal.files.files import partition_of, parts_of
from shoal.formats.csv import CsvFormat
from shoal.formats.json import JsonFormat
from shoal.formats.values import has_values, json_values
from shoal.policy import BLANKS, FieldPath

MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 1 << 25
"""What is read of a file of lines, so that memory is bounded: 32 MiB."""


class Absent:
    """The class of `ABSENT`."""


class Nested:
    """The class of `NESTED`."""


ABSENT, NESTED = Absent(), Nested()
"""In place of a value: a field that a JSON object does not have; a list, or an object beside other values."""
Values: TypeAlias = list[Any]
"""Of one field, row by row: texts of CSV, JSON scalars of other formats, `ABSENT` or `NESTED`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The first rows of a file.

    Attributes
    ----------
    name : str
        The file, without its folder.
    has_texts : bool
        Whether all values are texts, as in CSV; else numbers and truth values have their own types.
    is_parquet : bool
        Whether the format is for tables only.
    rows : int
        How many were read.
    is_cut : bool
        Whether the file has more of them.
    columns : dict of path to list
        The values of each field. A path has several names inside JSON objects.
    dialect : dict of str to str
        Keys of the section ``csv`` that differ from their defaults.
    notes : list of str
        What else a reader of the draft should know; no value is in them.
    has_others : bool
        Whether there are fields that no policy can declare.
    unwrap : str
        The envelope around the records; empty without one.
    sources : dict of path to str
        The part of a message that holds a field, if it is not the value.
    """

    name: str
    has_texts: bool
    is_parquet: bool
    rows: int
    is_cut: bool
    columns: dict[FieldPath, Values]
    dialect: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    has_others: bool = False
    unwrap: str = ""
    sources: dict[FieldPath, str] = field(default_factory=dict)

    def closed(self, objects: Collection[FieldPath]) -> Sample:
        """Return the sample with each of these objects as one field of nested values."""
        columns: dict[FieldPath, Values] = {}
        for path, values in self.columns.items():
            whole = next((path[:depth] for depth in range(1, len(path)) if path[:depth] in objects), None)
            if whole is None:
                columns[path] = values
                continue
            before = columns.get(whole, [ABSENT] * len(values))
            columns[whole] = [old if value is ABSENT else NESTED for old, value in zip(before, values, strict=True)]
        return replace(self, columns=columns)


def read_sample(path: str, source_format: str | None) -> Sample:
    """Read at most `MAX_ROWS` rows of a file, or of the first of a folder or pattern.

    InputError or ConfigError, with the remedy, if it cannot be read.
    """
    file_format = Files(path, source_format=source_format).input_format()
    name = "standard input" if path == "-" else Path(path).name
    parts = parts_of(path)
    with open_input(parts[0] if parts else path) as stream:
        if isinstance(file_format, CsvFormat | JsonFormat):
            content = _read_bytes(stream)
            read = _read_csv if isinstance(file_format, CsvFormat) else _read_json
            try:
                sample = read(content[:MAX_BYTES], name, len(content) > MAX_BYTES)
            except csv.Error:
                why = "a cell of more than 131,072 characters, as one is that is never closed"
                raise InputError(f"{path}: {why}; correct the quotation marks") from None
        elif type(file_format).__module__ == "shoal.formats.parquet":  # it may not be installed
            sample = _read_parquet(stream, name) if len(parts) < 2 else _read_parts(path, parts, name)  # noqa: PLR2004
        elif type(file_format).__module__ == "shoal.formats.xlsx":
            sample = _read_workbook(stream, name)
        else:
            raise ConfigError(f"{path}: a sample is CSV, JSON, Parquet or .xlsx; write it as one of these")
    if not sample.rows:
        raise InputError(f"{path}: has no rows; give a sample with records")
    return replace(sample, is_cut=sample.is_cut or len(parts) > 1)


def _read_bytes(stream: BinaryIO) -> bytes:
    """Return at most one byte more than `MAX_BYTES`; a compressed file gives them piece by piece."""
    content = bytearray()
    while len(content) <= MAX_BYTES and (piece := stream.read1(MAX_BYTES + 1 - len(content))):  # type: ignore[attr-defined]
        content += piece
    return bytes(content)


# ---------------------------------------------------------------- CSV

_DELIMITERS = (",", ";", "\t", "|")
_SNIFFED_LINES = 200
_COMMA_NUMBER = re.compile(
    r"[^\d,.]{0,4}(?:[0-9]*,[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+|[0-9]{1,3}(?:\.[0-9]{3}){2,})[^\d,.]{0,4}"
)
"""A number with a comma, perhaps with separators of thousands and a symbol."""
_SWAPPED = str.maketrans(",.", ".,")
_OF_RECORD = re.compile(
    r"[-+]?[0-9]*[.,]?[0-9]+|[0-9]{1,4}[-./][0-9]{1,2}([-./][0-9]{1,4})?([ T].*)?"
    r"|[0-9]{1,2}[ -][A-Za-z]{3,9}[ -][0-9]{4}.*|[^@\s]+@[^@\s]+\.[^@\s]+"
)
"""A number, a date or an e-mail address."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BINARY_STARTS = (b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"BZh", b"\x28\xb5\x2f\xfd")


def _read_csv(content: bytes, name: str, is_cut: bool) -> Sample:  # noqa: FBT001 - chosen above
    encoding = _sniff_encoding(content, name)
    text = content.decode(encoding, "replace").removeprefix("\ufeff")
    has_returns = "\n" not in text and "\r" in text
    lines = text.split("\r") if has_returns else text.replace("\r\n", "\n").split("\n")
    if is_cut:
        lines.pop()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{name}: the file is empty; give at least a header with the names of the columns")
    _require_no_preamble(lines, name)
    options = _sniff_delimiter(lines[:_SNIFFED_LINES])
    rows = ([cell.strip(BLANKS) for cell in row] for row in _rows(lines, options))
    header = next(rows, [])
    _check_header(header, lines, options, name)
    read = list(islice(rows, MAX_ROWS + 1))
    records = [row for row in read[:MAX_ROWS] if len(row) == len(header) and row != header]
    if read and not records:
        raise InputError(
            f"{name}: no line has as many cells as the header, {len(header)}; give each column a name, also one of "
            "numbers of rows, or correct the delimiter"
        )
    columns: list[Values] = [list(column) for column in zip(*records, strict=True)] or [[] for _ in header]
    _require_names(header, columns, name)
    found = options | {"encoding": encoding, "line_end": "cr" if has_returns else "lf"}
    found["decimal"] = "," if options["delimiter"] != "," and _has_decimal_commas(columns) else "."
    left_out = len(read[:MAX_ROWS]) - len(records)
    why = "rows with another number of cells than the header, or equal to it, are refused and not in here"
    return Sample(
        name,
        has_texts=True,
        is_parquet=False,
        rows=len(records),
        is_cut=is_cut or len(read) > MAX_ROWS,
        columns=dict(zip(((cell,) for cell in header), columns, strict=True)),
        dialect={key: value for key, value in found.items() if value != _USUAL[key]},
        notes=[f"{left_out:,} {why}"] if left_out else [],
    )


_USUAL = {
    "delimiter": ",",
    "quote": '"',
    "escape": "doubled",
    "encoding": "utf-8",
    "line_end": "lf",
    "decimal": ".",
}


def _rows(lines: Sequence[str], options: dict[str, str]) -> Iterator[list[str]]:
    is_doubled = options["escape"] == "doubled"
    return csv.reader(
        (line + "\n" for line in lines),
        delimiter=options["delimiter"],
        quotechar=options["quote"],
        doublequote=is_doubled,
        escapechar=None if is_doubled else "\\",
    )


def _sniff_encoding(content: bytes, name: str) -> str:
    """Return the name of the encoding, as the key ``csv.encoding`` has it."""
    if content.startswith(_BINARY_STARTS):
        raise InputError(
            f"{name}: no text: the file is compressed or binary; uncompress it, or give it the suffix of its format"
        )
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    start = content[:1000]
    if start.count(0) > len(start) // 4:
        return "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
    if 0 in start:
        raise InputError(f"{name}: no text: the file is binary; give CSV with a header, JSON lines or Parquet")
    try:
        content[: content.rfind(b"\n") + 1 or None].decode()
    except UnicodeDecodeError:
        undefined = b"\x81\x8d\x8f\x90\x9d"
        return "latin-1" if any(byte in content for byte in undefined) else "cp1252"
    return "utf-8"


def _sniff_delimiter(lines: Sequence[str]) -> dict[str, str]:
    """Return the options under which most lines have the width of the first; at equal shares, the widest."""
    text = "\n".join(lines)
    quote = "'" if text.count("'") > 2 * len(lines) and '"' not in text else '"'
    escape = "backslash" if f"\\{quote}" in text and quote * 2 not in text else "doubled"
    best: tuple[float, int] = (0.0, 0)
    chosen = {"delimiter": ",", "quote": quote, "escape": escape}
    for delimiter in _DELIMITERS:
        options = {"delimiter": delimiter, "quote": quote, "escape": escape}
        try:
            widths = [len(row) for row in _rows(lines, options)]
        except csv.Error:
            continue
        alike = sum(width == widths[0] for width in widths) / len(widths)
        if widths[0] > 1 and (round(alike, 1), widths[0]) > best:
            best, chosen = (round(alike, 1), widths[0]), options
    return chosen


def _require_no_preamble(lines: Sequence[str], name: str) -> None:
    """Refuse lines before the header, which no reader of a policy skips."""
    first = lines[0].strip(BLANKS + '"').lower()
    before = 1 if re.fullmatch(r"sep=.?", first) else 0
    if not before:
        plain = [re.sub(r"\"[^\"]*\"", "", line) for line in lines[:_SNIFFED_LINES]]
        widths = [max(line.count(delimiter) for delimiter in _DELIMITERS) for line in plain]
        usual = Counter(widths).most_common(1)[0][0]
        if usual and not widths[0]:
            before = next(number for number, width in enumerate(widths) if width == usual)
    if before:
        raise InputError(
            f"{name}: the header is in line {before + 1}, and must be in line 1; remove the lines before it, as with "
            f"tail -n +{before + 1}"
        )


def _check_header(header: Sequence[str], lines: Sequence[str], options: dict[str, str], name: str) -> None:
    """Refuse a first line that cannot be a header; no error quotes a cell, which may be a value."""
    if not header[-1] and len(header) > 1:
        widths = {len(row) for row in _rows(lines[1:_SNIFFED_LINES], options)}
        where = "all lines" if len(header) in widths else "the header"
        raise InputError(f"{name}, line 1: the header ends with a delimiter; remove it from {where}")
    for number, cell in enumerate(header, 1):
        if not cell:
            raise InputError(f"{name}, line 1: column {number} has no name; add one")
        if (other := header.index(cell) + 1) < number:
            raise InputError(f"{name}, line 1: columns {other} and {number} have one name; rename one of them")


def _require_names(header: Sequence[str], columns: Sequence[Values], name: str) -> None:
    """Refuse a first line that may be a record, because its cells would be published as names of fields."""
    for number, (cell, values) in enumerate(zip(header, columns, strict=True), 1):
        if values and (_OF_RECORD.fullmatch(cell) or cell in values):
            raise InputError(
                f"{name}, line 1: looks like a record, as column {number} has a number, a date, an e-mail address or a "
                "value of its column; add a first line with the names of the columns, or rename the column"
            )


def _has_decimal_commas(columns: Sequence[Values]) -> bool:
    """Return whether more columns have numbers with a comma than with a point."""
    commas = points = 0
    for column in columns:
        present = [cell for cell in column if isinstance(cell, str) and cell]
        commas += sum(_COMMA_NUMBER.fullmatch(cell) is not None for cell in present) > len(present) // 2
        pointed = (cell.translate(_SWAPPED) for cell in present)
        points += sum(_COMMA_NUMBER.fullmatch(cell) is not None for cell in pointed) > len(present) // 2
    return commas > points


# ---------------------------------------------------------------- JSON


def _read_json(content: bytes, name: str, is_cut: bool) -> Sample:  # noqa: FBT001 - chosen above
    content = content.removeprefix(b"\xef\xbb\xbf")
    found = list(json_values(content, name)) if has_values(content) and not is_cut else [None]
    if found != [None]:
        records = [_decoded(str(one).encode(), name, f"value {number}") for number, one in enumerate(found, 1)]
    else:
        lines = content.split(b"\n")[: -1 if is_cut else None]
        present = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        records = [_decoded(line, name, f"line {number}") for number, line in islice(present, MAX_ROWS + 1)]
    is_cut, records = is_cut or len(records) > MAX_ROWS, records[:MAX_ROWS]
    objects = [record for record in records if isinstance(record, dict)]
    others = len(records) - len(objects)
    notes = [f"{others:,} lines are no JSON objects: they are refused, and not in here"] if others else []
    columns: dict[FieldPath, Values] = {}
    objects, keys = _of_export(objects, notes)
    objects, keys, unwrap = _unwrapped(objects, keys, notes)
    _require_records(objects, name)
    for row, record in enumerate(objects):
        _add_fields(record, (), row, columns)
    for values in columns.values():
        values.extend([ABSENT] * (len(objects) - len(values)))
    _close_objects(columns)
    hidden = [path for path in columns if len(path) > 1 and any("." in part or part.isdigit() for part in path)]
    alike = [path for path in columns if len(path) > 1 and path not in hidden and (".".join(path),) in columns]
    for path in (*hidden, *alike):
        del columns[path]
    sources = {_KEY: "key"} if keys and _KEY not in columns else {}
    columns |= dict.fromkeys(sources, keys)
    if alike:
        notes.append(f"{len(alike):,} of the fields in objects are dropped: another field has the name of their path")
    if hidden:
        notes.append(f"{len(hidden):,} fields are dropped: no path leads to names with dots or of digits in objects")
    return Sample(
        name,
        has_texts=False,
        is_parquet=False,
        rows=len(objects),
        is_cut=is_cut,
        columns=columns,
        dialect={"delimiter": ";", "decimal": ","} if _has_decimal_commas(list(columns.values())) else {},
        notes=notes,
        has_others=bool(hidden or alike),
        unwrap=unwrap,
        sources=sources,
    )


def _require_records(objects: _Objects, name: str) -> None:
    """Raise InputError if the only record holds lists of objects: those are the records, as in the answer of an API."""
    lists = [key for key, value in objects[0].items() if _is_list_of_objects(value)] if len(objects) == 1 else []
    if lists:
        raise InputError(
            f"{name}: one record, which holds a list of others ({', '.join(lists)}): if these are the records, write "
            "them to a file of their own, such as with: jq '.[\"NAME\"]' FILE > NEW.json"
        )


def _is_list_of_objects(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(value, list) and len(value) > 1 and all(isinstance(one, dict) for one in value)


_KEY: Final[FieldPath] = ("key",)
_OF_MESSAGE = {"partition", "offset", "value"}
_AROUND = _OF_MESSAGE | {"topic", "timestamp", "key", "headers"}
_Objects: TypeAlias = list[dict[str, Any]]


def _of_export(objects: _Objects, notes: list[str]) -> tuple[_Objects, Values]:
    """Return the records of exported messages, and their keys; none if no message has one, or the file is no export."""
    if not objects or not all(one.keys() >= _OF_MESSAGE and one.keys() <= _AROUND for one in objects):
        return objects, []
    found = [(_value_of(one["value"]), one.get("key")) for one in objects]
    present = [(value, key) for value, key in found if isinstance(value, dict)]
    note = "The lines are messages of a topic, and these fields those of their values."
    has_keys = any(key is not None for _, key in present)
    if not has_keys:
        note += (
            " No message has a key: to try the policy on a file, write the values alone: jq -c '.value|fromjson?//.'"
        )
    notes.append(note)
    if len(present) < len(objects):
        notes.append(f"{len(objects) - len(present):,} messages have no record as their value, and are not in here")
    return [value for value, _ in present], [key for _, key in present] if has_keys else []


def _value_of(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError):
        return None


_MOST = 0.9
"""Share of the messages that have the envelope of a topic."""


def _are_most(fit: Sequence[bool]) -> bool:
    return bool(fit) and sum(fit) >= _MOST * len(fit)


def _unwrapped(objects: _Objects, keys: Values, notes: list[str]) -> tuple[_Objects, Values, str]:
    """Return the records in envelopes, their keys, and the kind of the envelopes; else what was given."""
    payloads = [one.get("payload") if one.keys() == {"schema", "payload"} else one for one in objects]
    are_changes = [isinstance(one, dict) and isinstance(one.get("op"), str) for one in payloads]
    are_converted = [one.keys() == {"schema", "payload"} for one in objects]
    if _are_most(are_changes) and any(isinstance(one, dict) and "after" in one for one in payloads):
        # Among them are heartbeats, which have no row.
        kind, found = "debezium", [one.get("after") if isinstance(one, dict) else None for one in payloads]
    elif _are_most(are_converted):
        kind, found = "connect", [one.get("payload") for one in objects]
    elif _are_most([{"specversion", "data"} <= one.keys() for one in objects]):
        kind, found = "cloudevents", [one.get("data") for one in objects]
    else:
        return objects, keys, ""
    is_record = [isinstance(one, dict) for one in found]
    if not all(is_record):
        notes.append(f"{is_record.count(False):,} messages hold no row, as deletes and heartbeats, and are not in here")
    return [one for one in found if isinstance(one, dict)], list(compress(keys, is_record)), kind


def _decoded(text: bytes, name: str, where: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise InputError(
            f"{name}, {where}: not JSON; write each record as one JSON object (RFC 8259) in UTF-8 on one line"
        ) from None


_EMPTY: Final = object()
"""An object without fields."""


def _add_fields(record: dict[str, Any], above: FieldPath, row: int, columns: dict[FieldPath, Values]) -> None:
    """Add the values of an object, at any depth, to the columns of their paths."""
    for key, value in record.items():
        path = (*above, key)
        if isinstance(value, dict) and value:
            _add_fields(value, path, row, columns)
            continue
        column = columns.setdefault(path, [])
        column += [ABSENT] * (row - len(column))
        column.append(_EMPTY if value == {} else NESTED if isinstance(value, list) else value)


def _close_objects(columns: dict[FieldPath, Values]) -> None:
    """Drop what is an object in some records and a scalar in others: one field of nested values remains.

    An object that is null or empty in some records stays open: its fields are absent there.
    """
    for path in [path for path in columns if any(other[: len(path)] == path != other for other in columns)]:
        if all(value is None or value is ABSENT or value is _EMPTY for value in columns[path]):
            del columns[path]
            continue
        for other in [other for other in columns if other[: len(path)] == path != other]:
            del columns[other]
        columns[path] = [NESTED] * len(columns[path])
    for path, values in columns.items():
        columns[path] = [NESTED if value is _EMPTY else value for value in values]


# ---------------------------------------------------------------- Parquet


def _read_parquet(stream: BinaryIO, name: str, most: int = MAX_ROWS) -> Sample:
    import pyarrow as pa  # noqa: PLC0415 - of an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        file = pq.ParquetFile(stream)
        groups: list[Any] = []
        for group in file.iter_batches(most):
            groups.append(group)
            if sum(one.num_rows for one in groups) >= most:
                break
        table = pa.Table.from_batches(groups, schema=file.schema_arrow).slice(0, most)
    except (pa.ArrowException, OSError):
        raise InputError(f"{name}: not a valid Parquet file") from None
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(f"{name}: two columns have one name; rename one of them")
    columns: dict[FieldPath, Values] = {(one,): _scalars(table.column(one), pa) for one in table.column_names}
    rows, total = table.num_rows, file.metadata.num_rows
    return Sample(name, has_texts=False, is_parquet=True, rows=rows, is_cut=total > rows, columns=columns)


def _read_workbook(stream: BinaryIO, name: str) -> Sample:
    from shoal.formats.xlsx import read_sheet  # noqa: PLC0415 - of an extra

    names, rows = read_sheet(stream, name)
    read = [values for _, values in islice(rows, MAX_ROWS + 1)]
    columns: list[Values] = [list(column) for column in zip(*read[:MAX_ROWS], strict=True)] or [[] for _ in names]
    _require_names(names, columns, name)
    return Sample(
        name,
        has_texts=False,
        is_parquet=True,
        rows=min(len(read), MAX_ROWS),
        is_cut=len(read) > MAX_ROWS,
        columns=dict(zip(((one,) for one in names), columns, strict=True)),
    )


_MOST_PARTS = 50


def _read_parts(source: str, parts: Sequence[str], name: str) -> Sample:
    """Return rows of parts all over a folder, with the columns that the names of folders give them."""
    chosen = parts[:: -(-len(parts) // _MOST_PARTS)]
    samples = []
    for part in chosen:
        with open_input(part) as stream:
            one = _read_parquet(stream, name, MAX_ROWS // len(chosen))
        for column, text in partition_of(source, part).items():
            value: Any = int(text) if text is not None and _WHOLE.fullmatch(text) else text
            one.columns[(column,)] = [value] * one.rows
        samples.append(one)
    columns: dict[FieldPath, Values] = {path: [] for one in samples for path in one.columns}
    for one in samples:
        for path, values in columns.items():
            values.extend(one.columns.get(path, [None] * one.rows))
    return replace(samples[0], rows=sum(one.rows for one in samples), is_cut=True, columns=columns)


def _scalars(column: Any, pa: Any) -> Values:  # noqa: ANN401 - of pyarrow
    """Return the values of a column as JSON has them: times as texts, NaN as None; `NESTED` for all others."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    try:
        if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
            column = column.cast(pa.string())
        elif pa.types.is_decimal(kind) and kind.precision <= 15 and kind.scale >= 0:  # noqa: PLR2004 - as in Parquet
            return [None if value is None else float(value) for value in column.to_pylist()]
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
            if not is_text:
                return [None if value is None else NESTED for value in column.to_pylist()]
        values: Values = column.to_pylist()
    except (pa.ArrowException, UnicodeDecodeError, ValueError):
        return [NESTED] * len(column)
    # NaN is the only value that differs from itself.
    return [None if value != value else value for value in values]  # noqa: PLR0124
