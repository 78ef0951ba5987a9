"""Notices that a topic was deleted, or the input recreated, or that the input has another number of partitions.

The client reads the metadata of topics every five minutes. Until then it would assign no new partition, and wait for
records of a topic that no longer exists; a transaction waits for a deleted topic for as long as its timeout. The client
reads a recreated input on from its last position, if that is long enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError
from shoal.kafka.client import CLIENT_ERRORS
from shoal.kafka.offset_tracker import LogTruncatedError
from shoal.kafka.topic_ids import TopicState, topic_states

__all__ = ["watch", "watch_topics"]

WATCH_S = 5.0
"""Time between two requests for the states of the topics (s)."""


async def watch_topics(client: AIOKafkaAdminClient, input_topic: str, counts: Mapping[str, int]) -> None:
    """Do what `watch` does, with requests to the broker for the topics of ``counts``."""
    await watch(partial(topic_states, client, sorted(counts)), input_topic, counts[input_topic], WATCH_S)


async def watch(
    request: Callable[[], Awaitable[Mapping[str, TopicState]]], input_topic: str, expected_count: int, every_s: float
) -> None:
    """Compare topics with their state at the start at intervals, for as long as they agree.

    A broker that starts may not know all topics yet, so two answers in succession must differ. A request that fails is
    repeated: `retries.BrokerLiveness.check_broker` judges whether the broker is lost.

    Parameters
    ----------
    request : callable
        Returns the states of the topics, without those that the broker cannot tell now.
    input_topic : str
        Name of the input. For the other topics it only matters whether they exist.
    expected_count : int
        Number of partitions of the input at the start. Its topic id at the start is that of the first answer.
    every_s : float
        Time between two requests (s).

    Raises
    ------
    BrokerUnavailableError
        A topic was deleted, or the input has another number of partitions. The next consumer loop checks all topics
        before it reads.
    LogTruncatedError
        The input was recreated with the same number of partitions.
    """
    topic_id, had_changed = b"", False
    while True:
        try:
            states = await asyncio.wait_for(request(), every_s)
        except CLIENT_ERRORS:
            await asyncio.sleep(every_s)
            continue
        state = states.get(input_topic)
        if state is not None and state.partition_count == expected_count:
            topic_id = topic_id or state.topic_id
        change = _change_of(states, input_topic, TopicState(expected_count, topic_id))
        if change is not None and had_changed:
            raise change
        had_changed = change is not None
        await asyncio.sleep(every_s)


def _change_of(
    states: Mapping[str, TopicState], input_topic: str, expected: TopicState
) -> BrokerUnavailableError | LogTruncatedError | None:
    """Return the error for a change since the start; None if there is none."""
    for topic, state in sorted(states.items()):
        if not state.partition_count:
            name = "the input" if topic == input_topic else f"topic {topic}"
            return BrokerUnavailableError(f"{name} no longer exists: checking all topics again")
    state = states.get(input_topic, expected)
    if state.partition_count != expected.partition_count:
        counts = f"{state.partition_count} partitions, {expected.partition_count} at the start"
        return BrokerUnavailableError(f"the input has {counts}: checking all topics again")
    if state.topic_id not in (b"", expected.topic_id):
        return LogTruncatedError(input_topic, "the id of the topic has changed")
    return None
