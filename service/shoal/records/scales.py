"""Convert the values of quasi-identifiers and steering attributes to columns of `Block.values`, by their scale.

The decoders of JSON, CSV and Parquet share this module, so that equal content gives equal columns.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector
from shoal.policy import BLANKS, Attribute, MessagePart, Policy, Role, Scale
from shoal.records.columns import parse_numbers, replace_decimal_commas
from shoal.records.numerals import DECIMAL, NumberText, integral_to_int
from shoal.records.times import convert_epoch_times, parse_epoch_times, parse_iso_times

__all__ = [
    "INVALID",
    "MISSING",
    "ScaleColumn",
    "ScaleReader",
    "is_clustered",
    "json_type",
    "scale_reader",
    "stack_columns",
]

MISSING = np.nan
INVALID = np.inf
"""Stands for a value that does not fit its attribute, as NaN does where no value may be missing."""

_SCALAR = re.compile(r"true|false|-?[0-9]+")
"""A text that a truth value or a whole number can have."""
_UNSET = msgspec.UNSET
_encode_text = msgspec.json.Encoder().encode


class ScaleColumn(NamedTuple):
    """One column of `Block.values`.

    Attributes
    ----------
    values : ndarray of float64, shape (n,)
        As in `Block.values`; NaN for a missing value and infinity for an invalid one.
    categories : sequence of str, or None
        Of a nominal attribute: the texts of its categories. None for all other scales.
    """

    values: Float64Vector
    categories: Sequence[str] | None = None


class ScaleReader(ABC):
    """Converts the values of one attribute.

    Parameters
    ----------
    attribute : Attribute
    missing_values : collection of str
        Texts that stand for a missing value. So does a number of numeric attributes and of times in units, if one of
        the texts is an equal number; and a whole number or truth value of categories, if one is its text.
    has_commas : bool
        Whether decimal numbers in cells have commas.
    """

    _has_numbers = False
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
        if self._missing_scalars and not self._has_numbers:
            is_present = [
                present and (type(value) is str or _text_of(value) not in self._missing_scalars)
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
        numbers = np.array(column, dtype=np.float64)
        if self.attribute.scale is Scale.TIME:
            times = convert_epoch_times(column, "ms")
            return ScaleColumn(np.where(np.isnan(self.drop_missing_numbers(numbers)), MISSING, times))
        return ScaleColumn(self.drop_missing_numbers(numbers)) if self._has_numbers else self.read(column)

    @property
    def has_missing_numbers(self) -> bool:
        """Whether some numbers stand for a missing value."""
        return self._has_numbers and bool(self._missing_numbers)

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


class _NumericReader(ScaleReader):
    """Numbers. Where no value may be missing, the decoder of JSON has checked the types already."""

    _has_numbers = True

    def read(self, values: Iterable[Any]) -> ScaleColumn:
        if not self.attribute.may_be_missing:
            return ScaleColumn(self.drop_missing_numbers(np.fromiter(values, np.float64)))
        return super().read(values)

    def read_cells(self, cells: Sequence[str]) -> ScaleColumn:
        # The parser of numbers ignores blanks itself, and only a number can be mistaken for a value that is present.
        if not self.attribute.may_be_missing and self._missing_values == {""}:
            return ScaleColumn(parse_numbers(replace_decimal_commas(cells) if self._has_commas else cells))
        return super().read_cells(cells)

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        if not set(map(type, column)) <= {float}:
            column = [value if type(value) is float else INVALID for value in column]
        return ScaleColumn(self.drop_missing_numbers(np.fromiter(column, np.float64, len(column))))

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        numbers = parse_numbers(replace_decimal_commas(cells) if self._has_commas else cells)
        return ScaleColumn(self.drop_missing_numbers(np.where(np.isnan(numbers), INVALID, numbers)))


class _OrdinalReader(ScaleReader):
    """Ranks of categories with an order."""

    def __init__(self, attribute: Attribute, missing_values: Iterable[str], *, has_commas: bool = False) -> None:
        super().__init__(attribute, missing_values, has_commas=has_commas)
        self._ranks: dict[str | None, float] = {str(item): float(rank) for rank, item in enumerate(attribute.order)}

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        texts = column if set(map(type, column)) <= {str} else map(_text_of, column)
        return ScaleColumn(np.fromiter(map(self._ranks.get, texts, repeat(INVALID)), np.float64, len(column)))


class _NominalReader(ScaleReader):
    """Indices of categories without an order."""

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        kinds = set(map(type, column))
        # A dict takes true and 1 for the same key.
        keys = column if len(kinds) <= 1 else list(zip(map(type, column), column, strict=True))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        indexes: dict[str, float] = {}
        index_of = np.full(len(numbers), INVALID, dtype=np.float64)
        for key, number in numbers.items():
            category = self._category(key if len(kinds) == 1 else key[1])
            if category is not None:
                index_of[number] = indexes.setdefault(category, float(len(indexes)))
        distinct = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(column))
        return ScaleColumn(index_of[distinct], list(indexes))

    def _category(self, value: object) -> str | None:
        """Return the text of a value as a JSON scalar; None if the value is invalid."""
        return _json_text(value) if type(value) is str else _text_of(value)


class _TaxonomyReader(_NominalReader):
    """Indices of leaves, which are matched by their texts, whatever the type of the value."""

    def _category(self, value: object) -> str | None:
        text, taxonomy = _text_of(value), self.attribute.taxonomy
        if text is None or (self.attribute.unknown == "quarantine" and taxonomy and text not in taxonomy.leaves):
            return None
        return _json_text(text)


class _TextTimeReader(ScaleReader):
    """Times as texts, in ms."""

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        texts = [value if type(value) is str else "" for value in column]
        return ScaleColumn(parse_iso_times(texts))


class _EpochTimeReader(ScaleReader):
    """Times as numbers of s, ms, us or days, in ms."""

    _has_numbers = True

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        if set(map(type, column)) <= {int} and not self._missing_numbers:
            return ScaleColumn(convert_epoch_times(column, self.attribute.unit or "ms"))
        return self._parse_texts(list(map(_number_text, column)))

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        return self._parse_texts(replace_decimal_commas(cells) if self._has_commas else cells)

    def _parse_texts(self, texts: Sequence[str]) -> ScaleColumn:
        times = parse_epoch_times(texts, self.attribute.unit or "ms")
        if self._missing_numbers:
            # The number counts as it was written: it need not be a time of the years 1 to 9999.
            times[[DECIMAL.fullmatch(text) is not None and float(text) in self._missing_numbers for text in texts]] = (
                MISSING
            )
        return ScaleColumn(times)


def scale_reader(attribute: Attribute, policy: Policy, *, has_commas: bool = False) -> ScaleReader:
    """Return the reader of an attribute of `Policy.clustered`."""
    kind: type[ScaleReader]
    if attribute.scale is Scale.TIME:
        kind = _TextTimeReader if attribute.unit is None else _EpochTimeReader
    elif attribute.scale is Scale.NOMINAL:
        kind = _NominalReader if attribute.taxonomy is None else _TaxonomyReader
    else:
        kind = _OrdinalReader if attribute.scale is Scale.ORDINAL else _NumericReader
    return kind(attribute, policy.missing_values, has_commas=has_commas)


def stack_columns(columns: Sequence[ScaleColumn], n: int) -> tuple[Float64Matrix, list[Sequence[str]]]:
    """Return the columns of n records as a matrix, and the categories of the nominal ones."""
    values = np.empty((n, len(columns)), dtype=np.float64)
    for number, column in enumerate(columns):
        values[:, number] = column.values
    return values, [column.categories for column in columns if column.categories is not None]


def is_clustered(attribute: Attribute) -> bool:
    """Return whether an attribute is one of `Policy.clustered`."""
    return attribute.role in {Role.QUASI_IDENTIFIER, Role.STEERING}


def json_type(attribute: Attribute) -> Any:  # noqa: ANN401 - a type or a union of types
    """Return the type that the value of an attribute must have in JSON.

    Numbers with a point or an exponent become `NumberText` where their text decides.
    """
    if attribute.scale is Scale.TIME and attribute.unit is not None:
        return Any
    if not attribute.may_be_missing:
        return {Scale.NUMERIC: float, Scale.TIME: str}.get(attribute.scale, str | int | float | bool)
    return float | str | None if attribute.scale is Scale.NUMERIC else str | int | float | bool | None


def _text_of(value: object) -> str | None:
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


def _json_text(text: str) -> str | None:
    """Return a text as a JSON string; None if it contains surrogates, which no encoding can represent."""
    try:
        return _encode_text(text).decode()
    except UnicodeEncodeError:
        return None


def _number_text(value: object) -> str:
    """Return the decimal text of a number; an empty text for a value of another type."""
    if isinstance(value, NumberText):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else ""
