"""The kill test of the service with Faust workers: clusters published by the stage, and handed over to the app."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repeated_kills import PARTITIONS, check, kill_repeatedly, zombie
from support.stages import AppDeployment, HandedDeployment, check_handed

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


async def test_after_kills_of_apps_that_publish_each_record_has_one_outcome(bootstrap: str, tmp_path: Path) -> None:
    deployment = await AppDeployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    found = await check(deployment)
    assert by_itself >= 3
    assert by_signal >= 2
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test tests nothing"


async def test_a_zombie_app_is_fenced(bootstrap: str, tmp_path: Path) -> None:
    deployment = await AppDeployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    await zombie(deployment, wave=1500)
    await check(deployment)


async def test_kills_of_apps_that_iterate_repeat_the_same_clusters(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=PARTITIONS, max_delay_s=DELAY_S)
    by_itself, by_signal = await kill_repeatedly(deployment, kills=6, wave=1000)
    await check_repeats(deployment, by_itself + by_signal)


async def test_a_zombie_app_hands_over_the_same_clusters(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=PARTITIONS, max_delay_s=DELAY_S)
    await zombie(deployment, wave=1500)
    clusters, repeats = await check_handed(deployment)
    print(f"{clusters} clusters, {repeats} repeats")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_twenty_kills_of_apps_that_publish(bootstrap: str, tmp_path: Path) -> None:
    deployment = await AppDeployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    deployment.is_fresh = True
    by_itself, by_signal = await kill_repeatedly(deployment, kills=20, wave=1500)
    await check(deployment)
    assert by_itself + by_signal == 20


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_twenty_kills_of_apps_that_iterate(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=PARTITIONS, max_delay_s=DELAY_S)
    deployment.is_fresh = True
    by_itself, by_signal = await kill_repeatedly(deployment, kills=20, wave=1500)
    await check_repeats(deployment, by_itself + by_signal)
    assert by_itself + by_signal == 20
