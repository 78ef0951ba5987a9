"""Long logs: the oldest records leave early if metadata would not fit, and nothing grows with their number."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState, encode, largest_span
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import block_length, is_any_ahead
from shoal.observability import Metrics
from support.making import SUBJECT, policy_of, quasi, unchanged_field
from support.partition_tasks import START_MS, Message, RecordingSink, partition_task

pytestmark = pytest.mark.unit


BLOCK_RECORDS = 512
LIMIT_BYTES = 4096
DELTA, COUNT = 600, 2000
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are as long as with compiled kernels."""
    monkeypatch.setattr("shoal.kafka.task.is_compiled", lambda: True)


def live(gap: int, cut: int, ahead: int | None = None) -> tuple[RecordingSink, float]:
    """Process a log in polls of ``cut`` messages; message ``ahead`` is dated a year ahead. Count early clusters."""
    policy = policy_of({"x": quasi(0, 1000, integer=True)}, privacy={"k": 3}, stream={"delta": DELTA})
    sink, metrics, now = RecordingSink(), Metrics(), [START_MS / 1000]
    commit = CommittedState(OffsetState(0, 0), policy.fingerprint, 1)
    decoder = JsonDecoder(policy)
    task = partition_task("t", 0, policy, decoder, sink, commit, metrics, 0.2, wall_clock=lambda: now[0])
    times = [START_MS + 8766 * HOUR_MS if i == ahead else 1 for i in range(COUNT)]
    log = [Message(i * gap, times[i], json.dumps({"x": i * 7919 % 1001}).encode()) for i in range(COUNT)]

    async def run() -> None:
        for start in range(0, COUNT, cut):
            await task.process(log[start : start + cut])
            now[0] += 1
            await task.punctuate()
            await asyncio.sleep(0)
        await task.commit(flush=True)

    asyncio.run(run())
    assert max(len(encode(one, "t", 0)) for one in sink.commits) <= LIMIT_BYTES
    labels = {"topic": "t", "partition": "0"}
    return sink, metrics.registry.get_sample_value("shoal_clusters_early_total", labels) or 0


def test_a_log_full_of_gaps_makes_the_oldest_leave_early() -> None:
    gap = 2 * largest_span(DELTA, BLOCK_RECORDS) // DELTA
    found = []
    for cut in (100, COUNT):
        sink, early_count = live(gap, cut)
        assert early_count > 0
        clusters = [cluster for batch, _ in sink.published for cluster in batch.clusters]
        assert sorted(place for cluster in clusters for place in cluster.offsets) == [i * gap for i in range(COUNT)]
        found.append([cluster.rows for cluster in clusters])
    assert found[0] == found[1]


def test_without_gaps_no_record_leaves_early_and_a_block_that_is_committed_before_it_is_decided_on_is_small() -> None:
    sink, early_count = live(1, COUNT, ahead=1200)
    assert early_count == 0
    # The record is dated ahead, so the block that begins at offset 1024 is committed when it is read.
    assert DELTA < max(len(state.incomplete) for _, state in sink.published) <= DELTA + 1 + BLOCK_RECORDS


def test_blocks_are_small_where_they_may_be_committed_before_they_are_decided_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.kafka.task.is_compiled", lambda: True)
    assert block_length(0, is_small=False) == 2048
    assert block_length(0, is_small=True) == 512
    log = [Message(offset, START_MS + HOUR_MS, b"") for offset in range(3)]
    assert not is_any_ahead(log, START_MS)
    assert is_any_ahead([*log, Message(3, START_MS + HOUR_MS + 1, b"")], START_MS)


def test_interpreted_blocks_are_the_smaller_the_more_records_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.task.is_compiled", lambda: False)
    lengths = [block_length(held, is_small=False) for held in (0, 100, 999, 1_000_000)]
    assert lengths == [100, 100, 25, 1]


POLL_RECORDS = 100


def poll(number: int) -> list[Message]:
    """Return messages, of which one in fifty does not fit the policy."""
    offsets = range(number * POLL_RECORDS, (number + 1) * POLL_RECORDS)
    values = [{"who": f"p{offset}", "x": offset * 7 % 101 if offset % 50 else "", "note": "n"} for offset in offsets]
    return [
        Message(offset, START_MS + offset, json.dumps(value).encode())
        for offset, value in zip(offsets, values, strict=True)
    ]


@pytest.mark.parametrize("release", ["cluster", "ordered"])
async def test_a_long_run_leaves_no_cycles_and_does_not_grow(release: str) -> None:
    attributes = {"who": SUBJECT | {"type": "string"}, "x": quasi(), "note": unchanged_field("string")}
    stream, steering = {"delta": 20, "release": release}, {"position": {"target_span": 2.0}}
    policy = policy_of(attributes, privacy={"k": 3}, stream=stream, steering=steering)
    sink, now = RecordingSink(), [START_MS / 1000]
    commit = CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, START_MS)
    task = partition_task("t", 0, policy, JsonDecoder(policy), sink, commit, Metrics(), 0.2, wall_clock=lambda: now[0])

    async def run(first: int, last: int) -> tuple[int, int]:
        """Return how many objects a collection found after these polls, and how many were left alive."""
        gc.collect()
        gc.disable()
        try:
            for number in range(first, last):
                await task.process(poll(number))
                now[0] += 1
                await task.punctuate()
                await asyncio.sleep(0)
                for kept in (sink.published, sink.commits, sink.times):
                    kept.clear()
            garbage = gc.collect()
            return garbage, len(gc.get_objects())
        finally:
            gc.enable()

    await run(0, 5)
    few, alive_before = await run(5, 15)
    many, alive_after = await run(15, 115)
    assert many <= few + 10
    assert alive_after <= alive_before + 100
    assert task.tracker.next_cluster_number > 100 * POLL_RECORDS * 0.9 / 5
    await task.close(commit=True)
