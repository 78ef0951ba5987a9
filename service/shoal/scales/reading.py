"""Reading of values: `ScaleReader` converts those of one attribute, and the texts of numbers that all scales share."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Float64Vector
from shoal.policy import BLANKS, Attribute, MessagePart

__all__ = [
    "DECIMAL",
    "FIRST_INEXACT",
    "INVALID",
    "MISSING",
    "NumberText",
    "ScaleColumn",
    "ScaleReader",
    "integral_to_int",
    "json_text",
    "text_of",
]

INVALID = np.inf

MISSING = np.nan

_SCALAR = re.compile(r"true|false|-?[0-9]+")
"""A text that a truth value or a whole number can have."""

_UNSET = msgspec.UNSET

_encode_text = msgspec.json.Encoder().encode


class ScaleColumn(NamedTuple):
    """One column of `Block.values`: NaN for a missing value, infinity for an invalid one.

    ``categories`` are the texts of the categories of a nominal attribute; None for all other scales.
    """

    values: Float64Vector
    categories: Sequence[str] | None = None


class ScaleReader(ABC):
    """Converts the values of one attribute.

    ``missing_values`` are texts that stand for a missing value. So does a number of numeric attributes and of times in
    units, if one of the texts is an equal number; and a whole number or truth value of categories, if one is its text.
    ``has_commas``: decimal numbers in cells have commas.
    """

    has_numbers = False
    """Whether values are numbers, not categories or texts."""

    def __init__(self, attribute: Attribute, missing_values: Iterable[str], *, has_commas: bool = False) -> None:
        self.attribute = attribute
        self._missing_values = frozenset(missing_values)
        self._missing_scalars = frozenset(filter(_SCALAR.fullmatch, self._missing_values))
        numbers = map(float, filter(DECIMAL.fullmatch, self._missing_values))
        self._missing_numbers = frozenset(filter(math.isfinite, numbers))
        self._has_commas = has_commas

    def read(self, values: Iterable[Any]) -> ScaleColumn:
        """Convert values of the types that `json_type` allows.

        A value of another type is invalid. None and UNSET, which stands for an absent field, are missing values.
        """
        column = list(values)
        missing = self._missing_values
        if set(map(type, column)) <= {str} and missing.isdisjoint(column):
            return self._parse(column)
        is_present = [
            value not in missing if type(value) is str else value is not None and value is not _UNSET
            for value in column
        ]
        if self._missing_scalars and not self.has_numbers:
            is_present = [
                present and (type(value) is str or text_of(value) not in self._missing_scalars)
                for value, present in zip(column, is_present, strict=True)
            ]
        return self._parse_present(column, is_present, self._parse)

    def read_cells(self, cells: Sequence[str]) -> ScaleColumn:
        """Convert text cells. Blanks and tabs around a value are ignored."""
        stripped = [cell.strip(BLANKS) for cell in cells]
        missing = self._missing_values
        if missing.isdisjoint(stripped):
            return self._parse_cells(stripped)
        return self._parse_present(stripped, [cell not in missing for cell in stripped], self._parse_cells)

    def read_part(self, column: Sequence[Any]) -> ScaleColumn:
        """Convert keys, headers or timestamps: text cells, or the timestamps of messages in ms as int."""
        if self.attribute.source.part is not MessagePart.TIMESTAMP:
            return self.read_cells(column)
        return self.read_timestamps(column)

    def read_timestamps(self, column: Sequence[int]) -> ScaleColumn:
        """Convert timestamps of messages in ms."""
        return self.read(column)

    def read_value(self, value: Any) -> float:  # noqa: ANN401 - any JSON scalar
        """Convert one JSON scalar that is not missing by its text; a number is an int or `NumberText`."""
        return float(self.read([float(value) if isinstance(value, NumberText) else value]).values[0])

    @property
    def has_missing_numbers(self) -> bool:
        """Whether some numbers stand for a missing value."""
        return self.has_numbers and bool(self._missing_numbers)

    def drop_missing_numbers(self, numbers: Float64Vector) -> Float64Vector:
        """Return numbers, with NaN for those that stand for a missing value."""
        if not self._missing_numbers:
            return numbers
        return np.where(np.isin(numbers, list(self._missing_numbers)), MISSING, numbers)

    def are_valid(self, values: Float64Vector) -> BoolVector:
        """Return which converted values are valid, whatever their bounds."""
        return np.isfinite(values) | (np.isnan(values) & self.attribute.may_be_missing)

    def _parse_present(
        self, column: Sequence[Any], is_present: Sequence[bool], parse: Callable[[Sequence[Any]], ScaleColumn]
    ) -> ScaleColumn:
        """Parse the values that are present."""
        parsed = parse(list(compress(column, is_present)))
        values = np.full(len(column), MISSING, dtype=np.float64)
        values[np.array(is_present, dtype=np.bool_)] = parsed.values
        return ScaleColumn(values, parsed.categories)

    @abstractmethod
    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        """Convert values of JSON types, of which none is missing."""

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        """Convert text cells without blanks around them, of which none is missing."""
        return self._parse(cells)


DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A decimal number in a text cell."""

FIRST_INEXACT = 2.0**53
"""From this value on, several integers can have the same float64."""


class NumberText(str):
    """The text of a JSON number with a point or an exponent. The type distinguishes it from a JSON string."""

    __slots__ = ()


def integral_to_int(number: float) -> int | float:
    """Return an integral float64 as the integer of its shortest decimal text, and any other float64 unchanged.

    So 1e2, 100.0 and 100 are published as the same bytes, and 1e23 as the same bytes as its 24 digits.
    """
    if not number.is_integer():
        return number
    return int(number) if abs(number) < FIRST_INEXACT else int(Decimal(repr(number)))


def text_of(value: object) -> str | None:
    """Return the content of a text, and the JSON text of a boolean or integer; None for any other value.

    A float without a fraction is an integer: many programs write 1 as 1.0.
    """
    if type(value) is str:
        return value
    if isinstance(value, float):
        value = integral_to_int(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def json_text(text: str) -> str | None:
    """Return a text as a JSON string; None if it contains surrogates, which no encoding can represent."""
    try:
        return _encode_text(text).decode()
    except UnicodeEncodeError:
        return None
