"""Readers of logs that tasks share: whatever one of them read before, the next one misses no record."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

from aiokafka import TopicPartition
from shoal.kafka.client import SharedReaders, shared_readers
from shoal.kafka.logs import read_committed_records
from shoal.policy import KafkaSection
from support.kafka_broker import produce
from support.running import Stage

PARTITIONS, RECORDS = 3, 1500


async def read(settings: KafkaSection, topic: str, partition: int, begin: int, most: int | None = None) -> list[int]:
    """Return the offsets of the committed records from an offset on; stop after ``most`` of them."""
    found: list[int] = []
    async with aclosing(read_committed_records(settings, TopicPartition(topic, partition), begin)) as records:
        async for record in records:
            found.append(record.offset)
            if len(found) == most:
                break
    return found


async def test_a_reader_finds_all_records_whatever_it_read_before(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=PARTITIONS)
    topic, settings, draw = stage.topics["output"], stage.settings(), random.Random(1)
    for _ in range(2):  # each transaction ends with a control record, which has an offset
        for partition in range(PARTITIONS):
            values = [b"x" * 200] * (RECORDS // 2)
            await produce(bootstrap, topic, values, partitions=partition, transactional_id=f"{topic}-{partition}")
    half = RECORDS // 2
    expected = [*range(half), *range(half + 1, RECORDS + 1)]
    shared = SharedReaders()
    async with shared_readers(shared):
        for most in (None, 1, None, 700, 1, None):
            assert await read(settings, topic, 0, 0, most) == expected[:most]
        assert await read(settings, topic, 1, half + 1) == expected[half:]

        async def one_after_the_other(partitions: list[int]) -> None:
            for partition in partitions:
                begin, most = draw.randrange(RECORDS + 2), draw.choice((None, None, 1, 300))
                wanted = [offset for offset in expected if offset >= begin][:most]
                async with shared_readers(shared):
                    assert await read(settings, topic, partition, begin, most) == wanted

        orders = [[draw.randrange(PARTITIONS) for _ in range(4)] for _ in range(8)]
        await asyncio.gather(*map(one_after_the_other, orders))
        await produce(bootstrap, topic, [b"y"], partitions=0, transactional_id=f"{topic}-0")
        assert (await read(settings, topic, 0, 0))[-1] == RECORDS + 2, "its end is asked each time"
