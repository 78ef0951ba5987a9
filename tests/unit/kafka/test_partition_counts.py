"""Tasks that a process opens for a partition one after the other count each record once, also after one has failed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from shoal.kafka.offset_metadata import CommittedState, decode
from shoal.kafka.offset_tracker import OffsetState
from shoal.kafka.partition_counts import PartitionCounts
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.producer import TransactionBatch
from shoal.observability import Metrics
from shoal.records import JsonDecoder
from support.making import SUBJECT, policy_of, quasi
from support.messages import Message
from support.partition_tasks import START_MS

pytestmark = pytest.mark.unit

MAX_AHEAD_MS = 3_600_000
POLICY = policy_of({"who": SUBJECT, "x": quasi(0, 100, integer=True)}, stream={"delta": 4})


@dataclass
class Sink:
    """Keeps the commits."""

    commits: list[CommittedState] = field(default_factory=list)

    async def publish_and_commit(
        self,
        batch: TransactionBatch,  # noqa: ARG002
        committed_offset: int,
        metadata: str,
        at_ms: int,  # noqa: ARG002
    ) -> None:
        self.commits.append(decode(metadata, "t", 0, committed_offset))

    async def close(self) -> None:
        pass


def record(offset: int, timestamp: int = START_MS) -> Message:
    return Message(offset, timestamp, json.dumps({"who": f"p{offset}", "x": offset * 7 % 101}).encode())


def invalid(offset: int) -> Message:
    return Message(offset, START_MS, b"{")


def records(offsets: Iterable[int]) -> list[Message]:
    return [record(offset) for offset in offsets]


def counted(metrics: Metrics) -> dict[str, int]:
    """Return what was counted, without what is 0."""
    return {outcome: count for outcome, count in metrics.totals().items() if count}


def task_with(counts: PartitionCounts, metrics: Metrics, sink: Sink, log_end: int = 100) -> PartitionTask:
    """Return one of several tasks that a process opens for a partition."""
    commit = CommittedState(OffsetState(committed_offset=0, next_offset=0), POLICY.fingerprint, START_MS)
    counts.open(log_end)
    decoder, now_s = JsonDecoder(POLICY), START_MS / 1000 + 1
    return PartitionTask("t", 0, POLICY, decoder, sink, commit, metrics, 0.2, wall_clock=lambda: now_s, counts=counts)


async def test_a_process_counts_a_record_as_read_once_also_after_tasks_that_fail() -> None:
    """Otherwise each failure on a quiet input would count held records again, and an alert would be false."""
    counts, metrics = PartitionCounts(), Metrics()
    for _ in range(3):
        task = task_with(counts, metrics, Sink())
        await task.process([record(0), invalid(1), record(2)])
        await task.close(commit=False)
    assert counted(metrics) == {"in": 3}
    assert metrics.refusals.texts(3) == ["1 of 3 undecodable: not JSON"]
    sink = Sink()
    task = task_with(counts, metrics, sink)
    await task.process([record(0), invalid(1), *records(range(2, 6))])
    await task.commit(flush=True)
    assert counted(metrics) == {"in": 6, "released": 5, "quarantined": 1}
    assert metrics.refusals.texts(6) == ["1 of 6 undecodable: not JSON"]


async def test_a_record_that_is_dated_ahead_is_counted_once_also_after_tasks_that_fail() -> None:
    counts, metrics = PartitionCounts(), Metrics()
    for _ in range(2):
        task = task_with(counts, metrics, Sink())
        await task.process([record(0, START_MS + 3 * MAX_AHEAD_MS)])
        await task.close(commit=False)
    assert metrics.dated_ahead.labels("t", 0)._value.get() == 1
    assert counted(metrics) == {"in": 1}


async def test_records_of_a_log_that_was_cut_are_counted_in_place_of_those_that_were_lost() -> None:
    counts, metrics = PartitionCounts(), Metrics()
    task = task_with(counts, metrics, Sink())
    await task.process(records(range(3)))
    await task.close(commit=False)
    task = task_with(counts, metrics, Sink(), log_end=1)
    await task.process(records(range(3)))
    assert counted(metrics) == {"in": 5}
