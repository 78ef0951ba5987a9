"""Keeps one stage going: joins what the app tells with sessions that are fed from its stream."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
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
from shoal.observability import logger, serve
from shoal.pipeline import BLOCK_RECORDS, precompile
from shoal.stage.faust_adapter import FaustAdapter
from shoal.stage.handoff_queue import HandoffQueue
from shoal.stage.message_buffer import MessageBuffer

__all__ = ["StageSupervisor"]

FINISH_S = 3.0
"""What a customer may take for the cluster in his hands when partitions go away or the app ends."""
CUT_S = 2.5
"""What the rest may take after that."""
SETTLE_S = 5.0
"""How long the app waits for lanes before its consumer goes on; what it brings too early is asked for again."""
LEFT_S = 10.0
"""How long nobody need ask for clusters: Faust starts an agent again that has failed."""

log = logger("stage")


class StageSupervisor:
    """One stage, from the first cluster that is asked for to the end of the app.

    Parameters
    ----------
    plan : Plan
        What is to be done.
    host : Host
        The app.
    http : str or None
        Where metrics and probes are served.
    publishes : bool
        Whether clusters go to the output. If not, they count as released when the next one is asked for.
    """

    def __init__(self, plan: WorkerContext, host: FaustAdapter, http: str | None, *, publishes: bool) -> None:
        self.desk = HandoffQueue()
        self._plan, self._host, self._http = plan, host, http
        self._inflow = MessageBuffer(host.rewind)
        self._handing, self._most = (
            ClusterListener(on_committed=self.desk.show, is_full=self.desk.is_full),
            BLOCK_RECORDS,
        )
        if not publishes:
            # Small slices: what is decided on one of them is repeated together after a crash. (One that lets go of
            # all that is held decides on more: what leaves by its limit of time was decided together.)
            self._handing, self._most = ClusterListener(publishes=False, on_decided=self.desk.hand), plan.policy.k
        self._contact = BrokerLiveness(plan.health, plan.settings.patience_s)
        self._stopping, self._assigned = asyncio.Event(), asyncio.Event()
        self._is_started = False
        self._partitions: set[int] = set()
        self._opened = asyncio.Event()
        self.left = asyncio.Event()
        """Set when nobody can ask for clusters any more."""
        self._is_of_app = False
        """Whether the brokers of the policy were seen to be the app's."""
        self._is_doubtful = False
        """Whether the app's consumer fetched records that are not committed before it was told not to."""
        self._hosted: ExternalLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------ beginning and end

    async def start(self) -> None:
        """Begin with what is assigned now, and follow the app from here on."""
        self._tasks = [asyncio.create_task(self._guarded(work)) for work in (self._keep(), self._watch())]
        self._host.listen(self._take, self._give_back, self._settle, self._end)
        try:
            self._is_doubtful = await self._host.read_committed()
        except ShoalError as error:
            self._fail(error)
            return
        # Not before: what was fetched until now is judged by the one who knows that it may be anything.
        self._is_started = True
        if now := self._host.assignment():
            await self._accept(now)
        self._tasks.append(asyncio.create_task(self._guarded(self._bring())))

    async def stop(self, *, show: bool = True) -> None:
        """Commit what is decided, ``show`` what is published, and let go of everything, within ten seconds."""
        begun = time.monotonic()
        self._host.listen_no_more()
        self._stopping.set()
        self._plan.health.stopping = True
        await self._leave()
        self._assigned.set()
        if show:
            await self.desk.until_empty(max(0.0, begun + FINISH_S - time.monotonic()))
        self.desk.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CUT_S)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Let an error reach whoever waits for clusters, and end the worker: nothing may go on without the stage."""
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
        final = to_shoal_error(error)
        # Before anybody hears of it: an agent that is started again must not begin anew.
        ending = self._host.crash(final)
        self.desk.close(final)
        self._stopping.set()
        self._tasks.append(asyncio.create_task(ending))

    # ------------------------------------------------------------------ what the app tells

    async def _take(self, partitions: set[int]) -> None:
        if self._is_started:
            await self._accept(partitions)

    async def _accept(self, partitions: set[int]) -> None:
        # The host need not have said that the last assignment is over.
        await self._leave()
        try:
            self._host.check_acks()
            self._is_doubtful |= await self._host.read_committed()
        except ShoalError as error:
            self._fail(error)
            return
        self._partitions = partitions
        self._inflow.expect(partitions)
        self.desk.reopen()
        if partitions:
            self._plan.health.restoring = set(partitions)
            self._opened.clear()
            self._assigned.set()
        else:
            # A member without work is ready for it.
            self._plan.health.joined = True

    async def _give_back(self, _: set[int]) -> None:
        await self._leave()

    async def _settle(self, _: set[int]) -> None:
        if self._partitions:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._opened.wait(), SETTLE_S)

    async def _end(self, _: set[int]) -> None:
        await self.stop()

    async def _leave(self) -> None:
        """Close the lanes of the present assignment; a customer who takes too long gets his cluster once more."""
        self._partitions = set()
        self._inflow.expect(())
        self._assigned.clear()
        hosted = self._hosted
        if hosted is None:
            return
        if not await hosted.end(FINISH_S):
            self.desk.withdraw()
            if not await hosted.end(CUT_S):
                log.warning("lanes were cut off: what they had decided is decided again")
                hosted.cancel()

    # ------------------------------------------------------------------ work

    async def _watch(self) -> None:
        """End the worker when nobody will ask any more: it would go on, hold its partitions, and bring nothing."""
        await self.left.wait()
        if self._stopping.is_set():
            return
        log.warning("nobody asks for clusters", ends_in_s=LEFT_S)
        await asyncio.sleep(LEFT_S)
        if not self._stopping.is_set():
            raise ConfigError(
                f"anonymize: topic {self._host.topic}: its agent has left the loop over its clusters, or has ended: "
                "let it ask until there are none"
            )

    async def _check_brokers(self) -> None:
        """See that records come from the cluster where progress and output are."""
        theirs, policys = await self._host.cluster(), await broker_cluster_id(self._plan.settings)
        if theirs is None or theirs != policys:
            raise ConfigError(
                "kafka.bootstrap_servers: not the cluster of the app (its id is another, or unknown): leave them out "
                "of policy and environment, or name the app's"
            )
        self._is_of_app = True

    async def _bring(self) -> None:
        put = self._inflow.put
        async for partition, message in self._host.messages():
            await put(partition, message)
        # Its stream has ended, which only an app does that ends.
        self.left.set()

    async def _keep(self) -> None:
        plan = self._plan
        plan.metrics.policy.labels(plan.policy.fingerprint).set(1)
        async with contextlib.AsyncExitStack() as around:
            port = None
            if self._http is not None:
                served = serve(self._http, plan.metrics, plan.health, plan.metrics.totals)
                port = await around.enter_async_context(served)
            settings, fingerprint = plan.settings, plan.policy.fingerprint
            log.info("started", http_port=port, policy=fingerprint[:16], group=settings.group, topic=settings.input)
            await _beside(lambda: precompile(plan.policy))
            await run_with_retries(plan, self._contact, self._stopping, self._serve)
            log.info("stopped", **plan.metrics.totals())

    async def _serve(self) -> None:
        """Serve one assignment after the other."""
        while not self._stopping.is_set():
            await self._assigned.wait()
            if self._stopping.is_set():
                return
            chosen = sorted(self._partitions)
            if not self._is_of_app:
                await self._check_brokers()
                continue
            if not chosen:
                continue  # taken away before the work has begun
            hosted = ExternalLoop(
                self._plan,
                self._contact,
                self._inflow,
                chosen,
                self._handing,
                self._most,
                may_contain_uncommitted=self._is_doubtful,
                opened=self._opened,
            )
            self._hosted = hosted
            try:
                await hosted.run()
            finally:
                self._hosted = None


async def _beside(work: Callable[[], None]) -> None:
    """Work in a thread: the app goes on while kernels compile. A daemon, so that the end does not wait for that."""
    done = Future[None]()
    done.set_running_or_notify_cancel()  # who stops waiting does not stop it

    def run() -> None:
        try:
            work()
        except BaseException as raised:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(to_shoal_error(raised))
        else:
            done.set_result(None)

    threading.Thread(target=run, name="warm-up", daemon=True).start()
    await asyncio.wrap_future(done)
