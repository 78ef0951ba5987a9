"""Partitions that are added to the input, and an input that is deleted or recreated, while a worker runs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from shoal.errors import InputError, PolicyError
from shoal.kafka import StartOptions
from shoal.kafka.metadata import encode
from support.kafka_broker import create_topic, wait_until
from support.running import Stage
from support.topic_changes import delete_topic, put_in_new_partition


@pytest.mark.nightly
async def test_records_of_a_new_partition_are_read_within_30_s(stage: Stage) -> None:
    async with stage.run() as run:
        await run.until_ready()
        began_s = time.monotonic()
        await put_in_new_partition(stage, 1)
        await run.until_read(30)
        assert time.monotonic() - began_s < 30


async def test_a_deleted_input_ends_the_worker_within_30_s(stage: Stage) -> None:
    async with stage.run() as run:
        await run.until_ready()
        await delete_topic(stage, "input")
        with pytest.raises(PolicyError, match="does not exist or may not be seen; create it"):
            await run.ended(30)


async def test_a_recreated_input_ends_the_worker_within_30_s(stage: Stage) -> None:
    async with stage.run() as run:
        await run.until_ready()
        await stage.put(30)
        await run.until_read(30)
        await stage.until_completed([(0, offset) for offset in range(5)])
        await delete_topic(stage, "input")
        await create_topic(stage.bootstrap, name=stage.topics["input"])
        with pytest.raises((InputError, PolicyError)):
            await run.ended(30)


async def test_a_worker_without_a_partition_is_ready_and_says_so(stage: Stage) -> None:
    async with stage.run() as first, stage.run() as second:

        def statuses() -> list[str]:
            return sorted(run.service.health.status for run in (first, second))

        await wait_until(
            lambda: statuses() == ["ready", "ready: in the group, no partition assigned"], what="one idle worker"
        )


LATEST = StartOptions(reset="latest")


async def test_with_from_latest_no_record_of_a_new_partition_is_skipped(stage: Stage) -> None:
    await stage.put(10)  # before the first start
    async with stage.run(LATEST) as run:
        await run.until_ready()
    assert (await stage.progress(0)).first_partition_count == 1
    record_ids = await put_in_new_partition(stage, 1)
    async with stage.run(LATEST) as run:
        await run.until_read(30)
    assert (await stage.progress(1)).first_partition_count == 1
    await stage.drained(record_ids)
    assert {partition for partition, _ in await stage.outcomes()} == {1}


async def test_progress_without_the_partition_count_is_taken_up(stage: Stage) -> None:
    async with stage.run(LATEST) as run:
        await run.until_ready()
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
    async with stage.run(LATEST) as run:
        await run.until_read(30)
    await stage.drained(record_ids)
    assert set(await stage.outcomes()) == set(record_ids)
