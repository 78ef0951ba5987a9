"""Clients with the policy's connection settings, and what becomes of their errors.

A client's exception may quote anything; it ends here, and one of ours goes on, with a code and a remedy.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.helpers import create_ssl_context

from shoal.errors import BrokerError, BrokerUnavailableError, ConfigError, FencedError
from shoal.policy import KafkaSection

__all__ = ["CLIENT_ERRORS", "admin", "broker_error", "consumer", "producer", "reading", "stop"]

CLOSE_S = 2.0

CLIENT_ERRORS = (kafka_errors.KafkaError, OSError, asyncio.TimeoutError)

_FENCED = (
    kafka_errors.ProducerFenced,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.TransactionCoordinatorFenced,
    kafka_errors.InvalidProducerIdMapping,
)
_FINAL = {
    kafka_errors.TopicAuthorizationFailedError: "the principal may not use one of the topics: grant it in the ACLs",
    kafka_errors.GroupAuthorizationFailedError: "the principal may not use the group: grant READ in the ACLs",
    kafka_errors.ClusterAuthorizationFailedError: "the principal may not use the cluster: grant it in the ACLs",
    kafka_errors.TransactionalIdAuthorizationFailed: "the principal may not use its transactional ids: grant WRITE",
    kafka_errors.AuthenticationFailedError: "the broker refused the credentials",
    kafka_errors.SaslAuthenticationFailed: "the broker refused the credentials",
    kafka_errors.UnsupportedVersionError: "the broker is too old: Kafka 2.5 or later is needed",
    kafka_errors.InvalidTransactionTimeout: "kafka.transaction_timeout_ms is above the broker's maximum",
    kafka_errors.InvalidSessionTimeoutError: "kafka.session_timeout_ms is outside the broker's limits",
    kafka_errors.InvalidTimestampError: "a topic refuses records of this machine's time: set its clock",
    kafka_errors.InconsistentGroupProtocolError: (
        "the group has members of another kind: stop them, or give kafka.group a name of its own"
    ),
    kafka_errors.MessageSizeTooLargeError: (
        "a topic takes no message of this size: raise its max.message.bytes, or lower kafka.max_record_bytes"
    ),
    kafka_errors.RecordListTooLargeError: "a topic takes no batch of this size: raise its max.message.bytes",
    kafka_errors.OffsetMetadataTooLargeError: "the broker's offset.metadata.max.bytes is too small: 4096 is needed",
}


def broker_error(error: BaseException) -> BrokerError:
    """Our error for a client's, without a word of the client's text."""
    if isinstance(error, BrokerError):
        return error
    # The client wraps what its background tasks die of.
    for known in (error, error.__cause__):
        if isinstance(known, _FENCED):
            return FencedError("another instance took the partition over")
        for kind, words in _FINAL.items():
            if isinstance(known, kind):
                return BrokerError(words)
    names = " from ".join(type(known).__name__ for known in (error, error.__cause__) if known is not None)
    return BrokerUnavailableError(f"the broker cannot be reached or refused for now ({names})")


def _security(settings: KafkaSection) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        password = settings.ssl_password.get_secret_value() if settings.ssl_password else None
        try:
            options["ssl_context"] = create_ssl_context(
                cafile=settings.ssl_cafile,
                certfile=settings.ssl_certfile,
                keyfile=settings.ssl_keyfile,
                password=password,
            )
        except (OSError, ssl.SSLError):
            raise ConfigError("kafka.ssl_*: a certificate or key cannot be read; check the files") from None
    if settings.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.sasl_mechanism or "PLAIN"
        for name, secret in (("username", settings.sasl_username), ("password", settings.sasl_password)):
            options[f"sasl_plain_{name}"] = secret.get_secret_value() if secret else None
    return options


def consumer(settings: KafkaSection, **options: Any) -> AIOKafkaConsumer:  # noqa: ANN401 - the client's own
    """Build a consumer of committed records (unless told otherwise) that never resets or commits by itself."""
    return AIOKafkaConsumer(
        **_security(settings),
        **{"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "none"} | options,
    )


@asynccontextmanager
async def reading(settings: KafkaSection, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:  # noqa: ANN401 - as above
    """Open a `consumer` for the length of the context; it is closed as well where its very start is cut off."""
    reader = consumer(settings, **options)
    try:
        await reader.start()
        yield reader
    finally:
        await stop(reader, CLOSE_S)


def producer(settings: KafkaSection, transactional_id: str, batch_bytes: int) -> AIOKafkaProducer:
    """Build the transactional producer of one input partition."""
    return AIOKafkaProducer(
        **_security(settings),
        transactional_id=transactional_id,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        max_batch_size=batch_bytes,
        acks="all",
        linger_ms=0,
    )


@asynccontextmanager
async def admin(settings: KafkaSection) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open an administration client for the length of the context."""
    client = AIOKafkaAdminClient(**_security(settings))
    try:
        await client.start()
        yield client
    except CLIENT_ERRORS as error:
        raise broker_error(error) from None
    finally:
        await client.close()


async def stop(client: AIOKafkaConsumer | AIOKafkaProducer, patience_s: float) -> None:
    """Stop a client, or cut it off where its broker does not answer in time.

    A client left to itself goes on behind our back: a consumer would keep its membership, and its partitions with
    it; a producer would go on sending.
    """
    stopping = asyncio.ensure_future(client.stop())
    try:
        # A task of its own, and not heard: the client may end it with a cancellation that was never meant for us.
        await asyncio.wait({stopping}, timeout=patience_s)
    finally:
        _hear_out(client)
        if not stopping.done() or stopping.cancelled() or stopping.exception() is not None:
            stopping.cancel()
            for task in _tasks(client):
                task.cancel()
            for connection in list(_network(client)._conns.values()):  # noqa: SLF001 - the client waits where this must not
                connection.close()


def _hear_out(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Take note of what the last transaction ended with, which was told before: unheard, it is logged as lost."""
    manager = getattr(client, "_txn_manager", None)
    waiter = None if manager is None else manager.wait_for_transaction_end()
    if isinstance(waiter, asyncio.Future) and waiter.done() and not waiter.cancelled():
        waiter.exception()


def _network(client: AIOKafkaConsumer | AIOKafkaProducer) -> Any:  # noqa: ANN401 - the client has no types
    return client.client if isinstance(client, AIOKafkaProducer) else client._client  # noqa: SLF001


def _tasks(client: AIOKafkaConsumer | AIOKafkaProducer) -> Iterator[asyncio.Task[Any]]:
    """Tasks that a client keeps in the background, as far as they still run."""
    places = (
        (_network(client), ("_sync_task",)),
        (getattr(client, "_sender", None), ("_sender_task",)),
        (getattr(client, "_coordinator", None), ("_coordination_task", "_heartbeat_task", "_commit_refresh_task")),
        (getattr(client, "_fetcher", None), ("_fetch_task",)),
    )
    for owner, names in places:
        for name in names:
            task = getattr(owner, name, None)
            if isinstance(task, asyncio.Task) and not task.done():
                yield task
