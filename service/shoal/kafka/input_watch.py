"""Notices that the input topic was deleted or recreated, or has another number of partitions than at the start.

The client reads the metadata of topics every five minutes. Until then it would assign no new partition, and wait for
records of a topic that no longer exists. It reads a recreated topic on from its last position, if that is long enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError
from shoal.kafka.client import CLIENT_ERRORS
from shoal.kafka.offset_tracker import LogTruncatedError
from shoal.kafka.topic_ids import TopicState, topic_state

__all__ = ["watch_input", "watch_topic"]

WATCH_S = 5.0
"""Time between two requests for the state of the input (s)."""


async def watch_input(client: AIOKafkaAdminClient, topic: str, expected_count: int) -> None:
    """Do what `watch_topic` does, with requests to the broker."""
    await watch_topic(partial(topic_state, client, topic), topic, expected_count, WATCH_S)


async def watch_topic(
    request: Callable[[], Awaitable[TopicState | None]], topic: str, expected_count: int, every_s: float
) -> None:
    """Compare a topic with its state at the start at intervals, for as long as they agree.

    A broker that starts may not know all topics yet, so two answers in succession must differ. A request that fails is
    repeated: `retries.BrokerLiveness.check_broker` judges whether the broker is lost.

    Parameters
    ----------
    request : callable
        Returns the state of the topic; None if the broker cannot say now.
    topic : str
        Name of the topic.
    expected_count : int
        Number of partitions at the start. The topic id at the start is that of the first answer.
    every_s : float
        Time between two requests (s).

    Raises
    ------
    BrokerUnavailableError
        The number of partitions has changed. The next consumer loop checks all topics before it reads.
    LogTruncatedError
        The topic was recreated with the same number of partitions.
    """
    topic_id, has_differed = b"", False
    while True:
        try:
            state = await asyncio.wait_for(request(), every_s)
        except CLIENT_ERRORS:
            await asyncio.sleep(every_s)
            continue
        if state is not None and state.partition_count == expected_count:
            topic_id = topic_id or state.topic_id
        differs = state is not None and state != TopicState(expected_count, state.topic_id and topic_id)
        if state is not None and differs and has_differed:
            _raise_change(state, topic, expected_count)
        has_differed = differs
        await asyncio.sleep(every_s)


def _raise_change(state: TopicState, topic: str, expected_count: int) -> None:
    count = state.partition_count
    if count == expected_count:
        raise LogTruncatedError(topic, "the id of the topic has changed")
    change = f"has {count} partitions, {expected_count} at the start" if count else "no longer exists"
    raise BrokerUnavailableError(f"the input {change}: checking all topics again")
