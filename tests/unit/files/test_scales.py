"""`shoal pipe` and `shoal batch` with records of all scales: the judge checks the releases."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.cli import main
from shoal.policy import Policy

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  who: {role: identifier, subject: true}
  age: {role: quasi_identifier, bounds: [0, 100], integer: true, missing: group}
  sex: {role: quasi_identifier, scale: nominal, missing: group}
  grade: {role: quasi_identifier, scale: ordinal, order: [low, middle, high], missing: mean}
  area: {role: quasi_identifier, scale: nominal, taxonomy: {West: [AK, CA], East: [NY, MA]}}
  city: {role: quasi_identifier, scale: nominal, taxonomy: {West: [AK, CA], East: [NY, MA]}, publish: median}
  day: {role: quasi_identifier, scale: time, bounds: ["2020-01-01", "2024-01-01"]}
  ill: {role: confidential, type: string}
privacy: {k: 3}
missing_values: ["", "?"]
stream: {delta: 20}
"""
NAMES = ["who", "age", "sex", "grade", "area", "city", "day", "ill"]


def rows_of(count: int) -> list[list[str]]:
    areas = ["AK", "CA", "NY", "MA", "XX"]
    return [
        [
            f"p{i}",
            "" if i % 4 == 0 else str(i * 37 % 100),
            "MF?"[i * i % 3],
            ["low", "middle", "high", ""][i * 5 % 4],
            areas[i * 3 % 5],
            areas[i * 7 % 4],
            "" if i % 40 == 39 else f"202{i % 4}-0{i % 9 + 1}-{10 + i % 19}",
            f"x{i % 7}",
        ]
        for i in range(count)
    ]


def released(folder: Path, command: str, rows: list[list[str]], suffix: str = "csv") -> tuple[Path, Path, Path]:
    """Release the rows; return policy, input and output."""
    policy, source, target = folder / "policy.yaml", folder / f"in.{suffix}", folder / f"out.{suffix}"
    policy.write_text(POLICY)
    if suffix == "csv":
        with source.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([NAMES, *rows])
    else:
        records = [dict(zip(NAMES, row, strict=True)) | {"age": int(row[1]) if row[1] else None} for row in rows]
        source.write_text("".join(json.dumps(record) + "\n" for record in records))
    options = [f"--{name}={folder / name}" for name in ("evidence", "quarantine", "summary")]
    assert main([command, str(policy), "-i", str(source), "-o", str(target), *options]) == 0
    return policy, source, target


NOT_EXAMINED = "how many values are not in their taxonomy, as the summary states"


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_values_that_a_taxonomy_lacks_are_counted(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in rows_of(120) if row[6]]
    rows[3][5] = "canary"
    policy, source, target = released(tmp_path, command, rows)
    summary = tmp_path / "summary"
    assert json.loads(summary.read_text())["unknown"] == {"area": 24, "city": 1}
    errors = capsys.readouterr().err
    words = "24 values of area are not in its taxonomy, 1 value of city is not in its taxonomy, mean loss "
    assert errors.count(words) == 1
    assert "canary" not in errors
    verdict = verify(Policy.load(policy), source, target, summary=summary, table=command == "batch")
    assert NOT_EXAMINED in verdict.not_examined
    released(tmp_path, command, [row for row in rows_of(120) if row[6] and row[4] != "XX"])
    assert "unknown" not in json.loads(summary.read_text())
    assert "in its taxonomy" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["pipe", "batch"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_the_judge_agrees_with_releases_of_all_scales(command: str, suffix: str, tmp_path: Path) -> None:
    policy, source, target = released(tmp_path, command, rows_of(120), suffix)
    assert len(target.read_text().splitlines()) == 117 + (suffix == "csv")
    files: dict[str, Any] = {name: tmp_path / name for name in ("evidence", "quarantine", "summary")}
    assert [json.loads(line)["offset"] for line in files["quarantine"].read_text().splitlines()] == [39, 79, 119]
    verdict = verify(Policy.load(policy), source, target, **files, table=command == "batch")
    assert verdict.exit_code == 0, verdict.text()
