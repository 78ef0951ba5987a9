"""Polls and drives the tasks while this worker is a group member; with ``start.drain``, reads all partitions once.

The loop polls, processes and punctuates until it is stopped, drained, or fails. An error in any task ends the whole
loop. The loop's producers are closed and its state is dropped; the next loop reads the committed state again, so there
is nothing to repair. A partition that cannot be opened yet has no state: the loop opens it again, and goes on with the
others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, ShoalError
from shoal.kafka.client import admin, consumer, stop, task_exception, to_shoal_error
from shoal.kafka.group_members import wait_until_no_members
from shoal.kafka.leader_check import LeaderCheck, ask_any_broker
from shoal.kafka.opening import open_partitions
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.poller import Poller
from shoal.kafka.preflight import preflight
from shoal.kafka.punctuator import Punctuator
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.rotation import UsedCredentials
from shoal.kafka.task_manager import TaskManager, WorkerContext
from shoal.kafka.topic_pairs import member_id, settings_by_input
from shoal.kafka.topic_watch import watch_topics

__all__ = ["ConsumerLoop"]

FINISH_S = 4.0
"""Time (s) for the last transactions of a loop that is stopped; the whole shutdown must take less than ten seconds."""
LEAVE_S = 2.0
METADATA_AGE_MS = 10_000
"""After this time a group member reads the metadata of the inputs again (ms): it assigns partitions by them."""


class ConsumerLoop:
    """Polls and drives the tasks while this worker is a group member.

    With ``start.drain`` it reads all partitions once without joining the group, which must not have members.

    Parameters
    ----------
    context : WorkerContext
        What all loops of this process share.
    liveness : BrokerLiveness
        Stores the time of the broker's last answer.
    stopping : asyncio.Event
        Set to end the loop.
    compiling : asyncio.Task, optional
        Compiles the kernels. The loop waits for it before it joins the group or takes partitions. Its error ends the
        loop at once.
    """

    def __init__(
        self,
        context: WorkerContext,
        liveness: BrokerLiveness,
        stopping: asyncio.Event,
        compiling: asyncio.Task[None] | None = None,
    ) -> None:
        self._context, self._settings, self._health = context, context.settings, context.health
        self._inputs = list(settings_by_input(context.settings))
        self._drains = context.start.drain
        self._liveness, self._stopping, self._compiling = liveness, stopping, compiling
        self._tasks = TaskManager(context)
        self._credentials = UsedCredentials(context.settings)
        self._poller = Poller(self._tasks, context.settings.commit_interval_ms / 1000)
        self._punctuator = Punctuator()
        self._opening: asyncio.Task[None] | None = None
        self._failure: ShoalError | None = None
        self._failed = asyncio.Event()
        self._may_hold_partitions = self._has_ended = False

    async def run(self) -> None:
        """Work until stopped or drained.

        Raises
        ------
        ShoalError
            The error that ended the loop.
        """
        work = asyncio.create_task(self._work())
        if self._compiling is not None:
            self._compiling.add_done_callback(self._on_background_end)
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

    # ------------------------------------------------------------------ join, work, leave

    async def _work(self) -> None:
        settings, credentials = self._settings, self._credentials
        async with admin(settings) as admin_client:
            self._tasks.layout = await preflight(
                admin_client, self._context.policy, settings, self._context.unchecked_settings
            )
            self._liveness.note_answer()
            kafka_consumer = consumer(settings) if self._drains else self._group_consumer()
            leaders = self._leader_check(admin_client, kafka_consumer)
            broker_check = asyncio.create_task(
                self._liveness.check_broker(partial(self._ask_leaders, leaders), credentials)
            )
            broker_check.add_done_callback(self._on_background_end)
            watch = asyncio.create_task(self._watch_topics(admin_client))
            watch.add_done_callback(self._on_background_end)
            has_ended_normally = False
            try:
                if self._compiling is not None:
                    await asyncio.wait({self._compiling})
                    self._compiling.result()
                if self._drains:
                    await wait_until_no_members(admin_client, settings)
                self._may_hold_partitions = True
                if self._drains:
                    await self._assign_all(admin_client, kafka_consumer)
                else:
                    kafka_consumer.subscribe(
                        self._inputs, listener=_RebalanceListener(self, admin_client, kafka_consumer)
                    )
                    await kafka_consumer.start()
                self._health.joined = True
                await self._read(kafka_consumer)
                has_ended_normally = True
            finally:
                broker_check.cancel()
                watch.cancel()
                await self._leave(kafka_consumer, commit=has_ended_normally)

    def _group_consumer(self) -> AIOKafkaConsumer:
        settings = self._settings
        return consumer(
            settings,
            group_id=settings.group,
            group_instance_id=member_id(settings),
            client_id=f"shoal-{settings.instance_id or settings.group}",
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.session_timeout_ms // 3,
            fetch_max_wait_ms=200,
            metadata_max_age_ms=METADATA_AGE_MS,
        )

    async def _assign_all(self, admin_client: AIOKafkaAdminClient, kafka_consumer: AIOKafkaConsumer) -> None:
        """Take every partition without joining the group: a drain must not wait for members that died."""
        await kafka_consumer.start()
        counts = self._tasks.layout.partitions
        partitions = [TopicPartition(topic, number) for topic in self._inputs for number in range(counts[topic])]
        kafka_consumer.assign(partitions)
        self.on_assigned(partitions, admin_client, kafka_consumer)

    async def _leave(self, kafka_consumer: AIOKafkaConsumer, *, commit: bool) -> None:
        self._has_ended = True
        self._health.joined = self._health.unassigned = self._health.leaders_away = False
        try:
            await self._cancel_opening()
            await self._tasks.close(list(self._tasks), commit=commit)
        finally:
            await stop(kafka_consumer, LEAVE_S)

    def _leader_check(self, admin_client: AIOKafkaAdminClient, kafka_consumer: AIOKafkaConsumer) -> LeaderCheck:
        return LeaderCheck(
            kafka_consumer,
            self._context.metrics.unreachable.set,
            self._credentials.renew,
            partial(ask_any_broker, admin_client, str(self._settings.group)),
            self._settings.patience_s if self._drains else math.inf,
        )

    async def _ask_leaders(self, leaders: LeaderCheck) -> None:
        """Ask the leaders of the partitions that are read; raises as `LeaderCheck.ask`."""
        await leaders.ask([tp for tp, task in self._tasks.items() if not task.is_drained])
        self._health.leaders_away = leaders.are_all_away

    async def _watch_topics(self, admin_client: AIOKafkaAdminClient) -> None:
        """Fail when a topic was deleted or an input got partitions; a drain reads the logs that it has found."""
        if not self._drains:
            await watch_topics(admin_client, self._inputs, self._tasks.layout.partitions)

    # ------------------------------------------------------------------ poll

    async def _read(self, kafka_consumer: AIOKafkaConsumer) -> None:
        try:
            await self._read_until_stopped(kafka_consumer)
            await self._punctuator.finish()
        finally:
            await self._punctuator.cancel()

    async def _read_until_stopped(self, kafka_consumer: AIOKafkaConsumer) -> None:
        while not self._stopping.is_set():
            polled = await self._poll(kafka_consumer)
            # Look the tasks up before the first await: a rebalance during an await may replace them. Messages fetched
            # before their task was open are ignored; the loop seeks to the task's position when the task is open.
            todo = [(self._tasks[tp], messages) for tp, messages in polled.items() if tp in self._tasks]
            for task, messages in todo:
                await task.process(messages)
            await self._punctuate_all(kafka_consumer)
            if self._is_drained():
                return

    async def _punctuate_all(self, kafka_consumer: AIOKafkaConsumer) -> None:
        await self._punctuator.run(
            {task: partial(self._punctuate, kafka_consumer, tp, task) for tp, task in self._tasks.items()}
        )

    async def _punctuate(self, kafka_consumer: AIOKafkaConsumer, tp: TopicPartition, task: PartitionTask) -> None:
        if not self._tasks.is_open(tp, task):
            return  # a rebalance has replaced the task
        position = await kafka_consumer.position(tp)
        log_end = kafka_consumer.last_stable_offset(tp)
        await task.punctuate(position, log_end)
        if self._drains and log_end is not None and 0 <= log_end <= task.position:
            await task.commit(flush=True)
        # Records of an open transaction, and those after it, are not read: they count as lag.
        self._tasks.update_metrics(tp, task, kafka_consumer.highwater(tp))

    def _is_drained(self) -> bool:
        is_open = self._opening is not None and self._opening.done()
        return self._drains and is_open and all(task.is_drained for _, task in self._tasks.items())

    async def _poll(self, kafka_consumer: AIOKafkaConsumer) -> dict[TopicPartition, list[Any]]:
        try:
            return await self._poller.poll(kafka_consumer, self._punctuator.flushing)
        except kafka_errors.NoOffsetForPartitionError:
            # aiokafka needed a position, and the loop seeks to the task's position only when the task is open.
            return {}
        except kafka_errors.OffsetOutOfRangeError:
            # Retention deleted messages that were not read. To continue after them would lose records unnoticed. The
            # next loop compares the committed state with the log, and refuses to start if records were lost.
            raise BrokerUnavailableError(
                "messages were deleted before they could be read; the worker now checks which were lost and tries again"
            ) from None

    # ------------------------------------------------------------------ rebalance

    def on_assigned(
        self, partitions: list[TopicPartition], admin_client: AIOKafkaAdminClient, kafka_consumer: AIOKafkaConsumer
    ) -> None:
        """Open tasks in the background.

        This method must return at once, because aiokafka sends no heartbeats meanwhile.
        """
        if self._has_ended:
            return
        self._health.unassigned = not partitions
        self._context.metrics.held_at_close = 0
        self._health.restoring = set(partitions)
        for tp in partitions:
            # Offset 0 is a placeholder: without a position aiokafka would determine one itself. Nothing is fetched
            # while paused; the loop seeks to the task's position when the task is open.
            kafka_consumer.pause(tp)
            kafka_consumer.seek(tp, 0)
        self._opening = asyncio.create_task(self._open_all(partitions, admin_client, kafka_consumer))
        self._opening.add_done_callback(self._on_background_end)

    async def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Close the tasks of these partitions.

        Each commits its decisions first. A task that has not yet read again what an earlier task had read cannot
        commit: it cancels its decisions, and the next owner takes the same ones.
        """
        if not self._has_ended:
            await self._cancel_opening()
            try:
                await self._tasks.close(partitions, commit=True)
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

    async def _open_all(
        self, partitions: list[TopicPartition], admin_client: AIOKafkaAdminClient, kafka_consumer: AIOKafkaConsumer
    ) -> None:
        """Open these partitions, and read each from then on; raises as `open_partitions`."""

        def on_opened(tp: TopicPartition, task: PartitionTask) -> None:
            kafka_consumer.seek(tp, task.position)
            kafka_consumer.resume(tp)

        await open_partitions(
            self._tasks,
            partitions,
            (admin_client, kafka_consumer),
            on_opened,
            liveness=self._liveness,
            credentials=self._credentials,
            drains=self._drains,
        )


class _RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
    """Called by aiokafka in another asyncio task, while the loop may be processing a block."""

    def __init__(self, loop: ConsumerLoop, admin_client: AIOKafkaAdminClient, kafka_consumer: AIOKafkaConsumer) -> None:
        self._loop, self._admin_client, self._kafka_consumer = loop, admin_client, kafka_consumer

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._loop.on_revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._loop.on_assigned(sorted(assigned), self._admin_client, self._kafka_consumer)
