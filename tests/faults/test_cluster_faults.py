"""Faults of a cluster of three brokers under load: no worker ends, no record twice or lost.

Brokers are killed, paused and restarted, forget what they do not need, date the output themselves, compact the input,
and run out of disk space.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from shoal.kafka import export_progress, import_progress
from shoal.policy import Policy
from shoal.settings import kafka_settings
from support.cluster import NODES, TRANSACTION, Cluster, cluster
from support.faketime import ClockWorker, SetClock
from support.faulty_workers import Deployment, Worker, leaks
from support.kafka_broker import Wanted, admin, create_topics, load_local, produce, read_all, wait_until
from support.reliability import record
from support.repeated_kills import PARTITIONS, kill_repeatedly
from support.running import SIDE, sample
from support.storms import ACCUSATION, PATIENCE_S, WAVE, Storm, feed, logs, storm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("kernels")]

AWAY_S = 20.0
"""Time for which brokers are away (s): longer than a session of the group."""


AFTER_S = 3.0
"""Time after which what was sent before a fault has been published (s)."""

PAUSED_LIMIT_S = 45.0
"""The controllers replace a silent broker after 9 s. Clients that wait 40 s for it need much longer (s)."""


@pytest.mark.parametrize(
    ("fault", "of"),
    [("output-leader", "output"), ("group-coordinator", "offsets"), ("transaction-coordinator", "transactions")],
)
async def test_a_leader_is_killed_three_times(fault: str, of: str, tmp_path: Path) -> None:
    async with storm(fault, tmp_path) as one:
        gaps_s = []
        for _ in range(3):
            leader = await one.leader(of)

            async def strike(leader: int = leader) -> None:
                await one.brokers.end(leader)
                gaps_s.append(await progress_s(one))
                assert await one.leader(of) != leader

            await one.under_load(strike)
            await one.brokers.start(leader)
            await one.brokers.until_in_sync(*one.deployment.topics.values(), "__consumer_offsets")
        await one.settled(f"records were published again {min(gaps_s):.1f} to {max(gaps_s):.1f} s after the kill")


async def progress_s(one: Storm) -> float:
    """Return how long it takes until the next records are resolved (s)."""
    began_s, before = time.monotonic(), await one.deployment.resolved()
    await one.deployment.wait_for(before + 1, PATIENCE_S)
    return time.monotonic() - began_s


async def release_s(one: Storm) -> float:
    """Feed, and return how long it takes until every worker has released records again, by its own count (s)."""

    async def released(worker: Worker) -> float:
        return sample(await worker.metrics(), "shoal_records_total", outcome="released")

    began_s, feeding = time.monotonic(), asyncio.create_task(feed(one.producer, one.deployment, pause_s=1.0))
    await asyncio.sleep(AFTER_S)
    before = [await released(worker) for worker in one.workers]

    async def have_released() -> bool:
        return all([await released(worker) > count for worker, count in zip(one.workers, before, strict=True)])

    await wait_until(have_released, PATIENCE_S, "released records")
    passed_s = time.monotonic() - began_s
    await feeding
    return passed_s


async def test_two_of_three_brokers_are_away(tmp_path: Path) -> None:
    async with storm("two-of-three", tmp_path) as one:

        async def strike() -> None:
            for node in NODES[1:]:
                await one.brokers.end(node)
            await asyncio.sleep(AWAY_S)
            for node in NODES[1:]:
                await one.brokers.start(node)

        await one.under_load(strike)
        await one.settled("the workers waited, and continued")


async def test_brokers_are_restarted_one_after_the_other(tmp_path: Path) -> None:
    async with storm("rolling-brokers", tmp_path) as one:
        for node in NODES:

            async def strike(node: int = node) -> None:
                await one.brokers.end(node, signal.SIGTERM)
                await one.brokers.start(node)

            await one.under_load(strike)
            await one.brokers.until_in_sync(*one.deployment.topics.values(), "__consumer_offsets")
        await one.settled("three brokers were restarted; the workers continued")


OLDER_KAFKA = "4.2.1"


LOST_MARKER = "while sending txn marker"
"""What a coordinator logs that does not end a transaction by itself."""


async def lose_marker(brokers: Cluster, ids: Sequence[str]) -> int:
    """Commit a transaction with one of these ids, whose end is not written; return the coordinator of this id."""
    (topic,) = await create_topics(brokers.bootstrap, [Wanted(1)])
    leader = await brokers.leader(topic)
    coordinators = {name: await brokers.coordinator(TRANSACTION, name) for name in ids}
    name = next(name for name, coordinator in coordinators.items() if coordinator != leader)
    async with AIOKafkaProducer(bootstrap_servers=brokers.bootstrap, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"", partition=0)
        for index in (brokers.folder(leader) / "data").glob(f"{topic}-0/*index"):
            os.truncate(index, 0)  # what is mapped into memory is gone, as on a full disk
        await producer.commit_transaction()
    await wait_until(lambda: LOST_MARKER in brokers.said(coordinators[name]), 30, "the failure of the coordinator")
    await brokers.end(leader)
    await brokers.start(leader)
    return coordinators[name]


async def test_a_coordinator_does_not_end_a_transaction(tmp_path: Path) -> None:
    async with storm("lost-marker", tmp_path, settings=("log.index.interval.bytes=1",)) as one:
        await feed(one.producer, one.deployment)
        await one.until_progress(WAVE // 2)
        assert [worker.terminate() for worker in one.workers] == [0, 0]
        topic = one.deployment.topics["input"]
        broker = await lose_marker(one.brokers, [f"group-{topic}-{topic}-{number}" for number in range(PARTITIONS)])
        for worker in one.workers:
            worker.start()
        await wait_until(lambda: f"restart broker {broker}: " in one.said, PATIENCE_S, "the name of the broker")

        async def strike() -> None:
            await one.brokers.end(broker, signal.SIGTERM)
            await one.brokers.start(broker)

        await one.under_load(strike)
        await one.settled("the workers named the broker, and continued after its restart")


async def test_brokers_are_upgraded_one_after_the_other(tmp_path: Path) -> None:
    local = load_local()
    async with storm("rolling-upgrade", tmp_path, version=OLDER_KAFKA) as one:
        for node in NODES:

            async def strike(node: int = node) -> None:
                await one.brokers.end(node, signal.SIGTERM)
                await one.brokers.start(node, version="")

            await one.under_load(strike)
            await one.brokers.until_in_sync(*one.deployment.topics.values(), "__consumer_offsets")
        (newer,) = {path.stem.rpartition("-")[2] for path in local.fetch_libraries().glob("kafka_2.13-*.jar")}
        await one.settled(f"three brokers were moved from Kafka {OLDER_KAFKA} to {newer}; the workers continued")


async def test_a_paused_leader_does_not_return_as_one(tmp_path: Path) -> None:
    async with storm("paused-broker", tmp_path) as one:
        leader = await one.leader("output")

        async def strike() -> None:
            one.brokers.send(leader, signal.SIGSTOP)
            try:
                await asyncio.sleep(AWAY_S)
            finally:
                one.brokers.send(leader, signal.SIGCONT)

        await one.under_load(strike)
        assert await one.leader("output") != leader, "the broker still leads: the test tests nothing"
        await one.settled("another broker led meanwhile; the workers continued")


@pytest.mark.parametrize(("fault", "of"), [("group-paused", "offsets"), ("transactions-paused", "transactions")])
async def test_a_paused_coordinator_is_replaced_within_seconds(fault: str, of: str, tmp_path: Path) -> None:
    async with storm(fault, tmp_path) as one:
        gaps_s = []
        coordinator = await one.leader(of)

        async def strike() -> None:
            one.brokers.send(coordinator, signal.SIGSTOP)
            try:
                gaps_s.append(await release_s(one))
            finally:
                one.brokers.send(coordinator, signal.SIGCONT)

        await one.under_load(strike)
        assert gaps_s[0] < PAUSED_LIMIT_S
        await one.settled(f"every worker published again within {gaps_s[0]:.1f} s")


# ---------------------------------------------------------------- what brokers forget

OFFSETS_EXPIRE = ("offsets.retention.minutes=1", "offsets.retention.check.interval.ms=1000")
IDS_EXPIRE = (
    "transactional.id.expiration.ms=4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms=1000",
    "producer.id.expiration.ms=4000",
    "producer.id.expiration.check.interval.ms=1000",
)


async def test_offsets_of_the_group_expire(tmp_path: Path) -> None:
    async with storm("offsets-expired", tmp_path, settings=OFFSETS_EXPIRE) as one:
        deployment, first = one.deployment, one.workers[0]
        await feed(one.producer, deployment)
        await one.until_progress(WAVE // 2)
        assert [worker.terminate() for worker in one.workers] == [0, 0]
        policy = Policy.load(deployment.policy)
        settings = kafka_settings(policy, {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": deployment.bootstrap})
        saved = await export_progress(settings)
        await wait_until(lambda: have_expired(one), PATIENCE_S, "the expiry of the offsets")
        before = await deployment.read(deployment.topics["output"])
        first.start()
        await wait_until(lambda: first.is_dead, 60, "the refusal")
        assert first.code == 2
        assert "has no committed offset, but" in first.said
        assert await read_all(deployment.bootstrap, deployment.topics["output"]) == before
        assert await import_progress(saved, policy, settings) == {deployment.topics["input"]: list(range(PARTITIONS))}
        first.process = None  # its end was expected
        for worker in one.workers:
            worker.start()
        await feed(one.producer, deployment)
        await one.until_progress(WAVE + WAVE // 2)
        happened = "the start was refused with exit code 2; after the import the workers continued"
        await one.settled(happened, refusals=1)


async def have_expired(one: Storm) -> bool:
    """Whether the group has no committed offset of the input."""
    with contextlib.suppress(KafkaError):
        async with admin(one.brokers.bootstrap) as client:
            topic = one.deployment.topics["input"]
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            found = await client.list_consumer_group_offsets(f"group-{topic}", partitions=partitions)
            # An answer that is an error as a whole has no partitions.
            return len(found) == PARTITIONS and all(offset.offset < 0 for offset in found.values())
    return False


async def test_transactional_ids_expire_while_nothing_is_published(tmp_path: Path) -> None:
    async with storm("transactional-ids-expired", tmp_path, settings=IDS_EXPIRE) as one:
        for _ in range(3):
            before = await one.deployment.resolved()
            await feed(one.producer, one.deployment)
            await one.until_progress(before + WAVE // 2)
            await wait_until(lambda: have_ids_expired(one), PATIENCE_S, "expired ids")
        await one.settled("the ids expired three times; the workers continued each time")


async def have_ids_expired(one: Storm) -> bool:
    """Whether the log of the transactional ids ends with the removal of each id of the group."""
    latest: dict[bytes, bool] = {}
    for message in await read_all(one.brokers.bootstrap, "__transaction_state", "read_uncommitted"):
        if message.key is not None and one.deployment.topics["input"].encode() in message.key:
            latest[message.key] = message.value is None
    return len(latest) == PARTITIONS and all(latest.values())


# ---------------------------------------------------------------- topics with other configs

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
        happened = f"{removed:,} records were removed from the input, {suppressed} were suppressed"
        counts = {"twice": twice, "lost": lost, "under_k": small, "canaries": canaries, "accusations": 0, "gone": 0}
        record("compacted-input", happened, records=deployment.serial, **counts)


# ---------------------------------------------------------------- a full disk

NODE, SIZE = 2, "96m"
CHUNK = bytes(1 << 20)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Put the data of a broker, which does not run yet, on a file system of its own."""
    copied = folder.with_name("copied")
    shutil.copytree(folder, copied)
    _run("mount", "-t", "tmpfs", "-o", f"size={SIZE},uid={os.getuid()}", "tmpfs", str(folder))
    try:
        shutil.copytree(copied, folder, dirs_exist_ok=True)
        yield
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    asked = command if os.geteuid() == 0 else ("sudo", "-n", *command)
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr.strip()}\nthis test mounts a small file system: run it as root"


def fill(folder: Path) -> Path:
    """Fill a file system with one file."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(CHUNK):
                pass
        except OSError:
            return path
    raise AssertionError


SECOND = "second"


@contextmanager
def second_directory(folder: Path) -> Iterator[None]:
    """Give a broker, which does not run yet, a second log directory on a small file system of its own."""
    second, written = folder / SECOND, (folder / "data" / "meta.properties").read_text(encoding="utf-8")
    second.mkdir()
    with small_disk(second):
        own = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        lines = [f"directory.id={own}" if line.startswith("directory.id") else line for line in written.splitlines()]
        (second / "meta.properties").write_text("\n".join(lines) + "\n", encoding="utf-8")
        with (folder / "server.properties").open("a", encoding="utf-8") as file:
            file.write(f"log.dirs={folder / 'data'},{second}\nmetadata.log.dir={folder / 'data'}\n")
        yield


async def test_a_log_directory_of_a_broker_fails(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def change(folders: Sequence[Path]) -> None:
            stack.enter_context(second_directory(folders[NODE - 1]))

        async with storm("failing-directory", tmp_path, change=change) as one:
            second, fates = one.brokers.folder(NODE) / SECOND, []
            failed = f"Stopping serving replicas in dir {second}"

            async def strike() -> None:
                filler = await asyncio.to_thread(fill, second)

                def has_failed() -> bool:
                    return failed in one.brokers.said(NODE) or one.brokers.is_gone(NODE)

                await wait_until(has_failed, PATIENCE_S, "the failure of the directory")
                fates.append("ended" if one.brokers.is_gone(NODE) else "went on with the other directory")
                await feed(one.producer, one.deployment)
                filler.unlink()
                await one.brokers.end(NODE)
                await one.brokers.start(NODE)

            output = one.deployment.topics["output"]
            assert list(second.glob(f"{output}-*")), "no output is in the directory: the test tests nothing"
            await one.under_load(strike)
            await one.brokers.until_in_sync(*one.deployment.topics.values())
            await one.settled(f"the broker {fates[0]}; the workers continued")


async def test_the_disk_of_a_broker_is_full(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def change(folders: Sequence[Path]) -> None:
            stack.enter_context(small_disk(folders[NODE - 1] / "data"))

        async with storm("disk-full", tmp_path, change=change) as one:
            data = one.brokers.folder(NODE) / "data"

            async def strike() -> None:
                filler = await asyncio.to_thread(fill, data)
                await wait_until(lambda: one.brokers.is_gone(NODE), PATIENCE_S, "the end of the broker")
                before = await one.deployment.resolved()
                await one.deployment.wait_for(before + 1, PATIENCE_S)
                filler.unlink()
                await one.brokers.start(NODE)
                for node in NODES:
                    # As the runbook says: the full disk can fail a write of an index, which Kafka does not foresee.
                    if LOST_MARKER in one.brokers.said(node):
                        restarted.append(node)
                        await one.brokers.end(node, signal.SIGTERM)
                        await one.brokers.start(node)

            restarted: list[int] = []
            assert await one.brokers.leads(NODE, one.deployment.topics["output"])
            await one.under_load(strike)
            await one.brokers.until_in_sync(*one.deployment.topics.values())
            happened = "the broker ended, the workers continued with the two others"
            await one.settled(happened + (" (the coordinator of transactions was restarted)" if restarted else ""))
