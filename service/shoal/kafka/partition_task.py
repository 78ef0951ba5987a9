"""The task of one assigned partition: messages in, committed decisions out, in an order that a restart repeats.

A loop drives the task (`process`, `punctuate`). Decisions depend on the records and their order alone, so that the same
records lead to the same clusters when they are read again. Only a flush does not: the wall clock or the operator asks
for it. The task therefore commits that it will flush before it flushes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from shoal.errors import InputError
from shoal.kafka.cipher import PLAIN, MetadataCipher
from shoal.kafka.classification import MAX_AHEAD_MS, Message, apply_classification
from shoal.kafka.cluster_listener import ClusterListener
from shoal.kafka.collector import RecordCollector, TransactionSink
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import OffsetTracker
from shoal.kafka.partition_reader import PartitionReader, restore_pipeline
from shoal.observability import Metrics
from shoal.pipeline import BLOCK_RECORDS, BlockDecisions, release_strategy
from shoal.policy import Policy
from shoal.records import JsonDecoder, Reason

__all__ = ["PartitionTask"]


class PartitionTask:
    """The state of one partition between assignment and revocation.

    A commit takes these steps, in this order:

    1. An error of an earlier transaction is raised: after it nothing more is committed.
    2. The offset tracker makes a snapshot: the committed offset, the incomplete offsets above it, the stream time.
    3. The collector packs the snapshot with all rows, clusters and quarantine entries decided until now.
    4. The batch waits until every batch that was packed before is committed.
    5. The snapshot is encoded as offset metadata, encrypted if there is a key.
    6. One transaction sends rows, summaries, evidence and quarantine entries, adds the committed offset with its
       metadata, and commits.
    7. Metrics count what was committed, and the listener is told the clusters.

    Parameters
    ----------
    topic, partition : str, int
        The input's.
    policy, decoder : Policy, JsonDecoder
        Shared by the tasks of a process.
    sink : TransactionSink
        Where transactions go; the task closes it.
    commit : CommittedState
        The commit from which the task continues.
    metrics : Metrics
        Of the process.
    interval_s : float
        Commit interval (s).
    now : callable
        Wall clock (s).
    cipher : MetadataCipher
        Encodes the offset metadata.
    log_end : int
        End of the log at the start. Records of clusters that may have been handed over are before it.
    listener : ClusterListener
        Gets the clusters besides the output.

    Notes
    -----
    Guarantee: each offset is completed once, by the transaction that carries its row or its quarantine entry.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        policy: Policy,
        decoder: JsonDecoder,
        sink: TransactionSink,
        commit: CommittedState,
        metrics: Metrics,
        interval_s: float,
        now: Callable[[], float] = time.time,
        *,
        cipher: MetadataCipher = PLAIN,
        log_end: int = 0,
        listener: ClusterListener | None = None,
    ) -> None:
        if not commit.has_policy(policy.fingerprint):
            # The adaptive state belongs to the policy of the commit.
            commit = replace(commit, fingerprint=policy.fingerprint, state=replace(commit.state, adaptive_state=b""))
        state, listener = commit.state, listener or ClusterListener()
        self.topic, self.partition, self._name = topic, partition, f"{topic}-{partition}"
        self._policy, self._sink, self._metrics, self._now = policy, sink, metrics, now
        self._interval_s = interval_s
        self._tracker = OffsetTracker.restore(state, commit.at_ms + MAX_AHEAD_MS)
        self._collector = RecordCollector(
            topic, partition, sink, commit, metrics, now, cipher, partial(listener.on_committed, partition)
        )
        marked = state.handed_over_uncommitted
        # Clusters handed over and not committed were decided on records that are in the log by now.
        marked_until = log_end if marked else 0
        self._delivery = listener.delivery(partition, interval_s, is_marked=marked, marked_until=marked_until)
        self._release = release_strategy(policy)
        self._pipeline = restore_pipeline(policy, state)
        self._tracker.adaptive_state = self._pipeline.adaptive_state.to_bytes()
        metrics.set_position_weight(topic, partition, self._pipeline.position_weight)
        self._max_delay_s = policy.require_stream().max_delay_s
        self._reader = PartitionReader(self._name, decoder, self._pipeline, state)
        # The client revokes partitions in a task of its own, while the loop may be processing a block.
        self._lock = asyncio.Lock()
        self._is_closed = self._is_finished = False

    @property
    def position(self) -> int:
        """Offset from which the next message is taken; messages before it are ignored."""
        return self._reader.position

    @property
    def tracker(self) -> OffsetTracker:
        """The offsets as they stand; to be read only."""
        return self._tracker

    @property
    def is_full(self) -> bool:
        """Whether reading should pause until a transaction ends."""
        return self._collector.is_full

    @property
    def committed_offset(self) -> int:
        """Offset of the last commit."""
        return self._collector.committed_offset

    @property
    def is_restoring(self) -> bool:
        """Whether records that were incomplete at the last commit are still to be read again."""
        return self._tracker.is_restoring

    @property
    def incomplete(self) -> int:
        """Number of records that were read and have not left."""
        return self._tracker.incomplete

    @property
    def is_finished(self) -> bool:
        """Whether the task has flushed for good and takes no more messages."""
        return self._is_finished

    @property
    def _has_news(self) -> bool:
        # A committed offset that moves past control records alone is committed as well: else lag would never be 0.
        return bool(self._collector) or self._tracker.committed_offset > self.committed_offset

    @property
    def _can_commit(self) -> bool:
        # Before all restored offsets were read, it is not known which of the others took no position.
        return self._tracker.can_commit and self._reader.has_restored

    @property
    def _is_commit_due(self) -> bool:
        passed_s = self._now() - self._collector.packed_s
        # Time that passed below zero: the clock was set back.
        return self._has_news and (passed_s >= self._interval_s or passed_s < 0) and self._can_commit

    @property
    def _is_overdue(self) -> bool:
        """Whether the oldest record has waited for `max_delay_s`, and enough subjects are there for a flush."""
        oldest = self._tracker.oldest
        if self._max_delay_s is None or oldest is None or self._tracker.is_restoring:
            return False
        # Measured from the read time. Event time would flush a growing backlog at every poll, and a record with a
        # timestamp in the future would delay all others.
        if self._now() * 1000 - oldest.read_ms < self._max_delay_s * 1000:
            return False
        # A small buffer is not flushed: an attacker could have filled it.
        return self._pipeline.has_min_population

    def restore(self, log_start: int) -> bool:
        """Set the position before the first message is taken: it may be before the committed offset.

        Reading begins at the last record read, to see that it is still there, and at the start of the quota window, to
        count the records of each subject again.

        Parameters
        ----------
        log_start : int
            First offset of the log.

        Returns
        -------
        bool
            Whether the log still holds the start of the window. If not, the records of this window are suppressed.
        """
        return self._reader.restore(log_start)

    async def process(self, messages: Sequence[Message]) -> None:
        """Take messages in the order of the log; those before `position` were taken before and are ignored.

        Raises
        ------
        LogTruncatedError
            The record at the probe is another one than before the restart.
        GuaranteeError
            The messages are out of order, or an invariant does not hold.
        """
        async with self._lock:
            if self._is_closed or self._is_finished:
                return
            new, start = self._reader.new_messages(messages), 0
            while start < len(new):
                start += await self._process_slice(new[start : start + BLOCK_RECORDS])

    async def _process_slice(self, messages: Sequence[Message]) -> int:
        """Process at most a block; return how many messages were taken."""
        if self._tracker.flush_at_offset is not None:
            unread = self._tracker.next_offset
            restored = next((i for i, one in enumerate(messages) if one.offset >= unread), len(messages))
            if restored == 0:
                self._suppress_compacted(unread)
                await self._flush_committed()
                return 0
            messages = messages[:restored]
        decisions = self._push(messages)
        if decisions is not None:
            await self._deliver(decisions)
        self._delivery.after_read(self._tracker.next_offset)
        return len(messages)

    def _push(self, messages: Sequence[Message]) -> BlockDecisions | None:
        """Decode and push a block; return what was decided, which is not applied yet."""
        now_ms = round(self._now() * 1000)
        block, classified = self._reader.read(messages, self._tracker, now_ms)
        apply_classification(self._tracker, classified, now_ms)
        for rejection in classified.rejections:
            self._collector.add_unpublished(rejection.offset, rejection.reason)
        self._metrics.records.labels("in", "", self.topic, self.partition).inc(classified.unread)
        self._suppress_compacted(self.position)
        if classified.rejects_future:
            # Packed before the next decisions, which depend on it: another try may not reject the same records.
            self._dispatch()
        if not len(classified.marks):
            return None
        self._metrics.count_clipped(self.topic, self.partition, block.clipped)
        pushed = block if classified.chosen.all() else block.filter(classified.chosen)
        return self._pipeline.push(pushed, classified.marks, classified.fresh)

    def _suppress_compacted(self, before: int) -> None:
        """Suppress incomplete records below ``before`` that compaction removed before they were read again."""
        if self._tracker.partial.has_lost(before):
            raise InputError(
                f"{self._name}: records of a cluster of which a part has left are no longer in the "
                "log (compaction?): the rest of it cannot be released; start with --skip-to-end to go on at the end "
                "and count the gap"
            )
        self._suppress(self._tracker.lost_to_compaction(before))

    def _suppress(self, offsets: list[int]) -> None:
        self._tracker.complete(offsets)
        for offset in offsets:
            self._collector.add_unpublished(offset, Reason.SUPPRESSED)

    async def _deliver(self, decisions: BlockDecisions) -> None:
        """Deliver decided clusters to the listener, then apply the decisions.

        Until then the tracker shows their records as incomplete. A commit in between is sound: after a restart the same
        records lead to the same clusters.
        """
        await self._delivery.deliver(decisions.clusters, self._ensure_still_owner, self._commit_if_due)
        self._apply(decisions)

    def _apply(self, decisions: BlockDecisions) -> None:
        read_ms = self._release.complete(self._tracker, decisions)
        self._tracker.clusters += len(decisions.clusters)
        self._tracker.adaptive_state = self._pipeline.adaptive_state.to_bytes()
        self._metrics.set_position_weight(self.topic, self.partition, self._pipeline.position_weight)
        self._suppress(decisions.suppressed)
        self._collector.add(decisions, self._now() - np.array(read_ms) / 1000)
        if decisions.early:
            self._metrics.early.labels(self.topic, self.partition).inc(decisions.early)

    async def _ensure_still_owner(self) -> None:
        """Commit, unless that was done within the commit interval: it fails if another instance owns the partition.

        A process that was suspended must not hand over clusters of records that another one has released meanwhile,
        perhaps under another policy. The commit says that clusters may be handed over after it.
        """
        age_s = self._now() - self._collector.confirmed_s
        if self._delivery.is_marked and 0 <= age_s < self._interval_s:
            return
        self._delivery.is_marked = True
        if self._can_commit:
            await self._commit()
        else:
            await self._collector.recommit_marked()

    async def punctuate(self, position: int | None = None, log_end: int | None = None) -> None:
        """Do what is due by the clock: commit, or flush at the end of the log.

        Parameters
        ----------
        position : int, optional
            Every record before this offset was delivered to `process`; control records are never delivered.
        log_end : int, optional
            End of the log; nothing is flushed while it is not known.

        Raises
        ------
        BrokerError
            How a transaction in the background ended.
        """
        async with self._lock:
            if self._is_closed:
                return
            if position is not None and not self._is_finished:
                self._advance_position(position)
            self._collector.check()
            at_end = log_end is not None and 0 <= log_end <= self.position
            if at_end and self._tracker.is_restoring:
                self._suppress_compacted(self._tracker.next_offset)
            if self._tracker.flush_at_offset is not None and not self._tracker.is_restoring:
                await self._flush_committed()
            elif at_end and self._is_overdue:
                await self._flush()
            if self._is_commit_due and not self._collector.is_busy:
                self._dispatch()
                if self._delivery.awaits_commits:
                    # A process that was fenced meanwhile hands no cluster over.
                    await self._collector.settle()

    def _advance_position(self, position: int) -> None:
        self._reader.position = max(self.position, position)
        self._tracker.skip_offset_gaps(position)
        self._delivery.after_read(self._tracker.next_offset)

    async def commit(self, *, flush: bool = False) -> None:
        """Commit what is decided, and wait for it; nothing happens while records are being restored.

        With ``flush`` all incomplete records leave first, and the task takes no more messages.
        """
        async with self._lock:
            if self._is_closed or self._is_finished or self._tracker.is_restoring:
                return
            if flush:
                await self._flush()
            elif not self._can_commit:
                return
            if self._has_news or self._collector.is_busy:
                await self._commit()
            self._is_finished = flush

    def _dispatch(self) -> None:
        """Steps 1 to 3 of a commit; the others follow in the background."""
        at_ms = self._collector.next_commit_ms()
        state = self._tracker.snapshot(at_ms + MAX_AHEAD_MS, handed_over_uncommitted=self._delivery.is_marked)
        self._collector.dispatch(CommittedState(state, self._policy.fingerprint, at_ms))

    async def _commit(self) -> None:
        self._dispatch()
        await self._collector.settle()

    async def _commit_if_due(self) -> None:
        if self._is_commit_due:
            await self._commit()

    async def _flush(self) -> None:
        """Let all incomplete records leave. This is committed first: a restart would not decide it by itself."""
        if self._tracker.incomplete:
            self._tracker.flush_at_offset = self._tracker.next_offset
            await self._commit()
            await self._flush_committed()

    async def _flush_committed(self) -> None:
        await self._deliver(self._pipeline.flush())
        self._tracker.flush_at_offset = None
        await self._commit()

    async def close(self, *, finish: bool) -> None:
        """Release the partition; with ``finish``, commit what is decided first."""
        async with self._lock:
            self._is_closed = True
            try:
                self._delivery.before_close(self._tracker.next_offset)
                is_news = self._collector.is_marked != self._delivery.is_marked
                has_more = bool(self._collector) or self._collector.is_busy or is_news
                if finish and has_more and self._can_commit:
                    await self._commit()
                else:
                    await self._collector.abandon()
            finally:
                await self._sink.close()
