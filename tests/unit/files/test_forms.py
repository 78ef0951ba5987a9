"""Values in the forms that people have: each is published in its canonical form, and the judge reads it alike."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.audit import verify
from shoal.audit.scales import POINT, value_reader
from shoal.drafts import read_sample
from shoal.errors import PolicyError
from shoal.formats.causes import describe_cell
from shoal.policy import Attribute, Policy
from support.commands import run_command

pytestmark = pytest.mark.unit

QUASI: dict[str, Any] = {"role": "quasi_identifier"}
TIME = QUASI | {"scale": "time"}
ROWS = 12
WAYS = [("pipe", "csv"), ("pipe", "jsonl"), ("batch", "csv"), ("batch", "jsonl"), ("batch", "parquet")]


def load(folder: Path, attributes: list[dict[str, Any]], **more: Any) -> Policy:
    """Return the policy of records with a person, some fields x0, x1, ... and a confidential field."""
    declared = {
        "who": {"role": "identifier", "subject": True},
        **{f"x{number}": attribute for number, attribute in enumerate(attributes)},
        "ill": {"role": "confidential", "type": "string"},
    }
    document = {"attributes": declared, "privacy": {"k": 3}, "stream": {"delta": 6}, "csv": {"delimiter": ";"}} | more
    (folder / "policy.json").write_text(json.dumps(document))
    return Policy.load(folder / "policy.json")


def only(folder: Path, attribute: dict[str, Any], **more: Any) -> tuple[Policy, Attribute]:
    policy = load(folder, [attribute], **more)
    return policy, policy.clustered[0]


def published(folder: Path, command: str, form: str, columns: list[list[Any]], policy: Policy) -> list[list[str]]:
    """Release records whose fields take values in turn; return what they publish, which the judge holds for right."""
    rows = [
        {"who": f"p{i}", **{f"x{c}": values[i % len(values)] for c, values in enumerate(columns)}, "ill": "a"}
        for i in range(ROWS)
    ]
    source = folder / f"in.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    elif form == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [";".join("" if cell is None else str(cell) for cell in row.values()) for row in rows]
        source.write_text("\n".join([";".join(rows[0]), *lines]) + "\n")
    paths = [folder / name for name in ("out.csv", "e.jsonl", "s.json")]
    beside = ["-o", paths[0], "--evidence", paths[1], "--summary", paths[2]]
    ended = run_command(command, str(folder / "policy.json"), "-i", str(source), *map(str, beside))
    assert f"{ROWS} in, {ROWS} out" in ended.stderr.decode(), ended.stderr.decode()
    verdict = verify(policy, source, *paths, table=command == "batch" or None)
    assert verdict.exit_code == 0, verdict.text()
    table = [line.split(";") for line in paths[0].read_text().splitlines()[1:]]
    return [sorted(set(column)) for column in zip(*table, strict=True)][:-1]


TIMES: list[tuple[dict[str, Any], list[Any], str]] = [
    ({"format": "%d/%m/%Y"}, ["03/12/1987", "3/12/1987"], "1987-12-03"),
    ({"format": ["%m/%d/%Y", "%Y-%m-%d"]}, ["12/03/1987", "1987-12-03"], "1987-12-03"),
    ({"format": "%d%b%Y", "resolution": "month"}, ["2MAR1987", "02mar1987"], "1987-03-01"),
    ({"format": "%m.%Y", "resolution": "month"}, ["03.1987", "3.1987"], "1987-03-01"),
    ({"format": "%Y%m%d%H%M%S.%f%z", "resolution": "s"}, ["20240229080000.5+0100"], "2024-02-29T07:00:00Z"),
    ({"resolution": "year"}, ["1957", "1957-01", "1957-01-01"], "1957-01-01"),
    ({"resolution": "month"}, ["1957-03", "1957-03-01"], "1957-03-01"),
    ({"unit": "years", "bounds": [1900, 2030]}, [1957], "1957"),
    ({"unit": "ns", "resolution": "h"}, [1700000000000000000], "1699999200000000000"),
    (
        {"unit": "ns", "bounds": [1690000000000000000, 1710000000000000000]},
        [1700000000000000000],
        "1700006400000000000",
    ),
]


@pytest.mark.parametrize(("command", "form"), WAYS)
def test_times_in_declared_forms_are_published_in_one_form_and_judged(tmp_path: Path, command: str, form: str) -> None:
    policy = load(tmp_path, [TIME | keys for keys, _, _ in TIMES])
    found = published(tmp_path, command, form, [values for _, values, _ in TIMES], policy)
    assert found == [[expected] for _, _, expected in TIMES]


@pytest.mark.parametrize(
    ("keys", "values", "cause"),
    [
        ({"format": "%d/%m/%Y"}, ["12/31/1987"], "not a time in the form of format"),
        ({"format": "%d/%m/%Y"}, ["03/12/1987 "], ""),
        ({"format": "%d/%m/%Y"}, ["003/12/1987"], "not a time in the form of format"),
        ({"format": "%d/%m/%Y"}, ["1987-12-03"], "not a time in the form of format"),
        ({"format": "%d%b%Y"}, ["12ſep1987"], "not a time in the form of format"),
        ({"resolution": "month"}, ["1957"], "a year, but the resolution is finer"),
        ({}, ["1957-03"], "a month without a day, but the resolution is finer"),
        ({"unit": "years"}, [1957.5], "not the number of a year"),
        ({"unit": "years"}, [0], "not the number of a year"),
        ({"unit": "years"}, [10000], "not the number of a year"),
        ({"unit": "ns"}, [10**21], "not a number of nanoseconds since 1970"),
    ],
)
def test_texts_in_another_form_are_refused(tmp_path: Path, keys: dict[str, Any], values: list[Any], cause: str) -> None:
    policy, attribute = only(tmp_path, TIME | keys)
    for value in values:
        assert describe_cell(policy, attribute, str(value)) == cause
        judged = value_reader(attribute, "csv", POINT, ("",), None)(str(value))
        assert (judged is None) == bool(cause)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"format": "%d/%m/%y"}, "'%y' is not known; give %Y (4 digits)"),
        ({"format": "%d/%m"}, "must be printable ASCII with %Y"),
        ({"format": ["%d/%m/%Y", "%m/%d/%Y"]}, "fit the same texts, which can be two times; remove one"),
        ({"format": "%d.%m.%Y 00:00:00"}, "has a digit of its own, which would fit any digit; give %H, %M, %S or %f"),
        ({"format": "%m/%Y"}, "has no day, but the resolution is finer than a month"),
        ({"format": "%Y", "resolution": "month"}, "has no month, but the resolution is finer than a year"),
        ({"format": "%Y-%d", "resolution": "year"}, "has %d without what it is a part of"),
        ({"format": "%d/%m/%Y", "unit": "s"}, "is for texts, and unit for numbers; remove one"),
        ({"unit": "years", "resolution": "day"}, "must be year with unit: years"),
        ({"unit": "years", "bounds": ["1900-01-01", "2030-01-01"]}, "as numbers in the unit years"),
        ({"bounds": [1690000000000000, 1700000000000000]}, "for numbers of this size set unit: us"),
        ({"bounds": [169 * 10**16, 170 * 10**16]}, "for numbers of this size set unit: ns"),
        ({"unit": "us", "bounds": [169 * 10**16, 170 * 10**16]}, "for numbers of this size set unit: ns"),
        ({"scale": "numeric", "bounds": [169 * 10**16, 170 * 10**16]}, "set scale: time and unit: ns"),
    ],
)
def test_forms_that_are_ambiguous_or_coarse_are_refused(tmp_path: Path, keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, [TIME | keys])
    assert fault in str(caught.value)


def test_a_column_of_dates_needs_no_format(tmp_path: Path) -> None:
    dates = [[date(1994, 8, 23)]]
    policy = load(tmp_path, [TIME | {"format": "%d/%m/%Y"}])
    with pytest.raises(AssertionError, match="with a format must be a column of texts; remove format"):
        published(tmp_path, "batch", "parquet", dates, policy)
    assert published(tmp_path, "batch", "parquet", dates, load(tmp_path, [TIME])) == [["1994-08-23"]]


CODES: list[tuple[dict[str, Any], list[Any], list[str]]] = [
    ({}, ["80331", "80339"], ["803"]),
    ({}, [80331, 80339], ["803"]),
    ({}, ["80331", "81000"], ["8"]),
    ({}, ["80331", "10115"], ["*"]),
    ({}, ["J45.1", "J45"], ["J45"]),
    ({}, ["J45", "J45"], ["J45"]),
    ({}, ["8", "8"], ["8"]),
    ({"publish": "median"}, ["J45.1", "J45.2", "J00"], ["J45"]),
    ({"publish": "mode"}, ["J45.1", "J45.1", "J00"], ["J45.1"]),
]


@pytest.mark.parametrize(("command", "form"), WAYS)
def test_codes_are_published_by_their_first_characters_and_judged(tmp_path: Path, command: str, form: str) -> None:
    codes = [QUASI | {"scale": "nominal", "prefixes": [3, 1]} | keys for keys, _, _ in CODES]
    policy = load(tmp_path, codes, privacy={"k": ROWS}, stream={"delta": ROWS})
    found = published(tmp_path, command, form, [values for _, values, _ in CODES], policy)
    assert found == [expected for _, _, expected in CODES]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"prefixes": [1, 3]}, "become shorter"),
        ({"prefixes": [3, 1], "taxonomy": {"a": ["b"]}}, "make a taxonomy by themselves"),
        ({"prefixes": [0]}, "must be at least 1"),
        ({"publish": "median"}, "give taxonomy or prefixes"),
    ],
)
def test_prefixes_that_make_no_groups_are_refused(tmp_path: Path, keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(PolicyError, match=fault):
        load(tmp_path, [QUASI | {"scale": "nominal"} | keys])


@pytest.mark.parametrize(("command", "form"), WAYS)
def test_missing_texts_are_missing_in_fields_of_every_role_and_type(tmp_path: Path, command: str, form: str) -> None:
    quasi = [
        QUASI | {"bounds": [0, 9]},
        TIME,
        QUASI | {"scale": "nominal"},
        QUASI | {"scale": "ordinal", "order": [1, 2]},
    ]
    others = [{"role": "confidential", "type": kind} for kind in ("number", "integer", "boolean")]
    other = {"role": "other", "type": "number", "publish_unchanged": True}
    attributes = [*(one | {"missing": "group"} for one in quasi), *others, other, {"role": "identifier"}]
    policy = load(tmp_path, attributes, missing_values=["", "NA", "?"], privacy={"k": ROWS}, stream={"delta": ROWS})
    # A column of numbers has no texts.
    number = [None] if form == "parquet" else ["NA"]
    found = published(tmp_path, command, form, [number, *[["NA"]] * (len(attributes) - 1)], policy)
    assert found == [[""]] * 8


def test_missing_texts_of_a_type_with_texts_are_published_as_they_are(tmp_path: Path) -> None:
    kinds = [{"role": "confidential", "type": kind} for kind in ("string", "any")]
    policy = load(tmp_path, [QUASI | {"bounds": [0, 9]}, *kinds], missing_values=["NA"])
    assert published(tmp_path, "batch", "jsonl", [[1], ["NA"], ["NA"]], policy)[1:] == [["NA"]] * 2


def test_a_leaf_that_means_missing_is_left_out_of_its_taxonomy_and_told(tmp_path: Path) -> None:
    (tmp_path / "job.csv").write_text("leaf;group\nnurse;care\ncook;house\n?;*\n")
    attribute = QUASI | {"scale": "nominal", "taxonomy": "job.csv", "unknown": "quarantine", "missing": "group"}
    policy = load(tmp_path, [attribute], missing_values=["", "?"], privacy={"k": ROWS}, stream={"delta": ROWS})
    assert published(tmp_path, "pipe", "csv", [["nurse"]], policy) == [["nurse"]]
    assert published(tmp_path, "pipe", "csv", [["?"]], policy) == [[""]]
    warned = run_command("check", str(tmp_path / "policy.json")).stderr.decode()
    assert "attributes.x0: 1 of its leaves are texts of missing_values, and left out of its taxonomy" in warned
    with pytest.raises(PolicyError, match="has no leaf that is not in missing_values"):
        load(tmp_path, [attribute], missing_values=["nurse", "cook", "?"])


@pytest.mark.parametrize("source", ["parts", "parts/*.csv"])
@pytest.mark.parametrize("option", ["-o", "--evidence"])
def test_no_output_lies_where_the_next_run_reads_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.csv").write_text("who;x0;ill\na;1;n\nb;2;n\n")
    load(tmp_path, [{"role": "quasi_identifier", "integer": True}])
    outputs = {"-o": "out.csv", "--evidence": "evidence.csv"} | {option: "parts/new.csv"}
    words = [word for pair in outputs.items() for word in pair]
    ended = run_command("pipe", "policy.json", "-i", source, *words)
    assert ended.returncode == 2
    said = f"parts/new.csv: the next run would read it as records of {source}; give another folder"
    assert said in ended.stderr.decode()
    assert sorted(one.name for one in parts.iterdir()) == ["a.csv"]


NUMBERS: list[tuple[dict[str, Any], list[Any], str]] = [
    ({"thousands": ".", "symbol": "€"}, ["1.234.567,50 €", "€ 1234567,5", "€1.234.567,50"], "1234567.5"),
    ({"thousands": " "}, ["-12 345,5", "-12\u00a0345,5", "-12\u202f345,5", "-12345,50"], "-12345.5"),
    ({"thousands": "'", "symbol": "CHF"}, ["CHF 1'234", "1’234 CHF", "+1234"], "1234.0"),
    ({"symbol": "%", "integer": True}, ["12 %", "12%", "12", "12,0\u00a0%"], "12.0"),
    ({"symbol": "$", "resolution": 0.1}, ["-$,50", "$-0,5"], "-0.5"),
    ({"symbol": "€", "missing": "group"}, ["99 €", "99"], ""),
]


@pytest.mark.parametrize(("command", "form"), WAYS)
def test_written_numbers_are_published_plainly_and_judged(tmp_path: Path, command: str, form: str) -> None:
    attributes = [QUASI | {"bounds": [-1e7, 1e7], "resolution": 0.5} | keys for keys, _, _ in NUMBERS]
    comma = {"delimiter": ";", "decimal": ",", "output": {"decimal": "."}}
    policy = load(tmp_path, attributes, csv=comma, missing_values=["", "99"])
    found = published(tmp_path, command, form, [values for _, values, _ in NUMBERS], policy)
    assert found == [[expected] for _, _, expected in NUMBERS]


def test_judge_and_engine_read_the_same_texts_as_written_numbers(tmp_path: Path) -> None:
    refused = ["1.23", "1.2345", "12.34.567", ".123", "1.234.", "1,", "€5€", "--5", "-€-5", "5 €", "1e5", "1 234", "€"]
    refused += ["1.234,5.6", "$5", "٣", "9" * 400, "1,234.50"]
    written = {"bounds": [0, 9], "thousands": ".", "symbol": "€"}
    policy, attribute = only(tmp_path, QUASI | written, csv={"delimiter": ";", "decimal": ","})
    for form in ("csv", "jsonl"):
        judged = value_reader(attribute, form, POINT, ("",), None)
        for text in refused:
            is_valid = text == "5 €"
            assert (judged(text) is not None) == is_valid, text
            cause = "" if is_valid else "not a number in the form of thousands and symbol"
            assert describe_cell(policy, attribute, text, has_commas=True) == cause
    _, plain = only(tmp_path, QUASI | {"bounds": [0, 9]})
    assert "with separators of thousands, a sign such as % or €" in describe_cell(policy, plain, "1.234,50 €")


@pytest.mark.parametrize(
    ("keys", "more", "fault"),
    [
        ({"thousands": "."}, {}, "is also the decimal sign; set csv: {decimal: ','}"),
        ({"thousands": ","}, {"csv": {"delimiter": ";", "decimal": ","}}, "set csv: {decimal: '.'}"),
        ({"symbol": "4"}, {}, "must have no digits, blanks at its ends"),
        ({"symbol": "€", "scale": "nominal"}, {}, "only for scale numeric"),
    ],
)
def test_written_numbers_that_mean_two_things_are_refused(
    tmp_path: Path, keys: dict[str, Any], more: dict[str, Any], fault: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, [QUASI | keys], **more)
    assert fault in str(caught.value)


@pytest.mark.parametrize("source", ["lake", "lake/*/*/*.parquet"])
def test_folders_of_hive_are_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(tmp_path)
    attributes = [QUASI | {"bounds": [2000, 2030], "integer": True}, QUASI | {"scale": "nominal", "missing": "group"}]
    policy = load(tmp_path, [*attributes, QUASI | {"bounds": [0, 9]}], privacy={"k": 4})
    for number in range(3):
        folder = (
            tmp_path / "lake" / f"x0=20{24 + number}" / f"x1={['a%20b', '01', '__HIVE_DEFAULT_PARTITION__'][number]}"
        )
        folder.mkdir(parents=True)
        rows = [{"who": f"p{number}{i}", "x2": i, "ill": "a"} for i in range(4)]
        pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")
    words = ["-i", source, "-o", "out.csv", "--evidence", "e.jsonl", "--summary", "s.json"]
    ended = run_command("batch", "policy.json", *words)
    assert "12 in, 12 out" in ended.stderr.decode(), ended.stderr.decode()
    verdict = verify(policy, source, *(tmp_path / one for one in ("out.csv", "e.jsonl", "s.json")), table=True)
    assert verdict.exit_code == 0, verdict.text()
    published = {tuple(line.split(";")[:2]) for line in Path("out.csv").read_text().splitlines()[1:]}
    assert published == {("2024", "a b"), ("2025", "01"), ("2026", "")}
    assert read_sample(source, None).columns[("x0",)] == [2024] * 4 + [2025] * 4 + [2026] * 4
    (tmp_path / "lake" / "x0=many").mkdir()
    (tmp_path / "lake" / "x0=2024").rename(tmp_path / "lake" / "x0=many")
    assert run_command("batch", "policy.json", *words).returncode == 2


def test_decimals_are_numbers_up_to_15_digits(tmp_path: Path) -> None:
    policy = load(tmp_path, [QUASI | {"bounds": [0, 9], "missing": "group"}], missing_values=["", "7"])
    for digits, released in ((15, True), (16, False)):
        kind = pa.decimal128(digits, 10)
        values = [None if i % 4 == 1 else Decimal("7" if i % 4 == 2 else "0.1000000003") for i in range(ROWS)]
        columns = {"who": [f"p{i}" for i in range(ROWS)], "x0": pa.array(values, kind), "ill": ["a"] * ROWS}
        pq.write_table(pa.table(columns), tmp_path / "in.parquet")
        paths = [tmp_path / name for name in ("in.parquet", "out.csv", "e.jsonl", "s.json")]
        words = ["-i", paths[0], "-o", paths[1], "--evidence", paths[2], "--summary", paths[3]]
        ended = run_command("batch", str(tmp_path / "policy.json"), *map(str, words))
        assert (ended.returncode == 0) == released
        if not released:
            assert "at most 15 digits; cast it from decimal128(16, 10) to float64" in ended.stderr.decode()
            continue
        assert verify(policy, *paths, table=True).exit_code == 0
        assert sorted({line.split(";")[0] for line in paths[1].read_text().splitlines()[1:]}) == ["", "0.10"]
