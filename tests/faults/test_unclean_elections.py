"""Unclean elections: a new leader lacks records that were acknowledged. Nothing is published twice after it."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cluster import NODES
from support.faulty_workers import leaks
from support.kafka_broker import holds_for, read_all, wait_for, wait_until
from support.reliability import record
from support.running import SIDE
from support.storms import ACCUSATION, PATIENCE_S, WAVE, Storm, feed, logs, storm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("kernels")]

SETTINGS = ("min.insync.replicas=1", "transaction.state.log.min.isr=1", "unclean.leader.election.enable=true")
"""Topics with three replicas always have one in sync here: only a topic with two has an unclean election."""
OFFSETS_ON_TWO = ("offsets.topic.num.partitions=1", "offsets.topic.replication.factor=2")


async def lose_the_last_records(one: Storm, topic: str, *, kill_worker: bool = False) -> set[tuple[int, int]]:
    """Make a replica the leader that lacks what was appended last; return the rows that were published before."""
    await feed(one.producer, one.deployment, partitions=1)
    (found,) = (await one.brokers.topic_partitions(topic)).values()
    leader = int(found["leader"])
    (other,) = set[int](found["replicas"]) - {leader}
    await one.brokers.end(other, signal.SIGTERM)
    before = await one.deployment.resolved()
    await feed(one.producer, one.deployment, partitions=1)
    await one.until_progress(before + WAVE // 2)
    await wait_until(lambda: _is_quiet(one), PATIENCE_S, "a quiet output")
    before_election = await rows(one)
    if kill_worker:
        one.workers[0].kill()
    await one.brokers.end(leader)
    await one.brokers.start(other)
    await wait_for(lambda: one.brokers.leader(topic), lambda found: found == other, 60, "an unclean election")
    await one.brokers.start(leader)
    return before_election


async def _is_quiet(one: Storm) -> bool:
    before = await one.deployment.resolved()

    async def is_unchanged() -> bool:
        return await one.deployment.resolved() == before

    return await holds_for(is_unchanged, 2)


async def rows(one: Storm) -> set[tuple[int, int]]:
    """Return offset and serial number of each record in the output now."""
    output = await read_all(one.brokers.bootstrap, one.deployment.topics["output"])
    return {(message.offset, json.loads(message.value or b"")["serial"]) for message in output}


async def twice(one: Storm, before: set[tuple[int, int]]) -> int:
    """Return how many records are twice for a reader that has read the output before the election and after it."""
    seen = Counter(serial for _, serial in before | await rows(one))
    return sum(count - 1 for count in seen.values())


async def refused(one: Storm, words: str) -> None:
    """Wait until the worker has ended with exit code 2 and these words."""
    (worker,) = one.workers
    await wait_until(lambda: worker.is_dead, PATIENCE_S, "the refusal")
    assert worker.code == 2, worker.said[-3000:]
    assert words in worker.said, worker.said[-3000:]
    worker.process = None  # its end was expected


async def noted(one: Storm, before: set[tuple[int, int]], happened: str) -> None:
    """See that no record is published twice and that nothing has leaked, and record the result."""
    again, canaries, accusations = await twice(one, before), len(await leaks(one.deployment)), _accusations(one)
    gone = sum(worker.gone for worker in one.workers)
    assert (again, canaries, accusations, gone) == (0, 0, 0, 0)
    record(
        one.fault,
        happened,
        records=one.deployment.serial,
        twice=again,
        lost=-1,
        under_k=-1,
        canaries=canaries,
        accusations=accusations,
        gone=gone,
    )


def _accusations(one: Storm) -> int:
    return logs(one.deployment.folder).count(ACCUSATION)


async def test_the_output_loses_its_last_transactions(tmp_path: Path) -> None:
    pair = {"output": NODES[:2]}
    async with storm("unclean-output", tmp_path, settings=SETTINGS, partitions=1, workers=1, replicas=pair) as one:
        before = await lose_the_last_records(one, one.deployment.topics["output"])
        after = await rows(one)
        lost = len(before - after)
        assert lost > WAVE // 4, "hardly a record was lost: the test tests nothing"
        await feed(one.producer, one.deployment, partitions=1)
        await wait_for(
            lambda: rows(one),
            lambda found: len(found) > len(after) + WAVE // 2,
            PATIENCE_S,
            "new records in the output",
        )
        (worker,) = one.workers
        assert worker.terminate() == 0
        assert "the brokers have lost published records" in one.said
        await noted(one, before, f"the brokers lost {lost} published records; the worker logged it, and continued")


@pytest.mark.parametrize(
    ("fault", "configs"),
    [
        ("unclean-offsets", {}),
        ("unclean-offsets-append-time", {topic: {"message.timestamp.type": "LogAppendTime"} for topic in SIDE}),
    ],
)
async def test_the_group_loses_its_last_commits(tmp_path: Path, fault: str, configs: dict[str, Any]) -> None:
    options: dict[str, Any] = {"settings": SETTINGS + OFFSETS_ON_TWO, "partitions": 1, "workers": 1}
    async with storm(fault, tmp_path, configs=configs, **options) as one:
        before = await lose_the_last_records(one, "__consumer_offsets", kill_worker=True)
        one.workers[0].start()
        await refused(one, "holds records that were published after the commit")
        await noted(one, before, "the start was refused with exit code 2: the output holds records after the commit")


async def test_the_copy_has_the_commits_that_the_group_loses(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": SETTINGS + OFFSETS_ON_TWO, "partitions": 1, "workers": 1}
    async with storm("unclean-offsets-copy", tmp_path, has_copy=True, **options) as one:
        before = await lose_the_last_records(one, "__consumer_offsets", kill_worker=True)
        one.workers[0].start()
        await feed(one.producer, one.deployment, partitions=1)
        await one.until_progress(len(before) + WAVE // 2)
        assert "continuing from the copy" in one.said
        assert await twice(one, before) == 0
        await one.settled("the start continued from the copy of the progress")


async def test_the_input_loses_records_that_were_read(tmp_path: Path) -> None:
    pair = {"input": NODES[:2]}
    async with storm("unclean-input", tmp_path, settings=SETTINGS, partitions=1, workers=1, replicas=pair) as one:
        before = await lose_the_last_records(one, one.deployment.topics["input"])
        # Another producer: the sequence numbers of the first one do not fit the log any more.
        await one.deployment.put(WAVE, 1)
        await refused(one, "or its log was truncated")
        await noted(one, before, "the worker ended with exit code 2: the log was truncated")
