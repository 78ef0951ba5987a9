"""A partition task without a broker, and what it publishes."""

from __future__ import annotations

import time
from collections.abc import Callable

from aiokafka import TopicPartition
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState, decode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import PartitionTask
from shoal.kafka.transactions import (
    NO_LISTENER,
    ClusterListener,
    PartitionCounts,
    TaskContext,
    TransactionBatch,
    TransactionSink,
)
from shoal.observability import Metrics
from shoal.policy import Policy

__all__ = ["START_MS", "RecordingSink", "partition_task", "task_of"]

START_MS = 1_700_000_000_000


class RecordingSink(TransactionSink):
    """Keeps the transactions and the states that are committed with them."""

    def __init__(self) -> None:
        """Start without transactions."""
        self.published: list[tuple[TransactionBatch, OffsetState]] = []

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        """Take a transaction."""
        assert at_ms > 0
        self.published.append((batch, decode(metadata, "t", 0, committed_offset).state))

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
    decoder = JsonDecoder(of, hash_key=b"k")
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
