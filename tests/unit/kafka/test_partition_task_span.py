"""Long logs: the oldest records leave early if metadata would not fit, and nothing grows with their number."""

from __future__ import annotations

import asyncio
import gc
import json
from dataclasses import dataclass, field

import pytest
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState, decode, largest_span
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import block_length
from shoal.kafka.transactions import TransactionBatch, TransactionSink
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from support.making import SUBJECT, policy_of, quasi, unchanged_field
from support.partition_tasks import Message, partition_task

pytestmark = pytest.mark.unit


BLOCK_RECORDS = 512
LIMIT_BYTES = 4096

DELTA = 2000
COUNT = 5000
NOW_MS, YEAR_MS = 1_000_000_000_000, 31_536_000_000


@dataclass
class Topic(TransactionSink):
    clusters: list[DecidedCluster] = field(default_factory=list)
    longest: int = 0
    most_incomplete: int = 0

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        assert committed_offset >= 0
        assert at_ms > 0
        self.clusters += batch.clusters
        self.longest = max(self.longest, len(metadata))
        state = decode(metadata, "t", 0, committed_offset).state
        self.most_incomplete = max(self.most_incomplete, len(state.incomplete))

    async def close(self) -> None:
        pass


def policy() -> Policy:
    attributes = {"x": quasi(0, 1000, integer=True)}
    return policy_of(attributes, privacy={"k": 3}, stream={"delta": DELTA})


def live(gap: int, cut: int, ahead: int | None = None) -> tuple[Topic, Metrics]:
    """Process a log in polls of ``cut`` messages; message ``ahead`` is dated a year ahead."""
    topic, metrics = Topic(), Metrics()
    commit = CommittedState(OffsetState(0, 0), policy().fingerprint, 1)
    now = [NOW_MS / 1000]
    task = partition_task(
        "t", 0, policy(), JsonDecoder(policy()), topic, commit, metrics, 0.2, wall_clock=lambda: now[0]
    )
    times = [NOW_MS + YEAR_MS if i == ahead else 1 for i in range(COUNT)]
    log = [Message(i * gap, times[i], json.dumps({"x": i * 7919 % 1001}).encode()) for i in range(COUNT)]

    async def run() -> None:
        for start in range(0, COUNT, cut):
            await task.process(log[start : start + cut])
            now[0] += 1
            await task.punctuate()
            await asyncio.sleep(0)
        await task.commit(flush=True)

    asyncio.run(run())
    return topic, metrics


def early(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("shoal_clusters_early_total", {"topic": "t", "partition": "0"}) or 0


def test_a_log_full_of_gaps_makes_the_oldest_leave_early() -> None:
    gap = 2 * largest_span(DELTA, BLOCK_RECORDS) // DELTA
    topic, metrics = live(gap, 100)
    assert early(metrics) > 0
    assert topic.longest <= LIMIT_BYTES
    places = sorted(place for cluster in topic.clusters for place in cluster.offsets)
    assert places == [i * gap for i in range(COUNT)]
    for cut in (333, COUNT):
        again, _ = live(gap, cut)
        assert [c.rows for c in again.clusters] == [c.rows for c in topic.clusters]
        assert again.longest <= LIMIT_BYTES


def test_without_gaps_no_record_leaves_early_and_a_block_that_is_committed_before_it_is_decided_on_is_small() -> None:
    topic, metrics = live(1, COUNT, ahead=2500)
    assert early(metrics) == 0
    # The record is dated ahead, so the block that begins at offset 2048 is committed when it is read.
    assert DELTA < topic.most_incomplete <= DELTA + 1 + BLOCK_RECORDS
    assert topic.longest <= LIMIT_BYTES


def test_blocks_are_small_where_they_may_be_committed_before_they_are_decided_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.kafka.task.is_compiled", lambda: True)
    hour_ms = 3_600_000
    log = [Message(offset, NOW_MS + hour_ms, b"") for offset in range(3000)]
    assert block_length(log, NOW_MS, 0, hands_over=False) == 2048
    assert block_length(log, NOW_MS, 0, hands_over=True) == 512
    late = [*log[:2047], Message(2047, NOW_MS + hour_ms + 1, b"")]
    assert block_length([*late, *log], NOW_MS, 0, hands_over=False) == 512
    assert block_length([*log[:2048], *late], NOW_MS, 0, hands_over=False) == 2048


def test_interpreted_blocks_are_the_smaller_the_more_records_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.task.is_compiled", lambda: False)
    log = [Message(offset, NOW_MS, b"") for offset in range(3000)]
    lengths = [block_length(log, NOW_MS, held, hands_over=False) for held in (0, 100, 999, 1_000_000)]
    assert lengths == [100, 100, 25, 1]


# ---------------------------------------------------------------- what a task leaves behind


START_MS = 1_700_000_000_000
POLL_RECORDS = 300


class Sink(TransactionSink):
    """Commits everything and keeps nothing."""

    def __init__(self) -> None:
        self.rows = 0

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        assert at_ms > 0
        assert committed_offset >= 0
        assert metadata
        self.rows += len(batch.rows)

    async def close(self) -> None:
        pass


def policy_with(release: str) -> Policy:
    attributes = {"who": SUBJECT | {"type": "string"}, "x": quasi(), "note": unchanged_field("string")}
    stream, steering = {"delta": 20, "release": release}, {"position": {"target_span": 2.0}}
    return policy_of(attributes, privacy={"k": 3}, stream=stream, steering=steering)


def poll(number: int) -> list[Message]:
    offsets = range(number * POLL_RECORDS, (number + 1) * POLL_RECORDS)
    return [
        Message(
            offset,
            START_MS + offset,
            # One record in fifty does not fit the policy.
            json.dumps({"who": f"p{offset}", "x": offset * 7 % 101 if offset % 50 else "", "note": "n"}).encode(),
        )
        for offset in offsets
    ]


@pytest.mark.parametrize("release", ["cluster", "ordered"])
async def test_a_long_run_leaves_no_cycles_and_does_not_grow(release: str) -> None:
    policy, sink, now = policy_with(release), Sink(), [START_MS / 1000]
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
            garbage = gc.collect()
            return garbage, len(gc.get_objects())
        finally:
            gc.enable()

    await run(0, 5)
    few, alive_before = await run(5, 15)
    many, alive_after = await run(15, 115)
    assert sink.rows > 100 * POLL_RECORDS * 0.9
    assert many <= few + 10
    assert alive_after <= alive_before + 100
    await task.close(commit=True)
