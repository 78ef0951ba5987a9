"""Categories, times and missing values: every decoder reads equal content alike, and nothing is lost on the way."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.reading import Form, JsonNumber
from shoal.audit.scales import POINT, Categories, value_reader
from shoal.formats import Block, CsvEncoder, JsonDecoder, JsonEncoder
from shoal.formats.csv import CsvDecoder, CsvReader
from shoal.formats.json import find_json_faults
from shoal.formats.parquet import ParquetReader
from shoal.policy import EpochUnit
from shoal.policy.texts import parse_time
from shoal.scales.time import parse_epoch_times, parse_iso_times
from support.making import policy_of, unchanged_field

pytestmark = pytest.mark.property

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNITS: dict[EpochUnit, Decimal] = {
    "s": Decimal(1000),
    "ms": Decimal(1),
    "us": Decimal("0.001"),
    "days": Decimal(86_400_000),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=6)
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.one_of(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - also times without a zone
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=ZONES | st.just(timezone.utc)),  # noqa: DTZ001, UP017
)
NOMINAL = {"role": "quasi_identifier", "scale": "nominal"}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "flat": NOMINAL,
    "leaf": NOMINAL | {"taxonomy": {"A": ["a", "b"], "B": ["c", "7"]}, "unknown": "quarantine"},
    "rank": {"role": "quasi_identifier", "scale": "ordinal", "order": ["a", "b", 7]},
    "date": {"role": "quasi_identifier", "scale": "time"},
}
MISSING = {"quarantine", "group"}
DATES = st.dates().map(str)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "flat": TEXT,
    "leaf": st.sampled_from(["a", "b", "c", "7", "d"]) | TEXT,
    "rank": st.sampled_from(["a", "b", "7", "c"]) | TEXT,
    "date": DATES | TIMES.map(lambda time: time.isoformat()) | TEXT,
}


def policy_with(name: str, missing: str) -> Any:
    attribute = ATTRIBUTES[name] | {"missing": missing}
    # With multiline, a text may look like another record.
    return policy_of(
        {"x": attribute, "note": unchanged_field("string")}, missing_values=["", "?"], csv={"multiline": True}
    )


def stripped(text: str) -> str:
    """Return a text as a cell of CSV is read."""
    return text.strip(" \t")


def contents(block: Block) -> dict[int, Any]:
    """Return the value of each accepted record: a number, the text of a category, or None if it is missing."""
    values = [None if math.isnan(value) else value for value in block.values[:, 0].tolist()]
    if block.categories:
        values = [None if value is None else block.categories[0][int(value)] for value in values]
    return dict(zip(block.index.tolist(), values, strict=True))


def decode_json(policy: Any, texts: Sequence[str | None]) -> Block:
    return JsonDecoder(policy).decode([json.dumps({"x": text, "note": "n"}).encode() for text in texts])


def decode_csv(policy: Any, texts: Sequence[str | None]) -> Block:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
        [("x", "note"), *(("" if text is None else text, "n") for text in texts)]
    )
    reader = CsvReader(io.BytesIO(file.getvalue().encode()), policy)
    return CsvDecoder(policy, reader.columns).decode([cells for batch in reader for cells in batch])


def decode_parquet(policy: Any, texts: Sequence[str | None]) -> Block:
    file = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array(texts, pa.string()), "note": ["n"] * len(texts)}), file)
    ((block, _),) = [
        found for rows in ParquetReader(file, policy) for found in rows.decode(JsonDecoder(policy), 1 << 20)
    ]
    return block


@given(data=st.data(), name=st.sampled_from(["flat", "leaf", "rank", "date"]), missing=st.sampled_from(sorted(MISSING)))
def test_equal_texts_are_read_alike_from_every_format(data: st.DataObject, name: str, missing: str) -> None:
    policy = policy_with(name, missing)
    texts = data.draw(st.lists(st.none() | VALUES[name].map(stripped), min_size=1, max_size=4))
    as_json = decode_json(policy, texts)
    assert contents(as_json) == contents(decode_csv(policy, texts)) == contents(decode_parquet(policy, texts))
    for index, text in enumerate(texts):
        one = contents(decode_json(policy, [text]))
        assert one == ({0: contents(as_json)[index]} if index in contents(as_json) else {})
        message = json.dumps({"x": text, "note": "n"}).encode()
        has_fault = [fault.field for fault in find_json_faults(policy, message)] == ["x"]
        assert has_fault is (index not in contents(as_json))
        cell_faults = CsvDecoder(policy, ["x", "note"]).explain(["" if text is None else text, "n"])
        assert [fault.field for fault in cell_faults] == (["x"] if has_fault else [""])


@given(st.lists(TEXT.map(stripped).filter(lambda text: text not in {"", "?"}), min_size=1, max_size=6))
def test_a_published_category_is_read_again_as_the_same(texts: list[str]) -> None:
    policy = policy_with("flat", "quarantine")
    block = decode_json(policy, texts)
    assert [json.loads(category) for category in contents(block).values()] == texts
    published = [[category] for category in contents(block).values()]
    bounds = range(len(texts) + 1)
    to_json, to_csv = JsonEncoder(policy), CsvEncoder(policy)
    rows = to_json.encode_clusters(published, block.unchanged_fields, bounds)
    assert [json.loads(row)["x"] for row in rows] == texts
    assert contents(JsonDecoder(policy).decode(rows)) == contents(block)
    fields = to_csv.encode_unchanged([["n"] * len(texts)], len(texts))
    file = to_csv.encode_lines([to_csv.header(), *to_csv.encode_clusters(published, fields, bounds)])
    reader = CsvReader(io.BytesIO(file), policy)
    assert contents(
        CsvDecoder(policy, reader.columns).decode([cells for batch in reader for cells in batch])
    ) == contents(block)


@given(st.lists(st.tuples(TIMES, st.sampled_from(["T", " "]), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_times_are_read_as_datetime_reads_them(drawn: list[tuple[datetime, str, bool, bool]]) -> None:
    texts, expected = [], []
    for time, separator, has_colon, has_z in drawn:
        text = time.isoformat(separator)
        if time.utcoffset() is not None and not has_colon:
            text = text[:-3] + text[-2:]
        if time.utcoffset() == timedelta(0) and has_z:
            text = time.replace(tzinfo=None).isoformat(separator) + "Z"
        moment = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        microseconds = (moment - EPOCH) // timedelta(microseconds=1)
        texts.append(text)
        expected.append(int((Decimal(microseconds) / 1000).to_integral_value(ROUND_HALF_EVEN)))
    assert parse_iso_times(texts).tolist() == expected
    assert [parse_time(text, None) for text in texts] == expected


@given(st.lists(st.decimals(-(10**13), 10**13, allow_nan=False, places=5), min_size=1, max_size=6))
def test_fractions_of_epoch_times_are_rounded_exactly(numbers: list[Decimal]) -> None:
    for unit, factor in UNITS.items():
        exact = [int((number * factor).to_integral_value(ROUND_HALF_EVEN)) for number in numbers]
        expected = [float(ms) if -62_135_596_800_000 <= ms <= 253_402_300_799_999 else math.inf for ms in exact]
        assert parse_epoch_times([f"{number:f}" for number in numbers], unit).tolist() == expected


@given(TEXT | st.text("0123456789-T: Z.+", max_size=25))
def test_no_text_raises_an_error_as_a_time(text: str) -> None:
    found = parse_iso_times([text]).tolist()
    assert found == [math.inf if parse_time(text, None) is None else parse_time(text, None)]
    assert all(len(parse_epoch_times([text], unit)) == 1 for unit in UNITS)


SCALARS = st.sampled_from([7, -1, 1, 0, 12, 2, 8, True, False])
MISSING_TEXTS = st.lists(st.sampled_from(["", "?", "7", "-1", "1.0", "0e0", "12", "true", "false", "+2"]), max_size=9)


@given(SCALARS, MISSING_TEXTS, st.sampled_from(["number", "seconds", "flat", "leaf", "rank"]))
def test_numbers_and_truth_values_are_missing_in_every_format_or_in_none(
    value: int | bool,  # noqa: FBT001
    missing_texts: list[str],
    name: str,
) -> None:
    numbers = {"number": {"role": "quasi_identifier"}, "seconds": ATTRIBUTES["date"] | {"unit": "s"}}
    attribute = (numbers | ATTRIBUTES)[name] | {"missing": "group"}
    if name == "rank":
        attribute |= {"order": ["a", "b", 8]}
    if name == "leaf":
        attribute |= {"taxonomy": {"A": ["a", "b"], "B": ["c"]}}
    policy = policy_of({"x": attribute, "note": unchanged_field("string")}, missing_values=missing_texts)
    text = json.dumps(value)
    as_json = contents(JsonDecoder(policy).decode([json.dumps({"x": value, "note": "n"}).encode()]))
    is_missing = as_json == {0: None}
    is_equal = not isinstance(value, bool) and any(_is_number(one) and float(one) == value for one in missing_texts)
    assert is_missing is (is_equal if name in numbers else text in missing_texts)
    assert (contents(decode_csv(policy, [text])) == {0: None}) is is_missing or name in numbers
    quasi = policy.quasi_identifiers[0]
    forms: dict[Form, object] = {"jsonl": value if isinstance(value, bool) else JsonNumber(text), "csv": text}
    for form, given_value in forms.items():
        found = value_reader(quasi, form, POINT, policy.missing_values, Categories())(given_value)
        engine = as_json if form == "jsonl" else contents(decode_csv(policy, [text]))
        assert (found is not None and math.isnan(found)) is (engine == {0: None})


def _is_number(text: str) -> bool:
    return text.strip("+-").replace(".", "").replace("e", "").isdigit()
