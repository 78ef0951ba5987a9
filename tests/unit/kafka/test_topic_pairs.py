"""The settings of each pair of topics."""

from __future__ import annotations

import pytest
from shoal.kafka.topics import has_several_inputs, input_name, member_id, settings_by_input
from shoal.policy import KafkaSection
from shoal.policy.schema import TopicPairSection

pytestmark = pytest.mark.unit


def test_the_settings_of_one_input_are_those_of_the_policy() -> None:
    settings = KafkaSection(input="a", output="b", group="g")
    (found,) = settings_by_input(settings).items()
    assert found == ("a", settings)
    assert not has_several_inputs(settings)


def test_each_pair_has_its_input_and_output_and_all_other_settings() -> None:
    pairs = [TopicPairSection(input="a", output="b"), TopicPairSection(input="c", output="d")]
    settings = KafkaSection(topics=pairs, group="g", evidence="e", commit_interval_ms=7)
    found = settings_by_input(settings)
    assert {topic: (one.input, one.output) for topic, one in found.items()} == {"a": ("a", "b"), "c": ("c", "d")}
    assert {(one.group, one.evidence, one.commit_interval_ms) for one in found.values()} == {("g", "e", 7)}
    assert has_several_inputs(settings)
    assert all(map(has_several_inputs, found.values()))
    assert not has_several_inputs(KafkaSection(topics=pairs[:1]))


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


def test_an_input_is_named_by_its_topic_where_there_are_several() -> None:
    assert input_name("a", ["a"]) == "the input"
    assert input_name("a", ["a", "c"]) == "input a"
