"""Faust as the stage sees it. Only this module uses undocumented parts of Faust; `USED_FAUST_API` lists them.

The guarantee does not depend on Faust's bookkeeping. A change inside Faust stops the stage with an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import faust
import msgspec
from faust.agents import Agent, current_agent
from faust.types import TP, StreamT
from faust.types.enums import ProcessingGuarantee

from shoal.errors import BrokerUnavailableError, ConfigError
from shoal.kafka import CLIENT_ERRORS, client_cluster_id, tolerate_invalid_header_names

LIMIT_RECORDS = 2_048
BATCHING_S = 0.02


class BufferedMessage(NamedTuple):
    """A Kafka message with the fields that a partition task reads."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def __repr__(self) -> str:
        """Show the offset only: key, value and headers may hold attribute values."""
        return f"BufferedMessage(offset={self.offset})"


class MessageBuffer:
    """Messages between the Faust stream and the partition tasks, at most ``limit`` of them over all partitions."""

    def __init__(self, rewind: Callable[[int, int], Awaitable[None]], limit: int = LIMIT_RECORDS) -> None:
        self.rewind = rewind
        self._limit, self._count = limit, 0
        self._queues: dict[int, deque[BufferedMessage]] = {}
        self._not_empty, self._not_full = asyncio.Event(), asyncio.Event()
        self._new = 0
        self._partitions: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether `put` waits, for any partition."""
        return self._count >= self._limit

    async def put(self, partition: int, message: BufferedMessage) -> None:
        """Add a message as soon as the buffer is not full; drop it if its partition is not assigned."""
        while self.is_full and partition in self._partitions:
            self._not_full.clear()
            await self._not_full.wait()
        if partition not in self._partitions:
            return
        self._queues.setdefault(partition, deque()).append(message)
        self._count += 1
        self._new += 1
        self._not_empty.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when the buffer holds a message, or after ``timeout_s``.

        Faust delivers one message at a time, which costs less than a pass of the loop: the first ones wait for more.
        """
        if not self._count:
            self._not_empty.clear()
            try:
                await asyncio.wait_for(self._not_empty.wait(), timeout_s)
            except TimeoutError:
                return
        is_all_new = self._count == self._new
        await asyncio.sleep(BATCHING_S if is_all_new else 0)
        self._new = 0

    def take(self, partition: int, most: int) -> list[BufferedMessage]:
        """Remove and return the oldest messages of a partition, at most ``most``."""
        queue = self._queues.get(partition)
        if not queue:
            return []
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._remove(len(taken))
        return taken

    def assign(self, partitions: Iterable[int]) -> None:
        """Accept messages of these partitions only; drop buffered messages of all others."""
        self._partitions = frozenset(partitions)
        for partition in self._queues.keys() - self._partitions:
            self._remove(len(self._queues.pop(partition)))
        self._not_full.set()

    def _remove(self, count: int) -> None:
        self._count -= count
        self._not_full.set()


USED_FAUST_API = (
    "stream.channel, .concurrency_index, .active_partitions, .current_event, ._processors, .combined, .join_strategy",
    "channel.topics, .acks, .pattern, .value_serializer, .on_key_decode_error, .on_value_decode_error",
    "channel.queue.put, .empty, .get_nowait: decoded events, and errors in place of events that were not decoded",
    "app.create_event, .should_stop, .topics.acks_enabled_for, .consumer.assignment, .rebalancing, .rebalancing_count",
    "app.on_partitions_assigned and .on_partitions_revoked: awaited, with the whole assignment",
    "app.on_rebalance_complete: awaited before the flow resumes; .on_before_shutdown: before agents are cancelled",
    "app.consumer.pause_partitions, .resume_partitions, .seek_wait, ._paused_partitions",
    "app.consumer._thread._consumer._fetcher, of aiokafka: ._isolation_level (0 or 1), ._pending_tasks (open requests)",
    "app.consumer._thread.call_thread and ._consumer._client, of aiokafka: run in its own loop, for the cluster id",
    "aiokafka.consumer.fetcher.MemoryRecords: made for each response, so a subclass can accept invalid header names",
    "Agent._maybe_unwrap_reply_request: a processor on the stream of an agent that yields; agents.current_agent",
    "event.message.topic, .partition, .offset, .timestamp (s), .key, .value (bytes), .headers",
)  # what the stage uses of Faust, documented or not; `tests/integration/test_stage_internals.py` pins it

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_UNCHANGED_CODECS = {None, "json", "raw"}
"""Codecs for which the bytes of the topic are read unchanged: they are JSON, or their format is unknown."""
_REPLY_PROCESSOR = Agent._maybe_unwrap_reply_request  # noqa: SLF001 - see USED_FAUST_API
SEEK_TIMEOUT_S = 5.0
IN_FLIGHT_S, IN_FLIGHT_MAX_S = 0.05, 5.0
FETCH_TIMEOUT_S = 10.0  # how long a fetch request may be open (s); Faust lets a broker wait 1.5 s before it answers

SignalHandler = Callable[[set[int]], Awaitable[None]]

# At import: an agent may do something else before it calls anonymize, and Faust reads records by then.
tolerate_invalid_header_names()


@dataclass
class _UncommittedFetches:
    """What an app's consumer fetched before its isolation level was set to read committed; it may be delivered late."""

    topics: set[str] = field(default_factory=set)
    requests: set[asyncio.Task[Any]] = field(default_factory=set)
    """Fetch requests that were open when the level was set."""


def find_app(stream: Any) -> Any | None:  # noqa: ANN401 - Faust's types say little
    """Return the app of a stream; if the argument is no stream, the app of the running agent, if any."""
    agent: Any = current_agent()
    return stream.app if _is_stream(stream) else None if agent is None else agent.app


def stop_app(app: Any, error: BaseException) -> Coroutine[Any, Any, None]:  # noqa: ANN401
    """Stop the worker with this error. No stage of the app starts after this call, even before it is awaited."""
    vars(app)["shoal_is_stopping"] = True
    stopping: Coroutine[Any, Any, None] = app.crash(error)
    return stopping


class FaustAdapter:
    """A Faust stream over one topic, and its app. `ConfigError` is raised if the stage cannot read this stream."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - Faust's types say little
        if not _is_stream(stream):
            raise ConfigError("anonymize: give it the stream that the agent gets, not its events() or items()")
        self.stream, self.app, channel = stream, stream.app, stream.channel
        topics = list(getattr(channel, "topics", []))
        if len(topics) != 1 or channel.pattern is not None:
            raise ConfigError("anonymize: give it the stream of one topic with a fixed name")
        self.topic = str(topics[0])
        self._channel = channel
        self._check()
        # Faust's own handlers would drop the record and log a traceback.
        channel.on_key_decode_error = channel.on_value_decode_error = self._forward_undecodable
        self._discard_queued()
        self._serializer = channel.value_serializer or self.app.conf.value_serializer
        self._signals: list[tuple[Any, Any]] = []
        self._rewinds: dict[int, tuple[int, int]] = {}
        """By partition: offset of the last rewind, and how often it was repeated."""

    def _discard_queued(self) -> None:
        """Discard what the channel holds: Faust's handlers have seen it. The stage requests these records again."""
        queue = self._channel.queue
        while not queue.empty():
            with contextlib.suppress(Exception):
                queue.get_nowait()

    @property
    def is_stopping(self) -> bool:
        """Whether the app stops. Faust restarts a failed agent even then, and its stage would never be stopped."""
        return bool(self.app.should_stop or vars(self.app).get("shoal_is_stopping"))

    @property
    def group(self) -> str:
        """The consumer group of the app."""
        return str(self.app.conf.id)

    @property
    def brokers(self) -> str:
        """The bootstrap servers of the app."""
        hosts = [(url.host or "", url.port or 9092) for url in self.app.conf.broker_consumer]
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)

    def _check(self) -> None:
        stream, prefix = self.stream, f"anonymize: topic {self.topic}"
        if not self._channel.acks:
            self.check_acks()
        else:
            raise ConfigError(
                f"{prefix}: declare it with app.topic(..., acks=False); otherwise Faust commits offsets of records "
                "that still wait for their cluster, and they can be lost"
            )
        if self.app.conf.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE:
            raise ConfigError(
                f"{prefix}: processing_guarantee must be at_least_once; the stage has its own transactions"
            )
        if any(getattr(one, "__func__", None) is _REPLY_PROCESSOR for one in stream._processors):  # noqa: SLF001
            raise ConfigError(
                f"{prefix}: an agent with a stage must not yield: it would ask for the next cluster before the yielded "
                "value has arrived; send the value and await the result: await (await topic.send(...))"
            )
        if stream._processors or stream.combined or stream.join_strategy:  # noqa: SLF001 - see USED_FAUST_API
            raise ConfigError(
                f"{prefix}: give it the unchanged stream of the topic; records that are filtered or changed before "
                "would be missing"
            )
        if stream.concurrency_index is not None or stream.active_partitions is not None:
            raise ConfigError(
                f"{prefix}: an agent with a stage must have concurrency=1 and no isolated_partitions; workers share "
                "the partitions"
            )

    def check_acks(self) -> None:
        """Check that no other agent acknowledges records of the topic: Faust would overwrite the committed progress."""
        if self.app.topics.acks_enabled_for(self.topic):
            raise ConfigError(
                f"anonymize: topic {self.topic}: another agent reads it with acks; declare every app.topic of this "
                "name with acks=False, otherwise Faust overwrites the committed progress"
            )

    # ------------------------------------------------------------------ signals of the app

    def connect_signals(
        self,
        on_assigned: SignalHandler,
        on_revoked: SignalHandler,
        on_rebalance_complete: SignalHandler,
        on_shutdown: SignalHandler,
    ) -> None:
        """Call these handlers, the first two with the partitions of the topic; the flow resumes after the third."""

        async def before_shutdown(partitions: set[int]) -> None:
            vars(self.app)["shoal_is_stopping"] = True
            await on_shutdown(partitions)

        def calling(handler: SignalHandler) -> Callable[..., Awaitable[None]]:
            async def call(_: object, partitions: Iterable[Any] = (), **__: object) -> None:
                await handler(self._of_topic(partitions))

            return call

        self._signals = [
            (self.app.on_partitions_assigned, calling(on_assigned)),
            (self.app.on_partitions_revoked, calling(on_revoked)),
            (self.app.on_rebalance_complete, calling(on_rebalance_complete)),
            (self.app.on_before_shutdown, calling(before_shutdown)),
        ]
        for signal, handler in self._signals:
            signal.connect(handler)

    def disconnect_signals(self) -> None:
        """Undo `connect_signals`."""
        for signal, handler in self._signals:
            signal.disconnect(handler)
        self._signals = []

    def assignment(self) -> set[int]:
        """Return the partitions of the topic that are assigned to this worker now."""
        try:
            return self._of_topic(self.app.consumer.assignment())
        except faust.exceptions.ConsumerNotStarted:
            return set()

    def _of_topic(self, partitions: Iterable[Any]) -> set[int]:
        return {int(tp.partition) for tp in partitions if tp.topic == self.topic}

    def stop_app(self, error: BaseException) -> Coroutine[Any, Any, None]:
        """Stop the worker with this error; see the function `stop_app`."""
        return stop_app(self.app, error)

    # ------------------------------------------------------------------ records

    async def set_read_committed(self) -> bool:
        """Set the isolation level of the app's consumer to read committed, for all topics that it reads.

        Return whether it had fetched records of this topic before, whose transactions may be open or aborted.
        """
        thread = getattr(self.app.consumer, "_thread", None)
        fetcher = getattr(getattr(thread, "_consumer", None), "_fetcher", None)
        level, requests = getattr(fetcher, "_isolation_level", None), getattr(fetcher, "_pending_tasks", None)
        if fetcher is None or not isinstance(requests, set) or level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise ConfigError(
                "anonymize: this version of faust-streaming or aiokafka cannot be set to read committed records only; "
                "install the versions that Shoal is pinned to"
            )
        fetched: _UncommittedFetches = vars(self.app).setdefault("shoal_uncommitted_fetches", _UncommittedFetches())
        if level == READ_UNCOMMITTED:
            fetcher._isolation_level = READ_COMMITTED  # noqa: SLF001 - see USED_FAUST_API
            with contextlib.suppress(faust.exceptions.ConsumerNotStarted):
                fetched.topics |= {tp.topic for tp in self.app.consumer.assignment()}
            fetched.requests |= requests
        if self.topic not in fetched.topics:
            return False
        # The agent did something else before it called anonymize. Wait for the responses of the open requests: the
        # caller looks up the ends of the logs after that, and no uncommitted record can be behind these ends.
        deadline = time.monotonic() + FETCH_TIMEOUT_S
        while not all(task.done() for task in fetched.requests):
            if time.monotonic() > deadline:
                raise BrokerUnavailableError("the app's consumer gets no response to a fetch request")
            await asyncio.sleep(IN_FLIGHT_S)
        return True

    async def cluster_id(self) -> str | None:
        """Return the id of the Kafka cluster to which the app's consumer is connected."""
        thread = self.app.consumer._thread  # noqa: SLF001 - see USED_FAUST_API
        client = thread._consumer._client  # noqa: SLF001
        try:
            found: str | None = await asyncio.wait_for(thread.call_thread(client_cluster_id, client), FETCH_TIMEOUT_S)
        except CLIENT_ERRORS:
            raise BrokerUnavailableError("the app's consumer gets no response") from None
        return found

    @property
    def has_crashed(self) -> bool:
        """Whether an error ends the app."""
        return bool(self.app.crashed)

    async def messages(self) -> AsyncIterator[tuple[int, BufferedMessage]]:
        """Yield the partition and the message of each event of the stream."""
        stream = self.stream
        async for value in stream:
            event = stream.current_event
            if event is None:
                raise ConfigError(f"anonymize: topic {self.topic}: the stream delivers a value from outside the topic")
            message = event.message
            timestamp_ms = -1 if message.timestamp is None else round(message.timestamp * 1000)
            record = self._record_bytes(value, message.value)
            yield (
                message.partition,
                BufferedMessage(message.offset, timestamp_ms, message.key, record, message.headers or ()),
            )

    async def _forward_undecodable(self, _: BaseException, message: Any) -> None:  # noqa: ANN401
        """Put a message that Faust cannot decode into the channel: the policy decides whether it is valid."""
        await self._channel.queue.put(self.app.create_event(None, None, message.headers, message))

    def _record_bytes(self, value: Any, raw: bytes | None) -> bytes | None:  # noqa: ANN401
        """Return the record as JSON: the bytes of the topic, or the encoded value if its codec is not JSON."""
        if self._serializer in _UNCHANGED_CODECS:
            return raw
        if value is None:
            return raw
        try:
            return value if isinstance(value, bytes) else msgspec.json.encode(value, enc_hook=_model_fields)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            return raw

    async def rewind(self, partition: int, offset: int) -> None:
        """Seek the app's consumer to an offset. It may fail without an error: the caller tries again."""
        app, consumer, tp = self.app, self.app.consumer, TP(self.topic, partition)
        rebalances = app.rebalancing_count

        def is_still_assigned() -> bool:
            # While Faust recovers its tables it keeps all partitions paused, and seeks and resumes them itself.
            return not app.rebalancing and app.rebalancing_count == rebalances and partition in self.assignment()

        if not is_still_assigned() or tp in consumer._paused_partitions:  # noqa: SLF001 - see USED_FAUST_API
            return
        consumer.pause_partitions({tp})
        last_offset, repeats = self._rewinds.get(partition, (-1, 0))
        repeats = repeats + 1 if last_offset == offset else 0
        self._rewinds[partition] = offset, repeats
        try:
            # Faust discards records in flight while the partition is paused. After a seek without this pause it would
            # count them as read. How long they are in flight depends on the load of the machine.
            await asyncio.sleep(min(IN_FLIGHT_S * 2**repeats, IN_FLIGHT_MAX_S))
            if is_still_assigned():
                await asyncio.wait_for(consumer.seek_wait({tp: offset}), SEEK_TIMEOUT_S)
        except (*CLIENT_ERRORS, faust.exceptions.FaustError):
            return
        finally:
            if is_still_assigned():
                consumer.resume_partitions({tp})


def _is_stream(stream: object) -> bool:
    return isinstance(stream, StreamT)


def _model_fields(value: object) -> dict[str, Any]:
    """Return the fields of a model, also of one inside another model; other objects cannot be encoded."""
    if not isinstance(value, faust.Record):
        raise TypeError
    return dict(value.asdict())
