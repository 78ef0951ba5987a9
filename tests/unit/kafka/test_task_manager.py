"""Partition tasks that are opened and closed: what is tried again, what ends a loop, and what metrics and log say."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError
from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, GuaranteeError, InputError, ShoalError
from shoal.kafka import MetadataCipher, StartOptions, WorkerContext, retries, task_manager
from shoal.kafka import client as connection
from shoal.kafka.checks import TopicLayout
from shoal.kafka.client import NotYetError, leader_away, meanwhile
from shoal.kafka.consumer_loop import ConsumerLoop
from shoal.kafka.metadata import NO_ENCRYPTION
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.task_manager import TaskManager, tell_unopened
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Scale
from structlog.testing import capture_logs
from support.kafka_broker import wait_until
from support.scales import AREAS, attribute, policy_with

pytestmark = pytest.mark.unit


SETTINGS = KafkaSection(input="in", output="out", group="g", bootstrap_servers="localhost:9092")
COUNTERS = {
    "shoal_policy_changes_total",
    "shoal_records_skipped_total",
    "shoal_published_offsets_lost_total",
    "shoal_values_unknown_total",
}
PARTITIONS = [TopicPartition("in", number) for number in range(3)]
UNUSED = cast("Any", None)


class Consumer:
    """A client whose leaders answer, but for those of some partitions."""

    def __init__(self, silent: set[int] | None = None) -> None:
        self.silent = silent or set()

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self.silent & {tp.partition for tp in partitions}:
            await asyncio.Event().wait()
        return dict.fromkeys(partitions, 5)


def fail_with(monkeypatch: pytest.MonkeyPatch, errors: dict[int, BaseException]) -> None:
    """Let the start of these partitions fail, and that of the others succeed."""

    async def start(_: TaskManager, tp: TopicPartition, *__: object) -> object:
        if tp.partition in errors:
            raise errors[tp.partition]
        return SimpleNamespace(oldest_held_s=None)

    monkeypatch.setattr(TaskManager, "_open", start)


async def open_all(
    tasks: TaskManager, partitions: list[TopicPartition], consumer: Consumer | None = None
) -> dict[TopicPartition, str]:
    """Return why some are not open."""
    with patch.object(task_manager, "asking", lambda _: nullcontext(consumer or Consumer())):
        reasons = await tasks.open(partitions, UNUSED, lambda *_: None)
    return {tp: str(reason) for tp, reason in reasons.items()}


def manager() -> tuple[TaskManager, Metrics]:
    metrics = Metrics("g")
    areas = attribute("area", Scale.NOMINAL, taxonomy=AREAS)
    context = WorkerContext(
        policy_with(areas, k=2, delta=6), SETTINGS, metrics, Health(), StartOptions(), MetadataCipher("g")
    )
    return TaskManager(context), metrics


async def test_counters_that_a_start_changes_are_0_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that first appears at its value has no increase."""
    tasks, metrics = manager()
    found: dict[str, float] = {}

    async def start(*_: object) -> object:
        for family in metrics.registry.collect():
            found.update({one.name: one.value for one in family.samples if one.labels.get("partition") == "3"})
        return SimpleNamespace(oldest_held_s=None)

    monkeypatch.setattr(TaskManager, "_open", start)
    await open_all(tasks, [TopicPartition("in", 3)])
    assert {name: found.get(name) for name in COUNTERS} == dict.fromkeys(COUNTERS, 0)


async def test_partitions_that_are_not_open_yet_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, metrics = manager()
    seen: list[float | None] = []

    def opening() -> float | None:
        return metrics.registry.get_sample_value("shoal_partitions_opening", {"group": "g"})

    async def start(_: TaskManager, tp: TopicPartition, *__: object) -> object:
        seen.append(opening())
        if tp.partition == 1 and len(seen) < 4:
            raise NotYetError("copy-1: hidden")
        return SimpleNamespace(oldest_held_s=None)

    monkeypatch.setattr(TaskManager, "_open", start)
    assert opening() == 0
    assert await open_all(tasks, PARTITIONS) == {PARTITIONS[1]: "copy-1: hidden"}
    assert (seen, opening()) == ([3, 2, 2], 1)
    await open_all(tasks, PARTITIONS[1:2])
    assert (seen[3:], opening()) == ([1], 0)


REFUSED = "the broker at localhost:9092 cannot be reached or refused for now"
NO_LISTENER = "check that a broker listens and answers there, and that kafka.bootstrap_servers names it"
AWAY_WORDS = "no leader answers; look whether its broker runs and can be reached"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (leader_away(PARTITIONS[1]), f"in-1: {AWAY_WORDS}"),
        (NotYetError("out-1: an open transaction"), "out-1: an open transaction"),
        (NotYetError("in-1: not begun", waited_s=30.0), "in-1: not begun"),
        (KafkaTimeoutError("of the client"), f"in-1: {REFUSED} (KafkaTimeoutError)"),
    ],
)
async def test_a_partition_that_cannot_be_opened_now_leaves_the_others_open(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    tasks, _ = manager()
    fail_with(monkeypatch, {1: error})
    assert await open_all(tasks, PARTITIONS) == {PARTITIONS[1]: words}
    assert list(tasks) == [PARTITIONS[0], PARTITIONS[2]]
    assert {tp: isinstance(reason, NotYetError) for tp, reason in tasks.unopened.items()} == {PARTITIONS[1]: True}
    fail_with(monkeypatch, {})
    await open_all(tasks, PARTITIONS[1:2])
    assert (set(tasks), dict(tasks.unopened)) == (set(PARTITIONS), {})


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FencedError("another worker"), "another worker"),
        (BrokerUnavailableError("a transaction failed"), "in-2: a transaction failed"),
        (BrokerUnavailableError("in-2: it has more partitions"), "in-2: it has more partitions"),
        (GuaranteeError("an invariant"), "an invariant"),
        (InputError("in-2: no committed offset"), "in-2: no committed offset"),
        (KafkaConnectionError("of the client"), f"in-2: {REFUSED} (KafkaConnectionError): {NO_LISTENER}"),
        (asyncio.CancelledError(), f"in-2: {REFUSED} (CancelledError)"),
    ],
)
async def test_another_error_ends_the_loop_also_if_a_leader_is_away(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str
) -> None:
    tasks, _ = manager()
    fail_with(monkeypatch, {1: leader_away(PARTITIONS[1]), 2: error})
    with pytest.raises(ShoalError) as caught:
        await open_all(tasks, PARTITIONS)
    assert str(caught.value) == words


async def test_a_final_error_is_raised_before_one_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, _ = manager()
    fail_with(monkeypatch, {0: FencedError("another worker"), 1: GuaranteeError("an invariant")})
    with pytest.raises(GuaranteeError, match=r"^an invariant$"):
        await open_all(tasks, PARTITIONS)


async def test_leaders_that_are_away_do_not_delay_the_partitions_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more of them than partitions that are opened at once."""
    (tasks, _), consumer = manager(), Consumer(set(range(20)))

    async def start(_: TaskManager, tp: TopicPartition, *__: object) -> object:
        await consumer.end_offsets([tp])
        return SimpleNamespace(oldest_held_s=None)

    monkeypatch.setattr(TaskManager, "_open", start)
    opening = asyncio.create_task(open_all(tasks, [TopicPartition("in", number) for number in range(21)], consumer))
    await wait_until(lambda: TopicPartition("in", 20) in tasks, 3)  # less than the time that a leader has
    opening.cancel()
    await asyncio.wait({opening})


async def test_a_leader_that_does_not_answer_leaves_its_partition_unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.05)
    tasks, _ = manager()
    fail_with(monkeypatch, {})
    assert await open_all(tasks, PARTITIONS, Consumer({1})) == {PARTITIONS[1]: f"in-1: {AWAY_WORDS}"}
    assert list(tasks) == [PARTITIONS[0], PARTITIONS[2]]


class Task:
    """A task that holds records, and whose end waits for a gate."""

    committed_offset = 7

    def __init__(self, waiting_count: int, gate: asyncio.Event) -> None:
        self.waiting_count, self._gate = waiting_count, gate

    async def close(self, *, commit: bool) -> None:
        assert commit
        await self._gate.wait()


def held(metrics: Metrics, partition: str) -> float | None:
    return metrics.registry.get_sample_value(
        "shoal_records_held", {"group": "g", "topic": "in", "partition": partition}
    )


async def test_a_close_that_is_cancelled_counts_what_is_held_and_removes_the_metrics() -> None:
    tasks, metrics = manager()
    tasks._tasks = {tp: cast("Any", Task(4, asyncio.Event())) for tp in PARTITIONS[:2]}
    for tp in PARTITIONS[:2]:
        metrics.held.labels(tp.topic, tp.partition).set(4)
    tasks._context.health.restoring = set(PARTITIONS)
    closing = asyncio.create_task(tasks.close(PARTITIONS[:2], commit=True))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    assert (metrics.held_at_close, held(metrics, "0"), held(metrics, "1")) == (8, None, None)
    assert tasks._context.health.restoring == {PARTITIONS[2]}
    await tasks.close(PARTITIONS[:2], commit=True)
    assert metrics.held_at_close == 8, "a close of nothing keeps the number"


async def test_the_coordinator_is_asked_before_a_partition_is_fenced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that no longer reaches its group must not fence the one that has its partitions now."""
    tasks, _ = manager()
    tasks.layout = TopicLayout({"in": 3})
    order, error = list[str](), list[Exception]([NotYetError("copy-1: hidden")])

    class Producer:
        async def open(self) -> None:
            order.append("fenced")
            raise error[0]

        async def close(self) -> None: ...

    async def fetch(*_: object) -> None:
        order.append("asked")
        raise BrokerUnavailableError("in-1: the coordinator of group g does not return the committed offset")

    monkeypatch.setattr(task_manager, "TransactionalProducer", lambda *_, **__: Producer())
    monkeypatch.setattr(task_manager, "fetch_committed", fetch)
    assert await open_all(tasks, PARTITIONS[1:2]) == {PARTITIONS[1]: "copy-1: hidden"}
    with pytest.raises(BrokerUnavailableError) as caught:
        await open_all(tasks, PARTITIONS[1:2])
    assert (order, type(caught.value)) == (["fenced", "asked"], BrokerUnavailableError)


# ---------------------------------------------------------------- a consumer loop that opens its partitions


FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)
LOOP_SETTINGS = KafkaSection(input="in", output="out", group="g")


class LoopConsumer(Consumer):
    def __init__(self) -> None:
        super().__init__()
        self.paused: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.positions[tp] = offset

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)

    def resume(self, tp: TopicPartition) -> None:
        self.paused.remove(tp)


@dataclass(eq=False)
class LoopTask:
    """A task that reads nothing."""

    position: int = 3
    committed_offset: int = 3
    waiting_count: int = 0
    is_restoring: bool = True
    is_drained: bool = False
    oldest_held_s: float | None = None

    async def close(self, *, commit: bool) -> None:
        del commit


class Opening:
    """A loop to which partitions are assigned, and the errors with which the starts of these fail."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        errors: dict[TopicPartition, Exception],
        *,
        patience_s: float = 300.0,
        drains: bool = False,
    ) -> None:
        self.errors, self.attempts, self.consumer = errors, list[TopicPartition](), LoopConsumer()
        monkeypatch.setattr(retries, "_BACKOFF_S", (0.001,))
        monkeypatch.setattr(TaskManager, "_open", self._open)
        monkeypatch.setattr(task_manager, "asking", lambda _: nullcontext(self.consumer))
        self.metrics, health = Metrics("g"), Health()
        policy = policy_with(attribute("area", Scale.NOMINAL, taxonomy=AREAS), k=2, delta=6)
        options = StartOptions(drain=drains)
        context = WorkerContext(policy, LOOP_SETTINGS, self.metrics, health, options, NO_ENCRYPTION)
        self.loop = ConsumerLoop(context, BrokerLiveness(health, patience_s), asyncio.Event())
        self.loop._consumer = self.consumer
        self.loop._admin_client = UNUSED

    async def begin(self) -> Opening:
        await self.loop.on_partitions_assigned([FIRST, SECOND])
        return self

    async def _open(self, tp: TopicPartition, *_: object) -> object:
        self.attempts.append(tp)
        if tp in self.errors:
            raise self.errors[tp]

        return LoopTask()

    async def end(self) -> None:
        self.loop._consumer = Stopped()
        await self.loop._leave(commit=False)

    @property
    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value("shoal_partitions_opening", {"group": "g"})


@pytest.mark.parametrize("error", [leader_away(SECOND), NotYetError("in-1: not begun", waited_s=0.01)])
async def test_a_partition_that_cannot_be_opened_now_is_opened_later_by_the_same_loop(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    opening = await Opening(monkeypatch, {SECOND: error}).begin()
    await wait_until(lambda: opening.attempts.count(SECOND) >= 4)
    assert (opening.attempts.count(FIRST), list(opening.loop._tasks), opening.gauge) == (1, [FIRST], 1)
    assert (opening.consumer.positions, opening.consumer.paused) == ({FIRST: 3, SECOND: 0}, {SECOND})
    opening.errors.clear()
    await wait_until(lambda: SECOND in opening.loop._tasks)
    await wait_until(lambda: opening.loop._opening is not None and opening.loop._opening.done())
    assert (opening.gauge, opening.consumer.paused, opening.loop._failed.is_set()) == (0, set(), False)


async def test_a_worker_waits_for_the_leaders_of_all_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = await Opening(
        monkeypatch, {FIRST: leader_away(FIRST), SECOND: leader_away(SECOND)}, patience_s=0.3
    ).begin()
    await asyncio.sleep(0.5)  # longer than its patience
    assert (opening.loop._failed.is_set(), list(opening.loop._tasks)) == (False, [])
    opening.errors.clear()
    await wait_until(lambda: len(list(opening.loop._tasks)) == 2)


@pytest.mark.parametrize(
    ("error", "drains", "words"),
    [
        (leader_away(SECOND), True, f"--drain: in-1: {AWAY_WORDS}"),
        (NotYetError("in-1: not begun", waited_s=0.01), False, "in-1: not begun"),
    ],
    ids=["a drain without a leader", "transactions that cannot begin"],
)
async def test_some_partitions_are_waited_for_as_long_as_the_patience(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str, *, drains: bool
) -> None:
    opening = await Opening(monkeypatch, {SECOND: error}, patience_s=0.3, drains=drains).begin()
    await wait_until(opening.loop._failed.is_set)
    failure = opening.loop._failure
    assert str(failure) == f"{words}; giving up after 0 s (kafka.patience_s)"
    assert (type(failure), list(opening.loop._tasks)) == (BrokerError, [FIRST])


@pytest.mark.parametrize("ends", [False, True])
async def test_no_partition_is_opening_when_they_are_revoked_or_the_loop_ends(
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,  # noqa: FBT001
) -> None:
    opening = await Opening(monkeypatch, {FIRST: leader_away(FIRST), SECOND: leader_away(SECOND)}).begin()
    await wait_until(lambda: len(opening.attempts) >= 4)
    assert opening.gauge == 2
    if ends:
        await opening.end()
    else:
        await opening.loop.on_partitions_revoked([FIRST, SECOND])
    attempts = len(opening.attempts)
    await asyncio.sleep(0.05)
    assert (opening.gauge, len(opening.attempts)) == (0, attempts)


class Stopped:
    """A client that has ended."""

    _client = SimpleNamespace(_conns={})

    async def stop(self) -> None:
        """Do nothing."""


@dataclass
class Leaders:
    """Answers nothing; notes which partitions it was asked about."""

    asked: list[list[TopicPartition]] = field(default_factory=list)
    are_all_away: bool = True

    async def ask(self, partitions: list[TopicPartition]) -> None:
        self.asked.append(partitions)


async def test_the_leaders_of_drained_partitions_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, leaders = await Opening(monkeypatch, {}).begin(), Leaders()
    await wait_until(lambda: len(list(opening.loop._tasks)) == 2)
    opening.loop._tasks._tasks[FIRST] = cast("Any", LoopTask(is_drained=True))
    await opening.loop._tasks.ask_leaders(cast("Any", leaders))
    assert (leaders.asked, opening.loop._health.leaders_away) == ([[SECOND]], True)
    await opening.end()
    assert not opening.loop._health.leaders_away


# ---------------------------------------------------------------- the log


LOGGED_FIRST, LOGGED_SECOND = TopicPartition("in", 1), TopicPartition("in", 2)


async def test_a_first_failure_is_told_at_once_and_long_waits_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_manager, "OPENING_CHECK_S", 0.001)
    left: dict[TopicPartition, ShoalError | None] = {LOGGED_FIRST: None, LOGGED_SECOND: None}
    with capture_logs() as lines:
        async with meanwhile(tell_unopened(lambda: left)):
            await asyncio.sleep(0.05)
            assert lines == []
            left[LOGGED_SECOND] = leader_away(LOGGED_SECOND)
            await wait_until(lambda: len(lines) >= 1)
            left[LOGGED_FIRST] = leader_away(LOGGED_FIRST)
            await asyncio.sleep(0.05)
            assert len(lines) == 1, "not before the next interval"
            monkeypatch.setattr(task_manager, "TELL_EVERY_S", 0.05)
            await wait_until(lambda: len(lines) >= 3)
            left.clear()
        count = len(lines)
        await asyncio.sleep(0.1)
    away = "no leader answers; look whether its broker runs and can be reached"
    assert len(lines) == count
    assert [(line["event"], line["count"], line["reason"]) for line in lines[:2]] == [
        ("partitions not opened; the others go on", 2, f"in-2: {away}"),
        ("partitions not opened; the others go on", 2, f"in-1: {away}. The same holds for in-2"),
    ]


async def test_a_long_opening_without_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_manager, "OPENING_CHECK_S", 0.001)
    monkeypatch.setattr(task_manager, "TELL_EVERY_S", 0.02)
    with capture_logs() as lines:
        async with meanwhile(tell_unopened(lambda: {LOGGED_FIRST: None})):
            await wait_until(lambda: len(lines) >= 1)
    assert (lines[0]["event"], lines[0]["log_level"], lines[0]["count"]) == ("partitions are being opened", "info", 1)
