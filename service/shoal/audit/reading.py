"""Files to records: JSON lines and CSV, read by the standard library alone.

In: a file. Out: an `Original` for each record of an original and (partition, text, record) for released rows, the
record as a mapping of names to values, or None where the text is no record at all. What the fields mean is
not known here.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, TypeAlias, TypeGuard, TypeVar

from shoal.audit.parquet import is_parquet, parquet_lines
from shoal.audit.tables import csv_rows, is_csv_ended
from shoal.errors import InputError
from shoal.policy import CsvDialect

__all__ = [
    "AROUND",
    "BLANK",
    "FARTHEST",
    "ORIGINAL_EXPORT",
    "RELEASED_EXPORT",
    "File",
    "Form",
    "Original",
    "Pairs",
    "Record",
    "Token",
    "byte_lines",
    "form_of",
    "is_ended",
    "json_value",
    "names_of_first",
    "original_records",
    "released_records",
]

Form: TypeAlias = Literal["csv", "jsonl"]
Record: TypeAlias = Mapping[str, object]
Item = TypeVar("Item")

ORIGINAL_EXPORT = frozenset({"partition", "offset", "value"})
AROUND = frozenset({"key", "headers", "timestamp"})
"""What an export of an original may tell beside, of what stood around the value."""
RELEASED_EXPORT = frozenset({"partition", "value"})
FARTHEST = 1 << 62
"""Partitions, offsets and counts stay within it."""
_TIME = re.compile(r"-?[0-9]{1,18}")
BLANK: Record = {}
"""A line with nothing on it: a record that cannot be read if one follows, else none."""

_FORMS: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".parquet": "jsonl"}


@dataclass(frozen=True, slots=True)
class File:
    """A file and how it is written; ``dialect`` speaks of CSV only."""

    path: Path
    form: Form
    dialect: CsvDialect

    @classmethod
    def of(cls, path: str | Path, dialect: CsvDialect, told: Form | None = None) -> File:
        """Describe a file by its name; ``told``: its form where that does not tell."""
        return cls(Path(path), form_of(Path(path), told), dialect)


class Original(NamedTuple):
    """A record of an original; ``around``: key, timestamp and headers by the words of `from`, where they are usable."""

    partition: int
    offset: int
    record: Record | None
    around: Record


class Pairs(list[tuple[str, object]]):
    """A JSON object as written: with its doubled keys and in its order."""

    __slots__ = ()


class Token(str):
    """A JSON number as written."""

    __slots__ = ()


def _refuse(_name: str) -> NoReturn:
    # NaN and Infinity are no JSON, whatever the standard library thinks.
    raise ValueError


_plain = json.JSONDecoder(object_pairs_hook=Pairs, parse_constant=_refuse)
_literal = json.JSONDecoder(object_pairs_hook=Pairs, parse_constant=_refuse, parse_int=Token, parse_float=Token)


def form_of(path: Path, told: Form | None = None) -> Form:
    """Csv or jsonl, by suffix, else as told.

    Raises
    ------
    InputError
        Neither tells.
    """
    form = _FORMS.get(path.suffix.lower(), told)
    if form is None:
        raise InputError(f"{path}: the judge reads .csv, .jsonl, .json and .parquet; convert the file, or say --format")
    return form


def byte_lines(path: Path, *, marked: bool = False) -> Iterator[bytes]:
    """Physical lines without their ends; the empty text after the last line break is no line. Of Parquet: its rows.

    ``marked``: a byte order mark at the beginning is none of the text.
    """
    if is_parquet(path):
        yield from map(str.encode, parquet_lines(path))
        return
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file):
                known = line.removeprefix(codecs.BOM_UTF8) if marked and not number else line
                yield known.removesuffix(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _without_blank_end(items: Iterable[Item], is_blank: Callable[[Item], bool]) -> Iterator[Item]:
    """Leave out blank ones at the end: they are no records, as others are that something follows."""
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        if not is_blank(item):
            yield from waiting
            waiting.clear()


def is_ended(file: File) -> bool:
    """Whether the last record has its end; whoever follows a file waits for it."""
    if file.form == "csv":
        return is_csv_ended(file.path, file.dialect)
    if is_parquet(file.path):
        return True
    with file.path.open("rb") as lines:
        lines.seek(-min(1, lines.seek(0, os.SEEK_END)), os.SEEK_END)
        return lines.read() in {b"", b"\n"}


def json_value(text: bytes) -> object:
    """Read one JSON text with its numbers as numbers; objects become `Pairs`.

    Raises
    ------
    ValueError
        Not UTF-8 or not JSON. Never shown: it holds the text.
    """
    try:
        return _plain.decode(text.decode())
    except RecursionError:
        raise ValueError from None


def _record(text: bytes | str) -> Record | None:
    """Read one record, its numbers as written."""
    try:
        return _as_record(_literal.decode(text.decode() if isinstance(text, bytes) else text))
    except (ValueError, RecursionError):
        return None


def _as_record(value: object) -> Record | None:
    """Return the mapping of an object; None for everything else and for doubled keys."""
    if not isinstance(value, Pairs):
        return None
    record = dict(value)
    return record if len(record) == len(value) else None


# ---------------------------------------------------------------- exports of topics


def names_of_first(path: Path) -> frozenset[str]:
    """Names in the first line of a JSON lines file, if it is an object."""
    return frozenset(_record(next(byte_lines(path, marked=True), b"")) or ())


def _export(path: Path, needed: frozenset[str], known: frozenset[str]) -> Iterator[tuple[int, Record]]:
    """Line numbers from 1 and the lines of an export."""
    is_original = known != RELEASED_EXPORT
    lines: Iterable[bytes] = byte_lines(path, marked=is_original)
    if is_original:
        lines = _without_blank_end(lines, lambda text: not text.strip())
    for number, text in enumerate(lines, 1):
        line = _record(text)
        if line is None or not needed <= line.keys() <= known:
            more = ", ".join(sorted(known - needed))
            words = f"{', '.join(sorted(needed))}{f' (and {more})' if more else ''}"
            raise InputError(f"{path}, line {number}: not an export of exactly {words}; export again")
        yield number, line


def _integer(path: Path, number: int, line: Record, name: str) -> int:
    value = line[name]
    if not isinstance(value, Token) or not value.removeprefix("-").isdigit():
        raise InputError(f"{path}, line {number}: {name} must be an integer; export again")
    return int(value)


def original_records(
    file: File, exported: frozenset[str] | None = None, *, by_line: bool = False
) -> Iterator[Original]:
    """Records of an original.

    Parameters
    ----------
    file : File
        Where they stand.
    exported : frozenset of str, optional
        Names that every line must have, if the file is an export of a topic; None for plain records.
    by_line : bool
        Whether the lines of an export are numbered like those of a plain file: from 0, in partition 0.
    """
    if exported is not None:
        yield from _messages(file.path, exported) if by_line else _exported(file.path, exported)
    elif file.form == "csv":
        rows = (cells for _, cells in csv_rows(file.path, file.dialect, marked=True))
        for number, cells in enumerate(_without_blank_end(rows, lambda cells: cells == {})):
            yield Original(0, number, BLANK if cells == {} else cells, BLANK)
    else:
        lines = _without_blank_end(byte_lines(file.path, marked=True), lambda text: not text.strip())
        for number, text in enumerate(lines):
            yield Original(0, number, _record(text) if text.strip() else BLANK, BLANK)


def _exported(path: Path, needed: frozenset[str]) -> Iterator[Original]:
    """Messages of a topic. Broken lines are the export's fault, not a record's."""
    for number, line in _export(path, needed, ORIGINAL_EXPORT | AROUND):
        partition, offset = (_integer(path, number, line, name) for name in ("partition", "offset"))
        if "timestamp" in line:
            _integer(path, number, line, "timestamp")
        if not _is_headers(line.get("headers", [])):
            raise InputError(f"{path}, line {number}: headers must be a list of [name, text or null]; export again")
        yield Original(partition, offset, _value(line), _around(line))


def _messages(path: Path, needed: frozenset[str]) -> Iterator[Original]:
    """Messages in a file, numbered by line; one that is none, or has no usable part, is a record nobody can use."""
    lines = _without_blank_end(byte_lines(path, marked=True), lambda text: not text.strip())
    for number, text in enumerate(lines):
        line = _record(text)
        if line is None or not needed <= line.keys() <= ORIGINAL_EXPORT | AROUND:
            yield Original(0, number, None if text.strip() else BLANK, BLANK)
        else:
            yield Original(0, number, _value(line), _around(line))


def _value(line: Record) -> Record | None:
    value = line["value"]
    return _record(str(value)) if _is_text(value) else _as_record(value)


def _around(line: Record) -> Record:
    """What stood around a value, by the words of `from`: texts, and a number; without what is missing or doubled."""
    found: dict[str, object] = {}
    if _is_text(line.get("key")):
        found["key"] = line["key"]
    time = line.get("timestamp")
    if isinstance(time, Token) and _TIME.fullmatch(time) and int(time) >= 0:
        found["timestamp"] = time
    headers = line.get("headers", [])
    if not _is_headers(headers):
        return found
    times = Counter(name for name, _ in headers)
    return found | {f"header:{name}": text for name, text in headers if times[name] == 1 and _is_text(text)}


def _is_headers(headers: object) -> TypeGuard[list[tuple[object, object]]]:
    return isinstance(headers, list) and not isinstance(headers, Pairs) and all(map(_is_header, headers))


def _is_header(header: object) -> bool:
    is_list = isinstance(header, list) and not isinstance(header, Pairs)
    return is_list and len(header) == 2 and _is_text(header[0])  # type: ignore[arg-type, index]  # noqa: PLR2004


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Token)


def released_records(
    file: File, *, wrapped: bool, spellers: Mapping[str, Callable[[float], str]] | None = None
) -> Iterator[tuple[int, str, Record | None]]:
    """Partition, published text and record; ``spellers`` write the numbers of columns that are no text in Parquet."""
    if wrapped:
        for number, line in _export(file.path, RELEASED_EXPORT, RELEASED_EXPORT):
            partition, value = _integer(file.path, number, line, "partition"), line["value"]
            text = str(value) if _is_text(value) else ""
            yield partition, text, _record(text)
    elif file.form == "csv":
        for text, cells in csv_rows(file.path, file.dialect, marked=False):
            yield 0, text, cells
    elif is_parquet(file.path):
        for text in parquet_lines(file.path, spellers):
            yield 0, text, _record(text)
    else:
        for row in byte_lines(file.path):
            yield 0, row.decode(errors="surrogateescape"), _record(row)
