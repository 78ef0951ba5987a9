"""Create the topics of the demo, send records to the input, and read all topics as another consumer would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

__all__ = ["Line", "count", "create", "export", "produce", "read"]


BURST_RECORDS, PAUSE_S = 40, 0.05
"""The records arrive as a stream: this many at once, then a pause (s)."""


class Line(NamedTuple):
    """A committed message: partition, offset and text."""

    partition: int
    offset: int
    text: str


async def create(bootstrap: str, names: Iterable[str], partitions: int) -> None:
    """Create topics that have the same number of partitions."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        answer = await client.create_topics([NewTopic(name, partitions, 1) for name in names])
    finally:
        await client.close()
    failed = [error[0] for error in answer.topic_errors if error[1]]
    if failed:
        raise SystemExit(f"demo: these topics cannot be created: {', '.join(failed)}")


async def produce(bootstrap: str, topic: str, records: Sequence[dict[str, Any]], partition_of: Sequence[int]) -> None:
    """Send records in order, a few at a time; ``partition_of`` has the partition of each record."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, enable_idempotence=True)
    await producer.start()
    try:
        for number, (record, partition) in enumerate(zip(records, partition_of, strict=True), 1):
            await producer.send(topic, json.dumps(record).encode(), partition=partition)
            if number % BURST_RECORDS == 0:
                await asyncio.sleep(PAUSE_S)
        await producer.flush()
    finally:
        await producer.stop()


async def read(bootstrap: str, topic: str, partitions: int) -> list[Line]:
    """Return all committed messages of a topic, by partition and offset."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partitions_of_topic = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(partitions_of_topic)
        ends = await consumer.end_offsets(partitions_of_topic)
        lines: list[Line] = []
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for tp, messages in (await consumer.getmany(timeout_ms=200)).items():
                lines += [Line(tp.partition, message.offset, message.value.decode()) for message in messages]
    finally:
        await consumer.stop()
    return sorted(lines)


async def count(bootstrap: str, partitions: int, *topics: str) -> int:
    """Return the number of committed messages in these topics."""
    return sum([len(await read(bootstrap, topic, partitions)) for topic in topics])


def export(lines: Iterable[Line], path: Path, *, kind: str) -> None:
    """Write the messages of a topic to a file that `shoal verify` reads."""
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            if kind == "input":
                exported: dict[str, Any] = {"partition": line.partition, "offset": line.offset, "value": line.text}
                file.write(json.dumps(exported) + "\n")
            elif kind == "output":
                file.write(json.dumps({"partition": line.partition, "value": line.text}) + "\n")
            else:
                file.write(line.text + "\n")
