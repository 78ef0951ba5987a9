"""Nothing of the demo's real records stands in what leaves beside the published ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.canaries import traces

pytestmark = [pytest.mark.privacy, pytest.mark.nightly]

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("one.log", "two.log", "last.log", "quarantine.jsonl", "evidence.jsonl", "verdict.json", "summary.json")


@pytest.mark.timeout(400)
def test_no_wage_of_the_demo_is_in_logs_references_evidence_verdict_or_summary(bootstrap: str) -> None:
    environment = os.environ | {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": bootstrap}
    demo = [sys.executable, str(ROOT / "deploy" / "demo" / "run.py")]
    done = subprocess.run(demo, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
    built = ROOT / "build" / "demo"
    messages = [json.loads(line) for line in (built / "input.jsonl").read_text().splitlines()]
    wages = {str(json.loads(message["value"])["lwage"]) for message in messages}
    canaries = [wage for wage in wages if len(wage) >= 8]
    assert len(canaries) > 1000
    places = {name: (built / name).read_bytes() for name in BESIDE}
    assert all(places[name] for name in BESIDE if name != "quarantine.jsonl")
    assert traces(canaries, places | {"standard output": done.stdout}) == []
    # They are there where they belong.
    assert traces(canaries[:1], {"input": (built / "input.jsonl").read_bytes()}) != []
