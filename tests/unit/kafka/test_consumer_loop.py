"""A consumer loop without a broker: tasks of two partitions, of which one waits for its transactions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerUnavailableError
from shoal.formats import JsonDecoder
from shoal.kafka.consumer_loop import ConsumerLoop
from shoal.kafka.metadata import NO_ENCRYPTION, CommittedState, decode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.start import StartOptions
from shoal.kafka.task import PartitionTask
from shoal.kafka.task_manager import WorkerContext
from shoal.kafka.transactions import TransactionBatch, TransactionSink
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection
from support.making import SUBJECT, policy_of, quasi
from support.partition_tasks import partition_task

pytestmark = pytest.mark.unit

START_MS = 1_700_000_000_000
SLOW, QUICK = TopicPartition("t", 0), TopicPartition("t", 1)
POLICY = policy_of(
    {"who": SUBJECT | {"type": "integer"}, "x": quasi(integer=True)}, stream={"delta": 10, "max_delay_s": 2.0}
)


class Message(NamedTuple):
    offset: int
    value: bytes
    timestamp: int = START_MS
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class Sink(TransactionSink):
    """Sends a transaction when its gate is open."""

    partition: int
    gate: asyncio.Event
    published: list[tuple[int | None, list[int]]] = field(default_factory=list)
    """Of each transaction: where it says that a flush is due, and the offsets that it releases."""
    begun_count: int = 0
    error: Exception | None = None

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        assert at_ms >= START_MS
        self.begun_count += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        state = decode(metadata, "t", self.partition, committed_offset).state
        self.published.append((state.flush_at_offset, sorted(o for one in batch.clusters for o in one.offsets)))

    async def close(self) -> None:
        """Do nothing."""


@dataclass
class Consumer:
    """A client whose messages are those that were added."""

    logs: dict[TopicPartition, list[Message]] = field(default_factory=lambda: {SLOW: [], QUICK: []})
    positions: dict[TopicPartition, int] = field(default_factory=lambda: {SLOW: 0, QUICK: 0})
    paused: set[TopicPartition] = field(default_factory=set)
    hidden_count: int = 0
    """Records of an open transaction, or behind one, at the end of each log."""

    def add(self, tp: TopicPartition, count: int) -> None:
        log = self.logs[tp]
        for offset in range(len(log), len(log) + count):
            log.append(Message(offset, json.dumps({"who": offset, "x": offset * 7}).encode()))

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Message]]:
        assert max_records == 2048
        found = {tp: log[self.positions[tp] :] for tp, log in self.logs.items() if tp not in self.paused}
        found = {tp: messages for tp, messages in found.items() if messages}
        for tp in found:
            self.positions[tp] = len(self.logs[tp])
        if not found:
            await asyncio.sleep(min(timeout_ms, 1) / 1000)
        return found

    async def position(self, tp: TopicPartition) -> int:
        return self.positions[tp]

    def last_stable_offset(self, tp: TopicPartition) -> int:
        return len(self.logs[tp])

    def highwater(self, tp: TopicPartition) -> int:
        return len(self.logs[tp]) + self.hidden_count

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused.difference_update(partitions)

    def assignment(self) -> set[TopicPartition]:
        return set(self.logs)


class Stopping(asyncio.Event):
    """The event that stops a loop; notes whether the loop has found it set."""

    is_noticed = False

    def is_set(self) -> bool:
        self.is_noticed |= (is_set := super().is_set())
        return is_set


class Reading:
    """A loop that reads two partitions; the transactions of the first wait for a gate."""

    def __init__(self) -> None:
        self.clock_s = START_MS / 1000 + 1
        self.stopping, self.gate, is_open = Stopping(), asyncio.Event(), asyncio.Event()
        is_open.set()
        self.slow, self.quick = Sink(0, self.gate), Sink(1, is_open)
        metrics, health, settings = Metrics(), Health(), KafkaSection(input="t", output="o", group="g")
        context = WorkerContext(POLICY, settings, metrics, health, StartOptions(), NO_ENCRYPTION)
        self.loop = loop = ConsumerLoop(context, BrokerLiveness(health, 1.0), self.stopping)
        commit = CommittedState(OffsetState(committed_offset=0, next_offset=0), POLICY.fingerprint, START_MS)
        self._metrics = metrics
        self.tasks = {tp: self.task(tp, sink, commit) for tp, sink in ((SLOW, self.slow), (QUICK, self.quick))}
        loop._tasks._tasks.update(self.tasks)
        self.consumer: Any = Consumer()
        self.background = asyncio.create_task(loop._read(self.consumer))

    def task(self, tp: TopicPartition, sink: Sink, commit: CommittedState) -> PartitionTask:
        decoder, metrics, now = JsonDecoder(POLICY), self._metrics, self._now
        return partition_task("t", tp.partition, POLICY, decoder, sink, commit, metrics, 0.2, now, monotonic_clock=now)

    def _now(self) -> float:
        return self.clock_s

    async def begin_flush(self) -> None:
        """Let the slow partition begin a flush of four records."""
        self.consumer.add(SLOW, 4)
        await self.until(lambda: self.tasks[SLOW].waiting_count == 4)
        self.clock_s += 3
        await self.until(lambda: self.slow.begun_count == 1)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                assert not self.background.done(), self.background
                await asyncio.sleep(0.001)

    async def stop_reading(self) -> None:
        """Stop the loop, which goes on until its flushes have ended."""
        self.stopping.set()
        await self.until(lambda: self.stopping.is_noticed)

    async def stop(self) -> None:
        self.stopping.set()
        async with asyncio.timeout(20):
            await self.background


async def test_the_flush_of_one_partition_does_not_delay_another() -> None:
    reading = Reading()
    await reading.begin_flush()
    reading.consumer.add(QUICK, 4)
    await reading.until(lambda: reading.tasks[QUICK].waiting_count == 4)
    reading.clock_s += 3
    await reading.until(lambda: (None, [0, 1, 2, 3]) in reading.quick.published)
    assert reading.slow.published == []
    reading.gate.set()
    await reading.until(lambda: len(reading.slow.published) == 2)
    await reading.stop()
    assert reading.slow.published == [(4, []), (None, [0, 1, 2, 3])]


async def test_records_that_an_open_transaction_hides_are_lag_and_delay_no_flush() -> None:
    reading = Reading()
    reading.gate.set()
    reading.consumer.hidden_count = 5
    reading.consumer.add(SLOW, 4)
    await reading.until(lambda: reading.tasks[SLOW].waiting_count == 4)
    reading.clock_s += 3
    await reading.until(lambda: len(reading.slow.published) == 2)
    await reading.stop()
    assert reading.slow.published == [(4, []), (None, [0, 1, 2, 3])]
    assert {
        one.labels["partition"]: one.value
        for family in reading.loop._context.metrics.registry.collect()
        for one in family.samples
        if one.name == "shoal_consumer_lag_records"
    } == {"0": 5, "1": 5}


async def test_a_partition_is_not_read_before_its_flush_has_ended() -> None:
    reading = Reading()
    await reading.begin_flush()
    reading.consumer.add(SLOW, 2)
    reading.consumer.add(QUICK, 1)
    await reading.until(lambda: reading.tasks[QUICK].waiting_count == 1)
    assert (reading.consumer.positions[SLOW], reading.tasks[SLOW].position) == (4, 4)
    reading.gate.set()
    await reading.until(lambda: reading.tasks[SLOW].position == 6)
    await reading.stop()
    assert reading.slow.published[:2] == [(4, []), (None, [0, 1, 2, 3])]
    assert reading.tasks[SLOW].waiting_count == 2


async def test_a_partition_that_is_revoked_during_its_flush_is_closed_after_it_and_read_by_its_next_task() -> None:
    reading = Reading()
    await reading.begin_flush()
    reading.consumer.add(SLOW, 3)
    revoking = asyncio.create_task(reading.loop.on_revoked([SLOW]))
    reading.consumer.add(QUICK, 1)
    await reading.until(lambda: reading.tasks[QUICK].waiting_count == 1)
    assert not revoking.done()
    reading.gate.set()
    await revoking
    assert reading.slow.published == [(4, []), (None, [0, 1, 2, 3])]
    assert reading.consumer.positions[SLOW] == 4
    # The partition comes back: as the loop does it when a task is open.
    state = OffsetState(committed_offset=4, next_offset=4, next_cluster_number=1)
    task = reading.task(SLOW, Sink(0, reading.gate), CommittedState(state, POLICY.fingerprint, START_MS))
    reading.loop._tasks._tasks[SLOW] = task
    reading.consumer.resume(SLOW)
    await reading.until(lambda: task.position == 7)
    await reading.stop()
    assert task.waiting_count == 3


async def test_a_loop_that_is_stopped_ends_its_flushes_first() -> None:
    reading = Reading()
    await reading.begin_flush()
    await reading.stop_reading()
    assert not reading.background.done()
    reading.gate.set()
    await reading.stop()
    assert reading.slow.published == [(4, []), (None, [0, 1, 2, 3])]


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_flush_that_fails_ends_the_loop(is_stopped: bool) -> None:  # noqa: FBT001
    reading = Reading()
    await reading.begin_flush()
    reading.slow.error = BrokerUnavailableError("no")
    if is_stopped:
        await reading.stop_reading()
    reading.gate.set()
    with pytest.raises(BrokerUnavailableError, match="no"):
        await asyncio.wait_for(reading.background, 20)


async def test_a_loop_that_fails_cancels_its_flushes() -> None:
    reading = Reading()
    await reading.begin_flush()
    reading.background.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading.background
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert reading.slow.published == []
