"""Progress on a terminal, and none elsewhere."""

from __future__ import annotations

import json
import os
import pty
import select
import termios
from pathlib import Path

import pytest
from shoal.cli import main
from support.commands import run_command

pytestmark = pytest.mark.unit

POLICY = {
    "attributes": {"age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}},
    "subject": "every_record",
    "privacy": {"k": 2},
    "stream": {"delta": 8},
}


def commands(folder: Path) -> list[list[str]]:
    policy, source, out = (str(folder / name) for name in ("policy.json", "in.csv", "out.csv"))
    (folder / "policy.json").write_text(json.dumps(POLICY))
    (folder / "in.csv").write_text("age\n" + "".join(f"{number % 90}\n" for number in range(700)))
    return [
        ["pipe", policy, "-i", source, "-o", out],
        ["verify", policy, "--original", source, "--released", out, "--partial"],
    ]


def read_until(screen: int, text: str) -> str:
    """Read what is shown up to a text; fail if nothing more is shown for 10 s."""
    seen = ""
    while text not in seen:
        assert select.select([screen], [], [], 10)[0], seen
        seen += os.read(screen, 1 << 16).decode(errors="replace")
    return seen


def test_pipe_and_verify_show_progress_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, its_end = pty.openpty()
    termios.tcsetwinsize(screen, (24, 200))
    pipe, verify = commands(tmp_path)
    with os.fdopen(its_end, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr("sys.stderr", terminal)
        assert main(pipe) == 0
        assert "reading: 100%" in read_until(screen, "shoal: 700 in, 700 out")
        main(verify)
        read_until(screen, "verifying: 00:00")


def test_reference_shows_progress_on_a_terminal_and_nothing_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, sample = tmp_path / "policy.json", tmp_path / "sample.csv"
    attributes = POLICY["attributes"] | {"ill": {"role": "confidential"}}  # type: ignore[operator]
    policy.write_text(json.dumps(POLICY | {"attributes": attributes}))
    sample.write_text("age,ill\n" + "".join(f"{number % 90},v{number % 3}\n" for number in range(700)))
    arguments = ["reference", str(policy), "-i", str(sample), "-o", str(tmp_path / "out.csv")]
    screen, its_end = pty.openpty()
    termios.tcsetwinsize(screen, (24, 200))
    with os.fdopen(its_end, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr("sys.stderr", terminal)
        assert main(arguments) == 0
        assert "reading: 100%" in read_until(screen, "smoothing: 00:00")
    assert run_command(*arguments).stderr == b""


def test_nothing_is_drawn_elsewhere(tmp_path: Path) -> None:
    pipe, verify = commands(tmp_path)
    assert run_command(*pipe).stderr.count(b"\n") == 1
    assert run_command(*verify).stderr == b""
