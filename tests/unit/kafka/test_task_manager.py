"""Partition tasks that are opened: what the metrics say meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerUnavailableError, FencedError
from shoal.kafka import MetadataCipher, StartOptions, WorkerContext
from shoal.kafka.leader_check import LeaderAwayError
from shoal.kafka.task_manager import TaskManager
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Scale
from support.scales import AREAS, attribute, policy_with

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(input="in", output="out", group="g")
COUNTERS = {
    "shoal_policy_changes_total",
    "shoal_records_skipped_total",
    "shoal_published_offsets_lost_total",
    "shoal_values_unknown_total",
}
PARTITIONS = [TopicPartition("in", number) for number in range(3)]


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
        return SimpleNamespace(is_restoring=True)

    monkeypatch.setattr(TaskManager, "_open", start)
    unused = cast("Any", None)
    await tasks.open([TopicPartition("in", 3)], unused, unused, lambda *_: None)
    assert {name: found.get(name) for name in COUNTERS} == dict.fromkeys(COUNTERS, 0)


async def test_partitions_that_are_not_open_yet_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, metrics = manager()
    seen: list[float | None] = []

    def opening() -> float | None:
        return metrics.registry.get_sample_value("shoal_partitions_opening", {"group": "g"})

    async def start(_: TaskManager, tp: TopicPartition, *__: object) -> object:
        seen.append(opening())
        if tp.partition == 1 and len(seen) < 4:
            raise BrokerUnavailableError("an open transaction hides the copy of the progress")
        return SimpleNamespace(is_restoring=True)

    monkeypatch.setattr(TaskManager, "_open", start)
    unused, partitions = cast("Any", None), [TopicPartition("in", number) for number in range(3)]
    assert opening() == 0
    with pytest.raises(BrokerUnavailableError):
        await tasks.open(partitions, unused, unused, lambda *_: None)
    assert (seen, opening()) == ([3, 2, 2], 1)
    await tasks.open(partitions[1:2], unused, unused, lambda *_: None)
    assert (seen[3:], opening()) == ([1], 0)


async def test_partitions_whose_leader_is_away_are_named_if_nothing_else_went_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks, _ = manager()
    away, other = {1, 2}, False

    async def start(_: TaskManager, tp: TopicPartition, *__: object) -> object:
        if tp.partition in away:
            raise LeaderAwayError([tp])
        if other:
            raise FencedError("another worker")
        return SimpleNamespace(is_restoring=True)

    monkeypatch.setattr(TaskManager, "_open", start)
    unused, partitions = cast("Any", None), [TopicPartition("in", number) for number in range(3)]
    with pytest.raises(LeaderAwayError, match=r"^in-1, in-2: no leader answers") as found:
        await tasks.open(partitions, unused, unused, lambda *_: None)
    assert (found.value.partitions, list(tasks)) == (partitions[1:], partitions[:1])
    other = True
    with pytest.raises(FencedError):
        await tasks.open(partitions, unused, unused, lambda *_: None)


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
