"""Parse columns of text cells into typed values.

A column is parsed at once if all its cells are plain. Only a column with another cell is parsed cell by cell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shoal.arrays import Float64Vector
from shoal.policy import BLANKS, FieldType
from shoal.records.json_values import canonical_json
from shoal.records.numerals import DECIMAL, FIRST_INEXACT, integral_to_int

__all__ = ["MISMATCH", "parse_numbers", "parse_values", "replace_decimal_commas", "to_exact_number", "to_number"]

Cells: TypeAlias = Sequence[str]

MISMATCH = object()
"""Takes the place of a cell that does not have the declared type."""

_PLAIN_BYTES = b"0123456789+-.eE, \t"
"""In texts of these bytes, Python's parsers accept decimal numbers and nothing else."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INTEGER_DIGITS = 4300
"""The limit of the JSON parser, applied to CSV too."""
_BOOLEANS = {"true": True, "false": False, "": None}


def parse_numbers(cells: Cells) -> Float64Vector:
    """Parse a column of a quasi-identifier.

    Returns
    -------
    ndarray of float64, shape (n,)
        NaN where the cell is not an ASCII decimal number or is not finite. Blanks around a number are ignored.

    Notes
    -----
    Cost: about 0.05 µs per cell, or 1 µs per cell if any cell of the column is not a number.
    """
    parsed = _parse_at_once(cells, float)
    if parsed is None:
        parsed = [_parse_number(cell) for cell in cells]
    column = np.fromiter(parsed, np.float64, len(cells))
    column[np.isinf(column)] = np.nan
    return column


def replace_decimal_commas(cells: Cells) -> Cells:
    """Replace decimal commas by points. A cell that contains a point becomes a text that is not a number."""
    return [cell.replace(",", ".") if "." not in cell else "." for cell in cells]


def parse_values(cells: Cells, kind: FieldType) -> tuple[Sequence[Any], bool]:
    """Parse a column of an unchanged field.

    Returns
    -------
    values : sequence of length n
        The unchanged text for types string and any; else int, float or bool, None for an empty cell, and `MISMATCH`
        for a cell of another type. Integers are exact. A cell of type json becomes its `canonical_json`.
    all_match : bool
        Whether no value is `MISMATCH`.
    """
    if kind in {"string", "any"}:
        return cells, True
    values = None if kind in {"boolean", "json"} else _parse_at_once(cells, int if kind == "integer" else float)
    if values is not None and (kind == "integer" or max(map(abs, values), default=0.0) < FIRST_INEXACT):
        return values, True
    parse = _CELL_PARSERS[kind]
    values = [parse(cell.strip(BLANKS)) for cell in cells]
    return values, not any(value is MISMATCH for value in values)


def _parse_at_once(cells: Cells, parse: Callable[[str], Any]) -> list[Any] | None:
    """Parse all cells, or return None if one of them needs a closer check."""
    if ",".join(cells).encode().translate(None, _PLAIN_BYTES):
        return None
    try:
        return list(map(parse, cells))
    except ValueError:
        return None


def _parse_number(cell: str) -> float:
    text = cell.strip(BLANKS)
    return float(text) if DECIMAL.fullmatch(text) else math.nan


def _number_or_mismatch(text: str) -> object:
    if not text:
        return None
    if _INTEGER.fullmatch(text) and len(text) <= _MAX_INTEGER_DIGITS:
        return int(text)
    value = _parse_number(text)
    return value if math.isfinite(value) else MISMATCH


def _integer_or_mismatch(text: str) -> object:
    value = _number_or_mismatch(text)
    return value if not isinstance(value, float) or value.is_integer() else MISMATCH


def _boolean_or_mismatch(text: str) -> object:
    return _BOOLEANS.get(text.lower(), MISMATCH)


def _json_or_mismatch(text: str) -> object:
    try:
        return canonical_json(text.encode()) if text else None
    except ValueError:
        return MISMATCH


_CELL_PARSERS: dict[FieldType, Callable[[str], object]] = {
    "integer": _integer_or_mismatch,
    "number": _number_or_mismatch,
    "boolean": _boolean_or_mismatch,
    "json": _json_or_mismatch,
}


def to_number(value: object) -> float | None:
    """Convert one value of any type to a float64: NaN for null and a blank text, None if it is not a number."""
    if value is None or (isinstance(value, str) and not value.strip(BLANKS)):
        return math.nan
    if isinstance(value, str):
        number = _parse_number(value)
        return None if math.isnan(number) else number
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf


def to_exact_number(value: object) -> float | None:
    """Convert one value like `to_number`, but return an integer of 2^53 or more exactly, as an int."""
    number = to_number(value)
    if number is None or not abs(number) >= FIRST_INEXACT:
        return number
    if isinstance(value, str):
        text = value.strip(BLANKS)
        is_integer = _INTEGER.fullmatch(text) and len(text) <= _MAX_INTEGER_DIGITS
        return int(text) if is_integer else integral_to_int(number)
    return value if isinstance(value, int) else integral_to_int(number)
