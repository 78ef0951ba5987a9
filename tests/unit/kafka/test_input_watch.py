"""A deleted or recreated input, or one with another number of partitions, ends the consumer loop."""

from __future__ import annotations

import asyncio

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka.input_watch import watch_topic
from shoal.kafka.offset_tracker import LogTruncatedError
from shoal.kafka.topic_ids import TopicState

pytestmark = pytest.mark.unit

FIRST, SECOND = b"1" * 16, b"2" * 16


async def watched(*answers: int | bytes | Exception | None) -> str:
    """Return why the watch ended, or that the answers ended first: numbers of partitions, or ids of three of them."""
    left = list(answers)
    ended = asyncio.Event()

    async def request() -> TopicState | None:
        if not left:
            ended.set()
            await asyncio.Event().wait()
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return TopicState(answer, b"")
        return None if answer is None else TopicState(3, answer)

    watch = asyncio.create_task(watch_topic(request, "t", 3, every_s=0.001))
    waiter = asyncio.create_task(ended.wait())
    await asyncio.wait({watch, waiter}, return_when=asyncio.FIRST_COMPLETED)
    for task in (watch, waiter):
        task.cancel()
    (result, _) = await asyncio.gather(watch, waiter, return_exceptions=True)
    return str(result) if isinstance(result, (BrokerUnavailableError, LogTruncatedError)) else "no change"


async def test_added_partitions_are_reported_after_two_answers() -> None:
    assert await watched(3, 4, 4) == "the input has 4 partitions, 3 at the start: checking all topics again"


async def test_a_deleted_input_is_reported_after_two_answers() -> None:
    assert await watched(0, OSError(), 0) == "the input no longer exists: checking all topics again"


async def test_one_differing_answer_an_error_or_no_answer_is_no_change() -> None:
    assert await watched(0, 3, 4, None, 2, 3, OSError(), TimeoutError(), 3) == "no change"


async def test_another_id_of_the_topic_is_reported_after_two_answers() -> None:
    said = await watched(FIRST, FIRST, SECOND, SECOND)
    assert said.startswith("t: the id of the topic has changed. The topic was recreated")
    assert await watched(FIRST, 0, SECOND) == said


async def test_one_answer_with_another_id_or_without_an_id_is_no_change() -> None:
    assert await watched(FIRST, SECOND, FIRST, 3, 3, FIRST, None, SECOND, None, SECOND, FIRST) == "no change"
    assert await watched(3, FIRST, 3, FIRST) == "no change"
