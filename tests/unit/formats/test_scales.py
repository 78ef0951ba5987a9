"""Ordinal, nominal and time attributes, and missing values: what each format reads, and what is invalid."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.errors import InputError
from shoal.formats import Block, JsonDecoder, JsonEncoder, Reason
from shoal.formats.csv import CsvDecoder
from shoal.formats.parquet import ParquetReader
from shoal.policy import Policy
from support.making import policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

NOMINAL = {"role": "quasi_identifier", "scale": "nominal"}
ORDINAL = {"role": "quasi_identifier", "scale": "ordinal", "order": ["low", 2, "high"]}
ICD = NOMINAL | {"taxonomy": {"A": ["A1", "A2"], "B": ["B1", "7"]}}
DATE = {"role": "quasi_identifier", "scale": "time"}
SECONDS = DATE | {"unit": "s"}
NUMBER = {"role": "quasi_identifier"}
INF = float("inf")
GROUP = {"missing": "group"}
DAY = 86_400_000.0
INVALID = object()


def policy_with(attribute: dict[str, Any], **more: Any) -> Policy:
    return policy_of({"x": attribute, "note": unchanged_field("string")}, **more)


def decode_json(policy: Policy, values: Sequence[Any]) -> Block:
    return JsonDecoder(policy).decode([json.dumps({"x": value, "note": "n"}).encode() for value in values])


def decode_csv(policy: Policy, cells: Sequence[str]) -> Block:
    return CsvDecoder(policy).decode([[cell, "n"] for cell in cells])


def decode_parquet(policy: Policy, column: pa.Array, max_bytes: int = 1 << 20) -> Block:
    file = io.BytesIO()
    pq.write_table(pa.table({"x": column, "note": ["n"] * len(column)}), file)
    ((block, _),) = [
        found for rows in ParquetReader(file, policy) for found in rows.decode(JsonDecoder(policy), max_bytes)
    ]
    return block


def contents(block: Block, n: int) -> list[Any]:
    """Return what was read for each of n records: a number, the text of a category, None if missing, or INVALID."""
    found: list[Any] = [INVALID] * n
    for index, value in zip(block.index.tolist(), block.values[:, 0].tolist(), strict=True):
        if np.isnan(value):
            found[index] = None
        else:
            found[index] = block.categories[0][int(value)] if block.categories else value
    assert [index for index, _ in block.rejected] == [index for index in range(n) if found[index] is INVALID]
    assert {reason for _, reason in block.rejected} <= {Reason.INVALID}
    assert len(set(block.categories[0] if block.categories else ())) == len(
        block.categories[0] if block.categories else ()
    )
    return found


def invalid(*values: Any) -> list[tuple[Any, Any]]:
    return [(value, INVALID) for value in values]


JSON_CASES: list[tuple[dict[str, Any], list[tuple[Any, Any]]]] = [
    (
        NOMINAL,
        [
            *(("M", '"M"'), ("F", '"F"'), (True, "true"), (False, "false"), ("true", '"true"'), (1, "1"), ("1", '"1"')),
            *((0, "0"), (-250, "-250"), (10**30, "1" + "0" * 30), (" M ", '" M "'), ('"\n', '"\\"\\n"'), ("é", '"é"')),
            *((1.0, "1"), (-0.0, "0"), (1e23, "1" + "0" * 23), *invalid(1.5, 1e-300, None, "", [], {})),
        ],
    ),
    (NOMINAL | GROUP, [(None, None), ("", None), ("?", '"?"'), (" ", '" "'), *invalid(1.5, ["a"])]),
    (
        ORDINAL,
        [*(("low", 0), (2, 1), ("2", 1), ("high", 2), (2.0, 1)), *invalid("Low", 3, 2.5, 0, True, " low", None, "")],
    ),
    (ORDINAL | GROUP, [("low", 0), (None, None), ("", None), ("none", INVALID)]),
    (ORDINAL | {"order": ["true", "false"]}, [(True, 0), ("true", 0), (False, 1)]),
    (
        ICD,
        [
            *(("A1", '"A1"'), (7, '"7"'), ("7", '"7"'), ("A", '"A"'), ("Z9", '"Z9"'), (8, '"8"'), (7.0, '"7"')),
            (1.5, INVALID),
        ],
    ),
    (ICD | {"unknown": "quarantine"}, [("A1", '"A1"'), (7, '"7"'), *invalid("A", "Z9", "")]),
    (ICD | {"unknown": "quarantine"} | GROUP, [("A1", '"A1"'), (None, None), ("", None), ("A", INVALID)]),
    (
        DATE,
        [
            *(("1970-01-02", DAY), ("1970-01-01T12:00:00.5Z", 43_200_500)),
            *invalid("1970-02-30", " 1970-01-02", 0, 1.5, True, None, ""),
        ],
    ),
    (DATE | {"missing": "mean"}, [("1970-01-02", DAY), (None, None), ("", None), *invalid("never", 5)]),
    (SECONDS, [(86_400, DAY), (0.5, 500), (-1, -1000), *invalid("1", "", True, None)]),
    (SECONDS | {"missing": "mean"}, [(1e3, 1e6), (None, None), ("", None), *invalid("1", 1e30, {})]),
    (DATE | {"unit": "ms"}, [(86_400_000, DAY), (0.5, 0), (1.5, 2)]),
    (DATE | {"unit": "us"}, [(86_400_000_000, DAY), (1500, 2), (500.5, 1)]),
    (DATE | {"unit": "days"}, [(1, DAY), (-1, -DAY), (0.25, 21_600_000)]),
    (NUMBER, [(1, 1), (1.5, 1.5), *invalid("1", "", None, True)]),
    (NUMBER | GROUP, [(1, 1), (-0.0, 0), (None, None), ("", None), *invalid("1", True, [])]),
    (NUMBER | GROUP | {"integer": True}, [(1, 1), (None, None), (1.5, INVALID)]),
]


@pytest.mark.parametrize(("attribute", "cases"), JSON_CASES)
def test_values_of_json(attribute: dict[str, Any], cases: list[tuple[Any, Any]]) -> None:
    policy, expected = policy_with(attribute), [expected for _, expected in cases]
    assert contents(decode_json(policy, [value for value, _ in cases]), len(cases)) == expected
    for value, one in cases:
        assert contents(decode_json(policy, [value]), 1) == [one]


CSV_CASES: list[tuple[dict[str, Any], list[tuple[str, Any]]]] = [
    (NOMINAL, [("M", '"M"'), (" M\t", '"M"'), ("1", '"1"'), ("true", '"true"'), ("1,5", '"1,5"'), *invalid("", " ")]),
    (NOMINAL | GROUP, [("M", '"M"'), ("", None), ("\t ", None), ('a"b', '"a\\"b"')]),
    (ORDINAL, [("low", 0), (" 2 ", 1), ("2.0", 1), *invalid("2.5", "02.0", "")]),
    (ORDINAL | GROUP, [("high", 2), ("", None), ("?", INVALID)]),
    (ICD, [("A1", '"A1"'), ("7", '"7"'), (" Z", '"Z"')]),
    (ICD | {"unknown": "quarantine"} | GROUP, [("A1", '"A1"'), ("Z", INVALID), (" ", None)]),
    (DATE, [(" 1970-01-02 ", DAY), ("1970-01-02 00:00", DAY), *invalid("0", "")]),
    (SECONDS | {"missing": "mean"}, [("86400", DAY), (" 0.5", 500), ("1e3", 1e6), ("", None), *invalid("1,5", "x")]),
    (NUMBER | GROUP, [("1", 1), (" 1.5 ", 1.5), ("", None), ("  ", None), *invalid("nan", "?", "1e999")]),
]


@pytest.mark.parametrize(("attribute", "cases"), CSV_CASES)
def test_cells_of_csv(attribute: dict[str, Any], cases: list[tuple[str, Any]]) -> None:
    policy, expected = policy_with(attribute), [expected for _, expected in cases]
    assert contents(decode_csv(policy, [cell for cell, _ in cases]), len(cases)) == expected
    for cell, one in cases:
        assert contents(decode_csv(policy, [cell]), 1) == [one]


def test_decimal_commas_of_times_and_numbers() -> None:
    commas: dict[str, Any] = {"csv": {"delimiter": ";", "decimal": ","}, "missing_values": ["", "n.a."]}
    cells = ["1,5", "n.a.", "", "1.5", "2"]
    assert contents(decode_csv(policy_with(NUMBER | GROUP, **commas), cells), 5) == [1.5, None, None, INVALID, 2]
    seconds = SECONDS | {"missing": "mean"}
    assert contents(decode_csv(policy_with(seconds, **commas), cells), 5) == [1500, None, None, INVALID, 2000]
    assert contents(decode_csv(policy_with(NOMINAL, **commas), ["1,5"]), 1) == ['"1,5"']


PARQUET_CASES: list[tuple[dict[str, Any], pa.Array, list[Any]]] = [
    (NOMINAL | GROUP, pa.array(["M", None, "", "F", "M"]), ['"M"', None, None, '"F"', '"M"']),
    (NOMINAL | GROUP, pa.array(["M", None, "F"]).dictionary_encode(), ['"M"', None, '"F"']),
    (NOMINAL, pa.array(["M", "F"], pa.string_view()), ['"M"', '"F"']),
    (NOMINAL | GROUP, pa.array([True, None, False]), ["true", None, "false"]),
    (NOMINAL | GROUP, pa.array([1, None, 2], pa.int8()), ["1", None, "2"]),
    (NOMINAL | GROUP, pa.array([1.0, None, float("nan"), 2.5, 1e30]), ["1", None, None, INVALID, "1" + "0" * 30]),
    (NOMINAL | GROUP, pa.nulls(2), [None, None]),
    (NOMINAL | GROUP, pa.array([INF, 1.0]), [INVALID, "1"]),
    (ORDINAL | GROUP, pa.array([2.0, -INF]).dictionary_encode(), [1, INVALID]),
    (ORDINAL | GROUP, pa.array([2, None, 1]), [1, None, INVALID]),
    (ORDINAL | GROUP, pa.array([2.0, None, 2.5]), [1, None, INVALID]),
    (ICD, pa.array(["A1", None, "zz"]), ['"A1"', INVALID, '"zz"']),
    (ICD | GROUP, pa.array([7.0, float("nan")]), ['"7"', None]),
    (DATE | GROUP, pa.array(["1970-01-02", None, "x"]), [DAY, None, INVALID]),
    (DATE | GROUP, pa.array([1, None], pa.date32()), [DAY, None]),
    (DATE | GROUP, pa.array([1_234, None, -1], pa.timestamp("ms")), [1234, None, -1]),
    (DATE, pa.array([1_234_500], pa.timestamp("ns", "Europe/Berlin")), [1]),
    (SECONDS | GROUP, pa.array([0.5, None, float("nan"), INF, 1e300]), [500, None, None, INVALID, INVALID]),
    (SECONDS, pa.array([86_400, None], pa.int32()), [DAY, INVALID]),
    (NUMBER | GROUP, pa.array([1.5, None, float("nan"), INF, -INF]), [1.5, None, None, INVALID, INVALID]),
    (NUMBER | GROUP, pa.array([1, None], pa.int64()), [1, None]),
    (NUMBER | GROUP, pa.nulls(2), [None, None]),
    (NUMBER, pa.array([1.5, None]), [1.5, INVALID]),
]


@pytest.mark.parametrize(("attribute", "column", "expected"), PARQUET_CASES)
def test_columns_of_parquet(attribute: dict[str, Any], column: pa.Array, expected: list[Any]) -> None:
    policy = policy_with(attribute)
    assert contents(decode_parquet(policy, column), len(column)) == expected
    assert contents(decode_parquet(policy, column, max_bytes=0), len(column)) == expected


@pytest.mark.parametrize(
    ("attribute", "column", "message"),
    [
        (NUMBER, pa.array(["1"]), "a quasi_identifier must be a column of numbers"),
        (NUMBER, pa.nulls(1), "a quasi_identifier must be a column of numbers"),
        (DATE, pa.array([1]), "of scale time must be a column of texts, dates or timestamps; set unit"),
        (DATE, pa.array([True]), "of scale time must be a column of texts, dates or timestamps; set unit"),
        (SECONDS, pa.array([1], pa.timestamp("s")), "with a unit must be a column of numbers; remove unit"),
        (NOMINAL, pa.array([b"M"]), "nested and binary columns are not supported"),
        (NOMINAL, pa.array([["M"]]), "nested and binary columns are not supported"),
    ],
)
def test_columns_of_another_type_are_refused(attribute: dict[str, Any], column: pa.Array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode_parquet(policy_with(attribute), column)


def test_steering_attributes_follow_the_quasi_identifiers() -> None:
    ward = {"role": "steering", "scale": "nominal"}
    policy = policy_of(
        {"ward": ward, "age": quasi(), "sex": NOMINAL}, steering={"by": [{"attribute": "ward", "weight": 0.2}]}
    )
    block = JsonDecoder(policy).decode([b'{"ward":"n","age":4,"sex":"M"}', b'{"ward":"s","age":5,"sex":"M"}'])
    assert block.values.tolist() == [[4, 0, 0], [5, 0, 1]]
    assert block.categories == [['"M"'], ['"n"', '"s"']]
    rows = JsonEncoder(policy).encode_clusters([["4.5", '"M"']], block.unchanged_fields, [0, 2])
    assert rows == [b'{"age":4.5,"sex":"M"}'] * 2


def test_times_outside_their_bounds() -> None:
    bounds = {"bounds": ["1970-01-02", "1970-01-04"]}
    texts = ["1970-01-01", "1970-01-02", "1970-01-04T00:00:00.001Z"]
    clipped = decode_json(policy_with(DATE | bounds), texts)
    assert (clipped.values[:, 0].tolist(), clipped.clipped) == ([DAY, DAY, 3 * DAY], 2)
    quarantined = decode_csv(policy_with(DATE | bounds | GROUP | {"out_of_bounds": "quarantine"}), [*texts, ""])
    assert contents(quarantined, 4) == [INVALID, DAY, INVALID, None]


def test_a_category_that_the_output_encoding_lacks_is_invalid() -> None:
    policy = policy_with(NOMINAL | GROUP, csv={"encoding": "latin-1"})
    block = decode_csv(policy, ["é", "Ω", "", "a"])
    assert contents(block, 4) == ['"é"', INVALID, None, '"a"']
    assert CsvDecoder(policy_with(NOMINAL)).decode([["Ω", "n"]]).rejected == []
    steering = policy_of(
        {"w": {"role": "steering", "scale": "nominal"}, "age": quasi()},
        steering={"by": [{"attribute": "w", "weight": 1}]},
        csv={"encoding": "latin-1"},
    )
    assert CsvDecoder(steering).decode([["Ω", "1"]]).rejected == []


LONG, LONGEST = "!" * 999, "!" * 998
"""Texts of 1,001 and of 1,000 bytes as JSON."""


@pytest.mark.parametrize("attribute", [NOMINAL | GROUP, ICD | GROUP])
@pytest.mark.parametrize(
    "read", [decode_json, decode_csv, lambda policy, texts: decode_parquet(policy, pa.array(texts))]
)
def test_a_long_category_makes_its_record_too_large(read: Any, attribute: dict[str, Any]) -> None:
    block = read(policy_with(attribute), [LONG, "a", LONGEST, "", "é" * 500, "é" * 499, "b"])
    assert block.rejected == [(0, Reason.TOO_LARGE), (4, Reason.TOO_LARGE)]
    assert block.index.tolist() == [1, 2, 3, 5, 6]
    assert block.categories == [['"a"', f'"{LONGEST}"', f'"{"é" * 499}"', '"b"']]
    assert block.values[:, 0].tolist()[:2] == [0, 1]
    assert np.isnan(block.values[2, 0])
    assert block.values[:, 0].tolist()[3:] == [2, 3]


def test_categories_count_as_unchanged_fields_do() -> None:
    policy = policy_with(NOMINAL | GROUP)
    # "note":"n" has 10 bytes as JSON, the category has 2 quotation marks.
    decoder = CsvDecoder(policy, encoder=JsonEncoder(policy), max_bytes=20)
    block = decoder.decode([["12345678", "n"], ["123456789", "n"], ["ääääa", "n"], ["", "n"], ["", "n" * 12]])
    assert block.rejected == [(1, Reason.TOO_LARGE), (2, Reason.TOO_LARGE), (4, Reason.TOO_LARGE)]


@pytest.mark.parametrize("attribute", [NOMINAL, ORDINAL, ICD, DATE, SECONDS, NUMBER])
def test_an_absent_field_is_missing_if_the_policy_releases_missing_values(attribute: dict[str, Any]) -> None:
    messages = [b'{"note":"n"}', b'{"note":"a","note":"b"}', b'{"note":"n","x":null}']
    grouped = JsonDecoder(policy_with(attribute | GROUP)).decode(messages)
    # The field that is repeated must not pass for the one that is absent.
    assert grouped.rejected == [(1, Reason.INVALID)]
    assert np.isnan(grouped.values[:, 0]).tolist() == [True, True]
    quarantined = JsonDecoder(policy_with(attribute)).decode(messages)
    assert quarantined.rejected == [(0, Reason.INVALID), (1, Reason.INVALID), (2, Reason.INVALID)]
