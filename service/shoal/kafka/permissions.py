"""What to say when the broker refuses an operation: the resource, the missing operation, and where to grant it.

A principal with READ or WRITE has DESCRIBE, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from aiokafka import errors as kafka_errors

from shoal.policy import KafkaSection

__all__ = ["Operation", "describe_missing", "describe_refusal", "operations_on"]

Operation: TypeAlias = Literal["READ", "WRITE"]

_OPERATIONS: dict[str, tuple[Operation, ...]] = {"input": ("READ",), "quarantine": ("WRITE",)}


def operations_on(role: str) -> tuple[Operation, ...]:
    """Return the operations that a worker needs on a topic of this role, such as ``"output"``."""
    return _OPERATIONS.get(role, ("READ", "WRITE"))


def describe_missing(topic: str, operations: Sequence[Operation]) -> str:
    """Return the message for a topic on which the principal lacks these operations."""
    return f"the principal may not use topic {topic}: grant {' and '.join(operations)} on topic {topic} in the ACLs"


def describe_refusal(error: BaseException, settings: KafkaSection | None, operation: Operation) -> str | None:
    """Return the message for an authorization error of a client; None for another error.

    Parameters
    ----------
    error : BaseException
        Of the client. Of its text, only names that the settings contain are used.
    settings : KafkaSection or None
        Names of topics and group.
    operation : {"READ", "WRITE"}
        What the client was doing: a consumer reads, a producer writes. On an input it is READ in any case, because a
        producer only commits its offsets.
    """
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        return _about_topics(error, settings, operation)
    if isinstance(error, kafka_errors.GroupAuthorizationFailedError):
        group = "the group" if settings is None else f"group {settings.group}"
        return f"the principal may not use {group}: grant READ on it in the ACLs"
    if isinstance(error, kafka_errors.TransactionalIdAuthorizationFailed):
        prefixes = [f"{settings.group}-{topic}-" for topic in _inputs(settings)] if settings is not None else []
        of_prefix = f" with the prefix {' and '.join(prefixes)}" if prefixes else ""
        return f"the principal may not use its transactional ids: grant WRITE on those{of_prefix} in the ACLs"
    if isinstance(error, kafka_errors.ClusterAuthorizationFailedError):
        return "the principal may not write to the cluster: grant IDEMPOTENT_WRITE on the cluster in the ACLs"
    return None


def _about_topics(error: BaseException, settings: KafkaSection | None, operation: Operation) -> str:
    own: dict[str, bool] = _topics(settings) if settings is not None else {}
    named = {name for part in error.args for name in ([part] if isinstance(part, str) else part)}
    refused = sorted(named & set(own))
    if not refused:
        candidates = f" {', '.join(sorted(own))}" if own else ""
        return f"the principal may not {operation} one of the topics{candidates}: grant {operation} on it in the ACLs"
    wanted = {topic: "READ" if own[topic] else operation for topic in refused}
    grants = [
        f"{kind} on topic{'s' if len(topics) > 1 else ''} {', '.join(topics)}"
        for kind in sorted(set(wanted.values()))
        if (topics := [topic for topic in refused if wanted[topic] == kind])
    ]
    return f"the principal may not use topic {', '.join(refused)}: grant {' and '.join(grants)} in the ACLs"


def _inputs(settings: KafkaSection) -> list[str]:
    """Return the input of a pair of topics, or of all pairs."""
    found = [settings.input] if settings.input is not None else [pair.input for pair in settings.topics or ()]
    return [topic for topic in found if topic is not None]


def _topics(settings: KafkaSection) -> dict[str, bool]:
    """Return every topic that the settings name, and whether it is an input."""
    pairs = settings.topics or ()
    written = (settings.output, settings.quarantine, settings.clusters, settings.evidence, settings.progress_copy)
    found = {topic: False for topic in (*written, *(pair.output for pair in pairs)) if topic is not None}
    inputs = [*_inputs(settings), *(str(pair.input) for pair in pairs)]
    return found | dict.fromkeys(inputs, True)
