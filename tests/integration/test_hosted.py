"""A session fed by a host that loses, repeats and shuffles: what enters a lane is what is in the log, in its order."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from shoal.kafka import BrokerLiveness, ClusterListener, ExternalLoop, MetadataCipher, WorkerContext
from shoal.kafka.external_loop import MessageSource
from shoal.kafka.startup import committed
from shoal.observability import Health, Metrics
from shoal.pipeline import DecidedCluster
from shoal.policy import KafkaSection, Policy
from shoal.stage.message_buffer import BufferedMessage
from support.kafka_broker import wait_until
from support.running import EARLIEST, Stage


class Careless:
    """Reads a partition with a client of its own and brings it on with mistakes."""

    def __init__(self, stage: Stage, draw: Random, isolation: str = "read_committed") -> None:
        self._stage, self._draw = stage, draw
        self._waiting: deque[Any] = deque()
        self.lost = self.repeated = self.sent_back = 0
        options = {"auto_offset_reset": "earliest", "isolation_level": isolation}
        self._reader = AIOKafkaConsumer(bootstrap_servers=stage.bootstrap, **options)

    async def bring(self) -> None:
        reader, draw = self._reader, self._draw
        await reader.start()
        try:
            reader.assign([self._stage.place()])
            while True:
                for messages in (await reader.getmany(timeout_ms=50, max_records=draw.randrange(1, 60))).values():
                    fate = draw.random()
                    if fate < 0.1:
                        self.lost += len(messages)
                    elif fate < 0.2:
                        self.repeated += len(messages)
                        self._waiting += [*messages, *messages]
                    elif fate < 0.3:
                        self._waiting.extendleft(reversed(messages))
                    else:
                        self._waiting += messages
        finally:
            await reader.stop()

    async def wait(self, timeout_s: float) -> None:
        await asyncio.sleep(0 if self._waiting else timeout_s)

    def take(self, partition: int, most: int) -> Sequence[Any]:
        assert partition == 0
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    async def rewind(self, partition: int, offset: int) -> None:
        self.sent_back += 1
        self._reader.seek(TopicPartition(self._stage.topics["input"], partition), offset)


@contextlib.asynccontextmanager
async def bringing(host: Careless) -> AsyncIterator[None]:
    task = asyncio.create_task(host.bring())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.asynccontextmanager
async def hosting(
    stage: Stage,
    host: MessageSource,
    handing: ClusterListener,
    partitions: Sequence[int] = (0,),
    most: int = 64,
    *,
    may_contain_uncommitted: bool = False,
) -> AsyncIterator[ExternalLoop]:
    """Lanes that this host feeds; after the block they must end in time."""
    settings, health = stage.settings(policy := Policy.load(stage.policy_file())), Health()
    plan = WorkerContext(policy, settings, Metrics(), health, EARLIEST, MetadataCipher.of(settings))
    hosted = ExternalLoop(
        plan,
        BrokerLiveness(health, 60),
        host,
        partitions,
        handing,
        most,
        may_contain_uncommitted=may_contain_uncommitted,
    )
    task = asyncio.create_task(hosted.run())
    try:
        yield hosted
        assert await hosted.end(10)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_careless_host_costs_time_and_nothing_else(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    places = await stage.put(900)
    upstream = f"upstream-{stage.group}"
    aborted = await stage.put(40, transactional_id=upstream, abort=True)
    places += await stage.put(40, transactional_id=upstream)
    host = Careless(stage, Random(5))
    async with bringing(host), hosting(stage, host, ClusterListener()):
        await stage.until_resolved(places, timeout_s=60)
        fates = await stage.fates()
        assert not set(aborted) & set(fates)
        assert set(fates.values()) == {1}
    assert host.lost > 0
    assert host.repeated > 0
    assert host.sent_back > 0


async def test_a_host_that_has_fetched_what_was_aborted_brings_none_of_it_in(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    upstream = f"upstream-{stage.group}"
    aborted = await stage.put(40, transactional_id=upstream, abort=True)
    places = await stage.put(200)
    aborted += await stage.put(40, transactional_id=upstream, abort=True)
    places += await stage.put(100, transactional_id=upstream)
    host = Careless(stage, Random(5), "read_uncommitted")
    async with bringing(host), hosting(stage, host, ClusterListener(), may_contain_uncommitted=True):
        await stage.until_resolved(places, timeout_s=60)
        fates = await stage.fates()
        assert not set(aborted) & set(fates)
        assert set(fates.values()) == {1}


async def is_behind(stage: Stage, offset: int) -> bool:
    return (await stage.progress()).state.committed_offset > offset


async def test_an_idle_lane_passes_marks_of_transactions(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    places = await stage.put(30, transactional_id=f"upstream-{stage.group}")
    host = Careless(stage, Random(5))
    async with bringing(host), hosting(stage, host, ClusterListener()):
        # The end of the log, at which the clock lets all go, lies behind the mark.
        await stage.until_resolved(places)
        await wait_until(lambda: is_behind(stage, len(places)), what="a watermark behind the mark")


class Tray:
    """Brings what a test lays in, and is never sent back."""

    def __init__(self) -> None:
        self.waiting: dict[int, deque[Any]] = {0: deque(), 1: deque()}

    async def wait(self, timeout_s: float) -> None:
        await asyncio.sleep(0 if any(self.waiting.values()) else timeout_s)

    def take(self, partition: int, most: int) -> Sequence[Any]:
        queue = self.waiting[partition]
        return [queue.popleft() for _ in range(min(most, len(queue)))]

    async def rewind(self, partition: int, offset: int) -> None:
        raise AssertionError(f"nothing is missing at {partition}, {offset}")


async def test_a_slow_customer_of_one_partition_costs_nobody_in_another(bootstrap: str, tmp_path: Path) -> None:
    delay_s = 1.0
    stage = await Stage.create(bootstrap, tmp_path, partitions=2, stream={"delta": 20, "max_delay_s": delay_s})
    is_waiting, may_go_on, seen = asyncio.Event(), asyncio.Event(), set[tuple[int, int]]()

    async def before(partition: int, cluster: DecidedCluster) -> None:
        if partition == 0:
            is_waiting.set()
            await may_go_on.wait()
        seen.update((partition, offset) for offset in cluster.offsets)

    async def bring(count: int, partition: int) -> list[tuple[int, int]]:
        places = await stage.put(count, partition)
        wanted = set(places)
        come = [one for one in await stage.read("input") if (one.partition, one.offset) in wanted]
        tray.waiting[partition] += [
            BufferedMessage(one.offset, one.timestamp_ms, one.key, one.value, ()) for one in come
        ]
        return places

    tray = Tray()
    k = Policy.load(stage.policy_file()).k
    async with hosting(stage, tray, ClusterListener(publishes=False, on_decided=before), (0, 1), most=k) as hosted:
        await asyncio.wait_for(hosted.opened.wait(), 30)
        places = await bring(k - 1, 1)
        await wait_until(lambda: not tray.waiting[1], what="the first few to be read")
        places += await bring(60, 0)
        await asyncio.wait_for(is_waiting.wait(), 30)
        places += await bring(60, 1)
        overdue = time.monotonic() + 3 * delay_s
        await wait_until(lambda: time.monotonic() > overdue, what="the time after which they may leave")
        may_go_on.set()
        await wait_until(lambda: seen == set(places), what="all of them in clusters")
        assert await stage.read("quarantine") == []


async def test_a_coordinator_that_is_late_is_asked_again_before_a_start_is_refused(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    places = await stage.put(100)
    host = Careless(stage, Random(5))
    async with bringing(host), hosting(stage, host, ClusterListener()):
        await stage.until_resolved(places)
    told: list[object] = []

    async def late(client: AIOKafkaAdminClient, settings: KafkaSection, partition: int) -> OffsetAndMetadata | None:
        found = await committed(client, settings, partition)
        told.append(found)
        return None if len(told) == 1 else found

    monkeypatch.setattr("shoal.kafka.startup.committed", late)
    places += await stage.put(100)
    host = Careless(stage, Random(6))
    async with bringing(host), hosting(stage, host, ClusterListener()):
        await stage.until_resolved(places)
    assert len(told) > 1
    assert set((await stage.fates()).values()) == {1}
