"""kill -9 of workers over a cluster whose brokers are restarted meanwhile: no record twice or lost, for each option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cluster import cluster
from support.faulty_workers import Deployment
from support.reliability import record
from support.repeated_kills import PARTITIONS, kill_repeatedly, silent_addresses
from support.stages import HandedDeployment, check_handed
from support.storms import ACCUSATION, Restarts, logs, recorded_check

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("kernels")]

KILLS, WAVE = 8, 1000
OLD, NEW = bytes(range(32)).hex(), bytes(range(60, 92)).hex()

OPTIONS: dict[str, dict[str, Any]] = {
    "kills-ordered": {"release": "ordered"},
    "kills-per-subject": {"privacy": {"per_subject": {"max": 1, "window": 1000}}},
    "kills-copy": {"has_copy": True},
}


@pytest.mark.parametrize("fault", OPTIONS)
async def test_workers_are_killed_and_a_broker_restarts(fault: str, tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        deployment = await Deployment.create(brokers.bootstrap, tmp_path, partitions=PARTITIONS, **OPTIONS[fault])
        restarts = Restarts(brokers, tuple(deployment.topics.values()), every=KILLS - 2)
        killed = await kill_repeatedly(deployment, KILLS, WAVE, restarts.before_kill)
        await restarts.ended()
        happened = "{} kills inside and {} outside of transactions, {} restart of a broker"
        result = await recorded_check(fault, deployment, (), happened.format(*killed, restarts.count))
        assert (sum(killed), restarts.count) == (KILLS, 1)
        assert result.records > 5 * WAVE


async def test_the_key_of_the_progress_is_replaced_between_kills(tmp_path: Path) -> None:
    key_file = tmp_path / "metadata.key"
    lists = ([OLD, NEW], [OLD, NEW], [NEW, OLD], [NEW, OLD], [NEW], [NEW])

    def give(ways: list[str]) -> None:
        key_file.write_text("\n".join(ways))
        key_file.chmod(0o600)

    give([OLD])
    with cluster(tmp_path / "kafka") as brokers:
        deployment = await Deployment.create(
            brokers.bootstrap, tmp_path, partitions=PARTITIONS, kafka={"metadata_key_file": str(key_file)}
        )
        restarts = Restarts(brokers, tuple(deployment.topics.values()), every=KILLS - 2)

        async def before_kill(number: int) -> None:
            give(lists[number])
            await restarts.before_kill(number)

        killed = await kill_repeatedly(deployment, KILLS, WAVE, before_kill)
        await restarts.ended()
        assert OLD not in logs(tmp_path)
        assert NEW not in logs(tmp_path)
        happened = f"{sum(killed)} kills, {restarts.count} restart of a broker, the key replaced without a stop"
        await recorded_check("kills-sealed", deployment, (), happened)


async def test_an_iterator_over_clusters_repeats_the_same_ones(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        deployment = await HandedDeployment.with_notes(
            brokers.bootstrap, tmp_path, partitions=PARTITIONS, max_delay_s=2.0
        )
        restarts = Restarts(brokers, tuple(deployment.topics.values()), every=KILLS - 2)
        killed = await kill_repeatedly(deployment, KILLS, WAVE, restarts.before_kill)
        await restarts.ended()
        clusters, repeats = await check_handed(deployment)
        assert logs(tmp_path).count(ACCUSATION) == 0
        happened = f"{sum(killed)} kills, {restarts.count} restart of a broker, {clusters} clusters, {repeats} repeats"
        counts = dict.fromkeys(("twice", "lost", "under_k", "canaries", "accusations", "gone"), 0)
        record("kills-iterator", happened, records=deployment.serial, **counts)


@pytest.mark.timeout(2400)
async def test_a_hundred_kills_of_workers_and_ten_restarts_of_brokers(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        deployment = await Deployment.create(brokers.bootstrap, tmp_path, partitions=PARTITIONS)
        restarts = Restarts(brokers, tuple(deployment.topics.values()), every=9)
        with silent_addresses(deployment):
            killed = await kill_repeatedly(deployment, 100, 400, restarts.before_kill, step=200)
        await restarts.ended()
        happened = "{} kills inside and {} outside of transactions, {} restarts of brokers"
        await recorded_check("hundred-kills", deployment, (), happened.format(*killed, restarts.count))
        assert sum(killed) == 100
        assert restarts.count == 11
