"""Parquet files as the JSON lines that say the same. Reads through pyarrow, which is installed on request only.

In: a path. Out: one text per row, compact JSON with each number in its one spelling; dates, times and decimals are
texts in the spelling of Arrow, NaN and infinity are null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from shoal.audit.arithmetic import spelled
from shoal.errors import InputError

__all__ = ["is_parquet", "parquet_lines"]

Speller = Callable[[float], str]


def is_parquet(path: Path) -> bool:
    """Whether a file is one, by its name."""
    return path.suffix.lower() == ".parquet"


def parquet_lines(path: Path, spellers: Mapping[str, Speller] | None = None) -> Iterator[str]:
    """Rows as texts; ``spellers`` write the numbers of some columns.

    Raises
    ------
    InputError
        It cannot be read, or a column is no plain one.
    """
    try:
        arrow, files = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise InputError(f"{path}: Parquet needs pyarrow: install shoal[parquet]") from None
    try:
        with files.ParquetFile(path) as file:
            for group in file.iter_batches():
                columns = {name: _values(arrow, group.column(name)) for name in group.schema.names}
                for row in zip(*columns.values(), strict=True):
                    yield _line(dict(zip(columns, row, strict=True)), spellers or {})
    except (arrow.ArrowException, OSError):
        raise InputError(f"{path}: no Parquet that can be read; write it again") from None


def _values(arrow: Any, column: Any) -> list[Any]:  # noqa: ANN401 - a library without types
    kind = column.type
    if arrow.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    plain = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean, arrow.types.is_null)
    texts = (arrow.types.is_string, arrow.types.is_large_string)
    if arrow.types.is_nested(kind) or arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind):
        return ["?"] * len(column)  # such a column can only be one that is dropped
    values: list[Any] = (
        column if any(test(kind) for test in plain + texts) else column.cast(arrow.string())
    ).to_pylist()
    return values


def _line(row: Mapping[str, Any], spellers: Mapping[str, Speller]) -> str:
    return "{" + ",".join(f"{_text(name)}:{_value(value, spellers.get(name))}" for name, value in row.items()) + "}"


def _value(value: object, speller: Speller | None) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        if math.isfinite(value):
            return speller(value) if speller is not None else str(value) if isinstance(value, int) else spelled(value)
        return "null"
    return _text(str(value))


_text = json.JSONEncoder(ensure_ascii=False).encode
