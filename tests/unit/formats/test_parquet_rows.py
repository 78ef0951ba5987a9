"""Rows of Parquet read as columns give the same block as the same rows read as messages."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.formats import Block, JsonDecoder
from shoal.formats.parquet import ParquetReader
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit

NAN, INF = float("nan"), float("inf")
AS_MESSAGES = 0
"""No message has so few bytes, so rows become messages."""

TEXTS = pa.array(["a", 'quo"te', None, "Ä\n", "", " 7 "])
INTEGERS = pa.array([1, None, -(2**63), 2**63 - 1, 0, 7], pa.int64())
FLOATS = pa.array([1.5, NAN, None, INF, -0.0, 1e300])
COLUMNS = {
    "text": TEXTS,
    "large text": TEXTS.cast(pa.large_string()),
    "coded text": TEXTS.dictionary_encode(),
    "text view": TEXTS.cast(pa.string_view()),
    "json": TEXTS.cast(pa.string()).cast(pa.json_()),
    "integer": INTEGERS,
    "unsigned": pa.array([1, None, 2**64 - 1, 3, 0, 7], pa.uint64()),
    "coded integer": INTEGERS.dictionary_encode(),
    "float": FLOATS,
    "single": FLOATS.cast(pa.float32(), safe=False),
    "half": pa.array(np.array([1.5, 2, 0.1, 3, -0.0, 7], np.float16)),
    "whole": pa.array([1.0, None, -3.0, 2.0**60, 0.0, 7.0]),
    "truth": pa.array([True, None, False, True, False, True]),
    "null": pa.nulls(6),
    "day": pa.array([date(2020, 1, 1), None, *[date(2021, 2, 3)] * 4]),
    "time": pa.array([datetime(2020, 1, 1, tzinfo=UTC), None, *[datetime(2021, 2, 3, tzinfo=UTC)] * 4]),
    "amount": pa.array([Decimal("1.50"), None, *[Decimal("-7.00")] * 4]),
}
NUMBERS = ("integer", "unsigned", "coded integer", "float", "single", "half", "whole")


def policy_of(role: dict[str, Any], subject: dict[str, Any]) -> Policy:
    attributes = {
        "who": {"role": "identifier", "subject": True, **subject},
        "x": role,
        "age": {"role": "quasi_identifier", "bounds": [0, 5], "integer": True},
        "secret": {"role": "identifier"},
    }
    return Policy.from_document(Document.model_validate({"attributes": attributes, "privacy": {"k": 2}}))


def blocks(policy: Policy, table: pa.Table, max_bytes: int) -> list[tuple[Block, list[bytes]]]:
    file = io.BytesIO()
    pq.write_table(table, file)
    decoder = JsonDecoder(policy, with_columns=True)
    found = [one for rows in ParquetReader(file, policy) for one in rows.decode(decoder, max_bytes)]
    return [(block, [messages[index] for index in range(len(messages))]) for block, messages in found]


def contents(block: Block) -> tuple[Any, ...]:
    # repr tells 1 from 1.0 and from True
    columns = [[repr(value) for value in column] for column in block.unchanged_columns]
    return (
        *(block.values.tolist(), block.subjects.tolist(), block.unchanged_fields, block.index.tolist()),
        *(block.rejected, block.clipped, columns),
    )


def agree(policy: Policy, table: pa.Table) -> Block:
    ((as_columns, rows),) = blocks(policy, table, 1 << 20)
    ((as_messages, messages),) = blocks(policy, table, AS_MESSAGES)
    assert rows == messages
    assert contents(as_columns) == contents(as_messages)
    return as_columns


def table_of(who: pa.Array, x: pa.Array) -> pa.Table:
    return pa.table({"x": x, "age": [1, 2, 9, 4, 5, 0], "secret": [b"\xff"] * 6, "who": who})


@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean", "any"])
@pytest.mark.parametrize("column", COLUMNS)
def test_unchanged_fields_and_subjects_are_read_alike(column: str, kind: str) -> None:
    x, plain = COLUMNS[column], pa.array(list("abcdef"))
    agree(policy_of({"role": "confidential", "type": kind}, {}), table_of(plain, x))
    agree(policy_of({"role": "confidential"}, {"type": kind}), table_of(x, plain))


@pytest.mark.parametrize("column", NUMBERS)
def test_quasi_identifiers_are_read_alike(column: str) -> None:
    policy = policy_of({"role": "quasi_identifier"}, {"type": "string"})
    block = agree(policy, table_of(pa.array(list("abcdef")), COLUMNS[column]))
    finite = [
        number
        for number, value in enumerate(COLUMNS[column].to_pylist())
        if value is not None and np.isfinite(float(value))
    ]
    assert block.index.tolist() == finite
    assert block.values[:, 1].tolist() == [[1, 2, 5, 4, 5, 0][number] for number in finite]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.json_()])
def test_a_long_text_is_read_as_a_message_and_refused_as_one(kind: pa.DataType) -> None:
    policy = policy_of({"role": "confidential", "type": "string"}, {})
    table = table_of(pa.array(list("abcdef")), pa.array(["x" * 1_000_000, *"abcde"]).cast(kind))
    ((block, _),) = blocks(policy, table, 900_000)
    assert block.rejected == [(0, "too_large")]
