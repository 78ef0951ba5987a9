"""What a partition has decided, on its way out: collected, packed with the progress, committed parcel by parcel.

A parcel is one transaction. Parcels are sent in the order in which they were packed, each when the one before is
committed; whoever packs one at a certain point has so made sure that nothing decided later is seen without it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from shoal.arrays import Float64Vector
from shoal.errors import ShoalError
from shoal.kafka.cipher import PLAIN, MetadataCipher
from shoal.kafka.classification import AHEAD_MS
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import OffsetTracker
from shoal.kafka.producer import QuarantineEntry, TransactionBatch
from shoal.observability import Metrics
from shoal.pipeline import BlockDecisions, DecidedCluster
from shoal.pipeline.stats import ReleaseStats
from shoal.records import Reason

__all__ = ["RecordCollector", "TransactionSink"]

FULL_ROWS, FULL_BYTES, FULL_TRANSACTIONS = 50_000, 1 << 25, 16
"""With so much waiting for transactions no more is taken in."""


class TransactionSink(Protocol):
    """Where decisions go."""

    async def publish(self, outbox: TransactionBatch, watermark: int, metadata: str, at_ms: int) -> None:
        """Send all of it and the progress in one transaction."""

    async def close(self) -> None:
        """Let go of the partition."""


@dataclass(frozen=True, slots=True)
class _PendingTransaction:
    """What goes into one transaction, and what is counted when it is committed."""

    outbox: TransactionBatch
    commit: CommittedState
    rows: int
    bytes: int
    figures: list[tuple[ReleaseStats, float, Float64Vector]]


class RecordCollector:
    """Decisions of one partition between being taken and being committed.

    Parameters
    ----------
    topic, partition : str, int
        The input's.
    fingerprint : str
        Of the policy.
    sink : Sink
        Where parcels go.
    begun : Commit
        The commit from which the work began.
    metrics : Metrics
        Counts what was committed; what was not has not happened.
    now : callable
        Wall clock (s).
    seal : Seal
        Writes the progress.
    after : callable or None
        Is told the clusters of each parcel that was committed; it must not wait.

    Notes
    -----
    Guarantee: one parcel is sent at a time, in order; after one that failed none is.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        fingerprint: str,
        sink: TransactionSink,
        begun: CommittedState,
        metrics: Metrics,
        now: Callable[[], float],
        seal: MetadataCipher = PLAIN,
        after: Callable[[list[DecidedCluster]], None] | None = None,
    ) -> None:
        self._topic, self._partition, self._fingerprint = topic, partition, fingerprint
        self._sink, self._metrics, self._now, self._seal, self._after = sink, metrics, now, seal, after
        self._at, self._last = begun.at, begun
        self.committed = begun.snapshot.watermark
        """Watermark of the last commit."""
        self.packed_s = now()
        """When the last parcel was packed."""
        self.sent_s = 0.0
        """When the last parcel was sent that is committed: nobody had taken the partition over by then."""
        self._outbox = TransactionBatch()
        self._rows = self._bytes = 0
        self._figures: list[tuple[ReleaseStats, float, Float64Vector]] = []
        self._parcels: deque[_PendingTransaction] = deque()
        self._sending: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        """Whether a decision waits to be packed."""
        return bool(self._outbox)

    @property
    def is_busy(self) -> bool:
        """Whether a parcel is on its way."""
        return self._sending is not None

    @property
    def is_full(self) -> bool:
        """Whether reading should wait for a transaction to end."""
        rows = self._rows + sum(parcel.rows for parcel in self._parcels)
        size = self._bytes + sum(parcel.bytes for parcel in self._parcels)
        return rows >= FULL_ROWS or size >= FULL_BYTES or len(self._parcels) >= FULL_TRANSACTIONS

    def add(self, outcome: BlockDecisions, held_s: Float64Vector) -> None:
        """Take decided clusters, and what leaves; ``held_s`` is how long each record that leaves was held."""
        self._outbox.clusters += outcome.clusters
        self._rows += len(held_s)
        self._outbox.rows += outcome.rows
        self._bytes += sum(map(len, outcome.rows))
        if outcome.stats is not None:
            self._figures.append((outcome.stats, outcome.sst_growth, held_s))

    def refer(self, offset: int, reason: Reason) -> None:
        """Take a record that is not published."""
        self._outbox.references.append(QuarantineEntry(offset, reason.value))

    # ------------------------------------------------------------------ transactions

    def dispatch(self, progress: OffsetTracker) -> None:
        """Pack what waits with the progress as it is now, and send it when all before it is committed.

        Raises
        ------
        BrokerError
            What a parcel before ended with.
        """
        self.check()
        self.packed_s = self._now()
        # Never earlier than a commit before: nothing in the output is later than the last one, which a start checks.
        self._at = max(self._at, round(self.packed_s * 1000))
        self._last = CommittedState(progress.snapshot(self._at + AHEAD_MS), self._fingerprint, self._at)
        self._parcels.append(_PendingTransaction(self._outbox, self._last, self._rows, self._bytes, self._figures))
        self._outbox, self._figures, self._rows, self._bytes = TransactionBatch(), [], 0, 0
        self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    def check(self) -> None:
        """Raise what a transaction in the background ended with."""
        if self._sending is not None and self._sending.done():
            self._sending.result()
            self._sending = None

    async def commit(self, progress: OffsetTracker) -> None:
        """Pack, send, and wait: whatever is decided after this is decided on committed ground."""
        self.dispatch(progress)
        await self.settle()

    async def repeat(self) -> None:
        """Commit once more what was committed last, marked: clusters will be shown. It fails if another took over."""
        self.check()
        self._last = replace(self._last, snapshot=replace(self._last.snapshot, shown=True))
        self._parcels.append(_PendingTransaction(TransactionBatch(), self._last, 0, 0, []))
        self._send_soon()
        await self.settle()

    @property
    def is_marked(self) -> bool:
        """Whether the last commit says that clusters may have been seen which are decided after it."""
        return self._last.snapshot.shown

    async def settle(self) -> None:
        """Wait until all that was packed is committed."""
        if self._sending is not None:
            await self._sending
        self.check()

    async def abandon(self) -> None:
        """Send nothing more; what is on its way is cut off."""
        self._parcels.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        while self._parcels:
            await self._send(self._parcels[0])
            self._parcels.popleft()

    async def _send(self, parcel: _PendingTransaction) -> None:
        started, watermark = self._now(), parcel.commit.snapshot.watermark
        try:
            metadata = self._seal.encode(parcel.commit, self._topic, self._partition)
            await self._sink.publish(parcel.outbox, watermark, metadata, parcel.commit.at)
        except ShoalError:
            self._metrics.transactions.labels("aborted").inc()
            raise
        self.committed, self.sent_s = watermark, started
        self._metrics.transactions.labels("committed").inc()
        self._metrics.transaction_seconds.observe([max(0.0, self._now() - started)])
        self._account(parcel)
        if self._after is not None:
            self._after(parcel.outbox.clusters)

    def _account(self, parcel: _PendingTransaction) -> None:
        """Count what a committed transaction carried."""
        if parcel.rows:
            self._count("released", "", parcel.rows)
            self._metrics.clusters.labels(self._topic, self._partition).inc(len(parcel.outbox.clusters))
        for reason, count in Counter(reference.reason for reference in parcel.outbox.references).items():
            self._count("suppressed" if reason == Reason.SUPPRESSED else "quarantined", reason, count)
        for of_block, spread, seconds in parcel.figures:
            self._metrics.observe(of_block, spread, seconds)

    def _count(self, outcome: str, reason: str, count: int) -> None:
        self._metrics.records.labels(outcome, reason, self._topic, self._partition).inc(count)
