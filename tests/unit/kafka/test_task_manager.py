"""Partition tasks that are opened: what the metrics say meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError
from shoal.errors import BrokerUnavailableError, FencedError, GuaranteeError, InputError, ShoalError
from shoal.kafka import MetadataCipher, StartOptions, WorkerContext, task_manager
from shoal.kafka import client as connection
from shoal.kafka.checks import TopicLayout
from shoal.kafka.client import LeaderAwayError, NotOpenedError, NotStartedError, NotYetError
from shoal.kafka.progress_copy import HiddenCopyError
from shoal.kafka.task_manager import TaskManager
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Scale
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


async def open_all(tasks: TaskManager, partitions: list[TopicPartition], consumer: Consumer | None = None) -> None:
    await tasks.open(partitions, UNUSED, cast("Any", consumer or Consumer()), lambda *_: None)


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
            raise HiddenCopyError(TopicPartition("copy", 1))
        return SimpleNamespace(oldest_held_s=None)

    monkeypatch.setattr(TaskManager, "_open", start)
    assert opening() == 0
    with pytest.raises(NotOpenedError):
        await open_all(tasks, PARTITIONS)
    assert (seen, opening()) == ([3, 2, 2], 1)
    await open_all(tasks, PARTITIONS[1:2])
    assert (seen[3:], opening()) == ([1], 0)


REFUSED = "the broker at localhost:9092 cannot be reached or refused for now"
NO_LISTENER = "check that a broker listens there, and that kafka.bootstrap_servers names it"
AWAY_WORDS = "no leader answers; look whether its broker runs and can be reached"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LeaderAwayError(PARTITIONS[1]), f"in-1: {AWAY_WORDS}"),
        (LeaderAwayError(TopicPartition("out", 1)), f"in-1: out-1: {AWAY_WORDS}"),
        (NotYetError("out-1: an open transaction"), "in-1: out-1: an open transaction"),
        (NotStartedError("in-1: not begun", 30.0), "in-1: not begun"),
        (KafkaTimeoutError("of the client"), f"in-1: {REFUSED} (KafkaTimeoutError)"),
    ],
)
async def test_a_partition_that_cannot_be_opened_now_leaves_the_others_open(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    tasks, _ = manager()
    fail_with(monkeypatch, {1: error})
    with pytest.raises(NotOpenedError) as caught:
        await open_all(tasks, PARTITIONS)
    assert (str(caught.value), list(caught.value.reasons)) == (words, [PARTITIONS[1]])
    assert (caught.value.retriable, list(tasks)) == (True, [PARTITIONS[0], PARTITIONS[2]])
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
    fail_with(monkeypatch, {1: LeaderAwayError(PARTITIONS[1]), 2: error})
    with pytest.raises(ShoalError) as caught:
        await open_all(tasks, PARTITIONS)
    assert (str(caught.value), type(caught.value) is NotOpenedError) == (words, False)


async def test_a_final_error_is_raised_before_one_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, _ = manager()
    fail_with(monkeypatch, {0: FencedError("another worker"), 1: GuaranteeError("an invariant")})
    with pytest.raises(GuaranteeError, match=r"^an invariant$"):
        await open_all(tasks, PARTITIONS)


async def test_leaders_that_are_away_do_not_delay_the_partitions_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more of them than partitions that are opened at once."""
    tasks, _ = manager()

    async def start(_: TaskManager, tp: TopicPartition, __: object, consumer: Consumer, *___: object) -> object:
        await consumer.end_offsets([tp])
        return SimpleNamespace(oldest_held_s=None)

    monkeypatch.setattr(TaskManager, "_open", start)
    opening = asyncio.create_task(
        open_all(tasks, [TopicPartition("in", number) for number in range(21)], Consumer(set(range(20))))
    )
    await wait_until(lambda: TopicPartition("in", 20) in tasks, 3)  # less than the time that a leader has
    opening.cancel()
    await asyncio.wait({opening})


async def test_a_leader_that_does_not_answer_leaves_its_partition_unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.05)
    tasks, _ = manager()
    fail_with(monkeypatch, {})
    with pytest.raises(NotOpenedError) as caught:
        await open_all(tasks, PARTITIONS, Consumer({1}))
    assert (str(caught.value), list(tasks)) == (f"in-1: {AWAY_WORDS}", [PARTITIONS[0], PARTITIONS[2]])


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


async def test_a_close_of_nothing_keeps_the_number_of_held_records() -> None:
    tasks, metrics = manager()
    is_open = asyncio.Event()
    is_open.set()
    tasks._tasks = {PARTITIONS[0]: cast("Any", Task(4, is_open))}
    await tasks.close(PARTITIONS, commit=True)
    await tasks.close(PARTITIONS, commit=True)
    assert metrics.held_at_close == 4


async def test_the_coordinator_is_asked_before_a_partition_is_fenced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that no longer reaches its group must not fence the one that has its partitions now."""
    tasks, _ = manager()
    tasks.layout = TopicLayout({"in": 3})
    order, error = list[str](), list[Exception]([HiddenCopyError(TopicPartition("copy", 1))])

    class Producer:
        async def open(self) -> None:
            order.append("fenced")
            raise error[0]

        async def close(self) -> None: ...

    async def producer(*_: object) -> Producer:
        return Producer()

    async def fetch(*_: object) -> None:
        order.append("asked")
        raise BrokerUnavailableError("in-1: the coordinator of group g does not return the committed offset")

    monkeypatch.setattr(TaskManager, "_producer", producer)
    monkeypatch.setattr(task_manager, "fetch_committed", fetch)
    with pytest.raises(NotOpenedError):
        await open_all(tasks, PARTITIONS[1:2])
    with pytest.raises(BrokerUnavailableError) as caught:
        await open_all(tasks, PARTITIONS[1:2])
    assert (order, type(caught.value)) == (["fenced", "asked"], BrokerUnavailableError)
