"""Topics that change under running workers: input and output are deleted and recreated."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.kafka_broker import wait_until
from support.running import Process, Stage
from support.topic_changes import recreate_topic

pytestmark = pytest.mark.nightly


async def until_all_is_decided(stage: Stage, count: int) -> None:
    """Wait until so many records were read, and two commits in succession leave the same of them incomplete."""
    seen: list[tuple[int, ...]] = []

    async def is_decided() -> bool:
        state = (await stage.progress()).state
        seen.append(state.incomplete)
        return state.next_offset >= count and seen[-2:-1] == [state.incomplete]

    await wait_until(is_decided, 60, f"{count} records read")


@asynccontextmanager
async def process_after_sixty_records(stage: Stage) -> AsyncIterator[Process]:
    """A worker that has read 60 records and decided on all that are due."""
    async with stage.process("--from", "earliest") as process:
        await process.until_ready()
        await stage.put(60)
        await until_all_is_decided(stage, 60)
        yield process


async def test_after_the_output_was_recreated_each_record_is_published_once(stage: Stage) -> None:
    async with process_after_sixty_records(stage) as process:
        waiting = set((await stage.progress()).state.incomplete)
        published = await stage.serials()
        assert set(published) == set(range(60)) - waiting
        await recreate_topic(stage, "output")
        for _ in range(3):
            await stage.put(60)
        await wait_until(lambda: published_again(stage, process), 60, "rows in the new output")
        assert await process.terminated() == 0
        assert "writes to it" not in process.said
    await stage.drained()
    found = await stage.serials()
    assert set(found.values()) == {1}
    assert set(found) == waiting | set(range(60, 240))


async def published_again(stage: Stage, process: Process) -> bool:
    """Whether there are rows in the output, while the worker runs."""
    assert process.code is None, process.said[-3000:]
    return bool(await stage.serials())


@pytest.mark.parametrize("length", [0, 200])
async def test_a_recreated_input_ends_the_worker_within_30_s(length: int, stage: Stage) -> None:
    async with process_after_sixty_records(stage) as process:
        before = await stage.serials()
        # A worker that does not run sees nothing of the deletion. With 200 records it would read on at offset 60.
        process.process.send_signal(signal.SIGSTOP)
        try:
            await recreate_topic(stage, "input")
            await stage.put(length)
        finally:
            process.process.send_signal(signal.SIGCONT)
        began_s = time.monotonic()
        assert await process.ended(40) == 2
        assert time.monotonic() - began_s < 30
        assert "The topic was recreated" in process.said or "has no committed offset" in process.said
    after = await stage.serials()
    assert set(after.values()) == {1}
    assert before <= after
