"""A signal ends a command while a kernel runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.kafka_broker import wait_until

pytestmark = pytest.mark.faults

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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
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
            _, stderr = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == code, stderr
    assert stderr == b""
    assert sorted(tmp_path.iterdir()) == before
