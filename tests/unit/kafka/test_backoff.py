"""Pauses between attempts are random, so that the workers of a group do not come back at the same moments."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka import retries
from shoal.kafka.retries import BrokerLiveness, backoff_s, jittered, run_with_retries
from shoal.observability import Health

pytestmark = pytest.mark.unit


def test_a_pause_lies_between_half_and_one_and_a_half_of_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []
    for drawn in (0.0, 0.5, 0.75):
        monkeypatch.setattr(retries, "_random", lambda drawn=drawn: drawn)
        pauses.append(jittered(2.0))
    assert pauses == [1.0, 2.0, 2.5]


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
