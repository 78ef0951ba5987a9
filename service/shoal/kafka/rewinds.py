"""Requests for messages that an external framework has lost, or not delivered yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiokafka import TopicPartition

from shoal.observability import logger

__all__ = ["Rewinds"]

GRACE_S = 0.3
"""How long a missing message may be on its way before a rewind is requested."""
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
    """The partitions that wait for a missing message, and the rewinds that were requested for them.

    Parameters
    ----------
    rewind : callable
        Requests the messages of a partition from an offset on. It may fail, and is repeated.
    """

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
