"""Attackers of a release in the order of the input: who know a place in that order, or wait for a crash."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.kafka.metadata import CommittedState, decode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import PartitionTask
from shoal.kafka.transactions import TransactionBatch, TransactionSink
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.streams import BlockDecisions, DecidedCluster, PartitionPipeline
from support.attack_results import RULES, impossible, measured
from support.attacking import ADULT, Message, adult, policy_of, quasi, standard_error, tagged
from support.by_night import at_night
from support.partition_tasks import partition_task

COUNT, K, DELTA = 4000, 10, 100
QUASI = {name: quasi(*bounds, integer=True) for name, bounds in ADULT.items()}


def ordered(policy: Policy, *, reveals: bool = False) -> Policy:
    return replace(policy, stream=replace(policy.require_stream(), release="ordered", reveal_order=reveals))


def tags_in_turn(policy: Policy, folder: Path) -> list[tuple[str, str]]:
    """Tags of the records that left, as they came, and as the output shows them in that order."""
    records = tagged(adult(folder, COUNT))
    decoder, flow, rows = JsonDecoder(policy), PartitionPipeline(policy, JsonEncoder(policy)), []
    for start in range(0, COUNT, 500):
        block = decoder.decode([json.dumps(record).encode() for record in records[start : start + 500]])
        places = np.arange(start, start + len(block))
        rows += left_with(flow.push(block, np.column_stack([np.zeros_like(places), places])))
    rows += left_with(flow.flush())
    assert [place for place, _ in rows] == sorted(place for place, _ in rows), "a record was displaced"
    assert len(rows) > COUNT - K
    return [(str(records[place]["tag"]), str(json.loads(row)["tag"])) for place, row in rows]


def left_with(decisions: BlockDecisions) -> list[tuple[int, bytes]]:
    return list(zip(decisions.released, decisions.rows, strict=True))


@pytest.mark.parametrize("position", [0.01, *at_night(0.0)])
@pytest.mark.parametrize("rule", RULES)
def test_the_rank_of_a_record_does_not_identify_it(data_dir: Path, position: float, rule: str) -> None:
    plain = policy_of(QUASI, K, delta=DELTA, position=position)
    policy = ordered(replace(plain, stream=replace(plain.require_stream(), rule=rule)))
    hits = [float(own == shown) for own, shown in tags_in_turn(policy, data_dir)]
    assert all(own == shown for own, shown in tags_in_turn(ordered(policy, reveals=True), data_dir)), (
        "with the order revealed the attack finds everybody: it works"
    )
    measured(
        "R3",
        f"link of a record of Adult, position {position}",
        knows="place of the target in the order of the input, exactly",
        success=float(np.mean(hits)),
        bound=1 / K,
        error=standard_error(hits),
        beside="with reveal_order: true 1.000",
        source="1/k",
        rule=rule,
    )


class Disk(TransactionSink):
    """What a broker would keep of one partition: rows, evidence and progress, each time together."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.clusters: list[DecidedCluster] = []
        self.offset = (0, "")

    async def publish_and_commit(
        self,
        batch: TransactionBatch,
        committed_offset: int,
        metadata: str,
        at_ms: int,  # noqa: ARG002
    ) -> None:
        self.rows += batch.rows
        self.clusters += batch.clusters
        self.offset = (committed_offset, metadata)

    async def close(self) -> None:
        pass


async def lived(policy: Policy, messages: list[Message], *, dies: bool) -> Disk:
    """Read one record after the other; with ``dies`` every transaction is the last one of its process."""
    disk, clock = Disk(), [1_800_000_000.0]
    commit = CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, 1)

    def begun() -> PartitionTask:
        return partition_task(
            "t", 0, policy, JsonDecoder(policy), disk, commit, Metrics(), 0.2, wall_clock=lambda: clock[0]
        )

    task, end = begun(), 1
    while end <= len(messages):
        await task.process([message for message in messages[:end] if message.offset >= task.position])
        clock[0] += 1
        before = disk.offset
        await task.punctuate()
        await asyncio.sleep(0)
        task._collector.check()
        if dies and disk.offset != before:
            await task.close(commit=False)
            commit = decode(disk.offset[1], "t", 0, disk.offset[0])
            task = begun()
        end += 1
    await task.process([message for message in messages if message.offset >= task.position])
    await task.commit(flush=True)
    await task.close(commit=True)
    return disk


@pytest.mark.parametrize("rule", RULES)
def test_a_crash_after_every_transaction_splits_no_cluster(data_dir: Path, rule: str) -> None:
    plain = policy_of(QUASI, 4, delta=20)
    policy = ordered(replace(plain, stream=replace(plain.require_stream(), rule=rule)))
    people = [number % 40 for number in range(150)]
    records = tagged(adult(data_dir, 150), people)
    messages = [Message(offset, json.dumps(record).encode()) for offset, record in enumerate(records)]
    calm = asyncio.run(lived(policy, messages, dies=False))
    stormy = asyncio.run(lived(policy, messages, dies=True))
    assert stormy.rows == calm.rows, "the same rows in the same order, whatever happens in between"
    assert [cluster.offsets for cluster in stormy.clusters] == [cluster.offsets for cluster in calm.clusters]
    whole = Counter(row for cluster in stormy.clusters for row in cluster.rows)
    assert Counter(stormy.rows) == whole
    assert all(len({people[place] for place in cluster.offsets}) >= policy.k for cluster in stormy.clusters)
    impossible(
        "R4", "which records are together is committed with the first that leaves: a crash after every transaction"
    )
