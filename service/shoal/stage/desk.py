"""Clusters over the counter: one at a time, and the next one only when it is asked for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from shoal.flow import Cluster as Decided
from shoal.kafka import Outbox, Sink, WithdrawnError

__all__ = ["Cluster", "Desk", "Showing"]


@dataclass(frozen=True)
class Cluster:
    """Records of at least k different people that were published with one centroid.

    Attributes
    ----------
    partition : int
        Of the source topic.
    number : int
        Of the cluster in its partition, from 0. A cluster that is handed over again after a crash has the same
        partition and number, and the same bytes: whoever remembers them can drop it. It tells in which order
        clusters were decided: not for publication.
    rows : tuple of bytes
        The records as the service would publish them (JSON), sorted.
    subjects : int
        Different people among them.

    Notes
    -----
    Guarantee: at least k subjects, within their share, as the engine counted again before it let them leave.
    """

    partition: int
    number: int
    rows: tuple[bytes, ...] = field(repr=False)
    subjects: int

    @property
    def size(self) -> int:
        """Number of records."""
        return len(self.rows)

    @cached_property
    def records(self) -> tuple[dict[str, Any], ...]:
        """The records with their published values, in the order of their bytes."""
        return tuple(msgspec.json.decode(row) for row in self.rows)


@dataclass(slots=True)
class _Offer:
    cluster: Cluster
    done: asyncio.Future[None]


class Desk:
    """Between the lanes, which hand clusters over, and one customer, who asks for the next.

    Notes
    -----
    At most one cluster is outside: asking for the next says that the one before was dealt with. Nothing is buffered:
    who hands over waits, and so does everything behind him.
    """

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        self._changed = asyncio.Event()
        self._offer: _Offer | None = None
        self._outside: _Offer | None = None
        self._is_open = True
        self._error: BaseException | None = None
        self._is_over = False

    async def hand(self, partition: int, decided: Decided) -> None:
        """Hand a cluster over and wait until the next one is asked for.

        Raises
        ------
        WithdrawnError
            That did not happen: the cluster counts as not dealt with.
        """
        async with self._line:
            if not self._is_open:
                raise WithdrawnError("a cluster was withdrawn")
            rows = tuple(decided.rows)
            cluster = Cluster(partition, decided.number, rows, decided.subjects)
            self._offer = _Offer(cluster, asyncio.get_running_loop().create_future())
            self._changed.set()
            try:
                await self._offer.done
            finally:
                self._offer = None

    async def next(self) -> Cluster:
        """Say that the last cluster was dealt with, and wait for the next.

        Raises
        ------
        StopAsyncIteration
            There will be none.
        ShoalError
            Why there will be none.
        """
        outside, self._outside = self._outside, None
        if outside is not None and not outside.done.done():
            outside.done.set_result(None)
        while True:
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise StopAsyncIteration
            if self._offer is not None and not self._offer.done.done():
                self._outside = self._offer
                return self._offer.cluster
            self._changed.clear()
            await self._changed.wait()

    def withdraw(self) -> None:
        """Take back what is outside and hand nothing over until `reopen`."""
        self._is_open = False
        if self._offer is not None and not self._offer.done.done():
            self._offer.done.set_exception(WithdrawnError("a cluster was withdrawn"))

    def reopen(self) -> None:
        """Hand over again."""
        self._is_open = True

    def close(self, error: BaseException | None = None) -> None:
        """Let the customer go, with an error or without."""
        self._error, self._is_over = self._error or error, True
        self._changed.set()


@dataclass(slots=True)
class Showing:
    """A sink that shows clusters at a desk once they are committed."""

    partition: int
    sink: Sink
    desk: Desk

    async def publish(self, outbox: Outbox, watermark: int, metadata: str, at_ms: int) -> None:
        """Commit, then show."""
        await self.sink.publish(outbox, watermark, metadata, at_ms)
        try:
            for cluster in outbox.clusters:
                await self.desk.hand(self.partition, cluster)
        except WithdrawnError:
            # They are in the topic: nobody has to see them here.
            return

    async def close(self) -> None:
        """Let go of the partition."""
        await self.sink.close()
