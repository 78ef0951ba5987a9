"""Exactly once per offset, read from the topics: faults in each step of a transaction, markers, large records."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from shoal.kafka import StartOptions, consumer_loop, start, task_manager
from support.faulty_workers import Worker
from support.kafka_broker import end_offsets, produce, read_all, wait_until
from support.running import EARLIEST, Run, Stage

pytestmark = pytest.mark.integration

MAX_AHEAD_MS = 3_600_000

HOUR_MS = 3_600_000


def runs_of(messages: list[Any], sizes: list[int]) -> list[list[Any]]:
    """Cut messages into runs of these lengths."""
    rest = iter(messages)
    return [list(itertools.islice(rest, size)) for size in sizes]


# ---------------------------------------------------------------- before a task is open


async def test_records_delivered_before_a_task_is_open_are_processed_once(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=3)
    record_ids = [record_id for partition in range(3) for record_id in await stage.put(400, partition)]
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
    async with stage.run() as run:
        await run.until_read(600)
    monkeypatch.setattr("aiokafka.AIOKafkaConsumer.pause", lambda *_: None)
    monkeypatch.setattr("aiokafka.AIOKafkaConsumer.resume", lambda *_: None)
    async with stage.run() as run:
        record_ids += [record_id for partition in range(3) for record_id in await stage.put(400, partition)]
        await run.until_ready()
        await run.until(lambda: run.total("shoal_consumer_lag_records") == 0)
    monkeypatch.undo()
    await stage.drained()
    await stage.until_completed(record_ids)
    assert sum(early) > 0, "no record was delivered early: the test shows nothing"


# ---------------------------------------------------------------- control records


async def test_of_many_small_transactions_only_committed_records_are_released(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    committed: list[tuple[int, int]] = []
    async with stage.run() as run:
        for number in range(14):
            abort = number % 3 == 1
            sent = await stage.put(1 + number % 5, transactional_id=f"{stage.group}-t{number % 2}", abort=abort)
            committed += [] if abort else sent
        await stage.put(5, transactional_id=f"{stage.group}-t", abort=True)
        await run.until_read(len(committed))
    end = (await end_offsets(bootstrap, stage.topics["input"]))[0]
    assert end > stage.serial, "there are no markers"
    await stage.drained()
    await stage.until_completed(committed)
    assert set(await stage.outcomes()) == set(committed)
    async with stage.run() as run:
        await run.until(lambda: run.total("shoal_consumer_lag_records") == 0, "no lag behind markers")

        async def is_passed() -> bool:
            return (await stage.progress()).state.committed_offset == end

        await wait_until(is_passed, what="a committed offset behind the last marker")


async def test_max_delay_s_flushes_at_the_end_of_a_log_of_transactions(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 100, "max_delay_s": 1.0}, privacy={"k": 5})
    record_ids = await stage.put(25, transactional_id=f"{stage.group}-t")
    async with stage.run() as run:
        await stage.until_completed(record_ids)
        await run.until(lambda: run.held == 0)


async def test_an_open_transaction_upstream_delays_only_later_records(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 100, "max_delay_s": 0.5})
    record_ids = await stage.put(12)
    upstream = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{stage.group}-open")
    await upstream.start()
    try:
        await upstream.begin_transaction()
        pending = [await upstream.send_and_wait(stage.topics["input"], stage.record(), partition=0) for _ in range(6)]
        behind = await stage.put(6)
        async with stage.run() as run:
            await stage.until_completed(record_ids)
            await run.until(lambda: run.held == 0, "no held record")
            assert set(await stage.outcomes()) == set(record_ids)
            await upstream.commit_transaction()
            stage.record_id_of |= {number: (0, one.offset) for number, one in zip(range(12, 18), pending, strict=True)}
            await stage.until_completed([*behind, *((0, one.offset) for one in pending)])
    finally:
        await upstream.stop()


# ---------------------------------------------------------------- any exception in a transaction


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool) -> list[str]:
    """Make one call of the client fail, before or after its work, in a transaction with records."""
    real: Callable[..., Awaitable[Any]] = getattr(AIOKafkaProducer, name)
    send = AIOKafkaProducer.send_batch
    failed: list[str] = []
    carrying: set[int] = set()

    async def sending(self: Any, *arguments: Any, **options: Any) -> Any:
        carrying.add(id(self))
        if name == "send_batch":
            return await failing(self, *arguments, **options)
        return await send(self, *arguments, **options)

    async def failing(self: Any, *arguments: Any, **options: Any) -> Any:
        is_due = not failed and id(self) in carrying
        if is_due:
            failed.append(name)
        done = None if is_due and not after else await real(self, *arguments, **options)
        if is_due:
            raise OSError("torn")
        return done

    monkeypatch.setattr(AIOKafkaProducer, "send_batch", sending)
    if name != "send_batch":
        monkeypatch.setattr(AIOKafkaProducer, name, failing)
    return failed


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("send_batch", False),
        ("send_batch", True),
        ("send_offsets_to_transaction", False),
        ("send_offsets_to_transaction", True),
        ("commit_transaction", False),
        ("commit_transaction", True),
    ],
)
async def test_after_an_error_in_a_transaction_no_record_is_lost_or_released_twice(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    record_ids = await stage.put(60) + await stage.put(60, 1)
    failed = fail_once(monkeypatch, name, after=after)
    async with stage.run() as run:
        await run.until(lambda: bool(failed), "a failure")
        record_ids += await stage.put(60)

        async def go_on() -> bool:
            return len(await stage.outcomes()) > 120

        await wait_until(go_on, what="more released records")
        assert run.total("shoal_transactions_total", outcome="aborted") == 1
        await run.until_ready()
    await stage.drained()
    await stage.until_completed(record_ids)
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
    stage = await Stage.create(bootstrap, tmp_path, kafka={"transaction_timeout_ms": 2000})
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
        stage.document["kafka"]["group"] += "-again"
    await stage.drained()
    await stage.until_completed(record_ids)
    again = {message.value for message in await stage.read()}
    assert {message.value for message in uncommitted} <= again


async def test_a_first_start_waits_for_an_open_transaction_on_the_output(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    other = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{stage.group}-open")
    await other.start()
    try:
        await other.begin_transaction()
        await other.send_and_wait(stage.topics["output"], b"{}", partition=0)
        # Published, and hidden from readers of committed data by what is open before it.
        await produce(bootstrap, stage.topics["output"], [b"{}"], partitions=0)
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
    finally:
        await other.stop()


# ---------------------------------------------------------------- what is published, and what is not


CANARY = "CANARY"


def hostile(number: int, who: str) -> bytes:
    """A valid record in an unusual notation, with parts that must not be published."""
    age = [f"{number % 90}.0", f"{number % 90}e0", f"{number % 90}.00", f"{number % 90 * 10}E-1"][number % 4]
    return b'{ "%s_%d":"\\u0043ANARY%d" ,\n "serial" : %d,"who":"%s", "age":%s}' % (
        CANARY.encode(),
        number,
        number,
        number,
        who.encode(),
        age.encode(),
    )


async def test_output_messages_have_only_a_value_in_order_and_no_other_part_of_the_input(
    bootstrap: str, tmp_path: Path
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2, undeclared="drop", kafka={"commit_interval_ms": 250})
    values = [hostile(number, f"{CANARY}-p{number % 37}") for number in range(400)]
    values[7::50] = [b'{"serial":"%s","who":1,"age":2}' % CANARY.encode()] * 8
    record_ids = []
    for partition in range(2):
        part: list[bytes | None] = [*values[partition::2]]
        record_ids += await stage.send(
            part,
            partition,
            keys=[CANARY.encode()] * len(part),
            headers=[[(CANARY, CANARY.encode())]] * len(part),
        )
    async with stage.process("--from", "earliest") as process:
        await wait_until(lambda: process.lines("partition opened"), what="partitions")
        await stage.until_completed(record_ids[:150])
        assert await process.terminated() == 0
        log = process.said
        assert process.out.read_text() == ""
    await stage.drained()
    await stage.until_completed(record_ids)

    output = await stage.read()
    # Offsets of one partition are whole clusters one after the other; evidence says how large each is.
    for message in output:
        assert (message.key, message.headers, message.timestamp_ms % 250) == (None, (), 0)
        assert stage.record_id_of[json.loads(message.value or b"")["serial"]][0] == message.partition
        assert list(json.loads(message.value or b"")) == ["age", "serial"]
        assert message.value == json.dumps(json.loads(message.value or b""), separators=(",", ":")).encode()
    await check_order_of_clusters(stage)
    for topic in ("output", "quarantine", "clusters", "evidence"):
        for message in await read_all(bootstrap, stage.topics[topic], "read_uncommitted"):
            seen = (message.key, message.value, message.headers)
            assert CANARY.encode() not in repr(seen).encode(), topic
            assert (message.key, message.headers, message.timestamp_ms % 250) == (None, (), 0), topic
    assert CANARY not in log
    assert CANARY not in (await stage.progress()).fingerprint


async def check_order_of_clusters(stage: Stage) -> None:
    """Check that members are in byte order, and clusters of one transaction in the order of their first members."""
    evidence = [json.loads(message.value or b"") for message in await stage.read("evidence")]
    summaries = [json.loads(message.value or b"") for message in await stage.read("clusters")]
    assert sorted(one["size"] for one in summaries) == sorted(len(one["offsets"]) for one in evidence)
    for partition in range(2):
        # Markers are between transactions: only records with consecutive offsets are of the same transaction.
        rows = [message for message in await stage.read() if message.partition == partition]
        row_of = {stage.record_id_of[json.loads(row.value or b"")["serial"]][1]: row for row in rows}
        firsts = []
        for cluster in (one for one in evidence if one["partition"] == partition):
            members = sorted((row_of[offset] for offset in cluster["offsets"]), key=lambda row: row.offset)
            assert members[-1].offset - members[0].offset == len(members) - 1, "a cluster is torn"
            assert [row.value for row in members] == sorted(row.value or b"" for row in members)
            assert len({json.loads(row.value or b"")["age"] for row in members}) == 1
            firsts.append(members[0])
        marks = set(range(max(row.offset for row in rows))) - {row.offset for row in rows}
        firsts.sort(key=lambda row: row.offset)
        for before, after in itertools.pairwise(firsts):
            if not marks & set(range(before.offset, after.offset)):
                assert (before.value or b"") <= (after.value or b""), "clusters show the order of decision"


async def test_quarantine_entries_contain_only_offset_and_reason(bootstrap: str, tmp_path: Path) -> None:
    # Since 3.6 brokers by default refuse records that are more than an hour ahead.
    stage = await Stage.create(
        bootstrap,
        tmp_path,
        configs={"message.timestamp.after.max.ms": str(1 << 62)},
        kafka={"max_record_bytes": 2000},
    )
    now = round(time.time() * 1000)
    cases: list[tuple[bytes | None, int, str | None]] = [
        (b"{", now, "undecodable"),
        (None, now, "undecodable"),
        (b"", now, "undecodable"),
        (b"\xff\xfe", now, "undecodable"),
        (b"[1]", now, "invalid"),
        (stage.record(age="secret"), now, "invalid"),
        (stage.record(extra="secret"), now, "invalid"),
        (stage.record(who=None), now, "invalid"),
        (stage.record(who="x" * 3000), now, "too_large"),
        (stage.record(), now + MAX_AHEAD_MS + 60_000, "invalid"),
        (stage.record(), now + HOUR_MS * 24 * 365 * 50, "invalid"),
        (stage.record(), now + HOUR_MS - 60_000, None),
        (stage.record(), now - HOUR_MS, None),
        (stage.record(), now, None),
    ]
    record_ids = await produce(
        bootstrap,
        stage.topics["input"],
        [value for value, _, _ in cases],
        keys=[b"k"] * len(cases),
        timestamps_ms=[at for _, at, _ in cases],
        partitions=0,
    )
    for (value, _, _), record_id in zip(cases, record_ids, strict=True):
        if value is not None and value.startswith(b'{"who"'):
            stage.record_id_of[json.loads(value)["serial"]] = record_id
    lonely = await stage.put(2)
    await stage.drained()
    await stage.until_completed(record_ids)
    expected = [
        {"topic": stage.topics["input"], "partition": 0, "offset": offset, "reason": reason}
        for (_, offset), (_, _, reason) in zip(record_ids, cases, strict=True)
        if reason
    ]
    found = [json.loads(message.value or b"") for message in await stage.read("quarantine")]
    assert sorted(found, key=lambda one: one["offset"]) == expected
    assert all(list(one) == ["topic", "partition", "offset", "reason"] for one in found)
    assert len(await stage.read()) == 3 + len(lonely)
    lonely = await stage.put(2)
    await stage.drained()
    await stage.until_completed(lonely)
    (first, second) = [json.loads(message.value or b"") for message in (await stage.read("quarantine"))[-2:]]
    assert (first["reason"], second["reason"]) == ("suppressed", "suppressed")


# ---------------------------------------------------------------- sizes and rates


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
    evidence = [json.loads(message.value or b"") for message in await stage.read("evidence")]
    assert [len(cluster["offsets"]) for cluster in evidence] == [5, 5, 7] or len(evidence) == 3
    # A marker ends each transaction: none is inside a cluster.
    output_offset_of = {stage.record_id_of[json.loads(row.value or b"")["serial"]][1]: row.offset for row in rows}
    for cluster in evidence:
        offsets = sorted(output_offset_of[offset] for offset in cluster["offsets"])
        assert offsets[-1] - offsets[0] == len(offsets) - 1


async def test_with_the_smallest_commit_interval_every_poll_is_a_transaction(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, kafka={"commit_interval_ms": 1}, stream={"delta": 2})
    async with stage.run() as run:
        record_ids = []
        for number in range(60):
            record_ids += await stage.put(1)
            await run.until_read(number + 1)
        assert run.total("shoal_transactions_total", outcome="committed") > 7
    await stage.drained()
    await stage.until_completed(record_ids)


async def test_an_input_of_only_invalid_records_is_committed(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    record_ids = await stage.send([b"{"] * 5000)
    async with stage.run(EARLIEST) as run:
        await stage.until_completed(record_ids)
        await run.until(lambda: run.total("shoal_consumer_lag_records") == 0)
    assert (await stage.progress()).state.committed_offset == 5000


async def test_without_side_topics_the_guarantee_is_the_same(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    for name in ("quarantine", "clusters", "evidence"):
        del stage.document["kafka"][name]
    record_ids = await stage.put(30)
    await stage.send([b"{"])
    run: Run
    async with stage.run() as run:
        await run.until_read(31)
        await run.until(lambda: run.total("shoal_records_total", outcome="quarantined") == 1)
    await stage.drained()
    await stage.until_completed(record_ids)
