"""A consumer loop without a poll: an external framework (Faust) assigns the partitions and delivers the messages.

The framework may deliver messages twice, out of order, or lose some. The loop therefore checks that each message
follows those that its task has processed. Where it does not, the loop asks the framework to rewind. So the guarantee
does not depend on the framework's bookkeeping.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError
from shoal.kafka.checks import preflight
from shoal.kafka.client import NotYetError, admin, reading, task_exception, to_shoal_error
from shoal.kafka.credentials import UsedCredentials
from shoal.kafka.logs import LOG_ENDS_ANSWER_S, GapReader, LogEnds
from shoal.kafka.retries import BrokerLiveness, until_all, until_first
from shoal.kafka.task import Message, PartitionTask
from shoal.kafka.task_manager import TaskManager, WorkerContext, open_partitions
from shoal.kafka.transactions import ClusterListener
from shoal.observability import logger
from shoal.streams import BLOCK_RECORDS

GRACE_S = 0.3  # how long a missing message may be on its way before a rewind is requested
RETRY_S = 2.0
"""Pause after a rewind; it grows by this time with each further rewind, because a busy machine delivers slowly."""
RETRY_MAX_S = 30.0

log = logger("kafka")


@dataclass(slots=True)
class _Wait:
    """When the next rewind is due (s, monotonic), and how many were requested."""

    next_s: float
    count: int = 0


class Rewinds:
    """The partitions that wait for a missing message, and the rewinds that were requested for them."""

    def __init__(self, rewind: Callable[[int, int], Awaitable[None]]) -> None:
        self._rewind = rewind
        self._waits: dict[TopicPartition, _Wait] = {}
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}

    def wait(self, tp: TopicPartition, grace_s: float = GRACE_S) -> None:
        """Note that a message of this partition is missing; it may still arrive within ``grace_s``."""
        self._waits.setdefault(tp, _Wait(time.monotonic() + grace_s))

    def forget(self, tp: TopicPartition) -> None:
        """Note that no message of this partition is missing."""
        self._waits.pop(tp, None)

    def request_if_due(self, tp: TopicPartition, offset: int) -> None:
        """Request the messages of a partition from this offset on, if one has been missing for long enough."""
        wait = self._waits.get(tp)
        if wait is None or time.monotonic() < wait.next_s or tp in self._running:
            return
        log.info("rewind requested", topic=tp.topic, partition=tp.partition, offset=offset)
        self._running[tp] = asyncio.create_task(self._request(wait, tp, offset))

    async def _request(self, wait: _Wait, tp: TopicPartition, offset: int) -> None:
        """Request a rewind while the tasks continue: the source may first have to deliver messages for all of them."""
        try:
            await self._rewind(tp.partition, offset)
        finally:
            del self._running[tp]
            wait.count += 1
            wait.next_s = time.monotonic() + min(RETRY_S * wait.count, RETRY_MAX_S)

    def cancel(self) -> None:
        """Cancel the rewinds that have not ended."""
        for running in list(self._running.values()):
            running.cancel()


POLL_S = 0.05
IDLE_S = 0.01
COMPARE_S = 1.0  # how often idle tasks are compared with the ends of their logs
STALL_S = 3.0  # after this time without a message, though the log has more, a rewind is requested


class MessageSource(Protocol):
    """The source of the messages."""

    async def wait(self, timeout_s: float) -> None:
        """Return when there are messages, or after this time."""

    def take(self, partition: int, most: int) -> Sequence[Message]:
        """Return the oldest messages of a partition, at most so many, and forget them."""

    @property
    def is_full(self) -> bool:
        """Whether it accepts no message of any partition before some are taken."""

    @property
    def rewind(self) -> Callable[[int, int], Awaitable[None]]:
        """Requests the messages of a partition from an offset on, again if need be. It may fail, and is retried."""


class ExternalLoop:
    """One assignment: tasks for some partitions, fed by a message source, until it is ended.

    At most ``most`` messages are taken and committed together. If the log ``may_contain_uncommitted`` messages, each is
    looked up. ``opened`` is set when all tasks are open, or some cannot be opened now; these are opened later.
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
        self._ends, self._rewinds = LogEnds(), Rewinds(source.rewind)
        self._uncommitted_before: dict[TopicPartition, int] = {}
        """A message before this offset may belong to an open or aborted transaction."""
        self._positions: dict[TopicPartition, int] = {}
        """Offsets before which there are no more records, only control records (transaction markers)."""
        self._last_message_s: dict[TopicPartition, float] = {}
        self._compared_s = 0.0
        self._credentials = UsedCredentials(context.settings)
        self._gap_reader: GapReader
        self._admin_client: AIOKafkaAdminClient

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
        """Work until ended; raises the error that ended the loop."""
        self._work_background = asyncio.create_task(self._work())
        try:
            await asyncio.wait({self._work_background})
        finally:
            self._work_background.cancel()
            await asyncio.wait({self._work_background})
            self.opened.set()
            self._ended.set()
        error = task_exception(self._work_background)
        if error is not None:
            raise to_shoal_error(error, self._context.settings) from None

    async def _work(self) -> None:
        context, settings = self._context, self._context.settings
        context.health.restoring = set(self._partitions)
        # Gaps and the ends of logs have clients of their own: the isolation level is that of the client, and an address
        # that does not answer must not delay them.
        options = {"request_timeout_ms": round(LOG_ENDS_ANSWER_S * 1000)}
        async with admin(settings) as admin_client:
            self._tasks.layout = await preflight(admin_client, context.policy, settings, context.unchecked_settings)
            self._liveness.note_answer()
            with_open = reading(settings, isolation_level="read_uncommitted", **options)
            without, gaps = reading(settings, **options), reading(settings, **options)
            async with gaps as gap_client, without as ends, with_open as ends_with_open:
                self._admin_client, self._gap_reader = admin_client, GapReader(gap_client)
                try:
                    # The brokers are checked all the time: a listener may take any time for a cluster.
                    await until_first(
                        self._serve(ends, ends_with_open),
                        self._tasks.watch_brokers(admin_client, ends, self._liveness, self._credentials),
                    )
                finally:
                    self._report_no_partitions()

    def _report_no_partitions(self) -> None:
        """Lower gauges for the case that no loop follows: the next assignment may be empty."""
        self._context.health.leaders_away = False
        for gauge in (self._context.metrics.unreachable, self._context.metrics.opening):
            gauge.set(0)

    async def _serve(self, ends: AIOKafkaConsumer, ends_with_open: AIOKafkaConsumer) -> None:
        context, should_commit = self._context, False
        try:
            context.health.joined = True
            await until_all(
                until_first(self._open_all(), self._ending.wait()),
                until_first(self._ends.read_regularly(ends, ends_with_open), self._ending.wait()),
                self._feed_all(),
                *map(self._punctuate_regularly, self._partitions),
            )
            should_commit = True
        finally:
            context.health.joined = False
            await self._tasks.close(list(self._tasks), commit=should_commit)

    async def _open_all(self) -> None:
        """Open all partitions; raises as `open_partitions`."""
        await open_partitions(
            self._tasks,
            self._partitions,
            self._admin_client,
            self._task_opened,
            liveness=self._liveness,
            credentials=self._credentials,
            on_failed=self.opened.set,
        )
        self.opened.set()

    def _task_opened(self, tp: TopicPartition, task: PartitionTask) -> None:
        self._last_message_s[tp] = time.monotonic()
        self._ends.add(tp)
        log.debug("reading", topic=tp.topic, partition=tp.partition, offset=task.position)

    async def _punctuate_regularly(self, tp: TopicPartition) -> None:
        """Punctuate the task of a partition as soon as it is open, even while other tasks wait for the listener."""
        while not self._ending.is_set():
            wait_s = POLL_S
            if tp in self._tasks:
                task = self._tasks[tp]
                await self._punctuate(tp, task)
                if task.has_stopped and not self._ending.is_set():
                    # Only the end of a loop takes back what was handed over: the next loop decides it again.
                    raise BrokerUnavailableError(f"{tp.topic}-{tp.partition}: a cluster was not handled; reading again")
                wait_s = min(wait_s, task.next_commit[0])
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), wait_s)

    async def _punctuate(self, tp: TopicPartition, task: PartitionTask) -> None:
        await task.punctuate(self._positions.get(tp), self._ends.end(tp))
        self._tasks.update_metrics(tp, task, self._ends.end_with_open(tp))

    async def _feed_all(self) -> None:
        try:
            await self._feed_until_ended()
        finally:
            self._rewinds.cancel()

    async def _feed_until_ended(self) -> None:
        while not self._ending.is_set():
            await self._source.wait(POLL_S)
            self._make_space()
            has_fed = False
            for tp, task in self._tasks.items():
                if not (task.is_full or self._listener.is_full() or self._ending.is_set()):
                    has_fed |= await self._feed(tp, task)
            if not has_fed:
                await asyncio.sleep(IDLE_S)
            now_s = time.monotonic()
            if now_s - self._compared_s >= COMPARE_S:
                self._compared_s = now_s
                await self._check_idle_tasks()

    def _make_space(self) -> None:
        """Drop messages of partitions that are not open, so that a full source delivers those of the others."""
        if self._source.is_full and list(self._tasks):
            for tp in self._partitions:
                while tp not in self._tasks and self._source.take(tp.partition, self._most):
                    pass

    async def _feed(self, tp: TopicPartition, task: PartitionTask) -> bool:
        """Let a task process the messages that follow its position; return whether there were any."""
        taken = self._source.take(tp.partition, self._most)
        if not taken:
            self._request_rewind(tp, task)
            return False
        messages = await self._consecutive(tp, task, taken)
        if messages:
            self._last_message_s[tp] = time.monotonic()
            await task.process(messages)
            await self._punctuate(tp, task)
        return bool(messages)

    async def _consecutive(
        self, tp: TopicPartition, task: PartitionTask, taken: Sequence[Message]
    ) -> Sequence[Message]:
        """Return the messages that follow each other and the task's position, and skip no record between them."""
        expected, uncommitted_before = task.position, self._uncommitted_end(tp)
        if expected >= uncommitted_before and all(one.offset == expected + i for i, one in enumerate(taken)):
            self._rewinds.forget(tp)
            return taken
        found, is_gap = [], False
        for message in taken:
            offset = message.offset
            if offset < expected:
                continue
            is_next = offset == expected and offset >= uncommitted_before
            try:
                first = offset if is_next else await self._next_record(tp, expected)
            except NotYetError:
                # What the log holds is not known: take nothing more, and have it delivered again later.
                is_gap = True
                break
            if first == offset:
                found.append(message)
                expected, is_gap = offset + 1, False
            elif offset >= uncommitted_before or (first is not None and first < offset):
                # The expected record may still arrive after this message. (Otherwise this message is not committed.)
                is_gap = True
        if is_gap:
            self._rewinds.wait(tp)
        else:
            self._rewinds.forget(tp)
        self._request_rewind(tp, task)
        return found

    def _uncommitted_end(self, tp: TopicPartition) -> int:
        """Return the offset before which messages may be uncommitted: all of them, while the end is not known."""
        if not self._may_contain_uncommitted:
            return 0
        if tp not in self._uncommitted_before and (end := self._ends.end_with_open(tp)) is not None:
            self._uncommitted_before[tp] = end
        return self._uncommitted_before.get(tp, sys.maxsize)

    async def _next_record(self, tp: TopicPartition, offset: int) -> int | None:
        """Return the offset of the first record from an offset on; None if there is none up to the log's end."""
        async with self._ends.while_answering(tp):
            return await self._gap_reader.next_record_offset(tp, offset)

    def _request_rewind(self, tp: TopicPartition, task: PartitionTask) -> None:
        """Request a missing message again, if its leader can deliver it."""
        if self._ends.is_answering(tp):
            self._rewinds.request_if_due(tp, task.position)

    async def _check_idle_tasks(self) -> None:
        """Check whether each idle task has read all records before the end of its log."""
        for tp, task in self._tasks.items():
            log_end, idle_s = self._ends.end(tp), time.monotonic() - self._last_message_s[tp]
            if log_end is None or idle_s < COMPARE_S or log_end <= task.position:
                continue
            with contextlib.suppress(NotYetError):
                first = await self._next_record(tp, task.position)
                if first is None:
                    # Only control records: the next punctuation passes them.
                    self._positions[tp] = log_end
                elif idle_s > STALL_S and not task.is_full:
                    self._rewinds.wait(tp, grace_s=0)
