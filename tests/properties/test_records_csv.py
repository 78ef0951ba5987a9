"""CSV files: the records do not depend on quoting and piece lengths, and no content raises an exception."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shoal.errors import InputError
from shoal.formats import CsvEncoder, JsonDecoder, JsonEncoder
from shoal.formats.csv import CsvDecoder, CsvReader
from shoal.formats.format import JsonLinesReader
from support.by_night import by_day
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.property

POLICY = policy_of(
    {
        "who": SUBJECT,
        "age": quasi(0, 110, integer=True),
        "note": unchanged_field("string"),
        "amount": unchanged_field("number"),
        "size": quasi(-1, 1),
        "ok": unchanged_field("boolean"),
    }
)
NAMES = [attribute.name for attribute in POLICY.attributes]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(-1e15, 1e15)
RECORDS = st.fixed_dictionaries(
    {
        "who": st.integers(0, 50) | TEXT.filter(lambda text: text.strip() and "\r" not in text),
        "age": st.integers(-5, 120),
        "note": TEXT,
        "amount": st.none() | NUMBERS,
        "size": st.floats(-2, 2),
        "ok": st.none() | st.booleans(),
    }
)


class Pieces(io.RawIOBase):
    """A stream that returns pieces of the given lengths, cyclically."""

    def __init__(self, text: bytes, lengths: list[int]) -> None:
        self.text, self.lengths, self.reads = text, lengths, 0

    def read(self, size: int = -1) -> bytes:
        length = min(size, self.lengths[self.reads % len(self.lengths)])
        self.reads += 1
        piece, self.text = self.text[:length], self.text[length:]
        return piece


def file_of(records: list[dict[str, Any]], *, quoted: bool, end: str) -> bytes:
    rows = [NAMES, *([cell_of(record[name]) for name in NAMES] for record in records)]
    return "".join(
        ",".join('"' + cell.replace('"', '""') + '"' if quoted or set(cell) & set(',"\r\n') else cell for cell in row)
        + end
        for row in rows
    ).encode()


def cell_of(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def decoded(stream: Any, encoder: JsonEncoder | CsvEncoder) -> tuple[list[Any], ...]:
    reader = CsvReader(stream, POLICY)
    decoder = CsvDecoder(POLICY, reader.columns, encoder=encoder)
    values: list[Any] = []
    subjects: list[Any] = []
    fields: list[Any] = []
    accepted: list[Any] = []
    rejected: list[Any] = []
    start = 0
    for part in reader:
        block = decoder.decode(part)
        assert block.values.flags.c_contiguous
        values += block.values.tolist()
        subjects += block.subjects.tolist()
        fields += block.unchanged_fields
        accepted += [start + index for index in block.index.tolist()]
        rejected += [(start + index, reason) for index, reason in block.rejected]
        start += len(part)
    assert sorted(accepted + [index for index, _ in rejected]) == list(range(start))
    return values, subjects, fields, accepted, rejected


@given(
    records=st.lists(RECORDS, max_size=8),
    quoted=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
def test_records_do_not_depend_on_quoting_and_piece_lengths(
    *, records: list[dict[str, Any]], quoted: bool, end: str, lengths: list[int]
) -> None:
    encoder = JsonEncoder(POLICY)
    plain = decoded(io.BytesIO(file_of(records, quoted=True, end="\n")), encoder)
    assert plain == decoded(Pieces(file_of(records, quoted=quoted, end=end), lengths), encoder)
    messages = [json.dumps(record).encode() for record in records]
    block = JsonDecoder(POLICY, encoder=encoder).decode(messages)
    assert plain[4] == block.rejected == []
    assert plain[0] == block.values.tolist()
    assert plain[1] == block.subjects.tolist()
    assert plain[2] == block.unchanged_fields


@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_written_csv_can_be_read_as_csv(records: list[dict[str, Any]]) -> None:
    encoder = CsvEncoder(POLICY)
    messages = [json.dumps(record).encode() for record in records]
    block = JsonDecoder(POLICY, encoder=encoder).decode(messages)
    rows = encoder.encode_clusters([["42", "0.50"]], block.unchanged_fields, [0, len(block)])
    text = b"\n".join([encoder.header(), *rows]).decode()
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert read[0] == ["age", "note", "amount", "size", "ok"]
    assert {(row[0], row[3]) for row in read[1:]} == {("42", "0.50")}
    assert sorted(row[1] for row in read[1:]) == sorted(record["note"] for record in records)
    amounts = sorted(float(row[2]) for row in read[1:] if row[2])
    np.testing.assert_array_equal(amounts, sorted(float(r["amount"]) for r in records if r["amount"] is not None))


@given(st.binary(max_size=200), st.lists(st.integers(1, 40), min_size=1, max_size=5))
@settings(max_examples=by_day(50, 200))
def test_a_hostile_file_is_read_to_its_end(noise: bytes, lengths: list[int]) -> None:
    encoder = CsvEncoder(POLICY)
    header = ",".join(NAMES).encode() + b"\n"
    whole = decoded(io.BytesIO(header + noise), encoder)
    assert [reason for _, reason in decoded(Pieces(header + noise, lengths), encoder)[4]] == [r for _, r in whole[4]]
    lines = [line for part in JsonLinesReader(Pieces(noise, lengths)) for line in part]  # type: ignore[arg-type]
    assert lines == [line for part in JsonLinesReader(io.BytesIO(noise)) for line in part]
    assert b"\n".join(lines).rstrip() == noise.rstrip()


@given(st.binary(max_size=60))
def test_a_hostile_header_is_refused_without_another_exception(noise: bytes) -> None:
    with pytest.raises(InputError):
        CsvReader(io.BytesIO(noise), POLICY)
