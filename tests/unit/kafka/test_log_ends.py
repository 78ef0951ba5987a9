"""The ends of logs: which leaders are asked, and what is known while one of them does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError
from shoal.kafka import logs
from shoal.kafka.client import LeaderAwayError
from shoal.kafka.logs import LogEnds
from support.kafka_broker import wait_until

pytestmark = pytest.mark.unit

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
LEADERS = {FIRST: 1, SECOND: 2, THIRD: 1}


class Reader:
    """A client that answers for the partitions of all leaders that are not silent."""

    def __init__(self, end: int) -> None:
        self._client = SimpleNamespace(cluster=SimpleNamespace(leader_for_partition=LEADERS.get))
        self.end = end
        self.asked: list[list[TopicPartition]] = []
        self.silent: set[int] = set()
        self.error: Exception | None = None

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(list(partitions))
        if {LEADERS[tp] for tp in partitions} & self.silent:
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        return dict.fromkeys(partitions, self.end)


@pytest.fixture(autouse=True)
def _times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten all times; the limit of an answer stays longer than the time for which an end is used."""
    monkeypatch.setattr(logs, "POLL_S", 0.1)
    monkeypatch.setattr(logs, "VALID_S", 0.4)
    monkeypatch.setattr(logs, "LOG_ENDS_ANSWER_S", 0.6)


@asynccontextmanager
async def reading(ends: LogEnds, reader: Reader, with_open: Reader) -> AsyncIterator[asyncio.Task[None]]:
    consumers: Any = reader, with_open
    task = asyncio.create_task(ends.read_regularly(*consumers))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def ends_of(*partitions: TopicPartition) -> LogEnds:
    ends = LogEnds()
    for tp in partitions:
        ends.add(tp)
    return ends


async def test_nothing_is_known_of_a_log_before_the_first_answer() -> None:
    ends = ends_of(FIRST)
    assert (ends.end(FIRST), ends.end_with_open(FIRST), ends.is_answering(FIRST)) == (None, None, True)
    assert (ends.end(SECOND), ends.end_with_open(SECOND), ends.is_answering(SECOND)) == (None, None, False)


async def test_each_leader_gets_one_request_of_each_client() -> None:
    reader, with_open = Reader(5), Reader(7)
    async with reading(ends := ends_of(FIRST, SECOND, THIRD), reader, with_open):
        await wait_until(lambda: ends.end_with_open(SECOND) is not None)
    assert reader.asked[:2] == with_open.asked[:2] == [[FIRST, THIRD], [SECOND]]
    assert [ends.end(tp) for tp in (FIRST, SECOND, THIRD)] == [5, 5, 5]
    assert [ends.end_with_open(tp) for tp in (FIRST, SECOND, THIRD)] == [7, 7, 7]


@pytest.mark.parametrize("error", [None, KafkaTimeoutError()])
async def test_a_leader_that_is_away_delays_no_other(error: Exception | None) -> None:
    reader, with_open = Reader(5), Reader(7)
    async with reading(ends := ends_of(FIRST, SECOND, THIRD), reader, with_open):
        await wait_until(lambda: ends.end_with_open(FIRST) == ends.end_with_open(SECOND) == 7)
        reader.silent, reader.error = {1}, error
        await wait_until(lambda: ends.end(FIRST) is None, 5)
        assert ends.is_answering(FIRST), "it may still answer"
        await wait_until(lambda: not ends.is_answering(FIRST), 5)
        for end in (20, 30):
            reader.end = end
            await wait_until(lambda end=end: ends.end(SECOND) == end, 5)  # type: ignore[misc]
            assert ends.is_answering(SECOND)
            assert (ends.end(FIRST), ends.is_answering(FIRST)) == (None, False)
            assert ends.end_with_open(FIRST) == 7, "the lag is that of the last answer"
        await wait_until(lambda: [THIRD] in reader.asked, 5)
        reader.silent = set()
        await wait_until(lambda: ends.end(FIRST) == ends.end(THIRD) == 30, 5)


async def test_a_log_that_is_added_is_asked_about_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_S", 60)
    reader = Reader(5)
    async with reading(ends := ends_of(FIRST), reader, Reader(7)):
        await wait_until(lambda: ends.end(FIRST) == 5)
        ends.add(SECOND)
        await wait_until(lambda: ends.end(SECOND) == 5, 5)


async def test_an_error_that_is_none_of_the_client_ends_the_reading() -> None:
    reader = Reader(5)
    reader.silent, reader.error = {2}, ZeroDivisionError()
    async with reading(ends_of(FIRST, SECOND), reader, Reader(7)) as task:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(asyncio.shield(task), 10)


async def test_a_wait_ends_when_the_leader_of_its_log_answers_no_longer() -> None:
    reader = Reader(5)
    async with reading(ends := ends_of(FIRST, SECOND), reader, Reader(7)):
        await wait_until(lambda: ends.end(FIRST) == ends.end(SECOND) == 5)
        async with ends.while_answering(SECOND):
            await asyncio.sleep(1.0)  # longer than one answer is valid
        reader.silent = {1}
        with pytest.raises(LeaderAwayError, match=r"^t-0: no leader answers"):
            async with ends.while_answering(FIRST):
                await asyncio.wait_for(asyncio.Event().wait(), 10)
        assert ends.is_answering(SECOND)


async def test_a_time_limit_within_a_wait_is_not_taken_for_a_leader_that_is_away() -> None:
    ends = ends_of(FIRST)
    with pytest.raises(TimeoutError):
        async with ends.while_answering(FIRST):
            raise TimeoutError
