"""The clock of a worker jumps hours ahead or back, and is right again: it recovers, no record twice, none lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.faketime import ClockWorker, SetClock
from support.faulty_workers import Deployment, Worker
from support.kafka_broker import wait_until
from support.repeated_kills import PARTITIONS, check

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

HOURS_S = 7200
WAVE = 800


async def worker_with_clock(bootstrap: str, folder: Path) -> tuple[Deployment, ClockWorker, SetClock]:
    deployment = await Deployment.create(bootstrap, folder, partitions=PARTITIONS)
    plain, clock = deployment.worker("clock"), SetClock(folder / "clock.txt")
    clock.set_ahead(0)
    return deployment, ClockWorker(plain.name, plain.policy, bootstrap, plain.log, is_fresh=True, clock=clock), clock


async def until_progress(deployment: Deployment, worker: Worker) -> None:
    """Append records until some are resolved, while the worker runs."""
    before = await deployment.resolved()
    await deployment.put(WAVE, PARTITIONS)
    await deployment.wait_for(before + WAVE // 4)
    assert not worker.is_dead


@asynccontextmanager
async def settling(deployment: Deployment, worker: ClockWorker) -> AsyncIterator[None]:
    """Context at whose end the worker is stopped, and all records are released or suppressed."""
    try:
        yield
        assert worker.terminate() == 0
        await deployment.settled([worker])
    finally:
        worker.kill()


async def ended(worker: ClockWorker) -> int | None:
    await wait_until(lambda: worker.is_dead, 60, "the end of the worker")
    return worker.code


@pytest.mark.parametrize("ahead_s", [HOURS_S, 1500])
async def test_a_clock_that_was_ahead_while_the_worker_ran(ahead_s: int, bootstrap: str, tmp_path: Path) -> None:
    deployment, worker, clock = await worker_with_clock(bootstrap, tmp_path)
    async with settling(deployment, worker):
        worker.start()
        await until_progress(deployment, worker)
        clock.set_ahead(ahead_s)
        await deployment.put(WAVE, PARTITIONS)
        if ahead_s == HOURS_S:
            # By default a broker refuses messages that are dated more than an hour ahead.
            assert await ended(worker) == 3
            assert "set its clock" in worker.said
            worker.start()
            assert await ended(worker) == 3
        else:
            await until_progress(deployment, worker)
        clock.set_ahead(0)
        if worker.is_dead:
            worker.start()
        await until_progress(deployment, worker)
        await until_progress(deployment, worker)
    await check(deployment)


async def test_a_clock_that_was_set_back_while_the_worker_ran_and_at_its_start(bootstrap: str, tmp_path: Path) -> None:
    deployment, worker, clock = await worker_with_clock(bootstrap, tmp_path)
    words = '"records wait: the clock of this machine is behind that of the brokers'
    async with settling(deployment, worker):
        worker.start()
        await until_progress(deployment, worker)
        clock.set_ahead(-HOURS_S)
        await deployment.put(WAVE, PARTITIONS)
        await wait_until(lambda: worker.said.count(words) == 1, 60, "a wait")
        assert worker.terminate() == 0
        worker.start()
        await wait_until(lambda: worker.said.count(words) == 2, 60, "a wait after the start")
        clock.set_ahead(0)
        await until_progress(deployment, worker)
    assert worker.said.count("records rejected") == 0
    await check(deployment)


async def test_a_commit_that_was_made_while_the_clock_was_ahead(bootstrap: str, tmp_path: Path) -> None:
    deployment, worker, clock = await worker_with_clock(bootstrap, tmp_path)
    clock.set_ahead(HOURS_S)
    async with settling(deployment, worker):
        # So few records that none is released: the commit holds offsets alone, and the broker takes it.
        await deployment.put(4, PARTITIONS)
        worker.start()
        await wait_until(lambda: worker.said.count('"partition opened"') == PARTITIONS, 60, "the partitions")
        assert worker.terminate() == 0
        worker.start()
        await wait_until(lambda: worker.said.count('"partition opened"') == 2 * PARTITIONS, 60, "the partitions")
        clock.set_ahead(0)
        await until_progress(deployment, worker)
        assert worker.terminate() == 0
        worker.start()
        await until_progress(deployment, worker)
    await check(deployment)
