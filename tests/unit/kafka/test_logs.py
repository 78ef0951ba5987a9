"""Logs: the ends of them, records behind aborted ones, and leaders that do not answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    AuthenticationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from shoal.errors import BrokerError, BrokerUnavailableError
from shoal.kafka import logs
from shoal.kafka.client import NotYetError
from shoal.kafka.logs import LeaderCheck, LogEnds
from shoal.policy import KafkaSection
from structlog.testing import capture_logs
from support.kafka_broker import wait_until

pytestmark = pytest.mark.unit


FIRST, SECOND, THIRD, NEITHER = (TopicPartition("t", number) for number in range(4))
LEADERS = {FIRST: 1, SECOND: 2, THIRD: 1, NEITHER: None}


class Reader:
    """A client that answers for the partitions of all leaders that are not silent."""

    def __init__(self, end: int = 5) -> None:
        self._client = SimpleNamespace(cluster=SimpleNamespace(leader_for_partition=LEADERS.get))
        self.end = end
        self.asked: list[list[TopicPartition]] = []
        self.silent: set[int | None] = set()
        self.error: Exception | None = None
        self.deleted: set[TopicPartition] = set()
        self.lost = False
        """No broker answers."""
        self.any_asked_count = 0

    async def ask_any(self) -> None:
        self.any_asked_count += 1
        if self.lost:
            raise KafkaConnectionError

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(list(partitions))
        if self.deleted & set(partitions):
            raise UnknownTopicOrPartitionError
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
        with pytest.raises(NotYetError, match=r"^t-0: no leader answers"):
            async with ends.while_answering(FIRST):
                await asyncio.wait_for(asyncio.Event().wait(), 10)
        assert ends.is_answering(SECOND)


async def test_a_time_limit_within_a_wait_is_not_taken_for_a_leader_that_is_away() -> None:
    ends = ends_of(FIRST)
    with pytest.raises(TimeoutError):
        async with ends.while_answering(FIRST):
            raise TimeoutError


# ---------------------------------------------------------------- the check of leaders


def check_of(
    consumer: Any,
    counts: list[float] | None = None,
    renew: Callable[[], None] = lambda: None,
    patience_s: float = math.inf,
) -> LeaderCheck:
    return LeaderCheck(
        consumer, (list[float]() if counts is None else counts).append, renew, consumer.ask_any, patience_s
    )


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time (s) that the check reads."""
    time_s = [1000.0]
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: time_s[0]))
    return time_s


async def test_each_leader_gets_one_request() -> None:
    consumer = Reader()
    with capture_logs() as lines:
        await check_of(consumer).ask([FIRST, SECOND, THIRD, NEITHER])
    assert (consumer.asked, lines) == ([[FIRST, THIRD], [SECOND], [NEITHER]], [])


async def test_a_partition_without_an_answer_says_nothing_about_the_others_of_its_leader() -> None:
    consumer, counts = Reader(), list[float]()
    check, consumer.deleted = check_of(consumer, counts), {FIRST}
    with capture_logs() as lines:
        for _ in range(2):
            await check.ask([FIRST, SECOND, THIRD])
    assert consumer.asked == [[FIRST, THIRD], [SECOND], [SECOND], [FIRST], [THIRD]]
    assert counts == [0, 0, 1]
    assert [line["partitions"] for line in lines] == [["t-0"]]


async def test_a_rebalance_does_not_say_that_leaders_answer_again() -> None:
    consumer = Reader()
    consumer.silent, consumer.error = {2}, KafkaTimeoutError()
    check = check_of(consumer)
    with capture_logs() as lines:
        for partitions in ([FIRST, SECOND], [], [FIRST], [FIRST, SECOND]):
            await check.ask(partitions)
    assert [line["log_level"] for line in lines] == ["warning"]


@pytest.mark.parametrize("error", [None, KafkaTimeoutError()])
async def test_a_leader_that_is_away_is_named_once_while_another_answers(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(logs, "LEADER_ANSWER_S", 0.05)
    consumer, counts = Reader(), list[float]()
    check = check_of(consumer, counts)
    consumer.silent, consumer.error = {1}, error
    with capture_logs() as lines:
        for _ in range(3):
            await check.ask([FIRST, SECOND, THIRD])
        consumer.silent = set()
        await check.ask([FIRST, SECOND, THIRD])
    assert counts == [0, 0, 2, 2, 0], "of the first question, it is not clear which of the two has no answer"
    assert [(line["log_level"], line.get("partitions")) for line in lines] == [
        ("warning", ["t-0", "t-2"]),
        ("info", None),
    ]


async def test_a_broker_that_knows_no_coordinator_answers() -> None:
    class Client:
        error: type[Exception] = GroupCoordinatorNotAvailableError

        async def find_coordinator(self, group: str) -> int:
            raise self.error(group)

    client: Any = Client()
    await logs.ask_any_broker(client, "g")
    client.error = KafkaTimeoutError
    with pytest.raises(KafkaTimeoutError):
        await logs.ask_any_broker(client, "g")


async def test_a_leader_that_refuses_old_credentials_ends_the_loop_when_there_are_new_ones() -> None:
    """The others have authenticated before, and answer on."""

    def renew() -> None:
        raise BrokerUnavailableError("files with credentials have changed")

    consumer = Reader()
    check = check_of(consumer, renew=renew)
    await check.ask([FIRST, SECOND])
    consumer.silent, consumer.error = {2}, AuthenticationFailedError()
    with pytest.raises(BrokerUnavailableError, match="have changed"):
        await check.ask([FIRST, SECOND])


@pytest.mark.parametrize("error", [None, KafkaTimeoutError()])
async def test_no_answer_of_any_broker_is_an_error(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    monkeypatch.setattr(logs, "LEADER_ANSWER_S", 0.05)
    consumer, counts = Reader(), list[float]()
    consumer.silent, consumer.error, consumer.lost = {1, 2}, error, True
    check = check_of(consumer, counts)
    for partitions in ([FIRST, SECOND], []):
        with capture_logs() as lines, pytest.raises(KafkaConnectionError):
            await check.ask(partitions)
        assert lines == [], "the loss of all brokers is told elsewhere"
    consumer.lost = False
    await check.ask([])
    assert (counts, check.are_all_away) == ([0, 2, 0, 0], False), "without partitions, none is unreachable"


async def test_a_worker_waits_for_the_leaders_of_all_its_partitions_while_another_broker_answers() -> None:
    consumer, counts = Reader(), list[float]()
    consumer.silent, consumer.error = {1, 2}, KafkaTimeoutError()
    check = check_of(consumer, counts)
    with capture_logs() as lines:
        await check.ask([FIRST, SECOND, THIRD])
        assert (check.are_all_away, counts[-1]) == (True, 3)
        consumer.silent = {1}
        await check.ask([FIRST, SECOND, THIRD])
        assert (check.are_all_away, counts[-1]) == (False, 2)
        await check.ask([FIRST])
    assert (check.are_all_away, counts[-1], consumer.any_asked_count) == (True, 1, 2)
    assert [line["partitions"] for line in lines] == [["t-0", "t-1", "t-2"]]


async def test_a_leader_that_stays_away_is_named_again_after_a_minute(now: list[float]) -> None:
    consumer = Reader()
    consumer.silent, consumer.error = {2}, KafkaTimeoutError()
    check = check_of(consumer)
    with capture_logs() as lines:
        for passed_s in (0.0, 30.0, 29.0, 1.0, 59.0, 1.0):
            now[0] += passed_s
            await check.ask([FIRST, SECOND])
    assert [(line["log_level"], line["partitions"], line["since_s"]) for line in lines] == [
        ("warning", ["t-1"], 0.0),
        ("warning", ["t-1"], 60.0),
        ("warning", ["t-1"], 120.0),
    ]


@pytest.mark.parametrize("silent", [{2}, {1, 2}])
async def test_a_drain_gives_up_when_a_leader_was_away_for_its_patience(
    now: list[float], silent: set[int | None]
) -> None:
    consumer = Reader()
    consumer.silent, consumer.error = silent, KafkaTimeoutError()
    check = check_of(consumer, patience_s=300.0)
    for passed_s in (0.0, 299.0):
        now[0] += passed_s
        await check.ask([FIRST, SECOND])
    consumer.silent = set()
    await check.ask([FIRST, SECOND])
    consumer.silent = {2}
    for passed_s in (0.0, 299.0):
        now[0] += passed_s
        await check.ask([FIRST, SECOND])
    now[0] += 1.0
    words = r"^--drain: t-1: no leader answered for 300 s \(kafka\.patience_s\); giving up\. No record is lost"
    with pytest.raises(BrokerError, match=words) as caught:
        await check.ask([FIRST, SECOND])
    assert (caught.value.retriable, caught.value.exit_code) == (False, 3)


async def test_an_error_that_is_none_of_the_client_is_raised_although_another_leader_answers() -> None:
    consumer = Reader()
    consumer.silent, consumer.error = {1}, ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await check_of(consumer).ask([FIRST, SECOND])


# ---------------------------------------------------------------- records behind aborted ones


TP = TopicPartition("out", 0)
SETTINGS = KafkaSection(input="in", output="out", group="g")


class Log:
    """A reader of a log of 100 offsets. Each read takes seven seconds and passes some offsets; one record is last."""

    def __init__(self, passed: int) -> None:
        self.now_s, self.passed, self.at = 0.0, passed, 0

    def assign(self, _: object) -> None: ...

    def assignment(self) -> set[TopicPartition]:
        return {TP}

    async def beginning_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {TP: 0}

    async def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {TP: 100}

    def seek(self, _: object, offset: int) -> None:
        self.at = offset

    async def position(self, _: object) -> int:
        return self.at

    async def getmany(self, *_: object, **__: object) -> dict[TopicPartition, list[Any]]:
        self.now_s += 7
        self.at = min(100, self.at + self.passed)
        return {TP: [SimpleNamespace(offset=99)]} if self.at == 100 else {}


@pytest.fixture(params=[20, 0])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log(request.param)

    @asynccontextmanager
    async def reading(_: object) -> AsyncIterator[Log]:
        yield made

    monkeypatch.setattr(logs, "fetching", reading)
    monkeypatch.setattr(logs, "asking", reading)
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


async def test_committed_records_are_found_behind_aborted_ones(log: Log) -> None:
    found = logs.read_committed_records(SETTINGS, TP)
    if log.passed:
        assert [record.offset async for record in found] == [99]
        assert log.now_s == 35
    else:
        with pytest.raises(BrokerUnavailableError, match="out-0: cannot be read to its end"):
            await anext(found)
        assert log.now_s == 14


async def test_the_next_record_is_found_behind_aborted_ones(log: Log) -> None:
    reader = logs.GapReader(cast("Any", log))
    if log.passed:
        assert await reader.next_record_offset(TP, 0) == 99
        assert log.now_s == 35
    else:
        with pytest.raises(BrokerUnavailableError, match="out-0: cannot be read to its end"):
            await reader.next_record_offset(TP, 0)
        assert log.now_s == 7
