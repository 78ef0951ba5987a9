"""Messages that the stream has delivered and no partition task has taken yet, by partition."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

__all__ = ["BufferedMessage", "MessageBuffer"]

LIMIT_RECORDS = 2_048
BATCHING_S = 0.02


class BufferedMessage(NamedTuple):
    """A Kafka message with the fields that a partition task reads."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def __repr__(self) -> str:
        """Show the offset only: key, value and headers may hold attribute values."""
        return f"BufferedMessage(offset={self.offset})"


class MessageBuffer:
    """Messages between the Faust stream and the partition tasks, at most ``limit`` of them.

    Parameters
    ----------
    rewind : callable
        ``rewind(partition, offset)`` makes the stream deliver a partition again from this offset on.
    limit : int
        Maximum number of messages over all partitions.
    """

    def __init__(self, rewind: Callable[[int, int], Awaitable[None]], limit: int = LIMIT_RECORDS) -> None:
        self.rewind = rewind
        self._limit, self._count = limit, 0
        self._queues: dict[int, deque[BufferedMessage]] = {}
        self._not_empty, self._not_full = asyncio.Event(), asyncio.Event()
        self._new = 0
        self._partitions: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether `put` waits, for any partition."""
        return self._count >= self._limit

    async def put(self, partition: int, message: BufferedMessage) -> None:
        """Add a message as soon as the buffer is not full; drop it if its partition is not assigned."""
        while self.is_full and partition in self._partitions:
            self._not_full.clear()
            await self._not_full.wait()
        if partition not in self._partitions:
            return
        self._queues.setdefault(partition, deque()).append(message)
        self._count += 1
        self._new += 1
        self._not_empty.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when the buffer holds a message, or after ``timeout_s``.

        Faust delivers one message at a time, and one pass of the consumer loop costs more than the delivery of many.
        So the first messages wait up to ``BATCHING_S`` for more.
        """
        if not self._count:
            self._not_empty.clear()
            try:
                await asyncio.wait_for(self._not_empty.wait(), timeout_s)
            except TimeoutError:
                return
        is_all_new = self._count == self._new
        await asyncio.sleep(BATCHING_S if is_all_new else 0)
        self._new = 0

    def take(self, partition: int, most: int) -> list[BufferedMessage]:
        """Remove and return the oldest messages of a partition, at most ``most``."""
        queue = self._queues.get(partition)
        if not queue:
            return []
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._remove(len(taken))
        return taken

    def assign(self, partitions: Iterable[int]) -> None:
        """Accept messages of these partitions only; drop buffered messages of all others."""
        self._partitions = frozenset(partitions)
        for partition in self._queues.keys() - self._partitions:
            self._remove(len(self._queues.pop(partition)))
        self._not_full.set()

    def _remove(self, count: int) -> None:
        self._count -= count
        self._not_full.set()
