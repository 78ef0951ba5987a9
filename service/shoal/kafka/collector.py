"""Collects the decisions of one partition, packs them with the offset state, and sends them to the broker in order.

One transaction is sent at a time, in the order of packing. Decisions that are packed together are therefore committed
before later decisions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from shoal.arrays import Float64Vector
from shoal.errors import InputError, ShoalError
from shoal.kafka.cipher import NO_ENCRYPTION, MetadataCipher
from shoal.kafka.not_opened import NotYetError
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.output_rows import OutputRows
from shoal.kafka.partition_counts import PartitionCounts, TransactionCounts
from shoal.kafka.producer import TransactionBatch, UnpublishedRecord
from shoal.observability import Metrics
from shoal.pipeline import BlockDecisions, DecidedCluster
from shoal.records import DropReason, Reason

__all__ = ["RecordCollector", "TransactionSink"]

FULL_ROWS, FULL_BYTES, FULL_TRANSACTIONS = 50_000, 1 << 25, 16
"""With so many rows and references, bytes, or transactions waiting, reading pauses."""
FIRST_BYTES, LEAST_BYTES, LONG_TRANSACTION_S = 1 << 19, 1 << 16, 5.0
"""Bytes of one transaction: at first, and at least if one takes longer than so many seconds.

The broker aborts a transaction after its timeout. If the output is slow, as under a quota, a batch that had grown to
`FULL_BYTES` would be aborted at every attempt.
"""

TOLERATED_AHEAD_MS = 1_800_000
"""How far ahead of the clock messages may be dated (ms). By default, a broker refuses more than an hour."""


class TransactionSink(Protocol):
    """Where transactions go; the transactional producer is one."""

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        """Send the batch and the offset in one transaction."""

    async def close(self) -> None:
        """Close the producer of the partition."""


class _PendingTransaction(NamedTuple):
    """The contents of one transaction."""

    batch: TransactionBatch
    commit: CommittedState


class RecordCollector:
    """Collects the decisions and rows of one partition until they are committed.

    These are decided clusters, released rows, and references of suppressed and quarantined records. It holds no input
    records.

    Parameters
    ----------
    topic, partition : str, int
        Input topic and partition.
    sink : TransactionSink
        Where transactions go.
    last_commit : CommittedState
        The commit from which the task continues.
    metrics : Metrics
        Counts what was committed, and nothing else.
    wall_clock : callable
        Returns the wall-clock time (s).
    cipher : MetadataCipher
        Encodes the offset metadata.
    on_committed : callable
        Receives the clusters of each committed transaction; it must not wait.
    output_rows_of : callable
        Returns where the rows of a batch that is sent next will be in the output.
    counts : PartitionCounts
        Keeps the counts of a transaction whose outcome is not known; by default, of this collector alone.

    Notes
    -----
    Guarantee: one transaction is sent at a time, in the order of packing; after one has failed no other is sent.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        sink: TransactionSink,
        last_commit: CommittedState,
        metrics: Metrics,
        wall_clock: Callable[[], float],
        cipher: MetadataCipher = NO_ENCRYPTION,
        on_committed: Callable[[Sequence[DecidedCluster]], None] = lambda _: None,
        output_rows_of: Callable[[TransactionBatch], OutputRows | None] = lambda _: None,
        counts: PartitionCounts | None = None,
    ) -> None:
        self._topic, self._partition = topic, partition
        self._sink, self._metrics, self._wall_clock, self._cipher = sink, metrics, wall_clock, cipher
        self._on_committed, self._output_rows_of = on_committed, output_rows_of
        self._counts = counts or PartitionCounts(topic, partition)
        self._last_packed = self._last_committed = last_commit
        self.committed_offset = last_commit.state.committed_offset
        """Offset of the last commit."""
        self.packed_at_s = wall_clock()
        """When `start_packing` was last called (s); at first, when the collector was made."""
        self.confirmed_at_s = 0.0
        """When the last committed transaction was sent (s): until then no other worker owned the partition."""
        self._batch = TransactionBatch()
        self._pending: deque[_PendingTransaction] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._most_bytes = FIRST_BYTES

    @property
    def has_unpacked(self) -> bool:
        """Whether decisions are not packed yet."""
        return bool(self._batch)

    @property
    def is_busy(self) -> bool:
        """Whether a transaction is being sent."""
        return self._sending is not None

    @property
    def sending(self) -> asyncio.Task[None] | None:
        """The transactions that are being sent, for callers that wait for their end; None if there is none."""
        return self._sending

    @property
    def is_full(self) -> bool:
        """Whether reading should pause until a transaction ends; if none is being sent, until one is packed."""
        batches = [self._batch, *(pending.batch for pending in self._pending)]
        rows = sum(len(batch.rows) + len(batch.unpublished) for batch in batches)
        size = sum(batch.size_bytes for batch in batches)
        is_large = size >= FULL_BYTES or self._batch.size_bytes >= self._most_bytes
        return is_large or rows >= FULL_ROWS or len(self._pending) >= FULL_TRANSACTIONS

    @property
    def may_have_handed_over(self) -> bool:
        """Whether the state packed last says that clusters decided after it may have been handed over."""
        return self._last_packed.state.handed_over_uncommitted

    @property
    def packed_next_offset(self) -> int:
        """First unread offset of the state packed last."""
        return self._last_packed.state.next_offset

    def add(self, decisions: BlockDecisions, waited_s: Float64Vector) -> None:
        """Add decided clusters and the released rows; ``waited_s`` is how long each of their records waited (s)."""
        batch = self._batch
        batch.clusters += decisions.clusters
        batch.rows += decisions.rows
        batch.row_bytes += sum(map(len, decisions.rows))
        if decisions.stats is not None:
            figures = decisions.stats, decisions.sst_growth, waited_s, decisions.confidential, decisions.losses
            batch.stats.append(figures)

    def add_unpublished(self, offset: int, reason: Reason) -> None:
        """Add a record that is suppressed or quarantined."""
        self._batch.unpublished.append(UnpublishedRecord(offset, reason.value))

    def add_dropped(self, reasons: Iterable[DropReason]) -> None:
        """Count messages that are dropped."""
        self._batch.dropped.update(reasons)

    # ------------------------------------------------------------------ transactions

    def interval_left_s(self, commit_interval_s: float) -> float:
        """Return the time until the commit interval has passed since `start_packing` was called (s)."""
        passed_s = self._wall_clock() - self.packed_at_s
        return max(0.0, commit_interval_s - passed_s) if passed_s >= 0 else 0.0  # negative: the clock was set back

    def start_packing(self) -> int:
        """Start to pack a transaction, and return the time of its commit (ms).

        It is never before the time of an earlier commit, even if the clock was set back. A start checks that no record
        in the output is later than the last commit.
        """
        self.packed_at_s = self._wall_clock()
        return max(self._last_packed.at_ms, round(self.packed_at_s * 1000))

    def pack_and_send(self, commit: CommittedState) -> None:
        """Pack what was added with this state, and send it after all transactions that were packed before.

        Raises
        ------
        BrokerError
            An earlier transaction failed.
        """
        self.check()
        self._last_packed = commit
        self._pending.append(_PendingTransaction(self._batch, commit))
        self._batch = TransactionBatch()
        self._send_in_background()

    async def recommit_as_handed_over(self) -> None:
        """Commit the state packed last again, with ``handed_over_uncommitted``.

        It fails if another worker owns the partition.
        """
        self.check()
        self._last_packed = replace(
            self._last_packed, state=replace(self._last_packed.state, handed_over_uncommitted=True)
        )
        self._pending.append(_PendingTransaction(TransactionBatch(), self._last_packed))
        self._send_in_background()
        await self.wait_until_committed()

    def check(self) -> None:
        """Raise the error of a transaction that failed in the background."""
        if self._sending is not None and self._sending.done():
            self._sending.result()
            self._sending = None

    async def wait_until_committed(self) -> None:
        """Wait until everything that was packed is committed."""
        if self._sending is not None:
            await self._sending
        self.check()

    async def cancel(self) -> None:
        """Send nothing more, and cancel the transaction that is being sent."""
        self._pending.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    def _send_in_background(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._pending:
            await self._send(self._pending[0])
            self._pending.popleft()

    async def _send(self, pending: _PendingTransaction) -> None:
        batch, commit = pending
        started, committed_offset = self._wall_clock(), commit.state.committed_offset
        try:
            # Not earlier: all transactions before this one are committed now.
            commit = replace(commit, output_rows=self._output_rows_of(batch))
            metadata = self._cipher.encode(commit, self._topic, self._partition)
            dated_ms = _message_time(commit.at_ms, round(started * 1000))
            # Before it is sent: after an error, or if this is cancelled, the transaction may be committed all the same.
            self._counts.send(self._last_committed, commit, TransactionCounts.of(batch))
            await self._sink.publish_and_commit(batch, committed_offset, metadata, dated_ms)
        except ShoalError as error:
            self._metrics.transactions.labels("aborted").inc()
            if isinstance(error, (InputError, NotYetError)):
                self._counts.forget()  # raised before the commit, so nothing is committed
            raise
        took_s = max(0.0, self._wall_clock() - started)
        self._last_committed = commit
        self.committed_offset, self.confirmed_at_s = committed_offset, started
        self._limit_next(batch.size_bytes, took_s)
        self._metrics.transactions.labels("committed").inc()
        self._metrics.transaction_seconds.observe([took_s])
        self._counts.confirm(self._metrics)
        self._on_committed(batch.clusters)

    def _limit_next(self, size_bytes: int, took_s: float) -> None:
        """Let transactions grow while they are short, and shrink to what takes `LONG_TRANSACTION_S` if they are not."""
        if took_s > LONG_TRANSACTION_S:
            self._most_bytes = max(LEAST_BYTES, round(size_bytes * LONG_TRANSACTION_S / took_s))
        elif 2 * size_bytes >= self._most_bytes:
            self._most_bytes = min(FULL_BYTES, 2 * self._most_bytes)


def _message_time(commit_ms: int, now_ms: int) -> int:
    """Return the timestamp of the messages of a commit (ms): never after the time of the commit.

    It is the time of the commit, which never goes back, unless an earlier commit was made while the clock was far
    ahead. A broker would refuse such messages until the clock reaches that time. The time of the commit itself must
    stay: a restart knows by it which records were rejected as dated ahead.
    """
    return commit_ms if commit_ms <= now_ms + TOLERATED_AHEAD_MS else now_ms
