"""An external loop without a broker: partitions whose leader is away hold up no others; when a rewind is requested."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerUnavailableError
from shoal.kafka import external_loop
from shoal.kafka import task_manager as opening_module
from shoal.kafka.client import NotYetError, leader_away
from shoal.kafka.external_loop import ExternalLoop, Rewinds
from shoal.kafka.metadata import NO_ENCRYPTION
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.start import StartOptions
from shoal.kafka.task_manager import WorkerContext
from shoal.kafka.transactions import ClusterListener
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection
from support.kafka_broker import wait_until

pytestmark = pytest.mark.unit


FIRST, SECOND = (TopicPartition("t", number) for number in range(2))


class Message(NamedTuple):
    offset: int


class Source:
    """Delivers the messages that a test puts in, at most so many at a time; notes requests for a rewind."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: dict[int, list[Message]] = {0: [], 1: []}
        self.rewinds: list[tuple[int, int]] = []

    def put(self, partition: int, *offsets: int) -> None:
        self.waiting[partition] += map(Message, offsets)

    async def wait(self, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, 0.005))

    def take(self, partition: int, most: int) -> Sequence[Any]:
        taken, self.waiting[partition] = self.waiting[partition][:most], self.waiting[partition][most:]
        return taken

    @property
    def is_full(self) -> bool:
        return sum(map(len, self.waiting.values())) >= self.limit

    async def rewind(self, partition: int, offset: int) -> None:
        self.rewinds.append((partition, offset))


class Task:
    """Notes the offsets that it processes, and the ends at which it may flush."""

    is_full = is_restoring = is_drained = has_stopped = False
    waiting_count = committed_offset = 0
    next_commit = (1.0, None)

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.ends: list[int | None] = []
        self.skipped_to: list[int | None] = []

    @property
    def position(self) -> int:
        return self.offsets[-1] + 1 if self.offsets else 0

    async def process(self, messages: Sequence[Message]) -> None:
        self.offsets += [message.offset for message in messages]

    async def punctuate(self, delivered_up_to: int | None, log_end: int | None) -> None:
        self.skipped_to.append(delivered_up_to)
        self.ends.append(log_end)

    async def close(self, *, commit: bool) -> None:
        assert isinstance(commit, bool)


class GapReader:
    """Answers what a test says; None in place of an answer: it waits for as long as it is let."""

    def __init__(self) -> None:
        self.answers: dict[tuple[TopicPartition, int], int | Exception | None] = {}
        self.asked: list[tuple[TopicPartition, int]] = []

    async def next_record_offset(self, tp: TopicPartition, offset: int) -> int | None:
        self.asked.append((tp, offset))
        if (tp, offset) not in self.answers:
            await asyncio.Event().wait()
        answer = self.answers[tp, offset]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Loop:
    """A loop of two partitions, of which a test opens some and says which leaders answer."""

    def __init__(self, *, limit: int = 1000, may_contain_uncommitted: bool = False) -> None:
        health, settings = Health(), KafkaSection(input="t", output="o", group="g")
        self.metrics, self.source, self.gap_reader = Metrics(), Source(limit), GapReader()
        policy: Any = SimpleNamespace()
        context = WorkerContext(policy, settings, self.metrics, health, StartOptions(), NO_ENCRYPTION)
        self.loop = ExternalLoop(
            context,
            BrokerLiveness(health, 60.0),
            self.source,
            [0, 1],
            ClusterListener(),
            10,
            may_contain_uncommitted=may_contain_uncommitted,
        )
        self.tasks: dict[TopicPartition, Task] = {}
        self.fed: asyncio.Task[None] | None = None

    def open(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            task: Any = Task()
            self.loop._task_opened(tp, task)
            self.tasks[tp] = self.loop._tasks._tasks[tp] = task

    def answer(self, tp: TopicPartition, end: int | None) -> None:
        """Let the leader of this partition answer from now on, or never."""
        one, forever_s = self.loop._ends._ends[tp], 1e12
        one.asked_s = -forever_s if end is None else forever_s
        one.committed = one.with_open = end

    def feed(self) -> None:
        gap_reader: Any = self.gap_reader
        self.loop._gap_reader = gap_reader
        self.fed = asyncio.create_task(self.loop._feed_all())

    async def ended(self) -> None:
        self.loop._ending.set()
        assert self.fed is not None
        await asyncio.wait_for(self.fed, 10)


@pytest.fixture(autouse=True)
def _times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_loop, "COMPARE_S", 0.02)
    monkeypatch.setattr(external_loop, "STALL_S", 0.05)


async def test_messages_of_a_partition_that_is_not_open_are_neither_processed_nor_in_the_way_of_others() -> None:
    loop = Loop(limit=6)
    loop.open(FIRST)
    loop.answer(FIRST, 0)
    loop.source.put(1, 0, 1, 2)
    loop.source.put(0, 0, 1)
    loop.feed()
    await wait_until(lambda: loop.tasks[FIRST].offsets == [0, 1])
    assert loop.source.waiting[1] == [Message(0), Message(1), Message(2)], "there is space: they are kept"
    loop.source.put(1, 3, 4, 5)
    await wait_until(lambda: not loop.source.waiting[1])
    loop.source.put(0, 2, 3)
    await wait_until(lambda: loop.tasks[FIRST].offsets == [0, 1, 2, 3])
    # When it is open, the first message that comes shows that others are missing.
    loop.open(SECOND)
    loop.answer(SECOND, 7)
    loop.gap_reader.answers[SECOND, 0] = 0
    loop.source.put(1, 6)
    await wait_until(lambda: loop.source.rewinds == [(1, 0)])
    loop.source.put(1, 0, 1, 2, 3, 4, 5, 6)
    await wait_until(lambda: loop.tasks[SECOND].offsets == [0, 1, 2, 3, 4, 5, 6])
    await loop.ended()


async def test_unread_records_of_a_leader_that_is_away_hold_up_no_other_partition() -> None:
    loop = Loop()
    loop.open(FIRST, SECOND)
    loop.answer(FIRST, 100)
    loop.answer(SECOND, None)
    loop.gap_reader.answers[FIRST, 0] = None
    loop.feed()
    await wait_until(lambda: len(loop.gap_reader.asked) >= 5)
    assert set(loop.gap_reader.asked) == {(FIRST, 0)}
    assert loop.loop._positions == {FIRST: 100}
    await loop.ended()


async def test_a_read_of_a_gap_ends_when_the_leader_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.logs.LOG_ENDS_ANSWER_S", 0.3)
    loop = Loop()
    loop.open(FIRST, SECOND)  # the leaders have just answered
    loop.loop._ends._ends[SECOND].committed = 8
    loop.answer(FIRST, 0)
    loop.source.put(1, 0, 1, 7)
    loop.feed()
    await wait_until(lambda: (SECOND, 2) in loop.gap_reader.asked)
    await wait_until(lambda: loop.tasks[SECOND].offsets == [0, 1], 5)
    loop.source.put(0, 0, 1)
    await wait_until(lambda: loop.tasks[FIRST].offsets == [0, 1])
    await asyncio.sleep(0.5)  # longer than a message may be on its way
    assert loop.source.rewinds == [], "its leader could not deliver it"
    loop.gap_reader.answers[SECOND, 2] = 7
    loop.answer(SECOND, 8)
    await wait_until(lambda: loop.source.rewinds == [(1, 2)])
    await loop.ended()


async def test_a_gap_that_cannot_be_read_although_the_leader_answers_ends_the_loop() -> None:
    loop = Loop()
    loop.open(FIRST)
    loop.answer(FIRST, 9)
    loop.gap_reader.answers[FIRST, 0] = BrokerUnavailableError("cannot be read to its end")
    loop.source.put(0, 5)
    loop.feed()
    assert loop.fed is not None
    with pytest.raises(BrokerUnavailableError, match="cannot be read"):
        await asyncio.wait_for(loop.fed, 10)


async def test_each_task_may_flush_at_the_end_of_its_own_log_and_at_no_old_one() -> None:
    loop = Loop()
    loop.open(FIRST, SECOND)
    loop.answer(FIRST, 4)
    loop.answer(SECOND, None)
    for tp in (FIRST, SECOND):
        task: Any = loop.tasks[tp]
        await loop.loop._punctuate(tp, task)
    assert [loop.tasks[tp].ends for tp in (FIRST, SECOND)] == [[4], [None]]
    lag = loop.metrics.registry.get_sample_value("shoal_consumer_lag_records", {"topic": "t", "partition": "0"})
    assert lag == 4


async def test_a_partition_is_punctuated_as_soon_as_it_is_open() -> None:
    loop = Loop()
    punctuating = asyncio.create_task(loop.loop._punctuate_regularly(FIRST))
    await asyncio.sleep(0.1)
    assert not punctuating.done()
    loop.open(FIRST)
    await wait_until(lambda: bool(loop.tasks[FIRST].ends))
    loop.loop._ending.set()
    await asyncio.wait_for(punctuating, 10)


async def test_messages_are_looked_up_until_the_end_of_the_log_is_known() -> None:
    loop = Loop(may_contain_uncommitted=True)
    loop.open(FIRST)
    assert loop.loop._uncommitted_end(FIRST) == sys.maxsize
    loop.loop._ends._ends[FIRST].with_open = 3
    assert loop.loop._uncommitted_end(FIRST) == 3
    loop.loop._ends._ends[FIRST].with_open = 8
    assert loop.loop._uncommitted_end(FIRST) == 3, "what came later was read by a client that reads committed records"
    assert Loop().loop._uncommitted_end(FIRST) == 0


class Manager:
    """Opens partitions whose leader answers."""

    def __init__(self, loop: Loop, away: set[TopicPartition]) -> None:
        self._loop, self.away = loop, away
        self.asked: list[list[TopicPartition]] = []

    async def open(self, partitions: Iterable[TopicPartition], *_: object) -> dict[TopicPartition, NotYetError]:
        self.asked.append(list(partitions))
        answering = [tp for tp in self.asked[-1] if tp not in self.away]
        self._loop.open(*answering)
        return {tp: leader_away(tp) for tp in self.asked[-1] if tp in self.away}


def opening(loop: Loop, manager: Manager, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[None]:
    monkeypatch.setattr(opening_module, "backoff_s", lambda failures: 0.01 * (failures + 1))
    monkeypatch.setattr(loop.loop._tasks, "open", manager.open)
    loop.loop._admin_client = None
    return asyncio.create_task(loop.loop._open_all())


@pytest.mark.parametrize("away", [{SECOND}, {FIRST, SECOND}])
async def test_partitions_whose_leader_is_away_are_opened_later(
    monkeypatch: pytest.MonkeyPatch, away: set[TopicPartition]
) -> None:
    loop = Loop()
    manager, partitions = Manager(loop, set(away)), [FIRST, SECOND]
    task = opening(loop, manager, monkeypatch)
    await wait_until(lambda: len(manager.asked) >= 3)
    assert (set(loop.tasks), loop.loop.opened.is_set(), task.done()) == ({FIRST, SECOND} - away, True, False)
    manager.away.clear()
    await asyncio.wait_for(task, 10)
    assert [sorted(asked) for asked in manager.asked[:3]] == [partitions, sorted(away), sorted(away)]
    assert sorted(loop.tasks) == partitions


def test_after_a_loop_no_partitions_are_to_open_or_unreachable() -> None:
    loop = Loop()
    loop.metrics.opening.set(2)
    loop.metrics.unreachable.set(1)
    loop.loop._context.health.leaders_away = True
    loop.loop._report_no_partitions()
    assert [gauge._value.get() for gauge in (loop.metrics.opening, loop.metrics.unreachable)] == [0, 0]
    assert not loop.loop._context.health.leaders_away


# ---------------------------------------------------------------- rewinds


TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(external_loop, "time", clock)
    return clock


class RewindSource:
    """Notes the requests; each ends when it may."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        self.may_end = asyncio.Event()

    async def rewind(self, partition: int, offset: int) -> None:
        self.requests.append((partition, offset))
        await self.may_end.wait()


async def pause() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_rewind_is_requested_after_a_grace_and_again_after_growing_pauses(clock: Clock) -> None:
    source, offset = RewindSource(), 7
    waiting = Rewinds(source.rewind)
    source.may_end.set()
    waiting.request_if_due(TP, offset)
    waiting.wait(TP)
    asked_s = []
    for step in range(280):
        clock.now_s = 100.0 + step / 4
        count = len(source.requests)
        waiting.request_if_due(TP, offset)
        waiting.request_if_due(OTHER, offset)
        await pause()
        if len(source.requests) > count:
            asked_s.append(clock.now_s - 100)
    assert asked_s == [0.5, 2.5, 6.5, 12.5, 20.5, 30.5, 42.5, 56.5]
    assert set(source.requests) == {(0, 7)}


async def requested() -> tuple[RewindSource, Rewinds]:
    """Return a source with one rewind that runs."""
    source = RewindSource()
    waiting = Rewinds(source.rewind)
    waiting.wait(TP, grace_s=0)
    waiting.request_if_due(TP, 7)
    await pause()
    return source, waiting


async def test_nothing_is_requested_while_a_rewind_runs_or_after_the_message_has_come(clock: Clock) -> None:
    source, waiting = await requested()
    clock.now_s += 60
    waiting.request_if_due(TP, 8)
    await pause()
    assert source.requests == [(0, 7)]
    source.may_end.set()
    await pause()
    waiting.forget(TP)
    clock.now_s += 60
    waiting.request_if_due(TP, 9)
    await pause()
    assert source.requests == [(0, 7)]


async def test_rewinds_are_cancelled_at_the_end(clock: Clock) -> None:
    _, waiting = await requested()
    waiting.cancel()
    await pause()
    assert waiting._running == {}
    assert clock.now_s == 100.0


async def test_a_task_that_stopped_by_itself_ends_the_loop_so_that_it_is_read_again() -> None:
    loop = Loop()
    loop.open(FIRST)
    loop.tasks[FIRST].has_stopped = True
    with pytest.raises(BrokerUnavailableError, match="t-0: a cluster was not handled; reading again"):
        await asyncio.wait_for(loop.loop._punctuate_regularly(FIRST), 10)
    loop.loop._ending.set()
    await asyncio.wait_for(loop.loop._punctuate_regularly(FIRST), 10)
