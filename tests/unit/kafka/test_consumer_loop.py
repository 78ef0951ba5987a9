"""A consumer loop without a broker: flushes, polls, and the members that a drain waits for."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from shoal.errors import BrokerError, BrokerUnavailableError, InputError
from shoal.formats import JsonDecoder
from shoal.kafka import consumer_loop
from shoal.kafka.consumer_loop import ConsumerLoop, MemberWatch, MemoryWatch, Poller, wait_until_no_members
from shoal.kafka.metadata import NO_ENCRYPTION, CommittedState, decode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.start import StartOptions
from shoal.kafka.task import PartitionTask
from shoal.kafka.task_manager import WorkerContext
from shoal.kafka.transactions import TransactionBatch, TransactionSink
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection
from structlog.testing import capture_logs
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
        loop._consumer = self.consumer
        self.background = asyncio.create_task(loop._read())

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


async def test_the_flush_of_one_partition_delays_its_own_reading_and_no_other_partition() -> None:
    reading = Reading()
    await reading.begin_flush()
    reading.consumer.add(SLOW, 2)
    reading.consumer.add(QUICK, 4)
    await reading.until(lambda: reading.tasks[QUICK].waiting_count == 4)
    reading.clock_s += 3
    await reading.until(lambda: (None, [0, 1, 2, 3]) in reading.quick.published)
    assert (reading.consumer.positions[SLOW], reading.tasks[SLOW].position) == (4, 4)
    assert reading.slow.published == []
    reading.gate.set()
    await reading.until(lambda: reading.tasks[SLOW].position == 6)
    await reading.stop()
    assert reading.slow.published[:2] == [(4, []), (None, [0, 1, 2, 3])]


async def test_a_partition_that_is_revoked_during_its_flush_is_closed_after_it_and_read_by_its_next_task() -> None:
    reading = Reading()
    await reading.begin_flush()
    reading.consumer.add(SLOW, 3)
    revoking = asyncio.create_task(reading.loop.on_partitions_revoked([SLOW]))
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


# ---------------------------------------------------------------- polls


FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass(eq=False)
class Task:
    wait_s: float = math.inf
    transaction: asyncio.Task[None] | None = None
    is_full: bool = False
    is_sending: bool = False

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
class PollConsumer:
    """Waits in `getmany` for as long as it is told."""

    calls: list[tuple[str, ...]] = field(default_factory=list)
    timeouts_ms: list[int] = field(default_factory=list)
    messages: dict[TopicPartition, list[str]] = field(default_factory=dict)
    error: Exception | None = None

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[str]]:
        assert max_records == 2048
        self.timeouts_ms.append(timeout_ms)
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
    return Poller(tasks), tasks


@pytest.mark.parametrize(("wait_s", "timeout_ms"), [(0.0123, 13), (3.0, 200)])
async def test_a_poll_ends_when_the_next_commit_is_due_or_after_200_ms(wait_s: float, timeout_ms: int) -> None:
    poller, _ = poller_of(Task(), Task(wait_s=wait_s))
    consumer: Any = PollConsumer()
    assert await poller.poll(consumer, {}) == {}
    assert consumer.timeouts_ms == [timeout_ms]


@pytest.mark.parametrize("flushes", [False, True])
async def test_a_poll_ends_with_a_transaction_that_a_task_waits_for_and_with_a_flush(
    monkeypatch: pytest.MonkeyPatch,
    flushes: bool,  # noqa: FBT001
) -> None:
    """A commit that is due does not end the poll while its task flushes."""
    monkeypatch.setattr("shoal.kafka.consumer_loop.POLL_S", 3600.0)
    ended = asyncio.create_task(asyncio.sleep(0.01))
    first = Task(wait_s=0.0) if flushes else Task(transaction=ended)
    poller, _ = poller_of(first, Task())
    consumer, flushing = PollConsumer(), cast("Any", {first: ended} if flushes else {})
    assert await asyncio.wait_for(poller.poll(cast("Any", consumer), flushing), 60) == {}
    assert (consumer.timeouts_ms, ended.done()) == ([3_600_000], True)


async def test_messages_are_returned_also_if_a_transaction_ends_at_the_same_time() -> None:
    ended = asyncio.create_task(asyncio.sleep(0))
    await ended
    poller, _ = poller_of(Task(transaction=ended), Task())
    consumer: Any = PollConsumer(messages={FIRST: ["a"]})
    assert {FIRST: ["a"]} in [await poller.poll(consumer, {}) for _ in range(3)]


@pytest.mark.parametrize(
    ("interval_ms", "wait_ms"), [(1, 50), (50, 50), (120, 120), (200, 200), (201, 100), (60_000, 100)]
)
def test_brokers_collect_records_for_a_commit_interval_or_for_a_tenth_of_a_second(
    interval_ms: int, wait_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = KafkaSection(input="t", output="o", group="g", commit_interval_ms=interval_ms)
    context = WorkerContext(POLICY, settings, Metrics(), Health(), StartOptions(), NO_ENCRYPTION)
    monkeypatch.setattr(consumer_loop, "consumer", lambda _, **options: options)
    options: Any = ConsumerLoop(context, BrokerLiveness(Health(), 1.0), asyncio.Event())._group_consumer()
    assert (options["fetch_min_bytes"], options["fetch_max_wait_ms"]) == (262_144, wait_ms)


async def test_the_partition_of_a_full_task_stays_paused_until_it_has_room() -> None:
    first = Task(is_full=True)
    poller, _ = poller_of(first, Task())
    consumer: Any = PollConsumer(messages={SECOND: ["a"]})
    await poller.poll(consumer, {})
    await poller.poll(consumer, {})
    assert consumer.calls == [("pause", "0"), ("pause", "0")]
    first.is_full = False
    await poller.poll(consumer, {})
    await poller.poll(consumer, {})
    assert consumer.calls[2:] == [("resume", "0")]


async def test_short_memory_pauses_reading_only_while_a_transaction_is_sent() -> None:
    first, second = Task(), Task(is_sending=True)
    tasks: Any = Tasks(first=first, second=second)
    consumer: Any = PollConsumer(messages={SECOND: ["a"]})
    await Poller(tasks, lambda: False).poll(consumer, {})
    assert consumer.calls == []
    poller = Poller(tasks, lambda: True)
    await poller.poll(consumer, {})
    assert consumer.calls == [("pause", "0", "1")]
    second.is_sending = False
    await poller.poll(consumer, {})
    assert consumer.calls[1:] == [("resume", "0", "1")]


def test_memory_is_short_below_a_tenth_of_the_limit_of_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, is_short in ((None, False), ((100, 1000), False), ((99, 1000), True)):
        monkeypatch.setattr(consumer_loop, "free_memory", lambda found=free: found)
        assert MemoryWatch().is_short() == is_short
    watch, found = MemoryWatch(), [(99, 1000), (500, 1000)] * 3
    monkeypatch.setattr(consumer_loop, "MEMORY_S", -1.0)
    monkeypatch.setattr(consumer_loop, "free_memory", found.pop)
    with capture_logs() as lines:
        assert [watch.is_short() for _ in range(6)] == [False, True] * 3
    assert len(lines) == 1, "memory at the limit would write a line every two seconds"


@pytest.mark.parametrize(
    ("ids", "instance_id", "is_shared"),
    [
        ([("a", 0.0), ("b", 1.0), ("c", 2.0)], "one", True),
        ([("a", 0.0), ("b", 1.0), ("c", 2.0)], None, False),
        ([("a", 0.0), ("a", 1.0), ("a", 2.0)], "one", False),
        # Its session timed out, as after a pause of the machine.
        ([("a", 0.0), ("b", 1.0), ("c", 11.0)], "one", False),
    ],
)
def test_two_workers_with_one_instance_id_are_named(
    ids: list[tuple[str, float]],
    instance_id: str | None,
    is_shared: bool,  # noqa: FBT001
) -> None:
    health = Health(joined=True, broker_reached=True)
    watch = MemberWatch(KafkaSection(group="g", instance_id=instance_id, session_timeout_ms=10_000), health)
    now_s = time.monotonic()
    with capture_logs() as lines:
        for member_id, at_s in ids:
            watch.note(member_id, now_s + at_s)
    words = "another worker has the same kafka.instance_id: give each its own"
    assert [line["event"] for line in lines] == [words] * is_shared
    assert health.status == (f"not ready: {words}" if is_shared else "ready")


async def test_a_partition_whose_task_was_replaced_is_not_resumed() -> None:
    """Its new task is opened with a position of its own, and resumes it then."""
    poller, tasks = poller_of(Task(is_full=True), Task())
    consumer: Any = PollConsumer(messages={SECOND: ["a"]})
    await poller.poll(consumer, {})
    tasks.tasks[FIRST] = Task()
    await poller.poll(consumer, {})
    assert consumer.calls == [("pause", "0")]


# ---------------------------------------------------------------- before a drain


SETTINGS = KafkaSection(input="in", output="out", group="g", session_timeout_ms=6000, patience_s=60)
LOADING = 14
NOT_AUTHORIZED = 30


class Coordinator:
    """Answers of an admin client, one after the other; each is a number of members, a code, or an error."""

    def __init__(self, *answers: tuple[int, str, int] | Exception) -> None:
        self.answers = list(answers)

    async def describe_consumer_groups(self, groups: list[str]) -> list[Any]:
        assert groups == ["g"]
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        code, state, count = answer
        members = [(f"m{number}", "client", "/host", b"", b"") for number in range(count)]
        return [SimpleNamespace(groups=[(code, "g", state, "consumer", "sticky", members, 0)])]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time (s) of the module under test; it passes only while it sleeps."""
    now_s = [0.0]

    async def sleep(time_s: float) -> None:
        now_s[0] += time_s

    monkeypatch.setattr(consumer_loop, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(consumer_loop, "asyncio", SimpleNamespace(sleep=sleep))
    return now_s


async def wait(*answers: tuple[int, str, int] | Exception) -> None:
    await wait_until_no_members(cast("Any", Coordinator(*answers)), SETTINGS)


UNAVAILABLE = kafka_errors.GroupCoordinatorNotAvailableError()


@pytest.mark.parametrize(
    ("answers", "waited_s"),
    [
        ([(0, "Dead", 0)], 0.0),
        ([(0, "Empty", 0)], 0.0),
        ([(0, "Stable", 2), (0, "PreparingRebalance", 1), (0, "Empty", 0)], 1.0),
        ([UNAVAILABLE, (LOADING, "", 0), (0, "Empty", 0)], 1.0),
    ],
    ids=["dead", "empty", "a member that was killed", "a coordinator that loads"],
)
async def test_a_drain_begins_as_soon_as_the_group_has_no_members(
    clock: list[float], answers: list[Any], waited_s: float
) -> None:
    await wait(*answers)
    assert clock == [waited_s]


@pytest.mark.parametrize(
    ("answer", "error", "words", "waited_s", "told_count"),
    [
        ((0, "Stable", 2), InputError, r"^--drain: group g has 2 members: .*Stop all workers .*session", 21.0, 3),
        ((0, "CompletingRebalance", 1), InputError, "group g has 1 member:", 21.0, 3),
        ((LOADING, "", 0), BrokerError, r"coordinator of group g did not say for 60 s .*Drain again", 60.0, 6),
        ((NOT_AUTHORIZED, "", 0), kafka_errors.GroupAuthorizationFailedError, "Authorization", 0.0, 0),
    ],
    ids=["members that stay", "one member", "no answer", "no permission"],
)
async def test_a_drain_beside_members_or_without_an_answer_is_refused(
    clock: list[float],
    answer: tuple[int, str, int],
    error: type[Exception],
    words: str,
    waited_s: float,
    told_count: int,
) -> None:
    with capture_logs() as lines, pytest.raises(error, match=words) as raised:
        await wait(answer)
    assert (clock, len(lines)) == ([waited_s], told_count)
    assert not getattr(raised.value, "retriable", False)


async def test_an_error_of_the_client_is_raised() -> None:
    poller, _ = poller_of(Task(), Task())
    consumer: Any = PollConsumer(error=OSError("no"))
    with pytest.raises(OSError, match="no"):
        await poller.poll(consumer, {})
