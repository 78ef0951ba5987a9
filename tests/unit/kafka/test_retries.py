"""What is tried again and for how long: pauses, a broker without an answer, and work in a thread."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerError, BrokerUnavailableError, GuaranteeError, TopicsChangedError
from shoal.kafka import retries
from shoal.kafka.client import NotYetError, leader_away
from shoal.kafka.retries import BrokerLiveness, backoff_s, run_with_retries
from shoal.observability import Health
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time (s) that the worker reads."""
    time_s = [1000.0]
    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=lambda: time_s[0]))
    return time_s


def gives_up(liveness: BrokerLiveness, now: list[float], after_s: float) -> bool:
    """Let time pass; return whether a request without an answer is the last one then."""
    now[0] += after_s
    liveness.note_no_answer()
    return liveness.is_exhausted


def test_a_process_that_was_stopped_for_longer_than_its_patience_asks_the_broker_again(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)
    liveness.note_answer()
    # The process is stopped, as on a virtual machine that is paused.
    assert not gives_up(liveness, now, 600.0)
    assert not gives_up(liveness, now, 299.0)
    assert gives_up(liveness, now, 1.0)
    assert liveness.away_s == 300.0
    liveness.note_answer()
    assert not gives_up(liveness, now, 5.0)


def test_without_patience_the_first_request_without_an_answer_is_the_last(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 0.0)
    liveness.note_answer()
    assert gives_up(liveness, now, 5.0)


def test_a_broker_that_never_answered_is_away_since_the_start(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0, _away_since_s=now[0])
    assert not gives_up(liveness, now, 299.0)
    assert gives_up(liveness, now, 1.0)


SECOND, THIRD = TopicPartition("in", 2), TopicPartition("in", 3)
AWAY = {SECOND: leader_away(SECOND)}
NOT_STARTED = AWAY | {THIRD: NotYetError("in-3: not begun", waited_s=30.0)}


def test_transactions_that_cannot_begin_are_waited_for_as_long_although_the_broker_answers(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)

    def fail(after_s: float) -> None:
        now[0] += after_s
        liveness.note_answer()
        liveness.note_not_opened(NOT_STARTED, drains=False)

    fail(30.0)
    fail(239.0)
    liveness.note_opened()
    fail(500.0)
    fail(269.0)
    with pytest.raises(BrokerError, match=r"^in-3: not begun; giving up after 300 s \(kafka\.patience_s\)$") as caught:
        fail(1.0)
    assert not caught.value.retriable


def test_a_missing_leader_is_not_counted_as_a_transaction_that_cannot_begin(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)
    for error, after_s in ((NOT_STARTED, 0.0), (AWAY, 10.0), (AWAY, 5_000.0), (NOT_STARTED, 100.0)):
        now[0] += after_s
        liveness.note_not_opened(error, drains=False)
    now[0] += 270.0
    with pytest.raises(BrokerError, match=r"^in-3: not begun; giving up after 300 s"):
        liveness.note_not_opened(NOT_STARTED, drains=False)


def test_a_drain_gives_up_when_a_partition_could_not_be_opened_for_its_patience(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)
    for after_s in (0.0, 299.0):
        now[0] += after_s
        liveness.note_not_opened(AWAY, drains=True)
    liveness.note_opened()
    for after_s in (50.0, 299.0):
        now[0] += after_s
        liveness.note_not_opened(AWAY, drains=True)
    now[0] += 1.0
    liveness.note_not_opened(AWAY, drains=False)
    words = (
        "--drain: in-2: no leader answers; look whether its broker runs and can be reached; giving up after 300 s "
        "(kafka.patience_s)"
    )
    with pytest.raises(BrokerError) as caught:
        liveness.note_not_opened(AWAY, drains=True)
    assert (str(caught.value), caught.value.retriable, caught.value.exit_code) == (words, False, 3)


async def test_loss_and_return_of_the_broker_are_logged_once_each(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []
    for level in ("warning", "info"):
        monkeypatch.setattr(retries.log, level, lambda event, **fields: logged.append((event, fields)), raising=False)
    liveness = BrokerLiveness(Health(), 300.0, "kafka:9092")
    answers = [True, False, False, True, False]

    async def request() -> None:
        now[0] += 20.0
        if not answers:
            raise GuaranteeError("the end")
        if not answers.pop(0):
            raise OSError

    with pytest.raises(GuaranteeError):
        await liveness.check_broker(request, cast("Any", SimpleNamespace(renew=lambda: None)), every_s=0.001)
    assert logged == [
        ("the broker does not answer", {"broker": "kafka:9092", "gives_up_in_s": 300.0}),
        ("the broker answers again", {"broker": "kafka:9092", "away_s": 40.0}),
        ("the broker does not answer", {"broker": "kafka:9092", "gives_up_in_s": 300.0}),
    ]


# ---------------------------------------------------------------- pauses


async def test_readiness_says_why_a_loop_ended_until_all_partitions_are_open_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "backoff_s", lambda _: 0.0)
    health = Health(broker_reached=True)
    liveness, said = BrokerLiveness(health, 300.0), list[str]()

    async def run() -> None:
        said.append(health.status)
        if len(said) == 1:
            raise TopicsChangedError("the input has 3 partitions, 2 at the start: checking all topics again")
        health.joined = True
        liveness.note_opened()
        said.append(health.status)

    await run_with_retries(KafkaSection(bootstrap_servers="b:1"), liveness, asyncio.Event(), run)
    member = "not ready: not a member of the group yet"
    why = "a topic was deleted, or the input has new partitions: all topics are checked again"
    assert said == [member, f"{member}, {why}", "ready"]
    # The brokers answer: their patience does not run out.
    assert health.broker_reached


def test_pauses_grow_with_each_failure_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_random", lambda: 0.5)
    assert [backoff_s(failures) for failures in range(8)] == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


async def logged_pauses(monkeypatch: pytest.MonkeyPatch, drawn: float, failures: int) -> list[float]:
    """Return the logged pauses (s) of a worker whose first consumer loops fail."""
    monkeypatch.setattr(retries, "_random", lambda: drawn)
    logged: list[float] = []

    class Log:
        def warning(self, _: str, **fields: Any) -> None:
            logged.append(fields["retry_s"])

    monkeypatch.setattr(retries, "log", Log())
    stopping = asyncio.Event()

    async def fail() -> None:
        if len(logged) == failures:
            stopping.set()
        else:
            raise BrokerUnavailableError("no answer")

    settings = SimpleNamespace(bootstrap_servers="broker:9092")
    await run_with_retries(cast("Any", settings), BrokerLiveness(Health(), 60.0), stopping, fail)
    return logged


async def test_two_workers_that_lose_a_broker_together_come_back_at_different_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await logged_pauses(monkeypatch, 0.0, 2) == [0.05, 0.1]
    assert await logged_pauses(monkeypatch, 0.8, 2) == [0.13, 0.26]
