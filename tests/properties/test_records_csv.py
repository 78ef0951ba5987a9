"""CSV files: the same records however the file is quoted and cut, and no exception whatever is in it."""

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
from shoal.records import CsvDecoder, CsvEncoder, CsvReader, Encoder, JsonDecoder, JsonLines
from support.making import KEY, SUBJECT, kept, policy_of, quasi

pytestmark = pytest.mark.property

POLICY = policy_of(
    {
        "who": SUBJECT,
        "age": quasi(0, 110, integer=True),
        "note": kept("string"),
        "amount": kept("number"),
        "size": quasi(-1, 1),
        "ok": kept("boolean"),
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
    """A stream that hands out pieces of the given lengths, again and again."""

    def __init__(self, text: bytes, lengths: list[int]) -> None:
        self.text, self.lengths, self.turn = text, lengths, 0

    def read(self, size: int = -1) -> bytes:
        length = min(size, self.lengths[self.turn % len(self.lengths)])
        self.turn += 1
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


def decoded(stream: Any, encoder: Encoder | CsvEncoder) -> tuple[list[Any], ...]:
    reader = CsvReader(stream, POLICY)
    decoder = CsvDecoder(POLICY, reader.columns, hash_key=KEY, encoder=encoder)
    values: list[Any] = []
    subjects: list[Any] = []
    tails: list[Any] = []
    accepted: list[Any] = []
    rejected: list[Any] = []
    start = 0
    for part in reader:
        block = decoder.take(part)
        assert block.values.flags.c_contiguous
        values += block.values.tolist()
        subjects += block.subjects.tolist()
        tails += block.tails
        accepted += [start + place for place in block.index.tolist()]
        rejected += [(start + place, reason) for place, reason in block.rejected]
        start += len(part)
    assert sorted(accepted + [place for place, _ in rejected]) == list(range(start))
    return values, subjects, tails, accepted, rejected


@given(
    records=st.lists(RECORDS, max_size=8),
    quoted=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
def test_a_file_says_the_same_however_it_is_quoted_and_cut(
    *, records: list[dict[str, Any]], quoted: bool, end: str, lengths: list[int]
) -> None:
    encoder = Encoder(POLICY)
    plain = decoded(io.BytesIO(file_of(records, quoted=True, end="\n")), encoder)
    assert plain == decoded(Pieces(file_of(records, quoted=quoted, end=end), lengths), encoder)
    messages = [json.dumps(record).encode() for record in records]
    block = JsonDecoder(POLICY, hash_key=KEY, encoder=encoder).take(messages)
    assert plain[4] == block.rejected == []
    assert plain[0] == block.values.tolist()
    assert plain[1] == block.subjects.tolist()
    assert plain[2] == block.tails


@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_what_is_written_as_csv_can_be_read_as_csv(records: list[dict[str, Any]]) -> None:
    encoder = CsvEncoder(POLICY)
    messages = [json.dumps(record).encode() for record in records]
    block = JsonDecoder(POLICY, encoder=encoder).take(messages)
    rows = encoder.rows([["42", "0.50"]], block.tails, [0, len(block)])
    text = b"\n".join([encoder.header(), *rows]).decode()
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert read[0] == ["age", "note", "amount", "size", "ok"]
    assert {(row[0], row[3]) for row in read[1:]} == {("42", "0.50")}
    assert sorted(row[1] for row in read[1:]) == sorted(record["note"] for record in records)
    amounts = sorted(float(row[2]) for row in read[1:] if row[2])
    np.testing.assert_array_equal(amounts, sorted(float(r["amount"]) for r in records if r["amount"] is not None))


@given(st.binary(max_size=200), st.lists(st.integers(1, 40), min_size=1, max_size=5))
@settings(max_examples=200)
def test_a_hostile_file_is_read_to_its_end(noise: bytes, lengths: list[int]) -> None:
    encoder = CsvEncoder(POLICY)
    header = ",".join(NAMES).encode() + b"\n"
    whole = decoded(io.BytesIO(header + noise), encoder)
    assert [reason for _, reason in decoded(Pieces(header + noise, lengths), encoder)[4]] == [r for _, r in whole[4]]
    lines = [line for part in JsonLines(Pieces(noise, lengths)) for line in part]  # type: ignore[arg-type]
    assert lines == [line for part in JsonLines(io.BytesIO(noise)) for line in part]
    assert b"\n".join(lines).rstrip() == noise.rstrip()


@given(st.binary(max_size=60))
def test_a_hostile_header_is_refused_without_another_exception(noise: bytes) -> None:
    with pytest.raises(InputError):
        CsvReader(io.BytesIO(noise), POLICY)
