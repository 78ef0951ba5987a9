"""Single values to text, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.policy import CsvDialect
from shoal.records.numerals import plain

__all__ = ["CellWriter", "json_cells"]

_json = msgspec.json.Encoder()


def json_cells(column: Sequence[Any]) -> list[bytes]:
    """Write each value as JSON: one text per value, whatever its spelling was."""
    if float in set(map(type, column)):
        column = [plain(value) if isinstance(value, float) else value for value in column]
    # JSON text holds no raw newline.
    return _json.encode_lines(column)[:-1].split(b"\n") if column else []


class CellWriter:
    """Writes cells of one dialect of CSV, in UTF-8.

    Parameters
    ----------
    dialect : CsvDialect
        A cell is quoted if it holds the delimiter, a quotation mark, a line end, or the backslash where that escapes.
    """

    def __init__(self, dialect: CsvDialect) -> None:
        self._quote = dialect.quote
        self._is_doubled = dialect.escape == "doubled"
        self._decimal = None if dialect.decimal == "." else dialect.decimal.encode()
        special = dialect.delimiter + dialect.quote + "\r\n" + ("" if self._is_doubled else "\\")
        self._needs_quotes = re.compile(f"[{re.escape(special)}]")
        self._escaped = re.compile(f"[{re.escape(dialect.quote)}\\\\]")

    def column(self, column: Sequence[Any]) -> list[bytes]:
        """Write each value: texts as they are, quoted if need be; null as nothing; the rest as in JSON."""
        if not set(map(type, column)) <= {str}:
            cells = json_cells(column)
            return [
                b"" if value is None else self.text(value) if isinstance(value, str) else self.number(cell)
                for value, cell in zip(column, cells, strict=True)
            ]
        if self._needs_quotes.search("".join(column)):
            return list(map(self.text, column))
        return list(map(str.encode, column))

    def text(self, text: str) -> bytes:
        """Write a text."""
        if self._needs_quotes.search(text):
            quote = self._quote
            inner = text.replace(quote, quote + quote) if self._is_doubled else self._escaped.sub(r"\\\g<0>", text)
            text = quote + inner + quote
        return text.encode()

    def number(self, text: bytes) -> bytes:
        """Write the text of a JSON number (or truth value) with the dialect's decimal sign."""
        return text if self._decimal is None else text.replace(b".", self._decimal)
