"""What the log says while partitions are opened."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from shoal.errors import ShoalError
from shoal.kafka import task_manager
from shoal.kafka.client import LeaderAwayError
from shoal.kafka.task_manager import telling_unopened
from structlog.testing import capture_logs
from support.kafka_broker import wait_until

pytestmark = pytest.mark.unit

FIRST, SECOND = TopicPartition("in", 1), TopicPartition("in", 2)


async def test_a_first_failure_is_told_at_once_and_long_waits_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_manager, "OPENING_CHECK_S", 0.001)
    left: dict[TopicPartition, ShoalError | None] = {FIRST: None, SECOND: None}
    with capture_logs() as lines:
        async with telling_unopened(lambda: left):
            await asyncio.sleep(0.05)
            assert lines == []
            left[SECOND] = LeaderAwayError(SECOND)
            await wait_until(lambda: len(lines) >= 1)
            left[FIRST] = LeaderAwayError(FIRST)
            await asyncio.sleep(0.05)
            assert len(lines) == 1, "not before the next interval"
            monkeypatch.setattr(task_manager, "TELL_EVERY_S", 0.05)
            await wait_until(lambda: len(lines) >= 3)
            left.clear()
        count = len(lines)
        await asyncio.sleep(0.1)
    away = "no leader answers; look whether its broker runs and can be reached"
    assert len(lines) == count
    assert [(line["event"], line["count"], line["reason"]) for line in lines[:2]] == [
        ("partitions not opened; the others go on", 2, f"in-2: {away}"),
        ("partitions not opened; the others go on", 2, f"in-1: {away}. The same holds for in-2"),
    ]


async def test_a_long_opening_without_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_manager, "OPENING_CHECK_S", 0.001)
    monkeypatch.setattr(task_manager, "TELL_EVERY_S", 0.02)
    with capture_logs() as lines:
        async with telling_unopened(lambda: {FIRST: None}):
            await wait_until(lambda: len(lines) >= 1)
    assert (lines[0]["event"], lines[0]["log_level"], lines[0]["count"]) == ("partitions are being opened", "info", 1)
