"""An external loop whose source loses, repeats and shuffles messages: a task still processes the log in its order."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from shoal.kafka import BrokerLiveness, ClusterListener, ExternalLoop, MetadataCipher, WorkerContext
from shoal.observability import Health, Metrics
from shoal.policy import Policy
from support.kafka_broker import admin, wait_until
from support.running import EARLIEST, Stage


class FaultySource:
    """Reads a partition with its own client, and passes the messages on with mistakes."""

    def __init__(self, stage: Stage, draw: Random) -> None:
        self._stage, self._draw = stage, draw
        self._waiting: deque[Any] = deque()
        self.lost = self.repeated = self.rewinds = 0
        self._reader = AIOKafkaConsumer(bootstrap_servers=stage.bootstrap, auto_offset_reset="earliest")

    async def deliver(self) -> None:
        reader, draw = self._reader, self._draw
        await reader.start()
        try:
            reader.assign([self._stage.topic_partition()])
            while True:
                for messages in (await reader.getmany(timeout_ms=50, max_records=draw.randrange(1, 60))).values():
                    draw_of_fault = draw.random()
                    if draw_of_fault < 0.1:
                        self.lost += len(messages)
                    elif draw_of_fault < 0.2:
                        self.repeated += len(messages)
                        self._waiting += [*messages, *messages]
                    elif draw_of_fault < 0.3:
                        self._waiting.extendleft(reversed(messages))
                    else:
                        self._waiting += messages
        finally:
            await reader.stop()

    async def wait(self, timeout_s: float) -> None:
        await asyncio.sleep(0 if self._waiting else timeout_s)

    def take(self, partition: int, most: int) -> Sequence[Any]:
        assert partition == 0
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    @property
    def is_full(self) -> bool:
        return False

    async def rewind(self, partition: int, offset: int) -> None:
        self.rewinds += 1
        self._reader.seek(TopicPartition(self._stage.topics["input"], partition), offset)


@contextlib.asynccontextmanager
async def fed_loop(stage: Stage) -> AsyncIterator[tuple[ExternalLoop, FaultySource]]:
    """Run a loop with a faulty source that passes on aborted messages; after the block the loop must end in time."""
    settings, health = stage.settings(policy := Policy.load(stage.policy_file())), Health()
    context = WorkerContext(policy, settings, Metrics(), health, EARLIEST, MetadataCipher.of(settings))
    source = FaultySource(stage, Random(5))
    given = (context, BrokerLiveness(health, 60), source, (0,), ClusterListener(), 64)
    loop = ExternalLoop(*given, may_contain_uncommitted=True)
    tasks = [asyncio.create_task(source.deliver()), asyncio.create_task(loop.run())]
    try:
        yield loop, source
        ending = asyncio.create_task(loop.end(60))
        await wait_until(ending.done, 10, "the end of the loop")
        assert ending.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_faulty_source_delays_records_but_loses_none(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    record_ids = await stage.put(900)
    upstream = f"upstream-{stage.group}"
    aborted = await stage.put(40, transactional_id=upstream, abort=True)
    record_ids += await stage.put(40, transactional_id=upstream)
    async with fed_loop(stage) as (_, source):
        await stage.until_completed(record_ids, timeout_s=60)
        outcomes = await stage.outcomes()
        assert not set(aborted) & set(outcomes)
        assert set(outcomes.values()) == {1}
    assert source.lost > 0
    assert source.repeated > 0
    assert source.rewinds > 0


async def test_a_deleted_input_ends_the_loop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.topics.WATCH_S", 0.3)
    async with fed_loop(stage) as (loop, _):
        await asyncio.wait_for(loop.opened.wait(), 30)
        async with admin(stage.bootstrap) as client:
            await client.delete_topics([stage.topics["input"]])
        await asyncio.wait_for(loop._ended.wait(), 30)
        assert not loop._ending.is_set(), "nothing asked it to end"
