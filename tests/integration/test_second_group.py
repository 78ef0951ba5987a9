"""Two groups over the same topics by mistake, and clocks that were ahead: what is seen of it, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from shoal.errors import FencedError, InputError
from shoal.kafka import StartOptions
from shoal.kafka.preflight import TopicLayout
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.kafka.startup import check_output_is_empty
from shoal.pipeline import DecidedCluster
from shoal.policy import Policy
from support.kafka_broker import produce, read_until, wait_until
from support.running import EARLIEST, Run, Stage

pytestmark = pytest.mark.integration


CLUSTERS = [DecidedCluster(0, [0, 1], [b"one", b"two"], ("9",), 2, "ab12")]


def publisher_of(stage: Stage) -> TransactionalProducer:
    layout = TopicLayout(dict.fromkeys(stage.topics.values(), 1))
    return TransactionalProducer(Policy.load(stage.policy_file()), stage.settings(), 0, layout)


async def twice(stage: Stage) -> int:
    """How many records the output holds more than once."""
    seen = Counter(json.loads(message.value or b"")["serial"] for message in await stage.read())
    return sum(count > 1 for count in seen.values())


async def ended_with(run: Run) -> Exception | None:
    """What a service ended with, which may be nothing: the other was the one to go."""
    try:
        await run.ended(6)
    except (InputError, TimeoutError) as error:
        return error
    return None


async def test_a_group_that_began_before_anything_was_published_stops_at_its_first_clusters(
    bootstrap: str, tmp_path: Path
) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    await stage.put(5)
    async with stage.run(EARLIEST) as first, stage.run(EARLIEST, group=f"{stage.group}-b") as second:
        await first.until_read(5)
        await second.until_read(5)
        # Both have begun, and hold. At worst both publish one transaction in the same moment, and see it at the next.
        await stage.put(60)
        await wait_until(stage.read, what="a first transaction")
        await stage.put(60)
        errors = [await ended_with(run) for run in (first, second)]
        refused = [error for error in errors if isinstance(error, InputError)]
        assert refused, errors
        assert all(stage.topics["output"] in str(error) for error in refused)
    before = await twice(stage)
    assert before <= 65


async def test_a_second_writer_is_noticed_before_the_next_commit(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    async with stage.run(EARLIEST) as run:
        await stage.put(60)
        await run.until(lambda: run.total("shoal_records_total", outcome="released") > 0)
        await produce(bootstrap, stage.topics["output"], [b'{"age":1,"serial":-1}'], partitions=0)
        published = len(await stage.read())
        await stage.put(60)
        with pytest.raises(InputError, match="another producer"):
            await run.ended()
    assert len(await stage.read()) == published


async def test_a_mark_that_the_coordinator_writes_twice_is_nobodys_record(bootstrap: str, tmp_path: Path) -> None:
    """As one does that takes over in the middle of a commit: the offset after the mark is not the next one then."""
    stage = await Stage.create(bootstrap, tmp_path)
    publisher, output = publisher_of(stage), stage.topics["output"]
    await publisher.open()
    try:
        await publisher.publish(TransactionBatch(CLUSTERS), 2, "", 1_000)
        await write_mark(bootstrap, publisher, output)
        await publisher.publish(TransactionBatch(CLUSTERS), 4, "", 1_000)
        shown = await read_until(bootstrap, output, 4)
        assert [message.offset for message in shown] == [0, 1, 4, 5]
        await write_mark(bootstrap, publisher, output)
        await produce(bootstrap, output, [b"three"], partitions=0)
        with pytest.raises(InputError, match="another producer"):
            await publisher.publish(TransactionBatch(CLUSTERS), 6, "", 1_000)
    finally:
        await publisher.close()
    assert [message.offset for message in await stage.read()] == [0, 1, 4, 5, 8]


async def test_whoever_was_relieved_before_its_first_clusters_is_told_so_and_refuses_nothing(
    bootstrap: str, tmp_path: Path
) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    async with asyncio.timeout(60), contextlib.AsyncExitStack() as opened:
        publishers = [publisher_of(stage) for _ in range(2)]
        for one in publishers:
            opened.push_async_callback(one.close)
            await one.open()
            one.check_before_first(partial(check_output_is_empty, one, stage.settings(), 0))
        relieved, present = publishers
        await present.publish(TransactionBatch(CLUSTERS), 2, "", 1_000)
        await read_until(bootstrap, stage.topics["output"], 2)
        with pytest.raises(FencedError):
            await relieved.publish(TransactionBatch(CLUSTERS), 2, "", 1_000)
    assert len(await stage.read()) == 2


async def write_mark(bootstrap: str, publisher: TransactionalProducer, topic: str) -> None:
    """Have the broker end the last transaction of a producer once more, in the topic's only partition.

    The request is WriteTxnMarkers of KIP-98 in its version 1: brokers send it to each other, clients do not know it. A
    broker whose coordinator was replaced would ask for another epoch.
    """
    who, name = publisher._producer._txn_manager, topic.encode()
    a_list_of_one, no_tags, is_commit, coordinator_epoch = 2, 0, True, 0
    place = struct.pack(f">BB{len(name)}sBiB", a_list_of_one, len(name) + 1, name, a_list_of_one, 0, no_tags)
    mark = struct.pack(">Bqh?", a_list_of_one, who.producer_id, who.producer_epoch, is_commit)
    request = struct.pack(">hhihB", 27, 1, 0, -1, no_tags) + mark + place + struct.pack(">iBB", coordinator_epoch, 0, 0)
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


async def test_after_a_skip_a_restart_does_not_mind_that_a_clock_was_ahead(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    ahead = round(time.time() * 1000) + 1_800_000
    await produce(bootstrap, stage.topics["output"], [b'{"age":1,"serial":-1}'], partitions=0, timestamps_ms=[ahead])
    await stage.put(30)
    async with stage.run(StartOptions(skip_to_end=True)) as run:
        await run.until_ready()
    assert (await stage.progress()).at_ms >= ahead
    await stage.put(30)
    async with stage.run(StartOptions()) as run:
        await run.until_read(30)
    async with stage.run(StartOptions(drain=True)) as run:
        await run.ended()
    released = Counter(json.loads(message.value or b"")["serial"] for message in await stage.read())
    assert released == dict.fromkeys([-1, *range(30, 60)], 1)


async def test_whoever_dates_a_record_ahead_does_not_keep_the_others_waiting(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 500, "max_delay_s": 1})
    now = round(time.time() * 1000)
    places = await stage.put(1, timestamps_ms=[now + 59 * 60_000])
    places += await stage.put(20, timestamps_ms=[now] * 20)
    async with stage.run(EARLIEST):
        await stage.until_resolved(places, 15)
