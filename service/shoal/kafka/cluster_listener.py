"""Gives the clusters of a partition to another part of this process, in addition to the output or in place of it.

`ClusterListener` holds the callbacks of a process. A partition task asks it for a `ClusterDelivery`. In the service the
listener receives clusters only after their commit. In a Faust stage without an output topic each decided cluster is
handed over, and its decision is applied when the listener has handled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from shoal.streams import DecidedCluster

__all__ = ["NO_LISTENER", "ClusterDelivery", "ClusterListener"]

AsyncStep = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class ClusterDelivery:
    """What a partition task does with decided clusters before it applies the decision.

    Without ``on_decided`` clusters are released only by their commit. With it, each is handed over, and the task waits
    until it was handled. An earlier process may have handed over clusters of records before ``handed_over_until``.
    """

    on_decided: Callable[[DecidedCluster], Awaitable[None]] | None
    commit_interval_s: float
    may_have_handed_over: bool
    """Whether the next commit says that clusters decided after it may have been handed over."""
    handed_over_until: int
    _is_delivering: bool = False

    @property
    def awaits_commits(self) -> bool:
        """Whether a commit that is due is awaited before more records are processed."""
        return self.on_decided is not None

    async def deliver(
        self, clusters: Sequence[DecidedCluster], ensure_still_owner: AsyncStep, commit_if_due: AsyncStep
    ) -> None:
        """Hand the clusters over one by one, each after a check that the task still owns its partition."""
        if self.on_decided is None:
            return
        self._is_delivering = bool(clusters)
        for cluster in clusters:
            await ensure_still_owner()
            await self._until_handled(self.on_decided(cluster), commit_if_due)
        self._is_delivering = False

    async def _until_handled(self, handling: Awaitable[None], commit_if_due: AsyncStep) -> None:
        """Wait until a cluster was handled, and meanwhile commit earlier decisions in the commit interval."""
        waiter = asyncio.ensure_future(handling)
        try:
            while not waiter.done():
                await asyncio.wait({waiter}, timeout=self.commit_interval_s / 2)
                if not waiter.done():
                    await commit_if_due()
            waiter.result()
        finally:
            waiter.cancel()
            await asyncio.wait({waiter})

    def after_read(self, next_offset: int) -> None:
        """Clear `may_have_handed_over` once all records before ``handed_over_until`` were read.

        If clusters are handed over, the next one may be at any time, and nothing changes.
        """
        if self.on_decided is None and next_offset >= self.handed_over_until:
            self.may_have_handed_over = False

    def before_close(self, next_offset: int) -> None:
        """Clear `may_have_handed_over` if the last commit covers every cluster that was handed over."""
        if self.on_decided is not None and not self._is_delivering and next_offset >= self.handed_over_until:
            self.may_have_handed_over = False


async def _ignore_decided(_: int, __: DecidedCluster) -> None:
    """Handle nothing."""


def _ignore_committed(_: int, __: Sequence[DecidedCluster]) -> None:
    """Handle nothing."""


@dataclass(frozen=True, slots=True)
class ClusterListener:
    """Callbacks that receive the clusters of all partitions of a process. The first argument is the partition.

    Attributes
    ----------
    publishes : bool
        Whether clusters are sent to the output. If not, only offsets, quarantine entries and evidence are committed.
    on_decided : callable
        Returns when a decided cluster was handled; the cluster is committed after that.
    on_committed : callable
        Receives the clusters of each committed transaction; it must not wait.
    is_full : callable
        Whether the listener is so far behind that reading should pause.
    """

    publishes: bool = True
    on_decided: Callable[[int, DecidedCluster], Awaitable[None]] = _ignore_decided
    on_committed: Callable[[int, Sequence[DecidedCluster]], None] = _ignore_committed
    is_full: Callable[[], bool] = lambda: False

    def delivery(
        self, partition: int, commit_interval_s: float, *, may_have_handed_over: bool, handed_over_until: int
    ) -> ClusterDelivery:
        """Return what the task of a partition does with decided clusters."""
        on_decided = None if self.on_decided is _ignore_decided else partial(self.on_decided, partition)
        return ClusterDelivery(on_decided, commit_interval_s, may_have_handed_over, handed_over_until)


NO_LISTENER = ClusterListener()
"""Clusters go to the output alone."""
