"""Changes of the topics of a stage while workers run: partitions are added, topics deleted and recreated."""

from __future__ import annotations

import contextlib

from aiokafka.admin import NewPartitions
from support.kafka_broker import admin, create_topic, wait_until
from support.running import Stage


async def add_partitions(stage: Stage, name: str, count: int) -> None:
    async with admin(stage.bootstrap) as client:
        await client.create_partitions({stage.topics[name]: NewPartitions(count)})


async def delete_topic(stage: Stage, name: str) -> None:
    """Delete a topic, and wait until the broker does not know it any more."""
    async with admin(stage.bootstrap) as client:
        await client.delete_topics([stage.topics[name]])

        async def is_gone() -> bool:
            return stage.topics[name] not in await client.list_topics()

        await wait_until(is_gone, what="the end of a topic")


async def recreate_topic(stage: Stage, name: str, partitions: int = 1) -> None:
    await delete_topic(stage, name)
    await create_topic(stage.bootstrap, partitions, name=stage.topics[name])


async def put_in_new_partition(stage: Stage, partition: int) -> list[tuple[int, int]]:
    """Add a partition to output and input, and append 30 records to it."""
    await add_partitions(stage, "output", partition + 1)
    await add_partitions(stage, "input", partition + 1)

    async def put() -> list[tuple[int, int]]:
        with contextlib.suppress(AssertionError):
            return await stage.put(30, partition)
        return []

    return await wait_until(put, what="a producer that knows the new partition")
