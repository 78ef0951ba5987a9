"""What a worker needs: memory by partitions and delta, processor time a record, time until it is ready, and network."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka_to_kafka import document, fill, messages, new_topic
from part import Part
from shoal.policy import resolve_rule
from worker_process import Service, running

__all__ = ["Size", "memory_of_a_partition", "sizing_part"]

SETUPS = ((1, 500), (8, 500), (64, 500), (1, 20_000), (8, 20_000))
"""Partitions and delta. 64 partitions with the larger delta follow from the others."""
BEYOND = 1.2
"""Records of a partition, of delta: its buffer is full, and clusters are released."""
LEAST_RECORDS = 40_000
"""So many at least in all, for the processor time."""
PATIENCE_S, STEP_S, SAMPLED = 900.0, 0.1, 5000


class Size(NamedTuple):
    """One worker: memory (MB) when ready and at most, time until ready (s), and processor time (s; µs a record)."""

    partitions: int
    delta: int
    ready_mb: float
    peak_mb: float
    ready_s: float
    ready_cpu_s: float
    cpu_us: float


class Network(NamedTuple):
    """Mean length (bytes) of an input record, an output record, and the evidence of a record."""

    read: float
    written: float
    evidence: float


def memory_of_a_partition(fewer: Size, more: Size) -> float:
    """Return the memory that one more partition takes (MB), from two workers of the same delta."""
    return (more.peak_mb - fewer.peak_mb) / (more.partitions - fewer.partitions)


def yardstick_us(values: Sequence[bytes]) -> float:
    """Return the processor time of parsing and writing one of these records with Python's json module (µs)."""
    began = time.process_time()
    for value in values:
        json.dumps(json.loads(value))
    return (time.process_time() - began) / len(values) * 1e6


async def _measure_setup(bootstrap: str, partitions: int, delta: int) -> tuple[Size, Network]:
    count = max(LEAST_RECORDS, math.ceil(partitions * delta * BEYOND))
    run = f"sizing-{uuid.uuid4().hex[:8]}"
    names = [await new_topic(bootstrap, f"{run}-{kind}", partitions) for kind in ("in", "out", "evidence")]
    content = document(bootstrap, names[0], names[1])
    content["stream"]["delta"] = delta
    content["kafka"]["evidence"] = names[2]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        async with running(content, Path(folder)) as worker:
            await worker.until_ready()
            ready = worker.memory_mb, time.monotonic() - began, worker.cpu_s
            await fill(bootstrap, names[0], ((value, 0) for value in messages(count)), partitions=partitions)
            await _until_read(worker, count)
            cpu_us, peak_mb = (worker.cpu_s - ready[2]) / count * 1e6, worker.peak_mb
    memory, ready_s, ready_cpu_s = ready
    lengths = [await _mean_length(bootstrap, name) for name in names]
    per_cluster = await _records_of_evidence(bootstrap, names[2])
    return (
        Size(partitions, delta, memory, peak_mb, ready_s, ready_cpu_s, cpu_us),
        Network(lengths[0], lengths[1], lengths[2] / per_cluster),
    )


async def _until_read(worker: Service, count: int) -> None:
    """Wait until every record was read and nothing more is released."""
    deadline, done = time.monotonic() + PATIENCE_S, -1.0
    while True:
        worker.check()
        metrics = await worker.metrics()
        released = metrics.total("shoal_records_total", outcome="released")
        if metrics.total("shoal_records_total", outcome="in") >= count and released == done:
            return
        if time.monotonic() > deadline:
            raise SystemExit("bench: the worker did not read everything")
        done = released
        await asyncio.sleep(10 * STEP_S)


async def _sampled(bootstrap: str, topic: str) -> list[bytes]:
    """Return some messages of the first partition."""
    found: list[bytes] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < SAMPLED and (polled := await consumer.getmany(timeout_ms=2000)):
            found += [message.value for of_partition in polled.values() for message in of_partition]
    return found[:SAMPLED]


async def _mean_length(bootstrap: str, topic: str) -> float:
    found = await _sampled(bootstrap, topic)
    return sum(map(len, found)) / len(found)


async def _records_of_evidence(bootstrap: str, topic: str) -> float:
    """Return the mean number of records of a cluster."""
    found = await _sampled(bootstrap, topic)
    return sum(len(json.loads(value)["offsets"]) for value in found) / len(found)


async def _measure(bootstrap: str) -> tuple[list[Size], Network]:
    sizes, network = [], Network(math.nan, math.nan, math.nan)
    for partitions, delta in SETUPS:
        size, network = await _measure_setup(bootstrap, partitions, delta)
        sizes.append(size)
        print(
            f"sizing: {partitions} partitions, delta {delta}: {size.peak_mb:.0f} MB, {size.cpu_us:.1f} µs a record",
            file=sys.stderr,
            flush=True,
        )
    return sizes, network


def sizing_part(bootstrap: str) -> Part:
    """What a worker needs."""
    values = messages(20_000)
    before = yardstick_us(values)
    sizes, network = asyncio.run(_measure(bootstrap))
    yardstick = (before + yardstick_us(values)) / 2
    by_setup = {(size.partitions, size.delta): size for size in sizes}
    lines = [
        "## Size of a worker",
        "",
        f"The policy of the part `kafka` (4 quasi-identifiers, k = 10, rule `{resolve_rule('auto', 10)}`), evidence;",
        "every buffer is full. Memory is resident memory, and counts the libraries that workers of one machine share.",
        "Processor time is that of the worker after it was ready; beside it how often Python's json module",
        f"parses and writes the same record in that time ({yardstick:.1f} µs each), which depends less on the machine.",
        "",
        (
            "| partitions | δ | memory when ready, MB | at most, MB | until ready, s | of it processor, s "
            "| µs of processor a record | records/s of one processor | of json |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {one.partitions} | {one.delta:,} | {one.ready_mb:.0f} | {one.peak_mb:.0f} | {one.ready_s:.1f} "
            f"| {one.ready_cpu_s:.1f} | {one.cpu_us:.1f} | {1e6 / one.cpu_us:,.0f} | {one.cpu_us / yardstick:.1f} |"
            for one in sizes
        ),
        "",
        "Memory of one more partition: "
        + ", ".join(
            f"{memory_of_a_partition(by_setup[1, delta], by_setup[more, delta]):.1f} MB at δ = {delta:,}"
            for delta, more in ((500, 64), (20_000, 8))
        )
        + ".",
        f"Network, bytes a record without compression: {network.read:.0f} read, {network.written:.0f} written to the",
        f"output and {network.evidence:.0f} of evidence.",
        "",
    ]
    return Part(lines, [])


def main() -> None:
    """Measure one setup: `sizing.py BOOTSTRAP PARTITIONS DELTA`."""
    bootstrap, partitions, delta = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        print(*asyncio.run(_measure_setup(bootstrap, int(partitions), int(delta))), sep="\n")


if __name__ == "__main__":
    main()
