"""The partition tasks of one consumer loop: opened concurrently, each fenced before it reads, and closed together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, InputError, ShoalError
from shoal.formats import MessageDecoder, message_format
from shoal.kafka.certificates import certificate_files, open_secret_files
from shoal.kafka.checks import TopicLayout, UncheckedSettings
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.client import to_shoal_error
from shoal.kafka.cluster_listener import ClusterListener
from shoal.kafka.not_opened import NotOpenedError, NotYetError, join_refusals, leader_answer, named_text
from shoal.kafka.progress_copy import ProgressCopy
from shoal.kafka.start import (
    PartitionContext,
    PartitionStart,
    StartOptions,
    UnconfirmedSkips,
    check_output_is_empty,
    fetch_committed,
    initialize_partition,
)
from shoal.kafka.task import PartitionTask
from shoal.kafka.topics import input_name, settings_by_input
from shoal.kafka.transactions import ProcessCounts, TransactionalProducer
from shoal.observability import Health, Metrics, logger
from shoal.policy import KafkaSection, Policy
from shoal.secret_files import OPEN_TO_OTHERS

__all__ = ["TaskManager", "WorkerContext"]

MAX_CONCURRENT_OPENS = 8

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
    unconfirmed_skips: UnconfirmedSkips = field(default_factory=UnconfirmedSkips)
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
    """The open partition tasks.

    Parameters
    ----------
    context : WorkerContext
        Of the process.
    listener : ClusterListener
        Receives the clusters, in addition to the output or in place of it.
    """

    def __init__(self, context: WorkerContext, listener: ClusterListener | None = None) -> None:
        self._context, self._listener = context, listener or ClusterListener()
        self._settings_by_input = settings_by_input(context.settings)
        self.layout = TopicLayout({})
        self._tasks: dict[TopicPartition, PartitionTask] = {}
        self._unopened: dict[TopicPartition, ShoalError | None] = {}

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
        kafka_consumer: AIOKafkaConsumer,
        on_opened: OnOpened,
    ) -> None:
        """Open a task for each partition; ``on_opened`` is called with each, and records may be processed after that.

        Raises
        ------
        NotOpenedError
            Some of them could not be opened now, and may be later: the others are open, and nothing else went wrong.
        ShoalError
            A task could not be opened, and to repeat that is not enough. An `InputError` holds the reasons of all that
            were refused.

        Notes
        -----
        The leaders of the input are asked before a partition takes its turn: those that are away must not delay the
        partitions of the others. What they answer counts for nothing: a partition is fenced before its log is read.
        """
        policy, max_bytes = self._context.policy, self._context.settings.max_record_bytes
        decoder = message_format(policy).decoder(policy, max_bytes=max_bytes)
        limit, metrics = asyncio.Semaphore(MAX_CONCURRENT_OPENS), self._context.metrics

        async def open_one(tp: TopicPartition) -> None:
            async with leader_answer(tp):
                await kafka_consumer.end_offsets([tp])
            async with limit:
                task = await self._open(tp, admin_client, kafka_consumer, decoder)
                on_opened(tp, task)
                self._tasks[tp] = task
            metrics.watch_oldest_held(tp.topic, tp.partition, lambda: task.oldest_held_s)

        opened = list(partitions)
        self._unopened = {tp: self._unopened.get(tp) for tp in opened}
        metrics.opening.set(len(opened))
        for tp in opened:
            metrics.add_counters(tp.topic, tp.partition, self._context.policy)
        results = await asyncio.gather(*(self._attempt(tp, open_one) for tp in opened), return_exceptions=True)
        _raise_any(
            {
                tp: _reason(tp, result, self._context.settings)
                for tp, result in zip(opened, results, strict=True)
                if isinstance(result, BaseException)
            }
        )

    async def _attempt(self, tp: TopicPartition, open_one: Callable[[TopicPartition], Awaitable[None]]) -> None:
        """Open a partition, and note at once whether it is open."""
        try:
            await open_one(tp)
        except (NotYetError, kafka_errors.KafkaTimeoutError) as error:
            self._unopened[tp] = reason = _not_yet(tp, to_shoal_error(error, self._context.settings))
            raise reason from None
        del self._unopened[tp]
        self._context.metrics.opening.dec()

    async def _open(
        self,
        tp: TopicPartition,
        admin_client: AIOKafkaAdminClient,
        kafka_consumer: AIOKafkaConsumer,
        decoder: MessageDecoder,
    ) -> PartitionTask:
        """Fence the partition, read its committed state, and make a task of it."""
        context, listener, partition = self._context, self._listener, tp.partition
        settings, policy = self._settings_by_input[tp.topic], context.policy
        partition_count = self.layout.partitions[tp.topic]
        if partition >= partition_count:
            name = input_name(tp.topic, self._settings_by_input)
            raise BrokerUnavailableError(f"{name} has more partitions than at the start: checking all topics again")
        async with contextlib.AsyncExitStack() as on_failure:
            producer = await self._producer(admin_client, settings, partition)
            on_failure.push_async_callback(producer.close)
            await self._fence(tp, producer, admin_client, settings)
            partition_start = await initialize_partition(
                PartitionContext(
                    admin_client,
                    kafka_consumer,
                    producer,
                    settings,
                    partition,
                    partition_count,
                    policy.fingerprint,
                    context.start,
                    context.cipher,
                    context.unconfirmed_skips,
                )
            )
            self._report(tp, partition_start)
            counts = context.counts.of(tp)
            counts.open(partition_start.commit, partition_start.log_end, context.metrics)
            if partition_start.is_first:
                # Another group may begin to publish before this one sends its first clusters: check again then.
                producer.check_before_first(partial(check_output_is_empty, producer, settings, partition))
            task = PartitionTask(
                tp.topic,
                partition,
                policy,
                decoder,
                producer,
                partition_start.commit,
                context.metrics,
                settings.commit_interval_ms / 1000,
                cipher=context.cipher,
                log_end=partition_start.log_end,
                listener=listener,
                output_rows_of=producer.output_rows_of,
                counts=counts,
            )
            on_failure.pop_all()
        if not task.restore(partition_start.log_start):
            log.warning(
                "the log no longer holds the start of the quota window: its records are suppressed",
                topic=tp.topic,
                partition=partition,
            )
        return task

    async def _fence(
        self,
        tp: TopicPartition,
        producer: TransactionalProducer,
        admin_client: AIOKafkaAdminClient,
        settings: KafkaSection,
    ) -> None:
        if self._unopened.get(tp) is not None:
            # A worker that no longer reaches its group does not hear that the partition is another worker's.
            await fetch_committed(admin_client, settings, tp.partition)
        await producer.open()

    async def _producer(
        self, admin_client: AIOKafkaAdminClient, settings: KafkaSection, partition: int
    ) -> TransactionalProducer:
        """Build the producer of a partition; it is not open yet."""
        context = self._context
        return TransactionalProducer(
            context.policy,
            settings,
            partition,
            self.layout,
            publishes=self._listener.publishes,
            output_ends=context.output_ends,
            copy=await ProgressCopy.of(admin_client, settings, partition, context.cipher),
            metrics=context.metrics,
        )

    def _report(self, tp: TopicPartition, partition_start: PartitionStart) -> None:
        metrics, state = self._context.metrics, partition_start.commit.state
        fields = {"topic": tp.topic, "partition": tp.partition, "watermark": state.committed_offset}
        if partition_start.has_new_policy:
            metrics.policy_changes.labels(tp.topic, tp.partition).inc()
            log.warning("policy changed; continuing from the committed offset", **fields)
        if partition_start.skipped_count is not None:
            metrics.skipped.labels(tp.topic, tp.partition).inc(partition_start.skipped_count)
            log.warning("skipped to the end", skipped=partition_start.skipped_count, **fields)
        log.info("partition opened", held=state.waiting_count, **fields)

    def update_metrics(self, tp: TopicPartition, task: PartitionTask, log_end: int | None) -> None:
        """Update metrics and health of a partition.

        ``log_end`` is the end of its log, open transactions included; None if it is not known.
        """
        if self.is_open(tp, task):
            self._context.metrics.held.labels(tp.topic, tp.partition).set(task.waiting_count)
            if log_end is not None and log_end >= 0:
                self._context.metrics.lag.labels(tp.topic, tp.partition).set(max(0, log_end - task.position))
            if not task.is_restoring:
                self._context.health.restoring.discard(tp)

    async def close(self, partitions: Iterable[TopicPartition], *, commit: bool) -> None:
        """Close the tasks of these partitions; with ``commit``, commit what they have decided first.

        Their metrics are removed also if this is cancelled.

        Raises
        ------
        ShoalError
            With ``commit``: a commit failed. All tasks are closed.
        """
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


def _reason(tp: TopicPartition, error: BaseException, settings: KafkaSection) -> ShoalError:
    """Return why a partition could not be opened. The errors of the client do not name it."""
    reason = to_shoal_error(error, settings)
    return BrokerUnavailableError(named_text(tp, reason)) if type(reason) is BrokerUnavailableError else reason


def _not_yet(tp: TopicPartition, reason: ShoalError) -> NotYetError:
    """Return this error, or that of a client that has lost a leader while the partition was opened."""
    return reason if isinstance(reason, NotYetError) else NotYetError(named_text(tp, reason))


def _raise_any(errors: Mapping[TopicPartition, ShoalError]) -> None:
    """Raise the error that decides what becomes of the loop, if there is one: a final one before others.

    An error that is not a `NotYetError` ends the loop, also if it is retriable. Then it is not certain that to open the
    partition again is enough: another worker may own it, topics may have changed, or connections may be refused.
    """
    refusals = [(tp, str(error)) for tp, error in errors.items() if isinstance(error, InputError)]
    if refusals:
        # All of them, so that the operator can correct them together.
        raise InputError(join_refusals(refusals))
    others = [error for error in errors.values() if not isinstance(error, NotYetError)]
    if others:
        raise min(others, key=lambda error: error.retriable)
    not_yet = {tp: error for tp, error in errors.items() if isinstance(error, NotYetError)}
    if not_yet:
        raise NotOpenedError(not_yet)
