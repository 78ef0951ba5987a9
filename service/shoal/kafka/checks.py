"""Checks before the first record is read: topics, their settings, permissions, and limits of the broker.

The broker says what the principal may do with a topic (Kafka 2.8 and later), and of group and transactional ids whether
they may be used at all. A broker that says neither is not asked further. Reading settings takes DESCRIBE_CONFIGS:
without it the worker starts, and says once what it did not check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from shoal.errors import BrokerUnavailableError, Fault, InputError, PolicyError
from shoal.formats import fixed_texts
from shoal.kafka.client import (
    TRANSACTION_TIMEOUT_MS,
    Operation,
    broker_error,
    describe_missing,
    named_topics,
    operations_on,
)
from shoal.kafka.metadata import LIMIT_BYTES, span_limit
from shoal.kafka.topics import allowed_operations, ask_again_unless, metadata_of, settings_by_input
from shoal.observability import logger
from shoal.policy import MAX_CATEGORY_BYTES, Attribute, FieldPath, KafkaSection, Policy
from shoal.scales import SCALES
from shoal.settings import settings_error

_ALL, _DESCRIBE = 1 << 2, 1 << 8
_BITS: dict[Operation, int] = {"READ": 1 << 3, "WRITE": 1 << 4}  # bits of Kafka's operations on a topic
_TRANSACTION = 1  # type of coordinator in Kafka's protocol

Question: TypeAlias = Callable[[], Awaitable[object]]


async def find_missing_permissions(
    client: AIOKafkaAdminClient, settings: KafkaSection, topics: Mapping[FieldPath, str]
) -> list[Fault]:
    """Return what the principal lacks of a worker's least permissions, with what to grant; nothing without ACLs."""
    allowed = await allowed_operations(client, sorted(set(topics.values())))
    faults = list(_about_topics(topics, allowed))
    questions: list[Question] = [lambda: client.find_coordinator(str(settings.group))]
    for topic in settings_by_input(settings):
        first_id = f"{settings.group}-{topic}-0"
        questions.append(lambda name=first_id: client.find_coordinator(name, _TRANSACTION))  # type: ignore[misc]
    messages = [message for question in questions if (message := await _refusal(question, settings)) is not None]
    return faults + [Fault(("kafka", "group"), message) for message in dict.fromkeys(messages)]


def _about_topics(topics: Mapping[FieldPath, str], allowed: Mapping[str, int]) -> Iterator[Fault]:
    for path, topic in topics.items():
        operations = allowed.get(topic, 0)
        # The principal sees the topic. An answer without DESCRIBE is no answer.
        if not operations & _DESCRIBE or operations & _ALL:
            continue
        missing = [one for one in operations_on(path[-1]) if not operations & _BITS[one]]
        if missing:
            yield Fault(path, describe_missing(topic, missing))


async def _refusal(question: Question, settings: KafkaSection) -> str | None:
    """Return what is missing if the broker refuses to answer; another failure says nothing about permissions."""
    try:
        await question()
    except (kafka_errors.GroupAuthorizationFailedError, kafka_errors.TransactionalIdAuthorizationFailed) as error:
        return str(broker_error(error, settings))
    except kafka_errors.KafkaError:
        pass  # such as a coordinator that is being elected
    return None


log = logger("kafka")


async def topic_configs(client: AIOKafkaAdminClient, topics: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings of each of these topics that the principal may see; the others are missing."""
    return await _configs(client, ConfigResourceType.TOPIC, topics)


async def broker_configs(client: AIOKafkaAdminClient) -> dict[str, str] | None:
    """Return the settings of one broker; None if the principal may not see them."""
    brokers = (await metadata_of(client, []))["brokers"]
    if not brokers:
        raise BrokerUnavailableError("the cluster names no broker that is alive")
    node = str(brokers[0]["node_id"])
    return (await _configs(client, ConfigResourceType.BROKER, [node])).get(node)


@dataclass(slots=True)
class UncheckedSettings:
    """Tells settings that were not checked: once in a process, although each consumer loop checks again."""

    _reported: set[str] = field(default_factory=set)

    def tell(self, text: str, *, is_needed: bool = False, **fields: str) -> None:
        """Log a line, unless this process has logged one with this text; a warning if the permission is needed."""
        if text not in self._reported:
            self._reported.add(text)
            (log.warning if is_needed else log.info)(text, **fields)


async def _configs(
    client: AIOKafkaAdminClient, kind: ConfigResourceType, names: list[str]
) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    responses = await client.describe_configs([ConfigResource(kind, name) for name in names])
    found: dict[str, dict[str, str]] = {}
    for response in responses:
        for error_code, _, _, name, entries in response.resources:
            # With an error the list is empty, as if the resource had no settings.
            if not error_code:
                listed: list[Any] = entries
                found[name] = {entry[0]: entry[1] or "" for entry in listed}
    return found


BATCH_BYTES = 1 << 20  # largest batch, unless a topic accepts less

OVERHEAD_BYTES = 1 << 14
"""Allowance for what is published besides unchanged fields and categories: numbers, names, the batch header."""

COPY_BYTES = 8192  # room for one message of the copy of the progress: the offset metadata, names, and the batch header

_COPY = ("kafka", "progress_copy")


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """Number of partitions of each topic, and the largest batch (bytes) that all of them accept."""

    partitions: dict[str, int]
    batch_bytes: int = BATCH_BYTES


async def preflight(
    client: AIOKafkaAdminClient, policy: Policy, settings: KafkaSection, unchecked: UncheckedSettings
) -> TopicLayout:
    """Check topics and limits; a `PolicyError` holds all faults, each with its remedy."""
    topics = named_topics(settings)
    found = await partitions_of(client, topics.values())
    counts = {topic: len(found[topic]) for topic in topics.values() if topic in found}
    written = sorted({topic for path, topic in topics.items() if path[-1] != "input" and topic in counts})
    configs, of_broker = await topic_configs(client, written), await broker_configs(client)
    limits = {topic: int(config.get("max.message.bytes") or BATCH_BYTES) for topic, config in configs.items()}
    faults = [
        *_about_policy(policy),
        *_faults_of_topics(topics, counts, configs),
        *_about_sizes(topics, limits, policy, settings),
        *_about_broker(of_broker or {}),
        *await find_missing_permissions(
            client, settings, {path: topic for path, topic in topics.items() if topic in counts}
        ),
    ]
    if faults:
        raise settings_error([(fault.path, fault.message) for fault in faults], policy)
    _tell_unchecked([topic for topic in written if topic not in configs], of_broker, settings, unchecked)
    # A message of the copy is smaller than every batch.
    return TopicLayout(
        counts, min([BATCH_BYTES, *(limit for topic, limit in limits.items() if topic != settings.progress_copy)])
    )


def check_policy(policy: Policy, source: str) -> None:
    """Run the checks of a policy for Kafka that need no broker."""
    faults = [] if policy.kafka is None or policy.stream is None else list(_about_policy(policy))
    if faults:
        raise PolicyError(faults, source)


async def partitions_of(client: AIOKafkaAdminClient, needed: Iterable[str]) -> dict[str, list[int]]:
    """Return the partitions of each of these topics that is visible."""
    names = sorted(set(needed))

    async def described() -> dict[str, list[int]]:
        return {
            topic["topic"]: sorted(one["partition"] for one in topic["partitions"])
            for topic in (await metadata_of(client, names))["topics"]
            if not topic["error_code"]
        }

    return await ask_again_unless(lambda found: len(found) == len(names), described)


def _tell_unchecked(
    topics: list[str], of_broker: dict[str, str] | None, settings: KafkaSection, unchecked: UncheckedSettings
) -> None:
    """Tell the settings that were not checked. The copy has a warning of its own: nothing fails if it is wrong."""
    if topics:
        unchecked.tell(
            "settings of topics not checked: grant DESCRIBE_CONFIGS on these topics in the ACLs",
            topics=", ".join(topics),
            not_checked="cleanup.policy, max.message.bytes",
        )
    if settings.progress_copy in topics:
        unchecked.tell(
            "kafka.progress_copy not checked: its topic must have cleanup.policy compact, without delete",
            is_needed=True,
            topic=str(settings.progress_copy),
        )
    if of_broker is None:
        unchecked.tell(
            "settings of the broker not checked: grant DESCRIBE_CONFIGS on the cluster in the ACLs",
            not_checked="offset.metadata.max.bytes, transaction.max.timeout.ms",
        )


def _about_policy(policy: Policy) -> Iterator[Fault]:
    try:
        span_limit(policy)
    except InputError as error:
        yield Fault((), str(error))


def _faults_of_topics(
    topics: Mapping[FieldPath, str], counts: dict[str, int], configs: dict[str, dict[str, str]]
) -> Iterator[Fault]:
    for path, topic in topics.items():
        if topic not in counts:
            yield Fault(
                path,
                f"topic {topic} does not exist or may not be seen; create it, or grant "
                f"{' and '.join(operations_on(path[-1]))} on it in the ACLs",
            )
        elif path == _COPY:
            yield from _about_copy(topics, counts, configs.get(topic, {}))
        elif path[-1] != "input" and "compact" in configs.get(topic, {}).get("cleanup.policy", ""):
            yield Fault(path, f"topic {topic} is compacted: records without keys do not survive that; use delete")
    for path, target in _outputs(topics):
        source = topics[*path[:-1], "input"]
        if source in counts and target in counts and counts[target] < counts[source]:
            yield Fault(path, _too_few(target, counts[target], f"the input {counts[source]}"))


def _too_few(topic: str, count: int, wanted: str) -> str:
    return f"topic {topic} has {count} partition{'s' if count > 1 else ''}, {wanted}: add partitions"


def _about_copy(topics: Mapping[FieldPath, str], counts: dict[str, int], config: dict[str, str]) -> Iterator[Fault]:
    """Check that the copy of the progress keeps the last message of each partition, and nothing else."""
    topic = topics[_COPY]
    if set(config.get("cleanup.policy", "compact").replace(" ", "").split(",")) != {"compact"}:
        yield Fault(_COPY, f"topic {topic} is not compacted only: set its cleanup.policy to compact, without delete")
    largest = max((counts.get(name, 0) for path, name in topics.items() if path[-1] == "input"), default=0)
    if counts[topic] < largest:
        yield Fault(_COPY, _too_few(topic, counts[topic], f"an input {largest}"))
    if int(config.get("max.message.bytes") or COPY_BYTES) < COPY_BYTES:
        yield Fault(_COPY, f"topic {topic} takes less than {COPY_BYTES} bytes at once: raise its max.message.bytes")


def _about_sizes(
    topics: Mapping[FieldPath, str], limits: dict[str, int], policy: Policy, settings: KafkaSection
) -> Iterator[Fault]:
    """Check that the longest row fits the outputs, and the longest message about a cluster its topic."""
    of_cluster = OVERHEAD_BYTES + sum(map(_longest_category, policy.quasi_identifiers))
    of_row = settings.max_record_bytes + of_cluster
    for path, topic in _outputs(topics):
        if limits.get(topic, of_row) < of_row:
            words = (
                f"topic {topic} accepts {limits[topic]} bytes at once, a record can have {of_row}: raise its "
                "max.message.bytes, or lower kafka.max_record_bytes"
            )
            yield Fault(path, words)
    path = ("kafka", "clusters")
    if path in topics and limits.get(topics[path], of_cluster) < of_cluster:
        words = (
            f"topic {topics[path]} accepts {limits[topics[path]]} bytes at once, a message about a cluster can have "
            f"{of_cluster}: raise its max.message.bytes"
        )
        yield Fault(path, words)


def _longest_category(attribute: Attribute) -> int:
    """Return the most bytes of a category that an attribute may be published as; 0 for a number or a time."""
    if not SCALES[attribute.scale].has_categories:
        return 0
    is_closed = bool(attribute.order) or (attribute.taxonomy is not None and attribute.unknown != "root")
    if not is_closed:
        return MAX_CATEGORY_BYTES
    return max(len(msgspec.json.encode(text)) for text in fixed_texts(attribute))


def _outputs(topics: Mapping[FieldPath, str]) -> list[tuple[FieldPath, str]]:
    return [(path, topic) for path, topic in topics.items() if path[-1] == "output"]


def _about_broker(config: dict[str, str]) -> Iterator[Fault]:
    if int(config.get("transaction.max.timeout.ms") or TRANSACTION_TIMEOUT_MS) < TRANSACTION_TIMEOUT_MS:
        words = f"the broker's transaction.max.timeout.ms is below {TRANSACTION_TIMEOUT_MS}: raise it"
        yield Fault(("kafka", "bootstrap_servers"), words)
    if int(config.get("offset.metadata.max.bytes") or LIMIT_BYTES) < LIMIT_BYTES:
        words = f"the broker's offset.metadata.max.bytes is below {LIMIT_BYTES}, in which progress is kept: raise it"
        yield Fault(("kafka", "bootstrap_servers"), words)
