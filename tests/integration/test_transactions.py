"""Exactly once per offset, read from the topics: faults in each step of a transaction, markers, large records."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from shoal.kafka import StartOptions, consumer_loop, start, task_manager
from support.failing_client import STEPS, fail_steps
from support.faulty_workers import Worker
from support.kafka_broker import end_offsets, produce, read_all, wait_for, wait_until
from support.running import Run, Stage


async def test_records_delivered_before_a_task_is_open_are_processed_once(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=3)
    record_ids = await stage.put(400, *range(3))
    real = start.initialize_partition
    early: list[int] = []
    polled = consumer_loop.ConsumerLoop._poll

    async def slow(context: start.PartitionContext) -> start.PartitionStart:
        # As if the broker took its time, a different one for each partition, with the topic full of records.
        await asyncio.sleep(0.2 + 0.3 * context.partition)
        return await real(context)

    async def poll(self: consumer_loop.ConsumerLoop) -> Any:
        found = await polled(self)
        early.extend(len(messages) for record_id, messages in found.items() if record_id not in self._tasks)
        return found

    monkeypatch.setattr(task_manager, "initialize_partition", slow)
    monkeypatch.setattr(consumer_loop.ConsumerLoop, "_poll", poll)
    # A start, a restart in the middle of things, and one at which the client fetches before that.
    await stage.started(read=600)
    monkeypatch.setattr("aiokafka.AIOKafkaConsumer.pause", lambda *_: None)
    monkeypatch.setattr("aiokafka.AIOKafkaConsumer.resume", lambda *_: None)
    async with stage.run() as run:
        record_ids += await stage.put(400, *range(3))
        await run.until_ready()
        await run.until(lambda: run.total("shoal_consumer_lag_records") == 0)
    monkeypatch.undo()
    await stage.drained(record_ids)
    assert sum(early) > 0, "no record was delivered early: the test shows nothing"


async def test_of_many_small_transactions_only_committed_records_are_released(stage: Stage) -> None:
    committed: list[tuple[int, int]] = []
    async with stage.run() as run:
        for number in range(14):
            abort = number % 3 == 1
            sent = await stage.put(1 + number % 5, transactional_id=f"{stage.group}-t{number % 2}", abort=abort)
            committed += [] if abort else sent
        await stage.put(5, transactional_id=f"{stage.group}-t", abort=True)
        await run.until_read(len(committed))
    end = (await end_offsets(stage.bootstrap, stage.topics["input"]))[0]
    assert end > stage.serial, "there are no markers"
    await stage.drained(committed)
    assert set(await stage.outcomes()) == set(committed)
    async with stage.run() as run:
        await run.until(lambda: run.total("shoal_consumer_lag_records") == 0, "no lag behind markers")
        await wait_for(
            stage.progress,
            lambda found: found.state.committed_offset == end,
            what="a committed offset behind the last marker",
        )


async def test_an_open_transaction_upstream_delays_only_later_records(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 100, "max_delay_s": 0.5})
    record_ids = await stage.put(12)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{stage.group}-open") as upstream:
        await upstream.begin_transaction()
        pending = [await upstream.send_and_wait(stage.topics["input"], stage.record(), partition=0) for _ in range(6)]
        behind = await stage.put(6)
        async with stage.run() as run:
            await stage.until_completed(record_ids)
            await run.until(lambda: run.held == 0, "no held record")
            assert set(await stage.outcomes()) == set(record_ids)
            await run.until(lambda: run.total("shoal_consumer_lag_records") == 12, "a lag of all that is not read")
            await run.until_ready()
            await upstream.commit_transaction()
            stage.record_id_of |= {number: (0, one.offset) for number, one in zip(range(12, 18), pending, strict=True)}
            await stage.until_completed([*behind, *((0, one.offset) for one in pending)])
            await run.until(lambda: run.total("shoal_consumer_lag_records") == 0, "the end of the log")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", STEPS)
async def test_after_an_error_in_a_transaction_no_record_is_lost_or_released_twice(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    record_ids = await stage.put(60, 0, 1)
    failed = fail_steps(monkeypatch, partial(next, iter([(name, after)]), None))
    async with stage.run() as run:
        await run.until(lambda: bool(failed), "a failure")
        record_ids += await stage.put(60)
        await wait_for(stage.outcomes, lambda found: len(found) > 120, what="more released records")
        assert run.total("shoal_transactions_total", outcome="aborted") == 1
        await run.until_ready()
    await stage.drained(record_ids)
    assert set(await stage.outcomes()) == set(record_ids)
    # What an aborted transaction showed was published as it was: a second try decides alike.
    published = {message.value for message in await stage.read()}
    everything = await read_all(bootstrap, stage.topics["output"], "read_uncommitted")
    assert {message.value for message in everything} == published


@pytest.mark.parametrize("step", ["start:1", "sent:1"])
@pytest.mark.parametrize("lost", [False, True], ids=["", "and its group is lost"])
async def test_a_worker_killed_inside_its_first_transaction_starts_again(
    bootstrap: str, tmp_path: Path, step: str, *, lost: bool
) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    record_ids = await stage.put(60)
    worker = Worker("w", stage.policy_file(), bootstrap, tmp_path / "w.log")
    try:
        worker.start(die_at=step)
        await wait_until(lambda: worker.is_dead, 30, f"death at {step}")
    finally:
        worker.kill()
    uncommitted = await read_all(bootstrap, stage.topics["output"], "read_uncommitted")
    assert bool(uncommitted) == (step == "sent:1")
    assert await stage.read() == []
    assert bool(await stage.committed()) == (step == "sent:1")
    if lost:
        for number in range(2):  # end the open transactions, which the broker would do after their timeout
            old_id = f"{stage.group}-{stage.topics['input']}-{number}"
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=old_id):
                pass
        stage.document["kafka"]["group"] += "-again"
    await stage.drained(record_ids)
    again = {message.value for message in await stage.read()}
    assert {message.value for message in uncommitted} <= again


async def test_a_first_start_waits_for_an_open_transaction_on_the_output(stage: Stage) -> None:
    async with AIOKafkaProducer(bootstrap_servers=stage.bootstrap, transactional_id=f"{stage.group}-open") as other:
        await other.begin_transaction()
        await other.send_and_wait(stage.topics["output"], b"{}", partition=0)
        # Published, and hidden from readers of committed data by what is open before it.
        await produce(stage.bootstrap, stage.topics["output"], [b"{}"], partitions=0)
        assert await stage.read() == []
        async with stage.process("--from", "earliest") as process:
            words = "partitions not opened; the others go on"
            waiting = await wait_until(lambda: process.lines(words), what="a consumer loop that waits")
            assert "open transaction" in waiting[0]["reason"]
            assert (await process.get("/readyz"))[0] == 503
            assert await stage.committed() is None
            await other.abort_transaction()
            assert await process.ended() == 2
            assert "holds records already" in process.said


async def test_a_cluster_of_very_large_records_is_sent_in_one_transaction(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(
        bootstrap,
        tmp_path,
        configs={"max.message.bytes": "1048588"},
        privacy={"k": 5},
        attributes={"note": {"role": "confidential", "type": "string"}},
    )
    values = [stage.record(note=os.urandom(400_000).hex()) for _ in range(17)]
    record_ids = await stage.send(values, max_request_size=1 << 20, max_batch_size=1 << 20)
    async with stage.run(StartOptions(reset="earliest", drain=True)) as run:
        await run.ended(60)
    await stage.until_completed(record_ids)
    rows = await stage.read()
    evidence = await stage.objects("evidence")
    assert [len(cluster["offsets"]) for cluster in evidence] == [5, 5, 7] or len(evidence) == 3
    # A marker ends each transaction: none is inside a cluster.
    output_offset_of = {stage.record_id_of[json.loads(row.value or b"")["serial"]][1]: row.offset for row in rows}
    for cluster in evidence:
        offsets = sorted(output_offset_of[offset] for offset in cluster["offsets"])
        assert offsets[-1] - offsets[0] == len(offsets) - 1


async def test_without_side_topics_the_guarantee_is_the_same(stage: Stage) -> None:
    for name in ("quarantine", "clusters", "evidence"):
        del stage.document["kafka"][name]
    record_ids = await stage.put(30)
    await stage.send([b"{"])
    run: Run
    async with stage.run() as run:
        await run.until_read(31)
        await run.until(lambda: run.total("shoal_records_total", outcome="quarantined") == 1)
    await stage.drained(record_ids)
