"""The section of docs/operate.md on a secured cluster, run as it is written."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^## Try a secured cluster on one machine$(.*?)^## ", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT_S = 1500


def commands() -> str:
    """All commands of the section as one script; the installation is that of the tests."""
    found = SECTION.search((ROOT / "docs" / "operate.md").read_text(encoding="utf-8"))
    assert found is not None
    return "set -euo pipefail\n" + "\n".join(COMMANDS.findall(found[1])).replace("make install\n", "")


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
