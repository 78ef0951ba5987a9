"""Clocks that decide otherwise the second time: random lives under a fake clock, with crashes at every step."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from properties.test_partition_task import START_S, Topic, policy_of, random_log, run
from shoal.kafka.metadata import decode
from shoal.kafka.transactions import TransactionBatch
from support.attack_results import measured


@dataclass
class Watched(Topic):
    """A topic that counts decisions of the clock: each is committed, or tried to be, before it is carried out."""

    drains: int = 0

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        self.drains += decode(metadata, "t", 0, committed_offset).state.flush_at_offset is not None
        await super().publish_and_commit(batch, committed_offset, metadata, at_ms)


def clusters_in(batches: list[TransactionBatch]) -> Counter[tuple[bytes, ...]]:
    """Clusters as the bytes that a reader has."""
    return Counter(tuple(cluster.rows) for batch in batches for cluster in batch.clusters)


@pytest.mark.parametrize(
    ("lives", "fewest_shown", "fewest_drained"), [(60, 100, 30), pytest.param(200, 350, 100, marks=pytest.mark.nightly)]
)
def test_what_a_clock_has_decided_is_decided_alike_after_a_crash(
    lives: int, fewest_shown: int, fewest_drained: int
) -> None:
    shown = other = drained = 0
    for seed in range(lives):
        random = Random(f"clock {seed}")
        log = random_log(random)
        policy = policy_of(3, delta=2 + random.randint(0, 12), position=0.01, max_delay_s=0.8, max_share=1.0)
        topic = Watched(plan=[random.choice(["commit", "commit", "abort", "abort", "unknown"]) for _ in range(40)])
        asyncio.run(run(policy, log, topic, random.randint, [START_S + 100]))
        published, aborted = clusters_in(topic.committed), clusters_in(topic.aborted)
        serials = [json.loads(row)["n"] for rows in published.elements() for row in rows]
        assert len(serials) == len(set(serials)), f"life {seed}: a record left twice"
        shown += sum(aborted.values())
        other += sum(count for rows, count in aborted.items() if rows not in published)
        drained += topic.drains
    assert shown > fewest_shown
    assert drained > fewest_drained, "the clock has hardly ever decided anything"
    measured(
        "R12",
        "clusters of aborted transactions that were never published, under a fake clock",
        knows="what aborted transactions left in the log",
        success=other / shown,
        bound=0.0,
        source="what a clock decides is committed before it is carried out",
    )
