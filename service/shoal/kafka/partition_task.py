"""The task of one assigned partition: it takes messages, decides on their records, and commits the decisions.

A consumer loop calls `process` and `punctuate`. Decisions depend only on the records, their offsets and timestamps:
after a restart the same messages give the same decisions. Two decisions use the clock: a flush (also on the operator's
request), and rejecting a record dated too far ahead. Both are committed before any decision that depends on them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from shoal.errors import InputError
from shoal.kafka.cipher import NO_ENCRYPTION, MetadataCipher
from shoal.kafka.classification import MAX_AHEAD_MS, Message, apply_classification, block_length
from shoal.kafka.cluster_listener import ClusterListener
from shoal.kafka.collector import RecordCollector, TransactionSink
from shoal.kafka.commit_timing import CommitTiming
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import OffsetTracker
from shoal.kafka.output_rows import OutputRows
from shoal.kafka.partition_counts import PartitionCounts
from shoal.kafka.partition_reader import PartitionReader, restore_pipeline
from shoal.kafka.producer import TransactionBatch
from shoal.observability import Metrics
from shoal.pipeline import BlockDecisions, release_strategy
from shoal.policy import Policy
from shoal.records import JsonDecoder, Reason

__all__ = ["PartitionTask"]


class PartitionTask:
    """The state of one partition between assignment and revocation.

    Guarantee: each offset with a record is completed at most once. One transaction carries the row (or quarantine
    entry) of a record and the commit that completes its offset.

    A commit takes these steps, in this order:

    1. The offset tracker makes a snapshot: the committed offset, the incomplete offsets from there on, the stream time,
       and the rest of `OffsetState`.
    2. If an earlier transaction failed, its error is raised and nothing is committed.
    3. The collector packs a transaction: the snapshot, and all results added since it packed the transaction before.
    4. The transaction waits until all transactions that were packed before it are committed.
    5. The snapshot is encoded as offset metadata, encrypted if there is a key.
    6. The transaction sends rows, clusters, evidence, quarantine entries, and the committed offset with its metadata.
    7. Metrics count the released, suppressed and quarantined records, and the listener receives the clusters. If the
       outcome of the transaction is unknown, the next task of the process counts them when it finds the commit.

    Parameters
    ----------
    topic, partition : str, int
        Input topic and partition.
    policy, decoder : Policy, JsonDecoder
        Shared by the tasks of a process.
    sink : TransactionSink
        Where transactions go; the task closes it.
    last_commit : CommittedState
        The commit from which the task continues.
    metrics : Metrics
        The metrics of the process.
    commit_interval_s : float
        Commit interval (s).
    wall_clock : callable
        Returns the wall-clock time (s).
    monotonic_clock : callable
        Returns a time (s) that is never set, by which it is known how long records are held.
    cipher : MetadataCipher
        Encodes the offset metadata.
    log_end : int
        Log end when the task opened. If an earlier task handed clusters over, their records have offsets below this.
    listener : ClusterListener
        Receives the clusters, in addition to the output or in place of it.
    output_rows_of : callable
        Returns where the rows of a batch that is sent next will be in the output.
    counts : PartitionCounts
        What earlier tasks of this process have counted of the partition; by default, nothing.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        policy: Policy,
        decoder: JsonDecoder,
        sink: TransactionSink,
        last_commit: CommittedState,
        metrics: Metrics,
        commit_interval_s: float,
        wall_clock: Callable[[], float] = time.time,
        *,
        monotonic_clock: Callable[[], float] = time.monotonic,
        cipher: MetadataCipher = NO_ENCRYPTION,
        log_end: int = 0,
        listener: ClusterListener | None = None,
        output_rows_of: Callable[[TransactionBatch], OutputRows | None] = lambda _: None,
        counts: PartitionCounts | None = None,
    ) -> None:
        if not last_commit.has_policy(policy.fingerprint):
            last_commit = last_commit.under_policy(policy.fingerprint)
        state, listener = last_commit.state, listener or ClusterListener()
        self.topic, self.partition, self._name = topic, partition, f"{topic}-{partition}"
        self._policy, self._sink, self._metrics = policy, sink, metrics
        self._wall_clock, self._monotonic_clock = wall_clock, monotonic_clock
        self._first_partition_count = last_commit.first_partition_count
        self._tracker = OffsetTracker.restore(state, last_commit.at_ms + MAX_AHEAD_MS)
        on_committed = partial(listener.on_committed, partition)
        counts = counts or PartitionCounts(topic, partition)
        self._collector = RecordCollector(
            topic, partition, sink, last_commit, metrics, wall_clock, cipher, on_committed, output_rows_of, counts
        )
        self._delivery = listener.delivery(
            partition,
            commit_interval_s,
            may_have_handed_over=state.handed_over_uncommitted,
            handed_over_until=log_end if state.handed_over_uncommitted else 0,
        )
        self._release = release_strategy(policy)
        self._pipeline = restore_pipeline(policy, state)
        self._tracker.adaptive_state = self._pipeline.adaptive_state.to_bytes(self._pipeline.policy)
        metrics.add_partition(topic, partition, self._pipeline)
        self._max_delay_s = policy.require_stream().max_delay_s
        self._reader = PartitionReader(topic, partition, decoder, self._pipeline, state, metrics, counts)
        self._timing = CommitTiming(self._collector, self._tracker, self._reader, commit_interval_s)
        # aiokafka revokes partitions in another asyncio task, while the loop may be processing a block.
        self._lock = asyncio.Lock()
        self._is_closed = self._is_drained = self._has_unconfirmed_rejection = False

    @property
    def position(self) -> int:
        """Consumer position (Kafka): offset of the next message to take. Earlier messages are ignored."""
        return self._reader.position

    @property
    def tracker(self) -> OffsetTracker:
        """The state of the offsets. Callers must not change it."""
        return self._tracker

    @property
    def is_full(self) -> bool:
        """Whether reading should pause until a transaction ends."""
        return self._timing.is_full

    @property
    def committed_offset(self) -> int:
        """Committed offset of the latest commit; at first, of the commit from which the task continues."""
        return self._collector.committed_offset

    @property
    def is_restoring(self) -> bool:
        """Whether incomplete records, or members of unfinished clusters, must still be read again after a restart."""
        return self._tracker.is_restoring

    @property
    def waiting_count(self) -> int:
        """Number of records that were read and are not yet published, suppressed or quarantined."""
        return self._tracker.waiting_count

    @property
    def oldest_held_s(self) -> float | None:
        """How long ago this process read the oldest held record (s).

        None if no record is held, or some must still be read again after a restart.
        """
        oldest = None if self._tracker.is_restoring else self._tracker.oldest
        return None if oldest is None else self._monotonic_clock() - oldest.read_ms / 1000

    @property
    def is_drained(self) -> bool:
        """Whether the task has flushed after the end of the log (``commit(flush=True)``). It takes no more messages."""
        return self._is_drained

    @property
    def next_commit(self) -> tuple[float, asyncio.Task[None] | None]:
        """Time until `punctuate` packs a commit (s), infinite if it cannot; and the transaction that it waits for."""
        return self._timing.next_commit

    @property
    def _should_flush(self) -> bool:
        """Whether the oldest record has waited for `max_delay_s`, and enough subjects wait for a flush."""
        # Since the read: by timestamps, old records would be flushed at each poll, and a future one would delay all.
        held_s = self.oldest_held_s
        if self._max_delay_s is None or held_s is None or held_s < self._max_delay_s:
            return False
        return self._pipeline.has_min_population  # with few subjects, all but one could be an attacker's

    def restore(self, log_start: int) -> bool:
        """Move the consumer position back. It may end below the committed offset. Call this before the first message.

        Where reading begins, parameter and result are those of `PartitionReader.restore`.
        """
        return self._reader.restore(log_start)

    async def process(self, messages: Sequence[Message]) -> None:
        """Take messages in the order of the log. Messages below `position` are ignored.

        Raises
        ------
        LogTruncatedError
            The offset of the reference record holds a different record than before the restart.
        GuaranteeError
            The messages are out of order, or an invariant does not hold.
        """
        async with self._lock:
            if self._is_closed or self._is_drained:
                return
            new, start = self._reader.new_messages(messages), 0
            while start < len(new):
                start += await self._process_slice(new[start:])

    async def _process_slice(self, messages: Sequence[Message]) -> int:
        """Process the first block of these messages; return how many messages were taken."""
        now_ms = round(self._wall_clock() * 1000)
        messages = messages[: block_length(messages, now_ms, hands_over=self._delivery.awaits_commits)]
        if self._tracker.flush_at_offset is not None:
            first_unread_offset = self._tracker.next_offset
            new = (i for i, message in enumerate(messages) if message.offset >= first_unread_offset)
            restored_count = next(new, len(messages))
            if restored_count == 0:
                self._suppress_compacted(first_unread_offset)
                await self._flush_committed()
                return 0
            messages = messages[:restored_count]
        decisions = self._decode_and_decide(messages, now_ms)
        if decisions is not None:
            await self._hand_over_and_apply(decisions)
        self._delivery.after_read(self._tracker.next_offset)
        return len(messages)

    def _decode_and_decide(self, messages: Sequence[Message], now_ms: int) -> BlockDecisions | None:
        """Decode a block and decide on its records; the caller must apply the decisions."""
        block, classified = self._reader.read(messages, self._tracker, now_ms)
        apply_classification(self._tracker, classified, int(self._monotonic_clock() * 1000))  # never later than now
        for rejection in classified.rejections:
            self._collector.add_unpublished(rejection.offset, rejection.reason)
        self._collector.add_dropped(reason for _, reason in classified.dropped)
        self._suppress_compacted(self.position)
        if classified.rejects_future:
            # A restart may reject other records, so this rejection is committed before decisions that depend on it.
            self._pack_commit()
            self._has_unconfirmed_rejection = True
        if not len(classified.expiry_keys):
            return None
        self._metrics.count_clipped(self.topic, self.partition, block.clipped)
        pushed = block if classified.chosen.all() else block.filter(classified.chosen)
        return self._pipeline.push(pushed, classified.expiry_keys, classified.is_undecided)

    def _suppress_compacted(self, before: int) -> None:
        """Suppress incomplete records below ``before`` that compaction removed before they were read again."""
        if self._tracker.unfinished.has_missing_members(before):
            raise InputError(
                f"{self._name}: records of a partly released cluster are missing from the log (compacted?): the cluster"
                " cannot be released in full; start with --skip-to-end to continue at the end and count skipped offsets"
            )
        self._suppress(self._tracker.lost_to_compaction(before))

    def _suppress(self, offsets: list[int]) -> None:
        self._tracker.complete(offsets)
        for offset in offsets:
            self._collector.add_unpublished(offset, Reason.SUPPRESSED)

    async def _hand_over_and_apply(self, decisions: BlockDecisions) -> None:
        # A commit during the hand-over lists these records as incomplete. A restart decides the same.
        await self._delivery.deliver(decisions.clusters, self._ensure_still_owner, self._commit_if_due)
        self._apply_decisions(decisions)

    def _apply_decisions(self, decisions: BlockDecisions) -> None:
        read_ms = self._release.complete(self._tracker, decisions)
        self._tracker.next_cluster_number += len(decisions.clusters)
        self._tracker.adaptive_state = self._pipeline.adaptive_state.to_bytes(self._pipeline.policy)
        self._metrics.set_position_weight(self.topic, self.partition, self._pipeline.position_weight)
        self._suppress(decisions.suppressed)
        self._collector.add(decisions, self._monotonic_clock() - np.array(read_ms) / 1000)
        if decisions.early_count:
            self._metrics.early.labels(self.topic, self.partition).inc(decisions.early_count)

    async def _ensure_still_owner(self) -> None:
        """Commit, to prove ownership. No commit is needed if the last one is younger than the commit interval.

        The commit sets handed_over_uncommitted. It fails if another worker owns the partition: a worker that was
        suspended must not hand over clusters of records that another worker has released. A rejection by the clock is
        committed before a cluster that depends on it is handed over.
        """
        if self._has_unconfirmed_rejection:
            await self._collector.wait_until_committed()
            self._has_unconfirmed_rejection = False
        age_s = self._wall_clock() - self._collector.confirmed_at_s
        if self._delivery.may_have_handed_over and 0 <= age_s < self._timing.interval_s:
            return
        self._delivery.may_have_handed_over = True
        if self._timing.can_commit:
            await self._commit()
        else:
            await self._collector.recommit_as_handed_over()

    async def punctuate(self, delivered_up_to: int | None = None, log_end: int | None = None) -> None:
        """Commit or flush if it is due. A committed flush runs when all incomplete records were read again.

        Parameters
        ----------
        delivered_up_to : int, optional
            Every record before this offset was delivered to `process`. Control records are never delivered.
        log_end : int, optional
            Last stable offset of the partition. A new flush starts only there; without it, none starts.

        Raises
        ------
        BrokerError
            A background transaction failed.
        """
        async with self._lock:
            if self._is_closed:
                return
            if delivered_up_to is not None and not self._is_drained:
                self._advance_position(delivered_up_to)
            self._collector.check()
            at_end = log_end is not None and 0 <= log_end <= self.position
            if at_end and self._tracker.is_restoring:
                self._suppress_compacted(self._tracker.next_offset)
            if self._tracker.flush_at_offset is not None and not self._tracker.is_restoring:
                await self._flush_committed()
            elif at_end and self._should_flush:
                await self._flush()
            if self._timing.is_due and not self._collector.is_busy:
                self._pack_commit()
                if self._delivery.awaits_commits:
                    # A fenced task fails here and hands nothing over.
                    await self._collector.wait_until_committed()

    def _advance_position(self, delivered_up_to: int) -> None:
        self._reader.position = max(self.position, delivered_up_to)
        self._tracker.skip_offset_gaps(delivered_up_to)
        self._delivery.after_read(self._tracker.next_offset)

    async def commit(self, *, flush: bool = False) -> None:
        """Commit the decisions, and wait until they are committed.

        Nothing happens until the task has read again what an earlier task had read. With ``flush`` all incomplete
        records are released or suppressed first, and the task takes no more messages.
        """
        async with self._lock:
            if self._is_closed or self._is_drained or self._tracker.is_restoring:
                return
            if flush:
                await self._flush()
            elif not self._timing.can_commit:
                return
            if self._timing.has_uncommitted_state or self._collector.is_busy:
                await self._commit()
            self._is_drained = flush

    def _pack_commit(self) -> None:
        """Do steps 1 to 3 of a commit; the other steps follow in the background."""
        at_ms, may_have_handed_over = self._collector.start_packing(), self._delivery.may_have_handed_over
        state = self._tracker.snapshot(at_ms + MAX_AHEAD_MS, handed_over_uncommitted=may_have_handed_over)
        commit = CommittedState(state, self._policy.fingerprint, at_ms, self._first_partition_count)
        self._collector.pack_and_send(commit)

    async def _commit(self) -> None:
        self._pack_commit()
        await self._collector.wait_until_committed()

    async def _commit_if_due(self) -> None:
        if self._timing.is_due:
            await self._commit()

    async def _flush(self) -> None:
        """Commit the decision to flush, because a restart would not repeat it; then flush."""
        if self._tracker.waiting_count:
            self._tracker.flush_at_offset = self._tracker.next_offset
            await self._commit()
            await self._flush_committed()

    async def _flush_committed(self) -> None:
        await self._hand_over_and_apply(self._pipeline.flush())
        self._tracker.flush_at_offset = None
        await self._commit()

    async def close(self, *, commit: bool) -> None:
        """Close the producer of the partition; with ``commit``, commit first if the task can commit yet."""
        async with self._lock:
            self._is_closed = True
            try:
                self._delivery.before_close(self._tracker.next_offset)
                has_flag_changed = self._collector.may_have_handed_over != self._delivery.may_have_handed_over
                # A worker that reads held records again must find them in the commit, to count them once.
                has_read_more = self._tracker.next_offset > self._collector.packed_next_offset
                has_more = self._collector.has_unpacked or self._collector.is_busy or has_flag_changed or has_read_more
                if commit and has_more and self._timing.can_commit:
                    await self._commit()
                else:
                    await self._collector.cancel()
            finally:
                await self._sink.close()
