"""The service among others: members of its group, strangers in it, drains beside it, storms of restarts, full speed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from shoal.errors import BrokerError, InputError, PolicyError
from shoal.kafka import StartOptions
from shoal.kafka.metadata import encode
from shoal.kafka.transactions import TransactionalProducer, TransactionBatch
from support.kafka_broker import create_topic, holds_for, wait_until
from support.running import Process, Stage
from support.topic_changes import add_partitions, put_in_new_partition

DRAIN = StartOptions(reset="earliest", drain=True)
LATEST = StartOptions(reset="latest")


def shares(processes: list[Process]) -> list[set[int]]:
    """Which partitions each process holds, by its log."""
    held: list[set[int]] = []
    for process in processes:
        mine: set[int] = set()
        for line in process.said.splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "partition opened":
                mine.add(event["partition"])
            if event.get("event") == "partition closed":
                mine.discard(event["partition"])
        held.append(mine)
    return held


async def until_shared(processes: list[Process], partitions: int) -> None:
    def is_shared() -> bool:
        held = shares(processes)
        return all(held) and sum(map(len, held)) == partitions == len(set().union(*held))

    await wait_until(is_shared, 30, "a partition for each worker")


# ---------------------------------------------------------------- members of the group


@pytest.mark.parametrize("kind", ["dynamic", "static"])
async def test_a_worker_continues_the_partitions_of_a_worker_that_has_stopped(
    bootstrap: str, tmp_path: Path, kind: str
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=4, kafka={"session_timeout_ms": 3000})
    names = [{"INSTANCE_ID": f"{stage.group}-{number}"} if kind == "static" else {} for number in range(2)]
    async with (
        stage.process("--from", "earliest", name="one", **names[0]) as one,
        stage.process("--from", "earliest", name="two", **names[1]) as two,
    ):
        await until_shared([one, two], 4)
        record_ids = await stage.put(60, *range(4))
        assert await one.terminated(10) == 0
        assert one.lines("stopped")
        # Its transactions are finished: they do not delay a reader of the output.
        record_ids += await stage.put(60, *range(4))
        await wait_until(lambda: shares([two]) == [{0, 1, 2, 3}], 30, "all partitions on the other one")
        assert await two.terminated() == 0
    await stage.drained(record_ids)


async def test_two_deployments_with_one_group_release_no_record_twice(bootstrap: str, tmp_path: Path) -> None:
    """Nor with an output of its own: the progress belongs to the group."""
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    other = Stage(bootstrap, tmp_path / "other", stage.topics | {"output": await create_topic(bootstrap, 2)}, {})
    other.folder.mkdir()
    other.document = stage.document | {"kafka": stage.document["kafka"] | {"output": other.topics["output"]}}
    record_ids = await stage.put(100, *range(2))
    async with stage.run() as one, other.run() as two:
        record_ids += await stage.put(200, *range(2))
        await one.until(lambda: sum(run.total("shoal_records_total", outcome="released") for run in (one, two)) > 300)
    await stage.drained()
    released = [json.loads(row.value or b"")["serial"] for run in (stage, other) for row in await run.read("output")]
    assert sorted(released) == list(range(len(record_ids)))


async def test_a_worker_that_stops_during_a_rebalance_or_while_opening_ends_in_time(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)

    async def hang(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr("shoal.kafka.task_manager.initialize_partition", hang)
    async with stage.run() as run:
        restoring = ["partitions are being restored"]
        await run.until(lambda: run.service.health.reasons() == restoring, "a partition that opens")
        await run.stopped(10)
    # A member that does not come to the rebalance: the group and the joining member wait for it.
    lazy = stage.member(stage.topics["input"], rebalance_timeout_ms=20_000)
    await lazy.start()
    try:
        monkeypatch.setattr(lazy._coordinator, "_on_join_prepare", hang)
        async with stage.run() as run:
            assert await holds_for(lambda: not run.service.health.ready, 1)
            await run.stopped(10)
    finally:
        lazy._coordinator._coordination_task.cancel()
        await asyncio.wait({lazy._coordinator._coordination_task})
        await asyncio.wait_for(asyncio.shield(lazy._client.close()), 30)
        lazy._closed = True


# ---------------------------------------------------------------- strangers in the group


async def test_a_group_member_with_another_protocol_is_reported_with_a_remedy(stage: Stage) -> None:
    async with stage.member(stage.topics["input"], partition_assignment_strategy=[RangePartitionAssignor]):
        with pytest.raises(BrokerError, match=r"members of another kind.*kafka\.group"):
            async with stage.run() as run:
                await run.ended()


async def test_a_commit_by_another_program_is_found_at_the_next_start(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2, kafka={"session_timeout_ms": 2000})
    record_ids = await stage.put(40, *range(2))
    async with stage.run() as run:
        await run.until_read(80)
        # It gets a partition, reads it, and commits offset 40 without metadata of Shoal.
        async with stage.member(stage.topics["input"], auto_offset_reset="latest") as stranger:

            async def committed() -> list[TopicPartition]:
                # Refused during a rebalance, which may give it the other partition.
                with contextlib.suppress(KafkaError):
                    for tp in stranger.assignment():
                        await stranger.commit({tp: 40})
                        return [tp]
                return []

            (taken,) = await wait_until(committed, what="a commit of the stranger")
        with pytest.raises(InputError, match=rf"{taken.topic}-{taken.partition}.*--import.*--skip-to-end"):
            await run.ended()
    outcomes = await stage.outcomes()
    assert set(outcomes) <= set(record_ids)
    assert max(outcomes.values()) == 1


# ---------------------------------------------------------------- an input that changes


async def test_an_input_that_gets_more_partitions_is_checked_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.kafka.topics.WATCH_S", 0.3)
    async with stage.run() as run:
        await run.until_ready()
        await add_partitions(stage, "input", 3)
        with pytest.raises(PolicyError, match="has 1 partition, the input 3: add partitions"):
            await run.ended()
    await add_partitions(stage, "output", 3)
    async with stage.run() as run:
        await run.until_ready()
        record_ids = await put_in_new_partition(stage, 3)
        await run.until_read(len(record_ids))
        await run.until_ready()
    await stage.drained(record_ids)
    assert {message.partition for message in await stage.read()} == {3}


async def test_a_worker_without_a_partition_is_ready_and_says_so(stage: Stage) -> None:
    async with stage.run() as first, stage.run() as second:

        def statuses() -> list[str]:
            return sorted(run.service.health.status for run in (first, second))

        await wait_until(
            lambda: statuses() == ["ready", "ready: in the group, no partition assigned"], what="one idle worker"
        )


async def test_with_from_latest_no_record_of_a_new_partition_is_skipped(stage: Stage) -> None:
    await stage.put(10)  # before the first start
    await stage.started(LATEST)
    assert (await stage.progress(0)).first_partition_count == 1
    record_ids = await put_in_new_partition(stage, 1)
    await stage.started(LATEST, read=30)
    assert (await stage.progress(1)).first_partition_count == 1
    await stage.drained(record_ids)
    assert {partition for partition, _ in await stage.outcomes()} == {1}


async def test_progress_without_the_partition_count_is_taken_up(stage: Stage) -> None:
    await stage.started(LATEST)
    progress = replace(await stage.progress(0), first_partition_count=0)
    await stage.commit(progress.state.committed_offset, encode(progress, stage.topics["input"], 0))
    await put_in_new_partition(stage, 1)
    async with stage.run(LATEST) as run:
        # It is not known whether partition 1 is new, so that --from decides.
        await run.until_ready()
        record_ids = await stage.put(30, 1)
        await run.until_read(30)
    assert (await stage.progress(1)).first_partition_count == 2
    record_ids += await put_in_new_partition(stage, 2)
    await stage.started(LATEST, read=30)
    await stage.drained(record_ids)
    assert set(await stage.outcomes()) == set(record_ids)


# ---------------------------------------------------------------- drains


async def test_a_drain_completes_every_record_and_exits_0(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    record_ids = await stage.put(35, *range(2))
    async with stage.process("--drain", "--from", "earliest") as process:
        assert await process.ended() == 0
        (stopped,) = process.lines("stopped")
        assert (stopped["released"], stopped["held"]) == (70, 0)
    for partition in range(2):
        snapshot = (await stage.progress(partition)).state
        assert (snapshot.incomplete, snapshot.committed_offset, snapshot.flush_at_offset) == ((), 35, None)
    await stage.until_completed(record_ids)


@pytest.mark.parametrize("marks", [False, True], ids=["never written", "only aborted records"])
async def test_a_drain_of_an_empty_topic_exits_0(bootstrap: str, tmp_path: Path, *, marks: bool) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    if marks:
        await stage.put(5, transactional_id=f"{stage.group}-t", abort=True)
    async with stage.run(DRAIN) as run:
        await run.ended()
    assert await stage.read() == []
    assert (await stage.progress(1)).state.incomplete == ()


@pytest.mark.parametrize("kind", ["dynamic", "static"])
async def test_a_drain_beside_a_running_worker_is_refused(bootstrap: str, tmp_path: Path, kind: str) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2, kafka={"session_timeout_ms": 2000})
    member: dict[str, Any] = {} if kind == "dynamic" else {"instance_id": f"{stage.group}-0"}
    async with stage.run(**member) as worker:
        await worker.until_ready()
        record_ids = await stage.put(10, *range(2))
        await worker.until_read(20)
        async with stage.process("--drain", **{name.upper(): value for name, value in member.items()}) as drain:
            assert await drain.ended() == 2
        (line,) = drain.lines("giving up")
        assert line["reason"].startswith(f"--drain: group {stage.group} has 1 member: ")
        # The worker was not fenced, and its records still wait.
        assert worker.held == 20
        assert worker.service.health.ready
    # A static member that has stopped is listed until its session timeout has passed. The drain waits for that.
    async with stage.run(DRAIN) as drain_alone:
        await drain_alone.ended()
    await stage.until_completed(record_ids)


async def test_a_worker_that_starts_beside_a_drain_ends_it_and_loses_no_record(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before a drain cannot see a worker that joins later; nothing is published twice."""
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    record_ids = await stage.put(60, *range(2))
    of_drain: set[TransactionalProducer] = set()
    is_taken_over = asyncio.Event()
    real = TransactionalProducer.publish_and_commit

    async def publish(self: TransactionalProducer, batch: TransactionBatch, *rest: Any) -> None:
        if batch.rows and self in of_drain:
            await is_taken_over.wait()
        elif not batch.rows and len(of_drain) < 2:
            of_drain.add(self)  # the drain commits the beginning of its two partitions first
        await real(self, batch, *rest)

    monkeypatch.setattr(TransactionalProducer, "publish_and_commit", publish)
    async with stage.run(DRAIN) as drain:
        await drain.until_read(120)
        async with stage.run() as worker:
            await worker.until_ready()
            is_taken_over.set()
            assert drain.task is not None
            await asyncio.wait({drain.task}, timeout=60)
            refusal = drain.task.exception()
            assert isinstance(refusal, BrokerError)
            assert f"a worker of group {stage.group}, or another drain" in str(refusal)
            record_ids += await stage.put(40, *range(2))
            await worker.until(lambda: worker.total("shoal_consumer_lag_records") == 0)
            await worker.until_ready()
    await stage.drained(record_ids)


# ---------------------------------------------------------------- ends and speed


async def test_a_scraper_that_does_not_read_its_answer_does_not_delay_the_exit(stage: Stage) -> None:
    async with stage.process("--from", "earliest") as process:
        await process.until_ready()
        with socket.create_connection(("127.0.0.1", await process.port())) as idle:
            idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
            with socket.create_connection(("127.0.0.1", await process.port())) as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
                assert await process.terminated() == 0
