"""Sessions one after the other: what ends one is judged, and the next begins where the progress says."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, ShoalError
from shoal.kafka.client import CLIENT_ERRORS
from shoal.kafka.task_manager import WorkerContext
from shoal.observability import Health, error_code, logger

__all__ = ["BrokerLiveness", "run_with_retries"]

PROBE_S = 2.0
BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

log = logger("kafka")


@dataclass(slots=True)
class BrokerLiveness:
    """When the broker answered last, over all sessions of the process."""

    health: Health
    patience_s: float
    _last: float = field(default_factory=time.monotonic)

    def made(self) -> None:
        """It answered."""
        self._last = time.monotonic()
        self.health.broker_reached = True

    def lost(self) -> None:
        """It did not."""
        self.health.broker_reached = False

    async def probe(self, ask: Callable[[], Awaitable[None]], every_s: float = PROBE_S) -> None:
        """Ask the broker something again and again: an idle connection does not tell that it is gone.

        Raises
        ------
        BrokerUnavailableError
            It has not answered for longer than the operator wants to wait.
        """
        while True:
            try:
                await asyncio.wait_for(ask(), 3 * every_s)
                self.made()
            except CLIENT_ERRORS:
                self.lost()
                if self.is_hopeless:
                    raise BrokerUnavailableError("the broker cannot be reached") from None
            await asyncio.sleep(every_s)

    @property
    def away_s(self) -> float:
        """How long it has not answered."""
        return time.monotonic() - self._last

    @property
    def is_hopeless(self) -> bool:
        """Whether that is longer than the operator wants to wait."""
        return self.away_s > self.patience_s

    def judge(self, error: ShoalError, plan: WorkerContext, stopping: asyncio.Event) -> None:
        """Return if another session may do better."""
        final = error
        if isinstance(error, FencedError) and plan.start.drain:
            final = BrokerError("--drain: a worker of this group is running; stop all of them first")
        elif isinstance(error, BrokerUnavailableError):
            self.lost()
            if self.is_hopeless:
                final = BrokerError(
                    f"the broker at {plan.settings.bootstrap_servers} could not be reached for {self.away_s:.0f} s "
                    "(kafka.patience_s); giving up"
                )
        if not final.retriable and not stopping.is_set():
            log.error("giving up", code=error_code(final), reason=str(final))
        if not final.retriable:
            raise final from None


async def run_with_retries(
    plan: WorkerContext, contact: BrokerLiveness, stopping: asyncio.Event, session: Callable[[], Awaitable[None]]
) -> None:
    """Run sessions until one ends by itself, or until it is to stop.

    Raises
    ------
    ShoalError
        What no other session would do better with.
    """
    failures = 0
    while not stopping.is_set():
        began = time.monotonic()
        try:
            await session()
            break
        except ShoalError as error:
            contact.judge(error, plan, stopping)
            failures = 0 if time.monotonic() - began > 2 * BACKOFF_S[-1] else failures
            pause = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
            failures += 1
            log.warning("session ended", code=error_code(error), reason=str(error), retry_s=pause)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause)
