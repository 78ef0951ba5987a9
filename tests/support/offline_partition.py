"""An input with a partition whose only broker can be ended: nothing else that a worker needs is on it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
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


async def spared(brokers: Cluster, stage: Stage) -> int:
    """Name the group so that a broker coordinates neither it nor its transactions, and return this broker."""
    topic = stage.topics["input"]

    async def found() -> set[int]:
        group = stage.document["kafka"]["group"] = f"group-{uuid.uuid4().hex[:12]}"
        coordinators = {await brokers.coordinator(GROUP, group)}
        coordinators |= {await brokers.coordinator(TRANSACTION, f"{group}-{topic}-{number}") for number in range(2)}
        return set(NODES) - coordinators

    return (await wait_until(found, 60, "a name of the group")).pop()


async def stage_of(brokers: Cluster, folder: Path, partition_count: int) -> tuple[Stage, int]:
    """Return a stage and the broker that has the last partition of its input, and nothing else that the stage needs."""
    stage = await Stage.create(brokers.bootstrap, folder, kafka={"patience_s": PATIENCE_S})
    stage.topics["input"] = stage.document["kafka"]["input"] = f"in-{uuid.uuid4().hex[:12]}"
    victim = await spared(brokers, stage)
    first, second = set(NODES) - {victim}
    for name in SIDE:
        topic = await create_topic(brokers.bootstrap, partition_count, replicas=(first, second))
        stage.topics[name] = stage.document["kafka"][name] = topic
    last = partition_count - 1
    assignments = {number: [victim if number == last else first] for number in range(partition_count)}
    settings = {"min.insync.replicas": "1"}
    new = NewTopic(stage.topics["input"], -1, -1, replica_assignments=assignments, topic_configs=settings)
    async with admin(brokers.bootstrap) as client:
        await client.create_topics([new])
    return stage, victim
