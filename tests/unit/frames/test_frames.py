"""`anonymize_table`: pandas, polars and pyarrow in, the same kind out, with the bytes of `shoal batch`."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from shoal import Policy, anonymize_table
from shoal.cli import main
from shoal.errors import ConfigError, InputError, ParameterError, PolicyError
from shoal.frames.native import NativeFrame

pytestmark = pytest.mark.unit

ATTRIBUTES: dict[str, Any] = {
    "ward": {"role": "other", "type": "string", "publish_unchanged": True},
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "resolution": 1},
    "income": {"role": "quasi_identifier", "bounds": [0, 200_000]},
    "job": {"role": "quasi_identifier", "scale": "nominal"},
    "seen": {"role": "quasi_identifier", "scale": "time", "resolution": "h"},
    "visits": {"role": "confidential", "type": "integer"},
}
POLICY: dict[str, Any] = {"attributes": ATTRIBUTES, "privacy": {"k": 3}, "stream": {"delta": 20}}
COUNT = 60
KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda table: table,
    "polars": pl.from_pandas,
    "pyarrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
}


def records(count: int = COUNT) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "who": [f"p{number}" for number in range(count)],
            "age": draw.integers(0, 110, count),
            "income": draw.lognormal(10, 1, count).round(2).clip(0, 200_000),
            "job": draw.choice(["nurse", "cook, chef", "driver"], count),
            "seen": pd.date_range("2026-01-01", periods=count, freq="7h", tz="Europe/Berlin"),
            "visits": pd.array([None if number % 7 == 0 else number % 5 for number in range(count)], "Int64"),
            "ward": draw.choice(["x", "y"], count),
        }
    )


def policy_of(folder: Path, policy: dict[str, Any]) -> Path:
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy), encoding="utf-8")
    return path


def rows_of(release: Any) -> list[bytes]:
    """Published rows as JSON, made of the released frame alone."""
    found = NativeFrame(release.table).released_arrow(release._policy)
    integral = {name for name in found.schema.names if name in {"age", "income"}}
    return [
        json.dumps(
            {name: int(v) if name in integral and v is not None and v == int(v) else v for name, v in row.items()},
            separators=(",", ":"),
        ).encode()
        for row in found.to_pylist()
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_frame_and_its_file_give_the_same_bytes(kind: str, suffix: str, tmp_path: Path) -> None:
    table, path = records(), tmp_path / f"in.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path, index=False)
    released = tmp_path / "out.jsonl"
    assert main(["batch", str(policy_of(tmp_path, POLICY)), "-i", str(path), "-o", str(released)]) == 0
    release = anonymize_table(KINDS[kind](table), POLICY)
    assert rows_of(release) == released.read_bytes().splitlines()
    assert type(release.table) is type(KINDS[kind](table))
    assert release.verify().outcome == "holds"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_a_frame_and_of_its_file_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    table, path, released = records(), tmp_path / "in.csv", tmp_path / "out.jsonl"
    table.to_csv(path, index=False)
    evidence = tmp_path / "evidence.jsonl"
    files = ["-i", str(path), "-o", str(released), "--evidence", str(evidence)]
    assert main(["pipe", str(policy_of(tmp_path, POLICY)), *files]) == 0
    release = anonymize_table(KINDS[kind](table), POLICY, stream=True)
    assert rows_of(release) == released.read_bytes().splitlines()
    assert [json.dumps(one) for one in release.evidence] == [
        json.dumps(json.loads(line)) for line in evidence.read_text().splitlines()
    ]
    assert release.verify().outcome == "holds"


def test_a_stream_takes_more_rows_than_a_block() -> None:
    age = {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}
    policy = {"subject": "every_record", "attributes": {"age": age}, "privacy": {"k": 2}, "stream": {"delta": 3}}
    release = anonymize_table(pl.DataFrame({"age": [number % 7 for number in range(2_100)]}), policy, stream=True)
    assert len(release.table) == 2_100
    assert sorted(offset for one in release.evidence for offset in one["offsets"]) == list(range(2_100))


TYPES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "size": {"role": "quasi_identifier", "resolution": 1, "bounds": [0, 100]},
    "pay": {"role": "quasi_identifier"},
    "level": {"role": "quasi_identifier", "scale": "ordinal", "order": ["low", "mid", "high"]},
    "kind": {"role": "quasi_identifier", "scale": "nominal"},
    "seen": {"role": "quasi_identifier", "scale": "time", "resolution": "15min"},
    "born": {"role": "quasi_identifier", "scale": "time", "resolution": "month", "missing": "group"},
    "note": {"role": "confidential"},
    "price": {"role": "confidential"},
    "flag": {"role": "confidential"},
    "score": {"role": "confidential"},
    "took": {"role": "confidential"},
}


def typed_records() -> pd.DataFrame:
    numbers = range(12)
    return pd.DataFrame(
        {
            "who": pd.array(numbers, "int64"),
            "size": pd.array(numbers, "int16"),
            "pay": pd.array(numbers, "Int64"),
            "level": pd.Categorical(
                ["mid", "low", "high", None][:3] * 4, categories=["low", "mid", "high"], ordered=True
            ),
            "kind": pd.Categorical(["b", "a"] * 6, categories=["b", "a", "secret"]),
            "seen": pd.date_range("2026-03-01", periods=12, freq="7min", tz="Europe/Berlin", unit="s"),
            "born": [dt.date(1980, 1 + number, 1) if number < 9 else None for number in numbers],
            "note": pd.array(["x", pd.NA] * 6, "string"),
            "price": [Decimal("1.50"), None] * 6,
            "flag": pd.array([True, None, False] * 4, "boolean"),
            "score": [1.5, float("nan")] * 6,
            "took": [dt.time(1)] * 12,
        }
    )


PANDAS_TYPES = {
    "size": "int16",
    "pay": "Float64",
    "level": "category",
    "kind": "category",
    "seen": "datetime64[s, Europe/Berlin]",
    "born": "object",
    "note": "string",
    "price": "object",
    "flag": "boolean",
    "score": "float64",
    "took": "object",
}
POLARS_TYPES = {
    "size": pl.Int16,
    "pay": pl.Float64,
    "level": pl.Enum(["low", "mid", "high"]),
    "kind": pl.Categorical,
    "seen": pl.Datetime("ms", "Europe/Berlin"),
    "born": pl.Date,
    "note": pl.String,
    "price": pl.Decimal(3, 2),
    "flag": pl.Boolean,
    "score": pl.Float64,
    "took": pl.String,
}


def test_columns_keep_types_where_the_published_values_allow_it() -> None:
    policy = {"attributes": TYPES, "privacy": {"k": 3}}
    release = anonymize_table(typed_records(), policy)
    made = release.table
    assert made.dtypes.astype(str).to_dict() == PANDAS_TYPES
    assert (made["kind"].cat.categories.tolist(), made["kind"].cat.ordered) == (["a", "b"], False)
    assert made["level"].cat.ordered
    assert made["note"].isna().sum() == 6
    assert {type(value) for value in made["born"]} == {dt.date, type(None)}
    assert {value.day for value in made["born"] if value} == {1}
    assert made["price"].tolist().count(Decimal("1.50")) == 6
    assert release.verify().outcome == "holds"
    table = pl.from_pandas(typed_records()).with_columns(pl.col("level").cast(pl.Enum(["low", "mid", "high"])))
    release = anonymize_table(table, policy)
    assert dict(release.table.schema) == POLARS_TYPES
    assert release.verify().outcome == "holds"


def test_the_index_is_kept_with_the_order_and_else_new() -> None:
    table = records()[::-1].set_axis(range(100, 100 + COUNT))
    assert anonymize_table(table, POLICY).table.index.equals(pd.RangeIndex(COUNT))
    kept = POLICY | {"table": {"keep_order": True}}
    release = anonymize_table(table.iloc[5:], kept)
    assert release.table.index.tolist() == list(range(105, 160))
    assert release.table["visits"].tolist() == table.iloc[5:]["visits"].tolist()
    assert release.verify().outcome == "holds"
    for label in (table.set_axis(table["who"]), table.rename_axis("row"), table.set_axis([1] * COUNT)):
        with pytest.raises(InputError, match=r"keeps the index, .* call reset_index\(\)"):
            anonymize_table(label, kept)


def changed(**columns: Any) -> pd.DataFrame:
    return records().assign(**columns)


HIDDEN = "secret 4711"
FAULTS: list[tuple[str, Any, str]] = [
    ("undeclared", changed(phone=HIDDEN), r"table: column 'phone' is not declared; declare it, or set undeclared: dr"),
    ("missing", records().drop(columns="age"), r"table: column 'age' is missing; add it, or remove it from the policy"),
    ("index", records().set_index("age"), r"table: column 'age' is the index; call reset_index\(\)"),
    ("text", changed(age=HIDDEN), r"table, column 'age': a quasi_identifier must be a column of numbers"),
    ("mixed", changed(age=[1, HIDDEN] * 30), r"table, column 'age': values of several types, .*; convert them"),
    ("nested", changed(visits=[[HIDDEN]] * COUNT), r"table, column 'visits': nested and binary columns are not supp"),
    ("period", changed(seen=pd.period_range("2026-01", periods=COUNT, freq="D")), r"table, column 'seen': values of"),
    (
        "objects",
        pl.from_pandas(records()).with_columns(ward=pl.Series([object()] * COUNT)),
        "table, column 'ward': val",
    ),
    ("value", changed(visits=[2.5] * COUNT), r"table, row 1, field visits: not of type integer; .* 60 records are ref"),
    ("null", changed(who=[None, *["p"] * 59]), r"table, row 1, field who: not a valid subject"),
    ("people", changed(who="p"), r"fewer than 3 different subjects"),
    ("empty", records(0), r"table: has no rows"),
    ("twice", pd.concat([records(), records()[["age"]]], axis=1), r"table: two columns have the same name"),
]


@pytest.mark.parametrize(("table", "words"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_frame_that_cannot_be_used_is_refused_by_column_and_without_values(table: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        anonymize_table(table, POLICY)
    assert "4711" not in str(refused.value)


def test_other_objects_and_policies_are_refused(tmp_path: Path) -> None:
    for table in ([1], pl.LazyFrame({"age": [1]}), records()["age"]):
        with pytest.raises(ParameterError, match=r"table: must be a DataFrame of pandas or polars"):
            anonymize_table(table, POLICY)
    with pytest.raises(ParameterError, match="policy: must be a path, a mapping or a Policy"):
        anonymize_table(records(), 3)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"privacy\.k: "):
        anonymize_table(records(), POLICY | {"privacy": {"k": 1}})
    path = policy_of(tmp_path, POLICY)
    made = [anonymize_table(records(), policy).table for policy in (POLICY, path, str(path), Policy.load(path))]
    assert all(made[0].equals(other) for other in made)


@pytest.mark.parametrize(
    ("module", "hidden", "words"),
    [
        ("shoal.frames", ["narwhals"], r"narwhals and pyarrow: install shoal\[frames\]"),
        ("shoal.sklearn", ["sklearn", "sklearn.base"], r"needs scikit-learn: install shoal\[sklearn\]"),
    ],
)
def test_a_missing_extra_is_named(module: str, hidden: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(module)]:
        monkeypatch.delitem(sys.modules, name)
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=words):
        import_module(module)


def test_nothing_of_the_input_passes_beside_the_published_values() -> None:
    table = changed(job=pd.Categorical(["nurse", "cook"] * 30, categories=["nurse", HIDDEN, "cook"]))
    table.attrs["owner"] = HIDDEN
    release = anonymize_table(table, POLICY)
    assert release.table.attrs == {}
    assert release.table["job"].cat.categories.tolist() == ["cook", "nurse"]
    unused = [f"{HIDDEN} {number}" for number in range(1 << 15)]  # the codes need 32 bits, as the published ones have
    many = changed(job=pd.Categorical(["nurse", "cook"] * 30, categories=["nurse", *unused, "cook"]))
    assert anonymize_table(many, POLICY).table["job"].cat.categories.tolist() == ["cook", "nurse"]
    arrow = pa.Table.from_pandas(table).replace_schema_metadata({"owner": HIDDEN})
    made = anonymize_table(arrow, POLICY | {"undeclared": "drop"}).table
    assert made.schema.metadata is None
    assert made.column("job").chunk(0).dictionary.to_pylist() == ["cook", "nurse"]


def test_a_release_shows_counts_and_no_values_and_the_judge_finds_an_altered_cell(tmp_path: Path) -> None:
    release = anonymize_table(changed(ward=HIDDEN), POLICY)
    shown = repr(release), release._repr_html_(), str(release.verify())
    assert "input: pandas, 60 records" in shown[0]
    assert re.search(r"clusters: \d+, each of at least 3 people", shown[0])
    assert shown[1].startswith("<table>")
    assert shown[2].startswith("holds: k is 3, promised 3; 60 of 60 records released")
    assert "text(verbose=True) shows" in shown[2]
    assert "4711" not in "".join(shown)
    assert (release.summary["records"], release.summary["algorithm"]) == (60, "auto")
    found = release.report(tmp_path / "report.html")
    assert found["verdict"]["sentence"].startswith("holds: k is 3, promised 3; 60 of 60 records")
    page = (tmp_path / "report.html").read_text()
    assert "holds: k is 3, promised 3" in page
    assert HIDDEN not in page
    with pytest.raises(ConfigError, match="give a name that ends in"):
        release.report(tmp_path / "report.pdf")
    release.table.loc[7, "seen"] += pd.Timedelta("1s")
    assert release.verify().outcome == "broken"
    assert release.report()["verdict"]["outcome"] == "broken"
