"""Partitions of a stage's input whose only broker is away: the other one goes on, and the log names them."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest
from support.cluster import NODES, NOT_OPENED, Cluster, cluster, create_input, spared
from support.kafka_broker import read_all, wait_for
from support.reliability import record
from support.repeated_kills import check
from support.running import SIDE, sample
from support.stages import AppDeployment, AppWorker
from support.storms import ACCUSATION

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("kernels")]

AWAY_S = 45.0
"""Longer than the time limit of a request of the client (40 s)."""
PATIENCE_S = "15"
PARTITIONS = 3
SILENT = "no leader of these partitions answers; the others go on"
NEVER = ("the broker does not answer", "consumer loop ended", "giving up", "did not finish its clusters in time")


async def deployed(brokers: Cluster, folder: Path) -> tuple[AppDeployment, int]:
    """Return a stage with an input whose partitions 1 and 2 are on one broker alone, and this broker."""
    topic = ""

    def named() -> tuple[str, list[str]]:
        nonlocal topic
        topic = f"in-{uuid.uuid4().hex[:12]}"
        return f"group-{topic}", [f"group-{topic}-{topic}-{number}" for number in range(PARTITIONS)]

    victim = await spared(brokers, named)
    first, second = set(NODES) - {victim}
    replicas = dict.fromkeys(SIDE, (first, second))
    deployment = await AppDeployment.create(
        brokers.bootstrap, folder, partitions=PARTITIONS, replicas=replicas, max_delay_s=1.0
    )
    await create_input(brokers, topic, [first, victim, victim])
    document = json.loads(deployment.policy.read_text())
    document["kafka"] |= {"input": topic, "group": f"group-{topic}"}
    deployment.topics["input"] = topic
    deployment.policy.write_text(json.dumps(document))
    deployment.variables += (("STAGE_HTTP", "127.0.0.1:0"),)
    return deployment, victim


async def released(deployment: AppDeployment, partition: int) -> int:
    output = await read_all(deployment.bootstrap, deployment.topics["output"])
    return sum(one.partition == partition for one in output)


async def until_released(deployment: AppDeployment, partition: int, count: int) -> None:
    what = f"{count} released records of partition {partition}"
    await wait_for(lambda: released(deployment, partition), lambda found: found >= count, 60, what)


async def partitions_in(worker: AppWorker, state: str) -> float:
    return sample(await worker.metrics(), f"shoal_partitions_{state}")


async def flushed(deployment: AppDeployment) -> float:
    """Put fewer than delta records into partition 0; return after which time max_delay_s has released them (s)."""
    count, began_s = await released(deployment, 0), time.monotonic()
    await deployment.put(20, 1)
    await until_released(deployment, 0, count + 19)
    return time.monotonic() - began_s


async def goes_on(deployment: AppDeployment, worker: AppWorker, victim: int, brokers: Cluster) -> str:
    """End the only broker of partitions 1 and 2, see that partition 0 goes on, and return what happened."""
    await deployment.put(900, PARTITIONS)
    for partition in range(PARTITIONS):
        await until_released(deployment, partition, 270)
    await brokers.end(victim)
    began_s = time.monotonic()
    await worker.until_said(SILENT, timeout_s=60)
    named_s, waits_s = time.monotonic() - began_s, list[float]()
    assert str([f"{deployment.topics['input']}-{number}" for number in (1, 2)]) in worker.said
    while time.monotonic() < began_s + AWAY_S:
        waits_s.append(await flushed(deployment))
        assert (await worker.get("/readyz"))[0] == 200
        assert await partitions_in(worker, "unreachable") == 2
    assert named_s < 10
    return (
        f"the partitions were named after {named_s:.1f} s; the other one went on ({len(waits_s)} flushes, each within "
        f"{max(waits_s):.1f} s), also after a start; then all went on"
    )


async def starts_without(deployment: AppDeployment, worker: AppWorker, victim: int, brokers: Cluster) -> None:
    """Start the worker without that broker, and see that it opens partitions 1 and 2 when the broker is back."""
    worker.start(patience_s=PATIENCE_S)
    await flushed(deployment)
    assert (await worker.get("/readyz"))[0] == 503
    await worker.until_said(NOT_OPENED)
    assert await partitions_in(worker, "opening") == 2
    await flushed(deployment)
    await brokers.start(victim)
    await wait_for(lambda: worker.get("/readyz"), lambda found: found[0] == 200, 120, "readiness")
    assert await partitions_in(worker, "opening") == await partitions_in(worker, "unreachable") == 0
    counts = [await released(deployment, partition) for partition in range(PARTITIONS)]
    await deployment.put(60, PARTITIONS)
    for partition, count in enumerate(counts):
        await until_released(deployment, partition, count + 19)


async def test_the_other_partitions_of_a_stage_go_on(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        deployment, victim = await deployed(brokers, tmp_path)
        worker = deployment.worker("one")
        try:
            worker.start(patience_s=PATIENCE_S)
            happened = await goes_on(deployment, worker, victim, brokers)
            assert worker.terminate() == 0
            await starts_without(deployment, worker, victim, brokers)
            assert [words for words in NEVER if words in worker.said] == []
            await deployment.settled([worker])
        finally:
            worker.kill()
        found = await check(deployment)
        accusations = worker.said.count(ACCUSATION)
        assert accusations == 0
        counts = {"twice": 0, "lost": 0, "under_k": 0, "canaries": 0, "accusations": accusations, "gone": 0}
        record("stage-offline-partition", happened, records=found.records, **counts)
