"""The local broker, which all other integration tests use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka_broker import LOCAL

FOREIGN = {"SHOAL_KAFKA__BOOTSTRAP_SERVERS", "SHOAL_TEST_BROKER"}


def local(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    command = [sys.executable, str(LOCAL), "--home", str(home), *arguments]
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "run"
    local(tmp_path / "run", "down")


def test_a_second_up_names_the_same_broker_and_down_leaves_nothing(home: Path) -> None:
    first = local(home, "up")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("bootstrap=127.0.0.1:")
    assert first.stdout.count("\n") == 1
    assert local(home, "up").stdout == first.stdout
    assert local(home, "status").stdout == first.stdout
    assert local(home, "with", "--", "true").returncode == 0
    assert local(home, "status").stdout == first.stdout, "a borrower must not stop what was started for good"
    assert local(home, "down").returncode == 0
    assert local(home, "status").returncode == 1
    assert not (home / "data").exists()


def test_the_last_command_stops_the_broker_and_returns_the_exit_code(home: Path) -> None:
    script = "import os, sys; print(os.environ['SHOAL_TEST_BROKER']); sys.exit(7)"
    done = local(home, "with", "--", sys.executable, "-c", script)
    assert done.returncode == 7
    assert done.stdout.startswith("127.0.0.1:")
    assert local(home, "status").returncode == 1
