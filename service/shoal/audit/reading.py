"""Files to records: JSON lines and CSV, read by the standard library alone.

In: a path. Out: (partition, offset, record) for originals and (partition, text, record) for released rows, the
record as a mapping of names to values, or None where the text is no record at all. What the fields mean is
not known here.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

from shoal.errors import InputError

__all__ = [
    "BLANK",
    "FARTHEST",
    "ORIGINAL_EXPORT",
    "RELEASED_EXPORT",
    "Form",
    "Pairs",
    "Record",
    "Token",
    "byte_lines",
    "form_of",
    "is_wrapped",
    "json_value",
    "original_header",
    "original_records",
    "released_header",
    "released_records",
]

Form: TypeAlias = Literal["csv", "jsonl"]
Record: TypeAlias = Mapping[str, object]

ORIGINAL_EXPORT = frozenset({"partition", "offset", "value"})
RELEASED_EXPORT = frozenset({"partition", "value"})
FARTHEST = 1 << 62
"""Partitions, offsets and counts stay within it."""
BLANK: Record = {}
"""A line with nothing on it: whether it counts as a record is a matter of taste."""

_FORMS: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl"}


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


def form_of(path: Path) -> Form:
    """Csv or jsonl, by suffix.

    Raises
    ------
    InputError
        For any other suffix.
    """
    try:
        return _FORMS[path.suffix.lower()]
    except KeyError:
        raise InputError(f"{path}: the judge reads .csv, .jsonl and .json; convert the file first") from None


def byte_lines(path: Path) -> Iterator[bytes]:
    """Physical lines without their ends; the empty text after the last line break is no line."""
    return (line.removesuffix(b"\n") for line in _ended_lines(path))


def _ended_lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


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


def is_wrapped(path: Path, keys: frozenset[str]) -> bool:
    """Whether the first line of a JSON lines file is an export: an object of exactly these keys."""
    first = _record(next(byte_lines(path), b""))
    return first is not None and first.keys() == keys


def _export(path: Path, keys: frozenset[str]) -> Iterator[tuple[int, Record]]:
    """Line numbers from 1 and the lines of an export."""
    for number, text in enumerate(byte_lines(path), 1):
        line = _record(text)
        if line is None or line.keys() != keys:
            raise InputError(f"{path}, line {number}: not an export of exactly {', '.join(sorted(keys))}; export again")
        yield number, line


def _integer(path: Path, number: int, line: Record, name: str) -> int:
    value = line[name]
    is_short = isinstance(value, Token) and len(value) < len(str(FARTHEST))
    if not is_short or not str(value).removeprefix("-").isdigit():
        raise InputError(f"{path}, line {number}: {name} must be an integer; export again")
    return int(str(value))


def original_records(path: Path, *, wrapped: bool) -> Iterator[tuple[int, int, Record | None]]:
    """Partition, offset and record; records of plain files are numbered from 0 in partition 0."""
    if wrapped:
        for number, line in _export(path, ORIGINAL_EXPORT):
            partition, offset = (_integer(path, number, line, name) for name in ("partition", "offset"))
            value = line["value"]
            is_text = isinstance(value, str) and not isinstance(value, Token)
            yield partition, offset, _record(str(value)) if is_text else _as_record(value)
    elif form_of(path) == "csv":
        for number, (_, cells) in enumerate(_csv_rows(path, marked=True)):
            yield 0, number, cells
    else:
        for number, text in enumerate(byte_lines(path)):
            yield 0, number, _record(text) if text.strip() else BLANK


def released_records(path: Path, *, wrapped: bool) -> Iterator[tuple[int, str, Record | None]]:
    """Partition, published text and record."""
    if wrapped:
        for number, line in _export(path, RELEASED_EXPORT):
            partition, value = _integer(path, number, line, "partition"), line["value"]
            text = str(value) if isinstance(value, str) and not isinstance(value, Token) else ""
            yield partition, text, _record(text)
    elif form_of(path) == "csv":
        for text, cells in _csv_rows(path, marked=False):
            yield 0, text, cells
    else:
        for row in byte_lines(path):
            yield 0, row.decode(errors="surrogateescape"), _record(row)


# ---------------------------------------------------------------- csv


def original_header(path: Path) -> list[str]:
    """Names of the columns of an original, each once.

    Raises
    ------
    InputError
        No header, or a name stands twice.
    """
    header = _header(path, marked=True)
    if not header:
        raise InputError(f"{path}, line 1: no header; the first line must name the columns")
    if len(set(header)) != len(header):
        raise InputError(f"{path}, line 1: a column name stands twice; rename one of them")
    return header


def released_header(path: Path) -> list[str] | None:
    """Names of the columns of a release; None for an empty file.

    Raises
    ------
    InputError
        The first line is not CSV.
    """
    return _header(path, marked=False)


def _header(path: Path, *, marked: bool) -> list[str] | None:
    for _, cells in _cells(path, marked=marked):
        if cells is None:
            raise InputError(f"{path}, line 1: the header is not UTF-8 text in CSV; write it again")
        return cells
    return None


def _csv_rows(path: Path, *, marked: bool) -> Iterator[tuple[str, Record | None]]:
    rows = _cells(path, marked=marked)
    header = next(rows, ("", None))[1] or []
    doubled = len(set(header)) != len(header)
    for text, cells in rows:
        if cells == []:
            yield text, BLANK
        elif cells is None or len(cells) != len(header) or doubled:
            yield text, None
        else:
            yield text, dict(zip(header, cells, strict=True))


def _cells(path: Path, *, marked: bool) -> Iterator[tuple[str, list[str] | None]]:
    """Text and cells of each record of a CSV file, header first; None where a record is not CSV in UTF-8.

    ``marked``: a byte order mark at the beginning is none of the text.
    """
    taken: list[str] = []

    def feed() -> Iterator[str]:
        for number, line in enumerate(_ended_lines(path)):
            known = line if number or not marked else line.removeprefix(codecs.BOM_UTF8)
            taken.append(known.decode(errors="surrogateescape"))
            yield taken[-1]

    reader = csv.reader(feed(), strict=True)
    while True:
        taken.clear()
        try:
            cells: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = None
        text = "".join(taken).removesuffix("\n")
        yield text, cells if _is_utf8(text) else None


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
