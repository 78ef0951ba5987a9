"""Starts, supervises and stops one stage: it runs a consumer loop for each assignment that the app gets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from shoal.errors import ConfigError, ShoalError
from shoal.kafka import (
    BrokerLiveness,
    ClusterListener,
    ExternalLoop,
    WorkerContext,
    broker_cluster_id,
    run_with_retries,
    to_shoal_error,
)
from shoal.observability import KernelCompiler, log_totals, logger
from shoal.observability.http import serve
from shoal.stage.faust_adapter import FaustAdapter, MessageBuffer
from shoal.stage.handoff_queue import HandoffQueue
from shoal.streams import BLOCK_RECORDS

FINISH_S = 3.0  # how long the app may work on its present cluster after partitions are revoked or the app stops (s)
CANCEL_S = 2.5  # how long the rest of the work may take after that (s)
OPEN_TIMEOUT_S = 5.0
"""How long Faust waits for the partition tasks before it resumes its consumer (s). Records that it delivers before the
tasks are open are requested again."""
ABANDONED_S = 10.0
"""How long no task may ask for clusters before the app is stopped (s): Faust restarts an agent that failed."""

log = logger("stage")


class StageSupervisor:
    """One stage, from the first request for a cluster to the end of the app; ``http`` is for metrics and probes."""

    def __init__(self, context: WorkerContext, adapter: FaustAdapter, http: str | None, *, publishes: bool) -> None:
        self.queue = HandoffQueue()
        self._context, self._adapter, self._http = context, adapter, http
        self._buffer = MessageBuffer(adapter.rewind)
        if publishes:
            self._listener = ClusterListener(on_committed=self.queue.put_committed, is_full=self.queue.is_full)
            self._slice_records = BLOCK_RECORDS
        else:
            # After a crash, all clusters that were decided on one slice are repeated. A small slice keeps them few;
            # clusters that max_delay_s releases together are repeated together in any case.
            self._listener = ClusterListener(publishes=False, on_decided=self.queue.hand_over)
            self._slice_records = context.policy.k
        settings = context.settings
        self._liveness = BrokerLiveness(context.health, settings.patience_s, str(settings.bootstrap_servers))
        self._stopping, self._assigned = asyncio.Event(), asyncio.Event()
        self._is_started = False
        self._partitions: set[int] = set()
        self._opened = asyncio.Event()
        self.abandoned = asyncio.Event()  # set when no task can ask for clusters any more
        self._is_same_cluster = False  # whether the brokers of the policy were found to be those of the app
        self._may_contain_uncommitted = False
        """Whether the app's consumer fetched records before it was set to read committed records only."""
        self._loop: ExternalLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start with the present assignment, and follow the app's assignments from now on."""
        self._tasks = [
            asyncio.create_task(self._supervise(work)) for work in (self._run(), self._stop_app_when_abandoned())
        ]
        self._adapter.connect_signals(
            self._on_assigned, lambda _: self._end_assignment(), self._on_rebalance_complete, lambda _: self.stop()
        )
        try:
            self._may_contain_uncommitted = await self._adapter.set_read_committed()
        except ShoalError as error:
            self._fail(error)
            return
        # No assignment is accepted before: it is not known before whether fetched records may be uncommitted.
        self._is_started = True
        if assigned := self._adapter.assignment():
            await self._begin_assignment(assigned)
        self._tasks.append(asyncio.create_task(self._supervise(self._fill_buffer())))

    async def stop(self, *, drain: bool = True) -> None:
        """Commit what is decided and end all work, within ten seconds.

        With ``drain``, wait until the app has taken the clusters that are already committed.
        """
        began_s = time.monotonic()
        self._adapter.disconnect_signals()
        self._stopping.set()
        self._context.health.stopping = True
        await self._end_assignment()
        self._assigned.set()
        if drain:
            await self.queue.wait_until_empty(max(0.0, began_s + FINISH_S - time.monotonic()))
        self.queue.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_S)

    async def _supervise(self, work: Coroutine[Any, Any, None]) -> None:
        """Run one of the stage's tasks; an error in it ends the iteration and stops the app."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            await asyncio.wait({task})
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        final = to_shoal_error(error, self._context.settings)
        # Before the agent sees the error: if Faust restarts the agent, no new stage may start.
        stopping = self._adapter.stop_app(final)
        self.queue.close(final)
        self._stopping.set()
        self._tasks.append(asyncio.create_task(stopping))

    async def _on_assigned(self, partitions: set[int]) -> None:
        if self._is_started:
            await self._begin_assignment(partitions)

    async def _on_rebalance_complete(self, _: set[int]) -> None:
        if self._partitions:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._opened.wait(), OPEN_TIMEOUT_S)

    async def _begin_assignment(self, partitions: set[int]) -> None:
        # Faust need not have revoked the last assignment.
        await self._end_assignment()
        try:
            self._adapter.check_acks()
            self._may_contain_uncommitted |= await self._adapter.set_read_committed()
        except ShoalError as error:
            self._fail(error)
            return
        self._partitions = partitions
        self._context.health.unassigned = not partitions
        self._buffer.assign(partitions)
        self.queue.resume()
        self._context.health.restoring = {(self._adapter.topic, number) for number in partitions}
        if partitions:
            self._opened.clear()
            self._assigned.set()
        else:
            # A group member without partitions is ready.
            self._context.health.joined = True

    async def _end_assignment(self) -> None:
        """Close the partition tasks. If the app takes too long for its present cluster, it gets the cluster again."""
        self._partitions = set()
        self._buffer.assign(())
        self._assigned.clear()
        loop = self._loop
        if loop is None:
            return
        if not await loop.end(FINISH_S):
            log.warning("the app did not finish its clusters in time: they may be handed over again", waited_s=FINISH_S)
            self.queue.cancel_handover()
            if not await loop.end(CANCEL_S):
                log.warning("partition tasks cancelled: their uncommitted clusters will be decided again")
                loop.cancel()

    async def _stop_app_when_abandoned(self) -> None:
        """Stop the app when no task asks for clusters: it would keep its partitions and process no record."""
        await self.abandoned.wait()
        if self._stopping.is_set():
            return
        log.warning("no task asks for clusters", stops_in_s=ABANDONED_S)
        await asyncio.sleep(ABANDONED_S)
        if not self._stopping.is_set():
            raise ConfigError(
                f"anonymize: topic {self._adapter.topic}: its agent has left the loop over its clusters, or has ended; "
                "iterate until there are no more clusters"
            )

    async def _check_same_cluster(self) -> None:
        """Check that the app reads from the Kafka cluster that holds progress and output."""
        of_app, of_policy = await self._adapter.cluster_id(), await broker_cluster_id(self._context.settings)
        if of_app is None or of_app != of_policy:
            raise ConfigError(
                "kafka.bootstrap_servers: not the Kafka cluster of the app (another cluster id, or none); remove them "
                "from policy and environment, or set them to the app's"
            )
        self._is_same_cluster = True

    async def _fill_buffer(self) -> None:
        put = self._buffer.put
        async for partition, message in self._adapter.messages():
            await put(partition, message)
        # The stream ends only when the app stops.
        self.abandoned.set()

    async def _run(self) -> None:
        context = self._context
        context.report_settings()
        async with contextlib.AsyncExitStack() as stack:
            port = None
            if self._http is not None:
                served = serve(self._http, context.metrics, context.health)
                port = await stack.enter_async_context(served)
            settings, fingerprint = context.settings, context.policy.fingerprint
            log.info("started", http_port=port, policy=fingerprint[:16], group=settings.group, topic=settings.input)
            compiler = KernelCompiler(context.policy, log, 0.0, lambda: self._adapter.has_crashed)
            compiling = asyncio.create_task(self._compile(stack.enter_context(compiler)))
            stack.callback(compiling.cancel)
            try:
                await run_with_retries(settings, self._liveness, self._stopping, self._run_assignments)
            finally:
                context.counts.log_unconfirmed()
            log_totals(log, context.metrics, context.policy.value_limits)

    async def _compile(self, compiler: KernelCompiler) -> None:
        """Change to compiled kernels once brokers and progress have let the stage begin."""
        await self._context.health.accepted()
        await compiler.finish()

    async def _run_assignments(self) -> None:
        """Run a consumer loop for one assignment after the other."""
        while not self._stopping.is_set():
            await self._assigned.wait()
            if self._stopping.is_set():
                return
            partitions = sorted(self._partitions)
            if not self._is_same_cluster:
                await self._check_same_cluster()
                continue
            if not partitions:
                continue  # revoked before the loop was created
            loop = ExternalLoop(
                self._context,
                self._liveness,
                self._buffer,
                partitions,
                self._listener,
                self._slice_records,
                may_contain_uncommitted=self._may_contain_uncommitted,
                opened=self._opened,
            )
            self._loop = loop
            try:
                await loop.run()
            finally:
                self._loop = None
