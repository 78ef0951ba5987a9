"""kill -9 while the progress is copied, and the loss of the group between the kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faulty_workers import Deployment
from support.kafka_broker import wait_until
from support.raw_log import delete_group
from support.repeated_kills import PARTITIONS, check, kill_repeatedly
from support.stages import AppDeployment

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

TAKEN = "continuing from the copy"


def said(folder: Path) -> str:
    """What all workers have logged."""
    return "".join(path.read_text() for path in folder.glob("*.log"))


@pytest.mark.parametrize("release", ["cluster", "ordered"])
async def test_kills_while_the_progress_is_copied(release: str, bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS, has_copy=True, release=release)
    by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    found = await check(deployment)
    assert by_itself >= 3
    assert by_signal >= 2
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test tests nothing"


async def test_kills_of_apps_while_the_progress_is_copied(bootstrap: str, tmp_path: Path) -> None:
    deployment = await AppDeployment.create(bootstrap, tmp_path, partitions=PARTITIONS, has_copy=True)
    by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    found = await check(deployment)
    assert by_itself >= 3
    assert by_signal >= 2
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test tests nothing"


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
    assert said(tmp_path).count(TAKEN) >= 6 * PARTITIONS
    await check(deployment)
