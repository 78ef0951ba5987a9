"""The baseline of Kafka to Kafka: what one process of the client can carry, exactly once, without looking inside.

read_committed in, create_batch and send_batch out, one transactional producer per partition, and a transaction
with the offset every 200 ms: the same protocol work as Shoal's, and nothing else. Values are not decoded.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

__all__ = ["pass_through"]

INTERVAL_S = 0.2


class _PartitionCopy:
    def __init__(self, place: TopicPartition, target: str, group: str, bootstrap: str) -> None:
        self.place, self.target, self.group = place, target, group
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=f"{group}-{place.topic}-{place.partition}",
            max_batch_size=1 << 20,
            acks="all",
            linger_ms=0,
        )
        self.waiting: list[Any] = []
        self.task: asyncio.Task[None] | None = None
        self.last = time.monotonic()

    def tick(self, *, force: bool = False) -> None:
        if self.task is not None and self.task.done():
            self.task.result()
            self.task = None
        if self.waiting and self.task is None and (force or time.monotonic() - self.last >= INTERVAL_S):
            self.task = asyncio.create_task(self.commit())

    async def commit(self) -> None:
        messages, self.waiting = self.waiting, []
        self.last = time.monotonic()
        await self.producer.begin_transaction()
        pending = []
        batch = self.producer.create_batch()
        for message in messages:
            if batch.append(key=None, value=message.value, timestamp=message.timestamp) is None:
                batch.close()
                pending.append(await self.producer.send_batch(batch, self.target, partition=self.place.partition))
                batch = self.producer.create_batch()
                batch.append(key=None, value=message.value, timestamp=message.timestamp)
        batch.close()
        pending.append(await self.producer.send_batch(batch, self.target, partition=self.place.partition))
        await asyncio.gather(*pending)
        await self.producer.send_offsets_to_transaction(
            {self.place: OffsetAndMetadata(messages[-1].offset + 1, "")}, self.group
        )
        await self.producer.commit_transaction()


async def pass_through(bootstrap: str, source: str, target: str, partitions: int, count: int) -> None:
    """Copy ``count`` messages, from starting the clients to closing them."""
    places = [TopicPartition(source, number) for number in range(partitions)]
    copies = {place: _PartitionCopy(place, target, f"{target}-copy", bootstrap) for place in places}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
    )
    await consumer.start()
    try:
        for copy in copies.values():
            await copy.producer.start()
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        seen = 0
        while seen < count:
            for place, messages in (await consumer.getmany(timeout_ms=50, max_records=2048)).items():
                copies[place].waiting += messages
                seen += len(messages)
            for copy in copies.values():
                copy.tick()
        while any(copy.waiting or copy.task for copy in copies.values()):
            for copy in copies.values():
                copy.tick(force=True)
            await asyncio.sleep(0.001)
    finally:
        for copy in copies.values():
            await copy.producer.stop()
        await consumer.stop()
