"""Files to records: JSON lines and CSV, read by the standard library alone.

In: a path. Out: (partition, offset, record) for originals and (partition, text, record) for released rows, the
record as a mapping of names to values, or None where the text is no record at all. What the fields mean is
not known here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

from shoal.errors import InputError

__all__ = [
    "BLANK",
    "ORIGINAL_EXPORT",
    "RELEASED_EXPORT",
    "Form",
    "Pairs",
    "Record",
    "Token",
    "byte_lines",
    "form_of",
    "is_wrapped",
    "original_header",
    "original_records",
    "parse",
    "released_header",
    "released_records",
]

Form: TypeAlias = Literal["csv", "jsonl"]
Record: TypeAlias = Mapping[str, object]

BLANK: Record = {}
"""A line with nothing on it: whether it counts as a record is a matter of taste."""

_FORMS: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl"}


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
_encoder = json.JSONEncoder(ensure_ascii=False)


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


def parse(text: bytes | str, *, literal: bool = False) -> object:
    """Read one JSON text; objects become `Pairs`, with ``literal`` numbers become `Token`.

    Raises
    ------
    ValueError
        Not UTF-8, not JSON, or a string that no UTF-8 text can hold. Never shown: it holds the text.
    """
    # Lone surrogates cannot be written again: bytes bring them by escapes only, texts also as they are.
    suspect = b"\\u" in text if isinstance(text, bytes) else not text.isascii() or "\\u" in text
    try:
        value = (_literal if literal else _plain).decode(text.decode() if isinstance(text, bytes) else text)
        if suspect:
            _encoder.encode((value, text if isinstance(text, str) else "")).encode()
    except RecursionError:
        raise ValueError from None
    return value


def _record(text: bytes | str, *, literal: bool = False) -> Record | None:
    try:
        return _as_record(parse(text, literal=literal))
    except ValueError:
        return None


def _as_record(value: object) -> Record | None:
    """Return the mapping of an object; None for everything else and for doubled keys."""
    if not isinstance(value, Pairs):
        return None
    record = dict(value)
    return record if len(record) == len(value) else None


def is_wrapped(path: Path, keys: frozenset[str]) -> bool:
    """Whether the first line of a JSON lines file is an export: an object of exactly these keys."""
    for line in byte_lines(path):
        record = _loose_record(line)
        return record is not None and record.keys() == keys
    return False


def _loose_record(line: bytes) -> Record | None:
    # What an export holds may be any text, also one that UTF-8 cannot hold; the export itself is still one.
    try:
        return _as_record(_plain.decode(line.decode()))
    except (ValueError, RecursionError):
        return None


def _export(path: Path, keys: frozenset[str]) -> Iterator[tuple[int, Record]]:
    """Line numbers from 1 and the lines of an export."""
    for number, line in enumerate(byte_lines(path), 1):
        record = _loose_record(line)
        if record is None or record.keys() != keys:
            raise InputError(f"{path}, line {number}: not an export of exactly {', '.join(sorted(keys))}; export again")
        yield number, record


def _integer(path: Path, number: int, record: Record, name: str) -> int:
    value = record[name]
    if type(value) is not int:
        raise InputError(f"{path}, line {number}: {name} must be an integer; export again")
    return value


ORIGINAL_EXPORT = frozenset({"partition", "offset", "value"})
RELEASED_EXPORT = frozenset({"partition", "value"})


def original_records(path: Path, *, wrapped: bool) -> Iterator[tuple[int, int, Record | None]]:
    """Partition, offset and record; records of plain files are numbered from 0 in partition 0."""
    if wrapped:
        for number, line in _export(path, ORIGINAL_EXPORT):
            partition, offset = (_integer(path, number, line, name) for name in ("partition", "offset"))
            yield partition, offset, _exported(line["value"])
    elif form_of(path) == "csv":
        for number, (_, cells) in enumerate(_csv_rows(path)):
            yield 0, number, cells
    else:
        for number, text in enumerate(byte_lines(path)):
            yield 0, number, _record(text) if text.strip() else BLANK


def _exported(value: object) -> Record | None:
    if isinstance(value, str):
        return _record(value)
    try:
        _encoder.encode(value).encode()
    except (ValueError, RecursionError):
        return None
    return _as_record(value)


def released_records(path: Path, *, wrapped: bool) -> Iterator[tuple[int, str, Record | None]]:
    """Partition, published text and record, its numbers as written."""
    if wrapped:
        for number, line in _export(path, RELEASED_EXPORT):
            partition, text = _integer(path, number, line, "partition"), line["value"]
            known = text if isinstance(text, str) else ""
            yield partition, known, _record(known, literal=True)
    elif form_of(path) == "csv":
        for text, cells in _csv_rows(path):
            yield 0, text, cells
    else:
        for row in byte_lines(path):
            yield 0, row.decode(errors="replace"), _record(row, literal=True)


# ---------------------------------------------------------------- csv


def original_header(path: Path) -> list[str]:
    """Names of the columns of an original, each once.

    Raises
    ------
    InputError
        No header, or a name stands twice.
    """
    header = _header(path)
    if header is None:
        raise InputError(f"{path}, line 1: no header; the first line must name the columns")
    if len(set(header)) != len(header):
        raise InputError(f"{path}, line 1: a column name stands twice; rename one of them")
    return header


def released_header(path: Path) -> list[str] | None:
    """Names of the columns of a release; None for an empty file."""
    return _header(path)


def _header(path: Path) -> list[str] | None:
    for _, cells in _cells(path):
        if cells is None:
            raise InputError(f"{path}, line 1: the header is not CSV; write it again")
        return cells
    return None


def _csv_rows(path: Path) -> Iterator[tuple[str, Record | None]]:
    rows = _cells(path)
    _, header = next(rows, ("", None))
    if header is None:
        return
    doubled = len(set(header)) != len(header)
    for text, cells in rows:
        if not cells:
            yield text, None if cells is None else BLANK
        elif len(cells) != len(header) or doubled:
            yield text, None
        else:
            yield text, dict(zip(header, cells, strict=True))


def _cells(path: Path) -> Iterator[tuple[str, list[str] | None]]:
    """Text and cells of each record of a CSV file, header first; None where a record is not CSV."""
    taken: list[str] = []

    def feed() -> Iterator[str]:
        for number, line in enumerate(_ended_lines(path), 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InputError(f"{path}, line {number}: not UTF-8 text; convert the file first") from None
            taken.append(text)
            yield text

    reader = csv.reader(feed(), strict=True)
    while True:
        taken.clear()
        try:
            cells: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = None
        yield "".join(taken).removesuffix("\n"), cells
