"""Measure what one worker needs under the policy of the demo: memory, and processor time.

``python3 deploy/kafka/local.py with -- .venv/bin/python deploy/kubernetes/measure.py`` prints one JSON object. The
requests and limits of the chart and of the manifests come from it. Linux only: it reads /proc.

The input holds records before the worker starts, so it reads them as fast as it can: memory is that of a worker that
has to catch up, with all buffers full. Without a cache of kernels, a child process of the worker compiles them beside
it; the memory of both counts against the limit of a container.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "deploy" / "demo"
sys.path.insert(0, str(DEMO))

import fetch  # noqa: E402 - sys.path is set first
import topics  # noqa: E402
from aiokafka import AIOKafkaProducer  # noqa: E402

ROLES = ("input", "output", "quarantine", "clusters", "evidence")
LIMIT_S = 900.0
ADDRESS = "127.0.0.1:9475"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


async def fill(bootstrap: str, topic: str, partitions: int, repetitions: int) -> int:
    """Send the records of the demo several times, each time with other persons, and return their number."""
    records = list(fetch.records())
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
        for repetition in range(repetitions):
            for record in records:
                person = int(record["nr"]) + repetition * 100_000
                line = json.dumps(record | {"nr": person}).encode()
                await producer.send(topic, line, partition=person % partitions)
    return len(records) * repetitions


def memory_mib(pid: int) -> float:
    """Return the largest resident memory of a process until now (MiB)."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return round(int(peak.split()[1]) / 1024, 1)


def compiler_mib_of(pid: int) -> float:
    """Return the largest resident memory of the child that compiles for a worker (MiB), 0 while there is none."""
    with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split():
            return memory_mib(int(child))
    return 0.0


def processor_s(pid: int) -> float:
    """Return the processor time of a process until now (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def read_count(outcome: str) -> int | None:
    """Return a count of records of the worker; None if its page does not answer."""
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
    except OSError:
        return None
    name, wanted = "shoal_records_total{", f'outcome="{outcome}"'
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name) and wanted in line)


def watch(process: subprocess.Popen[bytes], expected: int) -> dict[str, Any]:
    """Wait until the worker has read all records, and return what it needed."""
    began = first = time.monotonic()
    before_s, compiler_mib = processor_s(process.pid), 0.0
    while (done := read_count("in")) is None or done < expected:
        if process.poll() is not None or time.monotonic() > began + LIMIT_S:
            raise SystemExit(f"the worker read {done} of {expected} records; its exit code is {process.returncode}")
        if done == 0:
            first, before_s = time.monotonic(), processor_s(process.pid)
        compiler_mib = max(compiler_mib, compiler_mib_of(process.pid))
        time.sleep(0.2)
    worked_s, elapsed_s = processor_s(process.pid) - before_s, time.monotonic() - first
    while found := compiler_mib_of(process.pid):
        compiler_mib = max(compiler_mib, found)
        time.sleep(0.2)
    idle_before_s, idle_from = processor_s(process.pid), time.monotonic()
    while time.monotonic() < idle_from + 20:
        time.sleep(1)
    idle = (processor_s(process.pid) - idle_before_s) / (time.monotonic() - idle_from)
    return {
        "memory_mib": memory_mib(process.pid),
        "memory_of_compiler_mib": compiler_mib,
        "processor_s_before_first_record": round(before_s, 1),
        "processor_ms_per_1000_records": round(1e6 * worked_s / expected),
        "records_per_s": round(expected / elapsed_s),
        "cores_while_idle": round(idle, 3),
    }


def measure(bootstrap: str, partitions: int, repetitions: int, kernels: str) -> dict[str, Any]:
    """Run one worker over a filled input."""
    mark = uuid.uuid4().hex[:8]
    names = {role: f"{role}-{mark}" for role in ROLES}
    asyncio.run(topics.create(bootstrap, names.values(), partitions))
    expected = asyncio.run(fill(bootstrap, names["input"], partitions, repetitions))
    environment = os.environ | {f"SHOAL_KAFKA__{role.upper()}": name for role, name in names.items()}
    environment |= {"SHOAL_KAFKA__GROUP": f"measure-{mark}", "SHOAL_KAFKA__BOOTSTRAP_SERVERS": bootstrap}
    environment["NUMBA_CACHE_DIR"] = kernels
    command = [str(Path(sys.executable).with_name("shoal")), "run", str(DEMO / "policy.yaml"), "--from", "earliest"]
    with subprocess.Popen([*command, "--http", ADDRESS], env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            found = watch(process, expected)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            return found | {"stop_s": round(time.monotonic() - began, 2), "exit_code": process.returncode}
        finally:
            if process.poll() is None:
                process.kill()


def main() -> None:
    """Measure a worker that compiles its kernels, and one that finds them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=40, help="how often the 4,360 records are sent")
    options = parser.parse_args()
    bootstrap = os.environ["SHOAL_TEST_BROKER"]  # of `local.py with`
    size = (options.partitions, options.repetitions)
    with tempfile.TemporaryDirectory() as kernels:
        compiling = measure(bootstrap, *size, kernels)
        compiled = measure(bootstrap, *size, kernels)
    print(json.dumps({"size": size, "compiling": compiling, "compiled": compiled}, indent=1))


if __name__ == "__main__":
    main()
