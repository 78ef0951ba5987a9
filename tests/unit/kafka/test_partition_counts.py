"""Tasks that a process opens for a partition one after the other count each record once, also after one has failed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerUnavailableError, InputError
from shoal.formats import JsonDecoder
from shoal.kafka import transactions
from shoal.kafka.metadata import CommittedState, decode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import PartitionTask
from shoal.kafka.transactions import PartitionCounts, ProcessCounts, TransactionBatch, TransactionSink
from shoal.observability import Metrics
from support.making import SUBJECT, policy_of, quasi
from support.messages import Message
from support.partition_tasks import START_MS, partition_task

pytestmark = pytest.mark.unit

MAX_AHEAD_MS = 3_600_000
POLICY = policy_of({"who": SUBJECT, "x": quasi(0, 100, integer=True)}, stream={"delta": 4})


@dataclass
class Sink(TransactionSink):
    """Keeps the commits; `errors` are raised first, one a time."""

    commits: list[CommittedState] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def publish_and_commit(
        self,
        batch: TransactionBatch,  # noqa: ARG002
        committed_offset: int,
        metadata: str,
        at_ms: int,  # noqa: ARG002
    ) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
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


def task_with(
    counts: PartitionCounts, metrics: Metrics, sink: Sink, commit: CommittedState | None = None, log_end: int = 100
) -> PartitionTask:
    """Return one of several tasks that a process opens for a partition."""
    commit = commit or CommittedState(OffsetState(committed_offset=0, next_offset=0), POLICY.fingerprint, START_MS)
    counts.open(commit, log_end, metrics)
    decoder, now_s = JsonDecoder(POLICY), START_MS / 1000 + 1
    return partition_task("t", 0, POLICY, decoder, sink, commit, metrics, 0.2, wall_clock=lambda: now_s, counts=counts)


async def test_a_process_counts_a_record_as_read_once_also_after_tasks_that_fail() -> None:
    """Otherwise each failure on a quiet input would count held records again, and an alert would be false."""
    counts, metrics = PartitionCounts("t", 0), Metrics()
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
    counts, metrics = PartitionCounts("t", 0), Metrics()
    for _ in range(2):
        task = task_with(counts, metrics, Sink())
        await task.process([record(0, START_MS + 3 * MAX_AHEAD_MS)])
        await task.close(commit=False)
    assert metrics.dated_ahead.labels("t", 0)._value.get() == 1
    assert counted(metrics) == {"in": 1}


async def test_records_of_a_log_that_was_cut_are_counted_in_place_of_those_that_were_lost() -> None:
    counts, metrics = PartitionCounts("t", 0), Metrics()
    task = task_with(counts, metrics, Sink())
    await task.process(records(range(3)))
    await task.close(commit=False)
    task = task_with(counts, metrics, Sink(), log_end=1)
    await task.process(records(range(3)))
    assert counted(metrics) == {"in": 5}


# ---------------------------------------------------------------- transactions of unknown outcome


class LosesResponse(Sink):
    """Commits, and gets no response."""

    async def publish_and_commit(self, *batch_and_commit: Any) -> None:
        await super().publish_and_commit(*batch_and_commit)
        raise BrokerUnavailableError("no response")


MESSAGES = [record(0), invalid(1), *records(range(2, 12))]
"""After these, eleven records are held or decided, and one is quarantined."""
DECIDED = {"in": 12, "released": 8, "quarantined": 1}


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the fields of the warnings about outcomes that are not known."""
    logged: list[dict[str, Any]] = []

    class Log:
        def warning(self, words: str, **fields: Any) -> None:
            assert words.startswith("it is not known whether a transaction was committed")
            logged.append(fields)

    monkeypatch.setattr(transactions, "log", Log())
    return logged


async def lost(counts: PartitionCounts, metrics: Metrics, sink: Sink, commit: CommittedState | None = None) -> None:
    """Decide on `MESSAGES` in a task that fails when it commits."""
    task = task_with(counts, metrics, sink, commit)
    await task.process(MESSAGES)
    with pytest.raises(BrokerUnavailableError):
        await task.commit()
    await task.close(commit=False)


async def test_a_transaction_without_a_response_is_counted_once_when_its_commit_is_found(
    warnings: list[dict[str, Any]],
) -> None:
    counts, metrics, sink = PartitionCounts("t", 0), Metrics(), LosesResponse()
    await lost(counts, metrics, sink)
    assert counted(metrics) == {"in": 12}
    (found,) = sink.commits
    for _ in range(2):
        await task_with(counts, metrics, Sink(), found).close(commit=True)
        assert counted(metrics) == DECIDED
    assert metrics.clusters.labels("t", 0)._value.get() == 4
    assert (metrics.size.counts.sum(), metrics.size.total) == (4, 8.0)
    assert warnings == []


async def test_a_commit_that_was_made_again_under_another_policy_is_the_same() -> None:
    counts, metrics, sink = PartitionCounts("t", 0), Metrics(), LosesResponse()
    await lost(counts, metrics, sink)
    found = sink.commits[0]
    sent = replace(found, state=replace(found.state, adaptive_state=b"weight"))
    assert counts._sent is not None
    counts._sent = counts._sent._replace(commit=sent)
    counts.open(found.under_policy("cd" * 8), 100, metrics)
    assert counted(metrics) == DECIDED


async def test_a_transaction_that_was_not_committed_is_counted_when_the_next_task_repeats_it(
    warnings: list[dict[str, Any]],
) -> None:
    counts, metrics, sink = PartitionCounts("t", 0), Metrics(), Sink(errors=[BrokerUnavailableError("gone")])
    await lost(counts, metrics, sink)
    task = task_with(counts, metrics, sink)
    await task.process(MESSAGES)
    await task.commit()
    assert counted(metrics) == DECIDED
    # The commit before the next one that fails is now that of this task.
    sink.errors.append(BrokerUnavailableError("gone"))
    await task.process([invalid(12)])
    with pytest.raises(BrokerUnavailableError):
        await task.commit()
    await task.close(commit=False)
    await task_with(counts, metrics, sink, sink.commits[-1]).close(commit=True)
    assert counted(metrics) == DECIDED | {"in": 13}
    assert warnings == []


async def test_a_second_attempt_of_unknown_outcome_is_counted_once() -> None:
    counts, metrics = PartitionCounts("t", 0), Metrics()
    await lost(counts, metrics, Sink(errors=[BrokerUnavailableError("gone")]))
    second = LosesResponse()
    await lost(counts, metrics, second)
    assert counted(metrics) == {"in": 12}
    counts.open(second.commits[0], 100, metrics)
    assert counted(metrics) == DECIDED


async def test_of_several_packed_transactions_only_the_one_that_was_sent_is_counted() -> None:
    counts, metrics, sink = PartitionCounts("t", 0), Metrics(), LosesResponse(gate=asyncio.Event())
    task = task_with(counts, metrics, sink)
    for offset in range(3):
        await task.process([record(offset, START_MS + 3 * MAX_AHEAD_MS)])
        await asyncio.sleep(0)
    assert sink.gate is not None
    sink.gate.set()
    with pytest.raises(BrokerUnavailableError):
        await task._collector.wait_until_committed()
    await task.close(commit=False)
    counts.open(sink.commits[0], 100, metrics)
    assert counted(metrics) == {"in": 3, "quarantined": 1}


async def test_a_transaction_that_was_cancelled_is_counted_when_its_commit_is_found() -> None:
    class NeverAnswers(Sink):
        async def publish_and_commit(self, *batch_and_commit: Any) -> None:
            await super().publish_and_commit(*batch_and_commit)
            await asyncio.Event().wait()

    counts, metrics, sink = PartitionCounts("t", 0), Metrics(), NeverAnswers()
    task = task_with(counts, metrics, sink)
    await task.process(MESSAGES)
    committing = asyncio.create_task(task.commit())
    await asyncio.sleep(0.01)
    committing.cancel()
    await asyncio.wait({committing})
    await task.close(commit=False)
    assert counted(metrics) == {"in": 12}
    counts.open(sink.commits[0], 100, metrics)
    assert counted(metrics) == DECIDED


async def test_if_another_worker_has_committed_since_nothing_is_counted_and_the_log_says_of_how_many_records(
    warnings: list[dict[str, Any]],
) -> None:
    counts, metrics, sink = PartitionCounts("t", 0), Metrics(), LosesResponse()
    await lost(counts, metrics, sink)
    found = sink.commits[0]
    counts.open(replace(found, at_ms=found.at_ms + 1), 100, metrics)
    assert warnings == [{"topic": "t", "partition": 0, "records": 9}]
    counts.open(found, 100, metrics)
    assert counted(metrics) == {"in": 12}


async def test_a_process_that_ends_logs_the_number_of_records_whose_outcome_is_not_known(
    warnings: list[dict[str, Any]],
) -> None:
    process, metrics = ProcessCounts(), Metrics()
    for partition in range(2):
        counts = process.of(TopicPartition("t", partition))
        assert counts is process.of(TopicPartition("t", partition))
        await lost(counts, metrics, LosesResponse())
    process.log_unconfirmed()
    assert warnings == [{"records": 18}]
    assert counted(metrics) == {"in": 24}


async def test_the_outcome_of_a_transaction_that_was_refused_is_known(warnings: list[dict[str, Any]]) -> None:
    process, metrics = ProcessCounts(), Metrics()
    task = task_with(process.of(TopicPartition("t", 0)), metrics, Sink(errors=[InputError("another producer")]))
    await task.process(MESSAGES)
    with pytest.raises(InputError):
        await task.commit()
    process.log_unconfirmed()
    assert warnings == []
