"""Large records: the oldest leave early if the waiting ones hold too many bytes, and decided ones hold none."""

from __future__ import annotations

import asyncio
import json

import pytest
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from support.making import policy_of, quasi, unchanged_field
from support.partition_tasks import Message, RecordingSink, partition_task

pytestmark = pytest.mark.unit

COUNT, SIZE = 150, 50_000
LOG = [
    Message(i, 1, json.dumps({"x": i * 7919 % 1001, "note": f"{i:04}" * (SIZE // 4)}).encode()) for i in range(COUNT)
]


def policy(**stream: int) -> Policy:
    fields = {"x": quasi(0, 1000, integer=True), "note": unchanged_field()}
    return policy_of(fields, privacy={"k": 3}, stream={"delta": 100} | stream)


class Run:
    """A task that processes the log from a commit on, in polls of ``cut`` messages."""

    def __init__(self, policy: Policy, cut: int, commit: CommittedState | None = None) -> None:
        self.sink, self.metrics, self.most_held, now = RecordingSink(), Metrics(), 0, [1.0]
        commit = commit or CommittedState(OffsetState(0, 0), policy.fingerprint, 1)
        decoder = JsonDecoder(policy)
        task = partition_task("t", 0, policy, decoder, self.sink, commit, self.metrics, 0.2, wall_clock=lambda: now[0])

        async def run() -> None:
            for start in range(commit.state.committed_offset, COUNT, cut):
                await task.process(LOG[start : start + cut])
                self.most_held = max(self.most_held, task.waiting_count)
                held = task._pipeline._records._columns.unchanged_fields
                assert sum(map(len, held)) <= (self.most_held + cut) * (SIZE + 20)
                now[0] += 1
                await task.punctuate()
                await asyncio.sleep(0)
            await task.commit(flush=True)

        asyncio.run(run())

    @property
    def clusters(self) -> list[DecidedCluster]:
        return [cluster for batch, _ in self.sink.published for cluster in batch.clusters]

    @property
    def early_count(self) -> float | None:
        return self.metrics.registry.get_sample_value("shoal_clusters_early_total", {"topic": "t", "partition": "0"})


def test_records_leave_early_where_they_hold_too_many_bytes() -> None:
    found = [Run(policy(max_held_bytes=1_000_000), cut) for cut in (7, 60)]
    assert all(12 <= one.most_held <= 20 for one in found)  # of 50 kB each
    assert all(one.early_count for one in found)
    assert found[0].clusters == found[1].clusters
    assert sorted(offset for cluster in found[0].clusters for offset in cluster.offsets) == list(range(COUNT))


def test_a_restart_decides_the_same() -> None:
    held = policy(max_held_bytes=1_000_000)
    whole = Run(held, 15)
    assert len(whole.sink.commits) > 5
    for commit in whole.sink.commits[:-1]:
        again = Run(held, 33, commit).clusters
        assert again == whole.clusters[len(whole.clusters) - len(again) :]
        assert again[0].number == commit.state.next_cluster_number


def test_by_default_records_hold_64_mib() -> None:
    run = Run(policy(), 50)
    assert (run.most_held, run.early_count) == (100, 0)
    assert policy().stream is not None
    assert policy().require_stream().max_held_bytes == 67_108_864
    assert policy(max_held_bytes=67_108_864).fingerprint == policy().fingerprint
    assert policy(max_held_bytes=1_000_000).fingerprint != policy().fingerprint
