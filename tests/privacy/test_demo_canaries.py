"""No value of the demo's records is in what leaves beside the published ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.canaries import traces

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("one.log", "two.log", "last.log", "quarantine.jsonl", "evidence.jsonl", "verdict.json")
BUILT = ROOT / "build" / "demo"


def inputs(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "input.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(json.loads(line)["value"]) for line in lines]


def check(folder: Path, values: list[str], elsewhere: dict[str, bytes]) -> None:
    """Check that no value is in the files beside input and output, and that the input has it."""
    assert len(values) > 1000
    places = {name: (folder / name).read_bytes() for name in BESIDE}
    assert all(places[name] for name in BESIDE if name != "quarantine.jsonl")
    assert traces(values, places | elsewhere) == []
    assert traces(values[:1], {"input": (folder / "input.jsonl").read_bytes()}) != []


@pytest.mark.timeout(600)
def test_no_value_of_the_demo_is_in_logs_references_evidence_verdict_or_summary(bootstrap: str) -> None:
    environment = os.environ | {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": bootstrap}
    demo = [sys.executable, str(ROOT / "deploy" / "demo" / "run.py")]
    done = subprocess.run(demo, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
    figures = {"standard output": done.stdout, "summary.json": (BUILT / "summary.json").read_bytes()}
    wages = {str(record["lwage"]) for record in inputs(BUILT)}
    check(BUILT, [wage for wage in wages if len(wage) >= 8], figures)
    born = {message["after"]["patient"].get("birth_date") for message in inputs(BUILT / "patients")}
    # Published dates of birth are starts of years, and those of admission, starts of months.
    exact = [date for date in born if date and not date.endswith("-01")]
    published = (BUILT / "patients" / "output.jsonl").read_bytes()
    check(BUILT / "patients", exact, figures | {"output": published})
