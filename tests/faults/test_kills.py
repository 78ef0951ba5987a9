"""kill -9 of workers, of apps and of a broker under load, and zombies: no record twice or lost, no cluster below k."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.by_night import at_night
from support.cluster import cluster
from support.faulty_workers import Deployment
from support.kafka_broker import wait_until
from support.raw_log import delete_group
from support.repeated_kills import PARTITIONS, check, kill_repeatedly, silent_addresses, zombie
from support.stages import AppDeployment, HandedDeployment, check_handed

pytestmark = pytest.mark.timeout(1800)

DELAY_S = 2.0
REPEATS, REACH_S = 100, 1.0
"""After one kill: many are handed over in a commit interval (0.2 s) where nothing else runs, few in a long time where
much does. Many in a long time would not have been committed."""


async def check_repeats(deployment: HandedDeployment, kills: int) -> None:
    """See that each kill repeats what waited for its commit, and the same; say how much that was."""
    clusters, repeats = await check_handed(deployment)
    found = await deployment.repeats()
    print(f"{clusters} clusters, {repeats} repeats in {kills} kills: {found.counts}, {found.reach_s:.2f} s at most")
    assert sum(found.counts) == repeats
    assert 0 < len(found.counts) <= len(deployment.starts)
    is_long = found.reach_s >= REACH_S
    assert max(found.counts) < REPEATS or not is_long, "what was dealt with had not been committed for long"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Deployment, {}),
        (Deployment, {"release": "ordered"}),
        (AppDeployment, {}),
        *at_night(
            (AppDeployment, {"has_copy": True}),
        ),
    ],
)
async def test_after_kills_inside_and_outside_of_transactions_each_record_has_one_outcome(
    kind: type[Deployment], options: dict[str, Any], bootstrap: str, tmp_path: Path
) -> None:
    deployment = await kind.create(bootstrap, tmp_path, partitions=PARTITIONS, **options)
    # The client of Faust itself waits long for a silent address.
    with silent_addresses(deployment) if kind is Deployment else nullcontext():
        by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    found = await check(deployment)
    assert by_itself >= 3
    assert by_signal >= 2
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test tests nothing"
    assert found.released > 0.9 * found.records


@pytest.mark.parametrize("kills", [6, *at_night(20)])
async def test_kills_of_apps_that_iterate_repeat_the_same_clusters(kills: int, bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=PARTITIONS, max_delay_s=DELAY_S)
    deployment.is_fresh = kills == 20
    by_itself, by_signal = await kill_repeatedly(deployment, kills, wave=1000)
    await check_repeats(deployment, by_itself + by_signal)
    assert by_itself + by_signal == kills


@pytest.mark.parametrize("kind", [Deployment, AppDeployment])
async def test_a_zombie_is_fenced(kind: type[Deployment], bootstrap: str, tmp_path: Path) -> None:
    deployment = await kind.create(bootstrap, tmp_path, partitions=PARTITIONS)
    await zombie(deployment, wave=1500)
    await check(deployment)


async def test_a_zombie_app_hands_over_the_same_clusters(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=PARTITIONS, max_delay_s=DELAY_S)
    await zombie(deployment, wave=1500)
    await check_handed(deployment)


@pytest.mark.nightly
@pytest.mark.parametrize("release", ["cluster", "ordered"])
async def test_kills_and_the_loss_of_the_group_after_each(release: str, bootstrap: str, tmp_path: Path) -> None:
    """Only the copy is left after each kill, and no worker has an option that would let it begin anew."""
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS, has_copy=True, release=release)
    workers = [deployment.worker(f"w{number}") for number in range(2)]
    group = f"group-{deployment.topics['input']}"
    try:
        for turn, plan in enumerate(["", "sent:3", "", "offsets:3", "committed:3", ""]):
            for worker in workers:
                worker.start(origin=turn == 0)
            before = await deployment.resolved()
            await deployment.put(1000, PARTITIONS)
            await deployment.wait_for(before + 500)
            workers[1].kill()
            workers[0].kill()
            if plan:
                workers[0].start(die_at=plan, origin=False)
                await deployment.put(1000, PARTITIONS)
                await wait_until(lambda: workers[0].is_dead, 90, f"death at {plan}")
            await delete_group(bootstrap, group)
        await deployment.settled(workers)
    finally:
        for worker in workers:
            worker.kill()
    said = "".join([worker.said for worker in (*workers, deployment.worker("last"))])
    assert said.count("continuing from the copy") >= 6 * PARTITIONS
    await check(deployment)


@pytest.mark.usefixtures("kernels")
async def test_a_worker_continues_when_the_leader_of_its_output_is_killed(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        deployment = await Deployment.create(brokers.bootstrap, tmp_path, partitions=1)
        worker = deployment.worker("w")
        with worker.running():
            await deployment.put(1500, 1)
            await deployment.wait_for(750)
            leader = await brokers.leader(deployment.topics["output"])
            feeding = asyncio.create_task(deployment.put(1500, 1))
            await brokers.end(leader)
            await feeding
            assert await brokers.leader(deployment.topics["output"]) != leader
            await deployment.wait_for(2800)
        await deployment.settled([worker])
        found = await check(deployment)
        assert found.released > 0.9 * found.records
