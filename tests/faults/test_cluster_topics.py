"""Topics of a cluster with other configs: timestamps of the broker under a clock that jumps, and a compacted input."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.clock_workers import ClockWorker
from support.cluster import cluster
from support.faketime import SetClock
from support.faulty_workers import SIDE, Deployment, Worker, leaks
from support.kafka_broker import produce, read_all
from support.reliability import record
from support.repeated_kills import PARTITIONS, kill_repeatedly
from support.storms import ACCUSATION, WAVE, feed, logs, storm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("kernels")]

HOURS_S = 7200
KILLS = 6
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "0",
}
PEOPLE = 400
"""So many keys: most records of the input are replaced by a later one of the same person."""


async def test_the_clock_of_workers_jumps_while_brokers_date_the_output(tmp_path: Path) -> None:
    clock = SetClock(tmp_path / "clock.txt")
    clock.set_ahead(0)

    def make(plain: Worker) -> ClockWorker:
        return ClockWorker(plain.name, plain.policy, plain.bootstrap, plain.log, is_fresh=True, clock=clock)

    # With timestamps of the worker, a topic refuses records that are dated an hour ahead: the worker would end.
    configs = {topic: {"message.timestamp.type": "LogAppendTime"} for topic in SIDE}
    async with storm("append-time-clock", tmp_path, make=make, configs=configs) as one:
        for ahead_s in (0, HOURS_S, 0, 0):
            clock.set_ahead(ahead_s)
            before = await one.deployment.resolved()
            await feed(one.producer, one.deployment)
            await one.until_progress(before + WAVE // 2)
        await one.settled("the clock was two hours ahead and back; the workers continued")


@dataclass
class CompactedDeployment(Deployment):
    """Records have the person as their key, and the input keeps the last record of each."""

    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition and offset of each record by its serial number."""

    async def put(self, count: int, partitions: int) -> None:
        values = self.records(count)
        first = self.serial - count
        keys = [f"{(first + number) % PEOPLE}".encode() for number in range(count)]
        where = [int(key) % partitions for key in keys]
        input_topic = self.topics["input"]
        found = await produce(
            self.bootstrap, input_topic, values, keys=keys, partitions=where, linger_ms=5, enable_idempotence=True
        )
        self.sent.update(zip(range(first, self.serial), found, strict=True))


async def small_clusters(deployment: CompactedDeployment) -> int:
    """Return how many clusters have fewer than k subjects, by what was sent."""
    serial_of = {record_id: serial for serial, record_id in deployment.sent.items()}
    evidence = await read_all(deployment.bootstrap, deployment.topics["evidence"])
    clusters = [json.loads(message.value or b"") for message in evidence]
    serials = [[serial_of[one["partition"], offset] for offset in one["offsets"]] for one in clusters]
    assert clusters
    return sum(len({serial * 7919 % 3001 for serial in cluster}) < deployment.k for cluster in serials)


async def test_workers_are_killed_over_a_compacted_input(tmp_path: Path) -> None:
    settings = ("log.cleaner.backoff.ms=500",)
    with cluster(tmp_path / "kafka", settings) as brokers:
        deployment = await CompactedDeployment.create(
            brokers.bootstrap, tmp_path, partitions=PARTITIONS, configs={"input": COMPACTED}
        )
        await kill_repeatedly(deployment, KILLS, 1000)
        remaining = {(m.partition, m.offset) for m in await read_all(brokers.bootstrap, deployment.topics["input"])}
        output = await read_all(brokers.bootstrap, deployment.topics["output"])
        references = [
            json.loads(message.value or b"")
            for message in await read_all(brokers.bootstrap, deployment.topics["quarantine"])
        ]
        outcomes = Counter(deployment.sent[json.loads(message.value or b"")["serial"]] for message in output)
        outcomes.update((one["partition"], one["offset"]) for one in references)
        twice, lost = sum(count - 1 for count in outcomes.values()), len(remaining - set(outcomes))
        canaries = len(await leaks(deployment))
        small = await small_clusters(deployment)
        said = await asyncio.to_thread(logs, tmp_path)
        assert (twice, lost, small, canaries, said.count(ACCUSATION)) == (0, 0, 0, 0, 0)
        removed = deployment.serial - len(remaining)
        suppressed = sum(one["reason"] == "suppressed" for one in references)
        assert suppressed > 0, "no held record was removed: the test tests nothing"
        assert removed > deployment.serial // 4, "hardly a record was removed: the test tests nothing"
        record(
            "compacted-input",
            f"{removed:,} records were removed from the input, {suppressed} were suppressed",
            records=deployment.serial,
            twice=twice,
            lost=lost,
            under_k=small,
            canaries=canaries,
            accusations=0,
            gone=0,
        )
