"""What the code gives now is what it gave before its modules were renamed (`golden.record.recorder`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from golden.record.recorder import RECORD, differences

SHOWN = 40


def test_all_recorded_outputs_are_unchanged(tmp_path: Path) -> None:
    now = tmp_path / "now.json"
    recorder = RECORD.with_name("recorder.py")
    # A process of its own: a command sets up logs and signals for the process that it is.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_KAFKA__")}
    ended = subprocess.run(
        [sys.executable, str(recorder), "--out", str(now)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = differences(json.loads(RECORD.read_text("utf-8")), json.loads(now.read_text("utf-8")))
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
