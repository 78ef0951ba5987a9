"""What the code gives now is what it gave before its modules were renamed (`golden.record.recorder`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden.record.recorder import RECORD, differences, restricted
from support.by_night import at_night

SHOWN = 40


@pytest.mark.parametrize(
    ("form", "every", "cases"),
    [("compiled", 3, 119), *at_night(("compiled", 1, 356), ("interpreted", 36, 10))],
)
def test_all_recorded_outputs_are_unchanged(tmp_path: Path, form: str, every: int, cases: int) -> None:
    now = tmp_path / "now.json"
    recorder = RECORD.with_name("recorder.py")
    # A process of its own: a command sets up logs and signals for the process that it is.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_KAFKA__")}
    environment["NUMBA_DISABLE_JIT"] = str(int(form == "interpreted"))
    ended = subprocess.run(
        [sys.executable, str(recorder), "--compiled", "--out", str(now), "--every", str(every)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    was, made = json.loads(RECORD.read_text("utf-8")), json.loads(now.read_text("utf-8"))
    assert len(made["outputs"]) == cases
    found = differences(was if every == 1 else restricted(was, made), made)
    assert not found, f"{len(found)} parts differ:\n" + "\n".join(line[:1000] for line in found[:SHOWN])


def test_a_difference_names_the_case_and_the_part() -> None:
    was = {"pipe a": {"exit": 0, "summary": "s", "lines": ["1", "2"]}, "pipe b": {"exit": 0}}
    now = {"pipe a": {"exit": 0, "summary": "t", "lines": ["1", "3"]}, "pipe c": {"exit": 0}}
    assert differences(was, now) == [
        "pipe a > lines, item 1: was ['2'], is ['3']",
        "pipe a > summary: was 's', is 't'",
        "pipe b: was {'exit': 0}, is None",
        "pipe c: was None, is {'exit': 0}",
    ]
    assert differences(was, was) == []
    whole = {part: {"a": 1, "b": 2} for part in ("check", "outputs", "wording")} | {"python": {"c": 3}}
    part = {part: {"b": 2} for part in ("check", "outputs", "wording")} | {"python": {}}
    assert differences(restricted(whole, part), part) == ["python > c: was 3, is None"]
