"""Reads a bounded sample of a topic, for a draft of a policy. It joins no group and writes nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiokafka import TopicPartition

from shoal.errors import BrokerError
from shoal.kafka.checks import partitions_of
from shoal.kafka.client import admin, asking, log_end, shared_readers
from shoal.kafka.logs import read_committed_records
from shoal.policy import KafkaSection


async def sample_topic(settings: KafkaSection, topic: str, most_records: int, most_bytes: int) -> bytes:
    """Return the last committed messages of each partition as lines of JSON, as an export of a topic has them.

    Each line has partition, offset, timestamp, key, headers and value; bytes that are not UTF-8 become lone surrogates.
    At most ``most_records`` lines and about ``most_bytes`` bytes, in equal shares of the partitions.
    BrokerError if there is no such topic, or it has no messages.
    """
    async with admin(settings) as client:
        partitions = (await partitions_of(client, [topic])).get(topic, [])
    if not partitions:
        raise BrokerError(f"{topic}: there is no such topic, or it may not be described; look at its name and the ACLs")
    lines = bytearray()
    async with shared_readers():
        for place, partition in enumerate(partitions, 1):
            limit, tp = most_bytes * place // len(partitions), TopicPartition(topic, partition)
            async with aclosing(_last_messages(settings, tp, most_records // len(partitions))) as found:
                async for line in found:
                    if len(lines) + len(line) > limit:
                        break
                    lines += line
    if not lines:
        raise BrokerError(f"{topic}: holds no committed message yet; a draft needs some of them")
    return bytes(lines)


async def _last_messages(settings: KafkaSection, tp: TopicPartition, count: int) -> AsyncGenerator[bytes, None]:
    async with asking(settings) as reader:
        end = await log_end(reader, tp)
    async with aclosing(read_committed_records(settings, tp, max(0, end - count))) as messages:
        async for message in messages:
            yield json.dumps(exported(tp.partition, message)).encode() + b"\n"


def exported(partition: int, message: Any) -> dict[str, Any]:  # noqa: ANN401 - the client has no types
    """Return a message as an export of a topic has it; bytes that are not UTF-8 become lone surrogates."""
    return {
        "partition": partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": message_text(message.key),
        "headers": [[name, message_text(data)] for name, data in message.headers],
        "value": message_text(message.value),
    }


def message_text(data: bytes | None) -> str | None:
    """Return the text of a key, value or header as it is."""
    return None if data is None else data.decode(errors="surrogateescape")
