"""Data frames of pandas, polars and pyarrow as Arrow tables, and published columns as frames of the same kind.

No metadata passes from one to the other: published categories and types are made of published values and of the types
of the input. Messages name columns and types, and no value; texts of errors of a library are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.arrays import Int64Vector
from shoal.errors import InputError, ParameterError
from shoal.formats.encoder import column_name
from shoal.formats.format import require_columns
from shoal.policy import Attribute, Policy, Role, Scale

NAME = "table"
"""What messages call the frame."""
_KINDS = (nw.Implementation.PANDAS, nw.Implementation.POLARS, nw.Implementation.PYARROW)


class NativeFrame:
    """A data frame; ParameterError if it is none of pandas, polars or pyarrow, InputError if names occur twice."""

    def __init__(self, table: object) -> None:
        need = f"{NAME}: must be a DataFrame of pandas or polars, or a pyarrow.Table; collect() a lazy frame"
        try:
            self._frame: nw.DataFrame[Any] = nw.from_native(table, eager_only=True)
            self.names: list[str] = self._frame.columns
        except TypeError:
            raise ParameterError(need) from None
        except (ValueError, nw.exceptions.NarwhalsError):
            raise InputError(f"{NAME}: two columns have the same name; rename or remove one of them") from None
        if self._frame.implementation not in _KINDS:
            raise ParameterError(need)
        self.kind = str(self._frame.implementation.value)

    def require_columns(self, policy: Policy) -> None:
        """Require the columns that the policy declares, and no other unless it drops them; else InputError."""
        require_columns(policy, NAME, "data frame")
        declared = [attribute.name for attribute in policy.attributes]
        index = nw.maybe_get_index(self._frame)
        for name in declared:
            if name not in self.names:
                in_index = index is not None and name in index.names
                remedy = "call reset_index()" if in_index else "add it, or remove it from the policy"
                place = "is the index" if in_index else "is missing"
                raise InputError(f"{NAME}: column '{name}' {place}; {remedy}")
        for name in self.names:
            if policy.undeclared == "quarantine" and name not in declared:
                raise InputError(f"{NAME}: column '{name}' is not declared; declare it, or set undeclared: drop")

    def require_index(self) -> None:
        """Require that the index, if there is one, holds nothing but numbers of rows; else InputError.

        Labels of another kind can be names of people, and the policy does not declare them.
        """
        index = nw.maybe_get_index(self._frame)
        if index is None:
            return
        is_plain = index.nlevels == 1 and index.name is None and getattr(index.dtype, "kind", "") in "iu"
        if not (is_plain and index.is_unique):
            raise InputError(
                f"{NAME}: table: {{keep_order: true}} keeps the index, which is named or holds other labels than "
                "different whole numbers; call reset_index(), with drop=True unless the policy declares its name"
            )

    def to_arrow(self, attributes: Sequence[Attribute]) -> pa.Table:
        """Return the columns of the attributes; InputError if one has values that Arrow does not have."""
        columns = {attribute.name: self._column(attribute) for attribute in attributes}
        return pa.table(columns)

    def released_arrow(self, policy: Policy) -> pa.Table:
        """Return a released frame as `shoal batch` writes it to Parquet."""
        attributes = {column_name(attribute): attribute for attribute in policy.published}
        columns = {}
        for name in self.names:
            column = self._read(name)
            attribute = attributes.get(name)
            is_time = attribute is not None and attribute.role is Role.QUASI_IDENTIFIER and _is_day_or_time(column.type)
            columns[name] = _texts_of_times(column, attribute) if attribute is not None and is_time else column
        return pa.table(columns)

    def with_columns(self, published: pa.Table, policy: Policy, source: pa.Table, records: Int64Vector | None) -> Any:  # noqa: ANN401 - a frame
        """Return published columns as a frame of this kind, with the types of ``source``, where these hold them.

        ``records``: the numbers of the rows whose index is kept; None for a new index.
        """
        restored = {
            column_name(a): restore_type(published.column(column_name(a)).combine_chunks(), a, source.column(a.name))
            for a in policy.published
        }
        table = pa.table(restored)
        if self._frame.implementation is nw.Implementation.PYARROW:
            return table
        names = {column_name(attribute): attribute.name for attribute in policy.published}
        if self._frame.implementation is nw.Implementation.POLARS:
            return self._as_polars(table, names)
        return self._as_pandas(table, names, source, records)

    def _as_polars(self, table: pa.Table, names: dict[str, str]) -> Any:  # noqa: ANN401 - a frame
        polars: Any = self._frame.implementation.to_native_namespace()
        old, made = self._frame.to_native().schema, polars.from_arrow(table)
        enums = {
            name: polars.Enum(table.column(name).combine_chunks().dictionary.to_pylist())
            for name, source in names.items()
            if isinstance(old[source], polars.Enum) and pa.types.is_dictionary(table.schema.field(name).type)
        }
        return made.cast(enums) if enums else made

    def _as_pandas(self, table: pa.Table, names: dict[str, str], source: pa.Table, records: Int64Vector | None) -> Any:  # noqa: ANN401 - a frame
        pandas: Any = self._frame.implementation.to_native_namespace()
        native = self._frame.to_native()
        columns = {
            name: _pandas_column(pandas, table.column(name), native.dtypes[old], source.schema.field(old).type)
            for name, old in names.items()
        }
        made = pandas.DataFrame(columns, columns=list(columns))
        return made if records is None else made.set_axis(native.index[records], axis=0)

    def _column(self, attribute: Attribute) -> pa.Array:
        column = self._read(attribute.name, is_ignored=attribute.role is Role.IDENTIFIER and not attribute.subject)
        return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column

    def _read(self, name: str, *, is_ignored: bool = False) -> pa.Array:
        """Return a column as one array; nulls if it is ignored and its values are not read."""
        column = None
        try:
            column = self._frame.get_column(name).to_arrow()
            if not pa.types.is_nested(column.type):
                column.slice(0, 0).cast(pa.string())  # raises for what has no text
        except Exception:  # noqa: BLE001 - each library has its own, and their texts hold values
            column = None
        if (
            column is None
            or isinstance(column.type, pa.BaseExtensionType)
            or pa.types.is_fixed_size_binary(column.type)
        ):
            if is_ignored:
                return pa.nulls(len(self._frame))
            raise InputError(
                f"{NAME}, column '{name}': values of several types, or of a type that is not read; convert them to "
                "numbers, texts, booleans, dates or timestamps"
            )
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types that published columns can take: values in place of categories, none that no text becomes."""
    plain = ((field.name, _value_type(field.type)) for field in schema)
    return pa.schema(
        [(name, kind) for name, kind in plain if not (pa.types.is_time(kind) or pa.types.is_duration(kind))]
    )


def restore_type(column: pa.Array, attribute: Attribute, source: pa.ChunkedArray) -> pa.Array:
    """Return a published column with the type of the input, where that can hold every value of the policy's form."""
    kind = _value_type(source.type)
    is_text = pa.types.is_string(column.type)
    if (is_text and pa.types.is_large_string(kind)) or (pa.types.is_integer(column.type) and kind == pa.float64()):
        column = column.cast(kind)
    elif is_text and attribute.role is Role.QUASI_IDENTIFIER and _is_day_or_time(kind):
        column = _times_of_texts(column, attribute, kind)
    if pa.types.is_dictionary(source.type):
        return _categories(column, source)
    return column


def _categories(column: pa.Array, source: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column as categories: those that are published, and no other.

    They are in the order of the input if that is declared, else sorted: an order of first occurrence tells of arrival.
    """
    places = {value: place for place, value in enumerate(source.combine_chunks().dictionary.to_pylist())}
    found = column.unique().drop_null().to_pylist()
    is_ordered = bool(source.type.ordered) and all(value in places for value in found)
    names = pa.array(sorted(found, key=places.get if is_ordered else None), column.type)  # type: ignore[arg-type]
    return pa.DictionaryArray.from_arrays(pc.index_in(column, names), names, ordered=is_ordered)


def _times_of_texts(column: pa.Array, attribute: Attribute, kind: pa.DataType) -> pa.Array:
    """Return published times as dates or timestamps; unchanged if the type cannot hold them."""
    try:
        if attribute.scale is not Scale.TIME:  # a category, as Arrow writes it
            return column.cast(kind)
        if pa.types.is_date(kind) and not attribute.time_step.is_date:
            return column
        times = pc.utf8_rtrim(column, "Z").cast(pa.timestamp("s"))
        return times.cast(pa.date32()).cast(kind) if pa.types.is_date(kind) else times.cast(kind)
    except pa.ArrowInvalid:
        return column


def _texts_of_times(column: pa.Array, attribute: Attribute) -> pa.Array:
    """Return dates and timestamps of a release as they are published; as Arrow writes them if they were altered."""
    column = column.cast(_value_type(column.type))
    times = column.to_numpy(zero_copy_only=False)
    unit, zone = ("D", "") if attribute.scale is Scale.TIME and attribute.time_step.is_date else ("s", "Z")
    rounded = times.astype(f"M8[{unit}]")
    if attribute.scale is not Scale.TIME or ((rounded != times) & ~np.isnat(times)).any():
        return column.cast(pa.string())
    texts = np.datetime_as_string(rounded).tolist()
    return pa.array([None if text == "NaT" else f"{text}{zone}" for text in texts], pa.string())


def _pandas_column(pandas: Any, column: pa.ChunkedArray, old: Any, source: pa.DataType) -> Any:  # noqa: ANN401 - a series
    """Return a column with the pandas type that the input had, or the one of its kind that holds the values."""
    if getattr(old, "kind", "") == "O" and isinstance(old, np.dtype):
        return pandas.Series(column.to_pylist(), dtype=object)
    if isinstance(old, pandas.ArrowDtype):
        made = column.to_pandas(types_mapper=pandas.ArrowDtype)
    elif getattr(old, "na_value", None) is pandas.NA and not isinstance(old, pandas.StringDtype):
        kinds = {
            pa.int64(): pandas.Int64Dtype(),
            pa.float64(): pandas.Float64Dtype(),
            pa.string(): pandas.StringDtype(),
        }
        made = column.to_pandas(types_mapper=(kinds | {source: old}).get)
    elif isinstance(old, pandas.StringDtype):
        made = column.to_pandas(types_mapper={column.type: old}.get)
    else:
        made = column.to_pandas()
        # The old type of categories holds all of the input. Only those in the column are published.
        made = made.astype(old) if column.type == source and not pa.types.is_dictionary(source) else made
    return made.reset_index(drop=True)


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_day_or_time(kind: pa.DataType) -> bool:
    kind = _value_type(kind)
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))
