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
from shoal.kafka.topic_sample import exported, message_text
from shoal.policy import Policy
from shoal.settings import kafka_settings


def line(partition: int, message: Any, kind: str) -> str:  # noqa: ANN401 - the client has no types
    """Return the line of one message."""
    if kind == "lines":
        return message_text(message.value) or ""
    content = exported(partition, message)
    if kind == "release":
        del content["offset"], content["timestamp"]
    return json.dumps(content)


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
