"""CSV files to cells, in any dialect, read by the standard library alone.

In: a path and a dialect. Out: for each record its text as it stands in the file, and its cells by name: None where it
is no record, empty for a line with nothing on it.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from shoal.errors import InputError
from shoal.policy import CsvDialect

__all__ = ["csv_rows", "original_header", "released_header"]

_BROKEN = "shoal.audit.broken"
codecs.register_error(_BROKEN, lambda error: ("\udcff", getattr(error, "end", 1)))


def original_header(path: Path, dialect: CsvDialect) -> list[str]:
    """Names of the columns of an original, each once.

    Raises
    ------
    InputError
        No header, or a name stands twice.
    """
    header = _header(path, dialect, marked=True)
    if not header:
        raise InputError(f"{path}, line 1: no header; the first line must name the columns")
    if len(set(header)) != len(header):
        raise InputError(f"{path}, line 1: a column name stands twice; rename one of them")
    return header


def released_header(path: Path, dialect: CsvDialect) -> list[str] | None:
    """Names of the columns of a release; None for an empty file.

    Raises
    ------
    InputError
        The first line is not CSV.
    """
    return _header(path, dialect, marked=False)


def _header(path: Path, dialect: CsvDialect, *, marked: bool) -> list[str] | None:
    for _, cells in _cells(path, dialect, marked=marked):
        if cells is None:
            raise InputError(f"{path}, line 1: the header is no {dialect.encoding} text in CSV; write it again")
        return cells
    return None


def csv_rows(path: Path, dialect: CsvDialect, *, marked: bool) -> Iterator[tuple[str, Mapping[str, object] | None]]:
    """Rows after the header; ``marked``: a byte order mark at the beginning is none of the text."""
    rows = _cells(path, dialect, marked=marked)
    header = next(rows, ("", None))[1] or []
    doubled = len(set(header)) != len(header)
    for text, cells in rows:
        if cells == []:
            yield text, {}
        elif cells is None or len(cells) != len(header) or doubled:
            yield text, None
        else:
            yield text, dict(zip(header, cells, strict=True))


def _cells(path: Path, dialect: CsvDialect, *, marked: bool) -> Iterator[tuple[str, list[str] | None]]:
    """Text and cells of each record, header first; None where a record is not CSV in its encoding."""
    taken: list[str] = []

    def feed() -> Iterator[str]:
        for number, line in enumerate(_lines(path, dialect)):
            taken.append(line if number or not marked else line.removeprefix("\ufeff"))
            yield taken[-1]

    reader = csv.reader(feed(), **dialect.options)
    while True:
        taken.clear()
        try:
            cells: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = None
        text = "".join(taken).removesuffix(dialect.line_end)
        yield text, cells if _is_whole(text) else None


def _lines(path: Path, dialect: CsvDialect) -> Iterator[str]:
    """Lines with their ends: a carriage return ends one only where the dialect says so."""
    end = "\r" if dialect.line_end == "\r" else "\n"
    try:
        with path.open(encoding=dialect.encoding, errors=_BROKEN, newline=end) as file:
            yield from file
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _is_whole(text: str) -> bool:
    """Whether every byte of it could be decoded."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
