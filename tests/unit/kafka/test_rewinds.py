"""When a rewind is requested: after a time in which the message could have arrived, and then less and less often."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from shoal.kafka import external_loop
from shoal.kafka.external_loop import Rewinds

pytestmark = pytest.mark.unit

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


class Source:
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
    source, offset = Source(), 7
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


async def requested() -> tuple[Source, Rewinds]:
    """Return a source with one rewind that runs."""
    source = Source()
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
