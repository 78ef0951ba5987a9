"""Reads files into records: JSON lines, exports of topics, CSV and Parquet. It does not know what the fields mean.

A record maps names to values, or is None where the text is no record. JSON keeps repeated names, their order, and all
digits of numbers. The strictness of the readers decides which originals are usable, so they are not shared with the
decoders of the engine: one defect would then be invisible to both sides.

Plain files are read in blocks. Lines that hold nothing but scalars without escapes, or cells without quotes, become
columns (`FieldColumns`); any other record is read by itself. Both ways have one result.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import glob
import gzip
import io
import json
import lzma
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, NamedTuple, NoReturn, TypeAlias, TypeGuard, TypeVar, cast
from urllib.parse import unquote
from zipfile import BadZipFile

from shoal.errors import InputError
from shoal.policy import CsvDialect

Form: TypeAlias = Literal["csv", "jsonl"]
Record: TypeAlias = Mapping[str, object]
NumberWriter: TypeAlias = Callable[[float], str]
ColumnChoice: TypeAlias = Callable[[Sequence[str]], Collection[str]]
"""From the names of the fields to those whose columns are read; none if each record is read by itself."""
Item = TypeVar("Item")
json_text = json.JSONEncoder(ensure_ascii=False).encode  # write a value as JSON with the fewest escapes
ORIGINAL_EXPORT = frozenset({"partition", "offset", "value"})  # names that every line of an exported original has
ENVELOPE_FIELDS = frozenset({"topic", "key", "headers", "timestamp"})
"""Names that a line of an exported original may have besides."""
RELEASED_EXPORT = frozenset({"partition", "value"})  # names that every line of an exported release has
RELEASED_ENVELOPE = frozenset({"key", "headers"})  # names that every line of an exported release may have besides
EMPTY_CONTENTS: tuple[object, ...] = (None, [], {})  # how exports write that a message has no headers
TOMBSTONE: Record = MappingProxyType({})  # the record of a message without a value
_NO_FIELDS: Record = {}
LARGEST_COUNT = 1 << 62  # partitions, offsets and counts are smaller in magnitude
INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INTEGER_LENGTH = 4300  # characters; longer integers are not numbers (the limit of Python's int)
_BINARY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_COUNT = re.compile(r"-?[0-9]{1,18}")  # partitions, offsets and usable timestamps; all of them fit 64 bits
_MIN_PLAIN_EXPONENT = -5  # fractions whose first digit stands for at least 10**-5 are written without an exponent
MAX_DEPTH = 64  # nested objects and arrays of a record, itself included
_TOO_LARGE_NUMBER = "1e999"
BLOCK_BYTES = 1 << 18  # lines are read in blocks of about this size
_MAX_CELL = 100_000  # characters; in longer lines `csv.reader` may refuse a cell
_SCALAR = r'-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|"[^"\\\x00-\x1f]*"|true|false|null'
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def _open_zstd(file: BinaryIO) -> BinaryIO:
    arrow = import_module("pyarrow")
    return cast("BinaryIO", arrow.CompressedInputStream(arrow.PythonFile(file, "r"), "zstd"))


_OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstd,
}
_MOST_TIMES, _FREE_BYTES = 200, 1 << 26
"""A file that uncompresses to more than this multiple of its bytes read, and these bytes, is refused."""
_MAX_LINE_BYTES = 1 << 26
"""A compressed file with a line that is much longer is refused: its own size does not tell what memory it takes."""
_FORMS: dict[str, Form] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "jsonl",
    ".xlsx": "jsonl",
}
_REPLACE_UNDECODABLE = "shoal.audit.replace"
codecs.register_error(_REPLACE_UNDECODABLE, lambda error: ("\udcff", getattr(error, "end", 1)))


class JsonObject(list[tuple[str, object]]):
    """A JSON object as a list of pairs, with repeated names and in its order."""

    __slots__ = ()


class JsonNumber(str):
    """The text of a JSON number."""

    __slots__ = ()


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a JSON string, or a cell, and not the text of a number."""
    return type(value) is str


def is_array(value: object) -> TypeGuard[list[object]]:
    """Whether a value is a JSON array."""
    return type(value) is list


# ---------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file and how it is written. For CSV only: the dialect, and the declared columns of an original.

    ``parts``: all files of an original that is a folder or a pattern, ``source``; ``path`` is the first of them.
    ``constants``: fields that the folders of a part give all its records, as JSON.
    """

    path: Path
    form: Form
    dialect: CsvDialect
    columns: frozenset[str] = frozenset()
    parts: tuple[Path, ...] = ()
    source: str = ""
    constants: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str | Path, dialect: CsvDialect, default_form: Form | None = None) -> InputFile:
        """Describe a file; ``default_form`` applies where the suffix is unknown."""
        parts = part_files(str(path))
        name = parts[0] if parts else Path(path)
        form = _FORMS.get((name.with_suffix("") if is_compressed(name) else name).suffix.lower(), default_form)
        if form is None:
            raise InputError(
                f"{path}: verify reads .csv, .jsonl, .json, .parquet and .xlsx; convert the file, or give --format"
            )
        return cls(name, form, dialect, parts=parts, source=str(path))

    def folder_values(self, part: Path) -> dict[str, str | None]:
        """Return names and values of the folders ``NAME=VALUE`` around a Parquet file; None for a missing value."""
        if not is_parquet(part):
            return {}
        levels = self.source.rstrip("/").split("/")
        if not Path(self.source).is_dir():
            wild = [number for number, level in enumerate(levels) if any(letter in level for letter in "*?[")]
            levels = levels[: wild[0]]
        kept = len([level for level in levels if level not in {"", "."}])
        around = [level for level in str(part).split("/") if level not in {"", "."}][kept:-1]
        pairs = (level.partition("=") for level in around)
        return {
            unquote(name): None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
            for name, sign, value in pairs
            if sign
        }


def part_files(path: str) -> tuple[Path, ...]:
    """Return the files of a folder or a pattern in the order in which their records are numbered; none for a file."""
    if Path(path).is_file():
        return ()
    if Path(path).is_dir():
        found = [one for one in Path(path).rglob("*") if one.is_file() and _is_of_folder(one.relative_to(path))]
    else:
        found = [Path(one) for one in glob.glob(path) if Path(one).is_file()]  # noqa: PTH207 - a pattern may be absolute
    return tuple(
        sorted(
            (one for one in found if one.stat().st_size > 0), key=lambda one: str(one).encode(errors="surrogateescape")
        )
    )


def _is_of_folder(path: Path) -> bool:
    """Whether a file belongs to a folder: none of its names is hidden, and it is Parquet in folders NAME=VALUE."""
    folders = path.parts[:-1]
    is_nested = all("=" in folder for folder in folders) and (not folders or is_parquet(path))
    return is_nested and all(name[0] not in "._" for name in path.parts)


class OriginalRecord(NamedTuple):
    """A record of an original. ``envelope`` holds the usable key, timestamp and headers, named as in ``from``."""

    partition: int
    offset: int
    record: Record | None
    envelope: Record
    size: int = 0  # bytes of the record as it was read; 0 if they are not known


class ReleasedRecord(NamedTuple):
    """A released row: its published text, and the record if the text is one."""

    partition: int
    text: str
    record: Record | None
    is_bare: bool | None = None  # neither a key nor headers; None if the file does not show them


class FieldColumns(NamedTuple):
    """Records that follow each other and have the same fields: each field as one column of texts.

    Texts of JSON are scalars as they are written, without escapes; those of CSV are cells without quotes.
    """

    cells: Mapping[str, Sequence[str]]  # of the fields that were asked for
    lines: Sequence[str]  # the texts of the records, without line ends


def scalar_of(text: str) -> object:
    """Return the value of a JSON scalar without escapes."""
    if text.startswith('"'):
        return text[1:-1]
    return _LITERALS[text] if text in _LITERALS else JsonNumber(text)


def original_parts(
    file: InputFile, chosen: ColumnChoice, clustered: Collection[str] = ()
) -> Iterator[OriginalRecord | FieldColumns]:
    """Yield the plain records of an original: the chosen columns of a block where this is possible.

    Records of the files of a folder are numbered on.
    """
    number = 0
    for path in file.parts or (file.path,):
        for part in _parts_of_file(replace(file, path=path, parts=()), chosen, clustered):
            if isinstance(part, FieldColumns):
                yield part
                number += len(part.lines)
            else:
                yield part._replace(offset=number)
                number += 1


def _parts_of_file(
    file: InputFile, chosen: ColumnChoice, clustered: Collection[str]
) -> Iterator[OriginalRecord | FieldColumns]:
    if file.form == "csv":
        rows = csv_parts(file.path, file.dialect, chosen, skip_bom=True, declared=file.columns)
        found = _without_blank_end(rows, lambda part: not isinstance(part, FieldColumns) and part[1] == {})
        yield from (one if isinstance(one, FieldColumns) else _cell_record(file.dialect, one[1]) for one in found)
        return
    first = next(byte_lines(file.path, skip_bom=True, clustered=clustered), b"")
    constants = file.constants.get(file.path, {})
    end = "".join(f",{json_text(name)}:{text}" for name, text in constants.items()).encode() + b"}"
    names = [*(record_of(first) or ()), *constants]
    blocks = line_blocks(file.path, clustered)
    if constants:
        blocks = ([line.removesuffix(b"}") + end for line in block] for block in blocks)
    lines = _without_blank_end(
        json_parts(blocks, names, chosen(names), is_original=True),
        lambda part: not isinstance(part, FieldColumns) and not part.strip(),
    )
    yield from (one if isinstance(one, FieldColumns) else line_record(one) for one in lines)


def _cell_record(dialect: CsvDialect, cells: Mapping[str, object] | None) -> OriginalRecord:
    return OriginalRecord(0, 0, cells if cells and not is_repeated_header(cells, dialect) else None, _NO_FIELDS)


def line_record(line: bytes) -> OriginalRecord:
    """Return the record of a line of JSON; its number is that of the caller."""
    return OriginalRecord(0, 0, within_depth(record_of(line)), _NO_FIELDS, len(line))


def original_records(
    file: InputFile, names: frozenset[str] | None = None, *, by_line: bool = False, clustered: Collection[str] = ()
) -> Iterator[OriginalRecord]:
    """Yield the records of an original; ``names``: what every line of an export must have, None for plain records."""
    if len(file.parts) > 1 and names is not None:
        number = 0
        for path in file.parts:
            for record in original_records(replace(file, path=path, parts=()), names, by_line=by_line):
                yield record._replace(offset=number) if by_line else record
                number += 1
        return
    if names is not None:
        yield from _messages(file.path, names) if by_line else _exported(file.path, names)
        return
    parts = original_parts(file, lambda _: (), clustered)
    yield from (part for part in parts if isinstance(part, OriginalRecord))


def released_records(
    file: InputFile, *, is_export: bool, number_writers: Mapping[str, NumberWriter] | None = None
) -> Iterator[ReleasedRecord]:
    """Yield the released rows; ``number_writers`` write the numbers of Parquet columns, which have no text."""
    if is_export:
        yield from _released_export(file.path)
    elif is_parquet(file.path):
        for text in parquet_lines(file.path, number_writers):
            yield ReleasedRecord(0, text, record_of(text))
    else:
        yield from (part for part in released_parts(file, lambda _: ()) if isinstance(part, ReleasedRecord))


def released_parts(file: InputFile, chosen: ColumnChoice) -> Iterator[ReleasedRecord | FieldColumns]:
    """Yield the rows of a plain file that is no Parquet: the chosen columns of a block where this is possible."""
    if file.form == "csv":
        for part in csv_parts(file.path, file.dialect, chosen, skip_bom=False):
            yield part if isinstance(part, FieldColumns) else ReleasedRecord(0, *part)
        return
    names = list(record_of(next(byte_lines(file.path), b"")) or ())
    for one in json_parts(line_blocks(file.path, skip_bom=False), names, chosen(names), is_original=False):
        if isinstance(one, FieldColumns):
            yield one
        else:
            yield ReleasedRecord(0, one.decode(errors="surrogateescape"), record_of(one))


def byte_lines(path: Path, *, skip_bom: bool = False, clustered: Collection[str] = ()) -> Iterator[bytes]:
    """Yield the lines of a file without their ends, an empty last one left out; of a Parquet file its rows as JSON."""
    if is_parquet(path):
        yield from map(str.encode, parquet_lines(path, clustered=clustered))
        return
    if is_workbook(path):
        yield from map(str.encode, workbook_lines(path))
        return
    try:
        with _open_lines(path, is_original=skip_bom) as file:
            for number, line in enumerate(file):
                text = line.removeprefix(codecs.BOM_UTF8) if skip_bom and not number else line
                yield text.removesuffix(b"\n")
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    except (EOFError, lzma.LZMAError, zlib.error):
        raise _unreadable(path) from None


def _open(path: Path) -> BinaryIO:
    """Open a file, which is compressed if its suffix says so."""
    file = path.open("rb")
    return io.BufferedReader(_Uncompressed(path, file), BLOCK_BYTES) if is_compressed(path) else file


_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]|[^\s,\[\]{}"]+', re.DOTALL)
"""A piece of JSON: a text, a bracket, a comma, or another scalar or colon."""
_OF_VALUES = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:\[|\{[ \t\r]*\n)")


def _open_lines(path: Path, *, is_original: bool) -> BinaryIO:
    """Open a file of JSON as lines: of an original that is an array, or has objects on several lines, each value."""
    if not is_original or not has_json_values(path):
        return _open(path)
    with _open(path) as file:
        content = file.read()
    try:
        values = _values_of(content.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError:  # lines, in which no record can be read
        values = None
    lines = None if values is None else "".join(one.replace("\n", " ").replace("\r", " ") + "\n" for one in values)
    return io.BytesIO(content if lines is None else lines.encode())


def has_json_values(path: Path) -> bool:
    """Whether a file of JSON begins as an array, or as an object on several lines."""
    with _open(path) as file:
        head = file.read(BLOCK_BYTES)
    return _OF_VALUES.match(head) is not None


def _values_of(text: str) -> list[str] | None:
    """Return the texts of values; None if there are none, one is not closed, or something follows an array."""
    is_array = text.lstrip(" \t\r\n").startswith("[")
    outside, depth, start, end, is_closed = int(is_array), 0, -1, 0, False
    found = list[str]()
    for piece in _PIECE.finditer(text):
        if is_closed:
            return None
        letter, before = piece[0], depth
        depth += (letter in "[{") - (letter in "]}")
        is_closed = is_array and depth == 0
        if start >= 0 and (is_closed or (letter == "," and depth == outside)):
            found.append(text[start:end])
            start = -1
        elif start < 0 and before >= outside and not is_closed:
            start = piece.start()
        end = piece.end()
        if start >= 0 and depth == outside == 0:
            found.append(text[start:end])
            start = -1
    return found if depth == 0 and start < 0 and found else None


class _Uncompressed(io.RawIOBase):
    """The content of a compressed file; `InputError` if it is far larger, or has a line that fills the memory."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file, self._content = path, file, _OPENERS[path.suffix.lower()](file)
        self._left, self._line = _FREE_BYTES, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - a writable buffer
        """Read the next bytes, none at the end."""
        before = self._file.tell()
        chunk = self._content.read(len(buffer))
        self._left += _MOST_TIMES * (self._file.tell() - before) - len(chunk)
        last_end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        self._line = len(chunk) - last_end - 1 if last_end >= 0 else self._line + len(chunk)
        if self._left < 0 or self._line > _MAX_LINE_BYTES:
            fault = f"is more than {_MOST_TIMES} times as large" if self._left < 0 else "has a line of more than 64 MiB"
            raise InputError(f"{self._path}: {fault} when uncompressed; uncompress it to a file, if you trust it")
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._file.close()


def _unreadable(path: Path, reason: str | None = None) -> InputError:
    return InputError(f"{path}: cannot be read: {reason or 'not a whole file'}")


def is_compressed(path: Path) -> bool:
    """Whether the suffix of a file is that of a compressed one."""
    return path.suffix.lower() in _OPENERS


def line_blocks(path: Path, clustered: Collection[str] = (), *, skip_bom: bool = True) -> Iterator[list[bytes]]:
    """Yield the lines of `byte_lines` in blocks of about `BLOCK_BYTES`."""
    if is_parquet(path) or is_workbook(path):
        rows = byte_lines(path, clustered=clustered)
        while block := list(islice(rows, BLOCK_BYTES >> 8)):
            yield block
        return
    try:
        with _open_lines(path, is_original=skip_bom) as file:
            is_first = skip_bom
            while block := file.readlines(BLOCK_BYTES):
                if is_first:
                    block[0] = block[0].removeprefix(codecs.BOM_UTF8)
                is_first = False
                yield [line.removesuffix(b"\n") for line in block]
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    except (EOFError, lzma.LZMAError, zlib.error):
        raise _unreadable(path) from None


def json_parts(
    blocks: Iterable[list[bytes]], names: Sequence[str], wanted: Collection[str], *, is_original: bool
) -> Iterator[FieldColumns | bytes]:
    """Yield the wanted columns of lines that are objects of scalars with these names in this order, and other lines.

    No scalar has an escape, so a line of columns means the same to a JSON parser. Lines of an original may have a space
    after a colon or a comma, and blanks at their ends; those of a release have none.
    """
    columns = [name for name in names if name in wanted]
    if not columns:
        for block in blocks:
            yield from block
        return
    space, end = (" ?", "[ \\t\\r]*") if is_original else ("", "")
    kinds = ("" if name in wanted else "?:" for name in names)
    fields = [f"{re.escape(json_text(name))}:{space}({kind}{_SCALAR})" for name, kind in zip(names, kinds, strict=True)]
    pattern = re.compile(rf"^(?:\{{{f',{space}'.join(fields)}\}}{end}|(.*))$", re.MULTILINE)
    for block in blocks:
        text = decoded_lines(block)
        rows: list[tuple[str, ...]] = [] if text is None else pattern.findall(text)
        others = [place for place, row in enumerate(rows) if row[-1] or not row[0]]
        if text is None or len(others) << 4 > len(rows):
            yield from block
            continue
        lines, start = text.split("\n"), 0
        for stop in [*others, len(rows)]:
            if start < stop:
                cells = zip(*rows[start:stop], strict=True)
                yield FieldColumns(dict(zip(columns, cells, strict=False)), lines[start:stop])
            yield from block[stop : stop + 1]
            start = stop + 1


def decoded_lines(block: Sequence[bytes]) -> str | None:
    """Return lines as one text, without its last line end; None if they are not UTF-8."""
    try:
        return b"\n".join(block).decode()
    except UnicodeDecodeError:
        return None


def first_line_names(path: Path) -> frozenset[str]:
    """Return the names in the first line of a JSON lines file; empty if the line is not an object."""
    return frozenset(record_of(next(byte_lines(path, skip_bom=True), b"")) or ())


def is_blank(path: Path) -> bool:
    """Whether a JSON lines file has no records: it is empty, or all its lines are."""
    return next(_original_lines(path), None) is None


def is_ended(file: InputFile) -> bool:
    """Whether the last record of a file is complete. `shoal pipe --follow` waits for one that is not."""
    if file.form == "csv":
        return _is_csv_ended(file)
    if is_parquet(file.path) or is_workbook(file.path):
        return True
    if is_compressed(file.path) or has_json_values(file.path):
        return True  # such a file is not followed
    with file.path.open("rb") as lines:
        lines.seek(-min(1, lines.seek(0, os.SEEK_END)), os.SEEK_END)
        return lines.read() in {b"", b"\n"}


def _is_csv_ended(file: InputFile) -> bool:
    lines = _CsvLines(_text_blocks(file.path, file.dialect, skip_bom=True))
    records, is_complete = _records(lines, file.dialect), True
    while block := lines.rest():
        if not any(file.dialect.quote in line for line in block):
            lines.skip()
            is_complete = block[-1].endswith(_end(file.dialect))
            continue
        number = lines.number
        while lines.number == number and lines.has_rest:
            *_, is_complete = next(records)
    return is_complete


def _original_lines(path: Path, clustered: Collection[str] = ()) -> Iterator[bytes]:
    return _without_blank_end(byte_lines(path, skip_bom=True, clustered=clustered), lambda text: not text.strip())


def _without_blank_end(items: Iterable[Item], is_blank: Callable[[Item], bool]) -> Iterator[Item]:
    """Drop blank items at the end; yield a blank item that another one follows."""
    pending: list[Item] = []
    for item in items:
        pending.append(item)
        if not is_blank(item):
            yield from pending
            pending.clear()


# ---------------------------------------------------------------- exports of topics


def _export_lines(
    path: Path, lines: Iterable[bytes], required: frozenset[str], allowed: frozenset[str]
) -> Iterator[tuple[int, Record]]:
    """Yield line number, from 1, and content of each line of an export."""
    for number, text in enumerate(lines, 1):
        line = record_of(text)
        if line is None or not required <= line.keys() <= allowed:
            optional = ", ".join(sorted(allowed - required))
            names = f"{', '.join(sorted(required))}{f' (and {optional})' if optional else ''}"
            raise InputError(f"{path}, line {number}: not an export of exactly {names}; export again")
        yield number, line


def _exported(path: Path, required: frozenset[str]) -> Iterator[OriginalRecord]:
    """Yield the messages of an exported topic. A malformed line is an error of the export, not an unusable record."""
    for number, line in _export_lines(path, _original_lines(path), required, ORIGINAL_EXPORT | ENVELOPE_FIELDS):
        partition, offset = (_integer(path, number, line, name) for name in ("partition", "offset"))
        if "timestamp" in line and not _is_integer(line["timestamp"]):
            raise InputError(f"{path}, line {number}: timestamp must be an integer; export again")
        if not _is_headers(line.get("headers", [])):
            raise InputError(f"{path}, line {number}: headers must be a list of [name, text or null]; export again")
        text = line["value"]
        # A text with a lone surrogate had bytes on the broker that were not UTF-8.
        value = None if isinstance(text, str) and not is_encodable(text) else _value(line)
        yield OriginalRecord(partition, offset, value, _envelope(line), _size(line))


def _messages(path: Path, required: frozenset[str]) -> Iterator[OriginalRecord]:
    """Yield the messages of a file that `shoal pipe` read, by line. A malformed line is an unusable record."""
    for number, text in enumerate(_original_lines(path)):
        line = record_of(text)
        if line is None or not required <= line.keys() <= ORIGINAL_EXPORT | ENVELOPE_FIELDS:
            yield OriginalRecord(0, number, None, _NO_FIELDS)
        else:
            yield OriginalRecord(0, number, _value(line), _envelope(line), _size(line))


def _released_export(path: Path) -> Iterator[ReleasedRecord]:
    allowed = RELEASED_EXPORT | RELEASED_ENVELOPE
    for number, line in _export_lines(path, byte_lines(path), RELEASED_EXPORT, allowed):
        partition, value = _integer(path, number, line, "partition"), line["value"]
        if isinstance(value, JsonObject):
            words = "value is an object; it must be the text of the message; export again"
            raise InputError(f"{path}, line {number}: {words}")
        text = str(value) if is_text(value) else ""
        is_bare = line.get("key") is None and line.get("headers") in EMPTY_CONTENTS
        yield ReleasedRecord(partition, text, record_of(text), is_bare if line.keys() & RELEASED_ENVELOPE else None)


def _value(line: Record) -> Record | None:
    value = line["value"]
    if value is None:
        return TOMBSTONE
    return within_depth(record_of(str(value)) if is_text(value) else as_record(value))


def _size(line: Record) -> int:
    """Return the bytes of a message value; 0 if the export contains it as an object and not as its text."""
    value = line["value"]
    return len(value.encode(errors="surrogatepass")) if isinstance(value, str) else 0


def _envelope(line: Record) -> Record:
    """Return key, timestamp and headers of a message; without those that are missing, malformed or repeated."""
    found: dict[str, object] = {"key": line["key"]} if _is_part(line.get("key")) else {}
    timestamp = line.get("timestamp")
    if isinstance(timestamp, JsonNumber) and _COUNT.fullmatch(timestamp) and int(timestamp) >= 0:
        found["timestamp"] = timestamp
    headers = line.get("headers", [])
    if not _is_headers(headers):
        return found
    counts = Counter(name for name, _ in headers)
    return found | {f"header:{name}": text for name, text in headers if counts[name] == 1 and _is_part(text)}


def _is_part(text: object) -> bool:
    """Whether a key or header is a text. A binary number that is one by luck has a control character."""
    return is_text(text) and _BINARY.search(text) is None


def _is_headers(headers: object) -> TypeGuard[list[tuple[object, object]]]:
    return is_array(headers) and all(is_array(pair) and len(pair) == 2 and is_text(pair[0]) for pair in headers)  # noqa: PLR2004


def _is_integer(value: object) -> TypeGuard[JsonNumber]:
    return isinstance(value, JsonNumber) and INTEGER.fullmatch(value) is not None


def _integer(path: Path, number: int, line: Record, name: str) -> int:
    value = line[name]
    if not _is_integer(value) or not _COUNT.fullmatch(value):
        raise InputError(f"{path}, line {number}: {name} must be an integer of at most 18 digits; export again")
    return int(value)


# ---------------------------------------------------------------- JSON


def _refuse(_name: str) -> NoReturn:
    # The standard library accepts NaN and Infinity, which are not JSON.
    raise ValueError


_with_numbers = json.JSONDecoder(object_pairs_hook=JsonObject, parse_constant=_refuse)
_with_number_texts = json.JSONDecoder(
    object_pairs_hook=JsonObject, parse_constant=_refuse, parse_int=JsonNumber, parse_float=JsonNumber
)


def json_value(text: bytes) -> object:
    """Parse one JSON text with its numbers as int and float; objects become `JsonObject`."""
    return _decoded(_with_numbers, text.decode())


def json_document(text: str) -> object:
    """Parse one JSON text with its numbers as `JsonNumber`."""
    return _decoded(_with_number_texts, text)


def _decoded(decoder: json.JSONDecoder, text: str) -> object:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError from None


def record_of(text: bytes | str) -> Record | None:
    """Parse one record with its numbers as `JsonNumber`."""
    try:
        return as_record(json_document(text.decode() if isinstance(text, bytes) else text))
    except ValueError:
        return None


def as_record(value: object) -> Record | None:
    """Return a JSON object as a mapping; None for any other value and for repeated names."""
    if not isinstance(value, JsonObject):
        return None
    record = dict(value)
    return record if len(record) == len(value) else None


def within_depth(record: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return a record; None if its objects and arrays are nested too deeply. Cost: O(size of the record)."""
    level: list[object] = [] if record is None else list(record.values())
    for _ in range(MAX_DEPTH):
        # An empty array or object still counts as a level. The members of an object are pairs.
        opened = [value or [None] for value in level if isinstance(value, list)]
        level = [item[1] if isinstance(item, tuple) else item for value in opened for item in value]
        if not level:
            return record
    return None


def canonical_float(value: float) -> str:
    """Write a finite float64 in the fewest digits, an integral one as an integer; below 0.00001 with an exponent."""
    shortest = repr(value)
    if "e" not in shortest and not shortest.endswith(".0"):
        return shortest
    number = Decimal(shortest)
    if value.is_integer():
        return str(int(number))
    if number.adjusted() >= _MIN_PLAIN_EXPONENT:
        return f"{number:f}"
    sign, digits, _ = number.as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{number.adjusted()}"


def canonical_decimal(text: str) -> str | None:
    """Write a decimal number in its canonical form: integers exactly, others as float64; None if it overflows."""
    if INTEGER.fullmatch(text):
        return str(int(text)) if len(text) <= _MAX_INTEGER_LENGTH else None
    value = float(text)
    return canonical_float(value) if math.isfinite(value) else None


def is_encodable(value: str, encoding: str = "utf-8") -> bool:
    """Whether an encoding has all characters of a text; a lone surrogate cannot be published in any."""
    if value.isascii():
        return True
    try:
        value.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- CSV


def original_header(path: Path, dialect: CsvDialect, declared: Collection[str] = ()) -> list[str]:
    """Return the column names of an original; blanks and tabs around a name are ignored if it is declared."""
    header = _column_names((_header(path, dialect, skip_bom=True) or ("", []))[1], declared)
    if not header:
        raise InputError(f"{path}, line 1: no header; the first line must name the columns")
    if len(set(header)) != len(header):
        raise InputError(f"{path}, line 1: a column name is repeated; rename one of them")
    return header


def released_header(path: Path, dialect: CsvDialect) -> tuple[str, list[str]] | None:
    """Return the header of a release, as it stands in the file, and the column names; None for an empty file."""
    return _header(path, dialect, skip_bom=False)


def _header(path: Path, dialect: CsvDialect, *, skip_bom: bool) -> tuple[str, list[str]] | None:
    for text, cells, _ in _file_records(path, dialect, skip_bom=skip_bom):
        if cells is None:
            raise InputError(f"{path}, line 1: the header is not CSV in {dialect.encoding}; write the file again")
        return text.removesuffix(dialect.line_end), cells
    return None


def _column_names(header: list[str], declared: Collection[str]) -> list[str]:
    names = [(name, name.strip(" \t")) for name in header]
    return [stripped if stripped in declared and name not in declared else name for name, stripped in names]


def csv_parts(
    path: Path, dialect: CsvDialect, chosen: ColumnChoice, *, skip_bom: bool, declared: Collection[str] = ()
) -> Iterator[FieldColumns | tuple[str, Mapping[str, object] | None]]:
    """Yield the chosen columns of rows without quotes, and of other rows after the header their text and cells.

    An empty line has no cells; they are None if the text is no record.
    """
    lines = _CsvLines(_text_blocks(path, dialect, skip_bom=skip_bom))
    records = _records(lines, dialect)
    header = _column_names(next(records, ("", None, True))[1] or [], declared)
    has_repeated_names = len(set(header)) != len(header)
    wanted = () if has_repeated_names else chosen(header)
    while block := lines.rest():
        columns = _plain_columns(block, dialect, header, wanted, is_original=skip_bom) if wanted else None
        if columns is not None:
            lines.skip()
            yield columns
            continue
        number = lines.number
        while lines.number == number and lines.has_rest:
            text, cells, _ = next(records)
            text = text.removesuffix(dialect.line_end)
            if cells == []:
                yield text, {}
            elif cells is None or len(cells) != len(header) or has_repeated_names:
                yield text, None
            else:
                yield text, dict(zip(header, cells, strict=True))


def _plain_columns(
    block: Sequence[str], dialect: CsvDialect, header: Sequence[str], wanted: Collection[str], *, is_original: bool
) -> FieldColumns | None:
    r"""Return the columns of lines that are one record each, without quotes; None if `csv.reader` must read them.

    A line end of the original is "\n" or "\r\n", as for `csv.reader`; that of a release is the one of the dialect.
    """
    text, end = "".join(block), dialect.line_end
    if is_original and end != "\r":
        text, end = text.replace("\r\n", "\n"), "\n"
    lines = text.removesuffix(end).split(end)
    ends = text.count(end) * len(end)
    if len(lines) != len(block) or text.count("\r") + text.count("\n") != ends or dialect.quote in text:
        return None
    if "\0" in text or "" in lines or not is_encodable(text) or max(map(len, lines)) > _MAX_CELL:
        return None
    rows = [line.split(dialect.delimiter) for line in lines]
    if set(map(len, rows)) != {len(header)}:
        return None
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    first = header[0].strip(" \t")
    if is_original and any(cell.strip(" \t\ufeff") == first for cell in cells[header[0]] if first in cell):
        return None  # it may be a repeated header
    return FieldColumns({name: cells[name] for name in wanted}, lines)


class _CsvLines:
    """The lines of a CSV file, one after the other; they are read in blocks."""

    def __init__(self, blocks: Iterator[list[str]]) -> None:
        self._blocks, self._lines, self._place = blocks, list[str](), 0
        self.number = 0  # of the block that the last line was in

    def __iter__(self) -> Iterator[str]:
        while self.rest():
            block = self._lines
            while self._lines is block and self.has_rest:
                self._place += 1
                yield block[self._place - 1]

    @property
    def has_rest(self) -> bool:
        """Whether the block has more lines."""
        return self._place < len(self._lines)

    def rest(self) -> list[str]:
        """Return the next lines of the block, or else the next block; empty at the end of the file."""
        if not self.has_rest:
            self._lines, self._place, self.number = next(self._blocks, []), 0, self.number + 1
        return self._lines[self._place :]

    def skip(self) -> None:
        """Pass over the lines of `rest`."""
        self._place = len(self._lines)


def is_repeated_header(row: Mapping[str, object], dialect: CsvDialect) -> bool:
    """Whether each cell of a row is the name of its column, but for blanks: files were joined to one."""
    for place, (name, cell) in enumerate(row.items()):
        text = str(cell)
        if not place and text.startswith("\ufeff"):
            text = text[1:].strip(" \t").removeprefix(dialect.quote).removesuffix(dialect.quote)
        if text.strip(" \t") != name.strip(" \t"):
            return False
    return bool(row)


def csv_record_lines(path: Path, dialect: CsvDialect) -> Iterator[int]:
    """Yield the line, from 1, on which each record after the header begins."""
    line, is_header = 1, True
    for text, _, _ in _file_records(path, dialect, skip_bom=True):
        if not is_header:
            yield line
        line, is_header = line + text.count(_end(dialect)), False


def _file_records(path: Path, dialect: CsvDialect, *, skip_bom: bool) -> Iterator[tuple[str, list[str] | None, bool]]:
    return _records(_CsvLines(_text_blocks(path, dialect, skip_bom=skip_bom)), dialect)


def _records(source: Iterable[str], dialect: CsvDialect) -> Iterator[tuple[str, list[str] | None, bool]]:
    """Yield the text with its line end, the cells, None if it is not CSV, and whether the record is complete."""
    consumed: list[str] = []
    escapes = _BackslashEscapes(dialect)
    is_exhausted = False

    def lines() -> Iterator[str]:
        nonlocal is_exhausted
        for line in source:
            consumed.append(line)
            yield escapes.to_doubled(line, starts_record=len(consumed) == 1)
        is_exhausted = True

    reader = csv.reader(lines(), **dialect.reader_options)
    while True:
        consumed.clear()
        try:
            cells: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = None
        text = "".join(consumed)
        # The reader asks for lines after the last one only if a quoted cell was never closed.
        yield text, cells if is_encodable(text) else None, text.endswith(_end(dialect)) and not is_exhausted


class _BackslashEscapes:
    """Rewrites backslash escapes inside quoted cells, of a quote or a backslash, as doubled quotes (RFC 4180)."""

    def __init__(self, dialect: CsvDialect) -> None:
        self._dialect = dialect
        self._in_quotes = False

    def to_doubled(self, line: str, *, starts_record: bool) -> str:
        """Return a line in which only quotes are escaped, by doubling them."""
        quote = self._dialect.quote
        if self._dialect.escape == "doubled":
            return line
        in_quotes, at_cell_start = self._in_quotes and not starts_record, starts_record
        out, position = "", 0
        while position < len(line):
            character, pair = line[position], line[position : position + 2]
            if in_quotes and pair in {"\\\\", "\\" + quote}:
                out += "\\" if pair == "\\\\" else quote + quote
                position += 2
                continue
            if in_quotes and pair == quote + quote:
                # A doubled quote is no escape in this dialect. The NUL makes the csv reader refuse the record.
                out += quote + "\0"
                in_quotes = False
            elif in_quotes:
                out, in_quotes = out + character, character != quote
            else:
                out, in_quotes = out + character, at_cell_start and character == quote
                at_cell_start = character == self._dialect.delimiter
            position += 1
        self._in_quotes = in_quotes
        return out


def _text_blocks(path: Path, dialect: CsvDialect, *, skip_bom: bool) -> Iterator[list[str]]:
    """Yield blocks of lines with their ends. A lone carriage return ends a line only if the dialect says so."""
    try:
        with (
            _open(path) as content,
            io.TextIOWrapper(content, dialect.encoding, _REPLACE_UNDECODABLE, _end(dialect)) as file,
        ):
            is_first = skip_bom
            while block := file.readlines(BLOCK_BYTES):
                if is_first:
                    block[0] = block[0].removeprefix("\ufeff")
                is_first = False
                yield block
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    except (EOFError, lzma.LZMAError, zlib.error):
        raise _unreadable(path) from None
    except UnicodeError:
        # Undecodable bytes are replaced, so only a missing byte order mark raises.
        raise InputError(
            f"{path}, line 1: no byte order mark, which {dialect.encoding} needs; give csv.encoding (of a "
            "release: csv.output.encoding) utf-16-le or utf-16-be"
        ) from None


def _end(dialect: CsvDialect) -> str:
    """Return the last character of a line end in this dialect."""
    return "\r" if dialect.line_end == "\r" else "\n"


# ---------------------------------------------------------------- Parquet


def is_parquet(path: Path) -> bool:
    """Whether the name of a file ends in ``.parquet``."""
    return path.suffix.lower() == ".parquet"


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file as `pyarrow.parquet.ParquetFile`."""
    try:
        arrow, files = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise InputError(f"{path}: Parquet needs pyarrow: install shoal[parquet]") from None
    try:
        with files.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(f"{path}: not a readable Parquet file; write it again") from None


def is_workbook(path: Path) -> bool:
    """Whether the name of a file ends in ``.xlsx``."""
    return path.suffix.lower() == ".xlsx"


def workbook_lines(path: Path) -> Iterator[str]:
    """Yield the rows of the sheet of a workbook that has cells, as JSON objects; the first row has the names."""
    try:
        book = import_module("openpyxl").load_workbook(path, read_only=True, data_only=True, keep_links=False)
    except ModuleNotFoundError:
        raise InputError(f"{path}: workbooks need openpyxl: install shoal[xlsx]") from None
    except (OSError, KeyError, ValueError, TypeError, BadZipFile):
        raise InputError(f"{path}: not a readable workbook; save it again") from None
    names: list[str] = []
    for sheet in book.worksheets:
        sheet.reset_dimensions()
        for row in sheet.iter_rows(values_only=True):
            if all(value is None for value in row):
                continue
            if not names:
                names = [str(value) for value in row if value is not None]
                continue
            texts = [_workbook_value(value) for value in (*row, *[None] * len(names))[: len(names)]]
            yield "{" + ",".join(f"{json_text(name)}:{text}" for name, text in zip(names, texts, strict=True)) + "}"


def _workbook_value(value: Any) -> str:  # noqa: ANN401 - openpyxl has no types
    """Return a cell as JSON; a time is a text, and a date one without a time of day."""
    if value is None or isinstance(value, bool | str):
        return json_text(value)
    if isinstance(value, int | float):
        return str(value) if isinstance(value, int) else canonical_float(value)
    text = str(value).replace(" ", "T")
    return json_text(text.removesuffix("T00:00:00"))


def parquet_lines(
    path: Path, number_writers: Mapping[str, NumberWriter] | None = None, *, clustered: Collection[str] = ()
) -> Iterator[str]:
    """Yield the rows of a Parquet file as compact JSON objects; ``number_writers`` write numbers of a release.

    Dates, times and decimals become texts in Arrow's format, and NaN becomes null. So does infinity in the columns of
    an original that are not ``clustered``; elsewhere it becomes a number that no float64 can hold.
    """
    writers, is_release = number_writers or {}, number_writers is not None
    with parquet_file(path) as file:
        arrow = import_module("pyarrow")
        for batch in file.iter_batches():
            names = batch.schema.names
            for row in zip(*[_plain_values(arrow, column) for column in batch.columns], strict=True):
                texts = [
                    _json_value(value, writers.get(name), keeps_infinity=is_release or name in clustered)
                    for name, value in zip(names, row, strict=True)
                ]
                fields = [f"{json_text(name)}:{text}" for name, text in zip(names, texts, strict=True)]
                yield "{" + ",".join(fields) + "}"


def _plain_values(arrow: Any, column: Any) -> list[Any]:  # noqa: ANN401 - pyarrow has no types
    """Return the values of a column as None, bool, int, float and str."""
    kind, types = column.type, arrow.types
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return ["?"] * len(column)  # only a column that is not published can have such a type
    plain = ("integer", "floating", "boolean", "null", "string", "large_string")
    is_plain = any(getattr(types, f"is_{name}")(kind) for name in plain)
    values: list[Any] = (column if is_plain else column.cast(arrow.string())).to_pylist()
    return values


def _json_value(value: float | str | None, writer: NumberWriter | None, *, keeps_infinity: bool) -> str:
    if value is None or isinstance(value, bool | str):
        return json_text(value)
    if not math.isfinite(value):
        return _TOO_LARGE_NUMBER if keeps_infinity and not math.isnan(value) else "null"
    if writer is not None:
        return writer(value)
    return str(value) if isinstance(value, int) else canonical_float(value)
