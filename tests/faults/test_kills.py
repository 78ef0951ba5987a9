"""kill -9 under load, inside and outside of transactions, and a zombie: no record twice or lost, no cluster below k."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.by_night import at_night
from support.faulty_workers import Deployment, Worker
from support.repeated_kills import PARTITIONS, check, kill_repeatedly, zombie


@pytest.mark.parametrize("is_fresh", [False, *at_night(True)])
async def test_a_few_kills_inside_and_outside_of_transactions(
    bootstrap: str,
    tmp_path: Path,
    is_fresh: bool,  # noqa: FBT001
) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    deployment.is_fresh = is_fresh
    by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    found = await check(deployment)
    assert by_itself >= 3
    assert by_signal >= 2
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test tests nothing"


async def test_unfinished_clusters_are_completed_after_kills(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS, release="ordered")
    by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    found = await check(deployment)
    assert by_itself >= 3
    assert by_signal >= 2
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test tests nothing"


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", ["cluster", "ordered"])
async def test_clusters_keep_l_and_t_through_kills(release: str, bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS, has_wards=True, release=release)
    by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    found = await check(deployment)
    assert by_itself >= 3
    assert by_signal >= 2
    assert found.released > 0.9 * found.records
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test tests nothing"


async def test_a_zombie_is_fenced(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    await zombie(deployment, wave=1500)
    await check(deployment)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_sixty_thousand_records_and_twenty_kills(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    deployment.is_fresh = True
    by_itself, by_signal = await kill_repeatedly(deployment, kills=20, wave=2700)
    await deployment.put(max(0, 60_000 - deployment.serial), PARTITIONS)
    last: list[Worker] = []
    await deployment.settled(last)
    found = await check(deployment)
    print(f"killed {by_itself} times inside and {by_signal} times outside of transactions")
    assert by_itself + by_signal == 20
    assert found.records >= 60_000
