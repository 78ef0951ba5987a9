"""A session fed by a host that loses, repeats and shuffles: what enters a lane is what is in the log, in its order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka_broker import wait_until
from running import EARLIEST, Stage
from shoal.kafka import Contact, Handing, Hosted, Plan, Seal
from shoal.policy import Policy
from shoal.watch import Health, Metrics


class Careless:
    """Reads a partition with a client of its own and brings it on with mistakes."""

    def __init__(self, stage: Stage, draw: Random) -> None:
        self._stage, self._draw = stage, draw
        self._waiting: deque[Any] = deque()
        self.lost = self.repeated = self.sent_back = 0
        options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        self._reader = AIOKafkaConsumer(bootstrap_servers=stage.bootstrap, **options)

    async def bring(self) -> None:
        reader, draw = self._reader, self._draw
        await reader.start()
        try:
            reader.assign([self._stage.place()])
            while True:
                for messages in (await reader.getmany(timeout_ms=50, max_records=draw.randrange(1, 60))).values():
                    fate = draw.random()
                    if fate < 0.1:
                        self.lost += len(messages)
                    elif fate < 0.2:
                        self.repeated += len(messages)
                        self._waiting += [*messages, *messages]
                    elif fate < 0.3:
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

    async def rewind(self, partition: int, offset: int) -> None:
        self.sent_back += 1
        self._reader.seek(TopicPartition(self._stage.topics["input"], partition), offset)


async def test_a_careless_host_costs_time_and_nothing_else(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    places = await stage.put(900)
    upstream = f"upstream-{stage.group}"
    aborted = await stage.put(40, transactional_id=upstream, abort=True)
    places += await stage.put(40, transactional_id=upstream)
    policy = Policy.load(stage.policy_file())
    settings, health = stage.settings(policy), Health()
    plan = Plan(policy, settings, Metrics(), health, EARLIEST, Seal.of(settings))
    host = Careless(stage, Random(5))
    hosted = Hosted(plan, Contact(health, 60), host, [0], Handing(), most=64)
    tasks = [asyncio.create_task(host.bring()), asyncio.create_task(hosted.run())]
    try:
        await stage.until_resolved(places, timeout_s=60)
        fates = await stage.fates()
        assert not set(aborted) & set(fates)
        assert set(fates.values()) == {1}
        assert await hosted.end(10)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert host.lost > 0
    assert host.repeated > 0
    assert host.sent_back > 0


async def is_behind(stage: Stage, offset: int) -> bool:
    return (await stage.progress()).snapshot.watermark > offset


async def test_an_idle_lane_passes_marks_of_transactions(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 20, "max_delay_s": 0.5})
    places = await stage.put(30, transactional_id=f"upstream-{stage.group}")
    policy = Policy.load(stage.policy_file())
    settings, health = stage.settings(policy), Health()
    plan = Plan(policy, settings, Metrics(), health, EARLIEST, Seal.of(settings))
    host = Careless(stage, Random(5))
    hosted = Hosted(plan, Contact(health, 60), host, [0], Handing(), most=64)
    tasks = [asyncio.create_task(host.bring()), asyncio.create_task(hosted.run())]
    try:
        # The end of the log, at which the clock lets all go, lies behind the mark.
        await stage.until_resolved(places)
        await wait_until(lambda: is_behind(stage, len(places)), what="a watermark behind the mark")
        assert await hosted.end(10)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
