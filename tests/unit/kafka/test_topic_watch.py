"""A deleted topic, a recreated input, or one with another number of partitions, ends the consumer loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka.offsets import LogTruncatedError
from shoal.kafka.topics import TopicState, watch

pytestmark = pytest.mark.unit

FIRST, SECOND = b"1" * 16, b"2" * 16


async def watched(*answers: int | bytes | Exception | None, others: Sequence[int] = (3,) * 9) -> str:
    """Return why the watch ended, or that the answers ended first.

    An answer is the number of partitions of the input, or its id with three partitions. ``others`` are the numbers of
    partitions of the output.
    """
    left = list(answers)
    ended = asyncio.Event()

    numbers = iter(others)

    async def request() -> dict[str, TopicState]:
        if not left:
            ended.set()
            await asyncio.Event().wait()
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        states = {"out": TopicState(next(numbers, 3), b"")}
        if answer is None:
            return states
        return states | {"t": TopicState(answer, b"") if isinstance(answer, int) else TopicState(3, answer)}

    watching = asyncio.create_task(watch(request, {"t": 3}, every_s=0.001))
    waiter = asyncio.create_task(ended.wait())
    await asyncio.wait({watching, waiter}, return_when=asyncio.FIRST_COMPLETED)
    for task in (watching, waiter):
        task.cancel()
    (result, _) = await asyncio.gather(watching, waiter, return_exceptions=True)
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


async def reported(*answers: dict[str, TopicState]) -> str:
    """Return what a watch of the inputs a (1 partition) and b (2) reports; the last answer is repeated."""
    left = list(answers)

    async def request() -> dict[str, TopicState]:
        return left.pop(0) if len(left) > 1 else left[0]

    with pytest.raises((BrokerUnavailableError, LogTruncatedError)) as caught:
        await watch(request, {"a": 1, "b": 2}, every_s=0.001)
    return str(caught.value)


async def test_each_of_several_inputs_is_watched_and_named() -> None:
    start = {"a": TopicState(1, FIRST), "b": TopicState(2, SECOND), "out": TopicState(1, b"")}
    said = await reported(start, start | {"b": TopicState(3, SECOND)})
    assert said == "input b has 3 partitions, 2 at the start: checking all topics again"
    assert await reported(start, start | {"a": TopicState(0, b"")}) == (
        "input a no longer exists: checking all topics again"
    )
    assert (await reported(start, start | {"b": TopicState(2, FIRST)})).startswith("b: the id of the topic has changed")
    assert await reported(start, start | {"out": TopicState(0, b"")}) == (
        "topic out no longer exists: checking all topics again"
    )


async def test_a_deleted_output_is_reported_and_added_partitions_of_it_are_not() -> None:
    said = "topic out no longer exists: checking all topics again"
    assert await watched(3, 3, 3, others=(3, 0, 0)) == said
    assert await watched(3, 3, 3, others=(0, 4, 0)) == "no change"
