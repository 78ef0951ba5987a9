"""What must hold before the first record is read: topics, their settings, the broker's limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from shoal.errors import Fault, PolicyError
from shoal.flow import BLOCK_RECORDS
from shoal.kafka.metadata import largest_span
from shoal.policy import KafkaSection, Policy

__all__ = ["check_start"]


async def check_start(client: AIOKafkaAdminClient, policy: Policy, settings: KafkaSection) -> dict[str, int]:
    """Check the topics and return their partition counts.

    Raises
    ------
    PolicyError
        With everything that stands in the way, and the remedy of each.
    InputError
        ``stream.delta`` cannot be kept in the group's metadata.
    """
    largest_span(policy.streaming().delta, BLOCK_RECORDS)
    named = {name: getattr(settings, name) for name in ("input", "output", "quarantine", "clusters", "evidence")}
    topics = {name: topic for name, topic in named.items() if topic}
    described = await client.describe_topics(list(topics.values()))
    counts = {about["topic"]: len(about["partitions"]) for about in described if not about["error_code"]}
    configs = await _configs(client, [topic for topic in topics.values() if topic in counts])
    faults = [Fault(("kafka", name), words) for name, words in _findings(topics, counts, configs)]
    if faults:
        raise PolicyError(faults, "start")
    return counts


def _findings(
    topics: dict[str, str], counts: dict[str, int], configs: dict[str, dict[str, str]]
) -> Iterator[tuple[str, str]]:
    for name, topic in topics.items():
        if topic not in counts:
            yield name, f"topic {topic} does not exist; create it"
        elif name != "input" and "compact" in configs.get(topic, {}).get("cleanup.policy", ""):
            yield name, f"topic {topic} is compacted: records without keys do not survive that; use delete"
    source, target = topics["input"], topics["output"]
    if source in counts and target in counts and counts[target] < counts[source]:
        yield "output", f"topic {target} has {counts[target]} partitions, the input {counts[source]}: add partitions"


async def _configs(client: AIOKafkaAdminClient, topics: list[str]) -> dict[str, dict[str, str]]:
    if not topics:
        return {}
    responses = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics])
    found: dict[str, dict[str, str]] = {}
    for response in responses:
        for resource in response.resources:
            entries: list[Any] = resource[4]
            found[resource[3]] = {entry[0]: entry[1] or "" for entry in entries}
    return found
