"""`shoal pipe` and `shoal batch` with values that a taxonomy lacks."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from shoal.audit import verify
from shoal.cli import main
from shoal.policy import Policy

pytestmark = pytest.mark.unit

POLICY = """
attributes:
  who: {role: identifier, subject: true}
  area: {role: quasi_identifier, scale: nominal, taxonomy: {West: [AK, CA], East: [NY, MA]}}
  city: {role: quasi_identifier, scale: nominal, taxonomy: {West: [AK, CA], East: [NY, MA]}, publish: median}
privacy: {k: 3}
stream: {delta: 20}
"""
NOT_EXAMINED = "how many values are not in their taxonomy, as the summary states"


def release(folder: Path, command: str, areas: list[str], city: str = "AK") -> None:
    (folder / "policy.yaml").write_text(POLICY)
    rows = [[f"p{i}", areas[i * 3 % len(areas)], ["AK", "CA", "NY", "MA"][i % 4]] for i in range(120)]
    rows[3][2] = city
    with (folder / "in.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["who", "area", "city"], *rows])
    policy, source, target = (str(folder / name) for name in ("policy.yaml", "in.csv", "out.csv"))
    assert main([command, policy, "-i", source, "-o", target, "--summary", str(folder / "summary")]) == 0


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_values_that_a_taxonomy_lacks_are_counted(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release(tmp_path, command, ["AK", "CA", "NY", "MA", "XX"], "canary")
    source, target, summary = (tmp_path / name for name in ("in.csv", "out.csv", "summary"))
    assert json.loads(summary.read_text())["unknown"] == {"area": 24, "city": 1}
    errors = capsys.readouterr().err
    words = "24 values of area are not in its taxonomy, 1 value of city is not in its taxonomy, mean loss "
    assert errors.count(words) == 1
    assert "canary" not in errors
    policy = Policy.load(tmp_path / "policy.yaml")
    verdict = verify(policy, source, target, summary=summary, table=command == "batch")
    assert NOT_EXAMINED in verdict.not_examined
    release(tmp_path, command, ["AK", "CA"])
    assert "unknown" not in json.loads(summary.read_text())
    assert "in its taxonomy" not in capsys.readouterr().err
