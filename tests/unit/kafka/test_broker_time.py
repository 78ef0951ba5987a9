"""Which records wait where the clock of this machine would refuse them, by what the broker says of its time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from aiokafka import TopicPartition
from shoal.kafka.broker_time import TELLS_NO_TIME, ClockCheck
from shoal.kafka.waits import WaitReason, WaitReport
from shoal.observability import Health, Metrics
from structlog.testing import capture_logs
from support.partition_tasks import START_MS, Message

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
NOW_MS = START_MS


@dataclass
class Broker:
    """A broker whose clock is so far ahead of this machine's; None: it does not answer."""

    ahead_ms: int | None
    is_old: bool = False
    now_s: float = 1000.0
    asked: int = 0

    async def tell(self) -> int | None:
        self.asked += 1
        if self.is_old:
            return TELLS_NO_TIME
        return None if self.ahead_ms is None else NOW_MS + self.ahead_ms

    @property
    def check(self) -> ClockCheck:
        return ClockCheck(self.tell, lambda: self.now_s)


@dataclass(frozen=True)
class Stamped(Message):
    timestamp_type: int = 1


def ahead(*by_ms: int) -> list[Message]:
    return [Message(offset, NOW_MS + one, b"") for offset, one in enumerate(by_ms)]


@pytest.mark.parametrize(
    ("broker_ahead_ms", "dated_ms", "waits_at"),
    [
        # The clocks agree, so the producer is wrong.
        (0, 2 * HOUR_MS, None),
        (5 * MINUTE_MS, HOUR_MS + 1, None),
        # This machine is behind: valid records wait, the others are refused by both clocks.
        (5 * MINUTE_MS + 1, HOUR_MS + 1, 1),
        (2 * HOUR_MS, 2 * HOUR_MS, 1),
        (2 * HOUR_MS, 3 * HOUR_MS, 1),
        (2 * HOUR_MS, 3 * HOUR_MS + 1, None),
        # This machine is ahead.
        (-2 * HOUR_MS, HOUR_MS + 1, None),
    ],
)
async def test_a_record_waits_if_the_broker_shows_that_it_is_valid(
    broker_ahead_ms: int, dated_ms: int, waits_at: int | None
) -> None:
    broker = Broker(broker_ahead_ms)
    check = broker.check
    assert await check.first_that_waits(ahead(0, dated_ms, 0), NOW_MS) == waits_at
    assert check.behind_ms == (None if waits_at is None else broker_ahead_ms)


async def test_a_broker_is_asked_at_most_every_ten_seconds() -> None:
    broker = Broker(2 * HOUR_MS)
    check = broker.check
    for passed_s, asked in ((0, 1), (10, 1), (0.5, 2)):
        broker.now_s += passed_s
        # Between two answers its time goes on.
        assert await check.first_that_waits(ahead(3 * HOUR_MS), NOW_MS) == 0
        assert broker.asked == asked


async def test_without_an_answer_records_wait_for_five_minutes() -> None:
    broker = Broker(None)
    check = broker.check
    found = []
    for _ in range(31):
        found.append(await check.first_that_waits(ahead(2 * HOUR_MS), NOW_MS))
        assert (check.behind_ms == 0) == (found[-1] == 0)
        broker.now_s += 10.5
    assert (found[:28], found[-1]) == ([0] * 28, None)
    # An hour later no answer is missing yet.
    broker.now_s += 3600
    assert await check.first_that_waits(ahead(2 * HOUR_MS), NOW_MS) == 0
    broker.now_s, broker.ahead_ms = broker.now_s + 10.5, 2 * HOUR_MS
    assert await check.first_that_waits(ahead(2 * HOUR_MS), NOW_MS) == 0


async def test_of_a_broker_that_tells_no_time_only_its_own_stamps_count() -> None:
    assert await Broker(0, is_old=True).check.first_that_waits(ahead(2 * HOUR_MS), NOW_MS) is None
    check = Broker(0, is_old=True).check
    stamped: list[Message] = [Stamped(0, NOW_MS, b""), Stamped(1, NOW_MS + 2 * HOUR_MS, b"")]
    assert await check.first_that_waits(stamped, NOW_MS) == 1
    assert check.behind_ms == 2 * HOUR_MS


def test_a_reason_to_wait_is_told_with_its_remedy_and_ever_more_rarely() -> None:
    now, metrics, health = [0.0], Metrics(), Health(joined=True, broker_reached=True)
    report = WaitReport(metrics, health, lambda: now[0])
    reasons = {TopicPartition("in", 0): WaitReason.DELTA, TopicPartition("in", 1): WaitReason.DELTA}
    with capture_logs() as lines:
        for second in range(500):
            now[0] = float(second)
            report.update(reasons)
        assert health.ready
        assert len(lines) == 4
        assert (lines[0]["partitions"], lines[0]["remedy"][:23]) == ("in-0, in-1", "set stream.max_delay_s,")
        assert metrics.waiting.labels("delta")._value.get() == 2
        report.update({TopicPartition("in", 0): WaitReason.CLOCK}, 7200)
        assert health.status.startswith("not ready: records wait: the clock of this machine is behind")
        assert [(one["event"], one["log_level"]) for one in lines[4:]] == [
            (f"records wait: {WaitReason.CLOCK.words}", "warning"),
            ("records wait no longer", "info"),
        ]
        assert lines[4]["behind_s"] == 7200
        # A reason that comes and goes is told at most once a minute.
        for second in range(60, 240):
            now[0] = 600.0 + second
            report.update({} if second % 2 else {TopicPartition("in", 0): WaitReason.OUTPUT})
        assert [one["reason"] for one in lines if one["event"].endswith(WaitReason.OUTPUT.words)] == ["output"] * 3
        report.update({})
    assert health.ready
    assert metrics.waiting.labels("clock")._value.get() == 0


def test_a_worker_that_ends_does_not_say_that_records_wait_no_longer() -> None:
    metrics, health = Metrics(), Health(joined=True, broker_reached=True)
    report = WaitReport(metrics, health, lambda: 0.0)
    with capture_logs() as lines:
        report.update({TopicPartition("in", 0): WaitReason.CLOCK}, 7200)
        report.end()
    assert [one["event"] for one in lines] == [f"records wait: {WaitReason.CLOCK.words}"]
    assert health.ready
    assert metrics.waiting.labels("clock")._value.get() == 0
