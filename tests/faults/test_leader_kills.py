"""A broker of three is killed while it leads a partition that a worker writes to: no record twice, none lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.cluster import cluster
from support.faulty_workers import Deployment
from support.repeated_kills import check

pytestmark = pytest.mark.usefixtures("kernels")

WAVE = 1500


async def test_a_worker_continues_when_the_leader_of_its_output_is_killed(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        deployment = await Deployment.create(brokers.bootstrap, tmp_path, partitions=1)
        worker = deployment.worker("w")
        with worker.running():
            await deployment.put(WAVE, 1)
            await deployment.wait_for(WAVE // 2)
            leader = await brokers.leader(deployment.topics["output"])
            feeding = asyncio.create_task(deployment.put(WAVE, 1))
            await brokers.end(leader)
            await feeding
            assert await brokers.leader(deployment.topics["output"]) != leader
            await deployment.wait_for(2 * WAVE - 200)
        await deployment.settled([worker])
        found = await check(deployment)
        assert found.released > 0.9 * found.records
