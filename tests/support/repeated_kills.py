"""kill -9 under load and a zombie, for every kind of worker; and the checks after it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from support.faulty_workers import Deployment, Findings, Worker, export, judge, judged, leaks
from support.kafka_broker import wait_until

PARTITIONS = 4
STEP = 500
"""So many more records must be committed before the next kill."""

KILL_SCHEDULES = ["offsets:2", "committed:2", "", "sent:2", "", "offsets:1", "", "sent:1"]
"""How a restarted worker is killed next: by itself inside a transaction, or by a signal."""


BACKLOG = 4096
"""So many connections an address takes: those of all workers that are killed meanwhile."""


@contextmanager
def silent_addresses(deployment: Deployment) -> Iterator[None]:
    """Give workers, first and last, addresses that take connections and never answer; some log must name one."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as first,
        socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as last,
    ):
        silent = [f"127.0.0.1:{one.getsockname()[1]}" for one in (first, last)]
        deployment.addresses = ",".join([silent[0], deployment.bootstrap, silent[1]])
        yield
        logs = "".join(path.read_text() for path in deployment.folder.glob("*.log"))
        assert any(one in logs for one in silent), "no silent address was tried: the test tests nothing"


async def no_other_fault(_: int) -> None:
    """Do nothing before a kill."""


async def kill_repeatedly(
    deployment: Deployment,
    kills: int,
    wave: int,
    before_kill: Callable[[int], Awaitable[None]] = no_other_fault,
    step: int = STEP,
) -> tuple[int, int]:
    """Kill workers in turn after ``step`` more records each; return how many died inside and outside transactions."""
    workers = [deployment.worker(f"w{number}") for number in range(2)]
    by_itself = by_signal = 0
    try:
        # The very first transaction commits the starting point, the first one with records comes after it.
        workers[0].start(die_at="start:1")
        await wait_until(lambda: workers[0].is_dead, 60, "death in the first transaction")
        workers[0].start(die_at="sent:1")
        await deployment.put(wave, PARTITIONS)
        await until_dead(workers[0], deployment, "death in the first transaction with records")
        by_itself += 2
        for worker in workers:
            worker.start()
        for turn in range(kills - 2):
            await before_kill(turn)
            before = await deployment.resolved()
            await deployment.put(wave, PARTITIONS)
            await until_more(workers, deployment, before + step)
            victim = workers[turn % 2]
            plan = victim.plans[-1]
            if plan:
                await until_dead(victim, deployment, f"death at {plan}")
                by_itself += 1
            else:
                victim.kill()
                by_signal += 1
            victim.start(die_at=KILL_SCHEDULES[turn % len(KILL_SCHEDULES)])
        await deployment.settled(workers)
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.gone for worker in workers] == [0, 0], "a worker ended that was not killed"
    return by_itself, by_signal


async def until_more(workers: Sequence[Worker], deployment: Deployment, count: int) -> None:
    """Wait for progress, or until no worker runs: two may kill themselves at the same time."""

    async def is_so() -> bool:
        return all(worker.is_dead for worker in workers) or await deployment.resolved() >= count

    await wait_until(is_so, 90, f"{count} resolved records")


async def until_dead(victim: Worker, deployment: Deployment, what: str) -> None:
    """Produce as many transactions as a worker needs that kills itself in one of them."""

    async def is_dead() -> bool:
        if not victim.is_dead:
            await deployment.put(40, PARTITIONS)
            await asyncio.sleep(0.3)
        return victim.is_dead

    await wait_until(is_dead, 60, what)


async def zombie(deployment: Deployment, wave: int) -> None:
    """Pause a worker until its partitions have moved, let the other worker continue, and resume it."""
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
        await deployment.settled([sleeper, other])
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
    files = export(deployment.folder, await deployment.read_topics())
    await asyncio.to_thread(judged, deployment.policy, files)
    return found
