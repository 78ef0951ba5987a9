"""kill -9 under load, inside transactions and out of them, and a zombie: nothing twice, nothing lost, nothing small."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from faulty_workers import Deployment, Findings, Worker, export, judge, leaks, settle
from kafka_broker import wait_until
from shoal.audit import verify
from shoal.policy import Policy

pytestmark = pytest.mark.faults

PARTITIONS = 4
STEP = 500
"""A kill is worth nothing before so many more records were committed."""

PLANS = ["", "sent:2", "offsets:2", "", "committed:2", "sent:1", "", "offsets:1"]
"""How a worker that was just restarted dies next: at its own hand inside a transaction, or from outside."""


async def torture(deployment: Deployment, kills: int, wave: int) -> tuple[int, int]:
    """Kill workers in turn, each time after more progress; return how many died by which hand."""
    workers = [deployment.worker(f"w{number}") for number in range(2)]
    by_plan = by_hand = 0
    try:
        # The very first transaction commits the starting point, the first one with records comes after it.
        workers[0].start(die_at="start:1")
        await wait_until(lambda: workers[0].is_dead, 60, "death in the first transaction")
        workers[0].start(die_at="sent:1")
        await deployment.put(wave, PARTITIONS)
        await until_dead(workers[0], deployment, "death in the first transaction with records")
        by_plan += 2
        for worker in workers:
            worker.start()
        for turn in range(kills - 2):
            before = await deployment.resolved()
            await deployment.put(wave, PARTITIONS)
            await until_more(workers, deployment, before + STEP)
            victim = workers[turn % 2]
            plan = victim.plans[-1]
            if plan:
                await until_dead(victim, deployment, f"death at {plan}")
                by_plan += 1
            else:
                victim.kill()
                by_hand += 1
            victim.start(die_at=PLANS[turn % len(PLANS)])
        await settle(workers, deployment)
    finally:
        for worker in workers:
            worker.kill()
    return by_plan, by_hand


async def until_more(workers: Sequence[Worker], deployment: Deployment, count: int) -> None:
    """Wait for progress, or for the death of everybody who could make some: two may die at their own hand at once."""

    async def is_so() -> bool:
        return all(worker.is_dead for worker in workers) or await deployment.resolved() >= count

    await wait_until(is_so, 90, f"{count} resolved records")


async def until_dead(victim: Worker, deployment: Deployment, what: str) -> None:
    """Give a worker that is to die in some transaction as many of them as it needs."""

    async def is_dead() -> bool:
        if not victim.is_dead:
            await deployment.put(40, PARTITIONS)
            await asyncio.sleep(0.3)
        return victim.is_dead

    await wait_until(is_dead, 60, what)


async def zombie(deployment: Deployment, wave: int) -> None:
    """Pause a worker until its partitions have moved, let the other one go on, and wake it."""
    sleeper, other = deployment.worker("sleeper"), deployment.worker("other")
    try:
        sleeper.start()
        await deployment.put(wave, PARTITIONS)
        await deployment.wait_for(STEP)
        sleeper.signal(signal.SIGSTOP)
        other.start()
        before = await deployment.resolved()
        await deployment.put(wave, PARTITIONS)
        await deployment.wait_for(before + wave // 2)
        sleeper.signal(signal.SIGCONT)
        before = await deployment.resolved()
        await deployment.put(wave, PARTITIONS)
        await deployment.wait_for(before + wave // 2)
        await settle([sleeper, other], deployment)
    finally:
        for worker in (sleeper, other):
            worker.signal(signal.SIGCONT)
            worker.kill()


async def check(deployment: Deployment) -> Findings:
    found = await judge(deployment)
    print(found)
    assert found.records == deployment.serial
    assert found.released + found.referenced == found.records
    assert (found.twice, found.lost, found.small_clusters) == (0, 0, 0)
    assert found.aborted_unlike_committed == 0, "an aborted transaction showed clusters that were never published"
    assert await leaks(deployment) == []
    files = await export(deployment)
    verdict = await asyncio.to_thread(
        verify,
        Policy.load(deployment.policy),
        files["input"],
        files["output"],
        files["evidence"],
        quarantine=files["quarantine"],
        complete=True,
    )
    assert verdict.exit_code == 0, verdict.text()
    return found


async def test_a_few_kills_inside_and_outside_of_transactions(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    by_plan, by_hand = await torture(deployment, kills=7, wave=2000)
    found = await check(deployment)
    assert by_plan >= 3
    assert by_hand >= 2
    assert found.aborted_rows > 0, "no kill fell inside a transaction: the test has lost its aim"


async def test_a_zombie_is_fenced(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    await zombie(deployment, wave=3000)
    await check(deployment)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_sixty_thousand_records_and_twenty_kills(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    by_plan, by_hand = await torture(deployment, kills=20, wave=2700)
    await deployment.put(max(0, 60_000 - deployment.serial), PARTITIONS)
    last: list[Worker] = []
    await settle(last, deployment)
    found = await check(deployment)
    print(f"killed {by_plan} times inside and {by_hand} times outside of transactions")
    assert by_plan + by_hand == 20
    assert found.records >= 60_000
