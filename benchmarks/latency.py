"""Added latency: the time from the arrival that decides a cluster until a reader of committed records has the cluster.

The algorithm itself holds a record until its cluster is decided. What comes after that is the service's: reading,
deciding, waiting for the next commit, the transaction. Records are sent at a fixed rate by the measuring program, which
keeps the time of each; the arrival that decides a cluster is found by a second run of the pipeline over the same
records, one at a time. A bare transaction, of the same client and over the same broker, is measured for comparison.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka_to_kafka import document, messages, new_topic
from measuring import percentile
from part import Limit, Part
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy, resolve_rule
from shoal.policy.schema import Document
from shoal.streams import PartitionPipeline
from worker_process import load_average, running

__all__ = ["Latency", "decided_clusters", "latency_part", "measure_latency", "send"]

PARTITIONS, PER_S, SECONDS, WARM_UP_S = 4, 500, 60.0, 5.0
INTERVALS_MS = (50, 200)
RULES = ("auto", "nearest")
"""The rule `block` decides some clusters together; `nearest` decides one after the other."""
BARE_TRANSACTIONS = 100
LAST_S = 2.0
"""Time for the last clusters to arrive (s)."""


class Latency(NamedTuple):
    """Added latency of clusters at one commit interval (ms), and processor time of the worker a record (µs)."""

    rule: str
    interval_ms: int
    clusters: int
    p50: float
    p99: float
    longest: float
    cpu_us: float
    load: float


def decided_clusters(policy: Policy, values: Sequence[bytes]) -> list[tuple[int, list[int]]]:
    """Return the clusters of a partition: the index of the record whose arrival decides it, and those of its records.

    All values must fit the policy.
    """
    decoder, pipeline = JsonDecoder(policy, max_bytes=1_000_000), PartitionPipeline(policy, JsonEncoder(policy))
    found: list[tuple[int, list[int]]] = []
    for index, value in enumerate(values):
        decisions = pipeline.push(decoder.decode([value]), np.array([[0, index]]))
        found += [(index, list(cluster.offsets)) for cluster in decisions.clusters]
    return found


@asynccontextmanager
async def reader(bootstrap: str, topic: str, partitions: int) -> AsyncIterator[AIOKafkaConsumer]:
    """Open a consumer that a broker answers as soon as there is a committed record."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        yield consumer
    finally:
        await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, readable: dict[int, float]) -> None:
    """Note when each record can be read, by its serial number."""
    while True:
        found = await consumer.getmany(timeout_ms=1000)
        now = time.monotonic()
        for of_partition in found.values():
            for message in of_partition:
                readable[json.loads(message.value)["serial"]] = now


async def send(bootstrap: str, topic: str, values: Sequence[bytes], per_s: float, partitions: int) -> list[float]:
    """Send the records at a fixed rate, in turn over the partitions, and return when each was sent."""
    sent = []
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        began = time.monotonic()
        for number, value in enumerate(values):
            if (pause := began + number / per_s - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            sent.append(time.monotonic())
            await producer.send(topic, value, partition=number % partitions)
        await producer.flush()
    return sent


async def bare_transactions(bootstrap: str) -> list[float]:
    """Return the times from the start of a transaction of one record until a reader has the record (ms)."""
    topic = await new_topic(bootstrap, f"bare-{uuid.uuid4().hex[:8]}", 1)
    took = []
    async with (
        reader(bootstrap, topic, 1) as consumer,
        AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic, linger_ms=0) as producer,
    ):
        for _ in range(BARE_TRANSACTIONS):
            began = time.monotonic()
            async with producer.transaction():
                await producer.send(topic, b"x", partition=0)
            await consumer.getone()
            took.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(0.03)  # until the transaction has ended for its coordinator too
    return took


async def measure_latency(
    bootstrap: str,
    interval_ms: int,
    rule: str = "auto",
    *,
    partitions: int = PARTITIONS,
    per_s: float = PER_S,
    seconds: float = SECONDS,
) -> Latency:
    """Run a worker, send records to it, and compare the times."""
    run = f"latency-{uuid.uuid4().hex[:8]}"
    source, target = await new_topic(bootstrap, run, partitions), await new_topic(bootstrap, f"{run}-out", partitions)
    content = document(bootstrap, source, target)
    content["kafka"]["commit_interval_ms"] = interval_ms
    content["stream"]["rule"] = rule
    policy = Policy.from_document(Document.model_validate(content))
    values = messages(round(per_s * seconds))
    readable: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with running(content, Path(folder)) as worker, reader(bootstrap, target, partitions) as consumer:
            await worker.until_ready()
            gc.collect()
            gc.freeze()
            reading = asyncio.create_task(_read(consumer, readable))
            cpu = worker.cpu_s
            sent = await send(bootstrap, source, values, per_s, partitions)
            cpu, load = worker.cpu_s - cpu, load_average()
            await asyncio.sleep(LAST_S)
            reading.cancel()
            await asyncio.wait({reading})
    added = await asyncio.to_thread(_added_ms, policy, values, sent, readable, partitions)
    return Latency(
        resolve_rule(rule, policy.k),
        interval_ms,
        len(added),
        percentile(added, 0.5),
        percentile(added, 0.99),
        max(added),
        cpu / len(values) * 1e6,
        load,
    )


def _added_ms(
    policy: Policy, values: Sequence[bytes], sent: Sequence[float], readable: dict[int, float], partitions: int
) -> list[float]:
    """Return the added latency of each cluster (ms), without those of the warm-up."""
    added = []
    for partition in range(partitions):
        for by, members in decided_clusters(policy, values[partition::partitions]):
            decided = sent[by * partitions + partition]
            if decided - sent[0] >= WARM_UP_S:
                last = max(readable[member * partitions + partition] for member in members)
                added.append((last - decided) * 1000)
    return added


async def _measure(bootstrap: str) -> tuple[list[float], list[Latency]]:
    bare, found = await bare_transactions(bootstrap), []
    for rule, interval_ms in product(RULES, INTERVALS_MS):
        found.append(await measure_latency(bootstrap, interval_ms, rule))
        print(
            "latency: {}, {} ms: {} clusters, p50 {:.0f}, p99 {:.0f}, max {:.0f} ms".format(*found[-1]), file=sys.stderr
        )
    return bare, found


def latency_part(bootstrap: str) -> Part:
    """Added latency at two commit intervals."""
    bare, found = asyncio.run(_measure(bootstrap))
    lines = [
        "## Added latency",
        "",
        f"{PER_S} records a second over {PARTITIONS} partitions for {SECONDS:.0f} s (k = 10, δ = 100), one worker. Of",
        "each cluster the time from the arrival that decides it until a reader of committed records has it whole; the",
        f"first {WARM_UP_S:.0f} s are left out. It contains the producer's request, the reader's, and on average half",
        "a commit interval.",
        "",
        (
            "| rule | commit interval, ms | clusters | p50, ms | p99, ms | max, ms | limit of p99, ms "
            "| µs of processor a record | load |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {one.rule} | {one.interval_ms} | {one.clusters:,} | {one.p50:.0f} | {one.p99:.0f} | {one.longest:.0f} "
            f"| {_limit_ms(one.interval_ms):.0f} | {one.cpu_us:.0f} | {one.load:.1f} |"
            for one in found
        ),
        "",
        f"A transaction of one record by a bare client takes {percentile(bare, 0.5):.0f} ms until the record can be",
        f"read (p99 {percentile(bare, 0.99):.0f} ms). Load: processes that run or wait for one of {os.cpu_count()}",
        "processors, mean of the last minute; the limits hold on a machine that does nothing else.",
        "",
    ]
    limits = [
        Limit(
            f"added latency, {one.rule}, at {one.interval_ms} ms, p99, ms",
            one.p99,
            _limit_ms(one.interval_ms),
            at_most=True,
        )
        for one in found
    ]
    return Part(lines, limits)


def _limit_ms(interval_ms: int) -> float:
    return 200.0 if interval_ms == 50 else interval_ms + 100.0


def main() -> None:
    """Measure one interval: `latency.py MS SECONDS PARTITIONS PER_S RULE`."""
    rule = sys.argv.pop()
    interval, seconds, partitions, per_s = (float(word) for word in sys.argv[1:])
    found = asyncio.run(
        measure_latency(
            os.environ["SHOAL_KAFKA__BOOTSTRAP_SERVERS"],
            round(interval),
            rule,
            seconds=seconds,
            partitions=round(partitions),
            per_s=per_s,
        )
    )
    print(found)


if __name__ == "__main__":
    main()
