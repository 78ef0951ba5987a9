"""Read Parquet files, and write published rows as Parquet. Needs the optional package pyarrow."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import InputError
from shoal.policy import Attribute, Policy, Role, Scale
from shoal.records.numerals import integral_to_int
from shoal.records.output_layout import column_name, output_path, value_at
from shoal.records.parquet_rows import ParquetRows, has_json_type, is_ignored, value_type
from shoal.records.scales import is_clustered
from shoal.records.tabular import require_columns

__all__ = ["ParquetReader", "encode_parquet"]

ROWS_PER_GROUP = 1 << 16
"""Rows that are read or written at once."""

MAX_BITS = 64
_TYPE_OF = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}


class ParquetReader:
    """The rows of a Parquet file, in groups.

    Parameters
    ----------
    file : binary file object
        It is not closed.
    policy : Policy
        Its attributes are the columns.
    name : str
        Name of the file in errors.

    Attributes
    ----------
    schema : pyarrow.Schema
        Schema of the declared columns.

    Yields
    ------
    ParquetRows
        1 to 65,536 rows.

    Raises
    ------
    InputError
        The file is not valid Parquet, or a column is missing, is undeclared or has an unsupported type.
    """

    def __init__(self, file: BinaryIO, policy: Policy, *, name: str = "input") -> None:
        try:
            self._file = pq.ParquetFile(file)
        except (pa.ArrowException, OSError):
            raise InputError(f"{name}: not a valid Parquet file") from None
        self._policy, self._name = policy, name
        schema = self._file.schema_arrow
        _check_columns(schema.names, policy, name)
        self.schema = pa.schema([schema.field(attribute.name) for attribute in policy.attributes])
        for attribute in policy.attributes:
            if not is_ignored(attribute):
                _check_type(attribute, self.schema.field(attribute.name).type, name)

    def __iter__(self) -> Iterator[ParquetRows]:
        try:
            for group in self._file.iter_batches(ROWS_PER_GROUP, columns=self.schema.names):
                yield ParquetRows(group, self._policy, self._name)
        except (pa.ArrowException, OSError):
            raise InputError(f"{self._name}: not a valid Parquet file, or truncated") from None


def encode_parquet(rows: Sequence[bytes], policy: Policy, schema: pa.Schema | None = None) -> Iterator[bytes]:
    """Write published rows as Parquet.

    Parameters
    ----------
    rows : sequence of bytes
        As `JsonEncoder` wrote them.
    policy : Policy
        Attributes and their types.
    schema : pyarrow.Schema, optional
        Schema of the input. Unchanged fields get their types from it. So do quasi-identifiers that were integers and
        are published as integers, if their type can hold every published value. Without a schema, the types of the
        policy are used.

    Yields
    ------
    bytes
        Consecutive pieces of the file.

    Raises
    ------
    InputError
        A field without a declared type contains values of several types.
    """
    attributes = {column_name(attribute): attribute for attribute in policy.published}
    declared = {name: _published_type(attribute, schema) for name, attribute in attributes.items()}
    inferred = _infer_types(rows, policy, {name: attributes[name] for name, kind in declared.items() if kind is None})
    kinds = {name: kind if kind is not None else inferred[name] for name, kind in declared.items()}
    buffer = _PieceBuffer()
    with pq.ParquetWriter(buffer, pa.schema(list(kinds.items())), compression="zstd") as writer:
        for records in _decode_groups(rows, policy):
            columns = [
                _column([record[name] for record in records], kind, attributes[name]) for name, kind in kinds.items()
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=writer.schema))
            yield buffer.take()
    yield buffer.take()


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
    is_flat = all(len(output_path(a)) == 1 and a.type != "json" for a in policy.published)
    for part in _split(rows, ROWS_PER_GROUP):
        records = map(decode, part)
        yield list(records) if is_flat else [_to_columns(record, policy) for record in records]


def _to_columns(record: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """Return the fields of a record by the names of their columns; values of type json as texts."""
    columns = {}
    for attribute in policy.published:
        value = value_at(record, output_path(attribute))
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
    elif attribute.scale is Scale.ORDINAL:
        remedy = f"write the items of {place}.order as texts only, or as integers only"
    elif attribute.scale is Scale.NUMERIC:
        remedy = f"set {place}.resolution to another step"
    else:
        remedy = "give its values one type in the input"
    return InputError(f"{place}: its values do not fit one Parquet type; {remedy}, or write another format")


def _split(rows: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _check_columns(found: Sequence[str], policy: Policy, name: str) -> None:
    declared = [attribute.name for attribute in policy.attributes]
    require_columns(policy, name, "Parquet")
    for column in declared:
        if found.count(column) != 1:
            raise InputError(f"{name}: column '{column}' is missing or occurs twice; correct the file or the policy")
    if policy.undeclared == "quarantine" and len(found) > len(declared):
        extra = next(column for column in found if column not in declared)
        raise InputError(f"{name}: column '{extra}' is not declared; declare it, or set undeclared: drop")


def _check_type(attribute: Attribute, kind: pa.DataType, name: str) -> None:
    kind = value_type(kind)
    if is_clustered(attribute):
        required = _missing_type(attribute, kind)
        if required:
            raise InputError(f"{name}, column '{attribute.name}': {required}")
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise InputError(f"{name}, column '{attribute.name}': nested and binary columns are not supported; remove it")
    if attribute.type == "json":
        raise InputError(f"{name}, column '{attribute.name}': type json is read from CSV and JSON lines only")


def _missing_type(attribute: Attribute, kind: pa.DataType) -> str:
    """Return which type a quasi-identifier or steering attribute must have; empty if the column has it."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if attribute.may_be_missing and pa.types.is_null(kind):
        return ""
    role = f"a {attribute.role.value}"
    cast = f"; cast it from {kind} to float64" if pa.types.is_decimal(kind) else ""
    if attribute.scale is Scale.NUMERIC:
        return "" if is_number else f"{role} must be a column of numbers{cast}"
    if attribute.scale is not Scale.TIME:
        return ""
    if attribute.unit is not None:
        return (
            ""
            if is_number
            else f"{role} of scale time with a unit must be a column of numbers{cast or '; remove unit'}"
        )
    is_text = not is_number and not pa.types.is_boolean(kind)
    return "" if is_text else f"{role} of scale time must be a column of texts, dates or timestamps; set unit"


def _published_type(attribute: Attribute, schema: pa.Schema | None) -> pa.DataType | None:
    """Return the type of a column of the output, or None if it depends on the values."""
    source = None if schema is None or attribute.name not in schema.names else schema.field(attribute.name).type
    if attribute.role is not Role.QUASI_IDENTIFIER:
        return source if source is not None else _TYPE_OF.get(attribute.type)
    if attribute.scale is Scale.TIME:
        return pa.string() if attribute.unit is None else pa.int64()
    if attribute.scale is Scale.ORDINAL:
        kinds = set(map(type, attribute.order))
        return {str: pa.string(), int: pa.int64()}[kinds.pop()] if len(kinds) == 1 else None
    if attribute.scale is Scale.NOMINAL:
        return _category_type(source) if attribute.taxonomy is None else pa.string()
    step = attribute.publication_step(table=True)
    if not step or step != step.to_integral_value():
        return pa.float64()
    return source if source is not None and _can_hold(source, step, attribute.bounds) else pa.int64()


def _category_type(source: pa.DataType | None) -> pa.DataType | None:
    """Return the type of categories that were read from a column of type ``source``."""
    if source is None or pa.types.is_null(source):
        return None
    kind = value_type(source)
    if pa.types.is_floating(kind):
        return pa.int64()
    return source if has_json_type(kind) else pa.string()


def _can_hold(kind: pa.DataType, step: Decimal, bounds: tuple[float, float] | None) -> bool:
    """Return whether an integer type can hold its own extreme values after clipping and rounding to the step."""
    if not pa.types.is_integer(kind):
        return False
    low = 0 if pa.types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
    high = low + (1 << kind.bit_width) - 1
    lower, upper = bounds or (low, high)
    ends = (Fraction(min(max(end, lower), upper)) / Fraction(step) for end in (low, high))
    return kind.bit_width == MAX_BITS or all(low <= round(end) * Fraction(step) <= high for end in ends)


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
        if has_json_type(kind):
            return pa.array(values, kind)
        if pa.types.is_dictionary(kind):
            return _column(values, kind.value_type, attribute).dictionary_encode().cast(kind)
        return pa.array(values, pa.string()).cast(kind)
    except (pa.ArrowException, OverflowError, TypeError):
        raise _type_error(attribute) from None
