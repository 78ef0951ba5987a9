"""Large groups: how long one worker takes to open, take over, close and drain many partitions.

``groups.py PARTITIONS ...`` measures each number of partitions alone, with the broker of SHOAL_TEST_BROKER.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from kafka_to_kafka import document, fill, messages, new_topic
from part import Limit, Part
from worker_process import SHOAL, Service, load_average, start

__all__ = ["groups_part"]

COUNTS = (64, 200, 500)
PER_PARTITION = 30
"""Records of each partition (k = 3, δ = 10): some are published, some are held when the worker stops."""
MOST_READY_S, MOST_DRAIN_S, LIMITED = 10.0, 15.0, 200
PATIENCE_S, STEP_S, SETTLE_S = 300.0, 0.05, 3.0
SCRAPE_S = 0.5  # a scrape of so many partitions costs processor time itself


class Times(NamedTuple):
    """Time by the clock (s), and processor time of the worker for it (s)."""

    clock_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.clock_s:.1f} ({self.cpu_s:.1f})"


class Found(NamedTuple):
    """What was measured with one number of partitions."""

    partitions: int
    first_row_s: float
    first_start: Times  # without commits
    restart: Times  # with a commit of each partition
    take_over: Times  # from the end of another worker that had half of the partitions
    stop: Times
    drain: Times  # from the start of the process to its end
    load: float


def _document(bootstrap: str, names: dict[str, str]) -> dict[str, Any]:
    content = document(bootstrap, names["input"], names["output"])
    content["privacy"], content["stream"] = {"k": 3}, {"delta": 10}
    content["kafka"] |= {role: names[role] for role in ("evidence", "quarantine")}
    return content


@asynccontextmanager
async def _worker(policy: Path, name: str, *arguments: str) -> AsyncIterator[Service]:
    service = start(policy, policy.with_name(f"{name}.log"), *arguments)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()


async def _first_row(bootstrap: str, topic: str) -> None:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        await asyncio.wait_for(consumer.getone(), PATIENCE_S)
    finally:
        await consumer.stop()


async def _until_opened(worker: Service, partitions: int) -> None:
    """Wait until so many partitions are open on a worker, as its gauge of held records counts them."""
    deadline = time.monotonic() + PATIENCE_S
    while len((await worker.metrics()).by_partition("shoal_records_held")) < partitions:
        worker.check()
        if time.monotonic() > deadline:
            raise SystemExit("bench: the partitions were not taken over")
        await asyncio.sleep(SCRAPE_S)


async def _ended(worker: Service) -> float:
    """Wait for the end of a worker, and return its processor time (s)."""
    used_s, code, deadline = 0.0, None, time.monotonic() + PATIENCE_S
    while code is None and time.monotonic() < deadline:
        used_s = max(used_s, worker.cpu_s)
        await asyncio.sleep(STEP_S)
        code = worker.process.poll()
    if code != 0:
        raise SystemExit(f"bench: exit code {code}: {worker.log.read_text(encoding='utf-8')[-2000:]}")
    return used_s


async def measure_group(bootstrap: str, partitions: int) -> Found:
    """Measure one number of partitions, each in topics of its own."""
    run = f"groups-{uuid.uuid4().hex[:8]}"
    names = {role: f"{run}-{role}" for role in ("input", "output", "evidence", "quarantine")}
    for role, name in names.items():
        await new_topic(bootstrap, name, partitions if role in {"input", "output"} else 4)
    await asyncio.sleep(SETTLE_S)
    values = [(value, 0) for value in messages(PER_PARTITION * partitions)]
    await fill(bootstrap, names["input"], values, partitions=partitions)
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.json"
        policy.write_text(json.dumps(_document(bootstrap, names)), encoding="utf-8")
        await asyncio.to_thread(subprocess.run, [SHOAL, "warm", str(policy)], stderr=subprocess.DEVNULL, check=True)
        return await _measure(bootstrap, policy, names["output"], partitions)


async def _measure(bootstrap: str, policy: Path, output: str, partitions: int) -> Found:
    began_s = time.monotonic()
    async with _worker(policy, "one") as one:
        first_row = asyncio.create_task(_first_row(bootstrap, output))
        first_row.add_done_callback(lambda _: rows.append(time.monotonic() - began_s))
        rows: list[float] = []
        await one.until_ready()
        first_start = Times(time.monotonic() - began_s, one.cpu_s)
        await first_row
        stop = await _stopped(one)
    began_s = time.monotonic()
    async with _worker(policy, "one") as one:
        await one.until_ready()
        restart = Times(time.monotonic() - began_s, one.cpu_s)
        async with _worker(policy, "two") as two:
            await two.until_ready()
            two.process.terminate()
            before_s, began_s = one.cpu_s, time.monotonic()
            await _until_opened(one, partitions)
            await one.until_ready()
            take_over = Times(time.monotonic() - began_s, one.cpu_s - before_s)
        await _stopped(one)
    began_s = time.monotonic()
    async with _worker(policy, "one", "--drain") as drain:
        cpu_s = await _ended(drain)
    drained = Times(time.monotonic() - began_s, cpu_s)
    return Found(partitions, rows[0], first_start, restart, take_over, stop, drained, load_average())


async def _stopped(worker: Service) -> Times:
    before_s, began_s = worker.cpu_s, time.monotonic()
    worker.process.terminate()
    after_s = await _ended(worker)
    return Times(time.monotonic() - began_s, after_s - before_s)


def _row(one: Found) -> str:
    times = (one.first_start, one.restart, one.take_over, one.stop, one.drain)
    return f"| {one.partitions} | {one.first_row_s:.1f} | {' | '.join(map(str, times))} | {one.load:.1f} |"


def groups_part(bootstrap: str) -> Part:
    """Many partitions on one worker."""
    found = []
    for count in COUNTS:
        found.append(asyncio.run(measure_group(bootstrap, count)))
        print("groups:", _row(found[-1]), file=sys.stderr, flush=True)
    lines = [
        "## Many partitions on one worker",
        "",
        f"{PER_PARTITION} records a partition (k = 3, δ = 10), evidence and quarantine, one broker. Seconds by the",
        "clock, and of processor time of the worker in brackets. **First start**: until `/readyz` answers, without a",
        "committed offset; **restart**: with one for each partition; **take-over**: from SIGTERM to another worker",
        "that has half of them, until this one is ready with all; **drain**: the whole process. Load as above.",
        "",
        "| partitions | first row | first start | restart | take-over | stop | drain | load |",
        "|---|---|---|---|---|---|---|---|",
        *map(_row, found),
        "",
        f"Limits with {LIMITED} partitions, on a machine that does nothing else: {MOST_READY_S:.0f} s until ready, and",
        f"{MOST_DRAIN_S:.0f} s for a drain.",
        "",
    ]
    limited = next(one for one in found if one.partitions == LIMITED)
    limits = [
        Limit("first start until ready, s", limited.first_start.clock_s, MOST_READY_S, at_most=True),
        Limit("restart until ready, s", limited.restart.clock_s, MOST_READY_S, at_most=True),
        Limit("drain, s", limited.drain.clock_s, MOST_DRAIN_S, at_most=True),
    ]
    return Part(lines, limits)


if __name__ == "__main__":
    for number in sys.argv[1:]:
        print(_row(asyncio.run(measure_group(os.environ["SHOAL_TEST_BROKER"], int(number)))), flush=True)
