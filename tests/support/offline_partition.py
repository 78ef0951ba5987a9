"""An input with a partition whose only broker can be ended: nothing else that a worker needs is on it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aiokafka.admin import NewTopic
from support.cluster import GROUP, NODES, TRANSACTION, Cluster
from support.kafka_broker import admin, create_topic, wait_until
from support.running import SIDE, Stage

PATIENCE_S = 6.0
CANARY = "canary-of-a-person"
NOT_OPENED = "partitions not opened; the others go on"


async def put(stage: Stage, partition: int = 0) -> list[tuple[int, int]]:
    """Append 30 records of persons whose names must not be seen anywhere."""
    return await stage.send([stage.record(who=f"{CANARY}-{stage.serial}") for _ in range(30)], partition)


async def canaries(stage: Stage, lines: Sequence[object]) -> int:
    """Return how often a name is in the log or in a topic that Shoal writes."""
    written = [message for name in SIDE for message in await stage.read(name)]
    return repr([written, *lines]).count(CANARY)


async def spared(brokers: Cluster, named: Callable[[], tuple[str, Iterable[str]]]) -> int:
    """Name group and transactions until a broker coordinates none of them, and return this broker."""

    async def found() -> set[int]:
        group, transactions = named()
        coordinators = {await brokers.coordinator(GROUP, group)}
        coordinators |= {await brokers.coordinator(TRANSACTION, name) for name in transactions}
        return set(NODES) - coordinators

    return (await wait_until(found, 60, "a name of the group")).pop()


async def create_input(brokers: Cluster, topic: str, leaders: Sequence[int]) -> None:
    """Create a topic, each partition of which is on one broker alone."""
    placed = {number: [leader] for number, leader in enumerate(leaders)}
    settings = {"min.insync.replicas": "1"}
    new = NewTopic(topic, -1, -1, replica_assignments=placed, topic_configs=settings)
    async with admin(brokers.bootstrap) as client:
        await client.create_topics([new])


async def stage_of(brokers: Cluster, folder: Path) -> tuple[Stage, int]:
    """Return a stage and the broker that has partition 1 of its input, and nothing else that the stage needs."""
    stage = await Stage.create(brokers.bootstrap, folder, kafka={"patience_s": PATIENCE_S})
    topic = stage.topics["input"] = stage.document["kafka"]["input"] = f"in-{uuid.uuid4().hex[:12]}"

    def named() -> tuple[str, list[str]]:
        group = stage.document["kafka"]["group"] = f"group-{uuid.uuid4().hex[:12]}"
        return group, [f"{group}-{topic}-{number}" for number in range(2)]

    victim = await spared(brokers, named)
    first, second = set(NODES) - {victim}
    for name in SIDE:
        topic_of_side = await create_topic(brokers.bootstrap, 2, replicas=(first, second))
        stage.topics[name] = stage.document["kafka"][name] = topic_of_side
    await create_input(brokers, topic, [first, victim])
    return stage, victim
