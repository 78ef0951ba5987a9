"""A partition task whose policy drops deletes and messages without a value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.stage.faust_adapter import BufferedMessage
from support.making import SUBJECT, policy_of, quasi
from support.partition_tasks import START_MS, RecordingSink, task_of

pytestmark = pytest.mark.unit


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


def clusters(sink: RecordingSink) -> list[list[int]]:
    return [cluster.offsets for batch, _ in sink.published for cluster in batch.clusters]


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["outcome"], sample.labels["reason"]): sample.value
        for family in metrics.records.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


async def test_dropped_messages_are_counted_apart_and_complete_their_offsets() -> None:
    sink = RecordingSink()
    task, metrics = task_of(policy(), sink)
    await task.process(topic(25))
    await task.commit(flush=True)
    assert samples(metrics) == {
        ("in", ""): 15,
        ("released", ""): 15,
        ("dropped", "deletes"): 5,
        ("dropped", "tombstones"): 5,
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


async def test_quarantined_deletes_and_tombstones_have_references() -> None:
    sink = RecordingSink()
    task, metrics = task_of(policy(drops=False), sink)
    await task.process(topic(10))
    await task.commit(flush=True)
    references = [(entry.offset, entry.reason) for batch, _ in sink.published for entry in batch.unpublished]
    assert references == [(2, "invalid"), (3, "undecodable"), (7, "invalid"), (8, "undecodable")]
    assert metrics.totals() == {"in": 10, "released": 6, "suppressed": 0, "quarantined": 4}


async def test_dropped_messages_alone_move_the_committed_offset() -> None:
    sink = RecordingSink()
    task, metrics = task_of(policy(), sink)
    await task.process([delete(0), tombstone(1)])
    await task.commit()
    assert [(bool(batch), state.committed_offset) for batch, state in sink.published] == [(False, 2)]
    assert samples(metrics)["dropped", "tombstones"] == 1


async def test_a_dropped_message_takes_no_position() -> None:
    with_drops, without = RecordingSink(), RecordingSink()
    for sink, kept in ((with_drops, topic(60)), (without, [one for one in topic(60) if one.offset % 5 not in {2, 3}])):
        task, _ = task_of(policy(), sink)
        await task.process(kept)
        await task.commit(flush=True)
    assert clusters(with_drops) == clusters(without)
    assert len(clusters(with_drops)) > 5


@pytest.mark.parametrize("read_before", [3, 9, 17, 24, 33])
async def test_a_restart_decides_the_same_clusters(read_before: int) -> None:
    whole, parts = RecordingSink(), RecordingSink()
    task, _ = task_of(policy(), whole)
    await task.process(topic(60))
    await task.commit(flush=True)
    first, before = task_of(policy(), parts)
    await first.process(topic(read_before))
    await first.commit()
    state = parts.published[-1][1] if parts.published else None  # with records held alone, nothing is committed
    second, after = task_of(policy(), parts, state)
    second.restore(0)
    await second.process([one for one in topic(60) if one.offset >= second.position])
    await second.commit(flush=True)
    assert clusters(parts) == clusters(whole)
    dropped = [samples(one) for one in (before, after)]
    assert sum(one.get(("dropped", "deletes"), 0) for one in dropped) == 12
    assert sum(one.get(("dropped", "tombstones"), 0) for one in dropped) == 12


async def test_what_was_not_committed_was_not_dropped() -> None:
    sink = RecordingSink()
    task, metrics = task_of(policy(), sink)
    await task.process(topic(10))
    assert samples(metrics)["dropped", "deletes"] == 0
    await task.close(commit=False)
