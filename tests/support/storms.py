"""Faults of brokers while workers run under load, and the judgement from outside after them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from shoal.kafka.silent_addresses import without_silent
from support.cluster import GROUP, NODES, TRANSACTION, Cluster, cluster
from support.faulty_workers import Deployment, Worker, leaks
from support.reliability import Result, record
from support.repeated_kills import PARTITIONS, check

PATIENCE_S = 180.0
"""Longest time until records are committed on a loaded machine (s)."""
WAVE, PORTIONS = 1600, 40
AWAY_S = 5.0
"""Time for which a broker that is restarted is away (s)."""
ACCUSATION = "writes to it"


def feeder(bootstrap: str) -> AIOKafkaProducer:
    """Return a producer that appends each record once, also if a broker is paused or away meanwhile."""
    # Like the workers, it does not wait long for a broker that is paused.
    return AIOKafkaProducer(
        bootstrap_servers=without_silent(bootstrap),
        client_id="shoal-feeder",
        enable_idempotence=True,
        request_timeout_ms=300_000,
    )


async def feed(
    producer: AIOKafkaProducer,
    deployment: Deployment,
    pause_s: float = 0.1,
    wave: int = WAVE,
    partitions: int = PARTITIONS,
) -> None:
    """Append a wave of records in small portions, so that transactions follow each other."""
    for _ in range(PORTIONS):
        values = deployment.records(wave // PORTIONS)
        sent = [
            await producer.send(deployment.topics["input"], value, partition=number % partitions)
            for number, value in enumerate(values)
        ]
        await asyncio.gather(*sent)
        await asyncio.sleep(pause_s)


@dataclass
class Storm:
    """Workers over a cluster, and what is done to it."""

    fault: str
    brokers: Cluster
    deployment: Deployment
    producer: AIOKafkaProducer
    workers: list[Worker] = field(default_factory=list)

    @property
    def said(self) -> str:
        return "".join(worker.said for worker in self.workers)

    async def leader(self, of: str) -> int:
        """Id of the broker that leads the output, the group's offsets or the state of a transactional id."""
        group = f"group-{self.deployment.topics['input']}"
        if of == "offsets":
            return await self.brokers.coordinator(GROUP, group)
        if of == "transactions":
            return await self.brokers.coordinator(TRANSACTION, f"{group}-{self.deployment.topics['input']}-0")
        return await self.brokers.leader(self.deployment.topics[of])

    async def under_load(self, strike: Callable[[], Awaitable[None]]) -> None:
        """Strike while records are fed and transactions follow each other, and wait for progress after it."""
        before = await self.deployment.resolved()
        feeding = asyncio.create_task(feed(self.producer, self.deployment))
        try:
            await self.deployment.wait_for(before + WAVE // 10, PATIENCE_S)
            await strike()
            await feeding
        finally:
            feeding.cancel()
        await self.until_progress(before + WAVE // 2)

    async def until_progress(self, count: int) -> None:
        """Wait until so many records are resolved; no worker may have ended."""
        await self.deployment.wait_for(count, PATIENCE_S)
        for worker in self.workers:
            assert not worker.is_dead, worker.said[-3000:]

    async def settled(self, happened: str, refusals: int = 0) -> Result:
        """Stop the workers as an operator does, judge, and record the result; ``refusals`` starts were refused."""
        assert [worker.terminate() for worker in self.workers] == [0] * len(self.workers)
        await self.deployment.settled(self.workers)
        assert self.said.count('"giving up"') == refusals
        return await recorded_check(self.fault, self.deployment, self.workers, happened)


def logs(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("*.log")))


async def recorded_check(fault: str, deployment: Deployment, workers: Sequence[Worker], happened: str) -> Result:
    """Judge from outside, and record the result."""
    found = await check(deployment)
    accusations, gone = logs(deployment.folder).count(ACCUSATION), sum(worker.gone for worker in workers)
    assert (accusations, gone) == (0, 0)
    return record(
        fault,
        happened,
        records=found.records,
        twice=found.twice,
        lost=found.lost,
        under_k=found.small_clusters,
        canaries=len(await leaks(deployment)),
        accusations=accusations,
        gone=gone,
    )


@dataclass
class Restarts:
    """Restarts of brokers beside kills of workers: one broker at a time, terminated and killed in turn."""

    brokers: Cluster
    topics: Sequence[str]
    every: int
    """So many kills of workers lie between two restarts."""
    count: int = 0
    task: asyncio.Task[None] | None = None

    async def before_kill(self, number: int) -> None:
        """Begin a restart, if it is time for one; the one before it has ended."""
        if number % self.every == self.every // 2:
            await self.ended()
            ending = signal.SIGKILL if self.count % 2 else signal.SIGTERM
            self.task = asyncio.create_task(self._restart(NODES[self.count % len(NODES)], ending))
            self.count += 1

    async def _restart(self, node: int, ending: signal.Signals) -> None:
        await self.brokers.end(node, ending)
        await asyncio.sleep(AWAY_S)
        await self.brokers.start(node)
        await self.brokers.until_in_sync(*self.topics)

    async def ended(self) -> None:
        if self.task is not None:
            await self.task


@asynccontextmanager
async def storm(
    fault: str,
    folder: Path,
    *,
    settings: Sequence[str] = (),
    change: Callable[[Sequence[Path]], None] | None = None,
    version: str = "",
    partitions: int = PARTITIONS,
    workers: int = 2,
    make: Callable[[Worker], Worker] | None = None,
    **options: Any,
) -> AsyncIterator[Storm]:
    """Run workers, which ``make`` may replace, over a cluster; ``options`` are those of `Deployment.create`."""
    with cluster(folder / "kafka", settings, change, version) as brokers:
        deployment = await Deployment.create(brokers.bootstrap, folder, partitions=partitions, **options)
        async with feeder(brokers.bootstrap) as producer:
            one = Storm(fault, brokers, deployment, producer)
            one.workers = [deployment.worker(f"w{number}") for number in range(workers)]
            one.workers = [worker if make is None else make(worker) for worker in one.workers]
            try:
                for worker in one.workers:
                    worker.start()
                yield one
            finally:
                for worker in one.workers:
                    worker.kill()
