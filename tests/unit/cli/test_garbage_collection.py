"""When the process of a worker collects cyclic garbage."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
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
