"""What came and was not taken yet, by partition; whoever brings more than fits waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

__all__ = ["BufferedMessage", "MessageBuffer"]

LIMIT_RECORDS = 2_048
GATHER_S = 0.02


class BufferedMessage(NamedTuple):
    """A message as lanes read it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def __repr__(self) -> str:
        """Nothing of what it says."""
        return f"Arrived(offset={self.offset})"


class MessageBuffer:
    """Messages between the host's stream and the lanes; never more than ``limit``.

    Parameters
    ----------
    rewind : callable
        Makes the host bring a partition again from an offset on.
    limit : int
        Most messages.
    """

    def __init__(self, rewind: Callable[[int, int], Awaitable[None]], limit: int = LIMIT_RECORDS) -> None:
        self.rewind = rewind
        self._limit, self._count = limit, 0
        self._queues: dict[int, deque[BufferedMessage]] = {}
        self._came, self._room = asyncio.Event(), asyncio.Event()
        self._new = 0
        self._expected: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return self._count

    async def put(self, partition: int, message: BufferedMessage) -> None:
        """Take a message in, as soon as there is room; one of a partition that is not expected is thrown away."""
        while self._count >= self._limit and partition in self._expected:
            self._room.clear()
            await self._room.wait()
        if partition not in self._expected:
            return
        self._queues.setdefault(partition, deque()).append(message)
        self._count += 1
        self._new += 1
        self._came.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when something is there, or after this time.

        A host brings one message at a time, and a turn of the loop costs more than many of them: what comes first
        waits a moment for others.
        """
        if not self._count:
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), timeout_s)
            except TimeoutError:
                return
        is_all_new = self._count == self._new
        await asyncio.sleep(GATHER_S if is_all_new else 0)
        self._new = 0

    def take(self, partition: int, most: int) -> list[BufferedMessage]:
        """Hand over the oldest messages of a partition."""
        queue = self._queues.get(partition)
        if not queue:
            return []
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._freed(len(taken))
        return taken

    def expect(self, partitions: Iterable[int]) -> None:
        """Take messages of these partitions from now on; throw away what came of others, for which nobody asks."""
        self._expected = frozenset(partitions)
        for partition in self._queues.keys() - self._expected:
            self._freed(len(self._queues.pop(partition)))
        self._room.set()

    def _freed(self, count: int) -> None:
        self._count -= count
        self._room.set()
