"""One partition of a soak: the outcomes of its records, counted from the topics, and the verdict of `shoal verify`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from numpy.typing import NDArray
from soak_records import person_of

__all__ = ["Job", "PartitionFindings", "Topics", "judge_partition"]

SHOAL = str(Path(sys.executable).with_name("shoal"))
VERIFY_S = 3600.0
FETCH_BYTES = 8 * 1024 * 1024


class Topics(NamedTuple):
    """Names of the topics; each has as many partitions as the input."""

    input: str
    output: str
    quarantine: str
    evidence: str


class Job(NamedTuple):
    """A partition to judge; ``sent`` is the number of records in all partitions, ``folder`` is for its files alone."""

    bootstrap: str
    topics: Topics
    partition: int
    partitions: int
    sent: int
    k: int
    policy: Path
    folder: Path
    is_verified: bool


class PartitionFindings(NamedTuple):
    """What the topics of a partition hold.

    ``outcomes`` counts the messages of each record, by serial number (shape (sent,), dtype uint8). ``is_accepted`` is
    the verdict of `shoal verify`, or None if it was not asked.
    """

    outcomes: NDArray[np.uint8]
    released: int
    suppressed: int
    clusters: int
    under_k: int
    is_accepted: bool | None


def judge_partition(job: Job) -> PartitionFindings:
    """Read the topics of the partition into files, count the outcomes of each record, and verify the files."""
    job.folder.mkdir()
    try:
        found = asyncio.run(_count(job))
        return found._replace(is_accepted=_is_accepted(job)) if job.is_verified else found
    finally:
        for name in Topics._fields:
            _file(job, name).unlink(missing_ok=True)


async def _count(job: Job) -> PartitionFindings:
    outcomes = np.zeros(job.sent, np.uint8)
    suppressed = clusters = under_k = released = 0

    def serial_at(offset: int) -> int:
        return offset * job.partitions + job.partition

    async for message in _kept(job, "output", _with_partition):
        outcomes[json.loads(message.value)["serial"]] += 1
        released += 1
    async for message in _kept(job, "quarantine", _text):
        reference = json.loads(message.value)
        outcomes[serial_at(reference["offset"])] += 1
        suppressed += reference["reason"] == "suppressed"
    async for message in _kept(job, "evidence", _text):
        offsets = json.loads(message.value)["offsets"]
        clusters += 1
        under_k += len({person_of(serial_at(offset)) for offset in offsets}) < job.k
    if job.is_verified:
        async for _ in _kept(job, "input", _with_offset):
            pass
    return PartitionFindings(outcomes, released, suppressed, clusters, under_k, None)


def _text(_: Job, message: ConsumerRecord) -> str:
    return str(message.value, "utf-8")


def _with_partition(job: Job, message: ConsumerRecord) -> str:
    return json.dumps({"partition": job.partition, "value": message.value.decode()})


def _with_offset(job: Job, message: ConsumerRecord) -> str:
    return json.dumps({"partition": job.partition, "offset": message.offset, "value": message.value.decode()})


def _file(job: Job, name: str) -> Path:
    return job.folder / f"{name}.jsonl"


async def _kept(job: Job, name: str, line_of: Callable[[Job, ConsumerRecord], str]) -> AsyncIterator[ConsumerRecord]:
    """Yield the committed messages of a topic, and write a line of each to its file if the partition is verified."""
    with _file(job, name).open("w", encoding="utf-8") as file:
        async for message in _committed(job, getattr(job.topics, name)):
            if job.is_verified:
                file.write(line_of(job, message) + "\n")
            yield message


async def _committed(job: Job, topic: str) -> AsyncIterator[ConsumerRecord]:
    """Yield the committed messages of the partition as it ends now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    await consumer.start()
    try:
        tp = TopicPartition(topic, job.partition)
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        while await consumer.position(tp) < end:
            for message in (await consumer.getmany(timeout_ms=200)).get(tp, []):
                yield message
    finally:
        await consumer.stop()


def _is_accepted(job: Job) -> bool:
    """Return whether `shoal verify` accepts the release of the partition."""
    command: list[str | Path] = [SHOAL, "verify", job.policy, "--topic", "--original", _file(job, "input")]
    command += ["--released", _file(job, "output"), "--evidence", _file(job, "evidence")]
    command += ["--quarantine", _file(job, "quarantine"), "--json", job.folder / "verdict.json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=VERIFY_S, check=False)
    if done.returncode:
        print(done.stdout.decode(), file=sys.stderr)
    return done.returncode == 0
