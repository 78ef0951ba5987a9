"""Asks a broker for the number of partitions of topics and for their ids, which a recreated topic does not keep.

The client knows the Metadata request up to version 5. Topic ids are in version 10, which brokers know from Kafka 2.8
on. Source: KIP-516 and the message definitions of Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from io import BytesIO
from typing import NamedTuple, TypeVar

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v4
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

__all__ = ["TopicState", "ask_again_unless", "topic_states"]

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


async def topic_states(client: AIOKafkaAdminClient, topics: Sequence[str]) -> dict[str, TopicState]:
    """Return the states of these topics, without those that the broker cannot tell now; the request creates none."""
    network = client._client  # noqa: SLF001 - not reachable otherwise
    answer = await network.send(network.get_random_node(), _TopicsRequest(topics))
    states = {}
    for described in answer.to_object()["topics"]:
        topic_id: bytes = described.get("topic_id", _NO_ID)
        if described["error_code"] == _UNKNOWN_TOPIC:
            states[str(described["topic"])] = TopicState(0, b"")
        elif not described["error_code"]:
            state = TopicState(len(described["partitions"]), b"" if topic_id == _NO_ID else topic_id)
            states[str(described["topic"])] = state
    return states


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
    """A request for topics by name, in the latest version that the broker knows."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        if request_struct_class.API_VERSION < _WITH_IDS:
            return request_struct_class(list(self._topics), False)
        return request_struct_class([(_NO_ID, topic, {}) for topic in self._topics], False, False, False, {})
