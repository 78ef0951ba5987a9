"""An external loop whose source loses, repeats and shuffles messages: a task still processes the log in its order."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from shoal.kafka import BrokerLiveness, ClusterListener, ExternalLoop, MetadataCipher, WorkerContext
from shoal.kafka.external_loop import MessageSource
from shoal.kafka.start import fetch_committed
from shoal.kafka.transactions import TaskContext
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Policy
from shoal.stage.faust_adapter import BufferedMessage
from shoal.streams import DecidedCluster
from support.kafka_broker import admin, open_transaction, wait_until
from support.running import EARLIEST, Stage


class FaultySource:
    """Reads a partition with its own client, and passes the messages on with mistakes."""

    def __init__(self, stage: Stage, draw: Random, isolation: str = "read_committed") -> None:
        self._stage, self._draw = stage, draw
        self._waiting: deque[Any] = deque()
        self.lost = self.repeated = self.rewinds = 0
        options = {"auto_offset_reset": "earliest", "isolation_level": isolation}
        self._reader = AIOKafkaConsumer(bootstrap_servers=stage.bootstrap, **options)

    async def deliver(self) -> None:
        reader, draw = self._reader, self._draw
        await reader.start()
        try:
            reader.assign([self._stage.topic_partition()])
            while True:
                for messages in (await reader.getmany(timeout_ms=50, max_records=draw.randrange(1, 60))).values():
                    draw_of_fault = draw.random()
                    if draw_of_fault < 0.1:
                        self.lost += len(messages)
                    elif draw_of_fault < 0.2:
                        self.repeated += len(messages)
                        self._waiting += [*messages, *messages]
                    elif draw_of_fault < 0.3:
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

    @property
    def is_full(self) -> bool:
        return False

    async def rewind(self, partition: int, offset: int) -> None:
        self.rewinds += 1
        self._reader.seek(TopicPartition(self._stage.topics["input"], partition), offset)


@contextlib.asynccontextmanager
async def running_loop(
    stage: Stage,
    source: MessageSource,
    listener: ClusterListener,
    partitions: Sequence[int] = (0,),
    most: int = 64,
    *,
    may_contain_uncommitted: bool = False,
) -> AsyncIterator[ExternalLoop]:
    """Run a loop that this source feeds; after the block it must end in time."""
    settings, health = stage.settings(policy := Policy.load(stage.policy_file())), Health()
    context = WorkerContext(policy, settings, Metrics(), health, EARLIEST, MetadataCipher.of(settings))
    given = (context, BrokerLiveness(health, 60), source, partitions, listener, most)
    loop = ExternalLoop(*given, may_contain_uncommitted=may_contain_uncommitted)
    task = asyncio.create_task(loop.run())
    try:
        yield loop
        ending = asyncio.create_task(loop.end(60))
        await wait_until(ending.done, 10, "the end of the loop")
        assert ending.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.asynccontextmanager
async def fed_loop(
    stage: Stage, *, seed: int = 5, isolation: str = "read_committed"
) -> AsyncIterator[tuple[ExternalLoop, FaultySource]]:
    """Run a loop with a faulty source."""
    source = FaultySource(stage, Random(seed), isolation)
    delivering = asyncio.create_task(source.deliver())
    uncommitted = isolation == "read_uncommitted"
    try:
        async with running_loop(stage, source, ClusterListener(), may_contain_uncommitted=uncommitted) as loop:
            yield loop, source
    finally:
        delivering.cancel()
        await asyncio.wait([delivering])


async def test_a_faulty_source_delays_records_but_loses_none(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    record_ids = await stage.put(900)
    upstream = f"upstream-{stage.group}"
    aborted = await stage.put(40, transactional_id=upstream, abort=True)
    record_ids += await stage.put(40, transactional_id=upstream)
    async with fed_loop(stage) as (_, source):
        await stage.until_completed(record_ids, timeout_s=60)
        outcomes = await stage.outcomes()
        assert not set(aborted) & set(outcomes)
        assert set(outcomes.values()) == {1}
    assert source.lost > 0
    assert source.repeated > 0
    assert source.rewinds > 0


async def test_records_behind_an_open_transaction_of_a_producer_are_lag(stage: Stage) -> None:
    await stage.put(30)
    async with fed_loop(stage) as (loop, _):

        def has_lag(count: int) -> bool:
            labels = {"topic": stage.topics["input"], "partition": "0"}
            return loop._context.metrics.registry.get_sample_value("shoal_consumer_lag_records", labels) == count

        await wait_until(lambda: has_lag(0), what="the end of the log")
        async with open_transaction(stage.bootstrap, stage.topics["input"], stage.record()):
            await stage.put(7)
            await wait_until(lambda: has_lag(8), what="the lag of the open record and seven behind it")
        await wait_until(lambda: has_lag(0), what="the end of the log")


async def test_a_deleted_input_ends_the_loop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.topics.WATCH_S", 0.3)
    async with fed_loop(stage) as (loop, _):
        await asyncio.wait_for(loop.opened.wait(), 30)
        async with admin(stage.bootstrap) as client:
            await client.delete_topics([stage.topics["input"]])
        await asyncio.wait_for(loop._ended.wait(), 30)
        assert not loop._ending.is_set(), "nothing asked it to end"


async def test_aborted_messages_of_a_source_are_not_processed(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    upstream = f"upstream-{stage.group}"
    aborted = await stage.put(40, transactional_id=upstream, abort=True)
    record_ids = await stage.put(200)
    aborted += await stage.put(40, transactional_id=upstream, abort=True)
    record_ids += await stage.put(100, transactional_id=upstream)
    async with fed_loop(stage, isolation="read_uncommitted"):
        await stage.until_completed(record_ids, timeout_s=60)
        outcomes = await stage.outcomes()
        assert not set(aborted) & set(outcomes)
        assert set(outcomes.values()) == {1}


async def is_behind(stage: Stage, offset: int) -> bool:
    return (await stage.progress()).state.committed_offset > offset


async def test_an_idle_task_skips_transaction_markers(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    record_ids = await stage.put(30, transactional_id=f"upstream-{stage.group}")
    async with fed_loop(stage):
        # The end of the log, at which max_delay_s flushes, is behind the transaction marker.
        await stage.until_completed(record_ids)
        await wait_until(lambda: is_behind(stage, len(record_ids)), what="a committed offset behind the marker")


class ListSource:
    """Delivers the messages that a test puts in; the loop must not request a rewind."""

    def __init__(self) -> None:
        self.waiting: dict[int, deque[Any]] = {0: deque(), 1: deque()}

    async def wait(self, timeout_s: float) -> None:
        await asyncio.sleep(0 if any(self.waiting.values()) else timeout_s)

    def take(self, partition: int, most: int) -> Sequence[Any]:
        queue = self.waiting[partition]
        return [queue.popleft() for _ in range(min(most, len(queue)))]

    @property
    def is_full(self) -> bool:
        return False

    async def rewind(self, partition: int, offset: int) -> None:
        raise AssertionError(f"nothing is missing at {partition}, {offset}")


class SlowClock:
    """A clock whose seconds last as long as ten: max_delay_s does not pass while the machine stands still."""

    def __init__(self) -> None:
        self.rate = 0.1
        self._now_s = self._read_s = time.monotonic()

    def __call__(self) -> float:
        read_s = time.monotonic()
        self._now_s += (read_s - self._read_s) * self.rate
        self._read_s = read_s
        return self._now_s


async def test_a_slow_listener_of_one_partition_does_not_suppress_records_of_another(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay_s, clock = 1.0, SlowClock()
    monkeypatch.setattr("shoal.kafka.task_manager.TaskContext", partial(TaskContext, monotonic_clock=clock))
    stage = await Stage.create(bootstrap, tmp_path, partitions=2, stream={"delta": 20, "max_delay_s": delay_s})
    is_waiting, may_go_on, seen = asyncio.Event(), asyncio.Event(), set[tuple[int, int]]()

    async def before(partition: int, cluster: DecidedCluster) -> bool:
        if partition == 0:
            is_waiting.set()
            await may_go_on.wait()
        seen.update((partition, offset) for offset in cluster.offsets)
        return True

    async def deliver(count: int, partition: int) -> list[tuple[int, int]]:
        record_ids = await stage.put(count, partition)
        wanted = set(record_ids)
        delivered = [one for one in await stage.read("input") if (one.partition, one.offset) in wanted]
        source.waiting[partition] += [
            BufferedMessage(one.offset, one.timestamp_ms, one.key, one.value, ()) for one in delivered
        ]
        return record_ids

    source = ListSource()
    k = Policy.load(stage.policy_file()).k
    async with running_loop(stage, source, ClusterListener(publishes=False, on_decided=before), (0, 1), most=k) as loop:
        await asyncio.wait_for(loop.opened.wait(), 30)
        record_ids = await deliver(k - 1, 1)
        await wait_until(lambda: not source.waiting[1], what="the first few to be read")
        record_ids += await deliver(60, 0)
        await asyncio.wait_for(is_waiting.wait(), 30)
        record_ids += await deliver(60, 1)
        clock.rate = 1.0
        overdue_s = clock() + 3 * delay_s
        await wait_until(lambda: clock() > overdue_s, what="the time after which a flush is due")
        may_go_on.set()
        await wait_until(lambda: seen == set(record_ids), what="all of them in clusters")
        assert await stage.read("quarantine") == []


async def test_a_late_answer_of_the_coordinator_is_requested_again(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    record_ids = await stage.put(100)
    async with fed_loop(stage):
        await stage.until_completed(record_ids)
    answers: list[object] = []

    async def late(client: AIOKafkaAdminClient, settings: KafkaSection, partition: int) -> OffsetAndMetadata | None:
        found = await fetch_committed(client, settings, partition)
        answers.append(found)
        return None if len(answers) == 1 else found

    monkeypatch.setattr("shoal.kafka.start.fetch_committed", late)
    record_ids += await stage.put(100)
    async with fed_loop(stage, seed=6):
        await stage.until_completed(record_ids)
    assert len(answers) > 1
    assert set((await stage.outcomes()).values()) == {1}
