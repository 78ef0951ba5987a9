"""Parquet: read files as blocks, and write published rows. Needs the package pyarrow of the extra ``parquet``.

Columns of the declared types are read at once; all others become JSON messages. Both ways give the same blocks.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shoal.arrays import BoolVector
from shoal.errors import InputError
from shoal.formats.block import Block, ParsedRecords, stack_columns
from shoal.formats.encoder import RecordEncoder, column_name
from shoal.formats.format import BATCH_SIZE, Format, ReadOptions, RecordSource, require_columns, require_names
from shoal.formats.json import JsonDecoder, JsonEncoder
from shoal.policy import Attribute, Policy, Role
from shoal.scales import SCALES, scale_of
from shoal.scales.scale import ScaleColumn, integral_to_int

ROWS_PER_GROUP = 1 << 16
"""Rows that are read or written at once."""
_ESCAPED_BYTES = 6
"""Most bytes that JSON takes for one byte of a text."""
_NUMBER_BYTES = 32
"""Most bytes that JSON takes for a number or truth value, with punctuation."""
_MAX_BITS = 64
_EXACT_DIGITS = 15
"""A float64 tells apart all decimals of so many digits."""
_INFINITY = msgspec.Raw(b"1e999")
_TYPE_OF = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}

_encode = msgspec.json.Encoder().encode


class ParquetFormat(Format):
    """Parquet files. They cannot be read or written from start to end, so they are for finished tables."""

    def read(self, stream: BinaryIO, policy: Policy, encoder: RecordEncoder, options: ReadOptions) -> RecordSource:
        """Open an input; see `Format.read`."""
        reader = ParquetReader(stream, policy, name=options.name, partition=options.partition)
        return _source_of(reader, reader.schema, policy, encoder, options)

    def encoder(self, policy: Policy) -> ParquetEncoder:
        """Return an encoder of published rows."""
        return ParquetEncoder(policy)


class ParquetEncoder(JsonEncoder):
    """Encodes a table of published rows as Parquet. Single rows are JSON."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._policy = policy

    def encode_table(self, rows: Sequence[bytes], schema: Any = None) -> Iterator[tuple[bytes, int]]:  # noqa: ANN401
        """Yield the pieces of the file, and the number of rows in each piece; see `encode_parquet`."""
        sizes = [len(part) for part in _split(rows, ROWS_PER_GROUP)]
        yield from zip(encode_parquet(rows, self._policy, schema), [*sizes, 0], strict=True)


class ParquetReader:
    """The rows of a Parquet file, in groups of 1 to 65,536; InputError if it does not fit the policy.

    ``partition`` holds columns that the names of folders give all rows.
    """

    def __init__(
        self, file: BinaryIO, policy: Policy, *, name: str = "input", partition: Mapping[str, str | None] | None = None
    ) -> None:
        try:
            self._file = pq.ParquetFile(file)
        except (pa.ArrowException, OSError):
            raise InputError(f"{name}: not a valid Parquet file") from None
        self._policy, self._name, schema = policy, name, self._file.schema_arrow
        self._constants = {one: _constant(one, text, policy, name) for one, text in (partition or {}).items()}
        for one, constant in self._constants.items():
            schema = schema.append(pa.field(one, constant.type))
        self.schema = _declared_schema(schema, policy, name, "Parquet file")
        self._columns = [*self.schema.names, *(name for name in policy.skip if name not in self.schema.names)]

    def __iter__(self) -> Iterator[_ParquetRows]:
        try:
            stored = [one for one in self._columns if one not in self._constants]
            for group in self._file.iter_batches(ROWS_PER_GROUP, columns=stored):
                yield _ParquetRows(_with_floats(self._with_constants(group), self._policy), self._policy, self._name)
        except (pa.ArrowException, OSError):
            raise InputError(f"{self._name}: not a valid Parquet file, or truncated") from None

    def _with_constants(self, group: pa.RecordBatch) -> pa.RecordBatch:
        if not self._constants:
            return group
        columns = [
            pa.array([self._constants[one].as_py()] * group.num_rows, self._constants[one].type)
            if one in self._constants
            else group.column(one)
            for one in self._columns
        ]
        return pa.RecordBatch.from_arrays(columns, self._columns)


def _constant(column: str, text: str | None, policy: Policy, name: str) -> pa.Scalar:
    """Return the value that the name of a folder gives a column, in the type that the policy declares."""
    attribute = next((one for one in policy.attributes if one.name == column), None)
    kind = pa.string() if attribute is None else _TYPE_OF.get(attribute.type, pa.string())
    if attribute is not None and attribute.is_clustered and (attribute.unit or SCALES[attribute.scale].is_amount):
        kind = pa.int64() if attribute.unit or attribute.integer else pa.float64()
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowException:
        raise InputError(f"{name}: the folder {column}= names a value of another type than the policy says") from None


def read_arrow(
    table: pa.Table, policy: Policy, encoder: RecordEncoder, options: ReadOptions, *, block_size: int = ROWS_PER_GROUP
) -> RecordSource:
    """Open a table in memory, as `ParquetFormat.read` opens a file with these columns; a stream needs small blocks."""
    schema = _declared_schema(table.schema, policy, options.name, "data frame")
    groups = table.select(schema.names).to_batches(block_size)
    rows = (_ParquetRows(_with_floats(group, policy), policy, options.name) for group in groups)
    return _source_of(rows, schema, policy, encoder, options)


def _source_of(
    groups: Iterable[_ParquetRows], schema: pa.Schema, policy: Policy, encoder: RecordEncoder, options: ReadOptions
) -> RecordSource:
    """Return groups of rows as blocks of records."""
    max_bytes = options.max_bytes
    decoder = JsonDecoder(
        policy, encoder=encoder, max_bytes=max_bytes, with_columns=options.with_columns, refuses_headers=False
    )
    blocks = (block for rows in groups for block in rows.decode(decoder, max_bytes))
    return RecordSource(blocks, decoder.explain, unit="row", schema=schema)


def _with_floats(group: pa.RecordBatch, policy: Policy) -> pa.RecordBatch:
    """Return rows in which decimals of numeric attributes are the nearest float64, to which Arrow does not round."""
    amounts = {a.name for a in policy.clustered if SCALES[a.scale].is_amount}
    for place, one in enumerate(group.schema):
        if one.name in amounts and pa.types.is_decimal(one.type):
            numbers = [None if value is None else float(value) for value in group.column(place).to_pylist()]
            group = group.set_column(place, one.name, pa.array(numbers, pa.float64()))
    return group


@dataclass(frozen=True, slots=True, repr=False)
class _ParquetRows:
    """Consecutive rows of a Parquet file: the declared columns, in the order of the policy.

    Numbers, texts and booleans keep their type. Dates, times and decimals become texts, as Arrow formats them. NaN
    becomes null. Infinity becomes null in an unchanged field; in a quasi-identifier or steering attribute it is
    invalid.
    """

    group: pa.RecordBatch
    policy: Policy
    name: str

    def decode(self, decoder: JsonDecoder, max_bytes: int) -> Iterator[tuple[Block, Sequence[bytes]]]:
        """Yield blocks with their rows as messages of at most ``max_bytes``; InputError if a text is not UTF-8."""
        has_types = all(map(_has_declared_type, self.policy.attributes, self.group.columns))
        if has_types and not self.policy.skip and self._most_bytes() <= max_bytes:
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
            if _is_ignored(attribute)
            else list(map(_json_scalar, self._attribute_values(attribute, column)))
            for attribute, column in zip(self.policy.attributes, part.columns, strict=False)
        ]
        # Undeclared columns of ``skip`` come last.
        columns += [self._values(name, part.column(name)) for name in names[len(columns) :]]
        return [_encode(dict(zip(names, record, strict=True))) for record in zip(*columns, strict=True)]

    def _most_bytes(self) -> int:
        """Return a number of bytes that no row exceeds as JSON."""
        names = _ESCAPED_BYTES * sum(map(len, (name.encode() for name in self.group.schema.names)))
        return names + sum(
            _NUMBER_BYTES + _longest_text(column)
            for attribute, column in zip(self.policy.attributes, self.group.columns, strict=False)
            if not _is_ignored(attribute)
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
        reader = scale_of(attribute).reader(self.policy.missing_values)
        if not SCALES[attribute.scale].is_amount:
            return reader.read(self._attribute_values(attribute, column))
        values = np.array(_numbers(column), dtype=np.float64)
        values[_are_null(column)] = np.nan
        return ScaleColumn(reader.drop_missing_numbers(values))

    def _attribute_values(self, attribute: Attribute, column: pa.Array) -> list[Any]:
        """Return a column as values of JSON types. Programs write integers with nulls as float64: they are integers."""
        if not attribute.is_clustered:
            return self._values(attribute.name, column)
        values = self._values(attribute.name, column, keep_infinity=True)
        if SCALES[attribute.scale].has_categories:
            return [integral_to_int(value) if type(value) is float else value for value in values]
        return values

    def _values(self, name: str, column: pa.Array, *, keep_infinity: bool = False) -> list[Any]:
        """Return a column as values of JSON types, and infinity as it is or as None."""
        kind = _value_type(column.type)
        if pa.types.is_dictionary(column.type):
            column = column.cast(kind)
        if not _has_json_type(kind):
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


def encode_parquet(rows: Sequence[bytes], policy: Policy, schema: pa.Schema | None = None) -> Iterator[bytes]:
    """Yield pieces of a Parquet file with published rows, as `JsonEncoder` wrote them.

    Types are those of the input if they can hold every published value, else of the policy. InputError if a field
    without a type has values of several.
    """
    kinds, tables = _published(rows, policy, schema, is_table=True)
    buffer = _PieceBuffer()
    with pq.ParquetWriter(buffer, kinds, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
            yield buffer.take()
    yield buffer.take()


def published_arrow(rows: Sequence[bytes], policy: Policy, schema: pa.Schema, *, is_table: bool) -> pa.Table:
    """Return published rows in memory, with the types that `encode_parquet` gives them; also those of a stream."""
    kinds, tables = _published(rows, policy, schema, is_table=is_table)
    return pa.concat_tables([kinds.empty_table(), *tables])


def _published(
    rows: Sequence[bytes], policy: Policy, schema: pa.Schema | None, *, is_table: bool
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return types and columns of published rows, group after group."""
    attributes = {column_name(attribute): attribute for attribute in policy.published}
    declared = {name: _published_type(one, schema, is_table=is_table) for name, one in attributes.items()}
    inferred = _infer_types(rows, policy, {name: attributes[name] for name, kind in declared.items() if kind is None})
    kinds = pa.schema([(name, kind if kind is not None else inferred[name]) for name, kind in declared.items()])

    def columns(records: list[dict[str, Any]]) -> list[pa.Array]:
        return [_column([record[one.name] for record in records], one.type, attributes[one.name]) for one in kinds]

    return kinds, (pa.Table.from_arrays(columns(part), schema=kinds) for part in _decode_groups(rows, policy))


class _Messages(Sequence[bytes]):
    """The rows as messages, each made when it is asked for: only a row with a fault is."""

    def __init__(self, rows: _ParquetRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        count: int = self._rows.group.num_rows
        return count

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a number, or a slice of the first rows
        if isinstance(index, slice):
            return _Messages(replace(self._rows, group=self._rows.group.slice(0, index.stop)))
        return self._rows.messages(index, 1)[0]


def _json_scalar(value: Any) -> Any:  # noqa: ANN401 - a scalar
    """Return a scalar as the encoder takes it: infinity as a number that no float64 can hold, not as null."""
    return _INFINITY if type(value) is float and math.isinf(value) else value


def _is_ignored(attribute: Attribute) -> bool:
    """Return whether the values of an attribute are not read: an identifier that is not the subject."""
    return attribute.role is Role.IDENTIFIER and not attribute.subject


def _value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column; that of a dictionary's entries."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _has_json_type(kind: pa.DataType) -> bool:
    """Return whether JSON has values of this type; others become texts."""
    return _is_array(kind) or bool(pa.types.is_null(kind)) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_array(kind: pa.DataType) -> bool:
    """Return whether numpy has an array of this type."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _has_declared_type(attribute: Attribute, column: pa.Array) -> bool:
    """Return whether JSON messages with these values would have no value of another type than declared."""
    kind = _value_type(column.type)
    # Times and decimals become texts.
    is_text = _is_text(kind) or bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))
    is_integer = bool(pa.types.is_integer(kind))
    is_number = is_integer or bool(pa.types.is_floating(kind) and kind != pa.float16())
    if _is_ignored(attribute):
        return True
    if attribute.is_clustered:
        return is_number if SCALES[attribute.scale].is_amount else kind != pa.float16()
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
    kind = _value_type(column.type)
    if not _is_text(kind):
        return _ESCAPED_BYTES * _NUMBER_BYTES
    texts = column.dictionary if pa.types.is_dictionary(column.type) else column
    return _ESCAPED_BYTES * (pc.max(pc.binary_length(texts)).as_py() or 0)


class _PieceBuffer(io.RawIOBase):
    """Collects the bytes of a writer until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def close(self) -> None:
        """Do nothing: the last piece is taken after the writer has closed the buffer."""

    def take(self) -> bytes:
        """Return and remove the collected bytes."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _decode_groups(rows: Sequence[bytes], policy: Policy) -> Iterator[list[dict[str, Any]]]:
    """Yield groups of records, each as a dict from column to value."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    is_flat = all(len(a.to) == 1 and a.type != "json" for a in policy.published)
    for part in _split(rows, ROWS_PER_GROUP):
        records = map(decode, part)
        yield list(records) if is_flat else [_to_columns(record, policy) for record in records]


def _to_columns(record: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """Return the fields of a record by the names of their columns; values of type json as texts."""
    columns = {}
    for attribute in policy.published:
        value: Any = record
        for name in attribute.to:
            value = value[name]
        is_text = attribute.type == "json" and value is not None
        columns[column_name(attribute)] = msgspec.json.encode(value).decode() if is_text else value
    return columns


def _infer_types(rows: Sequence[bytes], policy: Policy, attributes: Mapping[str, Attribute]) -> dict[str, pa.DataType]:
    """Return the type of each column without a declared type, from all of its values."""
    inferred: dict[str, pa.DataType] = dict.fromkeys(attributes, pa.null())
    for records in _decode_groups(rows, policy) if attributes else ():
        for name, attribute in attributes.items():
            kinds = {inferred[name], _column([record[name] for record in records], None, attribute).type} - {pa.null()}
            if kinds == {pa.int64(), pa.float64()}:
                kinds = {pa.float64()}
            if len(kinds) > 1:
                raise _type_error(attribute)
            inferred[name] = kinds.pop() if kinds else pa.null()
    return inferred


def _type_error(attribute: Attribute) -> InputError:
    place = f"attributes.{attribute.name}"
    if attribute.role is not Role.QUASI_IDENTIFIER:
        remedy = f"set {place}.type to another type"
    else:
        remedy = scale_of(attribute).one_type.format(place)
    return InputError(f"{place}: its values do not fit one Parquet type; {remedy}, or write another format")


def _split(rows: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _declared_schema(schema: pa.Schema, policy: Policy, name: str, what: str) -> pa.Schema:
    """Return the fields of the declared columns, in the order of the policy; InputError if they do not fit it."""
    require_columns(policy, name, what)
    require_names(schema.names, policy, name)
    declared = pa.schema([schema.field(attribute.name) for attribute in policy.attributes])
    for attribute in policy.attributes:
        if not _is_ignored(attribute):
            _check_type(attribute, declared.field(attribute.name).type, name)
    return declared


def _check_type(attribute: Attribute, kind: pa.DataType, name: str) -> None:
    kind = _value_type(kind)
    if pa.types.is_duration(kind):
        raise InputError(
            f"{name}, column '{attribute.name}': durations are not supported; write a number, in pandas: "
            "column.dt.total_seconds()"
        )
    if attribute.is_clustered and (required := _missing_type(attribute, kind)):
        raise InputError(f"{name}, column '{attribute.name}': {required}")
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise InputError(f"{name}, column '{attribute.name}': nested and binary columns are not supported; remove it")
    if attribute.type == "json":
        raise InputError(f"{name}, column '{attribute.name}': type json is read from CSV and JSON lines only")


def _missing_type(attribute: Attribute, kind: pa.DataType) -> str:
    """Return which type a quasi-identifier or steering attribute must have; empty if the column has it."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if pa.types.is_decimal(kind):
        is_number = 0 <= kind.scale <= kind.precision <= _EXACT_DIGITS and SCALES[attribute.scale].is_amount
    if attribute.may_be_missing and pa.types.is_null(kind):
        return ""
    need = scale_of(attribute).column_need
    is_no_number = not is_number and not pa.types.is_boolean(kind)
    fits = {"numbers": is_number, "texts": is_no_number, "plain texts": _is_text(kind)}
    if need is None or fits[need.kind]:
        return ""
    digits = f", of which a decimal has at most {_EXACT_DIGITS} digits; cast it from {kind} to float64"
    cast = digits if pa.types.is_decimal(kind) else ""
    return f"a {attribute.role.value} {need.words}{cast or need.remedy}"


def _published_type(attribute: Attribute, schema: pa.Schema | None, *, is_table: bool) -> pa.DataType | None:
    """Return the type of a column of the output, or None if it depends on the values."""
    source = None if schema is None or attribute.name not in schema.names else schema.field(attribute.name).type
    if attribute.role is not Role.QUASI_IDENTIFIER:
        return source if source is not None else _TYPE_OF.get(attribute.type)
    types = scale_of(attribute).published_types
    if types is None:
        return _category_type(source)
    is_amount = SCALES[attribute.scale].is_amount
    step = attribute.publication_step(table=is_table) if is_amount else Decimal(0)
    if types == {float} and step and step == step.to_integral_value():
        types = {int}
    if types == {int} and is_amount:
        return source if source is not None and _can_hold(source, step, attribute.bounds) else pa.int64()
    return {str: pa.string(), int: pa.int64(), float: pa.float64()}[types.pop()] if len(types) == 1 else None


def _category_type(source: pa.DataType | None) -> pa.DataType | None:
    """Return the type of categories that were read from a column of type ``source``."""
    if source is None or pa.types.is_null(source):
        return None
    kind = _value_type(source)
    if pa.types.is_floating(kind):
        return pa.int64()
    return source if _has_json_type(kind) else pa.string()


def _can_hold(kind: pa.DataType, step: Decimal, bounds: tuple[float, float] | None) -> bool:
    """Return whether an integer type can hold its own extreme values after clipping and rounding to the step."""
    if not pa.types.is_integer(kind):
        return False
    low = 0 if pa.types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
    high = low + (1 << kind.bit_width) - 1
    lower, upper = bounds or (low, high)
    ends = (Fraction(min(max(end, lower), upper)) / Fraction(step) for end in (low, high))
    return kind.bit_width == _MAX_BITS or all(low <= round(end) * Fraction(step) <= high for end in ends)


def _column(values: Iterable[Any], kind: pa.DataType | None, attribute: Attribute) -> pa.Array:
    try:
        if kind is None:
            return pa.array(values)
        if pa.types.is_floating(kind):
            # JSON has one form of integral numbers, and Arrow does not convert integers beyond 64 bits.
            values = [
                float(value) if type(value) is int and integral_to_int(float(value)) == value else value
                for value in values
            ]
        if _has_json_type(kind):
            return pa.array(values, kind)
        if pa.types.is_dictionary(kind):
            return _column(values, kind.value_type, attribute).dictionary_encode().cast(kind)
        return pa.array(values, pa.string()).cast(kind)
    except (pa.ArrowException, OverflowError, TypeError):
        raise _type_error(attribute) from None
