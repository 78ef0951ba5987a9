"""One soak: the highest rate first, then half of it for a long time, while memory, lag and delays are sampled."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka_to_kafka import document, new_topic
from measuring import percentile
from memory_in_use import last_mb
from soak_judge import Findings, judge
from soak_partition import Job, Topics
from soak_records import Feed
from worker_process import Service, load_average, start, start_program

__all__ = ["DELTA", "MAX_DELAY_S", "PARTITIONS", "K", "Sample", "Soak", "SoakOptions", "soak"]

PARTITIONS, K, DELTA, MAX_DELAY_S = 4, 10, 100, 10
SAMPLE_S = 5.0
BACKLOG = 60_000
"""Records that are sent at once to find the highest rate."""
CATCH_UP_S = 300.0
MEMORY_IN_USE = Path(__file__).with_name("memory_in_use.py")
WATCHED_EVERY = 10
"""The delay of one record in so many is measured."""


class SoakOptions(NamedTuple):
    """Length (min), number of workers, the rate (records a second; None: half of the highest), partitions to verify."""

    minutes: float
    workers: int = 2
    per_s: float | None = None
    verified: int = PARTITIONS


class Sample(NamedTuple):
    """One moment: seconds since the start, lag (records), delays since the last sample (s).

    Of each worker: resident memory, and memory in use at most (MB). ``delay_p99`` and ``delay_max`` are NaN and 0 if no
    record was read meanwhile; ``load`` is the load average.
    """

    at_s: float
    memory_mb: tuple[float, ...]
    in_use_mb: tuple[float, ...]
    lag: float
    held: float
    delay_p99: float
    delay_max: float
    load: float


@dataclass
class Soak:
    """What a soak found: records a second at most and in the run, samples, processor time (s) and the judgement."""

    options: SoakOptions
    highest_per_s: float
    per_s: float
    samples: list[Sample] = field(default_factory=list)
    cpu_s: float = 0.0
    findings: Findings | None = None


@dataclass
class _Delays:
    """Time from sending a record until a reader has it, of some of the records."""

    sent: list[tuple[int, float]] = field(default_factory=list)
    """First serial number of each burst, and when it was sent."""
    fresh: list[float] = field(default_factory=list)
    released: int = 0
    first_watched: int = 0

    def note(self, serial: int) -> None:
        if serial >= self.first_watched and serial % WATCHED_EVERY == 0:
            index = bisect.bisect_right(self.sent, (serial, float("inf"))) - 1
            self.fresh.append(time.monotonic() - self.sent[index][1])

    def take(self) -> list[float]:
        taken, self.fresh = self.fresh, []
        return taken


class _NotedFeed(Feed):
    """A feed that notes when each burst was sent."""

    delays: _Delays

    async def put(self, count: int) -> None:
        self.delays.sent.append((self.serial, time.monotonic()))
        await super().put(count)


async def _watch(bootstrap: str, topic: str, delays: _Delays) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while True:
            for of_partition in (await consumer.getmany(timeout_ms=1000)).values():
                delays.released += len(of_partition)
                for message in of_partition:
                    delays.note(json.loads(message.value)["serial"])


async def soak(bootstrap: str, folder: Path, options: SoakOptions) -> Soak:
    """Run workers, feed them, stop and drain them, and judge what they released."""
    run = f"soak-{uuid.uuid4().hex[:8]}"
    topics = Topics(*[await new_topic(bootstrap, f"{run}-{name}") for name in Topics._fields])
    policy = folder / "policy.json"
    content = document(bootstrap, topics.input, topics.output)
    content["stream"] = {"delta": DELTA, "max_delay_s": MAX_DELAY_S}
    content["kafka"] |= {"quarantine": topics.quarantine, "evidence": topics.evidence}
    policy.write_text(json.dumps(content), encoding="utf-8")
    delays = _Delays()
    watching = asyncio.create_task(_watch(bootstrap, topics.output, delays))
    workers = [_worker(policy, folder / f"worker-{number}.log") for number in range(options.workers)]
    try:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5) as producer:
            feed = _NotedFeed(producer, topics.input, PARTITIONS)
            feed.delays = delays
            await _ready(workers)
            highest = await _highest(feed, delays, workers)
            delays.first_watched = feed.serial
            found = Soak(options, highest, highest / 2 if options.per_s is None else options.per_s)
            await _steady(found, feed, delays, workers)
        codes = [await worker.stop() for worker in workers]
        if any(codes):
            raise SystemExit(f"soak: a worker ended with exit code {max(codes)}: {folder}")
    finally:
        watching.cancel()
        for worker in workers:
            await worker.stop()
    await _drain(policy, folder)
    found.findings = await judge(
        [
            Job(
                bootstrap,
                topics,
                number,
                PARTITIONS,
                feed.serial,
                K,
                policy,
                folder / str(number),
                number < options.verified,
            )
            for number in range(PARTITIONS)
        ]
    )
    return found


def _worker(policy: Path, log: Path) -> Service:
    return start_program([sys.executable, MEMORY_IN_USE, log.with_suffix(".memory")], policy, log)


async def _ready(workers: Sequence[Service]) -> None:
    """Wait until every worker is ready, and the partitions have moved to the last one."""
    for worker in workers:
        await worker.until_ready()


async def _highest(feed: Feed, delays: _Delays, workers: Sequence[Service]) -> float:
    """Return the rate at which records sent at once are released, from their first tenth to their last (a second)."""
    sending = asyncio.create_task(feed.put(BACKLOG))
    try:
        began, done = await _until_released(delays, BACKLOG // 10, workers)
        ended, more = await _until_released(delays, BACKLOG * 9 // 10, workers)
        await sending
    finally:
        sending.cancel()
    return (more - done) / max(ended - began, 1e-3)


async def _until_released(delays: _Delays, count: int, workers: Sequence[Service]) -> tuple[float, int]:
    deadline = time.monotonic() + CATCH_UP_S
    while delays.released < count:
        for worker in workers:
            worker.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"soak: only {delays.released} of {count} records were released")
        await asyncio.sleep(0.01)
    return time.monotonic(), delays.released


async def _steady(found: Soak, feed: Feed, delays: _Delays, workers: Sequence[Service]) -> None:
    def check() -> None:
        for worker in workers:
            worker.check()

    cpu = sum(worker.cpu_s for worker in workers)
    sampling = asyncio.create_task(_sample(found, delays, workers))
    try:
        await feed.keep_up(found.per_s, found.options.minutes * 60, check)
    finally:
        sampling.cancel()
        await asyncio.wait({sampling})
    if not sampling.cancelled():
        sampling.result()
    found.cpu_s = sum(worker.cpu_s for worker in workers) - cpu


async def _sample(found: Soak, delays: _Delays, workers: Sequence[Service]) -> None:
    """Add a sample every few seconds, and write it to standard error."""
    began = time.monotonic()
    delays.take()
    while True:
        await asyncio.sleep(SAMPLE_S)
        scrapes = [await worker.metrics() for worker in workers]
        fresh = delays.take()
        sample = Sample(
            time.monotonic() - began,
            tuple(worker.memory_mb for worker in workers),
            tuple(last_mb(worker.log.with_suffix(".memory")) for worker in workers),
            sum(scrape.total("shoal_consumer_lag_records") for scrape in scrapes),
            sum(scrape.total("shoal_records_held") for scrape in scrapes),
            percentile(fresh, 0.99),
            max(fresh, default=0.0),
            load_average(),
        )
        found.samples.append(sample)
        memory, in_use = (", ".join(f"{one:.1f}" for one in of) for of in (sample.memory_mb, sample.in_use_mb))
        print(
            f"soak: {sample.at_s:.0f} s, {found.per_s:.0f} records/s, memory {memory} MB, in use {in_use} MB, "
            f"lag {sample.lag:.0f}, delay p99 {sample.delay_p99:.2f} s, max {sample.delay_max:.2f} s, "
            f"load {sample.load:.1f}",
            file=sys.stderr,
            flush=True,
        )


async def _drain(policy: Path, folder: Path) -> None:
    """Release or suppress all that is held."""
    last = start(policy, folder / "drain.log", "--drain")
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(last.process.wait, CATCH_UP_S)
    finally:
        code = await last.stop()
    if code:
        raise SystemExit(f"soak: the drain ended with exit code {code}: {folder / 'drain.log'}")
