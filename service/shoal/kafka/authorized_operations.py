"""What the principal may not do, found out before the first record is read.

Without this check a worker without WRITE on its output would begin, and fail at its first release; one without READ
would fail at its next start. The broker says what the principal may do with a topic (Kafka 2.3 and later). Of group and
transactional ids it says whether they may be used at all. A broker that says neither is not asked further.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5, MetadataResponse_v5
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

from shoal.errors import Fault
from shoal.kafka.client import broker_error
from shoal.kafka.permissions import Operation, describe_missing, operations_on
from shoal.kafka.topic_pairs import settings_by_input
from shoal.policy import FieldPath, KafkaSection

__all__ = ["find_missing_permissions"]

_ALL, _DESCRIBE = 1 << 2, 1 << 8
_BITS: dict[Operation, int] = {"READ": 1 << 3, "WRITE": 1 << 4}
"""Bits of Kafka's operations on a topic."""
_TRANSACTION = 1
"""Type of coordinator in Kafka's protocol."""

Question: TypeAlias = Callable[[], Awaitable[object]]


async def find_missing_permissions(
    client: AIOKafkaAdminClient, settings: KafkaSection, topics: Mapping[FieldPath, str]
) -> list[Fault]:
    """Return what the principal lacks of the least permissions of a worker, with what to grant.

    Parameters
    ----------
    client : AIOKafkaAdminClient
        Connected.
    settings : KafkaSection
        Names of group and inputs.
    topics : mapping of FieldPath to str
        Topics that exist, by their fields. The last part of a field is the role of its topic.

    Returns
    -------
    list of Fault
        Empty if nothing is missing, if the broker has no ACLs, or if it does not say.
    """
    allowed = await _allowed_operations(client, sorted(set(topics.values())))
    faults = list(_about_topics(topics, allowed))
    questions: list[Question] = [lambda: client.find_coordinator(str(settings.group))]
    for topic in settings_by_input(settings):
        first_id = f"{settings.group}-{topic}-0"
        questions.append(lambda name=first_id: client.find_coordinator(name, _TRANSACTION))  # type: ignore[misc]
    messages = [message for question in questions if (message := await _refusal(question, settings)) is not None]
    return faults + [Fault(("kafka", "group"), message) for message in dict.fromkeys(messages)]


def _about_topics(topics: Mapping[FieldPath, str], allowed: Mapping[str, int]) -> Iterator[Fault]:
    for field, topic in topics.items():
        operations = allowed.get(topic, 0)
        # The principal sees the topic. An answer without DESCRIBE is no answer.
        if not operations & _DESCRIBE or operations & _ALL:
            continue
        missing = [one for one in operations_on(field[-1]) if not operations & _BITS[one]]
        if missing:
            yield Fault(field, describe_missing(topic, missing))


async def _allowed_operations(client: AIOKafkaAdminClient, topics: list[str]) -> dict[str, int]:
    """Return Kafka's bits of what the principal may do with each topic; nothing if the broker does not say."""
    network: Any = client._client  # noqa: SLF001 - the administration client has no such request
    try:
        answer = await network.send(network.get_random_node(), _MetadataRequest(topics))
    except (NotImplementedError, kafka_errors.IncompatibleBrokerVersion):
        return {}  # the broker does not know this version of the request
    return {
        topic["topic"]: topic["authorized_operations"]
        for topic in answer.to_object()["topics"]
        # Without an error. The lowest number stands for an answer that is left out.
        if not topic["error_code"] and topic["authorized_operations"] > 0
    }


async def _refusal(question: Question, settings: KafkaSection) -> str | None:
    """Return what is missing if the broker refuses to answer; another failure says nothing about permissions."""
    try:
        await question()
    except (kafka_errors.GroupAuthorizationFailedError, kafka_errors.TransactionalIdAuthorizationFailed) as error:
        return str(broker_error(error, settings))
    except kafka_errors.KafkaError:
        pass  # such as a coordinator that is being elected
    return None


class _MetadataResponseV8(Response):  # type: ignore[misc] # the client has no types
    API_KEY = MetadataResponse_v5.API_KEY
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(("node_id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8"))),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    )


class _MetadataRequestV8(RequestStruct):  # type: ignore[misc] # the client has no types
    API_KEY = MetadataRequest_v5.API_KEY
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponseV8
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _MetadataRequest(Request[_MetadataRequestV8]):  # type: ignore[misc] # the client has no types
    """Asks for topics and what the principal may do with them. It creates no topic."""

    API_KEY = MetadataRequest_v5.API_KEY

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataRequestV8]) -> _MetadataRequestV8:
        return request_struct_class(self._topics, False, False, True)
