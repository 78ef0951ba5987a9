"""Refusals of several partitions: each text once, with the partitions to which it applies."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from shoal.kafka.client import join_refusals

pytestmark = pytest.mark.unit


def refused(topic: str, partition: int, words: str) -> tuple[TopicPartition, str]:
    return TopicPartition(topic, partition), f"{topic}-{partition}: {words}"


def test_one_refusal_stays_as_it_is() -> None:
    assert join_refusals([refused("in", 3, "use --from")]) == "in-3: use --from"


def test_a_text_is_said_once_with_the_partitions_to_which_it_applies() -> None:
    found = join_refusals([refused("in", number, "use --from") for number in range(3)])
    assert found == "in-0: use --from. The same holds for in-1, in-2"


def test_texts_that_differ_in_offsets_are_of_one_kind() -> None:
    found = join_refusals([refused("in", 0, "offset 17 of 20"), refused("in", 1, "offset 9 of 312")])
    assert found == "in-0: offset 17 of 20. The same, with other offsets, holds for in-1"


def test_other_texts_and_other_topics_have_lines_of_their_own() -> None:
    found = join_refusals(
        [
            refused("in1", 0, "lost"),
            refused("in1", 1, "use --from"),
            refused("in2", 0, "lost"),
            refused("in1", 2, "lost"),
        ]
    )
    assert found.split("\n") == [
        "in1-0: lost. The same holds for in1-2",
        "in1-1: use --from",
        "in2-0: lost",
    ]


@pytest.mark.parametrize(("count", "rest"), [(8, "in-6, in-7"), (9, "in-6, in-7 and 1 more"), (64, "in-7 and 56 more")])
def test_after_eight_partitions_the_others_are_counted(count: int, rest: str) -> None:
    found = join_refusals([refused("in", number, "use --from") for number in range(count)])
    assert found.count("in-") == 8
    assert found.endswith(rest)
