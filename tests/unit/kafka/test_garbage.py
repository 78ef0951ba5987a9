"""What a partition task leaves behind: no reference cycles, and nothing that grows with the number of records."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState
from shoal.kafka.transactions import TransactionBatch, TransactionSink
from shoal.observability import Metrics
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi, unchanged_field
from support.messages import Message
from support.partition_tasks import partition_task

pytestmark = pytest.mark.unit

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


@contextmanager
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
        with without_collections():
            for number in range(first, last):
                await task.process(poll(number))
                now[0] += 1
                await task.punctuate()
                await asyncio.sleep(0)
            garbage = gc.collect()
            return garbage, len(gc.get_objects())

    await run(0, 5)
    few, alive_before = await run(5, 15)
    many, alive_after = await run(15, 115)
    assert sink.rows > 100 * POLL_RECORDS * 0.9
    assert many <= few + 10
    assert alive_after <= alive_before + 100
    await task.close(commit=True)
