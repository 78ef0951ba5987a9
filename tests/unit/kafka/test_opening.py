"""A consumer loop that opens its partitions: what it tries again, and what ends it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerError, FencedError
from shoal.kafka import retries
from shoal.kafka.client import LeaderAwayError, NotStartedError
from shoal.kafka.consumer_loop import ConsumerLoop
from shoal.kafka.metadata import NO_ENCRYPTION
from shoal.kafka.progress_copy import HiddenCopyError
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.start import StartOptions
from shoal.kafka.task_manager import TaskManager, WorkerContext
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Scale
from support.kafka_broker import wait_until
from support.scales import AREAS, attribute, policy_with

pytestmark = pytest.mark.unit

FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)
SETTINGS = KafkaSection(input="in", output="out", group="g")
UNUSED = cast("Any", None)


class Consumer:
    """A client whose leaders answer."""

    def __init__(self) -> None:
        self.paused: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 5)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.positions[tp] = offset

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)

    def resume(self, tp: TopicPartition) -> None:
        self.paused.remove(tp)


@dataclass(eq=False)
class Task:
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
        self.errors, self.attempts, self.consumer = errors, list[TopicPartition](), Consumer()
        monkeypatch.setattr(retries, "_BACKOFF_S", (0.001,))
        monkeypatch.setattr(TaskManager, "_open", self._open)
        self.metrics, health = Metrics("g"), Health()
        policy = policy_with(attribute("area", Scale.NOMINAL, taxonomy=AREAS), k=2, delta=6)
        options = StartOptions(drain=drains)
        context = WorkerContext(policy, SETTINGS, self.metrics, health, options, NO_ENCRYPTION)
        self.loop = ConsumerLoop(context, BrokerLiveness(health, patience_s), asyncio.Event())
        self.loop.on_assigned([FIRST, SECOND], UNUSED, cast("Any", self.consumer))

    async def _open(self, tp: TopicPartition, *_: object) -> object:
        self.attempts.append(tp)
        if tp in self.errors:
            raise self.errors[tp]

        return Task()

    @property
    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value("shoal_partitions_opening", {"group": "g"})


@pytest.mark.parametrize(
    "error",
    [
        LeaderAwayError(SECOND),
        LeaderAwayError(TopicPartition("out", 1)),
        HiddenCopyError(TopicPartition("copy", 1)),
        NotStartedError("in-1: not begun", 0.01),
    ],
)
async def test_a_partition_that_cannot_be_opened_now_is_opened_later_by_the_same_loop(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    opening = Opening(monkeypatch, {SECOND: error})
    await wait_until(lambda: opening.attempts.count(SECOND) >= 4)
    assert (opening.attempts.count(FIRST), list(opening.loop._tasks), opening.gauge) == (1, [FIRST], 1)
    assert (opening.consumer.positions, opening.consumer.paused) == ({FIRST: 3, SECOND: 0}, {SECOND})
    opening.errors.clear()
    await wait_until(lambda: SECOND in opening.loop._tasks)
    await wait_until(lambda: opening.loop._opening is not None and opening.loop._opening.done())
    assert (opening.gauge, opening.consumer.paused, opening.loop._failed.is_set()) == (0, set(), False)


async def test_a_worker_waits_for_the_leaders_of_all_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = Opening(monkeypatch, {FIRST: LeaderAwayError(FIRST), SECOND: LeaderAwayError(SECOND)}, patience_s=0.3)
    await asyncio.sleep(0.5)  # longer than its patience
    assert (opening.loop._failed.is_set(), list(opening.loop._tasks)) == (False, [])
    opening.errors.clear()
    await wait_until(lambda: len(list(opening.loop._tasks)) == 2)


async def test_a_drain_waits_for_a_leader_as_long_as_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = Opening(monkeypatch, {SECOND: LeaderAwayError(SECOND)}, patience_s=0.3, drains=True)
    await wait_until(opening.loop._failed.is_set)
    error = opening.loop._failure
    words = (
        "--drain: in-1: no leader answers; look whether its broker runs and can be reached; giving up after 0 s "
        "(kafka.patience_s)"
    )
    assert (str(error), type(error), list(opening.loop._tasks)) == (words, BrokerError, [FIRST])


async def test_transactions_that_cannot_begin_end_a_worker_after_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = Opening(monkeypatch, {SECOND: NotStartedError("in-1: not begun", 0.01)}, patience_s=0.3)
    await wait_until(opening.loop._failed.is_set)
    error = opening.loop._failure
    assert (str(error), type(error)) == ("in-1: not begun; giving up after 0 s (kafka.patience_s)", BrokerError)


async def test_a_partition_of_another_owner_ends_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = Opening(monkeypatch, {FIRST: LeaderAwayError(FIRST), SECOND: FencedError("another worker")})
    await wait_until(opening.loop._failed.is_set)
    assert (str(opening.loop._failure), opening.attempts) == ("another worker", [FIRST, SECOND])


@pytest.mark.parametrize("ends", [False, True])
async def test_no_partition_is_opening_when_they_are_revoked_or_the_loop_ends(
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,  # noqa: FBT001
) -> None:
    opening = Opening(monkeypatch, {FIRST: LeaderAwayError(FIRST), SECOND: LeaderAwayError(SECOND)})
    await wait_until(lambda: len(opening.attempts) >= 4)
    assert opening.gauge == 2
    if ends:
        await opening.loop._leave(cast("Any", Stopped()), commit=False)
    else:
        await opening.loop.on_revoked([FIRST, SECOND])
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
    opening, leaders = Opening(monkeypatch, {}), Leaders()
    await wait_until(lambda: len(list(opening.loop._tasks)) == 2)
    opening.loop._tasks._tasks[FIRST] = cast("Any", Task(is_drained=True))
    await opening.loop._tasks.ask_leaders(cast("Any", leaders))
    assert (leaders.asked, opening.loop._health.leaders_away) == ([[SECOND]], True)
    await opening.loop._leave(cast("Any", Stopped()), commit=False)
    assert not opening.loop._health.leaders_away
