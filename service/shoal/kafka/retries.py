"""What is tried again: consumer loops, until the broker is away for too long; and coroutines that run together."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition

from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, ShoalError
from shoal.kafka.client import CLIENT_ERRORS, NotYetError, join_reasons, task_exception
from shoal.kafka.credentials import UsedCredentials
from shoal.observability import Health, error_code, logger
from shoal.policy import KafkaSection

log = logger("kafka")

CHECK_S = 2.0


@dataclass(slots=True)
class BrokerLiveness:
    """Since when the broker does not answer, over all consumer loops of the process.

    The time begins when a request has had no answer. After ``patience_s`` without an answer the worker gives up.
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
        self.health.failure = ""

    def note_not_opened(self, reasons: Mapping[TopicPartition, NotYetError], *, drains: bool) -> None:
        """Give up if for ``patience_s`` a producer could not start or, in a drain, a partition could not be opened."""
        now_s = time.monotonic()
        not_started = next((one for one in reasons.values() if one.waited_s), None)
        if not_started is None:
            self._not_started_since_s = None  # only a leader or a copy is missing
        else:
            self._not_started_since_s = self._not_started_since_s or now_s - not_started.waited_s
            self._give_up_after(now_s - self._not_started_since_s, str(not_started))
        self._not_opened_since_s = self._not_opened_since_s or now_s
        if drains:
            self._give_up_after(now_s - self._not_opened_since_s, f"--drain: {join_reasons(reasons)}")

    async def check_broker(
        self, request: Callable[[], Awaitable[None]], credentials: UsedCredentials, every_s: float = CHECK_S
    ) -> None:
        """Send the broker requests at intervals: an idle connection does not show that the broker is lost."""
        while True:
            try:
                await asyncio.wait_for(request(), 3 * every_s)
                self.note_answer()
            except CLIENT_ERRORS:
                self.note_no_answer()
                if not self._is_loss_logged:
                    left_s = round(max(0.0, self.patience_s - self.away_s), 3)
                    log.warning("the broker does not answer", broker=self.address, gives_up_in_s=left_s)
                    self._is_loss_logged = True
                credentials.renew()
                if self.is_exhausted:
                    raise BrokerUnavailableError("the broker cannot be reached") from None
            await asyncio.sleep(every_s)

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

    def raise_if_fatal(
        self, error: ShoalError, settings: KafkaSection, stopping: asyncio.Event, *, drains: bool = False
    ) -> None:
        """Return if a new consumer loop may succeed; otherwise raise the final error."""
        final = error
        if isinstance(error, FencedError) and drains:
            final = BrokerError(
                f"--drain: a worker of group {settings.group}, or another drain of it, has taken over a "
                "partition. Stop all of them, then drain again; no record is lost or published twice"
            )
        elif isinstance(error, BrokerUnavailableError) or (error.may_pass and self._has_answered):
            # At the first start, an error of credentials shows a fault of the settings.
            self.note_no_answer()
            if not self.is_exhausted:
                return
            final = BrokerError(
                f"the broker at {settings.bootstrap_servers} could not be reached or refused for "
                f"{self.away_s:.0f} s (kafka.patience_s); giving up; last: {error}"
            )
        if not final.retriable:
            if not stopping.is_set():
                log.error("giving up", code=error_code(final), reason=str(final))
            raise final from None


async def run_with_retries(
    settings: KafkaSection,
    liveness: BrokerLiveness,
    stopping: asyncio.Event,
    run: Callable[[], Awaitable[None]],
    *,
    drains: bool = False,
) -> None:
    """Run consumer loops until one ends by itself or as `raise_if_fatal`, with a random pause after each failure."""
    failures = 0
    while not stopping.is_set():
        began_s = time.monotonic()
        try:
            await run()
            break
        except ShoalError as error:
            liveness.raise_if_fatal(error, settings, stopping, drains=drains)
            failures = 0 if time.monotonic() - began_s > 2 * _BACKOFF_S[-1] else failures
            pause_s = backoff_s(failures)
            failures += 1
            liveness.health.failure = error.brief
            log.warning(
                "consumer loop ended",
                code=error_code(error),
                reason=str(error),
                broker=settings.bootstrap_servers,
                retry_s=round(pause_s, 3),
            )
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause_s)


_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_random: Callable[[], float] = random.random  # returns numbers between 0 and 1; tests replace it


def jittered(mean_s: float) -> float:
    """Return a random pause (s), 0.5 to 1.5 times its mean, so that workers do not come back together."""
    return mean_s * (0.5 + _random())


def backoff_s(failures: int) -> float:
    """Return the pause (s) after this many failures before the present one: 0.1 s to 5 s on average."""
    return jittered(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])


async def until_first(*works: Coroutine[Any, Any, object]) -> None:
    """Run concurrently until one has ended, cancel the others, and end as the first did: normally or with its error."""
    await _until(works, lambda _: True)


async def until_all(*works: Coroutine[Any, Any, object]) -> None:
    """Run concurrently until all have ended or one has failed; then cancel the others, and raise its error."""
    await _until(works, lambda ended: any(task_exception(one) is not None for one in ended))


async def _until(
    works: Iterable[Coroutine[Any, Any, object]], is_enough: Callable[[set[asyncio.Task[object]]], bool]
) -> None:
    """Run concurrently until enough have ended or all; cancel the others, and raise the error of one that had ended."""
    running = [asyncio.create_task(work) for work in works]
    todo = set(running)
    try:
        while todo:
            ended, todo = await asyncio.wait(todo, return_when=asyncio.FIRST_COMPLETED)
            if is_enough(ended):
                break
    finally:
        done = [one for one in running if one.done()]
        for one in running:
            one.cancel()
        await asyncio.wait(running)
        for one in done:
            if (error := task_exception(one)) is not None:
                raise error
