"""Notices that a topic was deleted, or an input recreated, or that an input has another number of partitions.

The client reads the metadata of topics every five minutes. Until then it would assign no new partition, and wait for
records of a topic that no longer exists; a transaction waits for a deleted topic for as long as its timeout. The client
reads a recreated input on from its last position, if that is long enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError
from shoal.kafka.client import CLIENT_ERRORS
from shoal.kafka.offset_tracker import LogTruncatedError
from shoal.kafka.topic_ids import TopicState, topic_states
from shoal.kafka.topic_pairs import input_name

__all__ = ["watch", "watch_topics"]

WATCH_S = 5.0
"""Time between two requests for the states of the topics (s)."""


async def watch_topics(client: AIOKafkaAdminClient, inputs: Collection[str], counts: Mapping[str, int]) -> None:
    """Do what `watch` does, with requests to the broker for the topics of ``counts``, which include the inputs."""
    await watch(partial(topic_states, client, sorted(counts)), {topic: counts[topic] for topic in inputs}, WATCH_S)


async def watch(
    request: Callable[[], Awaitable[Mapping[str, TopicState]]], input_counts: Mapping[str, int], every_s: float
) -> None:
    """Compare topics with their state at the start at intervals, for as long as they agree.

    A broker that starts may not know all topics yet, so two answers in succession must differ. A request that fails is
    repeated: `retries.BrokerLiveness.check_broker` judges whether the broker is lost.

    Parameters
    ----------
    request : callable
        Returns the states of the topics, without those that the broker cannot tell now.
    input_counts : mapping
        Number of partitions of each input at the start. Its topic id at the start is that of the first answer. For the
        other topics it only matters whether they exist.
    every_s : float
        Time between two requests (s).

    Raises
    ------
    BrokerUnavailableError
        A topic was deleted, or an input has another number of partitions. The next consumer loop checks all topics
        before it reads.
    LogTruncatedError
        An input was recreated with the same number of partitions.
    """
    expected, had_changed = {topic: TopicState(count, b"") for topic, count in input_counts.items()}, False
    while True:
        try:
            states = await asyncio.wait_for(request(), every_s)
        except CLIENT_ERRORS:
            await asyncio.sleep(every_s)
            continue
        for topic, (count, topic_id) in expected.items():
            if topic in states and states[topic].partition_count == count:
                expected[topic] = TopicState(count, topic_id or states[topic].topic_id)
        change = _change_of(states, expected)
        if change is not None and had_changed:
            raise change
        had_changed = change is not None
        await asyncio.sleep(every_s)


def _change_of(
    states: Mapping[str, TopicState], inputs: Mapping[str, TopicState]
) -> BrokerUnavailableError | LogTruncatedError | None:
    """Return the error for a change since the start; None if there is none."""
    for topic, state in sorted(states.items()):
        if not state.partition_count:
            name = input_name(topic, inputs) if topic in inputs else f"topic {topic}"
            return BrokerUnavailableError(f"{name} no longer exists: checking all topics again")
    for topic, expected in inputs.items():
        count = states.get(topic, expected).partition_count
        if count != expected.partition_count:
            counts = f"{count} partitions, {expected.partition_count} at the start"
            return BrokerUnavailableError(f"{input_name(topic, inputs)} has {counts}: checking all topics again")
    for topic, expected in inputs.items():
        if states.get(topic, expected).topic_id not in (b"", expected.topic_id):
            return LogTruncatedError(topic, "the id of the topic has changed")
    return None
