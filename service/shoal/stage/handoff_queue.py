"""The queue between partition tasks and the app's iterator: one cluster at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from shoal.streams import DecidedCluster


@dataclass(frozen=True)
class Cluster:
    """Records of at least k different people that were published with one centroid.

    Attributes
    ----------
    partition : int
        Partition of the source topic.
    number : int
        Number of the cluster in its partition, from 0. A cluster that is handed over again after a crash has the
        same partition, number and bytes, so repeats can be dropped by partition and number. Do not publish the
        number: it shows the order in which clusters were decided.
    messages : tuple of bytes
        The records as the service would publish them (JSON), sorted.
    subjects : int
        Number of different people among the records.
    policy : str
        Fingerprint (SHA-256, hex) of the policy under which the cluster was decided, as `shoal check` prints it.

    Notes
    -----
    Guarantee: at least k subjects, within their share. The engine counts them again before the cluster is released.
    """

    partition: int
    number: int
    messages: tuple[bytes, ...] = field(repr=False)
    subjects: int
    policy: str

    @property
    def size(self) -> int:
        """Number of records."""
        return len(self.messages)

    @cached_property
    def records(self) -> tuple[dict[str, Any], ...]:
        """The records with their published values, in the order of ``messages``."""
        return tuple(msgspec.json.decode(message) for message in self.messages)


COMMITTED_RECORDS_LIMIT = 2_048
"""Number of records in committed clusters that the app has not taken; at this number tasks stop reading."""


@dataclass(slots=True)
class _PendingHandover:
    cluster: Cluster
    acknowledged: asyncio.Future[bool]


class HandoffQueue:
    """Passes clusters from the partition tasks to the one task of the app that iterates.

    A cluster that is handed over before its commit (`hand_over`) is acknowledged when the app asks for the next one. At
    most one such cluster is with the app, none is buffered, and the partition task waits. Clusters that are already
    committed (`put_committed`) are queued, and the partition tasks stop reading while the queue `is_full`.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._changed, self._is_empty = asyncio.Event(), asyncio.Event()
        self._is_empty.set()
        self._committed: deque[Cluster] = deque()
        self._committed_records = 0
        self._pending: _PendingHandover | None = None
        self._with_app: _PendingHandover | None = None
        self._accepts_handovers = True
        self._error: BaseException | None = None
        self._is_closed = False

    # ------------------------------------------------------------------ called by partition tasks

    async def hand_over(self, partition: int, decided: DecidedCluster) -> bool:
        """Hand a cluster over and wait until the app asks for the next one; return False if it does not in time."""
        async with self._lock:
            if not self._accepts_handovers:
                return False
            acknowledged: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._pending = _PendingHandover(_cluster(partition, decided), acknowledged)
            self._changed.set()
            try:
                return await acknowledged
            finally:
                self._pending = None

    def put_committed(self, partition: int, decided: Sequence[DecidedCluster]) -> None:
        """Queue clusters that are published and committed."""
        self._committed += [_cluster(partition, one) for one in decided]
        self._committed_records += sum(len(one.rows) for one in decided)
        if self._committed:
            self._is_empty.clear()
            self._changed.set()

    def is_full(self) -> bool:
        """Return whether so many committed records are queued that the partition tasks should not read."""
        return self._committed_records >= COMMITTED_RECORDS_LIMIT

    # ------------------------------------------------------------------ called by the app's iterator

    async def next(self) -> Cluster:
        """Acknowledge the last cluster and wait for the next.

        Raises `StopAsyncIteration` when the stage has ended, or the error with which it has failed.
        """
        with_app, self._with_app = self._with_app, None
        if with_app is not None and not with_app.acknowledged.done():
            with_app.acknowledged.set_result(True)
        while True:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise StopAsyncIteration
            if self._committed:
                return self._next_committed()
            if self._pending is not None and not self._pending.acknowledged.done():
                self._with_app = self._pending
                return self._pending.cluster
            self._changed.clear()
            await self._changed.wait()

    def _next_committed(self) -> Cluster:
        cluster = self._committed.popleft()
        self._committed_records -= cluster.size
        if not self._committed:
            self._is_empty.set()
        return cluster

    # ------------------------------------------------------------------ called by the supervisor

    async def wait_until_empty(self, timeout_s: float) -> None:
        """Wait until the app has taken all committed clusters, at most ``timeout_s``."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), timeout_s)

    def cancel_handover(self) -> None:
        """Cancel the pending hand-over, and refuse new ones until `resume`."""
        self._accepts_handovers = False
        if self._pending is not None and not self._pending.acknowledged.done():
            self._pending.acknowledged.set_result(False)

    def resume(self) -> None:
        """Accept hand-overs again."""
        self._accepts_handovers = True

    def close(self, error: BaseException | None = None) -> None:
        """End the iteration, with the first error that was given or without one."""
        self._error, self._is_closed = self._error or error, True
        self._changed.set()


def _cluster(partition: int, decided: DecidedCluster) -> Cluster:
    return Cluster(partition, decided.number, tuple(decided.rows), decided.subjects, decided.policy)
