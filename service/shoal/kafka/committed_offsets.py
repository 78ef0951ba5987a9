"""What the group has committed: the offset and metadata of a partition, and what those of the others say about it."""

from __future__ import annotations

import time
from asyncio import sleep

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka.backoff import jittered
from shoal.kafka.cipher import MetadataCipher
from shoal.policy import KafkaSection

__all__ = ["fetch_committed", "fetch_committed_again", "fetch_first_partition_count"]

MAX_REQUESTS = 20
"""After more repeats than this, one answer is accepted, even if it differs from the one before."""
POLL_S = 0.1
COORDINATOR_TIMEOUT_S = 5.0
RECHECK_DELAY_S = 1.0
"""Mean pause (s) before a commit that may be an older one is read again."""


async def fetch_committed(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition: int
) -> OffsetAndMetadata | None:
    """Return the committed offset and metadata of one partition, or None if there is no commit.

    The previous producer was fenced before, so its transaction has ended. A classic group coordinator may still be
    writing the offsets of that transaction. So two answers in succession must agree.

    Raises
    ------
    BrokerUnavailableError
        The coordinator did not answer. That does not mean that there is no commit.
    """
    tp = TopicPartition(settings.input, partition)
    found = (await _agreed_answer(admin, settings, [tp]))[tp]
    return None if found.offset < 0 else found


async def fetch_committed_again(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition: int
) -> OffsetAndMetadata | None:
    """Return and raise as `fetch_committed`, after a pause: under load a coordinator may show a commit late."""
    await sleep(jittered(RECHECK_DELAY_S))
    return await fetch_committed(admin, settings, partition)


async def _agreed_answer(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partitions: list[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offset and metadata of all these partitions, with offset -1 for no commit.

    The request is repeated until two answers in succession agree; after more than 20 repeats one answer is accepted.

    Raises
    ------
    BrokerUnavailableError
        The coordinator had no answer, or none about some of the partitions, for `COORDINATOR_TIMEOUT_S`.
    """
    answer: dict[TopicPartition, OffsetAndMetadata] = {}
    unanswered_since_s: float | None = None
    repeats = 0
    while True:
        asked_s = time.monotonic()
        previous, answer = answer, await _ask_coordinator(admin, settings, partitions)
        missing = [tp for tp in partitions if tp not in answer]
        if not missing:
            if answer == previous or repeats > MAX_REQUESTS:
                return answer
            repeats += 1
            await sleep(0.01)
            continue
        unanswered_since_s = asked_s if unanswered_since_s is None else unanswered_since_s
        if time.monotonic() >= unanswered_since_s + COORDINATOR_TIMEOUT_S:
            raise BrokerUnavailableError(
                f"{settings.input}-{missing[0].partition}: the coordinator of group {settings.group} does not return "
                "the committed offset; trying again"
            )
        await sleep(jittered(POLL_S))


async def _ask_coordinator(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partitions: list[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what the coordinator answers: no partition if it is loading or has moved, or if it has no answer."""
    try:
        return dict(await admin.list_consumer_group_offsets(str(settings.group), partitions=partitions))
    except kafka_errors.KafkaError as error:
        # The first request of a Kafka cluster creates the coordinator's topic. A coordinator may also move or load.
        if not error.retriable:
            raise
        return {}


async def fetch_first_partition_count(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition_count: int, cipher: MetadataCipher
) -> int | None:
    """Return the number of partitions that the input had when the group first started.

    Each commit holds this number. Where they differ, the smallest is the oldest.

    Returns
    -------
    int or None
        0 if the group has commits that do not say it; None if the group has no commit.

    Raises
    ------
    BrokerUnavailableError
        The coordinator did not answer for all partitions. That does not mean that there is no commit.
    """
    topic = str(settings.input)
    offsets = await _agreed_answer(
        admin, settings, [TopicPartition(topic, number) for number in range(partition_count)]
    )
    committed = {tp: found for tp, found in offsets.items() if found.offset >= 0}
    counts = []
    for tp, found in committed.items():
        try:
            commit = cipher.decode(found.metadata or "", topic, tp.partition, found.offset)
        except InputError:
            continue  # the task of that partition refuses it
        if commit.first_partition_count:
            counts.append(commit.first_partition_count)
    return min(counts, default=0) if committed else None
