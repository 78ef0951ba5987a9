"""Consumer loops one after the other: a loop that failed is started again unless its error is final.

Log lines while partitions are opened: which are not open yet, and why.

Open the partitions of a loop, and open again those that cannot be opened yet, while the others work.

Punctuates the tasks of a loop concurrently. The loop reads on for the other tasks while one of them flushes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, ShoalError
from shoal.kafka.client import CLIENT_ERRORS, TELL_EVERY_S, TlsRefusedError, meanwhile, task_exception
from shoal.kafka.concurrency import LONGEST_S, backoff_s
from shoal.kafka.credentials import CredentialFileError, UsedCredentials
from shoal.kafka.not_opened import NotOpenedError, join_refusals, named_text
from shoal.kafka.task import PartitionTask
from shoal.kafka.task_manager import TaskManager, WorkerContext
from shoal.kafka.transactions import NotStartedError
from shoal.observability import Health, error_code, logger

__all__ = ["BrokerLiveness", "Punctuator", "open_partitions", "run_with_retries", "telling_unopened"]

CHECK_S = 2.0

log = logger("kafka")


@dataclass(slots=True)
class BrokerLiveness:
    """Since when the broker does not answer, over all consumer loops of the process.

    The time begins when a request has had no answer. A process that was stopped for longer, as on a virtual
    machine that was paused, must not take that for an absence of the broker.

    Parameters
    ----------
    health : Health
        Records whether the broker answers.
    patience_s : float
        After this time without an answer (s) the worker gives up; 0: at the first request without one.
    address : str
        Of the brokers, for log lines.
    """

    health: Health
    patience_s: float
    address: str = ""
    _is_loss_logged: bool = False
    _away_since_s: float | None = field(default_factory=time.monotonic)
    """Until the first answer, the start of the process."""
    _has_answered: bool = False
    _not_started_since_s: float | None = None
    """Since when the producer of a partition could not start although the broker answers; None after all have."""
    _not_opened_since_s: float | None = None
    """Since when a partition could not be opened although the broker answers; None after all were opened."""

    def note_answer(self) -> None:
        """Note that the broker answered."""
        if self._is_loss_logged:
            log.info("the broker answers again", broker=self.address, away_s=round(self.away_s, 3))
        self._is_loss_logged, self._away_since_s = False, None
        self._has_answered = self.health.broker_reached = True

    def note_no_answer(self) -> None:
        """Note that the broker did not answer."""
        if self._away_since_s is None:
            self._away_since_s = time.monotonic()
        self.health.broker_reached = False

    def note_opened(self) -> None:
        """Note that all partitions of a loop were opened."""
        self._not_opened_since_s = self._not_started_since_s = None

    def note_not_opened(self, error: NotOpenedError, *, drains: bool) -> None:
        """Note that partitions could not be opened; return if another attempt may succeed.

        Raises `BrokerError` if for ``patience_s`` a producer could not start or, in a drain, a partition could not be
        opened.
        """
        now_s = time.monotonic()
        not_started = next((one for one in error.reasons.values() if isinstance(one, NotStartedError)), None)
        if not_started is None:
            self._not_started_since_s = None  # only a leader or a copy is missing
        else:
            self._not_started_since_s = self._not_started_since_s or now_s - not_started.waited_s
            self._give_up_after(now_s - self._not_started_since_s, str(not_started))
        self._not_opened_since_s = self._not_opened_since_s or now_s
        if drains:
            self._give_up_after(now_s - self._not_opened_since_s, f"--drain: {error}")

    async def check_broker(
        self, request: Callable[[], Awaitable[None]], credentials: UsedCredentials, every_s: float = CHECK_S
    ) -> None:
        """Send the broker requests at intervals: an idle connection does not show that the broker is lost.

        Raises `BrokerUnavailableError` if the broker has not answered for ``patience_s``, or does not answer and the
        credentials were replaced.
        """
        while True:
            try:
                await asyncio.wait_for(request(), 3 * every_s)
                self.note_answer()
            except CLIENT_ERRORS:
                self.note_no_answer()
                self._log_loss()
                credentials.renew()
                if self.is_exhausted:
                    raise BrokerUnavailableError("the broker cannot be reached") from None
            await asyncio.sleep(every_s)

    def _log_loss(self) -> None:
        """Log once for each loss that the broker no longer answers."""
        if not self._is_loss_logged:
            left_s = round(max(0.0, self.patience_s - self.away_s), 3)
            log.warning("the broker does not answer", broker=self.address, gives_up_in_s=left_s)
            self._is_loss_logged = True

    @property
    def away_s(self) -> float:
        """Time since the first request that had no answer failed (s); 0 if the last one was answered."""
        return 0.0 if self._away_since_s is None else time.monotonic() - self._away_since_s

    @property
    def is_exhausted(self) -> bool:
        """Whether the broker has not answered for ``patience_s``; to be asked after a request without an answer."""
        return self.away_s >= self.patience_s

    def _give_up_after(self, passed_s: float, words: str) -> None:
        if passed_s >= self.patience_s:
            raise BrokerError(f"{words}; giving up after {passed_s:.0f} s (kafka.patience_s)")

    def raise_if_fatal(self, error: ShoalError, context: WorkerContext, stopping: asyncio.Event) -> None:
        """Return if a new consumer loop may succeed; otherwise raise the final error."""
        final = error
        if isinstance(error, FencedError) and context.start.drain:
            final = BrokerError(
                f"--drain: a worker of group {context.settings.group}, or another drain of it, has taken over a "
                "partition. Stop all of them, then drain again; no record is lost or published twice"
            )
        elif self._may_pass(error):
            self.note_no_answer()
            if not self.is_exhausted:
                return
            final = BrokerError(
                f"the broker at {context.settings.bootstrap_servers} could not be reached or refused for "
                f"{self.away_s:.0f} s (kafka.patience_s); giving up; last: {error}"
            )
        if not final.retriable and not stopping.is_set():
            log.error("giving up", code=error_code(final), reason=str(final))
        if not final.retriable:
            raise final from None

    def _may_pass(self, error: ShoalError) -> bool:
        """Return whether an error may be gone within ``patience_s``.

        While credentials are rotated, a key may not fit its certificate yet, or one side not trust the other yet. At
        the first start the same error shows a fault of the settings.
        """
        is_of_rotation = isinstance(error, (CredentialFileError, TlsRefusedError))
        return isinstance(error, BrokerUnavailableError) or (is_of_rotation and self._has_answered)


async def run_with_retries(
    context: WorkerContext, liveness: BrokerLiveness, stopping: asyncio.Event, run: Callable[[], Awaitable[None]]
) -> None:
    """Run consumer loops until one ends by itself or the process is to stop, with a random pause after each failure.

    Raises
    ------
    ShoalError
        An error that a new consumer loop would meet again.
    """
    failures = 0
    while not stopping.is_set():
        began_s = time.monotonic()
        try:
            await run()
            break
        except ShoalError as error:
            liveness.raise_if_fatal(error, context, stopping)
            failures = 0 if time.monotonic() - began_s > 2 * LONGEST_S else failures
            pause_s = backoff_s(failures)
            failures += 1
            log.warning(
                "consumer loop ended",
                code=error_code(error),
                reason=str(error),
                broker=context.settings.bootstrap_servers,
                retry_s=round(pause_s, 3),
            )
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause_s)


OPENING_CHECK_S = 0.5


Unopened = Callable[[], Mapping[TopicPartition, ShoalError | None]]


def telling_unopened(unopened: Unopened) -> AbstractAsyncContextManager[None]:
    """Log which partitions are not open, for the length of the context: after the first failure, and at intervals."""
    return meanwhile(_tell(unopened))


async def _tell(unopened: Unopened) -> None:
    began_s = told_s = time.monotonic()
    has_failed = False
    while True:
        await asyncio.sleep(OPENING_CHECK_S)
        now_s, left = time.monotonic(), unopened()
        failed = {tp: error for tp, error in left.items() if error is not None}
        if left and (now_s >= told_s + TELL_EVERY_S or (failed and not has_failed)):
            _log(failed, len(left), round(now_s - began_s, 3))
            told_s, has_failed = now_s, has_failed or bool(failed)


def _log(failed: Mapping[TopicPartition, ShoalError], count: int, since_s: float) -> None:
    if failed:
        reason = join_refusals((tp, named_text(tp, error)) for tp, error in failed.items())
        log.warning("partitions not opened; the others go on", count=count, since_s=since_s, reason=reason)
    else:
        log.info("partitions are being opened", count=count, since_s=since_s)


async def open_partitions(
    tasks: TaskManager,
    partitions: Iterable[TopicPartition],
    clients: tuple[AIOKafkaAdminClient, AIOKafkaConsumer],
    on_opened: Callable[[TopicPartition, PartitionTask], None],
    *,
    liveness: BrokerLiveness,
    credentials: UsedCredentials,
    drains: bool = False,
    on_failed: Callable[[], None] = lambda: None,
) -> None:
    """Open all of these partitions; return when each of them is open.

    After a failure, ``on_failed`` is called, and the credentials are renewed: a leader may refuse those that were
    replaced. ``liveness`` limits how long a producer may be unable to start and, in a drain, a partition to be opened.
    An error of a partition that ends the loop is raised.
    """
    left, failures = list(partitions), 0
    async with telling_unopened(lambda: tasks.unopened):
        while left:
            try:
                await tasks.open(left, *clients, on_opened)
                left = []
            except NotOpenedError as error:
                on_failed()
                liveness.note_not_opened(error, drains=drains)
                credentials.renew()
                # In another order: the client connects to one broker at a time, and the first one may swallow packets.
                left = random.sample(list(error.reasons), len(error.reasons))
                await asyncio.sleep(backoff_s(failures))
                failures += 1
    liveness.note_opened()


Punctuation = Callable[[], Coroutine[Any, Any, None]]


class Punctuator:
    """Runs the punctuations of tasks, at most one of each task at a time.

    A punctuation that flushes waits for two transactions, one after the other. If the loop waited for it, the records
    of all other partitions would wait too. Each task has its own producer and sends one transaction at a time, so that
    there are never more transactions than tasks.

    Guarantee: the order of what one task does is not changed. A task holds its lock while it flushes.
    """

    def __init__(self) -> None:
        self._flushing: dict[PartitionTask, asyncio.Task[None]] = {}

    @property
    def flushing(self) -> Mapping[PartitionTask, asyncio.Task[None]]:
        """The tasks whose punctuation has not ended yet."""
        return self._flushing

    async def run(self, punctuations: Mapping[PartitionTask, Punctuation]) -> None:
        """Punctuate all tasks that do not flush; return when each of them has ended or waits for a transaction.

        Raises the error of a punctuation of this run or an earlier one.
        """
        for task, punctuate in punctuations.items():
            if task not in self._flushing:
                self._flushing[task] = asyncio.create_task(punctuate())
        await asyncio.sleep(0)  # each new one runs until it has to wait
        self._remove_ended()

    async def finish(self) -> None:
        """Wait for all punctuations; raises the error of one that failed."""
        await asyncio.gather(*self._flushing.values())

    async def cancel(self) -> None:
        """Cancel the punctuations that have not ended."""
        for punctuation in self._flushing.values():
            punctuation.cancel()
        await asyncio.gather(*self._flushing.values(), return_exceptions=True)
        self._flushing.clear()

    def _remove_ended(self) -> None:
        ended = [task for task, punctuation in self._flushing.items() if punctuation.done()]
        errors = [task_exception(self._flushing.pop(task)) for task in ended]
        for error in errors:
            if error is not None:
                raise error
