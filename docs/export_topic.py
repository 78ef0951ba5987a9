"""Write a topic as JSON lines for shoal verify: ``python docs/export_topic.py POLICY TOPIC KIND > FILE``.

KIND is original, release, or lines (evidence, quarantine). It connects as the policy and the environment say, and reads
committed messages up to the present end of each partition. The principal needs READ on the topic.
"""

import asyncio
import json
import sys
from typing import Any

from aiokafka import TopicPartition
from shoal.kafka.checks import partitions_of
from shoal.kafka.client import admin
from shoal.kafka.logs import read_committed_records
from shoal.policy import Policy
from shoal.settings import kafka_settings


def text(data: bytes | None) -> str | None:
    """Return the text of a message as it is; bytes that are not UTF-8 become lone surrogates."""
    return None if data is None else data.decode(errors="surrogateescape")


def line(partition: int, message: Any, kind: str) -> str:  # noqa: ANN401 - the client has no types
    """Return the line of one message."""
    if kind == "lines":
        return text(message.value) or ""
    content = {"partition": partition, "offset": message.offset, "timestamp": message.timestamp}
    content |= {"key": text(message.key), "headers": [[name, text(data)] for name, data in message.headers]}
    if kind == "release":
        del content["offset"], content["timestamp"]
    return json.dumps(content | {"value": text(message.value)})


async def export(policy_path: str, topic: str, kind: str) -> None:
    """Write all messages of a topic to standard output."""
    settings = kafka_settings(Policy.load(policy_path))
    async with admin(settings) as client:
        partitions = (await partitions_of(client, [topic]))[topic]
    for partition in partitions:
        async for message in read_committed_records(settings, TopicPartition(topic, partition)):
            sys.stdout.write(line(partition, message, kind) + "\n")


if __name__ == "__main__":
    asyncio.run(export(*sys.argv[1:]))
