"""Kafka clients with the connection settings of the policy, and the translation of their errors.

The text of a client's exception may quote a record. So it is never passed on: a `ShoalError` with a code and a remedy
is raised instead. It names the setting that does not fit, or the missing permission and where to grant it. A principal
with READ or WRITE has DESCRIBE. `NotYetError` is for partitions that cannot be opened now; another attempt may succeed.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import CoordinationType
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.helpers import create_ssl_context
from aiokafka.protocol.metadata import MetadataRequest

from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, GuaranteeError, ShoalError
from shoal.kafka.aiokafka_compat import (
    LOST_RESPONSE,
    plain_record_options,
    send_requests_once,
    tolerate_invalid_header_names,
)
from shoal.kafka.credentials import TokenProvider, credential_fault, find_certificate_faults, forget_token, secret_of
from shoal.kafka.silent_addresses import CLIENT_ID_PREFIX, lacked_descriptor, without_silent
from shoal.observability import descriptors_remedy, is_out_of_descriptors, logger, raise_location
from shoal.policy import FieldPath, KafkaSection

MAX_NAMES = 8  # most partitions that a message names for one text

_NUMBERS = re.compile(r"\d+")


def join_refusals(refusals: Iterable[tuple[TopicPartition, str]]) -> str:
    """Return one line for each kind of refusal of a topic; texts that differ only in numbers are of one kind."""
    kinds: dict[tuple[str, str], list[tuple[TopicPartition, str]]] = {}
    for tp, text in refusals:
        kinds.setdefault((tp.topic, _NUMBERS.sub("0", text)), []).append((tp, text))
    return "\n".join(same[0][1] + _likewise(same) for same in kinds.values())


def _likewise(same: list[tuple[TopicPartition, str]]) -> str:
    """Return the sentence about all partitions but the first."""
    if len(same) == 1:
        return ""
    names = [f"{tp.topic}-{tp.partition}" for tp, _ in same]
    # The texts name their partition, and those of other topics with its number; what else differs are offsets.
    has_offsets = len({re.sub(rf"-{tp.partition}\b", "", text) for tp, text in same}) > 1
    rest_count = max(0, len(names) - MAX_NAMES)
    rest = f" and {rest_count} more" if rest_count else ""
    return f". The same{', with other offsets,' if has_offsets else ''} holds for {', '.join(names[1:MAX_NAMES])}{rest}"


ANSWER_S = 5.0
"""Time limit of the answer of a leader (s). A partition without one must not delay the others for longer."""


class NotYetError(BrokerUnavailableError):
    """A partition cannot be opened now, and may be later, by an attempt with a new producer.

    ``waited_s`` is how long the producer could not start (s); ``state`` is what `shoal progress` says of a copy.
    """

    def __init__(self, message: str, *, waited_s: float = 0.0, state: str = "") -> None:
        super().__init__(message)
        self.waited_s, self.state = waited_s, state


def leader_away(tp: TopicPartition) -> NotYetError:
    """Return the error for a partition whose leader does not answer."""
    return NotYetError(f"{tp.topic}-{tp.partition}: no leader answers; look whether its broker runs and can be reached")


def join_reasons(reasons: Mapping[TopicPartition, Exception]) -> str:
    """Return one message for the reasons why partitions of the input could not be opened."""
    return join_refusals((tp, named_text(tp, reason)) for tp, reason in reasons.items())


def named_text(tp: TopicPartition, error: Exception) -> str:
    """Return the text of an error with the partition of the input; it may name another topic alone, or none."""
    name, text = f"{tp.topic}-{tp.partition}: ", str(error)
    return text if text.startswith(name) else name + text


def named(tp: TopicPartition, error: BrokerUnavailableError) -> BrokerUnavailableError:
    """Return the same error with the partition of the input."""
    same = BrokerUnavailableError(named_text(tp, error))
    same.code, same.brief = error.code, error.brief
    return same


@asynccontextmanager
async def leader_answer(tp: TopicPartition) -> AsyncIterator[None]:
    """Limit the time of a request to the leader of a partition; the client itself asks again for 40 s."""
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except (TimeoutError, kafka_errors.KafkaTimeoutError):
        raise leader_away(tp) from None


LONGEST_MS, SHORTEST_MS = 10_000, 1000
"""Limits of the time for one address (ms). A broker that answers does so much sooner."""


def connection_timeout_ms(settings: KafkaSection) -> int:
    """Return the time limit of a connection and of a request (ms); all addresses together get ``patience_s``."""
    address_count = len(str(settings.bootstrap_servers).split(","))
    return int(max(SHORTEST_MS, min(LONGEST_MS, settings.patience_s * 1000 / address_count)))


TELL_EVERY_S = 9.0  # time between two lines (s): nothing is silent for ten seconds

log = logger("kafka")


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine that does not end by itself, for the length of the context."""
    running = asyncio.create_task(work)
    try:
        yield
    finally:
        running.cancel()


async def _tell(event: str, **fields: object) -> None:
    """Log a warning at intervals, with these fields and the time since the start."""
    began_s = time.monotonic()
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        log.warning(event, **fields, since_s=round(time.monotonic() - began_s, 3))


_HAS_EXPIRED = 10  # code of OpenSSL for a certificate that has expired


def unfit_setting(error: BaseException, settings: KafkaSection, address: str) -> BrokerError | None:
    """Return the error to raise if a connection failed for credentials, protocol or certificates; None otherwise."""
    protocol = settings.security_protocol
    if isinstance(error, (kafka_errors.SaslAuthenticationFailed, kafka_errors.AuthenticationFailedError)):
        forget_token(settings)
        return _refused_credentials(settings)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        mechanism = settings.sasl_mechanism or "PLAIN"
        return BrokerError(f"the broker at {address} does not take {mechanism}: set another kafka.sasl_mechanism")
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return BrokerError(
            f"the broker takes no SASL at {address}: check kafka.security_protocol, {protocol}, and the port"
        )
    if isinstance(error, ssl.SSLError):
        refused_tls = BrokerError(_about_tls(error))
        refused_tls.may_pass = True
        return refused_tls
    is_closed = isinstance(error, (kafka_errors.KafkaConnectionError, ConnectionError))
    if is_closed and not isinstance(error, ConnectionRefusedError):
        has_no_certificate = protocol == "SSL" and settings.ssl_certfile is None
        return BrokerUnavailableError(
            f"the broker closed the {'TLS ' if protocol.endswith('SSL') else ''}connection to {address}: check that "
            f"this port is one for kafka.security_protocol {protocol}"
            + (", and whether it requires a client certificate, kafka.ssl_certfile" if has_no_certificate else "")
        )
    return None


def _about_tls(error: ssl.SSLError) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return (
            "the broker refused the TLS connection: check kafka.security_protocol, the port, and the certificate of "
            "the client, kafka.ssl_certfile"
        )
    remedy = (
        "renew the certificate of the broker, or of the authority that signed it, and check this machine's clock"
        if error.verify_code == _HAS_EXPIRED
        else "check kafka.ssl_cafile, and that the certificate names the host in kafka.bootstrap_servers"
    )
    return f"the certificate of the broker is not trusted ({error.verify_message}): {remedy}"


Operation: TypeAlias = Literal["READ", "WRITE"]

_OPERATIONS: dict[str, tuple[Operation, ...]] = {"input": ("READ",), "quarantine": ("WRITE",)}


def operations_on(role: str) -> tuple[Operation, ...]:
    """Return the operations that a worker needs on a topic of this role."""
    return _OPERATIONS.get(role, ("READ", "WRITE"))


def describe_missing(topic: str, operations: Sequence[Operation]) -> str:
    """Return the message for a topic on which the principal lacks these operations."""
    return f"the principal may not use topic {topic}: grant {' and '.join(operations)} on topic {topic} in the ACLs"


def describe_refusal(error: BaseException, settings: KafkaSection | None, operation: Operation) -> str | None:
    """Return the message for an authorization error of a client; None for another error."""
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
    inputs = [] if settings is None else _inputs(settings)
    own = set() if settings is None else set(named_topics(settings).values())
    named = {name for part in error.args for name in ([part] if isinstance(part, str) else part)}
    refused = sorted(named & own)
    if not refused:
        candidates = f" {', '.join(sorted(own))}" if own else ""
        return f"the principal may not {operation} one of the topics{candidates}: grant {operation} on it in the ACLs"
    wanted = {topic: "READ" if topic in inputs else operation for topic in refused}
    grants = [
        f"{kind} on topic{'s' if len(topics) > 1 else ''} {', '.join(topics)}"
        for kind in sorted(set(wanted.values()))
        if (topics := [topic for topic in refused if wanted[topic] == kind])
    ]
    return f"the principal may not use topic {', '.join(refused)}: grant {' and '.join(grants)} in the ACLs"


def named_topics(settings: KafkaSection) -> dict[FieldPath, str]:
    """Return the topics by the fields that name them. The last part of a field is the role of its topic."""
    named: dict[FieldPath, str | None] = {("kafka", role): getattr(settings, role) for role in ("input", "output")}
    for number, pair in enumerate(settings.topics or []):
        named |= {("kafka", "topics", str(number), role): getattr(pair, role) for role in ("input", "output")}
    for role in ("quarantine", "clusters", "evidence", "progress_copy"):
        named["kafka", role] = getattr(settings, role)
    return {path: topic for path, topic in named.items() if topic}


def _inputs(settings: KafkaSection) -> list[str]:
    """Return the input of a pair of topics, or of all pairs."""
    inputs = {path: topic for path, topic in named_topics(settings).items() if path[-1] == "input"}
    own = inputs.get(("kafka", "input"))
    return [own] if own is not None else list(inputs.values())


CLOSE_S = 2.0
FETCH_WAIT_MS = 20  # how long a broker keeps a fetch for which it has no records (ms)
MOST_FETCHING = 8  # tasks that fetch at a time, where they share readers
REFUSAL_MS = 5000  # time limit of a request while it is found out why no client could start (ms)

CLIENT_ERRORS = (kafka_errors.KafkaError, OSError, asyncio.TimeoutError)

UNKNOWN_REQUEST = (NotImplementedError, kafka_errors.IncompatibleBrokerVersion)
"""What the client raises for a request that the broker does not know, or not in this version."""

_FENCED = (
    kafka_errors.ProducerFenced,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.TransactionCoordinatorFenced,
    kafka_errors.InvalidProducerIdMapping,
)
TRANSACTION_TIMEOUT_MS = 60_000
_TIMEOUT_REFUSED = f"the broker's transaction.max.timeout.ms is below {TRANSACTION_TIMEOUT_MS}: raise it"
_FINAL = {
    kafka_errors.AuthenticationFailedError: "the broker refused the credentials",
    kafka_errors.SaslAuthenticationFailed: "the broker refused the credentials",
    kafka_errors.UnsupportedVersionError: "the broker is too old: Kafka 2.5 or later is needed",
    kafka_errors.InvalidTransactionTimeout: _TIMEOUT_REFUSED,
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

_OF_ONE_TOPIC = (
    kafka_errors.InvalidTimestampError,
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
)
"""Refusals of one of the topics that are written; the broker does not say which."""


def broker_error(
    error: BaseException, settings: KafkaSection | None = None, operation: Operation = "READ"
) -> BrokerError:
    """Return the error to raise in place of a client's; it quotes nothing of the client's text."""
    if isinstance(error, BrokerError):
        return error
    # The client wraps the errors of its background tasks.
    causes = [known for known in (error, error.__cause__) if known is not None]
    for known in causes:
        if (found := _about_cause(known, settings, operation)) is not None:
            return found
    if any(LOST_RESPONSE in known.args for known in causes):
        return BrokerUnavailableError(_lost_response(settings))
    return no_descriptor() if lacked_descriptor() else BrokerUnavailableError(_no_connection(error, settings))


def _about_cause(error: BaseException, settings: KafkaSection | None, operation: Operation) -> BrokerError | None:
    """Return what an error of the client or the system says by itself; None if it may be any loss of a connection."""
    if isinstance(error, _FENCED):
        return FencedError("another worker, or an import of progress, owns the partition now")
    if is_out_of_descriptors(error):
        return no_descriptor()
    if (refusal := describe_refusal(error, settings, operation)) is not None:
        return BrokerError(refusal)
    words = next((words for kind, words in _FINAL.items() if isinstance(error, kind)), None)
    if words is not None and settings is not None and isinstance(error, _OF_ONE_TOPIC):
        written = [topic for path, topic in named_topics(settings).items() if path[-1] != "input"]
        words += f"; it is one of {', '.join(written)}"
    return None if words is None else BrokerError(words)


def no_descriptor() -> BrokerUnavailableError:
    """Return the error for a process that may open no more files and connections."""
    error = BrokerUnavailableError(f"no file descriptor is left: {descriptors_remedy()}")
    error.code = "descriptors"
    error.brief = "no file descriptor is left: raise the limit of open files (LimitNOFILE, ulimit -n)"
    return error


def _no_connection(error: BaseException, settings: KafkaSection | None) -> str:
    names = " from ".join(type(known).__name__ for known in (error, error.__cause__) if known is not None)
    address = f" at {settings.bootstrap_servers}" if settings is not None else ""
    words = f"the broker{address} cannot be reached or refused for now ({names})"
    if not isinstance(error, (kafka_errors.KafkaConnectionError, ConnectionError)):
        return words
    return f"{words}: check that a broker listens and answers there, and that kafka.bootstrap_servers names it"


def _lost_response(settings: KafkaSection | None) -> str:
    words = "a connection ended before the broker answered a request of a transaction: connecting again"
    if settings is None or not settings.security_protocol.startswith("SASL"):
        return words
    return (
        f"{words} (a broker does so at the end of a session: when an OAuth token expires, or after "
        "connections.max.reauth.ms)"
    )


def task_exception(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the error that a task ended with; None if it ended normally or was cancelled on request.

    The client itself raises cancellations when a connection breaks.
    """
    if task.cancelled():
        return None if task.cancelling() else asyncio.CancelledError()
    return task.exception()


def to_shoal_error(error: BaseException, settings: KafkaSection | None = None) -> ShoalError:
    """Return the `ShoalError` for any error: for an unexpected error its class and location, never its text."""
    if isinstance(error, ShoalError):
        return error
    if isinstance(error, (*CLIENT_ERRORS, asyncio.CancelledError)):
        return broker_error(error, settings)
    if isinstance(error, UnicodeDecodeError) and tolerate_invalid_header_names():
        return BrokerUnavailableError("the name of a header is not UTF-8: reading again without decoding such names")
    return GuaranteeError(f"unexpected {raise_location(error)}: nothing more is sent")


def _security(settings: KafkaSection) -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": settings.security_protocol}
    if settings.security_protocol.endswith("SSL"):
        # Without a password OpenSSL would ask for one on the terminal.
        password = secret_of(settings, "ssl_password") or ""
        try:
            options["ssl_context"] = create_ssl_context(
                cafile=settings.ssl_cafile,
                certfile=settings.ssl_certfile,
                keyfile=settings.ssl_keyfile,
                password=password,
            )
        except (OSError, ValueError) as error:
            if is_out_of_descriptors(error):
                raise no_descriptor() from None
            raise credential_fault(_certificate_faults(settings)) from None
    if settings.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.sasl_mechanism or "PLAIN"
        if settings.sasl_mechanism == "OAUTHBEARER":
            return options | {"sasl_oauth_token_provider": TokenProvider(settings)}
        username = settings.sasl_username
        options["sasl_plain_username"] = None if username is None else username.get_secret_value()
        options["sasl_plain_password"] = secret_of(settings, "sasl_password")
    return options


def _client_options(settings: KafkaSection, name: str) -> dict[str, Any]:
    """Return the options that all clients have: addresses, an id of this name, and security."""
    return {
        "bootstrap_servers": without_silent(str(settings.bootstrap_servers)),
        "client_id": f"{CLIENT_ID_PREFIX}{name}",
        **_security(settings),
    }


def _certificate_faults(settings: KafkaSection) -> str:
    faults = [f"kafka.{fault.field}: {fault.message}" for fault in find_certificate_faults(settings)]
    return "\n  ".join(faults) or "kafka.ssl_*: a certificate or key cannot be read; check the files"


def consumer(settings: KafkaSection, name: str = "", **options: Any) -> AIOKafkaConsumer:  # noqa: ANN401 - the client's own
    """Build a consumer that reads committed records only (by default), and never resets or commits by itself.

    Its client id has ``name``, by default that of the group.
    """
    return AIOKafkaConsumer(
        **_client_options(settings, name or str(settings.group)),
        **plain_record_options(),
        **{"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "none"} | options,
    )


@asynccontextmanager
async def reading(settings: KafkaSection, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:  # noqa: ANN401 - as above
    """Open a `consumer` for the length of the context, or raise `BrokerError` if the principal may not read a topic."""
    reader = consumer(settings, **options)
    try:
        with _refusals_of_reads(settings):
            await reader.start()
            yield reader
    finally:
        await stop(reader, CLOSE_S)


@contextmanager
def _refusals_of_reads(settings: KafkaSection) -> Iterator[None]:
    try:
        yield
    except kafka_errors.TopicAuthorizationFailedError as error:
        # Here, because the caller may be a producer, whose refusals are about WRITE.
        raise broker_error(error, settings) from None


class _OpenReaders:
    """Readers for the tasks of some contexts. One of each isolation level is asked and never assigned, others fetch."""

    def __init__(self) -> None:
        self.is_closed = False  # tasks that were created in a context may outlive it
        self._opened, self._opening = AsyncExitStack(), asyncio.Lock()
        self._asked: dict[str, AIOKafkaConsumer] = {}
        self._has_failed = False  # then all would fail, and wait for silent brokers one after the other
        self._may_fetch = asyncio.Semaphore(MOST_FETCHING)
        self._idle: list[tuple[AIOKafkaConsumer, AsyncExitStack]] = []

    async def asked(self, settings: KafkaSection, isolation_level: str) -> AIOKafkaConsumer:
        """Return the reader that is asked."""
        async with self._opening:
            if self._has_failed and lacked_descriptor():
                raise no_descriptor()
            if self._has_failed:
                raise BrokerUnavailableError("the log of a partition cannot be read now; trying again")
            if isolation_level not in self._asked:
                opening = reading(settings, isolation_level=isolation_level)
                try:
                    self._asked[isolation_level] = await self._opened.enter_async_context(opening)
                except Exception:
                    self._has_failed = True
                    raise
            return self._asked[isolation_level]

    @asynccontextmanager
    async def fetching(self, settings: KafkaSection) -> AsyncIterator[AIOKafkaConsumer]:
        """Take a reader that no other task uses, for the length of the context; in it, do not take a second one."""
        async with self._may_fetch:
            reader, own = self._idle.pop() if self._idle else await self._open_idle(settings)
            try:
                with _refusals_of_reads(settings):
                    yield reader
            except BaseException:  # also the end of a task that has read enough: a reader keeps what it has fetched
                await own.aclose()
                raise
            if self.is_closed:
                await own.aclose()
            else:
                reader.pause(*reader.assignment())
                self._idle.append((reader, own))

    async def _open_idle(self, settings: KafkaSection) -> tuple[AIOKafkaConsumer, AsyncExitStack]:
        own = AsyncExitStack()
        # A fetch without records must end soon: the next task waits for it.
        opening = reading(settings, fetch_max_wait_ms=FETCH_WAIT_MS)
        return await own.enter_async_context(opening), own

    async def close(self) -> None:
        """Close all readers but those that a task still uses."""
        self.is_closed = True
        await asyncio.gather(self._opened.aclose(), *(own.aclose() for _, own in self._idle))


class SharedReaders:
    """Readers that are opened when a context needs them, and closed when the last context that shares them ends."""

    def __init__(self) -> None:
        self._contexts, self._open = 0, _OpenReaders()

    def enter(self) -> _OpenReaders:
        """Begin a context."""
        self._contexts += 1
        return self._open

    async def leave(self) -> None:
        """End a context."""
        self._contexts -= 1
        if not self._contexts:
            opened, self._open = self._open, _OpenReaders()  # another context may begin while these are closed
            await opened.close()


_shared: ContextVar[_OpenReaders | None] = ContextVar("shared readers", default=None)


@asynccontextmanager
async def shared_readers(readers: SharedReaders | None = None) -> AsyncIterator[None]:
    """Let `asking` and `fetching` share readers, by default new ones, among all tasks that are created in this context.

    All settings that they are given must be of one Kafka cluster and group.
    """
    readers = readers or SharedReaders()
    token = _shared.set(readers.enter())
    try:
        yield
    finally:
        _shared.reset(token)
        await readers.leave()


@asynccontextmanager
async def asking(settings: KafkaSection, isolation_level: str = "read_committed") -> AsyncIterator[AIOKafkaConsumer]:
    """Open a reader as `reading` does, or use that of `shared_readers`. It must not be assigned a partition.

    A new client costs two connections and 100 ms, and a client that fetches answers only after the fetch.
    """
    shared = _shared.get()
    if shared is None or shared.is_closed:
        async with reading(settings, isolation_level=isolation_level) as reader:
            yield reader
        return
    with _refusals_of_reads(settings):
        yield await shared.asked(settings, isolation_level)


@asynccontextmanager
async def fetching(settings: KafkaSection) -> AsyncIterator[AIOKafkaConsumer]:
    """Open a reader of committed records as `reading` does, or take one of `shared_readers`; assign it a partition."""
    shared = _shared.get()
    opening = reading(settings) if shared is None or shared.is_closed else shared.fetching(settings)
    async with opening as reader:
        yield reader


async def log_end(reader: AIOKafkaConsumer, tp: TopicPartition) -> int:
    """Return the end of the log of a partition; raises as `leader_answer`."""
    async with leader_answer(tp):
        return int((await reader.end_offsets([tp]))[tp])


async def log_bounds(reader: AIOKafkaConsumer, tp: TopicPartition) -> tuple[int, int]:
    """Return the first offset of the log of a partition, and its end; raises as `leader_answer`."""
    async with leader_answer(tp):
        return int((await reader.beginning_offsets([tp]))[tp]), await log_end(reader, tp)


def producer(settings: KafkaSection, partition: int, batch_bytes: int) -> AIOKafkaProducer:
    """Build the transactional producer of one input partition, which fences the one that started before it."""
    client = AIOKafkaProducer(
        **_client_options(settings, f"{settings.group}-{partition}"),
        transactional_id=transactional_id(settings, partition),
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        max_batch_size=batch_bytes,
        acks="all",
        linger_ms=0,
    )
    send_requests_once(client)
    return client


def transactional_id(settings: KafkaSection, partition: int) -> str:
    """Return the transactional id of an input partition."""
    return f"{settings.group}-{settings.input}-{partition}"


@asynccontextmanager
async def admin(settings: KafkaSection) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open an administration client for the length of the context."""
    client = AIOKafkaAdminClient(
        **_client_options(settings, f"{settings.group}-admin"),
        request_timeout_ms=connection_timeout_ms(settings),
    )
    try:
        try:
            async with meanwhile(_tell("waiting for the broker", broker=settings.bootstrap_servers)):
                await client.start()
        except CLIENT_ERRORS as error:
            raise await _refusal(settings) or broker_error(error, settings) from None
        yield client
    except CLIENT_ERRORS as error:
        raise broker_error(error, settings) from None
    finally:
        await client.close()


async def _refusal(settings: KafkaSection) -> BrokerError | None:
    """Connect to all addresses; return the first error that says what is wrong with the settings, or None."""
    options, unknown_hosts = _security(settings), []
    options["request_timeout_ms"] = min(REFUSAL_MS, connection_timeout_ms(settings))

    async def of_address(host: str, port: int) -> BrokerError | None:
        try:
            connection = await create_conn(host, port, **options)
            try:
                # A listener with SASL answers other clients until they send their first request.
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
        except socket.gaierror:
            unknown_hosts.append(host)
        except CLIENT_ERRORS as error:
            return unfit_setting(error, settings, f"{host}:{port}")
        return None

    addresses = collect_hosts(str(settings.bootstrap_servers))
    refusals = await asyncio.gather(*(of_address(host, port) for host, port, _ in addresses))
    if (refusal := next((one for one in refusals if one is not None), None)) is not None or not unknown_hosts:
        return refusal
    return BrokerUnavailableError(
        f"the name of a broker cannot be looked up: {', '.join(sorted(unknown_hosts))}; check "
        "kafka.bootstrap_servers and the DNS"
    )


_READ_ANEW = ("sasl_password_file", "sasl_oauth_token_file", "sasl_oauth_command")
"""Files and a command: other credentials may be there later."""
_CREDENTIALS = (
    *("sasl_username", "sasl_password", "sasl_password_file", "sasl_oauth_token", "sasl_oauth_token_file"),
    *("sasl_oauth_command", "ssl_certfile", "sasl_mechanism"),
)


def _refused_credentials(settings: KafkaSection) -> BrokerError:
    named = [f"kafka.{name}" for name in _CREDENTIALS if getattr(settings, name)]
    refused = f"the broker refused the credentials: check {', '.join(named) or 'kafka.security_protocol'}"
    if any(getattr(settings, name) for name in _READ_ANEW):
        return BrokerUnavailableError(f"{refused}; their files are read again")
    return BrokerError(refused)


async def broker_cluster_id(settings: KafkaSection) -> str | None:
    """Return the id of the Kafka cluster at these settings; None if its brokers do not give one."""
    async with admin(settings) as client:
        return await client_cluster_id(client._client)  # noqa: SLF001 - not reachable otherwise


async def client_cluster_id(client: Any) -> str | None:  # noqa: ANN401 - the client has no types
    """Return the id of the Kafka cluster of a connected client; to be awaited in the event loop of the client."""
    answer = await client.send(client.get_random_node(), MetadataRequest([]))
    cluster_id: str | None = answer.to_object().get("cluster_id")
    return cluster_id


async def stop(client: AIOKafkaConsumer | AIOKafkaProducer, timeout_s: float) -> None:
    """Stop a client; close its connections if the broker does not answer in time, so that it keeps no partition."""
    stopping = asyncio.ensure_future(client.stop())
    try:
        # A task of its own: the client may end it with a cancellation that is not meant for the caller.
        await asyncio.wait({stopping}, timeout=timeout_s)
    finally:
        transaction_error(client)
        _retrieve_errors_of_batches(client)
        if not stopping.done() or stopping.cancelled() or stopping.exception() is not None:
            stopping.cancel()
            for task in _tasks(client):
                task.cancel()
            for connection in list(_network(client)._conns.values()):  # noqa: SLF001 - close() would wait
                connection.close()


def transaction_error(client: AIOKafkaConsumer | AIOKafkaProducer) -> BaseException | None:
    """Return the error of the last transaction of a client, or None; asyncio logs errors that nothing has retrieved."""
    manager = getattr(client, "_txn_manager", None)
    waiter = None if manager is None else manager.wait_for_transaction_end()
    if isinstance(waiter, asyncio.Future) and waiter.done() and not waiter.cancelled():
        return waiter.exception()
    return None


def transaction_coordinator(client: AIOKafkaProducer) -> int | None:
    """Return the id of the broker that has answered a producer as coordinator of its transactions; None if none has."""
    coordinators = getattr(getattr(client, "_sender", None), "_coordinators", {})
    broker: int | None = coordinators.get(CoordinationType.TRANSACTION)
    return broker


def _retrieve_errors_of_batches(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Retrieve the errors of batches that a failed producer has not sent: asyncio would log them in addition."""
    unsent = getattr(getattr(client, "_message_accumulator", None), "_batches", {})
    for batches in unsent.values():
        for batch in batches:
            for waiter in (batch.future, batch._drain_waiter):  # noqa: SLF001 - not reachable otherwise
                if waiter.done() and not waiter.cancelled():
                    waiter.exception()


def _network(client: AIOKafkaConsumer | AIOKafkaProducer) -> Any:  # noqa: ANN401 - the client has no types
    return client.client if isinstance(client, AIOKafkaProducer) else client._client  # noqa: SLF001


def _tasks(client: AIOKafkaConsumer | AIOKafkaProducer) -> Iterator[asyncio.Task[Any]]:
    """Yield the background tasks of a client that still run."""
    owners = (
        (_network(client), ("_sync_task",)),
        (getattr(client, "_sender", None), ("_sender_task",)),
        (getattr(client, "_coordinator", None), ("_coordination_task", "_heartbeat_task", "_commit_refresh_task")),
        (getattr(client, "_fetcher", None), ("_fetch_task",)),
    )
    for owner, names in owners:
        for name in names:
            task = getattr(owner, name, None)
            if isinstance(task, asyncio.Task) and not task.done():
                yield task
