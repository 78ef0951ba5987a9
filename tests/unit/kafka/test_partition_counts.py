"""What the tasks of a process count: records once, also after a failure, dropped messages, and unknown values."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerUnavailableError, InputError
from shoal.formats import JsonDecoder
from shoal.kafka import transactions
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import PartitionTask
from shoal.kafka.transactions import PartitionCounts, ProcessCounts
from shoal.observability import Metrics
from shoal.policy import Policy, Scale
from shoal.stage.faust_adapter import BufferedMessage
from support.making import SUBJECT, policy_of, quasi
from support.partition_tasks import START_MS, Message, partition_task, task_of
from support.partition_tasks import RecordingSink as Sink
from support.scales import AREAS, attribute, policy_with

pytestmark = pytest.mark.unit


MAX_AHEAD_MS = 3_600_000
POLICY = policy_of({"who": SUBJECT, "x": quasi(0, 100, integer=True)}, stream={"delta": 4})


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
    counts: PartitionCounts,
    metrics: Metrics,
    sink: Sink,
    commit: CommittedState | None = None,
    log_end: int = 100,
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
    assert metrics.refusals.texts(3) == ["1 of 3 undecodable: a part of a JSON object that stands on several lines"]
    sink = Sink()
    task = task_with(counts, metrics, sink)
    await task.process([record(0), invalid(1), *records(range(2, 6))])
    await task.commit(flush=True)
    assert counted(metrics) == {"in": 6, "released": 5, "quarantined": 1}
    assert metrics.refusals.texts(6) == ["1 of 6 undecodable: a part of a JSON object that stands on several lines"]


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


async def test_a_commit_that_was_made_again_under_another_policy_is_the_same() -> None:
    counts, metrics, sink = PartitionCounts("t", 0), Metrics(), LosesResponse()
    await lost(counts, metrics, sink)
    (found,) = sink.commits
    assert counts.sent is not None
    adapted = replace(found, state=replace(found.state, adaptive_state=b"weight"))
    counts.sent = counts.sent._replace(commit=adapted)
    counts.open(found.under_policy("cd" * 8), 100, metrics)
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
        await task.commit()
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


# ---------------------------------------------------------------- dropped messages


def policy(*, drops: bool = True) -> Policy:
    action = "drop" if drops else "quarantine"
    attributes = {"who": SUBJECT, "x": quasi(0, 1000, integer=True)}
    return policy_of(attributes, unwrap="debezium", deletes=action, tombstones=action, stream={"delta": 6})


def message(offset: int, value: Any) -> BufferedMessage:
    return BufferedMessage(offset, START_MS, None, None if value is None else json.dumps(value).encode(), ())


def change(offset: int) -> BufferedMessage:
    return message(offset, {"op": "c", "after": {"who": f"p{offset}", "x": offset * 37 % 101}})


def delete(offset: int) -> BufferedMessage:
    return message(offset, {"op": "d", "before": {"who": "p"}, "after": None})


def tombstone(offset: int) -> BufferedMessage:
    return message(offset, None)


def topic(count: int) -> list[BufferedMessage]:
    """Return messages of which two in five are a delete and its tombstone."""
    kinds = (change, change, delete, tombstone, change)
    return [kinds[offset % 5](offset) for offset in range(count)]


def clusters(sink: Sink) -> list[list[int]]:
    return [cluster.offsets for batch, _ in sink.published for cluster in batch.clusters]


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["outcome"], sample.labels["reason"]): sample.value
        for family in metrics.records.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


async def test_dropped_messages_are_counted_apart_and_complete_their_offsets() -> None:
    sink = Sink()
    task, metrics = task_of(policy(), sink)
    await task.process(topic(25))
    assert samples(metrics)["dropped", "deletes"] == 0, "not before they are committed"
    await task.commit(flush=True)
    assert samples(metrics) == {
        ("in", ""): 15,
        ("released", ""): 15,
        ("dropped", "deletes"): 5,
        ("dropped", "tombstones"): 5,
        ("dropped", "skip"): 0,
        ("suppressed", "suppressed"): 0,
        ("quarantined", "undecodable"): 0,
        ("quarantined", "invalid"): 0,
        ("quarantined", "too_large"): 0,
    }
    assert metrics.totals() == {"in": 15, "released": 15, "suppressed": 0, "quarantined": 0, "dropped": 10}
    assert [entry for batch, _ in sink.published for entry in batch.unpublished] == []
    assert sorted(offset for members in clusters(sink) for offset in members) == [
        offset for offset in range(25) if offset % 5 not in {2, 3}
    ]
    assert sink.published[-1][1].committed_offset == 25
    assert metrics.refusals.total == 0


async def test_a_dropped_message_takes_no_position() -> None:
    with_drops, without = Sink(), Sink()
    for sink, kept in ((with_drops, topic(60)), (without, [one for one in topic(60) if one.offset % 5 not in {2, 3}])):
        task, _ = task_of(policy(), sink)
        await task.process(kept)
        await task.commit(flush=True)
    assert clusters(with_drops) == clusters(without)
    assert len(clusters(with_drops)) > 5


@pytest.mark.parametrize("read_before", [24, 33])
async def test_a_restart_decides_the_same_clusters_and_counts_no_dropped_message_again(read_before: int) -> None:
    whole, parts = Sink(), Sink()
    task, _ = task_of(policy(), whole)
    await task.process(topic(60))
    await task.commit(flush=True)
    first, before = task_of(policy(), parts)
    await first.process(topic(read_before))
    await first.commit()
    second, after = task_of(policy(), parts, parts.published[-1][1])
    await second.process([one for one in topic(60) if one.offset >= second.position])
    await second.commit(flush=True)
    assert clusters(parts) == clusters(whole)
    assert sum(samples(one).get(("dropped", "deletes"), 0) for one in (before, after)) == 12


# ---------------------------------------------------------------- values that a taxonomy lacks


HOUR_MS = 3_600_000


def unknown_policy(unknown: str = "root") -> Policy:
    areas = attribute("area", Scale.NOMINAL, taxonomy=AREAS, missing="group", unknown=unknown)
    return replace(policy_with(areas, attribute("city", Scale.NOMINAL), k=2, delta=6))


def unknown_message(offset: int, area: str | None, timestamp: int = START_MS) -> BufferedMessage:
    return BufferedMessage(offset, timestamp, None, json.dumps({"area": area, "city": "X"}).encode(), ())


def unknown_topic(count: int) -> list[BufferedMessage]:
    """Return messages of which every third has an area that the taxonomy lacks, and every fifth none."""
    return [unknown_message(i, "ZZ" if i % 3 == 0 else None if i % 5 == 0 else "AK") for i in range(count)]


async def test_unknown_values_are_counted_by_attribute_and_published_in_steps() -> None:
    task, metrics = task_of(unknown_policy(), Sink())
    labels = {"attribute": "area", "topic": "t", "partition": "0"}
    await task.process(unknown_topic(30))
    await task.commit()
    assert metrics.unknown_totals == {"area": 10}
    assert metrics.registry.get_sample_value("shoal_values_unknown_total", labels) == 0
    await task.process([unknown_message(30 + i, "AK") for i in range(60)])
    await task.commit(flush=True)
    assert metrics.unknown_totals == {"area": 10}
    assert metrics.registry.get_sample_value("shoal_values_unknown_total", labels) == 10


async def test_no_value_of_a_refused_record_is_counted() -> None:
    task, metrics = task_of(unknown_policy("quarantine"), Sink())
    await task.process(unknown_topic(30))
    assert metrics.totals()["in"] == 30
    assert metrics.unknown_totals == {}
    task, metrics = task_of(unknown_policy(), Sink())
    await task.process(
        [unknown_message(0, "ZZ"), unknown_message(1, "ZZ", START_MS + 2 * HOUR_MS), unknown_message(2, "AK")]
    )
    assert metrics.unknown_totals == {"area": 1}


@pytest.mark.parametrize("read_before", [10, 17, 29])
async def test_no_value_is_counted_again_after_a_restart(read_before: int) -> None:
    sink = Sink()
    first, before = task_of(unknown_policy(), sink)
    await first.process(unknown_topic(read_before))
    await first.commit()
    assert sink.published
    second, after = task_of(unknown_policy(), sink, sink.published[-1][1])
    second.restore(0)
    assert second.position < read_before
    await second.process([one for one in unknown_topic(60) if one.offset >= second.position])
    await second.commit(flush=True)
    assert before.unknown_totals["area"] + after.unknown_totals["area"] == 20


async def test_no_value_is_counted_again_after_a_task_that_failed() -> None:
    counts, metrics = PartitionCounts("t", 0), Metrics()
    for _ in range(2):
        task, _ = task_of(unknown_policy(), Sink(), metrics=metrics, counts=counts)
        await task.process(unknown_topic(30))
        await task.close(commit=False)
    assert metrics.unknown_totals == {"area": 10}
