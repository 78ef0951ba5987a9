"""Checks before the start where the Kafka cluster is not complete."""

from __future__ import annotations

from typing import Any, cast

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka import preflight as checks
from shoal.policy import FieldPath, KafkaSection
from shoal.policy.schema import TopicPairSection

pytestmark = pytest.mark.unit


async def test_a_kafka_cluster_without_live_brokers_is_a_retriable_error() -> None:
    """So answers a broker that has just come back, as long as its controller takes it for dead."""

    class Waking:
        async def describe_cluster(self) -> dict[str, Any]:
            return {"brokers": []}

    with pytest.raises(BrokerUnavailableError, match="no broker"):
        await checks._broker(cast("Any", Waking()))


@pytest.mark.parametrize(
    ("count", "words"), [(1, "has 1 partition, the input 4"), (3, "has 3 partitions, the input 4")]
)
def test_an_output_with_too_few_partitions_is_a_fault(count: int, words: str) -> None:
    topics: dict[FieldPath, str] = {("kafka", "input"): "a", ("kafka", "output"): "b"}
    (fault,) = checks._about_topics(topics, {"a": 4, "b": count}, {})
    assert fault == (("kafka", "output"), f"topic b {words}: add partitions", None)


def test_each_pair_of_topics_is_checked() -> None:
    settings = KafkaSection(
        topics=[TopicPairSection(input="a", output="b"), TopicPairSection(input="c", output="d")],
        evidence="e",
        max_record_bytes=1000,
    )
    topics = checks._named_topics(settings)
    assert topics == {
        ("kafka", "topics", "0", "input"): "a",
        ("kafka", "topics", "0", "output"): "b",
        ("kafka", "topics", "1", "input"): "c",
        ("kafka", "topics", "1", "output"): "d",
        ("kafka", "evidence"): "e",
    }
    counts = {"a": 1, "b": 1, "c": 4, "d": 3, "e": 1}
    (fault,) = checks._about_topics(topics, counts, {"a": {"cleanup.policy": "compact"}})
    assert fault == (("kafka", "topics", "1", "output"), "topic d has 3 partitions, the input 4: add partitions", None)
    (fault,) = checks._about_topics(topics, counts | {"d": 4}, {"b": {"cleanup.policy": "compact"}})
    assert (fault.path, fault.message[:20]) == (("kafka", "topics", "0", "output"), "topic b is compacted")
    (fault,) = checks._about_sizes(topics, {"b": 17_384, "d": 17_383, "e": 1}, settings)
    assert (fault.path, fault.message[:28]) == (("kafka", "topics", "1", "output"), "topic d accepts 17383 bytes ")
