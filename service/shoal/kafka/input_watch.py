"""Notices that the input topic was deleted, or has another number of partitions than at the start of a consumer loop.

The client reads the metadata of topics every five minutes. Until then it would assign no new partition, and wait for
records of a topic that no longer exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.metadata import MetadataRequest

from shoal.errors import BrokerUnavailableError
from shoal.kafka.client import CLIENT_ERRORS

__all__ = ["partition_count", "watch_input", "watch_partition_count"]

WATCH_S = 5.0
"""Time between two requests for the number of partitions of the input (s)."""

_UNKNOWN_TOPIC = kafka_errors.UnknownTopicOrPartitionError.errno


async def partition_count(client: AIOKafkaAdminClient, topic: str) -> int | None:
    """Return the number of partitions of a topic, 0 if it does not exist; None if the broker cannot say now.

    The request does not create the topic.
    """
    network = client._client  # noqa: SLF001 - not reachable otherwise
    answer = await network.send(network.get_random_node(), MetadataRequest([topic], allow_auto_topic_creation=False))
    (described,) = answer.to_object()["topics"]
    if described["error_code"] == _UNKNOWN_TOPIC:
        return 0
    return None if described["error_code"] else len(described["partitions"])


async def watch_input(client: AIOKafkaAdminClient, topic: str, expected: int) -> None:
    """Do what `watch_partition_count` does, with requests to the broker."""
    await watch_partition_count(partial(partition_count, client, topic), expected, WATCH_S)


async def watch_partition_count(request: Callable[[], Awaitable[int | None]], expected: int, every_s: float) -> None:
    """Compare the number of partitions with the expected one at intervals, for as long as they agree.

    A broker that starts may not know all topics yet, so two answers in succession must differ from the expected number.
    A request that fails is repeated: `retries.BrokerLiveness.check_broker` judges whether the broker is lost.

    Raises
    ------
    BrokerUnavailableError
        The number has changed. The next consumer loop checks all topics before it reads.
    """
    has_differed = False
    while True:
        await asyncio.sleep(every_s)
        try:
            count = await asyncio.wait_for(request(), every_s)
        except CLIENT_ERRORS:
            continue
        if count is None or count == expected:
            has_differed = False
        elif has_differed:
            change = f"has {count} partitions, {expected} at the start" if count else "no longer exists"
            raise BrokerUnavailableError(f"the input {change}: checking all topics again")
        else:
            has_differed = True
