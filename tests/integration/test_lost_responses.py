"""A request of a transaction whose response is lost is not sent again: its first copy may come in the next one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka.checks import TopicLayout
from shoal.kafka.transactions import TransactionalProducer, TransactionBatch
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from structlog.testing import capture_logs
from support.kafka_broker import wait_until
from support.proxy import Proxy, proxied
from support.running import EARLIEST, Stage

REQUESTS = {"AddPartitionsToTxn": 24, "AddOffsetsToTxn": 25, "EndTxn": 26, "TxnOffsetCommit": 28}


def producer_of(stage: Stage) -> TransactionalProducer:
    layout = TopicLayout(dict.fromkeys(stage.topics.values(), 1))
    return TransactionalProducer(Policy.load(stage.policy_file()), stage.settings(), 0, layout)


def once(api_key: int) -> Callable[[int], bool]:
    """Return what chooses the first request with this API key."""
    left = [api_key]

    def is_first(key: int) -> bool:
        return key in left and left.pop() == key

    return is_first


def batch(text: str) -> TransactionBatch:
    rows = [text.encode(), text.encode()]
    return TransactionBatch([DecidedCluster(0, [0, 1], rows, ("9",), 2, "ab12")])


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_late_copy_of_a_request_does_not_change_the_next_transaction(
    name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(60), proxied(stage.bootstrap, monkeypatch) as proxy:
        first, second = producer_of(stage), producer_of(stage)
        await first.open()
        await first.publish_and_commit(batch("one"), 2, "", 1_000)
        proxy.should_hold = lambda key: key == REQUESTS[name] and not proxy.held
        with pytest.raises(BrokerUnavailableError):
            await first.publish_and_commit(batch("two"), 4, "", 1_000)
        assert proxy.held == 1
        proxy.should_hold = lambda _: False
        await first.close()
        await second.open()
        proxy.forward_held()
        await second.publish_and_commit(batch("three"), 6, "", 1_000)
        await second.publish_and_commit(batch("four"), 8, "", 1_000)
        await second.close()
    rows = [message.value for message in await stage.read()]
    assert rows == [b"one", b"one", b"three", b"three", b"four", b"four"]
    found = await stage.committed()
    assert found is not None
    assert found.offset == 8


async def test_a_worker_whose_responses_are_lost_again_and_again_publishes_each_record_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(14)
    lost = 0

    def should_hold(key: int) -> bool:
        nonlocal lost
        is_lost = key in REQUESTS.values() and chance.random() < 0.1
        lost += is_lost
        return is_lost

    async def late(proxy: Proxy) -> None:
        while True:
            await asyncio.sleep(0.05)
            proxy.forward_held()

    async with proxied(stage.bootstrap, monkeypatch) as proxy:
        record_ids = []
        async with stage.run(EARLIEST) as run:
            forwarding = asyncio.create_task(late(proxy))
            proxy.should_hold = should_hold
            while lost < 4:
                record_ids += await stage.put(100)
                await run.until_read(len(record_ids))
            proxy.should_hold = lambda _: False
            await run.until(lambda: run.total("shoal_consumer_lag_records") == 0)
            forwarding.cancel()
    await stage.drained(record_ids)


@pytest.mark.parametrize("is_committed", [False, True])
async def test_records_of_a_transaction_without_a_response_are_counted_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    async with asyncio.timeout(60), proxied(stage.bootstrap, monkeypatch) as proxy, stage.run(EARLIEST) as run:
        await stage.put(5)
        await run.until_read(5)
        proxy.should_hold = once(REQUESTS["EndTxn"])
        await stage.send([b"{"])
        await wait_until(lambda: proxy.held == 1, what="the end of a transaction")
        if is_committed:
            proxy.forward_held()
        await run.until(lambda: run.total("shoal_records_total", outcome="quarantined") == 1)
        await run.until(lambda: run.held == 5)
        assert run.total("shoal_records_total", outcome="in") == 6
        # The first attempt was committed, or the second one.
        assert run.total("shoal_transactions_total", outcome="aborted") == 1
        assert run.total("shoal_transactions_total", outcome="committed") == (0 if is_committed else 1)
        assert len(await stage.read("quarantine")) == 1


async def test_a_worker_that_ends_before_it_knows_the_outcome_logs_the_number_of_records(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(60), proxied(stage.bootstrap, monkeypatch) as proxy:
        with capture_logs() as logged:
            async with stage.run(EARLIEST) as run:
                await run.until_ready()
                # The worker cannot start again after that.
                proxy.should_hold = lambda key: key == REQUESTS["EndTxn"] or proxy.held > 0
                await stage.send([b"{", b"["])
                await run.until(lambda: run.total("shoal_transactions_total", outcome="aborted") == 1)
                await run.stopped(12)
        assert run.total("shoal_records_total", outcome="quarantined") == 0
    event = "it is not known whether a transaction was committed: what became of its records is in no count"
    assert [one for one in logged if one["event"] == event] == [{"event": event, "log_level": "warning", "records": 2}]
