"""Starts: of commands, of the compiled form of kernels for each rule, and until the first record of `shoal run`."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer
from kafka_to_kafka import PARTITIONS, document, fill, messages, new_topic
from part import Limit, Part

__all__ = ["start_part"]

LIMITS_S = {"nearest": 12.0, "greedy": 40.0, "awo": 40.0, "block": 40.0}
"""Processor time of the first cluster in the compiled form, from an empty cache."""

LIMIT_MB = 8.0
RECORDS, WARM_STARTS, PATIENCE_S = 2000, 5, 300.0

SHOAL = str(Path(sys.executable).with_name("shoal"))

QUICK_START = Path(__file__).parents[1] / "docs" / "quickstart"
POLICY = str(QUICK_START / "policy.yaml")
COMMANDS = {
    "shoal --help": ([SHOAL, "--help"], 1.5),
    "import shoal": ([sys.executable, "-c", "import shoal"], 2.5),
    "shoal check": ([SHOAL, "check", POLICY], 5.0),
    "shoal pipe": ([SHOAL, "pipe", POLICY, "-i", str(QUICK_START / "visits.csv"), "--format", "csv"], 10.0),
}
"""Commands of the quick start, and the most that each may take, in times of `import numpy`."""

FIRST_CLUSTER = """
import sys, time
import numpy as np
began = time.process_time()
from shoal import StreamAggregator
from shoal.kernels.jit import use_compiled
use_compiled()
stream = StreamAggregator(k=5, delta=100, rule=sys.argv[1])
stream.push(np.random.default_rng(0).random((300, 4)))
stream.flush()
print(time.process_time() - began)
"""


class FirstRecord(NamedTuple):
    """Time by the clock (s) from the start of `shoal run` until a record can be read, and its processor time (s)."""

    clock_s: float
    cpu_s: float


class FirstCluster(NamedTuple):
    """Processor time (s) from an empty cache and with it filled, and what the cache then holds."""

    cold_s: float
    warm_s: float
    files: int
    megabytes: float


def first_cluster(rule: str) -> FirstCluster:
    """Measure a new interpreter that decides on 300 records of 4 attributes."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", FIRST_CLUSTER, rule]
        cold, warm = (
            float(subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True).stdout) for _ in range(2)
        )
        sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
    return FirstCluster(cold, warm, len(sizes), sum(sizes) / 1e6)


def command_s(command: list[str]) -> float:
    """Return the processor time of a command (s), the median of some runs."""
    found = []
    for _ in range(WARM_STARTS):
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        after = os.times()
        found.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return median(found)


def commands_part() -> Part:
    """Measure the commands of the quick start."""
    unit_s = command_s([sys.executable, "-c", "import numpy"])
    times = {name: command_s(command) for name, (command, _) in COMMANDS.items()}
    limits = [Limit(f"{name}, s", times[name], round(most * unit_s, 3), True) for name, (_, most) in COMMANDS.items()]

    def row(name: str, limit_s: float) -> str:
        holds = "yes" if times[name] <= limit_s else "no"
        return f"| `{name}` | {times[name]:.2f} | {limit_s:.2f} | {holds} |"

    lines = [
        f"Processor time of commands of the quick start, median of {WARM_STARTS}; `import numpy` takes {unit_s:.2f} s.",
        "",
        "| command | s | limit, s | holds |",
        "|---|---|---|---|",
        *(row(name, most * unit_s) for name, (_, most) in COMMANDS.items()),
        "",
    ]
    return Part(lines, limits)


def processor_time_s(pid: int) -> float:
    """Return the processor time (s) of a running process; NaN where there is no /proc."""
    path = Path(f"/proc/{pid}/stat")
    if not path.exists():
        return math.nan
    fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def first_records(bootstrap: str) -> list[FirstRecord]:
    """Measure some starts: the first from an empty cache of kernels, the others with a full one."""
    source = await new_topic(bootstrap, f"start-{uuid.uuid4().hex[:8]}")
    await fill(bootstrap, source, ((value, 0) for value in messages(RECORDS)))
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for number in range(1 + WARM_STARTS):
            target = await new_topic(bootstrap, f"start-{uuid.uuid4().hex[:8]}")
            policy = Path(folder) / "policy.json"
            policy.write_text(json.dumps(document(bootstrap, source, target)), encoding="utf-8")
            variables = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / "cache")}
            if number == 1:
                warm = [SHOAL, "warm", str(policy)]
                await asyncio.to_thread(subprocess.run, warm, env=variables, check=True)
            found.append(await _first_record(bootstrap, policy, target, variables))
            print("start: first record after {:.2f} s, {:.2f} s of processor".format(*found[-1]), file=sys.stderr)
    return found


async def _first_record(bootstrap: str, policy: Path, target: str, variables: dict[str, str]) -> FirstRecord:
    consumer = AIOKafkaConsumer(
        target, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    command = [SHOAL, "run", str(policy), "--from", "earliest", "--http", "127.0.0.1:0"]
    began = time.monotonic()
    worker = await asyncio.create_subprocess_exec(*command, env=variables, stderr=asyncio.subprocess.DEVNULL)
    try:
        await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        return FirstRecord(time.monotonic() - began, processor_time_s(worker.pid))
    finally:
        worker.send_signal(signal.SIGTERM)
        await worker.wait()
        await consumer.stop()


def start_part(bootstrap: str) -> Part:
    """Measure, and return the lines about starts."""
    commands = commands_part()
    print("\n".join(commands.lines), file=sys.stderr, flush=True)
    rules, version_s = {}, command_s([SHOAL, "--version"])
    for rule in LIMITS_S:
        rules[rule] = first_cluster(rule)
        print(f"start: {rule} {rules[rule].cold_s:.1f} s", file=sys.stderr, flush=True)
    cold, *warm = asyncio.run(first_records(bootstrap))
    warm_clock_s, warm_cpu_s = (median(times) for times in zip(*warm, strict=True))
    lines = [
        "## Start",
        "",
        *commands.lines,
        "Processor time from the import to the first clusters of `StreamAggregator` (k = 5, δ = 100, 4 attributes) in",
        "the compiled form, in a new interpreter, from an empty cache and then with it; and what the cache holds. A",
        "stream begins in the interpreted form and waits for none of this.",
        "",
        "| rule | empty cache, s | limit | cached, s | files | MB |",
        "|---|---|---|---|---|---|",
        *(
            f"| {rule} | {one.cold_s:.1f} | {LIMITS_S[rule]:.0f} | {one.warm_s:.1f} | {one.files} "
            f"| {one.megabytes:.1f} |"
            for rule, one in rules.items()
        ),
        "",
        f"`shoal --version`: {version_s:.2f} s of processor time. `shoal run` on {PARTITIONS} partitions, until a",
        f"record can be read: {cold.clock_s:.1f} s by the clock and {cold.cpu_s:.1f} s of processor time from an empty",
        f"cache, {warm_clock_s:.1f} s and {warm_cpu_s:.1f} s with it (medians of {len(warm)}).",
        "",
    ]
    limits = [Limit(f"first cluster, {rule}, s", one.cold_s, LIMITS_S[rule], True) for rule, one in rules.items()]
    largest = max(one.megabytes for one in rules.values())
    return Part(lines, [*commands.limits, *limits, Limit("cache of kernels, MB", largest, LIMIT_MB, at_most=True)])
