"""Two groups over the same topics by mistake, and clocks that were ahead: what is seen of it, and when."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from shoal.errors import FencedError, InputError
from shoal.kafka import StartOptions
from shoal.kafka.checks import TopicLayout
from shoal.kafka.offsets import OffsetState
from shoal.kafka.start import check_output_is_empty, end_at_start
from shoal.kafka.transactions import TransactionalProducer, TransactionBatch
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from support.kafka_broker import is_shown, open_transaction, produce, read_until, wait_until
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
    assert len(await read_until(stage.bootstrap, stage.topics["output"], 2)) == 2


async def test_the_open_transaction_of_another_group_is_noticed_at_the_first_clusters(stage: Stage) -> None:
    output = stage.topics["output"]
    async with asyncio.timeout(60), open_transaction(stage.bootstrap, output, b"one"), publisher_of(stage) as publisher:
        publisher.expect_output_from(await end_at_start(stage.settings(), 0, OffsetState(0, 0)))
        assert not await published(publisher, 2)
    assert await stage.read() == []


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


async def test_a_transaction_marker_written_twice_is_no_second_writer(stage: Stage) -> None:
    """Write a second transaction marker, as a new coordinator may do: the next record then follows one offset later."""
    output = stage.topics["output"]
    async with publisher_of(stage) as publisher:
        await publisher.publish_and_commit(TransactionBatch(CLUSTERS), 2, "", 1_000)
        await write_marker(stage.bootstrap, publisher, output)
        await publisher.publish_and_commit(TransactionBatch(CLUSTERS), 4, "", 1_000)
        shown = await read_until(stage.bootstrap, output, 4)
        assert [message.offset for message in shown] == [0, 1, 4, 5]
        await write_marker(stage.bootstrap, publisher, output)
        await produce(stage.bootstrap, output, [b"three"], partitions=0)
        with pytest.raises(InputError, match="another producer"):
            await publisher.publish_and_commit(TransactionBatch(CLUSTERS), 6, "", 1_000)
    assert [message.offset for message in await stage.read()] == [0, 1, 4, 5, 8]


async def test_a_worker_fenced_before_its_first_clusters_reports_the_fencing(stage: Stage) -> None:
    async with asyncio.timeout(60), publisher_of(stage) as relieved, publisher_of(stage) as present:
        for one in (relieved, present):
            one.check_before_first(partial(check_output_is_empty, one, stage.settings(), 0))
        await present.publish_and_commit(TransactionBatch(CLUSTERS), 2, "", 1_000)
        await read_until(stage.bootstrap, stage.topics["output"], 2)
        with pytest.raises(FencedError):
            await relieved.publish_and_commit(TransactionBatch(CLUSTERS), 2, "", 1_000)
    assert len(await stage.read()) == 2


async def write_marker(bootstrap: str, publisher: TransactionalProducer, topic: str) -> None:
    """Have the broker end the last transaction of a producer once more, in the topic's only partition.

    The request is WriteTxnMarkers of KIP-98 in its version 1: brokers send it to each other, clients do not know it. A
    broker whose coordinator was replaced would ask for another epoch.
    """
    who, name = publisher._producer._txn_manager, topic.encode()
    a_list_of_one, no_tags, is_commit, coordinator_epoch = 2, 0, True, 0
    marker_topic = struct.pack(f">BB{len(name)}sBiB", a_list_of_one, len(name) + 1, name, a_list_of_one, 0, no_tags)
    marker = struct.pack(">Bqh?", a_list_of_one, who.producer_id, who.producer_epoch, is_commit)
    request = (
        struct.pack(">hhihB", 27, 1, 0, -1, no_tags)
        + marker
        + marker_topic
        + struct.pack(">iBB", coordinator_epoch, 0, 0)
    )
    host, port = bootstrap.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(struct.pack(">i", len(request)) + request)
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    finally:
        writer.close()
        await writer.wait_closed()
    (error,) = struct.unpack(">h", answer[-6:-4])
    assert error == 0


async def test_after_a_skip_a_clock_that_was_ahead_does_not_refuse_a_restart(stage: Stage) -> None:
    ahead = round(time.time() * 1000) + 1_800_000
    await produce(
        stage.bootstrap, stage.topics["output"], [b'{"age":1,"serial":-1}'], partitions=0, timestamps_ms=[ahead]
    )
    await stage.put(30)
    await stage.started(StartOptions(skip_to_end=True))
    assert (await stage.progress()).at_ms >= ahead
    await stage.put(30)
    await stage.started(StartOptions(), read=30)
    async with stage.run(StartOptions(drain=True)) as run:
        await run.ended()
    assert await stage.serials() == dict.fromkeys([-1, *range(30, 60)], 1)


async def test_a_future_timestamp_does_not_delay_other_records(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 500, "max_delay_s": 1})
    now = round(time.time() * 1000)
    record_ids = await stage.put(1, timestamps_ms=[now + 59 * 60_000])
    record_ids += await stage.put(20, timestamps_ms=[now] * 20)
    async with stage.run(EARLIEST):
        await stage.until_completed(record_ids, 15)
