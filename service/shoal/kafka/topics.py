"""Topics: the inputs of a worker, and the state of topics, which is watched.

A partition belongs to one pair of topics. Everything that concerns it gets the settings of its pair: there ``input``
and ``output`` are the topics of the pair.

A recreated topic does not keep its id. The client knows the Metadata request up to version 5; topic ids are in version
10 (Kafka 2.8, KIP-516). The client reads the metadata of topics every five minutes: until then it would assign no new
partition, wait for a deleted topic, or read a recreated input on from its last position.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v4
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from shoal.errors import TopicsChangedError
from shoal.kafka.client import CLIENT_ERRORS, UNKNOWN_REQUEST
from shoal.kafka.offsets import ProgressError, log_truncated
from shoal.policy import KafkaSection

ASK_AGAIN_S = 1.0
"""After this time another broker is asked for a topic that is missing: one that starts may not know all topics yet."""

_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)
_WITH_IDS = 10
_UNKNOWN_TOPIC = kafka_errors.UnknownTopicOrPartitionError.errno


Answer = TypeVar("Answer")


async def ask_again_unless(is_complete: Callable[[Answer], bool], ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the answer of a random broker; if a topic is missing in it, the one after `ASK_AGAIN_S`."""
    answer = await ask()
    if is_complete(answer):
        return answer
    await asyncio.sleep(ASK_AGAIN_S)
    return await ask()


class TopicState(NamedTuple):
    """Number of partitions, 0 if the topic does not exist, and the topic id, empty if the broker gives none."""

    partition_count: int
    topic_id: bytes


async def metadata_of(client: AIOKafkaAdminClient, topics: Sequence[str]) -> dict[str, Any]:
    """Return what a random broker says of all brokers and of these topics alone; the request creates no topic."""
    network = client._client  # noqa: SLF001 - not reachable otherwise
    answer = await network.send(network.get_random_node(), _TopicsRequest(topics))
    found: dict[str, Any] = answer.to_object()
    return found


async def topic_states(client: AIOKafkaAdminClient, topics: Sequence[str]) -> dict[str, TopicState]:
    """Return the states of these topics, without those that the broker cannot tell now."""
    states = {}
    for described in (await metadata_of(client, topics))["topics"]:
        topic_id: bytes = described.get("topic_id", _NO_ID)
        if described["error_code"] == _UNKNOWN_TOPIC:
            states[str(described["topic"])] = TopicState(0, b"")
        elif not described["error_code"]:
            state = TopicState(len(described["partitions"]), b"" if topic_id == _NO_ID else topic_id)
            states[str(described["topic"])] = state
    return states


async def allowed_operations(client: AIOKafkaAdminClient, topics: Sequence[str]) -> dict[str, int]:
    """Return Kafka's bits of what the principal may do with each topic; nothing if the broker does not say."""
    network = client._client  # noqa: SLF001 - the administration client has no such request
    try:
        answer = await network.send(network.get_random_node(), _TopicsRequest(topics, has_operations=True))
    except UNKNOWN_REQUEST:
        return {}
    return {
        topic["topic"]: topic["topic_authorized_operations"]
        for topic in answer.to_object()["topics"]
        # Without an error. The lowest number stands for an answer that is left out.
        if not topic["error_code"] and topic.get("topic_authorized_operations", 0) > 0
    }


class _Uuid:
    """Sixteen bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_ID_BYTES)

    @classmethod
    def repr(cls, value: bytes) -> str:
        return value.hex()


_PARTITION = (
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", CompactArray(Int32)),
    ("isr", CompactArray(Int32)),
    ("offline_replicas", CompactArray(Int32)),
    ("tags", TaggedFields),
)
_TOPIC = (
    ("error_code", Int16),
    ("topic", CompactString("utf-8")),
    ("topic_id", _Uuid),
    ("is_internal", Boolean),
    ("partitions", CompactArray(*_PARTITION)),
    ("topic_authorized_operations", Int32),
    ("tags", TaggedFields),
)
_BROKER = (
    ("node_id", Int32),
    ("host", CompactString("utf-8")),
    ("port", Int32),
    ("rack", CompactString("utf-8")),
    ("tags", TaggedFields),
)


class _MetadataResponse_v10(Response):  # type: ignore[misc]  # noqa: N801 - the client has no types, and such names
    API_KEY = 3
    API_VERSION = _WITH_IDS
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(*_BROKER)),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        ("topics", CompactArray(*_TOPIC)),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataRequest_v10(RequestStruct):  # type: ignore[misc]  # noqa: N801 - as above
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = _WITH_IDS
    RESPONSE_TYPE = _MetadataResponse_v10
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _TopicsRequest(Request[MetadataRequest_v4 | _MetadataRequest_v10]):  # type: ignore[misc] # the client has no types
    """A request for topics by name, in the latest version that the broker knows. It creates no topic."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str], *, has_operations: bool = False) -> None:
        self._topics, self._has_operations = topics, has_operations

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        if request_struct_class.API_VERSION < _WITH_IDS:
            return request_struct_class(list(self._topics), False)
        topics: list[tuple[object, ...]] = [(_NO_ID, topic, {}) for topic in self._topics]
        return request_struct_class(topics, False, False, self._has_operations, {})


def settings_by_input(settings: KafkaSection) -> dict[str, KafkaSection]:
    """Return the settings of each pair of topics, by its input topic, in the order of ``kafka.topics``."""
    if not settings.topics:
        return {str(settings.input): settings}
    return {
        str(pair.input): settings.model_copy(update={"input": pair.input, "output": pair.output})
        for pair in settings.topics
    }


def has_several_inputs(settings: KafkaSection) -> bool:
    """Return whether the side topics hold messages about several inputs. Evidence and clusters then name the input."""
    return settings.topics is not None and len(settings.topics) > 1


def member_id(settings: KafkaSection) -> str | None:
    """Return the ``group.instance.id``, which depends on the inputs: a member that restarts gets no new topic."""
    if settings.instance_id is None or not has_several_inputs(settings):
        return settings.instance_id
    inputs = "\n".join(sorted(settings_by_input(settings)))
    return f"{settings.instance_id}-{hashlib.sha256(inputs.encode()).hexdigest()[:8]}"


def input_name(topic: str, inputs: Collection[str]) -> str:
    """Return how messages name an input: by its topic if there are several."""
    return f"input {topic}" if len(inputs) > 1 else "the input"


WATCH_S = 5.0  # time between two requests for the states of the topics (s)


async def watch_topics(client: AIOKafkaAdminClient, inputs: Collection[str], counts: Mapping[str, int]) -> None:
    """Do what `watch` does, with requests to the broker for the topics of ``counts``, which include the inputs."""
    await watch(partial(topic_states, client, sorted(counts)), {topic: counts[topic] for topic in inputs}, WATCH_S)


async def watch(
    request: Callable[[], Awaitable[Mapping[str, TopicState]]], input_counts: Mapping[str, int], every_s: float
) -> None:
    """Compare topics with their state at the start at intervals, for as long as they agree.

    Two answers in succession must differ: a broker that starts may not know all topics. Raises `TopicsChangedError` if
    a topic was deleted or an input has another number of partitions, `ProgressError` if an input was recreated.
    """
    expected, had_changed = {topic: TopicState(count, b"") for topic, count in input_counts.items()}, False
    while True:
        try:
            states = await asyncio.wait_for(request(), every_s)
        except CLIENT_ERRORS:
            await asyncio.sleep(every_s)
            continue
        for topic, (count, topic_id) in expected.items():
            if topic in states and states[topic].partition_count == count:
                expected[topic] = TopicState(count, topic_id or states[topic].topic_id)
        change = _change_of(states, expected)
        if change is not None and had_changed:
            raise change
        had_changed = change is not None
        await asyncio.sleep(every_s)


def _change_of(
    states: Mapping[str, TopicState], inputs: Mapping[str, TopicState]
) -> TopicsChangedError | ProgressError | None:
    """Return the error for a change since the start; None if there is none."""
    for topic, state in sorted(states.items()):
        if not state.partition_count:
            name = input_name(topic, inputs) if topic in inputs else f"topic {topic}"
            return TopicsChangedError(f"{name} no longer exists: checking all topics again")
    for topic, expected in inputs.items():
        count = states.get(topic, expected).partition_count
        if count != expected.partition_count:
            counts = f"{count} partitions, {expected.partition_count} at the start"
            return TopicsChangedError(f"{input_name(topic, inputs)} has {counts}: checking all topics again")
    for topic, expected in inputs.items():
        if states.get(topic, expected).topic_id not in (b"", expected.topic_id):
            return log_truncated(topic, "the id of the topic has changed")
    return None
