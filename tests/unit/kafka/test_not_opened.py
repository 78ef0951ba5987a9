"""What a partition waits for when it cannot be opened, and how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError
from shoal.kafka import client as connection
from shoal.kafka import progress_copy, start
from shoal.kafka.client import LeaderAwayError, NotOpenedError, leader_answer, log_bounds
from shoal.kafka.metadata import MetadataCipher
from shoal.kafka.progress_copy import HiddenCopyError, ProgressCopy
from shoal.kafka.start import check_no_open_transaction
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(input="in", output="out", group="g", progress_copy="copy")


class Silent:
    """A client whose leaders do not answer."""

    async def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        await asyncio.Event().wait()
        raise AssertionError

    beginning_offsets = end_offsets


@asynccontextmanager
async def silent(*_: object, **__: object) -> AsyncIterator[Any]:
    yield Silent()


async def of_input() -> None:
    reader: Any = Silent()
    await log_bounds(reader, TopicPartition("in", 3))


async def of_output() -> None:
    await check_no_open_transaction(SETTINGS, 3)


async def of_copy() -> None:
    await ProgressCopy(SETTINGS, 3, MetadataCipher("g")).fetch()


@pytest.mark.parametrize(("ask", "name"), [(of_input, "in-3"), (of_output, "out-3"), (of_copy, "copy-3")])
async def test_a_leader_that_does_not_answer_is_not_waited_for_as_long_as_the_client_does(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Awaitable[None]], name: str
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.05)
    for module in (start, progress_copy):
        monkeypatch.setattr(module, "reading", silent)
    async with asyncio.timeout(5):
        with pytest.raises(LeaderAwayError) as caught:
            await ask()
    assert str(caught.value) == f"{name}: no leader answers; look whether its broker runs and can be reached"


async def test_a_client_that_has_waited_for_a_leader_itself_is_taken_for_the_same() -> None:
    with pytest.raises(LeaderAwayError):
        async with leader_answer(TopicPartition("in", 3)):
            raise KafkaTimeoutError


def test_partitions_that_are_not_open_are_named_with_their_reasons() -> None:
    parts = [TopicPartition("in", number) for number in range(5)]
    error = NotOpenedError(
        {
            parts[0]: LeaderAwayError(parts[0]),
            parts[1]: LeaderAwayError(TopicPartition("out", 1)),
            parts[2]: HiddenCopyError(TopicPartition("copy", 2)),
            parts[3]: LeaderAwayError(TopicPartition("out", 3)),
            parts[4]: LeaderAwayError(parts[4]),
        }
    )
    away = "no leader answers; look whether its broker runs and can be reached. The same holds for"
    lines = str(error).splitlines()
    assert lines[:2] == [f"in-0: {away} in-4", f"in-1: out-1: {away} in-3"]
    assert lines[2].startswith("in-2: copy-2: an open transaction, of this or another group, hides the copy of")
    assert (len(lines), list(error.reasons)) == (3, parts)
