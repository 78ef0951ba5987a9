"""Faust as the stage sees it. This is the only module that leans on what is inside of it; the list is `INTERNALS`.

None of it is trusted with the guarantee: whose partitions are whose is settled by fencing, what was read by progress of
our own, and whether anything is missing by a reader of our own. What breaks here makes the stage stop, not lie.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import faust
import msgspec
from faust.agents import Agent, current_agent
from faust.types import TP, StreamT
from faust.types.enums import ProcessingGuarantee

from shoal.errors import BrokerUnavailableError, ConfigError
from shoal.kafka import CLIENT_ERRORS, client_cluster_id, tolerate_invalid_header_names
from shoal.stage.message_buffer import BufferedMessage

__all__ = ["INTERNALS", "FaustAdapter", "app_around", "crash"]

INTERNALS = (
    "stream.channel, .concurrency_index, .active_partitions, .current_event, ._processors, .combined, .join_strategy",
    "channel.topics, .acks, .pattern, .value_serializer, .on_key_decode_error, .on_value_decode_error",
    "channel.queue.put, .empty, .get_nowait: what was decoded, and errors that stand for what was not",
    "app.create_event, .should_stop, .topics.acks_enabled_for, .consumer.assignment, .rebalancing, .rebalancing_count",
    "app.on_partitions_assigned and .on_partitions_revoked: awaited, with the whole assignment",
    "app.on_rebalance_complete: awaited before the flow resumes; .on_before_shutdown: before agents are cancelled",
    "app.consumer.pause_partitions, .resume_partitions, .seek_wait, ._paused_partitions",
    "app.consumer._thread._consumer._fetcher, of aiokafka: ._isolation_level (0 or 1), ._pending_tasks (on their way)",
    "app.consumer._thread.call_thread and ._consumer._client, of aiokafka: asked in its own loop for the cluster's id",
    "aiokafka.consumer.fetcher.MemoryRecords: made anew for each answer, so that names that are not UTF-8 stop nobody",
    "Agent._maybe_unwrap_reply_request: a processor on the stream of an agent that yields; agents.current_agent",
    "event.message.topic, .partition, .offset, .timestamp (s), .key, .value (bytes), .headers",
)
"""What the stage leans on, documented or not; `tests/integration/test_stage_internals.py` pins it."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_BARE = {None, "json", "raw"}
"""Codecs whose bytes are JSON or nothing that anybody knows of."""
_REPLYING = Agent._maybe_unwrap_reply_request  # noqa: SLF001 - see INTERNALS
REWIND_S = 5.0
DELIVERY_S, DELIVERY_MOST_S = 0.05, 5.0
FETCH_S = 10.0
"""How long a request for records may be on its way: Faust lets a broker wait 1.5 s for them."""

Change = Callable[[set[int]], Awaitable[None]]

# Not later: an agent may do something else first, and Faust reads by then.
tolerate_invalid_header_names()


@dataclass
class _Doubt:
    """Of what an app's consumer fetched before it was told to read committed records only: it may be brought late."""

    topics: set[str] = field(default_factory=set)
    asked: set[asyncio.Task[Any]] = field(default_factory=set)
    """Requests that were on their way."""


def app_around(stream: Any) -> Any | None:  # noqa: ANN401 - Faust's types say little
    """App of a stream, or of the agent that took something else for one."""
    agent: Any = current_agent()
    return stream.app if _is_stream(stream) else None if agent is None else agent.app


def crash(app: Any, error: BaseException) -> Coroutine[Any, Any, None]:  # noqa: ANN401
    """End the worker with this error; from this call on, before it is awaited, no stage of the app begins any more."""
    vars(app)["shoal_ends"] = True
    ending: Coroutine[Any, Any, None] = app.crash(error)
    return ending


class FaustAdapter:
    """A Faust stream over one topic, and the app around it.

    Parameters
    ----------
    stream : faust.Stream
        Of a topic that is declared with ``acks=False``, as the agent got it.

    Raises
    ------
    ConfigError
        It is something else.
    """

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - Faust's types say little
        if not _is_stream(stream):
            raise ConfigError("anonymize: give it the stream as the agent gets it, not its events() or items()")
        self.stream, self.app, channel = stream, stream.app, stream.channel
        topics = list(getattr(channel, "topics", []))
        if len(topics) != 1 or channel.pattern is not None:
            raise ConfigError("anonymize: give it the stream of one topic, named in full")
        self.topic = str(topics[0])
        self._channel = channel
        self._check()
        # Faust's own handlers would throw it away, and say so with a traceback.
        channel.on_key_decode_error = channel.on_value_decode_error = self._pass_on
        self._forget_what_came()
        self._serializer = channel.value_serializer or self.app.conf.value_serializer
        self._signals: list[tuple[Any, Any]] = []
        self._sent_back: dict[int, tuple[int, int]] = {}
        """Where it was sent back to last, by partition, and how often to the same place."""

    def _forget_what_came(self) -> None:
        """Throw away what the channel holds: it went by Faust's handlers, as an error maybe; it is asked for again."""
        queue = self._channel.queue
        while not queue.empty():
            with contextlib.suppress(Exception):
                queue.get_nowait()

    @property
    def is_ending(self) -> bool:
        """Whether the app ends: Faust starts an agent again that has failed, even then, and nobody would stop it."""
        return bool(self.app.should_stop or vars(self.app).get("shoal_ends"))

    @property
    def group(self) -> str:
        """The consumer group of the app."""
        return str(self.app.conf.id)

    @property
    def brokers(self) -> str:
        """Where the app finds its brokers."""
        return ",".join(f"{url.host}:{url.port or 9092}" for url in self.app.conf.broker_consumer)

    def _check(self) -> None:
        stream, where = self.stream, f"anonymize: topic {self.topic}"
        if not self._channel.acks:
            self.check_acks()
        else:
            raise ConfigError(
                f"{where}: declare it with app.topic(..., acks=False): Faust commits past records that are held, and "
                "they would be lost"
            )
        if self.app.conf.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE:
            raise ConfigError(
                f"{where}: processing_guarantee must be at_least_once; the stage has its own transactions"
            )
        if any(getattr(one, "__func__", None) is _REPLYING for one in stream._processors):  # noqa: SLF001
            raise ConfigError(
                f"{where}: an agent with a stage must not yield: the next cluster would be asked for before anybody "
                "knows that what was yielded has arrived; send it, and await that: await (await topic.send(...))"
            )
        if stream._processors or stream.combined or stream.join_strategy:  # noqa: SLF001 - see INTERNALS
            raise ConfigError(
                f"{where}: give it the topic's stream as it is; what is filtered out or changed before would be missing"
            )
        if stream.concurrency_index is not None or stream.active_partitions is not None:
            words = "an agent with a stage has concurrency=1 and no isolated_partitions; workers share the partitions"
            raise ConfigError(f"{where}: {words}")

    def check_acks(self) -> None:
        """See that nobody else in the app acknowledges the topic.

        Raises
        ------
        ConfigError
            Somebody does: Faust would commit over the progress.
        """
        if self.app.topics.acks_enabled_for(self.topic):
            raise ConfigError(
                f"anonymize: topic {self.topic}: another agent reads it with acks: declare every app.topic of that "
                "name with acks=False, or Faust commits over the progress"
            )

    # ------------------------------------------------------------------ what the app tells

    def listen(self, assigned: Change, revoked: Change, settling: Change, stopping: Change) -> None:
        """Be told of assignments, of their end, of the moment before the flow resumes, and of the app's end."""

        async def tell_assigned(_: object, places: Iterable[Any], **__: object) -> None:
            await assigned(self._mine(places))

        async def tell_revoked(_: object, places: Iterable[Any], **__: object) -> None:
            await revoked(self._mine(places))

        async def tell_settling(_: object, **__: object) -> None:
            await settling(set())

        async def tell_stopping(_: object, **__: object) -> None:
            vars(self.app)["shoal_ends"] = True
            await stopping(set())

        self._signals = [
            (self.app.on_partitions_assigned, tell_assigned),
            (self.app.on_partitions_revoked, tell_revoked),
            (self.app.on_rebalance_complete, tell_settling),
            (self.app.on_before_shutdown, tell_stopping),
        ]
        for signal, told in self._signals:
            signal.connect(told)

    def listen_no_more(self) -> None:
        """Be told no more."""
        for signal, told in self._signals:
            signal.disconnect(told)
        self._signals = []

    def assignment(self) -> set[int]:
        """Partitions of the topic that this worker has now."""
        try:
            return self._mine(self.app.consumer.assignment())
        except faust.exceptions.ConsumerNotStarted:
            return set()

    def _mine(self, places: Iterable[Any]) -> set[int]:
        return {int(place.partition) for place in places if place.topic == self.topic}

    def crash(self, error: BaseException) -> Coroutine[Any, Any, None]:
        """End the worker with this error; see `crash` above."""
        return crash(self.app, error)

    # ------------------------------------------------------------------ records

    async def read_committed(self) -> bool:
        """Let the app's consumer pass over records of transactions that were aborted or are open.

        Faust has no setting for that outside of its own transactions.

        Returns
        -------
        bool
            Whether it has fetched others of this topic by then, which may still come. The level is the consumer's,
            for all topics: another stage, or this one before its agent failed, may have told it.

        Raises
        ------
        ConfigError
            It cannot be told so: another version of Faust or of its client.
        """
        thread = getattr(self.app.consumer, "_thread", None)
        fetcher = getattr(getattr(thread, "_consumer", None), "_fetcher", None)
        level, asked = getattr(fetcher, "_isolation_level", None), getattr(fetcher, "_pending_tasks", None)
        if fetcher is None or not isinstance(asked, set) or level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise ConfigError(
                "anonymize: this version of faust-streaming or aiokafka cannot be told to read committed records only: "
                "install those that Shoal is pinned to"
            )
        doubt: _Doubt = vars(self.app).setdefault("shoal_doubt", _Doubt())
        if level == READ_UNCOMMITTED:
            fetcher._isolation_level = READ_COMMITTED  # noqa: SLF001 - see INTERNALS
            with contextlib.suppress(faust.exceptions.ConsumerNotStarted):
                doubt.topics |= {place.topic for place in self.app.consumer.assignment()}
            doubt.asked |= asked
        if self.topic not in doubt.topics:
            return False
        # An agent that did something else before. What was asked for until then is answered before anything is judged.
        deadline = time.monotonic() + FETCH_S
        while not all(task.done() for task in doubt.asked):
            if time.monotonic() > deadline:
                raise BrokerUnavailableError("the app's consumer waits for records and gets no answer")
            await asyncio.sleep(DELIVERY_S)
        return True

    async def cluster(self) -> str | None:
        """Id of the cluster that the app's consumer is connected with.

        Raises
        ------
        BrokerUnavailableError
            It cannot be asked just now.
        """
        thread = self.app.consumer._thread  # noqa: SLF001 - see INTERNALS
        client = thread._consumer._client  # noqa: SLF001
        try:
            name: str | None = await asyncio.wait_for(thread.call_thread(client_cluster_id, client), FETCH_S)
        except CLIENT_ERRORS:
            raise BrokerUnavailableError("the app's consumer gets no answer") from None
        return name

    async def messages(self) -> AsyncIterator[tuple[int, BufferedMessage]]:
        """Partition and message of all that the stream brings."""
        stream = self.stream
        async for value in stream:
            event = stream.current_event
            if event is None:
                raise ConfigError(f"anonymize: topic {self.topic}: its stream brings what did not come from a topic")
            message = event.message
            stamp = -1 if message.timestamp is None else round(message.timestamp * 1000)
            yield (
                message.partition,
                BufferedMessage(
                    message.offset, stamp, message.key, self._bytes(value, message.value), message.headers or ()
                ),
            )

    async def _pass_on(self, _: BaseException, message: Any) -> None:  # noqa: ANN401
        """What Faust cannot decode has its fate like any other: the policy decides. Its error may quote the record."""
        await self._channel.queue.put(self.app.create_event(None, None, message.headers, message))

    def _bytes(self, value: Any, raw: bytes | None) -> bytes | None:  # noqa: ANN401
        """The record as JSON: the very bytes of the topic, unless they are something else."""
        if self._serializer in _BARE:
            return raw
        if value is None:
            return raw
        try:
            return value if isinstance(value, bytes) else msgspec.json.encode(value, enc_hook=_fields)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            return raw

    async def rewind(self, partition: int, offset: int) -> None:
        """Send the consumer back; what it does not bring after that is asked for again."""
        app, consumer, place = self.app, self.app.consumer, TP(self.topic, partition)
        rebalances = app.rebalancing_count

        def is_ours() -> bool:
            # While tables are read again Faust keeps all partitions paused, and seeks and resumes them itself.
            return not app.rebalancing and app.rebalancing_count == rebalances and partition in self.assignment()

        if not is_ours() or place in consumer._paused_partitions:  # noqa: SLF001 - see INTERNALS
            return
        consumer.pause_partitions({place})
        before, times = self._sent_back.get(partition, (-1, 0))
        times = times + 1 if before == offset else 0
        self._sent_back[partition] = offset, times
        try:
            # What is on its way just now would be taken for read, and what comes before it for read twice. While
            # paused Faust throws it away; how long that takes depends on how busy everybody is.
            await asyncio.sleep(min(DELIVERY_S * 2**times, DELIVERY_MOST_S))
            if is_ours():
                await asyncio.wait_for(consumer.seek_wait({place: offset}), REWIND_S)
        except (*CLIENT_ERRORS, faust.exceptions.FaustError):
            return
        finally:
            if is_ours():
                consumer.resume_partitions({place})


def _is_stream(stream: object) -> bool:
    return isinstance(stream, StreamT)


def _fields(value: object) -> dict[str, Any]:
    """What a model holds, also one inside of another; what no model is has no fields."""
    if not isinstance(value, faust.Record):
        raise TypeError
    return dict(value.asdict())
