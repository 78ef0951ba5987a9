"""A partition task without a broker, its messages, and what it publishes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch

from aiokafka import TopicPartition
from shoal.formats import JsonDecoder
from shoal.kafka.checks import TopicLayout
from shoal.kafka.metadata import CommittedState, decode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import PartitionTask
from shoal.kafka.transactions import (
    NO_LISTENER,
    ClusterListener,
    PartitionCounts,
    TaskContext,
    TransactionalProducer,
    TransactionBatch,
    TransactionSink,
)
from shoal.observability import Metrics
from shoal.policy import KafkaSection, Policy

START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Message:
    """A consumed message as the partition task needs it; the timestamp is in ms."""

    offset: int
    timestamp: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class RecordingSink(TransactionSink):
    """Keeps transactions, commits and their times; when its gate is open, ``errors`` are raised first, one a time."""

    published: list[tuple[TransactionBatch, OffsetState]] = field(default_factory=list)
    commits: list[CommittedState] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None
    is_closed: bool = False

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        assert at_ms > 0
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.commits.append(decode(metadata, "t", 0, committed_offset))
        self.published.append((batch, self.commits[-1].state))
        self.times.append(at_ms)

    async def close(self) -> None:
        """Note it."""
        self.is_closed = True


class TopicSink(TransactionSink):
    """Makes the messages of a transaction as the producer does, whose client is patched away."""

    def __init__(self, policy: Policy, partition: int = 0, partitions: int = 1) -> None:
        settings = KafkaSection(
            input="in", output="out", group="g", quarantine="bad", evidence="proof", clusters="sums"
        )
        layout = TopicLayout(dict.fromkeys(("in", "out", "bad", "proof", "sums"), partitions))
        with patch("shoal.kafka.transactions.producer"):
            self._producer = TransactionalProducer(policy, settings, partition, layout)

    def topics_of(self, batch: TransactionBatch) -> dict[str, list[bytes]]:
        """Return the messages of each topic."""
        return {topic: list(values) for topic, values in self._producer._messages(batch)}

    async def close(self) -> None:
        """Do nothing."""


def partition_task(
    topic: str,
    partition: int,
    policy: Policy,
    decoder: JsonDecoder,
    sink: TransactionSink,
    commit: CommittedState,
    metrics: Metrics,
    commit_interval_s: float,
    wall_clock: Callable[[], float] = time.time,
    *,
    monotonic_clock: Callable[[], float] = time.monotonic,
    listener: ClusterListener = NO_LISTENER,
    counts: PartitionCounts | None = None,
    log_end: int = 0,
) -> PartitionTask:
    """Return a task that continues from a commit."""
    context = TaskContext(
        policy,
        decoder,
        metrics,
        commit_interval_s,
        listener=listener,
        wall_clock=wall_clock,
        monotonic_clock=monotonic_clock,
    )
    return PartitionTask(TopicPartition(topic, partition), context, sink, commit, log_end=log_end, counts=counts)


def task_of(
    of: Policy,
    sink: RecordingSink,
    state: OffsetState | None = None,
    metrics: Metrics | None = None,
    counts: PartitionCounts | None = None,
    monotonic_clock: Callable[[], float] = time.monotonic,
) -> tuple[PartitionTask, Metrics]:
    """Return a task of partition 0 of topic t one second after `START_MS`, and its metrics."""
    metrics, begin = metrics or Metrics(), state or OffsetState(committed_offset=0, next_offset=0)
    commit = CommittedState(begin, of.fingerprint, START_MS)
    decoder = JsonDecoder(of)
    clock = START_MS / 1000 + 1
    task = partition_task(
        "t",
        0,
        of,
        decoder,
        sink,
        commit,
        metrics,
        0.2,
        wall_clock=lambda: clock,
        monotonic_clock=monotonic_clock,
        counts=counts or PartitionCounts("t", 0),
    )
    return task, metrics
