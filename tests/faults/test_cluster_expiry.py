"""What brokers forget: the offsets of a group without members, and transactional ids that are not used."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from shoal.kafka import export_progress, import_progress
from shoal.policy import Policy
from shoal.settings import kafka_settings
from support.kafka_broker import admin, read_all, wait_until
from support.repeated_kills import PARTITIONS
from support.storms import PATIENCE_S, WAVE, Storm, feed, storm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("kernels")]

OFFSETS_EXPIRE = ("offsets.retention.minutes=1", "offsets.retention.check.interval.ms=1000")
IDS_EXPIRE = (
    "transactional.id.expiration.ms=4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms=1000",
    "producer.id.expiration.ms=4000",
    "producer.id.expiration.check.interval.ms=1000",
)


async def test_offsets_of_the_group_expire(tmp_path: Path) -> None:
    async with storm("offsets-expired", tmp_path, settings=OFFSETS_EXPIRE) as one:
        deployment, first = one.deployment, one.workers[0]
        await feed(one.producer, deployment)
        await one.until_progress(WAVE // 2)
        assert [worker.terminate() for worker in one.workers] == [0, 0]
        policy = Policy.load(deployment.policy)
        settings = kafka_settings(policy, {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": deployment.bootstrap})
        saved = await export_progress(settings)
        await wait_until(lambda: have_expired(one), PATIENCE_S, "the expiry of the offsets")
        before = await deployment.read(deployment.topics["output"])
        first.start()
        await wait_until(lambda: first.is_dead, 60, "the refusal")
        assert first.process is not None
        assert first.process.poll() == 2
        assert "has no committed offset, but" in first.log.read_text()
        assert await read_all(deployment.bootstrap, deployment.topics["output"]) == before
        assert await import_progress(saved, policy, settings) == {deployment.topics["input"]: list(range(PARTITIONS))}
        first.process = None  # its end was expected
        for worker in one.workers:
            worker.start()
        await feed(one.producer, deployment)
        await one.until_progress(WAVE + WAVE // 2)
        happened = "the start was refused with exit code 2; after the import the workers continued"
        await one.settled(happened, refusals=1)


async def have_expired(one: Storm) -> bool:
    """Whether the group has no committed offset of the input."""
    with contextlib.suppress(KafkaError):
        async with admin(one.brokers.bootstrap) as client:
            topic = one.deployment.topics["input"]
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            found = await client.list_consumer_group_offsets(f"group-{topic}", partitions=partitions)
            # An answer that is an error as a whole has no partitions.
            return len(found) == PARTITIONS and all(offset.offset < 0 for offset in found.values())
    return False


async def test_transactional_ids_expire_while_nothing_is_published(tmp_path: Path) -> None:
    async with storm("transactional-ids-expired", tmp_path, settings=IDS_EXPIRE) as one:
        for _ in range(3):
            before = await one.deployment.resolved()
            await feed(one.producer, one.deployment)
            await one.until_progress(before + WAVE // 2)
            await wait_until(lambda: have_ids_expired(one), PATIENCE_S, "expired ids")
        await one.settled("the ids expired three times; the workers continued each time")


async def have_ids_expired(one: Storm) -> bool:
    """Whether the log of the transactional ids ends with the removal of each id of the group."""
    latest: dict[bytes, bool] = {}
    for message in await read_all(one.brokers.bootstrap, "__transaction_state", "read_uncommitted"):
        if message.key is not None and one.deployment.topics["input"].encode() in message.key:
            latest[message.key] = message.value is None
    return len(latest) == PARTITIONS and all(latest.values())
