"""A signal ends a command while a kernel runs or is compiled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.by_night import at_night
from support.commands import without_notice
from support.kafka_broker import wait_until

POLICY = {
    "attributes": {name: {"role": "quasi_identifier"} for name in "ab"},
    "subject": "every_record",
    "privacy": {"k": 3},
}
ENDLESS = ["--algorithm", "genetic", "--param", "generations=1000000000", "--param", "macro=100"]


def processor_s(process_id: int) -> float:
    """Seconds that a process has worked."""
    words = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), *at_night((signal.SIGINT, 130), (signal.SIGHUP, 129))]
)
def test_a_signal_ends_a_table_while_a_kernel_runs_and_leaves_no_file(number: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    (tmp_path / "in.csv").write_text("a,b\n" + "".join(f"{i},{i * 31 % 101}\n" for i in range(300)))
    before = sorted(tmp_path.iterdir())
    more = ["--summary", "summary.json", "--evidence", "evidence.jsonl"]
    command = [sys.executable, "-m", "shoal.cli", "batch", "policy.yaml", "-i", "in.csv", "-o", "out.csv", *more]
    with subprocess.Popen([*command, *ENDLESS], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        try:
            asyncio.run(wait_until(lambda: len(list(tmp_path.iterdir())) > len(before), 60, "drafts"))
            # Reading is short; the kernel runs for seconds and cannot be interrupted.
            enough = processor_s(process.pid) + 2.5
            asyncio.run(wait_until(lambda: processor_s(process.pid) > enough, 120, "a kernel at work"))
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code, stderr
    assert without_notice(stderr) == b""
    assert sorted(tmp_path.iterdir()) == before


STREAM = POLICY | {
    "attributes": {name: {"role": "quasi_identifier", "integer": True, "bounds": [0, 300]} for name in "ab"},
    "stream": {"delta": 10},
}
END_S = 4.0
"""Twice the time that is promised on a machine of its own."""


@pytest.mark.nightly
def test_a_signal_ends_a_command_while_its_kernels_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps(STREAM))
    (tmp_path / "in.csv").write_text("a,b\n" + "".join(f"{i},{i * 31 % 101}\n" for i in range(900)))
    before, cache = sorted(tmp_path.iterdir()), tmp_path.with_name(tmp_path.name + "-cache")
    variables = {**os.environ, "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(cache)}
    words = ["batch", "policy.yaml", "-i", "in.csv", "-o", "out.csv", "--summary", "summary.json"]
    command = [sys.executable, "-m", "shoal.cli", *words]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE) as process:
        try:
            # The first of many kernels.
            asyncio.run(wait_until(lambda: process.poll() is not None or any(cache.rglob("*.nbc")), 120, "a kernel"))
            sent_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=60)
            took_s = time.monotonic() - sent_s
        finally:
            process.kill()
    assert process.returncode == 143, stderr
    assert took_s < END_S
    assert b"unexpected" not in stderr
    assert b"compiling kernels, once: about " in stderr
    assert sorted(tmp_path.iterdir()) == before


ENDLESS_CALL = """
import numpy as np
from shoal import microaggregate

rows = np.random.default_rng(0).random((600, 3))
microaggregate(rows, 3, "mdav", "anneal", budget_used=lambda _: 0.0, progress=lambda step, _: print(step, flush=True))
"""


@pytest.mark.parametrize("step", [*at_night("the first kernel is compiled"), "budget"])
def test_an_interrupt_ends_a_python_program(step: str, tmp_path: Path) -> None:
    variables = dict(os.environ)
    if step != "budget":
        variables |= {"NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", ENDLESS_CALL]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            if step == "budget":
                assert process.stdout is not None
                while process.stdout.readline() != b"budget\n":
                    assert process.poll() is None
            else:
                asyncio.run(wait_until(lambda: process.poll() is not None or any(tmp_path.rglob("*.nbc")), 120, step))
            sent_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
            took_s = time.monotonic() - sent_s
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT, stderr
    assert stderr.rstrip().endswith(b"KeyboardInterrupt")
    assert took_s < END_S
