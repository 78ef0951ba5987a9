"""The partition tasks of one consumer loop: opened concurrently, each fenced before it reads, and closed together."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, InputError, ShoalError, TopicsChangedError
from shoal.formats import message_format
from shoal.kafka.checks import TopicLayout, UncheckedSettings
from shoal.kafka.client import (
    TELL_EVERY_S,
    NotYetError,
    SharedReaders,
    asking,
    join_reasons,
    join_refusals,
    log_end,
    meanwhile,
    named,
    named_text,
    shared_readers,
    to_shoal_error,
)
from shoal.kafka.credentials import UsedCredentials, certificate_files, open_secret_files
from shoal.kafka.logs import LeaderCheck, ask_any_broker
from shoal.kafka.metadata import MetadataCipher
from shoal.kafka.progress_copy import ProgressCopy
from shoal.kafka.retries import BrokerLiveness, backoff_s, until_first
from shoal.kafka.start import (
    PartitionContext,
    PartitionStart,
    StartOptions,
    check_output_is_empty,
    fetch_committed,
    initialize_partition,
)
from shoal.kafka.task import PartitionTask
from shoal.kafka.topics import input_name, settings_by_input, watch_topics
from shoal.kafka.transactions import (
    NO_LISTENER,
    ClusterListener,
    ProcessCounts,
    TaskContext,
    TransactionalProducer,
)
from shoal.kafka.waits import WaitReport
from shoal.observability import Health, Metrics, logger
from shoal.policy import KafkaSection, Policy
from shoal.secret_files import OPEN_TO_OTHERS

MAX_CONCURRENT_OPENS = 8
WAITS_S = 1.0  # time between two looks why records wait (s)

log = logger("kafka")

OnOpened = Callable[[TopicPartition, PartitionTask], None]


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What all consumer loops of a process share."""

    policy: Policy
    settings: KafkaSection
    metrics: Metrics
    health: Health
    start: StartOptions
    cipher: MetadataCipher
    output_ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Ends of output partitions that brokers have acknowledged to this process."""
    counts: ProcessCounts = field(default_factory=ProcessCounts)
    unchecked_settings: UncheckedSettings = field(default_factory=UncheckedSettings)

    def report_settings(self) -> None:
        """Report the policy in force and the certificates in the metrics, and what is wrong with files in the log."""
        self.metrics.set_policy(self.policy)
        for certificate, path in certificate_files(self.settings).items():
            self.metrics.certificates.watch(certificate, path)
        for secret in open_secret_files(self.settings):
            log.warning(OPEN_TO_OTHERS, setting=f"kafka.{secret}")


class TaskManager:
    """The open partition tasks; ``listener`` receives the clusters, in addition to the output or in place of it."""

    def __init__(self, context: WorkerContext, listener: ClusterListener = NO_LISTENER) -> None:
        self._context, self._listener = context, listener
        self._settings_by_input = settings_by_input(context.settings)
        self.layout = TopicLayout({})
        self._tasks: dict[TopicPartition, PartitionTask] = {}
        self._unopened: dict[TopicPartition, ShoalError | None] = {}
        self._first_partition_counts: dict[str, int] = {}
        # Not those that open partitions: the first check of one that is open must not wait for brokers that are away.
        self._first_check_readers = SharedReaders()

    @cached_property
    def _of_tasks(self) -> TaskContext:
        context, settings = self._context, self._context.settings
        decoder = message_format(context.policy).decoder(context.policy, max_bytes=settings.max_record_bytes)
        interval_s = settings.commit_interval_ms / 1000
        return TaskContext(context.policy, decoder, context.metrics, interval_s, context.cipher, self._listener)

    def __contains__(self, tp: object) -> bool:
        return tp in self._tasks

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._tasks))

    def __getitem__(self, tp: TopicPartition) -> PartitionTask:
        return self._tasks[tp]

    def items(self) -> ItemsView[TopicPartition, PartitionTask]:
        """Return the partitions and their tasks as they are now."""
        return dict(self._tasks).items()

    def is_open(self, tp: TopicPartition, task: PartitionTask) -> bool:
        """Return whether this task is still the one of its partition: a rebalance may have replaced it."""
        return self._tasks.get(tp) is task

    @property
    def unopened(self) -> Mapping[TopicPartition, ShoalError | None]:
        """The partitions of the last `open` that are not open, and why; None before an attempt has failed."""
        return dict(self._unopened)

    async def open(
        self,
        partitions: Iterable[TopicPartition],
        admin_client: AIOKafkaAdminClient,
        on_opened: OnOpened,
    ) -> dict[TopicPartition, NotYetError]:
        """Open a task for each partition; ``on_opened`` is called with each, and records may be processed after that.

        Return those that may be opened later, and why. Raises a `ShoalError` if to repeat that is not enough.
        """
        limit, metrics = asyncio.Semaphore(MAX_CONCURRENT_OPENS), self._context.metrics

        async def open_one(tp: TopicPartition) -> None:
            try:
                # Before it takes its turn: leaders that are away must not delay the partitions of the others.
                async with asking(self._settings_by_input[tp.topic]) as reader:
                    await log_end(reader, tp)
                async with limit:
                    task = await self._open(tp, admin_client)
                    on_opened(tp, task)
                    self._tasks[tp] = task
            except (NotYetError, kafka_errors.KafkaTimeoutError) as error:
                # A client that has lost a leader meanwhile does not name the partition.
                reason = to_shoal_error(error, self._context.settings)
                not_yet = reason if isinstance(reason, NotYetError) else NotYetError(named_text(tp, reason))
                self._unopened[tp] = not_yet
                raise not_yet from None
            metrics.watch_oldest_held(tp.topic, tp.partition, lambda: task.oldest_held_s)
            del self._unopened[tp]
            metrics.opening.dec()

        opened = list(partitions)
        self._unopened = {tp: self._unopened.get(tp) for tp in opened}
        metrics.opening.set(len(opened))
        for tp in opened:
            metrics.add_counters(tp.topic, tp.partition, self._context.policy)
        async with shared_readers():
            results = await asyncio.gather(*map(open_one, opened), return_exceptions=True)
        return _not_yet(
            {
                tp: to_shoal_error(result, self._context.settings)
                for tp, result in zip(opened, results, strict=True)
                if isinstance(result, BaseException)
            }
        )

    async def _open(self, tp: TopicPartition, admin_client: AIOKafkaAdminClient) -> PartitionTask:
        """Fence the partition, read its committed state, and make a task of it."""
        context, partition, settings = self._context, tp.partition, self._settings_by_input[tp.topic]
        counts, partition_count = context.counts.of(tp), self.layout.partitions[tp.topic]
        if partition >= partition_count:
            name = input_name(tp.topic, self._settings_by_input)
            raise TopicsChangedError(f"{name} has more partitions than at the start: checking all topics again")
        async with contextlib.AsyncExitStack() as on_failure:
            producer = TransactionalProducer(
                context.policy,
                settings,
                partition,
                self.layout,
                publishes=self._listener.publishes,
                output_ends=context.output_ends,
                copy=await ProgressCopy.of(admin_client, settings, partition, context.cipher),
                metrics=context.metrics,
                readers=self._first_check_readers,
            )
            on_failure.push_async_callback(producer.close)
            if self._unopened.get(tp) is not None:
                # A worker that no longer reaches its group does not hear that the partition is another worker's.
                await fetch_committed(admin_client, settings, partition)
            await producer.open()
            start = await initialize_partition(
                PartitionContext(
                    admin_client,
                    producer,
                    settings,
                    partition,
                    partition_count,
                    context.policy.fingerprint,
                    context.start,
                    context.cipher,
                    counts,
                    self._first_partition_counts,
                )
            )
            self._report(tp, start)
            counts.open(start.commit, start.log_end, context.metrics)
            if start.is_first:
                # Another group may begin to publish before this one sends its first clusters: check again then.
                producer.check_before_first(partial(check_output_is_empty, producer, settings, partition))
            task = PartitionTask(tp, self._of_tasks, producer, start.commit, log_end=start.log_end, counts=counts)
            on_failure.pop_all()
        if not task.restore(start.log_start):
            log.warning(
                "the log no longer holds the start of the quota window: its records are suppressed",
                topic=tp.topic,
                partition=partition,
            )
        return task

    def _report(self, tp: TopicPartition, partition_start: PartitionStart) -> None:
        metrics, state = self._context.metrics, partition_start.commit.state
        fields = {"topic": tp.topic, "partition": tp.partition, "watermark": state.committed_offset}
        if partition_start.has_new_policy:
            metrics.policy_changes.labels(tp.topic, tp.partition).inc()
            log.warning("policy changed; continuing from the committed offset", **fields)
        if partition_start.skipped_count is not None:
            metrics.skipped.labels(tp.topic, tp.partition).inc(partition_start.skipped_count)
            log.warning("skipped offsets", skipped=partition_start.skipped_count, **fields)
        log.info("partition opened", held=state.waiting_count, **fields)

    async def ask_leaders(self, leaders: LeaderCheck) -> None:
        """Ask the leaders of the partitions that are read; raises as `LeaderCheck.ask`."""
        await leaders.ask([tp for tp, task in self._tasks.items() if not task.is_drained])
        self._context.health.leaders_away = leaders.are_all_away

    async def watch_brokers(
        self,
        admin_client: AIOKafkaAdminClient,
        kafka_consumer: AIOKafkaConsumer,
        liveness: BrokerLiveness,
        credentials: UsedCredentials,
    ) -> None:
        """Ask the leaders and watch the topics, until a broker is away for too long or a topic changes."""
        context, settings = self._context, self._context.settings
        leaders = LeaderCheck(
            kafka_consumer,
            context.metrics.unreachable.set,
            credentials.renew,
            partial(ask_any_broker, admin_client, str(settings.group)),
            settings.patience_s if context.start.drain else math.inf,
        )
        works = [liveness.check_broker(partial(self.ask_leaders, leaders), credentials), self._tell_waits()]
        if not context.start.drain:
            works.append(watch_topics(admin_client, list(self._settings_by_input), self.layout.partitions))
        await until_first(*works)

    async def _tell_waits(self) -> None:
        """Tell at intervals why records wait, and why records are refused."""
        report = WaitReport(self._context.metrics, self._context.health)
        try:
            while True:
                behind_s = max((task.clock_behind_s for _, task in self.items()), default=0)
                reasons = {tp: reason for tp, task in self.items() if (reason := task.wait_reason) is not None}
                report.update(reasons, behind_s)
                self._context.metrics.tell_refusals(log, time.monotonic())
                await asyncio.sleep(WAITS_S)
        finally:
            report.end()

    def update_metrics(self, tp: TopicPartition, task: PartitionTask, log_end: int | None) -> None:
        """Update metrics and health of a partition; ``log_end`` is None if it is not known."""
        if self.is_open(tp, task):
            self._context.metrics.held.labels(tp.topic, tp.partition).set(task.waiting_count)
            if log_end is not None and log_end >= 0:
                self._context.metrics.lag.labels(tp.topic, tp.partition).set(max(0, log_end - task.position))
            if not task.is_restoring:
                self._context.health.restoring.discard(tp)

    async def close(self, partitions: Iterable[TopicPartition], *, commit: bool) -> None:
        """Close the tasks of these partitions; with ``commit``, commit what they have decided first."""
        tasks = [(tp, self._tasks.pop(tp)) for tp in partitions if tp in self._tasks]
        if not tasks:
            return
        try:
            results = await asyncio.gather(*(task.close(commit=commit) for _, task in tasks), return_exceptions=True)
        finally:
            # Not before: a block that is being processed still sets metrics of its partition.
            self._forget(tasks)
        for result in results:
            if isinstance(result, BaseException) and commit:
                raise to_shoal_error(result, self._context.settings) from None

    def _forget(self, closed: Iterable[tuple[TopicPartition, PartitionTask]]) -> None:
        """Remove closed tasks from metrics and health."""
        held_count = 0
        for tp, task in closed:
            held_count += task.waiting_count
            self._context.metrics.remove_partition(tp.topic, tp.partition)
            self._context.health.restoring.discard(tp)
            log.info("partition closed", topic=tp.topic, partition=tp.partition, watermark=task.committed_offset)
        self._context.metrics.held_at_close = held_count


def _not_yet(errors: Mapping[TopicPartition, ShoalError]) -> dict[TopicPartition, NotYetError]:
    """Return the errors after which another attempt may succeed; raise one that ends the loop: a final one first."""
    refusals = [(tp, str(error)) for tp, error in errors.items() if isinstance(error, InputError)]
    if refusals:
        # All of them, so that the operator can correct them together.
        raise InputError(join_refusals(refusals))
    not_yet = {tp: error for tp, error in errors.items() if isinstance(error, NotYetError)}
    others = [(tp, error) for tp, error in errors.items() if tp not in not_yet]
    if others:
        tp, first = min(others, key=lambda other: other[1].retriable)
        # The errors of the client do not name the partition.
        raise named(tp, first) if type(first) is BrokerUnavailableError else first
    return not_yet


async def open_partitions(
    tasks: TaskManager,
    partitions: Iterable[TopicPartition],
    admin_client: AIOKafkaAdminClient,
    on_opened: Callable[[TopicPartition, PartitionTask], None],
    *,
    liveness: BrokerLiveness,
    credentials: UsedCredentials,
    drains: bool = False,
    on_failed: Callable[[], None] = lambda: None,
) -> None:
    """Open all of these partitions; return when each of them is open, or raise an error that ends the loop."""
    left, failures = list(partitions), 0
    async with meanwhile(tell_unopened(lambda: tasks.unopened)):
        while left:
            reasons = await tasks.open(left, admin_client, on_opened)
            # In another order: the client connects to one broker at a time, and the first one may swallow packets.
            left = random.sample(list(reasons), len(reasons))
            if reasons:
                on_failed()
                liveness.note_not_opened(reasons, drains=drains)
                credentials.renew()
                await asyncio.sleep(backoff_s(failures))
                failures += 1
    liveness.note_opened()


OPENING_CHECK_S = 0.5


async def tell_unopened(unopened: Callable[[], Mapping[TopicPartition, ShoalError | None]]) -> None:
    """Log which partitions are not open: after the first failure, and at intervals."""
    began_s = told_s = time.monotonic()
    has_failed = False
    while True:
        await asyncio.sleep(OPENING_CHECK_S)
        now_s, left = time.monotonic(), unopened()
        failed = {tp: error for tp, error in left.items() if error is not None}
        if left and (now_s >= told_s + TELL_EVERY_S or (failed and not has_failed)):
            fields = {"count": len(left), "since_s": round(now_s - began_s, 3)}
            if failed:
                log.warning("partitions not opened; the others go on", **fields, reason=join_reasons(failed))
            else:
                log.info("partitions are being opened", **fields)
            told_s, has_failed = now_s, has_failed or bool(failed)
