"""Rows of a Parquet file as blocks. Columns of the declared types are read at once; all others become JSON messages.

Both ways give the same blocks. A file whose values may have other types than the policy declares is read as messages,
so that the rules for values of JSON hold for it, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.arrays import BoolVector
from shoal.errors import InputError
from shoal.policy import Attribute, Policy, Role, Scale
from shoal.records.block import Block
from shoal.records.block_builder import ParsedRecords
from shoal.records.json_decoder import JsonDecoder
from shoal.records.line_reader import BATCH_SIZE
from shoal.records.numerals import integral_to_int
from shoal.records.scales import ScaleColumn, is_clustered, scale_reader, stack_columns

__all__ = ["ParquetRows", "has_json_type", "is_ignored", "value_type"]

_ESCAPED_BYTES = 6
"""Most bytes that JSON takes for one byte of a text."""
_NUMBER_BYTES = 32
"""Most bytes that JSON takes for a number or truth value, with punctuation."""

_INFINITY = msgspec.Raw(b"1e999")

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, repr=False)
class ParquetRows:
    """Consecutive rows of a Parquet file.

    Numbers, texts and booleans keep their type. Dates, times and decimals become texts, as Arrow formats them. NaN
    becomes null. Infinity becomes null in an unchanged field; in a quasi-identifier or steering attribute it is
    invalid.

    Attributes
    ----------
    group : pyarrow.RecordBatch
        The declared columns, in the order of the policy.
    policy : Policy
        Its attributes are the columns.
    name : str
        Name of the file in errors.
    """

    group: pa.RecordBatch
    policy: Policy
    name: str

    def decode(self, decoder: JsonDecoder, max_bytes: int) -> Iterator[tuple[Block, Sequence[bytes]]]:
        """Yield blocks, each with its rows as messages of at most ``max_bytes`` bytes.

        Raises
        ------
        InputError
            A text is not UTF-8.
        """
        if self._most_bytes() <= max_bytes and all(map(_has_declared_type, self.policy.attributes, self.group.columns)):
            yield decoder.build(self._parsed()), _Messages(self)
            return
        for start in range(0, self.group.num_rows, BATCH_SIZE):
            messages = self.messages(start, BATCH_SIZE)
            yield decoder.decode(messages), messages

    def messages(self, start: int, count: int) -> list[bytes]:
        """Return consecutive rows as JSON."""
        names, part = self.group.schema.names, self.group.slice(start, count)
        columns = [
            [None] * part.num_rows
            if is_ignored(attribute)
            else list(map(_json_scalar, self._attribute_values(attribute, column)))
            for attribute, column in zip(self.policy.attributes, part.columns, strict=True)
        ]
        return [_encode(dict(zip(names, record, strict=True))) for record in zip(*columns, strict=True)]

    def _most_bytes(self) -> int:
        """Return a number of bytes that no row exceeds as JSON."""
        names = _ESCAPED_BYTES * sum(map(len, (name.encode() for name in self.group.schema.names)))
        return names + sum(
            _NUMBER_BYTES + _longest_text(column)
            for attribute, column in zip(self.policy.attributes, self.group.columns, strict=True)
            if not is_ignored(attribute)
        )

    def _parsed(self) -> ParsedRecords:
        """Return the rows as columns of the declared types."""
        columns = {
            attribute.name: (attribute, column)
            for attribute, column in zip(self.policy.attributes, self.group.columns, strict=True)
        }
        clustered = [self._clustered_column(*columns[attribute.name]) for attribute in self.policy.clustered]
        values, categories = stack_columns(clustered, self.group.num_rows)
        subject = self.policy.subject
        return ParsedRecords(
            index=np.arange(self.group.num_rows, dtype=np.int64),
            values=values,
            subjects=None if subject is None else self._values(subject.name, columns[subject.name][1]),
            unchanged_columns=[self._values(a.name, columns[a.name][1]) for a in self.policy.unchanged_fields],
            categories=categories,
        )

    def _clustered_column(self, attribute: Attribute, column: pa.Array) -> ScaleColumn:
        reader = scale_reader(attribute, self.policy)
        if attribute.scale is not Scale.NUMERIC:
            return reader.read(self._attribute_values(attribute, column))
        values = np.array(_numbers(column), dtype=np.float64)
        values[_are_null(column)] = np.nan
        return ScaleColumn(reader.drop_missing_numbers(values))

    def _attribute_values(self, attribute: Attribute, column: pa.Array) -> list[Any]:
        """Return a column as values of JSON types.

        Many programs write the integers of a column with nulls as float64: an integral category is an integer.
        """
        if not is_clustered(attribute):
            return self._values(attribute.name, column)
        values = self._values(attribute.name, column, keep_infinity=True)
        if attribute.scale in {Scale.ORDINAL, Scale.NOMINAL}:
            return [integral_to_int(value) if type(value) is float else value for value in values]
        return values

    def _values(self, name: str, column: pa.Array, *, keep_infinity: bool = False) -> list[Any]:
        """Return a column as values of JSON types, and infinity as it is or as None."""
        kind = value_type(column.type)
        if pa.types.is_dictionary(column.type):
            column = column.cast(kind)
        if not has_json_type(kind):
            column = column.cast(pa.string())
        if not _is_array(kind):
            return self._texts(name, column)
        numbers = _numbers(column)
        values: list[Any] = numbers.tolist()
        is_none = np.isnan(numbers) if keep_infinity else ~np.isfinite(numbers)
        for index in np.flatnonzero(_are_null(column) | is_none).tolist():
            values[index] = None
        return values

    def _texts(self, name: str, column: pa.Array) -> list[Any]:
        try:
            values: list[Any] = column.to_pylist()
        except UnicodeDecodeError:
            raise InputError(f"{self.name}, column '{name}': a text is not UTF-8; write the file again") from None
        return values


class _Messages(Sequence[bytes]):
    """The rows as messages, each made when it is asked for: only a row with a fault is."""

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        count: int = self._rows.group.num_rows
        return count

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - only numbers are asked for
        return self._rows.messages(index, 1)[0]


def _json_scalar(value: Any) -> Any:  # noqa: ANN401 - a scalar
    """Return a scalar as the encoder takes it: infinity as a number that no float64 can hold, not as null."""
    return _INFINITY if type(value) is float and math.isinf(value) else value


def is_ignored(attribute: Attribute) -> bool:
    """Return whether the values of an attribute are not read: an identifier that is not the subject."""
    return attribute.role is Role.IDENTIFIER and not attribute.subject


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column; that of a dictionary's entries."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def has_json_type(kind: pa.DataType) -> bool:
    """Return whether JSON has values of this type; others become texts."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _has_short_texts(kind: pa.DataType) -> bool:
    """Return whether Arrow formats values of this type as texts of limited length."""
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _is_array(kind: pa.DataType) -> bool:
    """Return whether numpy has an array of this type."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _has_declared_type(attribute: Attribute, column: pa.Array) -> bool:
    """Return whether JSON messages with these values would have no value of another type than declared."""
    kind = value_type(column.type)
    is_integer, is_text = bool(pa.types.is_integer(kind)), _is_text(kind) or _has_short_texts(kind)
    is_number = is_integer or bool(pa.types.is_floating(kind) and kind != pa.float16())
    if is_ignored(attribute):
        return True
    if is_clustered(attribute):
        return is_number if attribute.scale is Scale.NUMERIC else kind != pa.float16()
    if attribute.subject:
        return is_text or (is_integer and attribute.type != "string")
    return {
        "string": is_text,
        "integer": is_integer,
        "number": is_number,
        "boolean": bool(pa.types.is_boolean(kind)),
        "any": is_text or _is_array(kind),
    }[attribute.type]


def _numbers(column: pa.Array) -> Any:  # noqa: ANN401 - an array of one of several types
    """Return numbers or truth values as an array; 0 or False for null."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == pa.float16():  # Arrow has few functions for it
        return np.array([value or 0.0 for value in column.to_pylist()], np.float64)
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False)


def _are_null(column: pa.Array) -> BoolVector:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _longest_text(column: pa.Array) -> int:
    """Return a number of bytes that no text of a column exceeds as JSON, without quotation marks."""
    kind = value_type(column.type)
    if not _is_text(kind):
        return _ESCAPED_BYTES * _NUMBER_BYTES
    texts = column.dictionary if pa.types.is_dictionary(column.type) else column
    return _ESCAPED_BYTES * (pc.max(pc.binary_length(texts)).as_py() or 0)
