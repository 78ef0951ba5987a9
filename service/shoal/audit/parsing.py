"""Reads files into records: JSON lines, exports of topics, and tables through `table_parsing`.

This module yields an `OriginalRecord` for each record of an original, and partition, text and record for each released
row. A record maps names to values, or is None where the text is not a record. What the fields mean is not known here.

JSON is read with the standard library. The strictness of the reader decides which originals are usable, so it is not
shared with the decoders of the engine: one defect would then be invisible to both sides.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar

from shoal.audit.json_values import JsonNumber, JsonObject, json_document, json_value
from shoal.audit.line_form import EMPTY_CONTENTS, LineForm
from shoal.audit.record_texts import (
    Outcome,
    Record,
    as_original,
    as_record,
    has_lone_surrogate,
    read_original,
    record_of,
)
from shoal.audit.table_parsing import (
    NumberWriter,
    csv_rows,
    is_csv_ended,
    is_parquet,
    is_repeated_header,
    parquet_lines,
)
from shoal.errors import InputError
from shoal.policy import CsvDialect

__all__ = [
    "BLANK",
    "ENVELOPE_FIELDS",
    "LARGEST_COUNT",
    "ORIGINAL_EXPORT",
    "RELEASED_ENVELOPE",
    "RELEASED_EXPORT",
    "TOMBSTONE",
    "Form",
    "InputFile",
    "JsonNumber",
    "JsonObject",
    "OriginalRecord",
    "Outcome",
    "Record",
    "ReleasedRecord",
    "as_record",
    "byte_lines",
    "first_line_names",
    "form_of",
    "has_lone_surrogate",
    "is_blank",
    "is_ended",
    "json_document",
    "json_value",
    "original_records",
    "released_records",
]

Form: TypeAlias = Literal["csv", "jsonl"]
Item = TypeVar("Item")

ORIGINAL_EXPORT = frozenset({"partition", "offset", "value"})
"""Names that every line of an exported original has."""
ENVELOPE_FIELDS = frozenset({"key", "headers", "timestamp"})
"""Names that a line of an exported original may have besides."""
RELEASED_EXPORT = frozenset({"partition", "value"})
"""Names that every line of an exported release has."""
RELEASED_ENVELOPE = frozenset({"key", "headers"})
"""Names that every line of an exported release may have besides."""
LARGEST_COUNT = 1 << 62
"""Partitions, offsets and counts are smaller in magnitude."""
BLANK: Record = {}
"""The record of an empty line: unusable. Empty lines at the end of a file are no records."""

TOMBSTONE: Record = MappingProxyType({})
"""The record of a message without a value."""

_COUNT = re.compile(r"-?[0-9]{1,18}")
"""Partitions, offsets and usable timestamps; all of them fit 64 bits."""
_FORMS: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".parquet": "jsonl"}


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file and how it is written. For CSV only: the dialect, and the declared columns of an original."""

    path: Path
    form: Form
    dialect: CsvDialect
    columns: frozenset[str] = frozenset()

    @classmethod
    def of(cls, path: str | Path, dialect: CsvDialect, default_form: Form | None = None) -> InputFile:
        """Describe a file; ``default_form`` applies where the suffix is unknown."""
        return cls(Path(path), form_of(Path(path), default_form), dialect)


class OriginalRecord(NamedTuple):
    """A record of an original. ``envelope`` holds the usable key, timestamp and headers, named as in ``from``.

    ``size``: bytes of the record as it was read, or 0 if they are not known.
    """

    partition: int
    offset: int
    record: Record | None
    envelope: Record
    size: int = 0
    outcome: Outcome = Outcome.RECORD


class ReleasedRecord(NamedTuple):
    """A released row: its published text, and the record if the text is one.

    ``is_bare``: whether the message has neither a key nor headers; None if the file does not show them.
    """

    partition: int
    text: str
    record: Record | None
    is_bare: bool | None = None


def form_of(path: Path, default: Form | None = None) -> Form:
    """Return the form of a file by its suffix, else the default.

    Raises
    ------
    InputError
        The suffix is unknown and there is no default.
    """
    form = _FORMS.get(path.suffix.lower(), default)
    if form is None:
        raise InputError(f"{path}: verify reads .csv, .jsonl, .json and .parquet; convert the file, or give --format")
    return form


def byte_lines(path: Path, *, skip_bom: bool = False, clustered: Collection[str] = ()) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; of a Parquet file its rows as JSON.

    The empty text after the last line end is not a line. ``skip_bom``: ignore a byte order mark at the beginning.
    ``clustered``: as of `parquet_lines`.
    """
    if is_parquet(path):
        yield from map(str.encode, parquet_lines(path, clustered=clustered))
        return
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file):
                text = line.removeprefix(codecs.BOM_UTF8) if skip_bom and not number else line
                yield text.removesuffix(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _without_blank_end(items: Iterable[Item], is_blank: Callable[[Item], bool]) -> Iterator[Item]:
    """Drop blank items at the end; yield a blank item that another one follows."""
    pending: list[Item] = []
    for item in items:
        pending.append(item)
        if not is_blank(item):
            yield from pending
            pending.clear()


def _original_lines(path: Path, clustered: Collection[str] = ()) -> Iterator[bytes]:
    return _without_blank_end(byte_lines(path, skip_bom=True, clustered=clustered), lambda text: not text.strip())


def is_ended(file: InputFile) -> bool:
    """Whether the last record of a file is complete. `shoal pipe --follow` waits for one that is not."""
    if file.form == "csv":
        return is_csv_ended(file.path, file.dialect)
    if is_parquet(file.path):
        return True
    with file.path.open("rb") as lines:
        lines.seek(-min(1, lines.seek(0, os.SEEK_END)), os.SEEK_END)
        return lines.read() in {b"", b"\n"}


def is_blank(path: Path) -> bool:
    """Whether a JSON lines file has no records: it is empty, or all its lines are."""
    return next(_original_lines(path), None) is None


# ---------------------------------------------------------------- originals


def original_records(
    file: InputFile, names: frozenset[str] | None = None, *, by_line: bool = False, clustered: Collection[str] = ()
) -> Iterator[OriginalRecord]:
    """Yield the records of an original.

    Parameters
    ----------
    file : InputFile
    names : frozenset of str, optional
        Names that every line must have, if the file holds messages of a topic; None for plain records.
    by_line : bool
        Whether messages are numbered by line, from 0 in partition 0, as the records of a plain file are.
    clustered : collection of str, optional
        Names of the quasi-identifiers and steering attributes, in which infinity of Parquet is no missing value.
    """
    if names is not None:
        yield from _messages(file.path, names) if by_line else _exported(file.path, names)
    elif file.form == "csv":
        rows = (cells for _, cells in csv_rows(file.path, file.dialect, skip_bom=True, declared=file.columns))
        for number, cells in enumerate(_without_blank_end(rows, lambda cells: cells == {})):
            if cells is not None and is_repeated_header(cells, file.dialect):
                yield OriginalRecord(0, number, None, BLANK, outcome=Outcome.NO_RECORD)
                continue
            outcome = Outcome.UNCLEAR if cells is None else Outcome.RECORD if cells else Outcome.NO_RECORD
            yield OriginalRecord(0, number, BLANK if cells == {} else cells, BLANK, outcome=outcome)
    else:
        for number, text in enumerate(_original_lines(file.path, clustered)):
            record, outcome = read_original(text) if text.strip() else (BLANK, Outcome.UNDECODABLE)
            yield OriginalRecord(0, number, record, BLANK, len(text), outcome)


def first_line_names(path: Path) -> frozenset[str]:
    """Return the names in the first line of a JSON lines file; empty if the line is not an object."""
    return frozenset(record_of(next(byte_lines(path, skip_bom=True), b"")) or ())


def _export_lines(path: Path, required: frozenset[str], allowed: frozenset[str]) -> Iterator[tuple[int, Record]]:
    """Yield line number, from 1, and content of each line of an export."""
    is_release = required == RELEASED_EXPORT
    form = LineForm(path, RELEASED_ENVELOPE) if is_release else None
    for number, text in enumerate(byte_lines(path) if is_release else _original_lines(path), 1):
        line = record_of(text)
        if line is None or not required <= line.keys() <= allowed:
            optional = ", ".join(sorted(allowed - required))
            names = f"{', '.join(sorted(required))}{f' (and {optional})' if optional else ''}"
            raise InputError(f"{path}, line {number}: not an export of exactly {names}; export again")
        if form is not None:
            form.check(number, text.decode())
        yield number, line


def _is_integer(value: object) -> TypeGuard[JsonNumber]:
    return isinstance(value, JsonNumber) and value.removeprefix("-").isdigit()


def _integer(path: Path, number: int, line: Record, name: str) -> int:
    value = line[name]
    if not _is_integer(value) or not _COUNT.fullmatch(value):
        raise InputError(f"{path}, line {number}: {name} must be an integer of at most 18 digits; export again")
    return int(value)


def _exported(path: Path, required: frozenset[str]) -> Iterator[OriginalRecord]:
    """Yield the messages of an exported topic. A malformed line is an error of the export, not an unusable record."""
    for number, line in _export_lines(path, required, ORIGINAL_EXPORT | ENVELOPE_FIELDS):
        partition, offset = (_integer(path, number, line, name) for name in ("partition", "offset"))
        if "timestamp" in line and not _is_integer(line["timestamp"]):
            raise InputError(f"{path}, line {number}: timestamp must be an integer; export again")
        if not _is_headers(line.get("headers", [])):
            raise InputError(f"{path}, line {number}: headers must be a list of [name, text or null]; export again")
        value, outcome = (None, Outcome.UNDECODABLE) if _has_undecodable_bytes(line["value"]) else _value(line)
        yield OriginalRecord(partition, offset, value, _envelope(line), _size(line), outcome)


def _has_undecodable_bytes(value: object) -> bool:
    """Whether a message value is a text with a lone surrogate: its bytes on the broker were not UTF-8."""
    return _is_text(value) and has_lone_surrogate(value)


def _messages(path: Path, required: frozenset[str]) -> Iterator[OriginalRecord]:
    """Yield the messages of a file that `shoal pipe` read, by line. A malformed line is an unusable record."""
    for number, text in enumerate(_original_lines(path)):
        line = record_of(text)
        if line is None or not required <= line.keys() <= ORIGINAL_EXPORT | ENVELOPE_FIELDS:
            outcome = Outcome.NO_RECORD if line is not None else read_original(text)[1]
            yield OriginalRecord(0, number, None if text.strip() else BLANK, BLANK, outcome=outcome)
        else:
            value, outcome = _value(line)
            yield OriginalRecord(0, number, value, _envelope(line), _size(line), outcome)


def _size(line: Record) -> int:
    """Return the bytes of a message value; 0 if the export contains it as an object and not as its text."""
    value = line["value"]
    return len(value.encode(errors="surrogatepass")) if isinstance(value, str) else 0


def _value(line: Record) -> tuple[Record | None, Outcome]:
    value = line["value"]
    if value is None:
        return TOMBSTONE, Outcome.UNDECODABLE
    if _is_text(value):
        return read_original(str(value))
    # A value that is neither a text nor an object may stand for a JSON value or for no message.
    return as_original(value) if isinstance(value, JsonObject) else (None, Outcome.UNCLEAR)


def _envelope(line: Record) -> Record:
    """Return key, timestamp and headers of a message; without those that are missing, malformed or repeated."""
    found: dict[str, object] = {"key": line["key"]} if _is_text(line.get("key")) else {}
    timestamp = line.get("timestamp")
    if isinstance(timestamp, JsonNumber) and _COUNT.fullmatch(timestamp) and int(timestamp) >= 0:
        found["timestamp"] = timestamp
    headers = line.get("headers", [])
    if not _is_headers(headers):
        return found
    counts = Counter(name for name, _ in headers)
    return found | {f"header:{name}": text for name, text in headers if counts[name] == 1 and _is_text(text)}


def _is_headers(headers: object) -> TypeGuard[list[tuple[object, object]]]:
    return isinstance(headers, list) and not isinstance(headers, JsonObject) and all(map(_is_header, headers))


def _is_header(header: object) -> bool:
    is_list = isinstance(header, list) and not isinstance(header, JsonObject)
    return is_list and len(header) == 2 and _is_text(header[0])  # type: ignore[arg-type, index]  # noqa: PLR2004


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, JsonNumber)


# ---------------------------------------------------------------- releases


def released_records(
    file: InputFile, *, is_export: bool, number_writers: Mapping[str, NumberWriter] | None = None
) -> Iterator[ReleasedRecord]:
    """Yield the released rows; ``number_writers`` write the numbers of Parquet columns, which have no text."""
    if is_export:
        yield from _released_export(file.path)
    elif file.form == "csv":
        for text, cells in csv_rows(file.path, file.dialect, skip_bom=False):
            yield ReleasedRecord(0, text, cells)
    elif is_parquet(file.path):
        for text in parquet_lines(file.path, number_writers):
            yield ReleasedRecord(0, text, record_of(text))
    else:
        for row in byte_lines(file.path):
            yield ReleasedRecord(0, row.decode(errors="surrogateescape"), record_of(row))


def _released_export(path: Path) -> Iterator[ReleasedRecord]:
    for number, line in _export_lines(path, RELEASED_EXPORT, RELEASED_EXPORT | RELEASED_ENVELOPE):
        partition, value = _integer(path, number, line, "partition"), line["value"]
        if isinstance(value, JsonObject):
            words = "value is an object; it must be the text of the message; export again"
            raise InputError(f"{path}, line {number}: {words}")
        text = str(value) if _is_text(value) else ""
        is_bare = line.get("key") is None and line.get("headers") in EMPTY_CONTENTS
        yield ReleasedRecord(partition, text, record_of(text), is_bare if line.keys() & RELEASED_ENVELOPE else None)
