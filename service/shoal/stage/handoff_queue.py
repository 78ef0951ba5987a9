"""Clusters over the counter: one at a time, and the next one only when it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from shoal.kafka import HandoverCancelledError
from shoal.pipeline import DecidedCluster as Decided

__all__ = ["Cluster", "HandoffQueue"]


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
    messages : tuple of bytes
        The records as the service would publish them (JSON), sorted.
    subjects : int
        Different people among them.

    Notes
    -----
    Guarantee: at least k subjects, within their share, as the engine counted again before it let them leave.
    """

    partition: int
    number: int
    messages: tuple[bytes, ...] = field(repr=False)
    subjects: int

    @property
    def size(self) -> int:
        """Number of records."""
        return len(self.messages)

    @cached_property
    def records(self) -> tuple[dict[str, Any], ...]:
        """The records with their published values, in the order of their bytes."""
        return tuple(msgspec.json.decode(message) for message in self.messages)


SHOWN_RECORDS = 2_048
"""With so many in clusters that nobody has looked at yet, no more is read."""


@dataclass(slots=True)
class _Offer:
    cluster: Cluster
    done: asyncio.Future[None]


class HandoffQueue:
    """Between the lanes and one customer, who asks for the next cluster.

    Notes
    -----
    What is handed over (`hand`) counts when the next one is asked for: at most one cluster is outside, nothing is
    buffered, and who hands over waits. What is shown (`show`) was committed before: it waits in line, and lanes are
    told when the line is long (`is_full`).
    """

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        self._changed, self._is_empty = asyncio.Event(), asyncio.Event()
        self._is_empty.set()
        self._shown: deque[Cluster] = deque()
        self._waiting_records = 0
        self._offer: _Offer | None = None
        self._outside: _Offer | None = None
        self._is_open = True
        self._error: BaseException | None = None
        self._is_over = False

    # ------------------------------------------------------------------ lanes

    async def hand(self, partition: int, decided: Decided) -> None:
        """Hand a cluster over and wait until the next one is asked for.

        Raises
        ------
        WithdrawnError
            That did not happen: the cluster counts as not dealt with.
        """
        async with self._line:
            if not self._is_open:
                raise HandoverCancelledError("a cluster was withdrawn")
            self._offer = _Offer(_cluster(partition, decided), asyncio.get_running_loop().create_future())
            self._changed.set()
            try:
                await self._offer.done
            finally:
                self._offer = None

    def show(self, partition: int, decided: Sequence[Decided]) -> None:
        """Put clusters in line that are published."""
        self._shown += [_cluster(partition, one) for one in decided]
        self._waiting_records += sum(len(one.rows) for one in decided)
        if self._shown:
            self._is_empty.clear()
            self._changed.set()

    def is_full(self) -> bool:
        """Whether so much waits in line that lanes should read no more."""
        return self._waiting_records >= SHOWN_RECORDS

    # ------------------------------------------------------------------ the customer

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
            if self._shown:
                return self._next_shown()
            if self._offer is not None and not self._offer.done.done():
                self._outside = self._offer
                return self._offer.cluster
            self._changed.clear()
            await self._changed.wait()

    def _next_shown(self) -> Cluster:
        cluster = self._shown.popleft()
        self._waiting_records -= cluster.size
        if not self._shown:
            self._is_empty.set()
        return cluster

    # ------------------------------------------------------------------ the keeper

    async def until_empty(self, timeout_s: float) -> None:
        """Wait until the customer has taken what was shown, but no longer than that."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), timeout_s)

    def withdraw(self) -> None:
        """Take back what is outside and hand nothing over until `reopen`."""
        self._is_open = False
        if self._offer is not None and not self._offer.done.done():
            self._offer.done.set_exception(HandoverCancelledError("a cluster was withdrawn"))

    def reopen(self) -> None:
        """Hand over again."""
        self._is_open = True

    def close(self, error: BaseException | None = None) -> None:
        """Let the customer go, with an error or without."""
        self._error, self._is_over = self._error or error, True
        self._changed.set()


def _cluster(partition: int, decided: Decided) -> Cluster:
    return Cluster(partition, decided.number, tuple(decided.rows), decided.subjects)
