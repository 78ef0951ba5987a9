"""The service `shoal run`: consumer loops one after the other, until a stop or an error that is not retried.

A loop polls, processes and punctuates its tasks while this worker is a group member. With ``start.drain`` it reads all
partitions once, and begins when the group has no members. An error in any task ends the whole loop; the next loop reads
the committed state again, so there is nothing to repair. A partition that cannot be opened yet is opened again while
the others go on.

Each fetch, each block and each transaction has a fixed cost. The brokers therefore collect records for a while.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerError, BrokerUnavailableError, InputError, ShoalError
from shoal.kafka.checks import preflight
from shoal.kafka.client import admin, consumer, stop, task_exception, to_shoal_error
from shoal.kafka.credentials import UsedCredentials
from shoal.kafka.metadata import MetadataCipher
from shoal.kafka.retries import BrokerLiveness, run_with_retries
from shoal.kafka.start import StartOptions
from shoal.kafka.task import PartitionTask
from shoal.kafka.task_manager import TaskManager, WorkerContext, open_partitions
from shoal.kafka.topics import member_id, settings_by_input
from shoal.observability import SAME_INSTANCE, Health, Metrics, free_memory, logger
from shoal.policy import KafkaSection, Policy

POLL_S = 0.2  # longest poll (s)
POLL_RECORDS = 2048
FETCH_BYTES = 1 << 18  # a broker answers as soon as it has so many bytes, or after `fetch_wait_ms`
LEAST_WAIT_MS, MOST_WAIT_MS = 50, 200


def fetch_wait_ms(commit_interval_ms: int) -> int:
    """Return how long a broker collects records (ms): a commit interval, so that with them the next commit is due.

    After a longer interval the records would wait twice: for the answer, and then for the commit. So they wait less.
    """
    if commit_interval_ms > MOST_WAIT_MS:
        return MOST_WAIT_MS // 2
    return max(LEAST_WAIT_MS, commit_interval_ms)


SHORT_SHARE, MEMORY_S = 0.1, 1.0
"""Share of the container's memory below which it is short, and time between two looks at it (s)."""


class MemoryWatch:
    """Whether the memory of the container, if it has a limit, is nearly used up; the log says it at intervals."""

    def __init__(self) -> None:
        self._looked_s, self._was_short, self._told_s = -math.inf, False, -math.inf

    def is_short(self) -> bool:
        """Look at the memory, at most once in `MEMORY_S`."""
        now_s = time.monotonic()
        if now_s - self._looked_s < MEMORY_S:
            return self._was_short
        self._looked_s, free = now_s, free_memory()
        is_short = free is not None and free[0] < SHORT_SHARE * free[1]
        if is_short and not self._was_short and now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            log.warning(
                "memory is nearly used up: partitions are read only while no transaction is sent",
                remedy="raise the limit of memory, lower stream.max_held_bytes or stream.delta, or add workers",
            )
        self._was_short = is_short
        return is_short


class Poller:
    """Polls a consumer for the tasks of a loop; a poll without messages ends when a task has something to do.

    A partition stays paused while its task is full or flushes: at each resume aiokafka would fetch again. While the
    memory of the container is nearly used up, all are paused until the transactions that are being sent have freed
    theirs; if none is sent, reading goes on, because later records decide the waiting ones.
    """

    def __init__(self, tasks: TaskManager, is_memory_short: Callable[[], bool] | None = None) -> None:
        self._tasks, self._is_memory_short = tasks, is_memory_short or MemoryWatch().is_short
        self._paused: dict[TopicPartition, PartitionTask] = {}

    async def poll(
        self, kafka_consumer: AIOKafkaConsumer, flushing: Mapping[PartitionTask, asyncio.Task[None]]
    ) -> dict[TopicPartition, list[Any]]:
        """Return the next messages of each partition; none after `POLL_S`, or when a task or flush needs the loop."""
        self._pause_full(kafka_consumer, flushing)
        waits = [task.next_commit for _, task in self._tasks.items() if task not in flushing]
        timeout_s = min([POLL_S, *(wait_s for wait_s, _ in waits)])
        transactions = {transaction for _, transaction in waits if transaction is not None}
        timeout_ms = math.ceil(timeout_s * 1000)
        polling = asyncio.create_task(kafka_consumer.getmany(timeout_ms=timeout_ms, max_records=POLL_RECORDS))
        try:
            await asyncio.wait({polling, *transactions, *flushing.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Messages are taken from the client in the last step of a poll, so that a cancelled poll loses none.
            polling.cancel()
            await asyncio.wait({polling})
        return {} if polling.cancelled() else polling.result()

    def _pause_full(
        self, kafka_consumer: AIOKafkaConsumer, flushing: Mapping[PartitionTask, asyncio.Task[None]]
    ) -> None:
        full = {tp: task for tp, task in self._tasks.items() if task.is_full or task in flushing}
        if self._is_memory_short() and any(task.is_sending for _, task in self._tasks.items()):
            full = dict(self._tasks.items())
        # A task that was opened since then has resumed its partition itself.
        freed = [tp for tp, task in self._paused.items() if tp not in full and self._tasks.is_open(tp, task)]
        self._paused = full
        if full:
            kafka_consumer.pause(*full)
        if freed:
            kafka_consumer.resume(*(tp for tp in freed if tp in kafka_consumer.assignment()))


class MemberWatch:
    """Notices that another worker has the same ``kafka.instance_id``: each takes the place of the other, in turns.

    The coordinator gives a static member another id if another worker joins in its place, or after its session timed
    out. The latter happens once in a session timeout.
    """

    def __init__(self, settings: KafkaSection, health: Health) -> None:
        self._settings, self._health = settings, health
        self._member_id, self._changed_s, self._told_s = "", -math.inf, -math.inf

    def note(self, member_id: str, now_s: float) -> None:
        """Note the id that this worker has in the group after a rebalance."""
        before, self._member_id = self._member_id, member_id
        if self._settings.instance_id is None or before in {"", member_id}:
            return
        session_s, last_s = self._settings.session_timeout_ms / 1000, self._changed_s
        self._changed_s = now_s
        if now_s - last_s >= session_s:
            return
        self._health.same_instance_until_s = now_s + session_s
        if now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            log.error(SAME_INSTANCE, instance_id=self._settings.instance_id, group=self._settings.group)


Punctuation = Callable[[], Coroutine[Any, Any, None]]


class Punctuator:
    """Runs the punctuations of tasks, at most one of each at a time; the loop does not wait for those that flush.

    Guarantee: the order of what one task does is not changed, because it holds its lock while it flushes.
    """

    def __init__(self) -> None:
        self.flushing: dict[PartitionTask, asyncio.Task[None]] = {}  # the tasks whose punctuation has not ended yet

    async def run(self, punctuations: Mapping[PartitionTask, Punctuation]) -> None:
        """Punctuate all tasks that do not flush; return when each of them has ended or waits for a transaction."""
        for task, punctuate in punctuations.items():
            if task not in self.flushing:
                self.flushing[task] = asyncio.create_task(punctuate())
        await asyncio.sleep(0)  # each new one runs until it has to wait
        self._remove_ended()

    async def finish(self) -> None:
        """Wait for all punctuations; raises the error of one that failed."""
        await asyncio.gather(*self.flushing.values())

    async def cancel(self) -> None:
        """Cancel the punctuations that have not ended."""
        for punctuation in self.flushing.values():
            punctuation.cancel()
        await asyncio.gather(*self.flushing.values(), return_exceptions=True)
        self.flushing.clear()

    def _remove_ended(self) -> None:
        ended = [task for task, punctuation in self.flushing.items() if punctuation.done()]
        errors = [task_exception(self.flushing.pop(task)) for task in ended]
        for error in errors:
            if error is not None:
                raise error


TELL_EVERY_S = 60.0  # time between two lines of the log that say the same (s)
GROUP_POLL_S = 0.5
MARGIN_S = 15.0
"""Time (s) beyond the session timeout: a worker that is just stopping renews its session until it has committed."""
TOLD_AFTER_S, TOLD_EVERY_S = 5.0, 10.0
"""A coordinator that is just created needs some seconds; after this time (s) its silence is logged, again and again."""

log = logger("kafka")


async def wait_until_no_members(admin_client: AIOKafkaAdminClient, settings: KafkaSection) -> None:
    """Return when the group has no members; wait for members that were killed, and for static ones that have stopped.

    Raises `InputError` if members are left after the session timeout and some seconds, `BrokerError` if the coordinator
    does not answer for ``patience_s``. Nothing was fenced, read or committed then.
    """
    timeout_s = settings.session_timeout_ms / 1000 + MARGIN_S
    deadline_s, told_s = time.monotonic() + timeout_s, -math.inf
    while count := await _member_count(admin_client, settings):
        now_s = time.monotonic()
        if now_s >= deadline_s:
            members = f"{count} member{'s' if count > 1 else ''}"
            raise InputError(
                f"--drain: group {settings.group} has {members}: a drain would take the partitions from running "
                "workers and suppress records that they hold. Stop all workers (and the app, if it is a Faust stage), "
                "then drain again. If they were killed, their session timeout is longer than "
                f"{settings.session_timeout_ms / 1000:g} s (kafka.session_timeout_ms): drain again when it has passed"
            )
        if now_s >= told_s + TOLD_EVERY_S:
            words = "--drain waits until the members of the group have left, or their session timeout has passed"
            log.warning(words, group=settings.group, members=count, at_most_s=round(deadline_s - now_s, 3))
            told_s = now_s
        await asyncio.sleep(GROUP_POLL_S)


async def _member_count(admin_client: AIOKafkaAdminClient, settings: KafkaSection) -> int:
    """Return how many members the coordinator lists, in whichever state the group is; 0 for an unknown group."""
    began_s, patience_s = time.monotonic(), max(settings.patience_s, TOLD_AFTER_S)
    tell_at_s = began_s + TOLD_AFTER_S
    while True:
        try:
            return await _listed_count(admin_client, str(settings.group))
        except kafka_errors.KafkaError as error:
            # The first request of a Kafka cluster creates the coordinator's topic. A coordinator may also move or load.
            if not error.retriable:
                raise
        now_s = time.monotonic()
        passed_s = now_s - began_s
        if passed_s >= patience_s:
            raise BrokerError(
                f"--drain: the coordinator of group {settings.group} did not say for {passed_s:.0f} s "
                "(kafka.patience_s) which members it has. Nothing was read. Drain again when the broker that leads the "
                "group's partition of __consumer_offsets is back"
            )
        if now_s >= tell_at_s:
            words = "--drain waits for the coordinator of the group"
            log.warning(words, group=settings.group, at_most_s=round(patience_s - passed_s, 3))
            tell_at_s = now_s + TOLD_EVERY_S
        await asyncio.sleep(GROUP_POLL_S)


async def _listed_count(admin_client: AIOKafkaAdminClient, group: str) -> int:
    (response,) = await admin_client.describe_consumer_groups([group])
    ((code, _, _, _, _, members, *_),) = response.groups
    if code:
        raise kafka_errors.for_code(code)(group)
    return len(members)


FINISH_S = 4.0
"""Time (s) for the last transactions of a loop that is stopped; the whole shutdown must take less than ten seconds."""
LEAVE_S = 2.0
HEARTBEAT_MS = 3_000
"""A member hears at its next heartbeat that partitions are to move (ms)."""
METADATA_AGE_MS = 10_000
"""After this time a group member reads the metadata of the inputs again (ms): it assigns partitions by them."""


class ConsumerLoop(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
    """Polls and drives the tasks while this worker is a group member."""

    def __init__(self, context: WorkerContext, liveness: BrokerLiveness, stopping: asyncio.Event) -> None:
        self._context, self._settings, self._health = context, context.settings, context.health
        self._inputs = list(settings_by_input(context.settings))
        self._drains = context.start.drain
        self._liveness, self._stopping = liveness, stopping
        self._tasks = TaskManager(context)
        self._credentials = UsedCredentials(context.settings)
        self._poller, self._members = Poller(self._tasks), MemberWatch(context.settings, context.health)
        self._punctuator = Punctuator()
        self._opening: asyncio.Task[None] | None = None
        self._failure: ShoalError | None = None
        self._failed = asyncio.Event()
        self._may_hold_partitions = self._has_ended = False
        self._admin_client: AIOKafkaAdminClient = None
        self._consumer: AIOKafkaConsumer = None

    async def run(self) -> None:
        """Work until stopped or drained; raises the error that ended the loop."""
        work = asyncio.create_task(self._work())
        stop_waiter, failure_waiter = (asyncio.create_task(event.wait()) for event in (self._stopping, self._failed))
        try:
            await asyncio.wait({work, stop_waiter, failure_waiter}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set() and self._may_hold_partitions:
                # The work notices that by itself, unless it waits for a broker that does not answer.
                await asyncio.wait({work, failure_waiter}, timeout=FINISH_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for background in (work, stop_waiter, failure_waiter):
                background.cancel()
            await asyncio.wait({work})
        if self._failure is not None:
            raise self._failure
        if (error := task_exception(work)) is not None:
            raise to_shoal_error(error, self._settings) from None

    def fail(self, error: BaseException) -> None:
        """End the loop with this error."""
        if self._failure is None:
            self._failure = to_shoal_error(error, self._settings)
            self._failed.set()

    def _on_background_end(self, background: asyncio.Task[None]) -> None:
        if (error := task_exception(background)) is not None:
            self.fail(error)

    async def _work(self) -> None:
        settings = self._settings
        async with admin(settings) as self._admin_client:
            self._tasks.layout = await preflight(
                self._admin_client, self._context.policy, settings, self._context.unchecked_settings
            )
            self._liveness.note_answer()
            self._consumer = consumer(settings) if self._drains else self._group_consumer()
            watching = asyncio.create_task(
                self._tasks.watch_brokers(self._admin_client, self._consumer, self._liveness, self._credentials)
            )
            watching.add_done_callback(self._on_background_end)
            has_ended_normally = False
            try:
                if self._drains:
                    await wait_until_no_members(self._admin_client, settings)
                self._may_hold_partitions = True
                if not self._drains:
                    self._consumer.subscribe(self._inputs, listener=self)
                await self._consumer.start()
                if self._drains:
                    # Without joining the group: a drain must not wait for members that died.
                    counts = self._tasks.layout.partitions
                    every = [TopicPartition(topic, number) for topic in self._inputs for number in range(counts[topic])]
                    self._consumer.assign(every)
                    await self.on_partitions_assigned(every)
                self._health.joined = True
                await self._read()
                has_ended_normally = True
            finally:
                watching.cancel()
                await self._leave(commit=has_ended_normally)

    def _group_consumer(self) -> AIOKafkaConsumer:
        settings = self._settings
        return consumer(
            settings,
            name=settings.instance_id or "",
            group_id=settings.group,
            group_instance_id=member_id(settings),
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=min(HEARTBEAT_MS, settings.session_timeout_ms // 3),
            fetch_min_bytes=FETCH_BYTES,
            fetch_max_wait_ms=fetch_wait_ms(settings.commit_interval_ms),
            metadata_max_age_ms=METADATA_AGE_MS,
        )

    async def _leave(self, *, commit: bool) -> None:
        self._has_ended = True
        self._health.joined = self._health.unassigned = self._health.leaders_away = False
        try:
            await self._cancel_opening()
            await self._tasks.close(list(self._tasks), commit=commit)
        finally:
            await stop(self._consumer, LEAVE_S)

    async def _read(self) -> None:
        try:
            await self._read_until_stopped()
            await self._punctuator.finish()
        finally:
            await self._punctuator.cancel()

    async def _read_until_stopped(self) -> None:
        while not self._stopping.is_set():
            polled = await self._poll()
            # Look the tasks up before the first await: a rebalance during an await may replace them. Messages fetched
            # before their task was open are ignored; the loop seeks to the task's position when the task is open.
            todo = [(self._tasks[tp], messages) for tp, messages in polled.items() if tp in self._tasks]
            for task, messages in todo:
                await task.process(messages)
            await self._punctuator.run({task: partial(self._punctuate, tp, task) for tp, task in self._tasks.items()})
            is_open = self._opening is not None and self._opening.done()
            if self._drains and is_open and all(task.is_drained for _, task in self._tasks.items()):
                return

    async def _punctuate(self, tp: TopicPartition, task: PartitionTask) -> None:
        if not self._tasks.is_open(tp, task):
            return  # a rebalance has replaced the task
        position = await self._consumer.position(tp)
        log_end = self._consumer.last_stable_offset(tp)
        await task.punctuate(position, log_end)
        if self._drains and log_end is not None and 0 <= log_end <= task.position:
            await task.commit(flush=True)
        # Records of an open transaction, and those after it, are not read: they count as lag.
        self._tasks.update_metrics(tp, task, self._consumer.highwater(tp))

    async def _poll(self) -> dict[TopicPartition, list[Any]]:
        try:
            return await self._poller.poll(self._consumer, self._punctuator.flushing)
        except kafka_errors.NoOffsetForPartitionError:
            # aiokafka needed a position, and the loop seeks to the task's position only when the task is open.
            return {}
        except kafka_errors.OffsetOutOfRangeError:
            # Retention deleted messages that were not read. To continue after them would lose records unnoticed. The
            # next loop compares the committed state with the log, and refuses to start if records were lost.
            raise BrokerUnavailableError(
                "messages were deleted before they could be read; the worker now checks which were lost and tries again"
            ) from None

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Open tasks in the background, and return at once: aiokafka sends no heartbeats meanwhile."""
        if self._has_ended:
            return
        partitions = sorted(assigned)
        self._health.unassigned = not partitions
        # A drain is no member.
        coordinator = getattr(self._consumer, "_coordinator", None)
        self._members.note(getattr(coordinator, "member_id", ""), time.monotonic())
        self._context.metrics.held_at_close = 0
        self._health.restoring = set(partitions)
        for tp in partitions:
            # Offset 0 is a placeholder: without a position aiokafka would determine one itself. Nothing is fetched
            # while paused; the loop seeks to the task's position when the task is open.
            self._consumer.pause(tp)
            self._consumer.seek(tp, 0)
        self._opening = asyncio.create_task(self._open_all(partitions))
        self._opening.add_done_callback(self._on_background_end)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Close the tasks of these partitions; each that has read everything again commits its decisions first."""
        if not self._has_ended:
            await self._cancel_opening()
            try:
                await self._tasks.close(revoked, commit=True)
            except ShoalError as error:
                self.fail(error)

    async def _cancel_opening(self) -> None:
        """End the opening of partitions, which are then no longer this worker's."""
        try:
            if self._opening is not None and not self._opening.done():
                self._opening.cancel()
                await asyncio.wait({self._opening})
        finally:
            self._context.metrics.opening.set(0)

    async def _open_all(self, partitions: list[TopicPartition]) -> None:
        """Open these partitions, and read each from then on; raises as `open_partitions`."""

        def on_opened(tp: TopicPartition, task: PartitionTask) -> None:
            self._consumer.seek(tp, task.position)
            self._consumer.resume(tp)

        await open_partitions(
            self._tasks,
            partitions,
            self._admin_client,
            on_opened,
            liveness=self._liveness,
            credentials=self._credentials,
            drains=self._drains,
        )


@dataclass
class Worker:
    """Turns a topic of personal records into a k-anonymous topic, and completes each input offset once."""

    policy: Policy
    settings: KafkaSection
    metrics: Metrics
    health: Health
    start: StartOptions
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _context: WorkerContext = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the metadata keys, if there are any. An invalid key raises here."""
        cipher = MetadataCipher.of(self.settings)
        self._context = WorkerContext(self.policy, self.settings, self.metrics, self.health, self.start, cipher)

    def stop(self) -> None:
        """Make `run` commit what is decided, leave the group and return, within ten seconds."""
        self._stopping.set()
        self.health.stopping = True

    async def run(self) -> None:
        """Work until stopped or, with ``start.drain``, until every record is released, suppressed or quarantined."""
        self._context.report_settings()
        liveness = BrokerLiveness(self.health, self.settings.patience_s, str(self.settings.bootstrap_servers))
        try:
            await run_with_retries(
                self.settings,
                liveness,
                self._stopping,
                lambda: ConsumerLoop(self._context, liveness, self._stopping).run(),
                drains=self.start.drain,
            )
        finally:
            self._context.counts.log_unconfirmed()
