"""Checks before the start where the Kafka cluster is not complete."""

from __future__ import annotations

from typing import Any, cast

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka import preflight as checks

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
    (fault,) = checks._about_topics({"input": "a", "output": "b"}, {"a": 4, "b": count}, {})
    assert fault.message == f"topic b {words}: add partitions"
