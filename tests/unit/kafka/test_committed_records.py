"""Reading a log to its end: time limits count from the last progress, which aborted records are, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerUnavailableError
from shoal.kafka import logs
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

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

    monkeypatch.setattr(logs, "reading", reading)
    for module in (logs, logs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now_s))
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
