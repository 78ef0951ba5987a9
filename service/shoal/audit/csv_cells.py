"""The one spelling of CSV cells and records: with the fewest quotes."""

from __future__ import annotations

from shoal.policy import CsvDialect

__all__ = ["csv_cell", "csv_line"]


def csv_line(cells: list[str], dialect: CsvDialect) -> str:
    """Write one CSV record with the fewest quotes, without line end."""
    return dialect.delimiter.join([csv_cell(cell, dialect) for cell in cells])


def csv_cell(text: str, dialect: CsvDialect) -> str:
    """Write a cell, in quotes if it contains the delimiter, a quote, a line end, or an escape of the dialect."""
    quote = dialect.quote
    special = [dialect.delimiter, quote, "\n", "\r"]
    if dialect.escape == "doubled":
        inner = text.replace(quote, quote * 2)
    else:
        special.append("\\")
        inner = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
    return quote + inner + quote if any(character in text for character in special) else text
