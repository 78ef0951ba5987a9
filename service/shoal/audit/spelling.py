"""The one text a row may have: compact JSON or minimally quoted CSV.

A spelling that is not the only one can carry what the value does not say: 1e2 for 100.0, an escape for a letter.
"""

from __future__ import annotations

import re

from shoal.audit.arithmetic import float_spellings
from shoal.audit.fields import Points, quoted
from shoal.audit.reading import Record, Token
from shoal.policy import CsvDialect, Policy, Role

__all__ = ["CsvSpelling", "JsonSpelling", "csv_line"]

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class JsonSpelling:
    """Compact JSON: no space, no needless escape, numbers as short as they can be."""

    def __init__(self, policy: Policy) -> None:
        self._grids = {attribute.name for attribute in policy.quasi_identifiers}

    def is_kept(self, text: str, record: Record) -> bool:
        """Whether a row is written as it must be, whatever it says."""
        fields = (f"{quoted(name)}:{self._value(name, value)}" for name, value in record.items())
        return text == "{" + ",".join(fields) + "}"

    def _value(self, name: str, value: object) -> str:
        # The grid is stricter: it wants its decimals.
        if isinstance(value, Token) and name in self._grids:
            return value
        return _value(value)


def _value(value: object) -> str:
    if isinstance(value, Token):
        return value if _is_spelled(value) else ""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null"


def _is_spelled(text: str) -> bool:
    found = _JSON_NUMBER.fullmatch(text)
    if found is None:
        return False
    if found.lastindex is None:
        return text != "-0"
    return text in float_spellings(float(text))


class CsvSpelling:
    """CSV with a cell quoted only if it must be; numbers as in JSON."""

    def __init__(self, policy: Policy) -> None:
        self._types = {a.name: a.type for a in policy.published if a.role is not Role.QUASI_IDENTIFIER}
        self._dialect = policy.csv_output
        self._points = Points(policy.csv_output.decimal)

    def is_kept(self, text: str, record: Record) -> bool:
        """Whether a row is written as it must be, whatever it says."""
        cells = {name: str(cell) for name, cell in record.items()}
        return text == csv_line(list(cells.values()), self._dialect) and all(
            self._is_cell(name, cell) for name, cell in cells.items()
        )

    def _is_cell(self, name: str, cell: str) -> bool:
        # Quasi-identifiers have a grid to be judged by; text may be any.
        match self._types.get(name, "any"):
            case "integer" | "number":
                return not cell or _is_spelled(self._points.put(cell))
            case "boolean":
                return cell in {"", "true", "false"}
            case _:
                return True


def csv_line(cells: list[str], dialect: CsvDialect) -> str:
    """One record of a CSV file, minimally quoted, without its end."""
    return dialect.delimiter.join([_quoted_cell(cell, dialect) for cell in cells])


def _quoted_cell(text: str, dialect: CsvDialect) -> str:
    quote = dialect.quote
    signs = [dialect.delimiter, quote, "\n", "\r"]
    if dialect.escape == "doubled":
        inner = text.replace(quote, quote * 2)
    else:
        signs.append("\\")
        inner = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
    return quote + inner + quote if any(sign in text for sign in signs) else text
