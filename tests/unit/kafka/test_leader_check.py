"""Which brokers a loop asks, and what it makes of those that do not answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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
from shoal.kafka import logs, retries
from shoal.kafka.logs import LeaderCheck
from structlog.testing import capture_logs

pytestmark = pytest.mark.unit

FIRST, SECOND, THIRD, NEITHER = (TopicPartition("t", number) for number in range(4))
LEADERS = {FIRST: 1, SECOND: 2, THIRD: 1, NEITHER: None}


class Consumer:
    """Answers for the partitions of some leaders."""

    def __init__(self) -> None:
        self._client = SimpleNamespace(cluster=SimpleNamespace(leader_for_partition=LEADERS.get))
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
        self.asked.append(partitions)
        if self.deleted & set(partitions):
            raise UnknownTopicOrPartitionError
        if LEADERS[partitions[0]] in self.silent:
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        return dict.fromkeys(partitions, 5)


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
    consumer = Consumer()
    with capture_logs() as lines:
        await check_of(consumer).ask([FIRST, SECOND, THIRD, NEITHER])
    assert (consumer.asked, lines) == ([[FIRST, THIRD], [SECOND], [NEITHER]], [])


async def test_a_partition_without_an_answer_says_nothing_about_the_others_of_its_leader() -> None:
    consumer, counts = Consumer(), list[float]()
    check, consumer.deleted = check_of(consumer, counts), {FIRST}
    with capture_logs() as lines:
        for _ in range(2):
            await check.ask([FIRST, SECOND, THIRD])
    assert consumer.asked == [[FIRST, THIRD], [SECOND], [SECOND], [FIRST], [THIRD]]
    assert counts == [0, 0, 1]
    assert [line["partitions"] for line in lines] == [["t-0"]]


async def test_a_rebalance_does_not_say_that_leaders_answer_again() -> None:
    consumer, counts = Consumer(), list[float]()
    check, consumer.silent, consumer.error = check_of(consumer, counts), {2}, KafkaTimeoutError()
    with capture_logs() as lines:
        for partitions in ([FIRST, SECOND], [], [FIRST], [FIRST, SECOND]):
            await check.ask(partitions)
    assert counts == [0, 1, 0, 0, 1]
    assert [line["log_level"] for line in lines] == ["warning"]


@pytest.mark.parametrize("error", [None, KafkaTimeoutError()])
async def test_a_leader_that_is_away_is_named_once_while_another_answers(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(logs, "LEADER_ANSWER_S", 0.05)
    consumer, counts = Consumer(), list[float]()
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


async def test_a_partition_is_named_within_ten_seconds() -> None:
    """After two questions without an answer; a broker check asks each two seconds after the last answer."""
    assert 2 * (retries.CHECK_S + logs.LEADER_ANSWER_S) < 10


async def test_a_leader_that_refuses_old_credentials_ends_the_loop_when_there_are_new_ones() -> None:
    """The others have authenticated before, and answer on."""

    def renew() -> None:
        raise BrokerUnavailableError("files with credentials have changed")

    consumer = Consumer()
    check = check_of(consumer, renew=renew)
    await check.ask([FIRST, SECOND])
    consumer.silent, consumer.error = {2}, AuthenticationFailedError()
    with pytest.raises(BrokerUnavailableError, match="have changed"):
        await check.ask([FIRST, SECOND])


@pytest.mark.parametrize("error", [None, KafkaTimeoutError()])
async def test_no_answer_of_any_broker_is_an_error(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    monkeypatch.setattr(logs, "LEADER_ANSWER_S", 0.05)
    consumer, counts = Consumer(), list[float]()
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
    consumer, counts = Consumer(), list[float]()
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
    consumer = Consumer()
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
    consumer = Consumer()
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
    consumer = Consumer()
    consumer.silent, consumer.error = {1}, ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await check_of(consumer).ask([FIRST, SECOND])
