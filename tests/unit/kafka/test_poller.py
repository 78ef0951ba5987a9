"""When a poll ends, and which partitions it leaves out."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import TopicPartition
from shoal.kafka.consumer_loop import Poller

pytestmark = pytest.mark.unit

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass(eq=False)
class Task:
    wait_s: float = math.inf
    transaction: asyncio.Task[None] | None = None
    is_full: bool = False
    position: int = 0

    @property
    def next_commit(self) -> tuple[float, asyncio.Task[None] | None]:
        return self.wait_s, self.transaction


class Tasks:
    def __init__(self, **tasks: Task) -> None:
        self.tasks = {FIRST: tasks["first"], SECOND: tasks["second"]}

    def items(self) -> Any:
        return self.tasks.items()

    def is_open(self, tp: TopicPartition, task: Task) -> bool:
        return self.tasks.get(tp) is task


@dataclass
class Consumer:
    """Waits in `getmany` for as long as it is told."""

    calls: list[tuple[str, ...]] = field(default_factory=list)
    timeouts_ms: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    """When each call began."""
    messages: dict[TopicPartition, list[str]] = field(default_factory=dict)
    error: Exception | None = None
    log_ends: dict[TopicPartition, int | None] = field(default_factory=lambda: {FIRST: 0, SECOND: None})

    def last_stable_offset(self, tp: TopicPartition) -> int | None:
        return self.log_ends[tp]

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[str]]:
        assert max_records == 2048
        self.timeouts_ms.append(timeout_ms)
        self.times_s.append(time.monotonic())
        if self.error is not None:
            raise self.error
        if not self.messages:
            await asyncio.sleep(timeout_ms / 1000)
        return self.messages

    def pause(self, *partitions: TopicPartition) -> None:
        self.calls.append(("pause", *(str(tp.partition) for tp in partitions)))

    def resume(self, *partitions: TopicPartition) -> None:
        self.calls.append(("resume", *(str(tp.partition) for tp in partitions)))

    def assignment(self) -> set[TopicPartition]:
        return {FIRST, SECOND}


def poller_of(first: Task, second: Task) -> tuple[Poller, Any]:
    tasks: Any = Tasks(first=first, second=second)
    return Poller(tasks, 0.2), tasks


async def test_a_poll_ends_when_the_next_commit_is_due() -> None:
    poller, _ = poller_of(Task(), Task(wait_s=0.0123))
    consumer: Any = Consumer()
    assert await poller.poll(consumer, {}) == {}
    assert consumer.timeouts_ms == [13]


async def test_a_poll_without_a_due_commit_lasts_50_ms() -> None:
    poller, _ = poller_of(Task(), Task(wait_s=3.0))
    consumer: Any = Consumer()
    await poller.poll(consumer, {})
    assert consumer.timeouts_ms == [50]


async def test_a_poll_ends_with_the_transaction_that_a_task_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.consumer_loop.POLL_S", 3600.0)
    poller, _ = poller_of(Task(transaction=asyncio.create_task(asyncio.sleep(0.01))), Task())
    consumer: Any = Consumer()
    assert await asyncio.wait_for(poller.poll(consumer, {}), 60) == {}


async def test_messages_are_returned_also_if_a_transaction_ends_at_the_same_time() -> None:
    ended = asyncio.create_task(asyncio.sleep(0))
    await ended
    poller, _ = poller_of(Task(transaction=ended), Task())
    consumer: Any = Consumer(messages={FIRST: ["a"]})
    found = [await poller.poll(consumer, {}) for _ in range(3)]
    assert {FIRST: ["a"]} in found


async def test_an_error_of_the_client_is_raised() -> None:
    poller, _ = poller_of(Task(), Task())
    consumer: Any = Consumer(error=OSError("no"))
    with pytest.raises(OSError, match="no"):
        await poller.poll(consumer, {})


async def test_a_cancelled_poll_leaves_no_task() -> None:
    poller, _ = poller_of(Task(), Task())
    consumer: Any = Consumer()
    polling = asyncio.create_task(poller.poll(consumer, {}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_task_that_flushes_is_not_read_and_ends_the_poll() -> None:
    first = Task(wait_s=0.0)
    poller, _ = poller_of(first, Task())
    consumer: Any = Consumer()
    flush = asyncio.create_task(asyncio.sleep(0.01))
    flushing: Any = {first: flush}
    assert await poller.poll(consumer, flushing) == {}
    assert (consumer.calls, consumer.timeouts_ms, flush.done()) == ([("pause", "0")], [50], True)


async def poll_for(poller: Poller, consumer: Any, count: int) -> None:
    """Poll until there were messages so often."""
    while count:
        count -= bool(await poller.poll(consumer, {}))


async def test_messages_that_arrive_one_by_one_are_taken_twice_in_40_ms() -> None:
    poller, _ = poller_of(Task(), Task())
    consumer: Any = Consumer(messages={FIRST: ["a"]}, log_ends={FIRST: 99, SECOND: None})
    await poll_for(poller, consumer, 7)
    assert len(consumer.timeouts_ms) == 7
    assert consumer.times_s[-1] - consumer.times_s[0] >= 0.119


async def test_the_first_message_after_a_quiet_time_is_taken_at_once() -> None:
    poller, _ = poller_of(Task(), Task())
    consumer: Any = Consumer(messages={FIRST: ["a"]})
    await poll_for(poller, consumer, 2)
    await asyncio.sleep(0.05)
    polling = asyncio.create_task(poll_for(poller, consumer, 1))
    for _ in range(8):
        await asyncio.sleep(0)  # takes no time
    assert polling.done()


async def test_a_task_that_is_behind_is_read_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.consumer_loop.PACE_S", 20.0)
    monkeypatch.setattr("shoal.kafka.consumer_loop.PACE_SHARE", 100.0)
    first = Task(position=50)
    poller, _ = poller_of(first, Task())
    consumer: Any = Consumer(messages={FIRST: ["a"]}, log_ends={FIRST: 150, SECOND: None})
    await asyncio.wait_for(poll_for(poller, consumer, 9), 10)
    first.position = 51
    assert await poller.poll(consumer, {}) == {}
    # Nor does it count that a partition is behind which is not read.
    first.position, first.is_full = 0, True
    assert await poller.poll(consumer, {}) == {}


async def test_a_pause_ends_when_a_commit_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.consumer_loop.PACE_S", 20.0)
    monkeypatch.setattr("shoal.kafka.consumer_loop.PACE_SHARE", 100.0)
    monkeypatch.setattr("shoal.kafka.consumer_loop.GATHER_SHARE", 0.0)
    first = Task()
    poller, _ = poller_of(first, Task())
    consumer: Any = Consumer(messages={FIRST: ["a"]})
    await poll_for(poller, consumer, 2)
    first.wait_s = 0.0
    assert await poller.poll(consumer, {}) == {}
    assert len(consumer.timeouts_ms) == 2


async def test_the_pause_is_a_quarter_of_a_short_commit_interval() -> None:
    tasks: Any = Tasks(first=Task(), second=Task())
    poller, consumer = Poller(tasks, 0.04), Consumer(messages={FIRST: ["a"]})
    await poll_for(poller, consumer, 21)
    assert consumer.times_s[-1] - consumer.times_s[0] >= 0.099


async def test_the_partition_of_a_full_task_stays_paused_until_it_has_room() -> None:
    first = Task(is_full=True)
    poller, _ = poller_of(first, Task())
    consumer: Any = Consumer(messages={SECOND: ["a"]})
    await poller.poll(consumer, {})
    await poller.poll(consumer, {})
    assert consumer.calls == [("pause", "0"), ("pause", "0")]
    first.is_full = False
    await poller.poll(consumer, {})
    await poller.poll(consumer, {})
    assert consumer.calls[2:] == [("resume", "0")]


async def test_a_partition_whose_task_was_replaced_is_not_resumed() -> None:
    poller, tasks = poller_of(Task(is_full=True), Task())
    consumer: Any = Consumer(messages={SECOND: ["a"]})
    await poller.poll(consumer, {})
    tasks.tasks[FIRST] = Task()
    await poller.poll(consumer, {})
    del tasks.tasks[FIRST]
    await poller.poll(consumer, {})
    assert consumer.calls == [("pause", "0")]
