"""A consumer loop without a poll: an external framework (Faust) assigns the partitions and delivers the messages.

The framework may deliver messages twice, out of order, or lose some. The loop therefore checks that each message
follows those that its task has processed. Where it does not, the loop asks the framework to rewind. So the guarantee
does not depend on the framework's bookkeeping.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, ShoalError
from shoal.kafka.classification import Message
from shoal.kafka.client import admin, reading, task_exception, to_shoal_error
from shoal.kafka.cluster_listener import ClusterListener
from shoal.kafka.concurrent_work import until_all, until_first
from shoal.kafka.gap_reader import GapReader
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.preflight import preflight
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.rewinds import Rewinds
from shoal.kafka.rotation import UsedCredentials
from shoal.kafka.task_manager import TaskManager, WorkerContext
from shoal.kafka.topic_watch import watch_topics
from shoal.observability import logger
from shoal.pipeline import BLOCK_RECORDS

__all__ = ["ExternalLoop", "HandoverCancelledError", "MessageSource"]

POLL_S = 0.05
IDLE_S = 0.01
END_POLL_S = 1.0
"""How often the ends of the logs are read; an idle task learns from them that it has all records."""
END_VALID_S = 2 * END_POLL_S
"""Log ends that were read earlier are not used: a flush must not depend on a broker that no longer answers."""
STALL_S = 3.0
"""After this time without a message, though the log has more, a rewind is requested."""

log = logger("kafka")


class HandoverCancelledError(ShoalError):
    """A cluster was not handled in time. It is handed over again, by this process or another."""

    code = "withdrawn"
    retriable = True


class MessageSource(Protocol):
    """The source of the messages."""

    async def wait(self, timeout_s: float) -> None:
        """Return when there are messages, or after this time."""

    def take(self, partition: int, most: int) -> Sequence[Message]:
        """Return the oldest messages of a partition, at most so many, and forget them."""

    @property
    def rewind(self) -> Callable[[int, int], Awaitable[None]]:
        """Requests the messages of a partition from an offset on, again if need be. It may fail, and is retried."""


class ExternalLoop:
    """One assignment: tasks for some partitions, fed by a message source, until it is ended.

    Parameters
    ----------
    context : WorkerContext
        Of the process.
    liveness : BrokerLiveness
        Records when the broker answered.
    source : MessageSource
        Delivers the messages.
    partitions : sequence of int
        Of the input, assigned to this process.
    listener : ClusterListener
        Receives the clusters.
    most : int
        Largest number of messages that are taken together. Decisions on them are committed together, not earlier.
    may_contain_uncommitted : bool
        Whether messages that are in the log now may belong to open or aborted transactions. Each is then looked up.
    opened : asyncio.Event or None
        Set when all tasks are open, or will not be.
    """

    def __init__(
        self,
        context: WorkerContext,
        liveness: BrokerLiveness,
        source: MessageSource,
        partitions: Sequence[int],
        listener: ClusterListener,
        most: int = BLOCK_RECORDS,
        *,
        may_contain_uncommitted: bool = False,
        opened: asyncio.Event | None = None,
    ) -> None:
        self._context, self._liveness, self._source, self._most = context, liveness, source, most
        self._listener, self._may_contain_uncommitted = listener, may_contain_uncommitted
        self._partitions = [TopicPartition(str(context.settings.input), number) for number in partitions]
        self._tasks = TaskManager(context, listener)
        self._ending = asyncio.Event()
        self.opened = opened or asyncio.Event()
        self._ended = asyncio.Event()
        self._work_background: asyncio.Task[None] | None = None
        self._rewinds = Rewinds(source.rewind)
        self._uncommitted_before: dict[TopicPartition, int] = {}
        """A message before this offset may belong to an open or aborted transaction."""
        self._positions: dict[TopicPartition, int] = {}
        """Offsets before which there are no more records, only control records (transaction markers)."""
        self._log_ends: dict[TopicPartition, int] = {}
        self._ends_with_open: dict[TopicPartition, int] = {}
        """Ends of the logs, and the same with the records of open transactions."""
        self._last_message_s: dict[TopicPartition, float] = {}
        self._ends_read_s = self._compared_s = 0.0

    async def end(self, timeout_s: float) -> bool:
        """Commit the decisions and close the tasks; return whether both were done in this time."""
        self._ending.set()
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def cancel(self) -> None:
        """Cancel the work. Decisions that are not committed are made again after the next start."""
        if self._work_background is not None:
            self._work_background.cancel()

    async def run(self) -> None:
        """Work until ended.

        Raises
        ------
        ShoalError
            The error that ended the loop.
        """
        self._work_background = asyncio.create_task(self._work())
        try:
            await asyncio.wait({self._work_background})
        finally:
            self._work_background.cancel()
            await asyncio.wait({self._work_background})
            self.opened.set()
            self._ended.set()
        error = task_exception(self._work_background)
        if error is not None and not (isinstance(error, HandoverCancelledError) and self._ending.is_set()):
            raise to_shoal_error(error, self._context.settings) from None

    async def _work(self) -> None:
        settings = self._context.settings
        credentials = UsedCredentials(settings)
        async with admin(settings) as admin_client:

            async def request() -> None:
                await admin_client.find_coordinator(str(settings.group))

            # The broker is checked all the time: a listener may take any time for a cluster.
            await until_first(self._serve(admin_client, credentials), self._liveness.check_broker(request, credentials))

    async def _serve(self, admin_client: AIOKafkaAdminClient, credentials: UsedCredentials) -> None:
        context = self._context
        context.health.restoring = set(self._partitions)
        self._tasks.layout = await preflight(admin_client, context.policy, context.settings, context.unchecked_settings)
        self._liveness.note_answer()
        if self._may_contain_uncommitted:
            self._uncommitted_before = await self._uncommitted_ends()
        should_commit = False
        # A client of its own: the isolation level of a request is that of its client.
        with_open = reading(context.settings, isolation_level="read_uncommitted")
        async with reading(context.settings) as kafka_consumer, with_open as consumer_with_open:
            try:
                opening = self._tasks.open(self._partitions, admin_client, kafka_consumer, self._task_opened)
                await until_first(opening, self._until_ending())
                context.health.joined = True
                self._liveness.note_opened()
                self.opened.set()
                punctuations = [self._punctuate_regularly(*one) for one in self._tasks.items()]
                polling = self._poll_log_ends(kafka_consumer, consumer_with_open, credentials)
                feeding = self._feed_all(kafka_consumer)
                working = until_all(feeding, polling, *punctuations, passing=HandoverCancelledError)
                inputs = [str(context.settings.input)]
                await until_first(working, watch_topics(admin_client, inputs, self._tasks.layout.partitions))
                should_commit = True
            except HandoverCancelledError:
                # Commit the decisions of the other tasks, and the clusters that were handled before.
                should_commit = True
                raise
            finally:
                context.health.joined = False
                await self._tasks.close(list(self._tasks), commit=should_commit)

    async def _until_ending(self) -> None:
        await self._ending.wait()

    async def _uncommitted_ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the logs for a consumer that also reads uncommitted records."""
        async with reading(self._context.settings, isolation_level="read_uncommitted") as kafka_consumer:
            return dict(await kafka_consumer.end_offsets(self._partitions)) if self._partitions else {}

    def _task_opened(self, tp: TopicPartition, task: PartitionTask) -> None:
        self._last_message_s[tp] = time.monotonic()
        log.debug("reading", topic=tp.topic, partition=tp.partition, offset=task.position)

    # ------------------------------------------------------------------ punctuation

    async def _punctuate_regularly(self, tp: TopicPartition, task: PartitionTask) -> None:
        """Punctuate a task also while other tasks wait for the listener."""
        while not self._ending.is_set():
            await self._punctuate(tp, task)
            wait_s, _ = task.next_commit
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), min(POLL_S, wait_s))

    async def _punctuate(self, tp: TopicPartition, task: PartitionTask) -> None:
        log_end, is_valid = self._log_ends.get(tp), time.monotonic() - self._ends_read_s < END_VALID_S
        await task.punctuate(self._positions.get(tp), log_end if is_valid else None)
        self._tasks.update_metrics(tp, task, self._ends_with_open.get(tp))

    async def _poll_log_ends(
        self, kafka_consumer: AIOKafkaConsumer, consumer_with_open: AIOKafkaConsumer, credentials: UsedCredentials
    ) -> None:
        """Read the ends of the logs regularly, without and with open transactions, also while tasks wait."""
        partitions = list(self._tasks)  # the same for as long as this loop serves

        async def read_ends() -> None:
            asked_s = time.monotonic()
            try:
                self._log_ends = dict(await kafka_consumer.end_offsets(partitions))
                self._ends_with_open = dict(await consumer_with_open.end_offsets(partitions))
            except kafka_errors.UnknownTopicOrPartitionError:
                self._liveness.note_no_answer()
                raise BrokerUnavailableError("the broker cannot be reached") from None
            self._ends_read_s = asked_s

        if partitions:
            checking = self._liveness.check_broker(read_ends, credentials, END_POLL_S)
            await until_first(checking, self._until_ending())

    # ------------------------------------------------------------------ feeding

    async def _feed_all(self, kafka_consumer: AIOKafkaConsumer) -> None:
        try:
            await self._feed_until_ended(kafka_consumer)
        finally:
            self._rewinds.cancel()

    async def _feed_until_ended(self, kafka_consumer: AIOKafkaConsumer) -> None:
        gap_reader = GapReader(kafka_consumer)
        while not self._ending.is_set():
            await self._source.wait(POLL_S)
            has_fed = False
            for tp, task in self._tasks.items():
                if not (task.is_full or self._listener.is_full() or self._ending.is_set()):
                    has_fed |= await self._feed(tp, task, gap_reader)
            if not has_fed:
                await asyncio.sleep(IDLE_S)
            now_s = time.monotonic()
            if now_s - self._compared_s >= END_POLL_S:
                self._compared_s = now_s
                await self._check_idle_tasks(gap_reader)

    async def _feed(self, tp: TopicPartition, task: PartitionTask, gap_reader: GapReader) -> bool:
        """Let a task process the messages that follow its position; return whether there were any."""
        taken = self._source.take(tp.partition, self._most)
        if not taken:
            self._rewinds.request_if_due(tp, task.position)
            return False
        messages = await self._consecutive(tp, task, taken, gap_reader)
        if messages:
            self._last_message_s[tp] = time.monotonic()
            await task.process(messages)
            await self._punctuate(tp, task)
        return bool(messages)

    async def _consecutive(
        self, tp: TopicPartition, task: PartitionTask, taken: Sequence[Message], gap_reader: GapReader
    ) -> Sequence[Message]:
        """Return the messages that follow each other and the task's position, and skip no record between them."""
        expected, uncommitted_before = task.position, self._uncommitted_before.get(tp, 0)
        if expected >= uncommitted_before and all(one.offset == expected + i for i, one in enumerate(taken)):
            self._rewinds.forget(tp)
            return taken
        found, is_gap = [], False
        for message in taken:
            offset = message.offset
            if offset < expected:
                continue
            is_next = offset == expected and offset >= uncommitted_before
            first = offset if is_next else await gap_reader.next_record_offset(tp, expected)
            if first == offset:
                found.append(message)
                expected, is_gap = offset + 1, False
            elif offset >= uncommitted_before or _is_before(first, offset):
                # The expected record may still arrive after this message. (Otherwise this message is not committed.)
                is_gap = True
        if is_gap:
            self._rewinds.wait(tp)
        else:
            self._rewinds.forget(tp)
        self._rewinds.request_if_due(tp, task.position)
        return found

    async def _check_idle_tasks(self, gap_reader: GapReader) -> None:
        """Check whether each idle task has read all records before the end of its log."""
        for tp, task in self._tasks.items():
            log_end, idle_s = self._log_ends.get(tp, 0), time.monotonic() - self._last_message_s[tp]
            if idle_s < END_POLL_S or log_end <= task.position:
                continue
            first = await gap_reader.next_record_offset(tp, task.position)
            if first is None:
                # Only control records: the next punctuation passes them.
                self._positions[tp] = log_end
            elif idle_s > STALL_S and not task.is_full:
                self._rewinds.wait(tp, grace_s=0)


def _is_before(first: int | None, offset: int) -> bool:
    return first is not None and first < offset
