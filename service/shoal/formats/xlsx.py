"""Workbooks of Excel: the rows of the only sheet that has cells, as JSON messages. Needs openpyxl (extra ``xlsx``).

The first row names the columns. Dates become texts in ISO 8601, and empty cells null. Rows without a cell are left out.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from itertools import islice
from typing import Any, BinaryIO, NoReturn
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

import msgspec
import openpyxl
from openpyxl.utils import get_column_letter

from shoal.errors import ConfigError, InputError
from shoal.formats.encoder import RecordEncoder
from shoal.formats.format import BATCH_SIZE, Format, ReadOptions, RecordSource, require_columns, require_names
from shoal.formats.json import JsonDecoder, find_json_faults
from shoal.policy import Policy
from shoal.scales.scale import integral_to_int

_BROKEN = (BadZipFile, ParseError, KeyError, ValueError, TypeError, AttributeError, IndexError, OSError)
"""What openpyxl raises for files that are no workbooks."""
_MOST_TIMES, _FREE_BYTES = 200, 1 << 26
_encode = msgspec.json.Encoder().encode


class XlsxFormat(Format):
    """Workbooks, as inputs of finished tables."""

    def read(self, stream: BinaryIO, policy: Policy, encoder: RecordEncoder, options: ReadOptions) -> RecordSource:
        """Open an input; see `Format.read`."""
        name, max_bytes, with_columns, _ = options
        require_columns(policy, name, "workbook")
        names, rows = read_sheet(stream, name)
        require_names(names, policy, name)
        decoder = JsonDecoder(policy, encoder=encoder, max_bytes=max_bytes, with_columns=with_columns)
        numbers = array("l")

        def batches() -> Iterator[list[bytes]]:
            while batch := list(islice(rows, BATCH_SIZE)):
                numbers.extend(number for number, _ in batch)
                yield [_encode(dict(zip(names, values, strict=True))) for _, values in batch]

        blocks = ((decoder.decode(batch), batch) for batch in batches())
        return RecordSource(blocks, lambda row: find_json_faults(policy, row), numbers.__getitem__, unit="row")

    def encoder(self, policy: Policy) -> NoReturn:  # noqa: ARG002
        """Raise ConfigError."""
        raise ConfigError(".xlsx files are read only; give -o a .csv, .jsonl or .parquet file")


def read_sheet(stream: BinaryIO, name: str) -> tuple[list[str], Iterator[tuple[int, list[Any]]]]:
    """Return the names of the columns, and number and JSON values of each row; InputError if there is no such table."""
    try:
        with ZipFile(stream) as parts:
            sizes = [(part.compress_size, part.file_size) for part in parts.infolist()]
        if sum(size for _, size in sizes) > _FREE_BYTES + _MOST_TIMES * sum(size for size, _ in sizes):
            raise InputError(f"{name}: more than {_MOST_TIMES} times as large when uncompressed; save it as .csv")
        stream.seek(0)
        with warnings.catch_warnings(action="ignore"):
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True, keep_links=False)
        sheets = [sheet for sheet in book.worksheets if next(_cells(sheet), None) is not None]
    except _BROKEN:
        raise InputError(f"{name}: not a workbook of Excel (.xlsx), or with a password; save it again") from None
    if len(sheets) != 1:
        raise InputError(f"{name}: {len(sheets)} sheets have cells; save the one with the records as a file of its own")
    rows = _checked(_cells(sheets[0]), name)
    first, header = next(rows)
    names = [str(cell.value) if cell.value is not None else "" for cell in header]
    while names and not names[-1]:
        names.pop()
    where = f"{name}, row {first}"
    for place, one in enumerate(names, 1):
        if not one.strip():
            column = get_column_letter(place)
            raise InputError(f"{where}: column {column} has no name; split merged cells, and give each column a name")
        if names.index(one) + 1 < place:
            raise InputError(
                f"{where}: columns {get_column_letter(names.index(one) + 1)} and "
                f"{get_column_letter(place)} have one name; rename one of them"
            )
    return names, ((number, list(_values(cells, names, f"{name}, row {number}"))) for number, cells in rows)


def _cells(sheet: Any) -> Iterator[tuple[int, Sequence[Any]]]:  # noqa: ANN401 - openpyxl has no types
    """Yield number and cells of the rows of a sheet that have a value."""
    sheet.reset_dimensions()  # some programs write wrong ones
    for number, cells in enumerate(sheet.iter_rows(), 1):
        if any(cell.value is not None for cell in cells):
            yield number, cells


def _checked(rows: Iterable[tuple[int, Sequence[Any]]], name: str) -> Iterator[tuple[int, Sequence[Any]]]:
    try:
        yield from rows
    except _BROKEN:
        raise InputError(f"{name}: not a whole workbook; save it again") from None


def _values(cells: Sequence[Any], names: Sequence[str], where: str) -> Iterator[Any]:
    """Yield a JSON value for each column."""
    for place, cell in enumerate(cells, 1):
        column = f"{where}, column {get_column_letter(place)}"
        if place > len(names) and cell.value is not None:
            raise InputError(f"{column}: the column has no name; give it one in the first row, or empty it")
        if cell.data_type == "e":
            raise InputError(f"{column}: an error of a formula, such as #N/A; correct it, or empty the cell")
        if place <= len(names):
            yield _json_value(cell.value, column)
    yield from [None] * (len(names) - len(cells))


def _json_value(value: Any, where: str) -> Any:  # noqa: ANN401 - of a cell
    if isinstance(value, datetime):
        is_date = (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0)
        return (value.date() if is_date else value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float):
        return integral_to_int(value)
    if value is None or isinstance(value, str | int):
        return value
    raise InputError(f"{where}: a duration; write it as a number, or as a text")
