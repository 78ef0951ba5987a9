"""Progress on a terminal, and none elsewhere."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from shoal.cli import main
from shoal.files import elapsed_time
from support.commands import run_command

pytestmark = pytest.mark.unit

AGE: dict[str, Any] = {"age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}}
POLICY: dict[str, Any] = {"attributes": AGE, "subject": "every_record", "privacy": {"k": 2}, "stream": {"delta": 8}}


@contextmanager
def terminal() -> Iterator[Callable[[str], str]]:
    """Let standard error be a terminal; yield what reads from it up to a text, and fails if nothing comes for 10 s."""
    screen, its_end = pty.openpty()
    termios.tcsetwinsize(screen, (24, 200))

    def read_until(text: str) -> str:
        seen = ""
        while not re.search(text, seen):
            assert select.select([screen], [], [], 10)[0], seen
            seen += os.read(screen, 1 << 16).decode(errors="replace")
        return seen

    with os.fdopen(its_end, "w") as stream, patch.object(sys, "stderr", stream):
        yield read_until


def commands(folder: Path) -> dict[str, list[str]]:
    policy, source, out = (str(folder / name) for name in ("policy.json", "in.csv", "out.csv"))
    attributes = AGE | {"ill": {"role": "confidential"}}
    (folder / "policy.json").write_text(json.dumps(POLICY | {"attributes": attributes}))
    (folder / "in.csv").write_text("age,ill\n" + "".join(f"{number % 90},v{number % 3}\n" for number in range(700)))
    return {
        "pipe": ["pipe", policy, "-i", source, "-o", out],
        "verify": ["verify", policy, "--original", source, "--released", out, "--partial"],
        "batch": ["batch", policy, "-i", source, "-o", out],
        "reference": ["reference", policy, "-i", source, "-o", str(folder / "reference.csv")],
    }


def test_each_command_shows_progress_on_a_terminal(tmp_path: Path) -> None:
    words = commands(tmp_path)
    with terminal() as read_until:
        assert main(words["pipe"]) == 0
        assert "reading: 100%" in read_until("shoal: 700 in, 700 out")
        main(words["verify"])
        read_until("verifying: 00:00")
        assert main(words["batch"]) == 0
        seen = read_until("writing: 100%")
        assert "reading: 100%" in seen
        assert "clustering: 00:0" in seen
        assert main(words["reference"]) == 0
        assert "reading: 100%" in read_until("smoothing: 00:00")


def test_the_elapsed_time_is_shown_while_a_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.files.run.REFRESH_S", 0.01)
    with terminal() as read_until, elapsed_time("clustering") as shown:
        shown.start_t -= 0.95
        assert "clustering: 00:00" in read_until(r"clustering: 00:0[1-9]")


@pytest.mark.parametrize(("command", "lines"), [("pipe", 1), ("batch", 1), ("reference", 0)])
def test_nothing_is_drawn_elsewhere(command: str, lines: int, tmp_path: Path) -> None:
    assert run_command(*commands(tmp_path)[command]).stderr.count(b"\n") == lines
