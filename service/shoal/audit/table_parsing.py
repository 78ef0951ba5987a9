"""Reads CSV files into cells and Parquet files into JSON lines.

CSV is read in any dialect of the policy, with the standard library alone. Parquet is read with pyarrow, an optional
dependency. This module does not know what the columns mean.
"""

from __future__ import annotations

import codecs
import csv
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from shoal.audit.arithmetic import canonical_float
from shoal.audit.json_values import json_text
from shoal.errors import InputError
from shoal.policy import CsvDialect

__all__ = [
    "NumberWriter",
    "csv_record_lines",
    "csv_rows",
    "has_encoded_lines",
    "has_json_type",
    "is_csv_ended",
    "is_parquet",
    "is_repeated_header",
    "original_header",
    "parquet_file",
    "parquet_lines",
    "plain_values",
    "released_header",
    "rewritten_number",
]

NumberWriter: TypeAlias = Callable[[float], str]

_INFINITIES = (math.inf, -math.inf)
_TOO_LARGE_NUMBER = "1e999"
_REPLACE_UNDECODABLE = "shoal.audit.replace"
codecs.register_error(_REPLACE_UNDECODABLE, lambda error: ("\udcff", getattr(error, "end", 1)))


# ---------------------------------------------------------------- CSV


def original_header(path: Path, dialect: CsvDialect, declared: Collection[str] = ()) -> list[str]:
    """Return the column names of an original; blanks and tabs around a name are ignored if it is declared.

    Raises
    ------
    InputError
        There is no header, or a name is repeated.
    """
    header = _column_names((_header(path, dialect, skip_bom=True) or ("", []))[1], declared)
    if not header:
        raise InputError(f"{path}, line 1: no header; the first line must name the columns")
    if len(set(header)) != len(header):
        raise InputError(f"{path}, line 1: a column name is repeated; rename one of them")
    return header


def released_header(path: Path, dialect: CsvDialect) -> tuple[str, list[str]] | None:
    """Return the header of a release, as it stands in the file, and the column names; None for an empty file.

    Raises
    ------
    InputError
        The first line is not CSV in the encoding of the dialect.
    """
    return _header(path, dialect, skip_bom=False)


def _header(path: Path, dialect: CsvDialect, *, skip_bom: bool) -> tuple[str, list[str]] | None:
    for text, cells in _cells(path, dialect, skip_bom=skip_bom):
        if cells is None:
            raise InputError(f"{path}, line 1: the header is not CSV in {dialect.encoding}; write the file again")
        return text, cells
    return None


def _column_names(header: list[str], declared: Collection[str]) -> list[str]:
    names = [(name, name.strip(" \t")) for name in header]
    return [stripped if stripped in declared and name not in declared else name for name, stripped in names]


def csv_rows(
    path: Path, dialect: CsvDialect, *, skip_bom: bool, declared: Collection[str] = ()
) -> Iterator[tuple[str, Mapping[str, object] | None]]:
    """Yield the rows after the header: the text as it stands in the file, and the cells by column name.

    The cells are None if the text is not a record of this header, and empty for an empty line. ``skip_bom``: ignore a
    byte order mark at the beginning of the file. ``declared``: as in `original_header`.
    """
    rows = _cells(path, dialect, skip_bom=skip_bom)
    header = _column_names(next(rows, ("", None))[1] or [], declared)
    has_repeated_names = len(set(header)) != len(header)
    for text, cells in rows:
        if cells == []:
            yield text, {}
        elif cells is None or len(cells) != len(header) or has_repeated_names:
            yield text, None
        else:
            yield text, dict(zip(header, cells, strict=True))


def is_repeated_header(row: Mapping[str, object], dialect: CsvDialect) -> bool:
    """Whether each cell of a row is the name of its column, but for blanks and tabs around them.

    A file that was appended to or joined from several files has such rows. A byte order mark before the first cell is
    ignored. The quotation marks that follow it are characters of the cell.
    """
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
    for text, _, _ in _records(path, dialect, skip_bom=True):
        if not is_header:
            yield line
        line, is_header = line + text.count(_end(dialect)), False


def is_csv_ended(path: Path, dialect: CsvDialect) -> bool:
    """Whether the last record is complete: it has a line end, and every quoted cell is closed."""
    last = deque(_records(path, dialect, skip_bom=True), maxlen=1)
    return all(is_ended for _, _, is_ended in last)


def has_encoded_lines(path: Path, dialect: CsvDialect) -> bool:
    """Whether the bytes of a file are those that an encoder writes for its text, and its last line is ended.

    The encoder writes one byte order mark at the beginning if the encoding has one, and none otherwise.
    """
    encoder, line = codecs.getincrementalencoder(dialect.encoding)(), ""
    try:
        with path.open("rb") as content, path.open(encoding=dialect.encoding, newline=_end(dialect)) as lines:
            for line in lines:
                piece = encoder.encode(line)
                if content.read(len(piece)) != piece:
                    return False
            return not content.read(1) and (not line or line.endswith(dialect.line_end))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeError:
        return False


def _cells(path: Path, dialect: CsvDialect, *, skip_bom: bool) -> Iterator[tuple[str, list[str] | None]]:
    """Yield text and cells of each record, the header first; the cells are None if the text is not CSV."""
    for text, cells, _ in _records(path, dialect, skip_bom=skip_bom):
        yield text.removesuffix(dialect.line_end), cells


def _records(path: Path, dialect: CsvDialect, *, skip_bom: bool) -> Iterator[tuple[str, list[str] | None, bool]]:
    """Yield the text with its line end, the cells, and whether the record is complete."""
    consumed: list[str] = []
    escapes = _BackslashEscapes(dialect)
    is_exhausted = False

    def lines() -> Iterator[str]:
        nonlocal is_exhausted
        for number, line in enumerate(_lines(path, dialect)):
            consumed.append(line if number or not skip_bom else line.removeprefix("\ufeff"))
            yield escapes.to_doubled(consumed[-1], starts_record=len(consumed) == 1)
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
        yield text, cells if _is_decoded(text) else None, text.endswith(_end(dialect)) and not is_exhausted


class _BackslashEscapes:
    """Rewrites backslash escapes inside quoted cells as doubled quotes (RFC 4180, section 2).

    Only a backslash before a quote or before another backslash is an escape. All others are ordinary characters.
    """

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


def _lines(path: Path, dialect: CsvDialect) -> Iterator[str]:
    """Yield lines with their ends. A lone carriage return ends a line only if the dialect says so."""
    try:
        with path.open(encoding=dialect.encoding, errors=_REPLACE_UNDECODABLE, newline=_end(dialect)) as file:
            yield from file
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeError:
        # Undecodable bytes are replaced, so only a missing byte order mark raises.
        raise InputError(
            f"{path}, line 1: no byte order mark, which {dialect.encoding} needs; give csv.encoding (of a "
            "release: csv.output.encoding) utf-16-le or utf-16-be"
        ) from None


def _end(dialect: CsvDialect) -> str:
    """Return the last character of a line end in this dialect."""
    return "\r" if dialect.line_end == "\r" else "\n"


def _is_decoded(text: str) -> bool:
    """Whether every byte of a text could be decoded."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- Parquet


def is_parquet(path: Path) -> bool:
    """Whether the name of a file ends in ``.parquet``."""
    return path.suffix.lower() == ".parquet"


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file as `pyarrow.parquet.ParquetFile`.

    Raises
    ------
    InputError
        pyarrow is not installed, or the file cannot be read, now or within the context.
    """
    try:
        arrow, files = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise InputError(f"{path}: Parquet needs pyarrow: install shoal[parquet]") from None
    try:
        with files.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(f"{path}: not a readable Parquet file; write it again") from None


def parquet_lines(
    path: Path, number_writers: Mapping[str, NumberWriter] | None = None, *, clustered: Collection[str] = ()
) -> Iterator[str]:
    """Yield the rows of a Parquet file as compact JSON objects.

    Dates, times and decimals become texts in Arrow's format. In an original, NaN and infinity become null, as in the
    product; in a release they become words that are not JSON, as does a zero with a sign. Infinity in a column of
    ``clustered`` becomes a number that no float64 can hold.

    Parameters
    ----------
    path : Path
    number_writers : mapping, optional
        Of a release: functions that write the numbers of some columns. Other numbers are written in their canonical
        form.
    clustered : collection of str, optional
        Of an original: the columns of quasi-identifiers and steering attributes.

    Raises
    ------
    InputError
        pyarrow is not installed, or the file cannot be read.
    """
    writers, is_release = number_writers or {}, number_writers is not None
    with parquet_file(path) as file:
        arrow = import_module("pyarrow")
        for batch in file.iter_batches():
            names = batch.schema.names
            for row in zip(*[plain_values(arrow, column) for column in batch.columns], strict=True):
                fields = [
                    f"{json_text(name)}:"
                    + (
                        _TOO_LARGE_NUMBER
                        if name in clustered and value in _INFINITIES
                        else _json_value(value, writers.get(name), is_release=is_release)
                    )
                    for name, value in zip(names, row, strict=True)
                ]
                yield "{" + ",".join(fields) + "}"


def plain_values(arrow: Any, column: Any) -> list[Any]:  # noqa: ANN401 - pyarrow has no types
    """Return the values of a column as None, bool, int, float and str."""
    kind = column.type
    if arrow.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if arrow.types.is_nested(kind) or arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind):
        return ["?"] * len(column)  # only a column that is not published can have such a type
    values: list[Any] = (column if has_json_type(arrow, kind) else column.cast(arrow.string())).to_pylist()
    return values


def has_json_type(arrow: Any, kind: Any) -> bool:  # noqa: ANN401
    """Whether the values of an Arrow type are JSON numbers, texts, truth values or null."""
    plain = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean, arrow.types.is_null)
    texts = (arrow.types.is_string, arrow.types.is_large_string)
    return any(test(kind) for test in plain + texts)


def rewritten_number(value: object, writer: NumberWriter | None) -> object:
    """Return the number that a float64 becomes when it is written as text and read again; other values as they are."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return float(canonical_float(value) if writer is None else writer(value))


def _json_value(value: object, writer: NumberWriter | None, *, is_release: bool) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, int | float):
        return json_text(str(value))
    if is_release and repr(rewritten_number(value, writer)) != repr(value):
        return repr(value)
    if not math.isfinite(value):
        return "null"
    if writer is not None:
        return writer(value)
    return str(value) if isinstance(value, int) else canonical_float(value)
