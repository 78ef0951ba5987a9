"""The settings of each pair of topics."""

from __future__ import annotations

import pytest
from shoal.kafka.topic_pairs import has_several_inputs, input_name, settings_by_input
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


def test_an_input_is_named_by_its_topic_where_there_are_several() -> None:
    assert input_name("a", ["a"]) == "the input"
    assert input_name("a", ["a", "c"]) == "input a"
