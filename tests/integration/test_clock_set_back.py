"""The clock of a worker is behind: a time that a broker stamps tells, and valid records wait until it is right."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from shoal.kafka.transactions import TaskContext
from support.kafka_broker import wait_until
from support.running import Run, Stage

HOURS_S = 7200


class SetBackClock:
    """The clock of a worker in this process; all others are right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.back_s = 0.0
        context = partial(TaskContext, wall_clock=lambda: time.time() - self.back_s)
        monkeypatch.setattr("shoal.kafka.task_manager.TaskContext", context)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetBackClock:
    return SetBackClock(monkeypatch)


def events(said: str, event: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, said.splitlines()) if one["event"] == event]


def waiting(run: Run) -> float:
    return run.total("shoal_partitions_waiting", reason="clock")


async def test_records_wait_while_the_clock_is_set_back_and_none_is_refused(stage: Stage, clock: SetBackClock) -> None:
    async with stage.run() as run:
        await run.until_ready()
        first = await stage.put(30)
        await run.until_read(30)
        clock.back_s = HOURS_S
        later = await stage.put(30)
        await run.until(lambda: waiting(run) == 1, "a partition that waits")
        await run.until(lambda: not run.service.health.ready, "that it is not ready")
        assert "clock of this machine is behind that of the brokers" in run.service.health.status
        assert run.total("shoal_records_total", outcome="in") == 30
        clock.back_s = 0.0
        await run.until_ready()
        await run.until_read(60)
        assert waiting(run) == 0
    await stage.drained([*first, *later])
    assert await stage.objects("quarantine") == []
    assert sorted((await stage.serials()).values()) == [1] * 60


async def test_a_producer_whose_clock_is_ahead_stops_nothing(bootstrap: str, tmp_path: Path) -> None:
    # By default a broker refuses messages that are dated more than an hour ahead.
    stage = await Stage.create(bootstrap, tmp_path, configs={"message.timestamp.after.max.ms": "99999999"})
    async with stage.run() as run:
        await run.until_ready()
        ahead_ms = round((time.time() + HOURS_S) * 1000)
        refused = await stage.send([stage.record() for _ in range(3)], timestamps_ms=[ahead_ms] * 3)
        await run.until_read(3)
        await run.until(lambda: run.total("shoal_records_dated_ahead_total") == 3, "their refusal")
        await wait_until(lambda: run.service.health.ready, what="readiness")
        assert waiting(run) == 0
    assert [one["offset"] for one in await stage.objects("quarantine")] == [offset for _, offset in refused]
