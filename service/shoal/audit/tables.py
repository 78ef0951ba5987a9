"""CSV files to cells, in any dialect, read by the standard library alone.

In: a path and a dialect. Out: for each record its text as it stands in the file, and its cells by name: None where it
is no record, empty for a line with nothing on it.
"""

from __future__ import annotations

import codecs
import csv
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from shoal.errors import InputError
from shoal.policy import CsvDialect

__all__ = ["csv_rows", "is_csv_ended", "original_header", "released_header"]

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


def is_csv_ended(path: Path, dialect: CsvDialect) -> bool:
    """Whether the last record has its end: a line end, and outside of quotation marks."""
    last = deque(_records(path, dialect, marked=True), maxlen=1)
    return all(is_ended for _, _, is_ended in last)


def _cells(path: Path, dialect: CsvDialect, *, marked: bool) -> Iterator[tuple[str, list[str] | None]]:
    """Text and cells of each record, header first; None where a record is not CSV in its encoding."""
    for text, cells, _ in _records(path, dialect, marked=marked):
        yield text.removesuffix(dialect.line_end), cells


def _records(path: Path, dialect: CsvDialect, *, marked: bool) -> Iterator[tuple[str, list[str] | None, bool]]:
    """The same with its end, and whether it has one."""
    taken: list[str] = []
    escapes = _Escapes(dialect)
    is_over = False

    def feed() -> Iterator[str]:
        nonlocal is_over
        for number, line in enumerate(_lines(path, dialect)):
            taken.append(line if number or not marked else line.removeprefix("\ufeff"))
            yield escapes.undone(taken[-1], is_first=len(taken) == 1)
        is_over = True

    reader = csv.reader(feed(), **dialect.reader_options)
    while True:
        taken.clear()
        try:
            cells: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = None
        text = "".join(taken)
        # A reader that went over the end wanted more: a quotation mark was never closed.
        yield text, cells if _is_whole(text) else None, text.endswith(_end(dialect)) and not is_over


class _Escapes:
    """Writes backslashes before quotation marks and backslashes in quotes as RFC 4180 would; all others are letters."""

    def __init__(self, dialect: CsvDialect) -> None:
        self._dialect = dialect
        self._inside = False

    def undone(self, line: str, *, is_first: bool) -> str:
        """Return a line in which only quotation marks are escaped, by doubling; ``is_first``: a record begins."""
        quote = self._dialect.quote
        if self._dialect.escape == "doubled":
            return line
        inside, fresh, out, place = self._inside and not is_first, is_first, "", 0
        while place < len(line):
            sign, pair = line[place], line[place : place + 2]
            if inside and pair in {"\\\\", "\\" + quote}:
                out += "\\" if pair == "\\\\" else quote + quote
                place += 2
                continue
            if inside and pair == quote + quote:
                # No escape here, and nothing may follow the end of a cell.
                out += quote + "\0"
                inside = False
            elif inside:
                out, inside = out + sign, sign != quote
            else:
                out, inside = out + sign, fresh and sign == quote
                fresh = sign == self._dialect.delimiter
            place += 1
        self._inside = inside
        return out


def _lines(path: Path, dialect: CsvDialect) -> Iterator[str]:
    """Lines with their ends: a carriage return ends one only where the dialect says so."""
    try:
        with path.open(encoding=dialect.encoding, errors=_BROKEN, newline=_end(dialect)) as file:
            yield from file
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeError:
        # What cannot be decoded is marked, so only the beginning can be wrong.
        raise InputError(
            f"{path}, line 1: no byte order mark, which {dialect.encoding} needs; give csv.encoding (of a "
            "release: csv.output.encoding) utf-16-le or utf-16-be"
        ) from None


def _end(dialect: CsvDialect) -> str:
    """What ends a line of an original, whatever stands before it."""
    return "\r" if dialect.line_end == "\r" else "\n"


def _is_whole(text: str) -> bool:
    """Whether every byte of it could be decoded."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
