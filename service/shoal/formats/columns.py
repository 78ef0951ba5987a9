"""Parse columns of values of all formats, and describe what is wrong with a value.

A column is parsed at once if all its cells are plain. Only a column with another cell is parsed cell by cell. The
decoders of JSON, CSV and Parquet share this module, so that equal content gives equal columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shoal.arrays import Float64Matrix
from shoal.formats.faults import FaultReason
from shoal.formats.json_text import canonical_json
from shoal.policy import (
    BLANKS,
    Attribute,
    FieldType,
    Role,
)
from shoal.scales import scale_of
from shoal.scales.numeric import parse_at_once, parse_number, to_number
from shoal.scales.scale import FIRST_INEXACT, ScaleColumn, ScaleReader, integral_to_int

__all__ = [
    "MISMATCH",
    "NOT_OF_TYPE",
    "describe_clustered",
    "describe_converted",
    "describe_json",
    "describe_missing",
    "is_clustered",
    "parse_values",
    "stack_columns",
    "to_exact_number",
]


Cells: TypeAlias = Sequence[str]


MISMATCH = object()
"""Takes the place of a cell that does not have the declared type."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INTEGER_DIGITS = 4300
"""The limit of the JSON parser, applied to CSV too."""
_BOOLEANS = {"true": True, "false": False, "": None}


NOT_OF_TYPE: dict[FieldType, FaultReason] = {
    "string": FaultReason.NOT_STRING,
    "integer": FaultReason.NOT_INTEGER,
    "number": FaultReason.NOT_NUMBER,
    "boolean": FaultReason.NOT_BOOLEAN,
    "any": FaultReason.NOT_ANY,
}


def stack_columns(columns: Sequence[ScaleColumn], n: int) -> tuple[Float64Matrix, list[Sequence[str]]]:
    """Return the columns of n records as a matrix, and the categories of the nominal ones."""
    values = np.empty((n, len(columns)), dtype=np.float64)
    for number, column in enumerate(columns):
        values[:, number] = column.values
    return values, [column.categories for column in columns if column.categories is not None]


def is_clustered(attribute: Attribute) -> bool:
    """Return whether an attribute is one of `Policy.clustered`."""
    return attribute.role in {Role.QUASI_IDENTIFIER, Role.STEERING}


def parse_values(cells: Cells, kind: FieldType) -> tuple[Sequence[Any], bool]:
    """Parse a column of an unchanged field; return the values, and whether none is `MISMATCH`.

    The values are the unchanged texts for types string and any; else int, float or bool, None for an empty cell, and
    `MISMATCH` for a cell of another type. Integers are exact. A cell of type json becomes its `canonical_json`.
    """
    if kind in {"string", "any"}:
        return cells, True
    values = None if kind in {"boolean", "json"} else parse_at_once(cells, int if kind == "integer" else float)
    if values is not None and (kind == "integer" or max(map(abs, values), default=0.0) < FIRST_INEXACT):
        return values, True
    parse = _CELL_PARSERS[kind]
    values = [parse(cell.strip(BLANKS)) for cell in cells]
    return values, not any(value is MISMATCH for value in values)


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


def describe_missing(attribute: Attribute, reason: str) -> str:
    """Return why a missing value is refused; empty if it may be missing."""
    return "" if attribute.may_be_missing else reason


def describe_converted(reader: ScaleReader, value: float) -> str:
    """Return what is wrong with a value that is not missing by its text, but may be missing as a number."""
    if reader.has_missing_numbers and np.isnan(value):
        return describe_missing(reader.attribute, FaultReason.MISSING_VALUE)
    return describe_clustered(reader.attribute, value)


def describe_json(attribute: Attribute, text: bytes) -> str:
    """Return what is wrong with the text of a value of type json; empty if it is valid."""
    try:
        canonical = canonical_json(text)
    except ValueError:
        return FaultReason.NOT_JSON_FIELD
    return FaultReason.LONG_JSON if canonical is not None and len(canonical.encode()) > attribute.max_bytes else ""


def _number_or_mismatch(text: str) -> object:
    if not text:
        return None
    if _INTEGER.fullmatch(text) and len(text) <= _MAX_INTEGER_DIGITS:
        return int(text)
    value = parse_number(text)
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


def describe_clustered(attribute: Attribute, value: float) -> str:
    """Return what is wrong with a value that is not missing, as `ScaleReader` converted it; empty if it is valid."""
    fault = scale_of(attribute).explain(value)
    return "" if fault is None else fault.reason
