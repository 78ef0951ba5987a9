"""When the process of a worker collects cyclic garbage."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace

import pytest
from shoal.cli import run
from shoal.cli.run import spaced_collections

pytestmark = pytest.mark.unit


class Node:
    """A container that can be part of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


def dropped_cycle() -> weakref.ref[Node]:
    first, second = Node(), Node()
    first.other, second.other = second, first
    return weakref.ref(first)


async def test_cycles_are_collected_once_a_second_and_the_settings_restored() -> None:
    before = gc.get_threshold()
    async with spaced_collections():
        assert gc.get_threshold() == (50_000, *before[1:])
        assert gc.get_freeze_count() > 1000, "what was loaded before is left out"
        dropped = dropped_cycle()
        assert dropped() is not None
        collected = asyncio.Event()
        loop = asyncio.get_running_loop()
        weakref.finalize(dropped(), loop.call_soon, collected.set)
        await asyncio.wait_for(collected.wait(), 30)
        assert dropped() is None
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


async def test_collections_that_take_long_come_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    now_s = iter([0.0, 0.01, 5.0, 5.3, 9.0, 9.0])

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr(run, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(run, "time", SimpleNamespace(thread_time=lambda: next(now_s)))
    with pytest.raises(asyncio.CancelledError):
        await run._collect()
    assert pauses == [1.0, 1.0, pytest.approx(3.0), 1.0], "0.3 s are a tenth of 3 s"
