"""A deleted input, or one with another number of partitions, ends the consumer loop."""

from __future__ import annotations

import asyncio

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka.input_watch import watch_partition_count

pytestmark = pytest.mark.unit


async def watched(*answers: int | Exception | None) -> str:
    """Return why the watch ended, or that the answers ended first."""
    left = list(answers)
    ended = asyncio.Event()

    async def request() -> int | None:
        if not left:
            ended.set()
            await asyncio.Event().wait()
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = asyncio.create_task(watch_partition_count(request, 3, every_s=0.001))
    waiter = asyncio.create_task(ended.wait())
    await asyncio.wait({watch, waiter}, return_when=asyncio.FIRST_COMPLETED)
    for task in (watch, waiter):
        task.cancel()
    (result, _) = await asyncio.gather(watch, waiter, return_exceptions=True)
    return str(result) if isinstance(result, BrokerUnavailableError) else "no change"


async def test_added_partitions_are_reported_after_two_answers() -> None:
    assert await watched(3, 4, 4) == "the input has 4 partitions, 3 at the start: checking all topics again"


async def test_a_deleted_input_is_reported_after_two_answers() -> None:
    assert await watched(0, OSError(), 0) == "the input no longer exists: checking all topics again"


async def test_one_differing_answer_an_error_or_no_answer_is_no_change() -> None:
    assert await watched(0, 3, 4, None, 2, 3, OSError(), TimeoutError(), 3) == "no change"
