"""Parquet files to messages, and published rows to Parquet files. Needs pyarrow, which is installed on request only."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import InputError
from shoal.policy import Attribute, Policy, Role
from shoal.records.block import SLICE

__all__ = ["ParquetReader", "encode_parquet"]

AT_ONCE = 1 << 16
"""Rows of one group that is read or written."""

WIDEST_BITS = 64
_OF_TYPE = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


class ParquetReader:
    """The rows of a Parquet file as JSON messages.

    Numbers, texts and truth values as such; dates, times and decimals as texts, in the spelling of Arrow. NaN and
    infinity are null.

    Parameters
    ----------
    file : binary file object
        Read, not closed.
    policy : Policy
        Its attributes are the columns.
    name : str
        What to call the file in messages.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the declared columns.

    Yields
    ------
    list of bytes
        1 to 512 messages.

    Raises
    ------
    InputError
        No Parquet, a column is missing or undeclared, or of a type that cannot be one of the policy's.
    """

    def __init__(self, file: BinaryIO, policy: Policy, *, name: str = "input") -> None:
        try:
            self._file = pq.ParquetFile(file)
        except (pa.ArrowException, OSError):
            raise InputError(f"{name}: no Parquet that can be read") from None
        self._name = name
        self._dropped = {a.name for a in policy.attributes if a.role is Role.IDENTIFIER and not a.subject}
        whole = self._file.schema_arrow
        _check_columns(whole.names, policy, name)
        self.schema = pa.schema([whole.field(attribute.name) for attribute in policy.attributes])
        for attribute in policy.attributes:
            if attribute.name not in self._dropped:
                _check_type(attribute, self.schema.field(attribute.name).type, name)

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        encode = msgspec.json.Encoder().encode
        try:
            for group in self._file.iter_batches(AT_ONCE, columns=self.schema.names):
                columns = [self._values(group.column(name), name) for name in self.schema.names]
                cells = zip(*columns, strict=True)
                rows = [encode(dict(zip(self.schema.names, record, strict=True))) for record in cells]
                yield from _parts(rows, SLICE)
        except (pa.ArrowException, OSError):
            raise InputError(f"{self._name}: breaks off, or is no Parquet that can be read") from None

    def _values(self, column: pa.Array, name: str) -> list[Any]:
        if name in self._dropped:
            return [None] * len(column)
        kind = _plain(column.type)
        if pa.types.is_dictionary(column.type):
            column = column.cast(kind)
        if not _is_json(kind):
            column = column.cast(pa.string())
        values: list[Any] = column.to_pylist()
        return values


def encode_parquet(rows: Sequence[bytes], policy: Policy, schema: pa.Schema | None = None) -> Iterator[bytes]:
    """Write published rows as Parquet.

    Parameters
    ----------
    rows : sequence of bytes
        As `JsonEncoder` wrote them.
    policy : Policy
        Attributes and their types.
    schema : pyarrow.Schema, optional
        Of the file the records came from: kept fields are given back their types, and quasi-identifiers published as
        whole numbers the one of the integers they were, if it has room for the grid. Else by the policy's types.

    Yields
    ------
    bytes
        Pieces of the file.

    Raises
    ------
    InputError
        A field without a declared type holds values of several types.
    """
    told = {attribute.name: _published_type(attribute, schema) for attribute in policy.published}
    found = _found_types(rows, [name for name, kind in told.items() if kind is None])
    kinds = {name: kind if kind is not None else found[name] for name, kind in told.items()}
    sink = _Sink()
    with pq.ParquetWriter(sink, pa.schema(list(kinds.items())), compression="zstd") as writer:
        for records in _decoded(rows):
            columns = [_column([record[name] for record in records], kind, name) for name, kind in kinds.items()]
            writer.write_table(pa.Table.from_arrays(columns, schema=writer.schema))
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Holds what a writer has written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def close(self) -> None:
        """Stay open: the last piece is taken after the writer is done."""

    def taken(self) -> bytes:
        """Hand out what there is."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _decoded(rows: Sequence[bytes]) -> Iterator[list[dict[str, Any]]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    return ([decode(row) for row in part] for part in _parts(rows, AT_ONCE))


def _found_types(rows: Sequence[bytes], names: list[str]) -> dict[str, pa.DataType]:
    """Return the type of each column of which nobody said one, by all of its values."""
    found: dict[str, pa.DataType] = dict.fromkeys(names, pa.null())
    for records in _decoded(rows) if names else ():
        for name in names:
            kinds = {found[name], _column([record[name] for record in records], None, name).type} - {pa.null()}
            if kinds == {pa.int64(), pa.float64()}:
                kinds = {pa.float64()}
            if len(kinds) > 1:
                raise _unfit(name)
            found[name] = kinds.pop() if kinds else pa.null()
    return found


def _unfit(name: str) -> InputError:
    return InputError(
        f"column '{name}': values do not fit one type of Parquet; give attributes.{name}.type, or a quasi_identifier "
        "another resolution"
    )


def _parts(rows: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _check_columns(found: Sequence[str], policy: Policy, name: str) -> None:
    declared = [attribute.name for attribute in policy.attributes]
    for attribute in policy.envelope_attributes:
        raise InputError(f"{name}: attributes.{attribute.name} is read from {attribute.source}, which no table has")
    for column in declared:
        if found.count(column) != 1:
            raise InputError(f"{name}: column '{column}' is missing or stands twice; mend it, or the policy")
    if policy.undeclared == "quarantine" and len(found) > len(declared):
        extra = next(column for column in found if column not in declared)
        raise InputError(f"{name}: column '{extra}' is not declared; declare it, or say undeclared: drop")


def _check_type(attribute: Attribute, kind: pa.DataType, name: str) -> None:
    kind, is_number = _plain(kind), pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if attribute.role is Role.QUASI_IDENTIFIER:
        if not is_number:
            raise InputError(f"{name}, column '{attribute.name}': a quasi_identifier must be a number")
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise InputError(f"{name}, column '{attribute.name}': neither nested nor binary columns can be read")


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_json(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _published_type(attribute: Attribute, schema: pa.Schema | None) -> pa.DataType | None:
    """Return the type of a column of the output; None: that of its values."""
    source = None if schema is None or attribute.name not in schema.names else schema.field(attribute.name).type
    if attribute.role is Role.QUASI_IDENTIFIER:
        step = attribute.publication_step(table=True)
        if not step or step != step.to_integral_value():
            return pa.float64()
        return source if source is not None and _can_hold(source, step, attribute.bounds) else pa.int64()
    return source if source is not None else _OF_TYPE.get(attribute.type)


def _can_hold(kind: pa.DataType, step: Decimal, bounds: tuple[float, float] | None) -> bool:
    """Whether a type of integers has room for what becomes of its least and largest: clipped, and put on the grid."""
    if not pa.types.is_integer(kind):
        return False
    low = 0 if pa.types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
    high = low + (1 << kind.bit_width) - 1
    least, most = bounds or (low, high)
    ends = (Fraction(min(max(end, least), most)) / Fraction(step) for end in (low, high))
    return kind.bit_width == WIDEST_BITS or all(low <= round(end) * Fraction(step) <= high for end in ends)


def _column(values: Iterable[Any], kind: pa.DataType | None, name: str) -> pa.Array:
    try:
        if kind is None:
            return pa.array(values)
        if _is_json(kind):
            return pa.array(values, kind)
        if pa.types.is_dictionary(kind):
            return _column(values, kind.value_type, name).dictionary_encode().cast(kind)
        return pa.array(values, pa.string()).cast(kind)
    except (pa.ArrowException, OverflowError, TypeError):
        raise _unfit(name) from None
