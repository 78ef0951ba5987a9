"""Progress on a terminal, log lines of slow work elsewhere, and none of quick work."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from shoal.cli import main
from shoal.files import ProgressDisplay
from shoal.files.run import reading_bar
from shoal.observability import set_up_logs
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


def test_the_elapsed_time_and_the_step_are_shown_while_a_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.files.run.REFRESH_S", 0.01)
    with terminal() as read_until, ProgressDisplay("clustering") as shown:
        shown._bar.start_t -= 0.95
        assert "clustering: 00:00" in read_until(r"clustering: 00:0[1-9]")
        shown.tell("MDAV", 0.254)
        read_until(r"clustering, MDAV 25 %: 00:0[1-9]")


def logged(stderr: Any) -> list[str]:
    """Return what each line says, without its time and with the seconds replaced."""
    found = [re.sub(r"seconds=\d+", "seconds=N", line).split("] ", 1)[1] for line in stderr.splitlines()]
    return [" ".join(line.split()) for line in found]


def test_slow_work_is_logged_where_there_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.files.run.LOG_S", 0.02)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    set_up_logs("text")
    (tmp_path / "in").write_bytes(b"12345678")
    with (tmp_path / "in").open("rb") as file:
        for shown, act in (
            (ProgressDisplay("verifying"), lambda _: None),
            (ProgressDisplay("clustering"), lambda display: display.tell("MDAV", 0.254)),
            (ProgressDisplay("writing", 8, " records"), lambda display: display.advance(2)),
            (reading_bar(str(tmp_path / "in"), "line", file), lambda advance: (file.read(6), advance(1))),
            (reading_bar("-", "line", file), lambda advance: advance(1234)),
            (reading_bar("-", "line", None), lambda advance: advance(1234)),
        ):
            with shown as given:
                act(given)
                threading.Event().wait(0.2)
    lines = logged(capsys.readouterr().err)
    assert list(dict.fromkeys(lines)) == [
        "still verifying [shoal.cli] seconds=N",
        "still clustering [shoal.cli] done='MDAV 25 %' seconds=N",
        "still writing [shoal.cli] done='25 %' seconds=N",
        "still reading [shoal.cli] done='75 %' seconds=N",
        "still reading [shoal.cli] done='1,234 records' seconds=N",
    ]


SLOW = {
    "batch": ("clustering", "shoal.tables.table.refined", "kernel"),
    "check": ("clustering", "shoal.tables.table.refined", "kernel"),
    "pipe": ("reading", "shoal.streams.PartitionPipeline.flush", "wait"),
    "verify": ("verifying", "shoal.cli.verify.verify", "wait"),
    "reference": ("smoothing", "shoal.files.sample.ReferenceSample.smooth", "wait"),
    "warm": ("preparing kernels", "shoal.cli.warm.precompile_table", "kernel"),
}
"""What each command is at, which of its steps takes a minute, and whether that is a kernel, which no signal stops."""
PROGRAM = """
import ctypes, sys, time
from unittest.mock import patch
from shoal.cli import main
from shoal.files import run

run.LOG_S, (step, kind) = 0.1, sys.argv[1:3]
slow = ctypes.CDLL(None).sleep if kind == "kernel" else time.sleep
with patch(step, lambda *_, **__: slow(60)):
    sys.exit(main(sys.argv[3:]))
"""
END_S = 10.0
"""Five times the time that is promised on a machine of its own; the slow step takes a minute."""


@pytest.mark.parametrize("command", SLOW)
def test_each_slow_command_is_logged_and_ends_at_an_interrupt_without_a_change(command: str, tmp_path: Path) -> None:
    label, step, kind = SLOW[command]
    words = commands(tmp_path)
    table = json.loads((tmp_path / "policy.json").read_text())
    if kind == "kernel":
        del table["stream"]
        (tmp_path / "policy.json").write_text(json.dumps(table))
    words["check"] = ["check", words["batch"][1], "-i", words["batch"][3]]
    words["warm"] = ["warm", words["batch"][1]]
    (tmp_path / "out.csv").write_text("as it was")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    program = [sys.executable, "-c", PROGRAM, step, kind, *words[command]]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if f"still {label} " in line:
                    break
            sent_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            stderr = process.communicate(timeout=60)[1]
            took_s = time.monotonic() - sent_s
        finally:
            process.kill()
    assert process.returncode == 130, stderr
    assert took_s < END_S
    assert "Traceback" not in stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("command", "lines"), [("pipe", 1), ("batch", 1), ("reference", 0)])
def test_nothing_is_drawn_elsewhere(command: str, lines: int, tmp_path: Path) -> None:
    assert run_command(*commands(tmp_path)[command]).stderr.count(b"\n") == lines
