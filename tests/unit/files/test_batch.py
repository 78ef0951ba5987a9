"""`shoal batch`: tables of all formats, their options and faults; the judge checks every release."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.audit import Verdict, verify
from shoal.cli import main
from shoal.files.batch import parse_algorithm_options
from shoal.formats.parquet import encode_parquet
from shoal.policy import Policy

pytestmark = pytest.mark.unit

ATTRIBUTES: dict[str, Any] = {
    "note": {"role": "confidential", "type": "string"},
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "resolution": 1},
    "income": {"role": "quasi_identifier", "weight": 2.0},
    "wage": {"role": "confidential", "type": "integer"},
    "ward": {"role": "other", "type": "string", "publish_unchanged": True},
}
NAMES = list(ATTRIBUTES)


KEEP_ORDER: dict[str, Any] = {"table": {"keep_order": True}}


def policy_of(folder: Path, attributes: dict[str, Any] | None = None, **more: Any) -> Path:
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"attributes": attributes or ATTRIBUTES, "privacy": {"k": 3, "max_share": 0.5}} | more))
    return path


def records(count: int, people: int = 10**9, seed: int = 1) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "note": f"note, {number}",
            "who": f"p{draw.randrange(people)}",
            "age": draw.randrange(111),
            "income": round(draw.lognormvariate(10, 1), 2),
            "wage": draw.randrange(5),
            "ward": draw.choice("abc"),
        }
        for number in range(count)
    ]


def csv_of(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(csv_of(rows) if path.suffix == ".csv" else "".join(json.dumps(row) + "\n" for row in rows))
    return path


def batch(policy: Path, source: Path, target: Path, *more: str) -> tuple[dict[str, Any], Verdict]:
    """Run `shoal batch`, whose release the judge accepts; return summary and verdict."""
    evidence, summary, quarantine = (target.parent / name for name in ("evidence", "summary", "quarantine"))
    beside = ["--evidence", str(evidence), "--summary", str(summary), "--quarantine", str(quarantine)]
    assert main(["batch", str(policy), "-i", str(source), "-o", str(target), *beside, *more]) == 0
    verdict = verify(Policy.load(policy), source, target, evidence, summary, quarantine=quarantine, table=True)
    assert verdict.exit_code == 0, verdict.text()
    return json.loads(summary.read_text()), verdict


def refusal(capsys: pytest.CaptureFixture[str], policy: Path, source: Path, *more: str, target: str = "out.csv") -> str:
    """Return why `shoal batch` refuses an input. It writes no output."""
    out = source.parent / target
    assert main(["batch", str(policy), "-i", str(source), "-o", str(out), *more]) == 2
    assert not out.exists()
    return capsys.readouterr().err


@pytest.mark.parametrize("source", ["in.csv", "in.jsonl", "in.parquet"])
@pytest.mark.parametrize("target", ["out.csv", "out.jsonl", "out.parquet"])
def test_a_table_is_released_in_every_format_and_the_judge_agrees(source: str, target: str, tmp_path: Path) -> None:
    path = write(tmp_path / source, records(60, people=30))
    result, verdict = batch(policy_of(tmp_path), path, tmp_path / target)
    assert (result["records"], result["released"], result["suppressed"]) == (60, 60, 0)
    assert result["cluster_size"]["min"] >= 3
    assert (result["algorithm"], result["refine"], result["keep_order"]) == ("auto", "descent", False)
    assert verdict.counts["clusters"] == result["clusters"]


def test_the_exact_refinement_reports_bound_and_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.csv", records(40))
    more = ["--refine", "exact", "--param", "time_s=20"]
    result, _ = batch(policy_of(tmp_path), source, tmp_path / "out.csv", *more)
    assert result["bound"] > 0
    assert 0 <= result["gap"] < 0.2
    assert "loss is above the proven lower bound by at most" in capsys.readouterr().err
    result, _ = batch(policy_of(tmp_path), source, tmp_path / "out.csv")
    assert (result["bound"], result["gap"]) == (None, None)


def test_approximate_reports_the_loss_of_mdav_and_warns_if_its_own_is_larger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.csv", records(90))
    numbers = ("age", "income", "wage")
    for number, is_warned in ((1, False), (3, True)):
        own = {name: {"role": "quasi_identifier"} for name in numbers[:number]}
        policy = policy_of(tmp_path, ATTRIBUTES | {name: {"role": "identifier"} for name in numbers} | own)
        mdav, _ = batch(policy, source, tmp_path / "out.csv", "--algorithm", "mdav")
        assert "mdav" not in mdav
        result, _ = batch(policy, source, tmp_path / "out.csv", "--algorithm", "approximate")
        assert result["mdav"]["sse"] == pytest.approx(mdav["sse"])
        assert (result["sse"] > mdav["sse"]) == is_warned
        assert ("times_mdav" in capsys.readouterr().err) == is_warned


def test_a_release_of_one_cluster_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sorted(records(90), key=lambda row: row["income"])
    rows = [row | {"note": "ab"[number > 44]} for number, row in enumerate(rows)]
    source, policy = write(tmp_path / "in.csv", rows), policy_of(tmp_path, privacy={"k": 3, "t": 0.05})
    result, _ = batch(policy, source, tmp_path / "out.csv", "--algorithm", "mdav")
    assert result["clusters"] == 1
    assert "ONE CLUSTER" in capsys.readouterr().err
    batch(policy_of(tmp_path), source, tmp_path / "out.csv")
    assert "ONE CLUSTER" not in capsys.readouterr().err
    batch(policy_of(tmp_path), write(tmp_path / "in.csv", rows[:5]), tmp_path / "out.csv")
    assert "ONE CLUSTER" not in capsys.readouterr().err


def test_steered_without_t_publishes_at_its_weight_and_says_which_distance_it_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write(tmp_path / "in.csv", records(90, people=60)), tmp_path / "out.csv"
    steered = ["--algorithm", "steered", "--param", "target_t=0.2"]
    assert "there are 2; with privacy.l" in refusal(capsys, policy_of(tmp_path), source, *steered, target="no.csv")
    alone = ATTRIBUTES | {"note": ATTRIBUTES["ward"]}
    marked = ATTRIBUTES | {"wage": ATTRIBUTES["wage"] | {"protect": True}}
    for attributes, privacy in ((alone, {"k": 3}), (marked, {"k": 3, "l": 2})):
        policy, reached = policy_of(tmp_path, attributes, privacy=privacy), []
        for weight in (0, 1000):
            result, _ = batch(policy, source, target, *steered, "--param", f"weight={weight}")
            reached.append(result["emd_of"]["wage"])
            assert result["clusters"] > 9
            assert "t-closeness is not guaranteed" in (said := capsys.readouterr().err)
            assert f"emd_max={round(reached[-1]['max'], 4)}" in said
        assert reached[1]["mean"] < reached[0]["mean"]


def test_blocks_share_the_annealing_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("shoal.files.batch.time.monotonic", lambda: now[0])
    budget_for = parse_algorithm_options("auto", "anneal", ["time_s=8", "blocks=1"], 0).budget_for
    assert budget_for is not None
    budget_used = budget_for(100, 2)
    assert budget_used(0) == 0
    now[0] += 3.0
    assert budget_used(5) == 0.75
    now[0] += 1.0
    assert budget_used(9) == 1


def test_evidence_is_complete_before_rows_are_written_to_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []
    evidence = tmp_path / "e"
    monkeypatch.setattr("shoal.files.batch._write_rows", lambda *_: there.append(evidence.exists()))
    source = write(tmp_path / "in.csv", records(30))
    names = ["-i", str(source), "--output-format", "csv", "--evidence", str(evidence)]
    words = ["batch", str(policy_of(tmp_path)), *names]
    assert main([*words, "-o", "-"]) == 0
    evidence.unlink()
    assert main([*words, "-o", str(tmp_path / "out.csv")]) == 0
    assert there == [True, False]


def test_rows_are_sorted_by_their_bytes_unless_the_policy_allows_the_input_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = records(40)
    source, out = write(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    assert "table: {keep_order: true}" in refusal(capsys, policy_of(tmp_path), source, "--keep-order")
    for allowed in ({}, KEEP_ORDER):  # which is not asked for
        batch(policy_of(tmp_path, **allowed), source, out)
        lines = out.read_bytes().splitlines()
        assert lines[1:] == sorted(lines[1:])
    result, _ = batch(policy_of(tmp_path, **KEEP_ORDER), source, out, "--keep-order")
    with out.open(newline="") as file:
        assert [row["note"] for row in csv.DictReader(file)] == [row["note"] for row in rows]
    assert result["keep_order"] is True


def test_a_subject_above_max_share_of_the_table_is_cut_to_it(tmp_path: Path) -> None:
    rows = records(40, people=8)
    for row in rows[:30]:
        row["who"] = "p0"
    others = sum(row["who"] != "p0" for row in rows)
    source = write(tmp_path / "in.csv", rows)
    result, _ = batch(policy_of(tmp_path), source, tmp_path / "out.csv")
    assert result["suppressed"] == 40 - 2 * others
    assert result["released"] == 2 * others


def test_privacy_options_apply_to_tables(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", records(60, people=9))
    policy = policy_of(tmp_path, privacy={"k": 3, "per_subject": {"max": 2, "window": 30}})
    result, verdict = batch(policy, source, tmp_path / "out.csv")
    assert verdict["releases"].status == "holds"
    assert result["suppressed"] > 0


def test_numbers_with_squares_beyond_float64_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = records(20)
    rows[1]["note"] = "two\nlines"
    rows[7]["income"] = -1e300
    source = write(tmp_path / "in.csv", rows)
    assert "in.csv, line 10, field income: a number beyond 1e+150; give income in another unit" in refusal(
        capsys, policy_of(tmp_path), source
    )


@pytest.mark.parametrize(
    ("privacy", "subjects", "words"),
    [
        ({"k": 5}, 4, "fewer than 5 different subjects"),
        ({"k": 3, "min_population": 9}, 5, "fewer than 9 different subjects"),
    ],
)
def test_a_table_of_too_few_subjects_is_refused(
    privacy: dict[str, Any], subjects: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.csv", records(60, people=subjects))
    assert words in refusal(capsys, policy_of(tmp_path, privacy=privacy), source)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("in.csv", {"age": "x"}, "line 10, column 3 (age): not a finite number"),
    ("in.csv", {"age": "1.5"}, "line 10, column 3 (age): not a whole number"),
    ("in.csv", {"income": "1e999"}, "line 10, column 4 (income): not a finite number"),
    ("in.csv", {"who": " "}, "line 10, column 2 (who): not a valid subject"),
    ("in.csv", {"wage": "many"}, "line 10, column 5 (wage): not of type integer"),
    ("in.jsonl", {"age": 1.5}, "line 8, field age: not a whole number"),
    ("in.jsonl", {"wage": 0.5}, "line 8, field wage: not of type integer"),
    ("in.jsonl", {"note": 7}, "line 8, field note: not of type string"),
    ("in.jsonl", {"who": None}, "line 8, field who: not a valid subject"),
    ("in.jsonl", {"more": 1}, "line 8: a field that the policy does not declare"),
    ("in.parquet", {"age": 1.5}, "row 8, field age: not a whole number"),
    ("in.parquet", {"note": None, "who": None}, "row 8, field who: not a valid subject"),
]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED)
def test_an_invalid_record_is_reported_with_its_place_and_nothing_is_written(
    name: str, change: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = records(30)
    rows[1]["note"] = "two\nlines"
    rows[7] |= change
    source, policy = write(tmp_path / name, rows), policy_of(tmp_path)
    told = refusal(capsys, policy, source, "--summary", str(tmp_path / "summary"))
    remedy = "correct the record or remove it: a table is released whole or not at all"
    assert told.startswith(f"shoal: {source}, {words}")
    assert f"; {remedy}; what to change: " in told
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "policy.yaml"]


def test_all_invalid_records_are_counted_by_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = records(600)
    for i in range(0, 600, 4):
        rows[i]["income"] = ""
    for i in range(0, 600, 10):
        rows[i]["age"] = "canary"
    source = write(tmp_path / "in.csv", rows)
    told = refusal(capsys, policy_of(tmp_path), source)
    assert told.startswith(
        f"shoal: {source}, line 2, column 3 (age): not a finite number; correct the record or remove"
    )
    # Records that lack a value only are quarantined and are no reason to refuse the table.
    kinds = "60 of 600 invalid: age: not a finite number; 30 of 600 invalid: income: empty"
    assert f"; 60 records are refused ({kinds}); what to change: age: a quasi-identifier must be a number;" in told
    assert "canary" not in told


def test_an_empty_or_compressed_file_is_refused_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, words in (
        ("in.csv", "in.csv, line 1: the file is empty; give at least a header"),
        ("in.csv.zip", "use a pipe"),
    ):
        (tmp_path / name).write_bytes(b"")
        assert words in refusal(capsys, policy_of(tmp_path), tmp_path / name)


def test_a_named_algorithm_is_not_refined_and_the_seed_decides(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", records(60))
    result, _ = batch(policy_of(tmp_path), source, tmp_path / "out.csv", "--algorithm", "mdav")
    assert result["refine"] == "none"
    refined, _ = batch(policy_of(tmp_path), source, tmp_path / "out.csv", "--algorithm", "mdav", "--refine", "descent")
    assert refined["sse"] < result["sse"]
    outputs = set()
    for seed in ("1", "1", "2"):
        more = ["--algorithm", "genetic", "--param", "generations=200", "--seed", seed]
        batch(policy_of(tmp_path), source, tmp_path / "out.csv", *more)
        outputs.add((tmp_path / "out.csv").read_bytes())
    assert len(outputs) == 2


def test_columns_of_parquet_keep_order_and_type(tmp_path: Path) -> None:
    rows = [row | {"wage": None if row["wage"] == 0 else row["wage"]} for row in records(30)]
    rows = [row | {"seen": datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=n)} for n, row in enumerate(rows)]
    schema = pa.schema(
        {
            "note": pa.large_string(),
            "who": pa.string(),
            "age": pa.int8(),
            "income": pa.float32(),
            "wage": pa.int16(),
            "ward": pa.dictionary(pa.int32(), pa.string()),
            "seen": pa.timestamp("us", tz="UTC"),
        }
    )
    attributes = ATTRIBUTES | {"seen": {"role": "confidential", "publish_unchanged": True}}
    source = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), source)
    batch(policy_of(tmp_path, attributes, **KEEP_ORDER), source, tmp_path / "out.parquet", "--keep-order")
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.schema.names == ["note", "age", "income", "wage", "ward", "seen"]
    for name in ("note", "age", "wage", "ward", "seen"):
        assert out.schema.field(name).type == schema.field(name).type, name
    assert out.schema.field("income").type == pa.float64()
    original = pq.read_table(source)
    for name in ("note", "wage", "ward", "seen"):
        assert out[name].to_pylist() == original[name].to_pylist()


@pytest.mark.parametrize(
    ("kind", "published"),
    [
        (pa.int8(), pa.int64()),  # 127 would become 150
        (pa.uint8(), pa.uint8()),  # 255 becomes 250
    ],
)
def test_a_column_of_parquet_is_widened_where_the_grid_needs_it(
    kind: pa.DataType, published: pa.DataType, tmp_path: Path
) -> None:
    attributes = {"a": {"role": "quasi_identifier", "integer": True, "resolution": 50}}
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"a": pa.array(range(100, 128), kind)}), source)
    batch(policy_of(tmp_path, attributes, subject="every_record"), source, out)
    assert pq.read_table(out).schema.field("a").type == published


def test_large_and_signed_numbers_of_parquet_are_published(tmp_path: Path) -> None:
    attributes = {"age": ATTRIBUTES["age"], "cost": {"role": "confidential", "type": "number"}}
    costs = [1e300, 1e19, -1e19, -0.0, float(2**53), 0.1]
    pq.write_table(pa.table({"age": list(range(6)), "cost": costs}), tmp_path / "in.parquet")
    out = tmp_path / "out.parquet"
    batch(policy_of(tmp_path, attributes, subject="every_record"), tmp_path / "in.parquet", out)
    found = pq.read_table(out)["cost"].to_pylist()
    assert sorted(found) == sorted(costs)
    assert "-0.0" not in map(str, found)


def test_an_invalid_parquet_file_or_column_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.parquet"
    rows = records(20)
    pq.write_table(pa.Table.from_pylist(rows), source)
    whole = source.read_bytes()
    tables = [
        (b"age,income", "not a valid Parquet file"),
        (whole[:-30], "not a valid Parquet file"),
        ([row | {"more": 1} for row in rows], "column 'more' is not declared"),
        ([{k: v for k, v in row.items() if k != "age"} for row in rows], "column 'age' is missing"),
        ([row | {"age": "old"} for row in rows], "column 'age': a quasi_identifier must be a column of numbers"),
        ([row | {"note": [1]} for row in rows], "nested and binary columns are not supported"),
        (
            [row | {"age": Decimal("1" * 14 + ".50")} for row in rows],
            "at most 15 digits; cast it from decimal128(16, 2)",
        ),
    ]
    for content, words in tables:
        if isinstance(content, bytes):
            source.write_bytes(content)
        else:
            pq.write_table(pa.Table.from_pylist(content), source)
        assert words in refusal(capsys, policy_of(tmp_path), source)


@pytest.mark.parametrize(("kind", "name"), [("integer", "in.jsonl"), ("number", "in.csv"), ("any", "in.jsonl")])
def test_integers_with_the_same_float_are_different_values(kind: str, name: str, tmp_path: Path) -> None:
    attributes = ATTRIBUTES | {"wage": {"role": "confidential", "type": kind}}
    del attributes["note"]
    rows = [row | {"wage": 2**60 + number} for number, row in enumerate(records(60))]
    source = write(tmp_path / name, rows)
    policy = policy_of(tmp_path, attributes, privacy={"k": 3, "t": 0.2}, undeclared="drop")
    result, verdict = batch(policy, source, tmp_path / "out.csv")
    assert 0 < result["emd"]["max"] == pytest.approx(verdict["closeness"].worst)


def test_parquet_types_come_from_all_rows_and_rows_are_written_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.formats.parquet.ROWS_PER_GROUP", 10)
    attributes = ATTRIBUTES | {"note": {"role": "confidential"}}
    rows = [row | {"note": None if n < 25 else n if n < 50 else n + 0.5} for n, row in enumerate(records(60))]
    source = write(tmp_path / "in.jsonl", rows)
    batch(policy_of(tmp_path, attributes, **KEEP_ORDER), source, tmp_path / "out.parquet", "--keep-order")
    assert pq.read_table(tmp_path / "out.parquet")["note"].to_pylist() == [row["note"] for row in rows]
    lines = [b'{"note":1,"age":1,"income":1,"wage":1,"ward":""}'] * 25
    assert len(list(encode_parquet(lines, Policy.load(policy_of(tmp_path, attributes))))) == 4
    policy = policy_of(tmp_path, attributes)
    for unfit in ("word", 2**53 + 1):  # float64 cannot hold the integer
        rows[55]["note"] = unfit
        source = write(tmp_path / "in.jsonl", rows)
        assert "attributes.note: its values do not fit one Parquet type; set attributes.note.type" in refusal(
            capsys, policy, source, target="again.parquet"
        )


def test_text_of_parquet_that_is_not_utf_8_is_reported_with_its_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = pa.array([b"CANARY\xff"] * 6, pa.binary())
    notes = pa.StringArray.from_buffers(6, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"age": list(range(6)), "note": notes}), tmp_path / "in.parquet")
    attributes = {name: ATTRIBUTES[name] for name in ("age", "note")}
    told = refusal(capsys, policy_of(tmp_path, attributes, subject="every_record"), tmp_path / "in.parquet")
    assert "in.parquet, column 'note': a text is not UTF-8; write the file again" in told
    assert "CANARY" not in told


@pytest.mark.parametrize("change", [{"age": 0.1, "wage": 0.1}, {"income": 1e-300, "wage": 1e-300}])
def test_equal_numbers_and_numbers_too_small_to_be_squared_have_no_influence(
    change: dict[str, float], tmp_path: Path
) -> None:
    attributes = ATTRIBUTES | {"age": {"role": "quasi_identifier"}, "wage": {"role": "confidential", "type": "number"}}
    factors = range(30) if "income" in change else [1] * 30
    rows = [
        row | {name: value * factor for name, value in change.items()}
        for row, factor in zip(records(30), factors, strict=True)
    ]
    result, _ = batch(policy_of(tmp_path, attributes), write(tmp_path / "in.csv", rows), tmp_path / "out.csv")
    assert (result["sst"], result["d_y"]) == (30, None)


def test_blocks_are_reported_as_not_k_anonymous(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out, summary = write(tmp_path / "in.csv", records(60)), tmp_path / "out.csv", tmp_path / "summary"
    policy = policy_of(tmp_path)
    words = ["batch", str(policy), "-i", str(source), "-o", str(out), "--summary", str(summary)]
    assert main([*words, "--param", "blocks=1"]) == 0
    assert "NOT K-ANONYMOUS" in capsys.readouterr().err
    result = json.loads(summary.read_text())
    assert (result["jointly_k_anonymous"], result["blocks"], result["d_y"]) == (False, 1, None)
    assert verify(Policy.load(policy), source, out).exit_code == 1
    policy_of(tmp_path, steering={"dependence": 1})  # which makes one block of all
    for more in ([], ["--param", "blocks=1"]):
        assert main([*words, *more]) == 0
        assert "NOT" not in capsys.readouterr().err
        assert "jointly_k_anonymous" not in json.loads(summary.read_text())
