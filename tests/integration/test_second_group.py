"""Two groups over the same topics by mistake, and clocks that were ahead: what is seen of it, and when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shoal.errors import InputError
from shoal.kafka.checks import TopicLayout
from shoal.kafka.offsets import OffsetState
from shoal.kafka.start import check_output_is_empty, end_at_start
from shoal.kafka.transactions import TransactionalProducer, TransactionBatch
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from support.kafka_broker import is_shown, produce, wait_for, wait_until
from support.running import EARLIEST, Run, Stage

CLUSTERS = [DecidedCluster(0, [0, 1], [b"one", b"two"], ("9",), 2, "ab12")]


@contextlib.asynccontextmanager
async def publisher_of(stage: Stage, group: str = "") -> AsyncIterator[TransactionalProducer]:
    """Open a producer of the stage, or of another group over its topics."""
    layout = TopicLayout(dict.fromkeys(stage.topics.values(), 1))
    settings = stage.settings().model_copy(update={"group": group or stage.group})
    publisher = TransactionalProducer(Policy.load(stage.policy_file()), settings, 0, layout)
    try:
        await publisher.open()
        yield publisher
    finally:
        await publisher.close()


def has_ended(run: Run) -> bool:
    return run.task is not None and run.task.done()


async def ended_with(run: Run) -> BaseException | None:
    """Stop a service if it runs; return the error with which it ended, None if it was not refused."""
    with contextlib.suppress(InputError):
        await run.stopped(12)
    assert run.task is not None
    return run.task.exception()


async def test_a_group_that_started_on_an_empty_output_checks_it_before_its_first_clusters(stage: Stage) -> None:
    await stage.put(5)
    async with stage.run(EARLIEST) as first, stage.run(EARLIEST, group=f"{stage.group}-b") as second:
        await first.until_read(5)
        await second.until_read(5)
        # Both hold records, and both may try to publish at the same time: one commits, both notice the other.
        await stage.put(60)
        await wait_until(stage.read, what="a first transaction")
        await stage.put(60)
        await wait_until(lambda: has_ended(first) or has_ended(second), what="a refusal")
        errors = [await ended_with(run) for run in (first, second)]
        refused = [error for error in errors if isinstance(error, InputError)]
        assert refused, errors
        # The records of the other group are in the output, or already in one of the topics beside it.
        written = [topic for name, topic in stage.topics.items() if name != "input"]
        assert all(any(topic in str(error) for topic in written) for error in refused), refused
    assert set((await stage.serials()).values()) <= {1}


async def published(publisher: TransactionalProducer, offset: int) -> bool:
    """Whether a transaction with rows is committed; it is not where another producer writes to the output."""
    with contextlib.suppress(InputError):
        await publisher.publish_and_commit(TransactionBatch(CLUSTERS), offset, "", 1_000)
        return True
    return False


async def test_of_two_groups_that_find_the_output_empty_one_publishes(stage: Stage) -> None:
    async with asyncio.timeout(60), publisher_of(stage) as one, publisher_of(stage, f"{stage.group}-b") as other:
        for publisher in (one, other):
            publisher.expect_output_from(await end_at_start(stage.settings(), 0, OffsetState(0, 0)))
        for publisher in (one, other):
            await check_output_is_empty(publisher, stage.settings(), 0)
        assert sorted(await asyncio.gather(published(one, 2), published(other, 2))) == [False, True]
    await wait_for(stage.read, lambda found: len(found) == 2, what="the rows of one of them")


async def test_a_group_is_refused_if_another_publishes_before_its_restart(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, kafka={"commit_interval_ms": 60_000})
    await stage.started()
    # As another worker of the same commit interval dates its messages.
    dated_ms = round(time.time() * 1000) // 60_000 * 60_000
    await produce(bootstrap, stage.topics["output"], [b'{"age":1,"serial":-1}'], partitions=0, timestamps_ms=[dated_ms])
    async with stage.run() as run:
        with pytest.raises(InputError, match="a second group over the same topics"):
            await run.ended()


async def test_a_second_writer_is_noticed_before_the_next_commit(stage: Stage) -> None:
    async with stage.run(EARLIEST) as run:
        await stage.put(60)
        await run.until(lambda: run.total("shoal_records_total", outcome="released") > 0)
        await produce(stage.bootstrap, stage.topics["output"], [b'{"age":1,"serial":-1}'], partitions=0)
        await wait_until(lambda: is_shown(stage.bootstrap, stage.topics["output"]), what="the last transaction")
        published = len(await stage.read())
        await stage.put(60)
        with pytest.raises(InputError, match="another producer"):
            await run.ended()
    assert len(await stage.read()) == published
