"""A partition's log as a client below the consumer sees it: batches, producers, markers; aborted data too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiokafka.protocol.admin import DeleteGroupsRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords
from support.kafka_broker import admin, wait_until

ABORT, COMMIT = 0, 1
ONE_FETCH_BYTES = 1 << 24


@dataclass
class Transacted:
    """What one transaction has written to one partition: offsets and values in order, and its batches."""

    producer: tuple[int, int]
    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    batches: int = 0
    committed: bool | None = None


async def transactions_of(bootstrap: str, topic: str, partition: int = 0) -> list[Transacted]:
    """Transactions of a partition in the order of their ends; ``committed`` is None for one that is open."""
    done: list[Transacted] = []
    pending: dict[int, Transacted] = {}
    for batch in await _batches(bootstrap, topic, partition):
        producer = (batch.producer_id, batch.producer_epoch)
        if batch.is_control_batch:
            (record,) = list(batch)
            ended = pending.pop(producer[0], None)
            if ended is not None:
                ended.committed = int.from_bytes(record.key[2:4], "big") == COMMIT
                done.append(ended)
            continue
        assert batch.is_transactional, "a record was published outside of a transaction"
        transaction = pending.setdefault(producer[0], Transacted(producer))
        transaction.batches += 1
        for record in batch:
            transaction.offsets.append(record.offset)
            transaction.values.append(record.value)
            transaction.timestamps.append(record.timestamp)
    return done + list(pending.values())


async def everything_in(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Return keys and values of all records of a topic, of all producers, with internal and aborted ones."""
    async with admin(bootstrap) as client:
        (found,) = await client.describe_topics([topic])
        partitions = [one["partition"] for one in found["partitions"]]
    records = [
        record
        for partition in partitions
        for batch in await _batches(bootstrap, topic, partition)
        for record in batch
        if not batch.is_control_batch
    ]
    return [(record.key or b"", record.value or b"") for record in records]


async def delete_group(bootstrap: str, group: str) -> None:
    """Delete a group with all its offsets, as their expiry would."""
    async with admin(bootstrap) as client:

        async def is_deleted() -> bool:
            # Members that have just left are still counted for a moment.
            answer = await client._send_request(DeleteGroupsRequest([group]), await client.find_coordinator(group))
            return bool(answer.results[0][1] == 0)

        await wait_until(is_deleted, what="a deleted group")


async def _batches(bootstrap: str, topic: str, partition: int) -> list[Any]:
    batches: list[Any] = []
    offset = 0
    async with admin(bootstrap) as client:
        while True:
            request = FetchRequest(100, 1, ONE_FETCH_BYTES, 0, [(topic, [(partition, offset, ONE_FETCH_BYTES)])])
            response = await client._send_request(request)
            ((_, ((_, error, *_, raw),)),) = response.topics
            assert error == 0, error
            records = MemoryRecords(bytes(raw))
            before = offset
            while records.has_next():
                batch = records.next_batch()
                batches.append(batch)
                offset = batch.next_offset
            if offset == before:
                return batches
