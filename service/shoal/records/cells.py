"""Single values to text, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.records.numerals import plain

__all__ = ["csv_cells", "csv_text", "json_cells"]

_json = msgspec.json.Encoder()
_NEEDS_QUOTES = re.compile('[,"\r\n]')


def json_cells(column: Sequence[Any]) -> list[bytes]:
    """Write each value as JSON: one text per value, whatever its spelling was."""
    if float in set(map(type, column)):
        column = [plain(value) if isinstance(value, float) else value for value in column]
    # JSON text holds no raw newline.
    return _json.encode_lines(column)[:-1].split(b"\n") if column else []


def csv_cells(column: Sequence[Any]) -> list[bytes]:
    """Write each value as a CSV cell: texts as they are, quoted if need be; null as nothing; the rest as in JSON."""
    if not set(map(type, column)) <= {str}:
        cells = json_cells(column)
        return [
            b"" if value is None else csv_text(value) if isinstance(value, str) else cell
            for value, cell in zip(column, cells, strict=True)
        ]
    if _NEEDS_QUOTES.search("".join(column)):
        return list(map(csv_text, column))
    return list(map(str.encode, column))


def csv_text(text: str) -> bytes:
    """Write a text as a CSV cell, quoted if it holds a comma, a quotation mark or a line end."""
    if _NEEDS_QUOTES.search(text):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode()
