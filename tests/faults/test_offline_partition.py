"""A partition of the input whose only broker is away: the others go on, and the log names it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka.admin import NewTopic
from shoal.errors import BrokerError
from structlog.testing import capture_logs
from support.cluster import GROUP, NODES, TRANSACTION, Cluster, cluster
from support.kafka_broker import admin, create_topic, wait_until
from support.reliability import record
from support.running import SIDE, Stage

pytestmark = [
    pytest.mark.faults,
    pytest.mark.nightly,
    pytest.mark.usefixtures("kernels"),
]

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


async def drain_that_gives_up(stage: Stage) -> None:
    """Drain while a leader is away."""
    with capture_logs() as lines, pytest.raises(BrokerError) as caught:
        await stage.drained()
    assert str(caught.value).startswith(f"--drain: {stage.topics['input']}-1: no leader answers; ")
    assert "(kafka.patience_s)" in str(caught.value)
    assert (caught.value.exit_code, [one for one in lines if one["event"] == "consumer loop ended"]) == (3, [])


async def test_the_other_partitions_of_a_worker_go_on(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        stage, victim = await stage_of(brokers, tmp_path, 2)
        count = len(await put(stage)) + len(await put(stage, 1))
        with capture_logs() as lines:
            async with stage.run() as run:
                await run.until_read(count)
                await brokers.end(victim)
                began_s = time.monotonic()
                words = "no leader of these partitions answers; the others go on"
                await run.until(lambda: any(line["event"] == words for line in lines), "the warning", 60)
                while time.monotonic() < began_s + 3 * PATIENCE_S:
                    count += len(await put(stage))
                    await run.until_read(count)
                assert run.service.health.ready
                assert run.total("shoal_partitions_unreachable") == 1
        assert [line["partitions"] for line in lines if line["event"] == words] == [[f"{stage.topics['input']}-1"]]
        assert [line for line in lines if line["event"] in {"consumer loop ended", "giving up"}] == []
        await drain_that_gives_up(stage)
        # A start opens what it can, and the rest when the broker is back.
        with capture_logs() as later:
            async with stage.run() as run:
                await run.until(lambda: run.total("shoal_partitions_opening") == 1, "one partition that is open", 60)
                await run.until(lambda: any(line["event"] == NOT_OPENED for line in later), "the warning", 90)
                first_count = len(await put(stage))
                await run.until_read(first_count)
                assert not run.service.health.ready
                await brokers.start(victim)
                await run.until_ready(120)
                assert run.total("shoal_partitions_opening") == run.total("shoal_partitions_unreachable") == 0
                await run.until_read(first_count + len(await put(stage, 1)))
        assert [line for line in later if line["event"] in {"consumer loop ended", "giving up"}] == []
        await stage.drained()
        outcomes = await stage.outcomes()
        twice, lost = sum(outcomes.values()) - len(outcomes), len(stage.record_id_of) - len(outcomes)
        assert (twice, lost) == (0, 0)
        happened = "the other partition went on, also after a start; then all went on"
        counts = {"under_k": -1, "canaries": await canaries(stage, [*lines, *later]), "accusations": 0, "gone": 0}
        assert counts["canaries"] == 0
        record("offline-partition", happened, records=len(stage.record_id_of), twice=twice, lost=lost, **counts)


async def test_a_worker_without_any_other_partition_waits_for_its_leader(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        stage, victim = await stage_of(brokers, tmp_path, 1)
        count = len(await put(stage))
        with capture_logs() as lines:
            async with stage.run() as run:
                health = run.service.health
                await run.until_read(count)
                await brokers.end(victim)
                await run.until(lambda: health.leaders_away, "the truth about the leader", 60)
                began_s = time.monotonic()
                await run.until(lambda: time.monotonic() > began_s + 3 * PATIENCE_S, "more than its patience")
                assert health.reasons() == ["no leader of its partitions answers"]
            async with stage.run() as run:
                health = run.service.health
                await run.until(lambda: any(line["event"] == NOT_OPENED for line in lines), "the warning", 60)
                began_s = time.monotonic()
                await run.until(lambda: time.monotonic() > began_s + 3 * PATIENCE_S, "more than its patience")
                assert health.reasons() == ["partitions are being restored"]
                await brokers.start(victim)
                await run.until_ready(120)
                count = len(await put(stage))
                await run.until_read(count)
        assert [line for line in lines if line["event"] in {"consumer loop ended", "giving up"}] == []
        await stage.drained()
        outcomes = await stage.outcomes()
        assert (sum(outcomes.values()), len(outcomes)) == (60, 60)
