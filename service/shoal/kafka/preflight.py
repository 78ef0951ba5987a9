"""Checks before the first record is read: topics, their settings, the limits of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import Fault, InputError, PolicyError
from shoal.kafka.authorized_operations import find_missing_permissions
from shoal.kafka.broker_configs import UncheckedSettings, broker_configs, topic_configs
from shoal.kafka.offset_metadata import LIMIT_BYTES, span_limit
from shoal.kafka.permissions import operations_on
from shoal.kafka.topic_ids import ask_again_unless
from shoal.policy import MAX_CATEGORY_BYTES, Attribute, FieldPath, KafkaSection, Policy, Scale
from shoal.records.published_scalars import fixed_texts
from shoal.settings import settings_error

__all__ = ["BATCH_BYTES", "TopicLayout", "check_policy", "partitions_of", "preflight"]

BATCH_BYTES = 1 << 20
"""Largest batch, unless a topic accepts less."""

OVERHEAD_BYTES = 1 << 14
"""Allowance for what is published besides unchanged fields and categories: numbers, names, the batch header."""

COPY_BYTES = 8192
"""Room for one message of the copy of the progress: the offset metadata, names, and the batch header."""

_COPY = ("kafka", "progress_copy")


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """Number of partitions of each topic, and the largest batch (bytes) that all of them accept."""

    partitions: dict[str, int]
    batch_bytes: int = BATCH_BYTES


async def preflight(
    client: AIOKafkaAdminClient, policy: Policy, settings: KafkaSection, unchecked: UncheckedSettings
) -> TopicLayout:
    """Check topics and limits.

    Settings that the principal may not see are not checked; ``unchecked`` warns of them.

    Raises
    ------
    PolicyError
        Holds all faults, each with its remedy.
    """
    topics = _named_topics(settings)
    found = await partitions_of(client, topics.values())
    counts = {topic: len(found[topic]) for topic in topics.values() if topic in found}
    written = sorted({topic for field, topic in topics.items() if field[-1] != "input" and topic in counts})
    configs, of_broker = await topic_configs(client, written), await broker_configs(client)
    limits = {topic: int(config.get("max.message.bytes") or BATCH_BYTES) for topic, config in configs.items()}
    faults = [
        *_about_policy(policy),
        *_about_topics(topics, counts, configs),
        *_about_sizes(topics, limits, policy, settings),
        *_about_broker(of_broker or {}, settings),
        *await find_missing_permissions(client, settings, _existing(topics, counts)),
    ]
    if faults:
        raise settings_error([(fault.path, fault.message) for fault in faults], policy)
    _warn_of_unchecked([topic for topic in written if topic not in configs], of_broker, settings, unchecked)
    # A message of the copy is smaller than every batch.
    return TopicLayout(
        counts, min([BATCH_BYTES, *(limit for topic, limit in limits.items() if topic != settings.progress_copy)])
    )


def check_policy(policy: Policy, source: str) -> None:
    """Run the checks of a policy for Kafka that need no broker.

    Raises
    ------
    PolicyError
        Offset metadata under this policy could exceed their limit.
    """
    faults = [] if policy.kafka is None or policy.stream is None else list(_about_policy(policy))
    if faults:
        raise PolicyError(faults, source)


async def partitions_of(client: AIOKafkaAdminClient, needed: Iterable[str]) -> dict[str, list[int]]:
    """Return the partitions of every visible topic; a request for one by its name could create it.

    If a topic that is needed is not among them, the answer after a second counts: a random broker answers, and one that
    starts may not know all topics yet.
    """
    return await ask_again_unless(lambda found: found.keys() >= set(needed), lambda: _described(client))


async def _described(client: AIOKafkaAdminClient) -> dict[str, list[int]]:
    described = await client.describe_topics()
    return {
        topic["topic"]: sorted(one["partition"] for one in topic["partitions"])
        for topic in described
        if not topic["error_code"]
    }


def _warn_of_unchecked(
    topics: list[str], of_broker: dict[str, str] | None, settings: KafkaSection, unchecked: UncheckedSettings
) -> None:
    """Warn of the settings that were not checked. The copy has a warning of its own: nothing fails if it is wrong."""
    if topics:
        unchecked.warn(
            "settings of topics not checked: grant DESCRIBE_CONFIGS on these topics in the ACLs",
            topics=", ".join(topics),
            not_checked="cleanup.policy, max.message.bytes",
        )
    if settings.progress_copy in topics:
        unchecked.warn(
            "kafka.progress_copy not checked: its topic must have cleanup.policy compact, without delete",
            topic=str(settings.progress_copy),
        )
    if of_broker is None:
        unchecked.warn(
            "settings of the broker not checked: grant DESCRIBE_CONFIGS on the cluster in the ACLs",
            not_checked="offset.metadata.max.bytes, transaction.max.timeout.ms",
        )


def _about_policy(policy: Policy) -> Iterator[Fault]:
    try:
        span_limit(policy)
    except InputError as error:
        yield Fault((), str(error))


def _named_topics(settings: KafkaSection) -> dict[FieldPath, str]:
    """Return the topics by the fields that name them. The last part of a field is the role of its topic."""
    roles = ("input", "output")
    named: dict[FieldPath, str | None] = {("kafka", role): getattr(settings, role) for role in roles}
    for number, pair in enumerate(settings.topics or []):
        named |= {("kafka", "topics", str(number), role): getattr(pair, role) for role in roles}
    named |= {
        ("kafka", role): getattr(settings, role) for role in ("quarantine", "clusters", "evidence", "progress_copy")
    }
    return {field: topic for field, topic in named.items() if topic}


def _existing(topics: Mapping[FieldPath, str], counts: Mapping[str, int]) -> dict[FieldPath, str]:
    return {field: topic for field, topic in topics.items() if topic in counts}


def _about_topics(
    topics: Mapping[FieldPath, str], counts: dict[str, int], configs: dict[str, dict[str, str]]
) -> Iterator[Fault]:
    for field, topic in topics.items():
        if topic not in counts:
            yield Fault(
                field,
                f"topic {topic} does not exist or may not be seen; create it, or grant "
                f"{' and '.join(operations_on(field[-1]))} on it in the ACLs",
            )
        elif field == _COPY:
            yield from _about_copy(topics, counts, configs.get(topic, {}))
        elif field[-1] != "input" and "compact" in configs.get(topic, {}).get("cleanup.policy", ""):
            yield Fault(field, f"topic {topic} is compacted: records without keys do not survive that; use delete")
    for field, target in _outputs(topics):
        source = topics[*field[:-1], "input"]
        if source in counts and target in counts and counts[target] < counts[source]:
            few = f"{counts[target]} partition{'s' if counts[target] > 1 else ''}"
            yield Fault(field, f"topic {target} has {few}, the input {counts[source]}: add partitions")


def _about_copy(topics: Mapping[FieldPath, str], counts: dict[str, int], config: dict[str, str]) -> Iterator[Fault]:
    """Check that the copy of the progress keeps the last message of each partition, and nothing else."""
    topic = topics[_COPY]
    if set(config.get("cleanup.policy", "compact").replace(" ", "").split(",")) != {"compact"}:
        yield Fault(_COPY, f"topic {topic} is not compacted only: set its cleanup.policy to compact, without delete")
    largest = max((counts.get(name, 0) for field, name in topics.items() if field[-1] == "input"), default=0)
    if counts[topic] < largest:
        few = f"{counts[topic]} partition{'s' if counts[topic] > 1 else ''}"
        yield Fault(_COPY, f"topic {topic} has {few}, an input {largest}: add partitions")
    if int(config.get("max.message.bytes") or COPY_BYTES) < COPY_BYTES:
        yield Fault(_COPY, f"topic {topic} takes less than {COPY_BYTES} bytes at once: raise its max.message.bytes")


def _about_sizes(
    topics: Mapping[FieldPath, str], limits: dict[str, int], policy: Policy, settings: KafkaSection
) -> Iterator[Fault]:
    """Check that the longest row fits the outputs, and the longest message about a cluster its topic.

    A record is compared with the limit together with its own categories, but its row has those of its cluster.
    """
    of_cluster = OVERHEAD_BYTES + sum(map(_longest_category, policy.quasi_identifiers))
    of_row = settings.max_record_bytes + of_cluster
    for field, topic in _outputs(topics):
        if limits.get(topic, of_row) < of_row:
            words = (
                f"topic {topic} accepts {limits[topic]} bytes at once, a record can have {of_row}: raise its "
                "max.message.bytes, or lower kafka.max_record_bytes"
            )
            yield Fault(field, words)
    field = ("kafka", "clusters")
    if field in topics and limits.get(topics[field], of_cluster) < of_cluster:
        words = (
            f"topic {topics[field]} accepts {limits[topics[field]]} bytes at once, a message about a cluster can have "
            f"{of_cluster}: raise its max.message.bytes"
        )
        yield Fault(field, words)


def _longest_category(attribute: Attribute) -> int:
    """Return the most bytes of a category that an attribute may be published as; 0 for a number or a time."""
    if attribute.scale not in {Scale.ORDINAL, Scale.NOMINAL}:
        return 0
    is_closed = attribute.scale is Scale.ORDINAL or (attribute.taxonomy is not None and attribute.unknown != "root")
    if not is_closed:
        return MAX_CATEGORY_BYTES
    return max(len(msgspec.json.encode(text)) for text in fixed_texts(attribute))


def _outputs(topics: Mapping[FieldPath, str]) -> list[tuple[FieldPath, str]]:
    return [(field, topic) for field, topic in topics.items() if field[-1] == "output"]


def _about_broker(config: dict[str, str], settings: KafkaSection) -> Iterator[Fault]:
    longest = int(config.get("transaction.max.timeout.ms") or settings.transaction_timeout_ms)
    if longest < settings.transaction_timeout_ms:
        words = f"{settings.transaction_timeout_ms} is above the broker's maximum, {longest}: lower it"
        yield Fault(("kafka", "transaction_timeout_ms"), words)
    if int(config.get("offset.metadata.max.bytes") or LIMIT_BYTES) < LIMIT_BYTES:
        words = f"the broker's offset.metadata.max.bytes is below {LIMIT_BYTES}, in which progress is kept: raise it"
        yield Fault(("kafka", "bootstrap_servers"), words)
