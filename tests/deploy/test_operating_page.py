"""The script of docs/operate.md on a secured cluster runs as it is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "kafka" / "secured_service.sh"
LIMIT_S = 1500


def commands() -> str:
    """The script; the installation is that of the tests."""
    return SCRIPT.read_text(encoding="utf-8").replace("make install\n", "")


def clean_up() -> None:
    for name in ("worker-1", "worker-2", "prometheus"):
        path = ROOT / "build" / f"{name}.pid"
        if path.exists():
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text(encoding="utf-8")), signal.SIGKILL)
            path.unlink()
    subprocess.run(["python3", "deploy/kafka/secured.py", "down"], cwd=ROOT, check=True, timeout=120)


def firing(line: str) -> list[str]:
    """Names of the alerts that fire, in an answer of Prometheus."""
    alerts = json.loads(line)["data"]["alerts"]
    return sorted(alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing")


@pytest.mark.timeout(LIMIT_S + 120)
def test_two_workers_of_a_secured_cluster_release_records_and_one_alert_fires_and_is_resolved() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    try:
        done = subprocess.run(
            ["bash"],
            input=commands(),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]
    finally:
        clean_up()
    lines = done.stdout.splitlines()
    released = [json.loads(line) for line in lines if line.startswith('{"age":')]
    assert len(released) >= 5
    before, during, after = (firing(line) for line in lines if line.startswith('{"status":'))
    assert before == []
    assert during == ["ShoalDown"]
    assert after == []
