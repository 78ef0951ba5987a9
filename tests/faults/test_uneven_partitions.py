"""64 partitions of which one has nine tenths of the records: the others keep their delay, and one worker its memory."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from support.faulty_workers import Deployment, Worker
from support.kafka_broker import wait_until
from support.repeated_kills import check
from support.running import sample

PARTITIONS, HOT = 64, 0
PER_S, SECONDS, BURST_S = 1000, 90.0, 0.1
MAX_DELAY_S, SLACK_S = 20.0, 10.0
"""Slack: two commits of a flush and the way to the reader, on a loaded machine."""
WARM_UP_S = 30.0
GROWTH_MB = 30.0


def partitions_of(count: int, first: int) -> list[int]:
    """Return a partition for each record: nine of ten times the hot one, else the others in turn."""
    return [HOT if number % 10 else 1 + number // 10 % (PARTITIONS - 1) for number in range(first, first + count)]


async def watch(deployment: Deployment, readable: dict[int, float]) -> None:
    """Note when each released record can be read."""
    async with AIOKafkaConsumer(
        bootstrap_servers=deployment.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(deployment.topics["output"], number) for number in range(PARTITIONS)])
        while True:
            found = await consumer.getmany(timeout_ms=1000)
            now = time.monotonic()
            for of_partition in found.values():
                readable.update((json.loads(message.value)["serial"], now) for message in of_partition)


async def feed(
    deployment: Deployment, worker: Worker, sent: list[float], where: list[int]
) -> tuple[list[float], list[float]]:
    """Send records at a fixed rate; return the lag (records) and the memory (MB) of the worker after the warm-up."""
    lags, memory = [], []
    began = time.monotonic()
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap, enable_idempotence=True) as producer:
        while (passed_s := time.monotonic() - began) < SECONDS:
            count = round(passed_s * PER_S) - len(sent)
            partitions = partitions_of(count, len(sent))
            for value, partition in zip(deployment.records(count), partitions, strict=True):
                sent.append(time.monotonic())
                await producer.send(deployment.topics["input"], value, partition=partition)
            where += partitions
            await asyncio.sleep(BURST_S)
            if passed_s > WARM_UP_S:
                lags.append(sample(await worker.metrics(), "shoal_consumer_lag_records"))
                memory.append(worker.memory_mb)
        await producer.flush()
    return lags, memory


def longest_delays(sent: Sequence[float], where: Sequence[int], readable: dict[int, float]) -> tuple[float, float]:
    """Return the longest delay (s) of the hot partition and of the others, from sending to reading."""
    hot = [readable[serial] - sent[serial] for serial in readable if where[serial] == HOT]
    others = [readable[serial] - sent[serial] for serial in readable if where[serial] != HOT]
    return max(hot, default=math.inf), max(others, default=math.inf)


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_one_hot_partition_of_64_does_not_delay_the_others(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS, max_delay_s=MAX_DELAY_S)
    worker = deployment.worker("w0")
    readable: dict[int, float] = {}
    sent: list[float] = []
    where: list[int] = []
    watching = asyncio.create_task(watch(deployment, readable))
    try:
        worker.start()
        await wait_until(lambda: '"partition": 63' in worker.said, 120, "all partitions")
        lags, memory = await feed(deployment, worker, sent, where)
        released_by = Counter(where[serial] for serial in readable)
        hot_s, others_s = longest_delays(sent, where, readable)
        text = await worker.metrics()
        totals = {
            partition: sample(text, "shoal_records_total", outcome="in", partition=str(partition))
            for partition in range(PARTITIONS)
        }
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        assert worker.terminate() == 0
    assert set(released_by) == set(range(PARTITIONS))
    assert others_s < MAX_DELAY_S + SLACK_S
    assert hot_s < MAX_DELAY_S + SLACK_S
    assert max(lags) < PER_S * SLACK_S
    assert max(memory) - min(memory) < GROWTH_MB
    sent_by = Counter(where)
    assert all(totals[partition] <= sent_by[partition] for partition in range(PARTITIONS))
    await deployment.settled([worker])
    await check(deployment)
