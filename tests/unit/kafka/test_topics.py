"""The settings of each pair of topics, and topics that change while they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from shoal.errors import TopicsChangedError
from shoal.kafka.offsets import ProgressError
from shoal.kafka.topics import TopicState, has_several_inputs, member_id, settings_by_input, watch
from shoal.policy import KafkaSection
from shoal.policy.schema import TopicPairSection

pytestmark = pytest.mark.unit


def test_each_pair_has_its_input_and_output_and_all_other_settings() -> None:
    alone = KafkaSection(input="a", output="b", group="g")
    assert settings_by_input(alone) == {"a": alone}
    pairs = [TopicPairSection(input="a", output="b"), TopicPairSection(input="c", output="d")]
    settings = KafkaSection(topics=pairs, group="g", evidence="e", commit_interval_ms=7)
    found = settings_by_input(settings)
    assert {topic: (one.input, one.output) for topic, one in found.items()} == {"a": ("a", "b"), "c": ("c", "d")}
    assert {(one.group, one.evidence, one.commit_interval_ms) for one in found.values()} == {("g", "e", 7)}
    assert all(map(has_several_inputs, (settings, *found.values())))
    assert not any(map(has_several_inputs, (alone, KafkaSection(topics=pairs[:1]))))


def ids_of(*inputs: str, instance_id: str | None = "w") -> str | None:
    pairs = [TopicPairSection(input=topic, output=f"{topic}.k") for topic in inputs]
    return member_id(KafkaSection(topics=pairs, instance_id=instance_id))


def test_a_static_member_with_other_inputs_is_another_member() -> None:
    assert member_id(KafkaSection(input="a", output="b", instance_id="w")) == "w"
    assert ids_of("a") == "w"
    assert ids_of("a", "b", instance_id=None) is None
    both = ids_of("a", "b")
    assert both is not None
    assert (both[:2], len(both)) == ("w-", 10)
    assert ids_of("b", "a") == both
    assert len({both, ids_of("a", "c"), ids_of("a", "b", "c")}) == 3


# ---------------------------------------------------------------- watched topics


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
    return str(result) if isinstance(result, (TopicsChangedError, ProgressError)) else "no change"


@pytest.mark.parametrize(
    ("answers", "others", "said"),
    [
        ((3, 4, 4), (), "the input has 4 partitions, 3 at the start: checking all topics again"),
        ((0, OSError(), 0), (), "the input no longer exists: checking all topics again"),
        ((3, 3, 3), (3, 0, 0), "topic out no longer exists: checking all topics again"),
        ((3, 3, 3), (0, 4, 0), "no change"),
        ((0, 3, 4, None, 2, 3, OSError(), TimeoutError(), 3), (), "no change"),
        ((FIRST, SECOND, FIRST, 3, 3, FIRST, None, SECOND, None, SECOND, FIRST), (), "no change"),
        ((3, FIRST, 3, FIRST), (), "no change"),
    ],
)
async def test_two_answers_in_succession_must_show_that_an_input_was_changed_or_a_topic_deleted(
    answers: tuple[int | bytes | Exception | None, ...], others: tuple[int, ...], said: str
) -> None:
    assert await watched(*answers, others=others or (3,) * 9) == said


async def test_another_id_of_the_topic_is_reported_after_two_answers() -> None:
    said = await watched(FIRST, FIRST, SECOND, SECOND)
    assert said.startswith("t: the id of the topic has changed. The topic was recreated")
    assert await watched(FIRST, 0, SECOND) == said
