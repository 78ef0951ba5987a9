"""A cluster of three brokers, each of which may be killed and started again; a partition on one of them alone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError
from support.kafka_broker import admin, create_topic, load_local, wait_until
from support.running import SIDE, Stage

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators in Kafka's protocol."""
NODES = (1, 2, 3)


@dataclass
class Cluster:
    """Three brokers, each of which is a controller; topics have three replicas, of which two must be in sync."""

    home: Path
    bootstrap: str

    def folder(self, node: int) -> Path:
        return self.home / f"broker-{node}"

    def is_gone(self, node: int) -> bool:
        return load_local().running(self.folder(node)) is None

    def send(self, node: int, number: signal.Signals) -> None:
        broker = load_local().running(self.folder(node))
        if broker is not None:
            os.kill(broker.pid, number)

    async def end(self, node: int, number: signal.Signals = signal.SIGKILL) -> None:
        """End a broker with this signal, and wait until it has ended."""
        self.send(node, number)
        await wait_until(lambda: self.is_gone(node), 60, f"the end of broker {node}")

    async def start(self, node: int, *settings: str, version: str | None = None) -> None:
        """Start a broker again with its data, and wait until it answers."""
        broker = load_local().again(self.folder(node), settings, version)
        await wait_until(lambda: load_local().answers(broker.bootstrap), 120, f"broker {node}")

    def said(self, node: int) -> str:
        return (self.folder(node) / "broker.log").read_text(errors="replace")

    async def topic_partitions(self, topic: str) -> dict[int, dict[str, Any]]:
        """Leader, replicas and in-sync replicas of each partition, as one of the brokers knows them."""

        async def described() -> dict[int, dict[str, Any]]:
            with contextlib.suppress(KafkaError):
                async with admin(self.bootstrap) as client:
                    (found,) = await client.describe_topics([topic])
                    return {one["partition"]: one for one in found["partitions"]}
            return {}

        return await wait_until(described, 60, f"a description of {topic}")

    async def leader(self, topic: str, partition: int = 0) -> int:
        return int((await self.topic_partitions(topic))[partition]["leader"])

    async def leads(self, node: int, topic: str) -> bool:
        return node in {int(one["leader"]) for one in (await self.topic_partitions(topic)).values()}

    async def coordinator(self, kind: int, name: str) -> int:
        """Id of the broker that leads the partition of a group's offsets or of a transactional id."""

        async def found() -> int:
            with contextlib.suppress(KafkaError):
                async with admin(self.bootstrap) as client:
                    return int(await client.find_coordinator(name, kind))
            return 0

        return await wait_until(found, 60, f"the coordinator of {name}")

    async def until_in_sync(self, *topics: str) -> None:
        """Wait until all replicas of these topics are in sync."""

        async def are_in_sync() -> bool:
            found = [one for topic in topics for one in (await self.topic_partitions(topic)).values()]
            return all(len(one["isr"]) == len(one["replicas"]) for one in found)

        await wait_until(are_in_sync, 120, "replicas in sync")


@contextlib.contextmanager
def cluster(
    home: Path,
    settings: Sequence[str] = (),
    change: Callable[[Sequence[Path]], None] | None = None,
    version: str = "",
) -> Iterator[Cluster]:
    """Start three brokers with their data in a folder, and stop them at the end, also if some are paused."""
    local = load_local()
    brokers = local.cluster(home, len(NODES), settings=settings, change=change, version=version)
    one = Cluster(home, ",".join(broker.bootstrap for broker in brokers))
    try:
        yield one
    finally:
        local.down(home)


@contextlib.contextmanager
def dropping_address(port: int = 0) -> Iterator[tuple[str, int]]:
    """Return an address that drops packets: a listening socket whose queue is full."""
    with socket.socket() as listening, socket.socket() as one, socket.socket() as two:
        listening.bind(("127.0.0.2", port))
        listening.listen(0)
        for client in (one, two):
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield listening.getsockname()


# ---------------------------------------------------------------- a partition on one broker

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
