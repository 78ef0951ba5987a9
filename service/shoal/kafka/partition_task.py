"""One assigned partition: messages in, decisions out, in one order that a restart repeats.

A lane owns the partition's progress, its flow and what is on its way out. It is driven from outside (`intake`,
`tick`). It waits for the broker only to let everything leave: that comes from the wall clock or an operator, and is
committed before it is carried out, because a second try would decide otherwise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np

from shoal.arrays import Int64Vector
from shoal.errors import GuaranteeError, InputError
from shoal.kafka.cipher import PLAIN, MetadataCipher
from shoal.kafka.classification import AHEAD_MS, Message, MessageColumns, classify_messages
from shoal.kafka.collector import RecordCollector, TransactionSink
from shoal.kafka.offset_metadata import CommittedState, largest_span
from shoal.kafka.offset_tracker import LogTruncatedError, OffsetTracker
from shoal.observability import Metrics
from shoal.pipeline import (
    BLOCK_RECORDS,
    AdaptiveState,
    BlockDecisions,
    ClusterRestorer,
    DecidedCluster,
    PartitionPipeline,
    release_strategy,
)
from shoal.policy import Policy
from shoal.records import JsonDecoder, JsonEncoder, Reason

__all__ = ["PartitionTask"]


class PartitionTask:
    """The state of one partition between assignment and revocation."""

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
        seal: MetadataCipher = PLAIN,
        end: int = 0,
        hand: Callable[[DecidedCluster], Awaitable[None]] | None = None,
        after: Callable[[list[DecidedCluster]], None] | None = None,
    ) -> None:
        if not commit.carries(policy.fingerprint):
            # Work goes on from here under this policy: what is committed once more may not name the other one, whose
            # course it does not take over.
            commit = replace(commit, fingerprint=policy.fingerprint, snapshot=replace(commit.snapshot, course=b""))
        self.topic, self.partition = topic, partition
        self.progress = OffsetTracker.restore(commit.snapshot, commit.at + AHEAD_MS)
        self.cursor = commit.snapshot.watermark
        """First offset the next message may have."""
        self._policy, self._decoder, self._sink, self._metrics, self._now = policy, decoder, sink, metrics, now
        self._outgoing = RecordCollector(topic, partition, policy.fingerprint, sink, commit, metrics, now, seal, after)
        self._anchor = commit.snapshot.anchor
        self._begin, self._replay_end = commit.snapshot.watermark, commit.snapshot.next_offset
        self._interval_s = interval_s
        stream, state = policy.require_stream(), commit.snapshot
        self._max_delay_ms = None if stream.max_delay_s is None else stream.max_delay_s * 1000
        self._release = release_strategy(policy)
        promised = self._release.min_partial_cluster(policy.k)
        reach = largest_span(stream.delta, BLOCK_RECORDS, AdaptiveState.size(policy), promised)
        reunion = ClusterRestorer(state.promised, state.frontier)
        self._flow = PartitionPipeline(
            policy,
            JsonEncoder(policy),
            max_offset_span=reach,
            clusters=state.clusters,
            adaptive_state=AdaptiveState.from_bytes(state.course, policy),
            restorer=reunion,
        )
        self.progress.course = self._flow.adaptive_state.to_bytes()
        metrics.steer(topic, partition, self._flow.position_weight)
        # The client revokes partitions in a task of its own, while the loop may be in the middle of a block.
        self._turn = asyncio.Lock()
        self._is_closed = False
        self.is_finished = False
        self._hand, self._is_handing = hand, False
        # What was shown and not committed was decided on records that are in the log by now.
        self._shown_until = end if commit.snapshot.shown else 0

    def look_back(self, low: int) -> bool:
        """Begin early: at the last record read, to see that it is still there; at a window's beginning, to count again.

        ``low`` is where the log begins. Returns whether all is there that has to be counted.
        """
        if self._anchor is not None and low <= self._anchor.offset < self.cursor:
            self.cursor = self._anchor.offset
        window = self._flow.quota_window_start(self._begin)
        if window is None:
            return True
        start = max(window, self.progress.origin)
        if start < low:
            self._flow.suppress_window(self._begin)
        self.cursor = min(self.cursor, max(start, low))
        return start >= low

    def reached(self, position: int) -> None:
        """Note that all there is before this offset was delivered: marks of transactions are passed unseen."""
        if not (self._is_closed or self.is_finished):
            self.cursor = max(self.cursor, position)
            self.progress.pass_holes(position)
            self._note_shown()

    # ------------------------------------------------------------------ what the loop asks

    @property
    def is_full(self) -> bool:
        """Whether reading should wait for a transaction to end."""
        return self._outgoing.is_full

    @property
    def committed(self) -> int:
        """Watermark of the last commit."""
        return self._outgoing.committed

    @property
    def is_restoring(self) -> bool:
        """Whether records held at the last commit have not all come again yet."""
        return self.progress.is_replaying

    @property
    def held(self) -> int:
        """Records read and neither released nor referenced in a decision yet."""
        return self.progress.held

    def check(self) -> None:
        """Raise what a transaction in the background ended with."""
        self._outgoing.check()

    async def tick(self, *, at_end: bool) -> None:
        """Do what is due by the clock: a transaction, or letting everything leave at the end of the log."""
        async with self._turn:
            if not self._is_closed:
                await self._tick(at_end=at_end)

    async def _tick(self, *, at_end: bool) -> None:
        self.check()
        if at_end and self.progress.is_replaying:
            self._give_up_vanished(self.progress.next_offset)
        if self.progress.drain is not None and not self.progress.is_replaying:
            await self._carry_out_drain()
        elif at_end and self._is_overdue():
            await self._drain()
        if self._has_news and not self._outgoing.is_busy and self._is_time_to_commit():
            self._outgoing.dispatch(self.progress)
            if self._hand is not None:
                # Whoever was fenced meanwhile hands nothing more over.
                await self._outgoing.settle()

    @property
    def _has_news(self) -> bool:
        # The watermark alone is worth a commit when it passes what is no record: else lag would never be nothing.
        return bool(self._outgoing) or self.progress.watermark > self.committed

    def _is_time_to_commit(self) -> bool:
        passed_s = self._now() - self._outgoing.packed_s
        is_due = passed_s >= self._interval_s or passed_s < 0  # somebody set the clock back
        return is_due and self._is_fit_to_commit

    @property
    def _is_fit_to_commit(self) -> bool:
        # Before, nobody knows what the clock refused among the records that are still to come again.
        return self.progress.is_fit_to_commit and self.cursor >= self._replay_end

    def _is_overdue(self) -> bool:
        oldest = self.progress.oldest
        if self._max_delay_ms is None or oldest is None or self.progress.is_replaying:
            return False
        # The time it was read counts: a backlog of old records that still grows must not be let go each time its end
        # is reached, and who dates a record ahead must not keep the others waiting.
        if self._now() * 1000 - oldest.seen < self._max_delay_ms:
            return False
        # Nobody is let go at a quiet moment with the few who may have come for that: the limit of time yields.
        return self._flow.has_min_population

    # ------------------------------------------------------------------ reading

    async def intake(self, messages: Sequence[Message]) -> None:
        """Take messages in the order of the log; those before the cursor are repeats of a fetch and ignored."""
        async with self._turn:
            if self._is_closed or self.is_finished or not messages:
                return
            if messages[0].offset < self.cursor:
                messages = [message for message in messages if message.offset >= self.cursor]
            await self._intake(messages)

    async def _intake(self, todo: Sequence[Message]) -> None:
        start = 0
        while start < len(todo):
            end = min(start + BLOCK_RECORDS, len(todo))
            if self.progress.drain is not None:
                unread = next((i for i in range(start, end) if todo[i].offset >= self.progress.next_offset), None)
                if unread == start:
                    self._give_up_vanished(self.progress.next_offset)
                    await self._carry_out_drain()
                    continue
                end = end if unread is None else unread
            outcome = self._block(todo[start:end])
            start = end
            if outcome is not None:
                await self._carry_out(outcome)
            self._note_shown()

    def _block(self, messages: Sequence[Message]) -> BlockDecisions | None:
        """Read a block; return what is decided on it, which is still to be carried out."""
        stamps = MessageColumns.of(messages)
        self._check_order(stamps.offsets)
        self._check_anchor(stamps)
        block = self._decoder.decode([message.value for message in messages], messages)
        block = self._flow.apply_quota(block, stamps.offsets[block.index])
        fates = classify_messages(self.progress, stamps, block, self._begin, round(self._now() * 1000))
        for offset, reason in fates.refused:
            self._outgoing.refer(offset, reason)
        self._metrics.records.labels("in", "", self.topic, self.partition).inc(fates.unread)
        self.cursor = messages[-1].offset + 1
        self._give_up_vanished(self.cursor)
        if fates.is_by_clock:
            # Packed before anything is decided that rests on it: a second try may not refuse them.
            self._outgoing.dispatch(self.progress)
        if not len(fates.marks):
            return None
        self._metrics.clip(self.topic, self.partition, block.clipped)
        kept = block if fates.chosen.all() else block.filter(fates.chosen)
        return self._flow.push(kept, fates.marks, fates.fresh)

    def _check_order(self, offsets: Int64Vector) -> None:
        if offsets[0] < self.cursor or (np.diff(offsets) <= 0).any():
            raise GuaranteeError("messages came out of the log's order; nothing was sent")

    def _check_anchor(self, stamps: MessageColumns) -> None:
        """Compare the record at the anchor, when it comes, with the one that stood there at the last commit."""
        anchor = self._anchor
        if anchor is None or stamps.offsets[-1] < anchor.offset:
            return
        self._anchor = None
        place = int(np.searchsorted(stamps.offsets, anchor.offset))
        if anchor.is_contradicted(int(stamps.offsets[place]), int(stamps.timestamps[place])):
            words = f"another record stands at offset {anchor.offset} than before"
            raise LogTruncatedError(f"{self.topic}-{self.partition}", words)

    def _give_up_vanished(self, before: int) -> None:
        """Held records that compaction took before they came again can never be released: say so."""
        if self.progress.promises.has_lost(before):
            raise InputError(
                f"{self.topic}-{self.partition}: records of a cluster of which a part has left are no longer in the "
                "log (compaction?): the rest of it cannot be released; start with --skip-to-end to go on at the end "
                "and count the gap"
            )
        self._suppress(self.progress.vanished(before))

    def _suppress(self, offsets: list[int]) -> None:
        self.progress.complete(offsets)
        for offset in offsets:
            self._outgoing.refer(offset, Reason.SUPPRESSED)

    # ------------------------------------------------------------------ decisions

    async def _carry_out(self, outcome: BlockDecisions) -> None:
        """Let a decision count, once its clusters were dealt with by whoever sees them in this process.

        Until then progress says of them that they are read and held: it may be committed, and a second try decides
        the same.
        """
        if self._hand is not None and outcome.clusters:
            self._is_handing = True
            for cluster in outcome.clusters:
                await self._affirm()
                await self._until_dealt_with(self._hand(cluster))
            self._is_handing = False
        self._decided(outcome)

    def _decided(self, outcome: BlockDecisions) -> None:
        progress = self.progress
        seen = self._release.complete(progress, outcome)
        progress.clusters += len(outcome.clusters)
        progress.course = self._flow.adaptive_state.to_bytes()
        self._metrics.steer(self.topic, self.partition, self._flow.position_weight)
        self._suppress(outcome.suppressed)
        self._outgoing.add(outcome, self._now() - np.array(seen) / 1000)
        if outcome.early:
            self._metrics.early.labels(self.topic, self.partition).inc(outcome.early)

    async def finish(self) -> None:
        """Let everything held leave and take nothing more in: the operator asked for it."""
        async with self._turn:
            if not (self._is_closed or self.is_finished or self.progress.is_replaying):
                await self._drain()
                if self._has_news or self._outgoing.is_busy:
                    await self._outgoing.commit(self.progress)
                self.is_finished = True

    async def _drain(self) -> None:
        # The decision comes from a clock or an operator, and would fall otherwise a second time.
        if self.progress.held:
            self.progress.drain = self.progress.next_offset
            await self._outgoing.commit(self.progress)
            await self._carry_out_drain()

    async def _carry_out_drain(self) -> None:
        await self._carry_out(self._flow.flush())
        self.progress.drain = None
        await self._outgoing.commit(self.progress)

    # ------------------------------------------------------------------ handing over

    async def _affirm(self) -> None:
        """See that nobody has taken the partition over since the last interval, and say that clusters will be shown.

        A worker that slept must not hand over what another one, maybe with another policy, has released meanwhile.
        """
        if self.progress.shown and 0 <= self._now() - self._outgoing.sent_s < self._interval_s:
            return
        self.progress.shown = True
        if self._is_fit_to_commit:
            await self._outgoing.commit(self.progress)
        else:
            await self._outgoing.repeat()

    async def _until_dealt_with(self, handing: Awaitable[None]) -> None:
        """Wait for a customer; what was dealt with before does not wait with him for its commit."""
        task = asyncio.ensure_future(handing)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._interval_s / 2)
                if not task.done() and self._has_news and self._is_time_to_commit():
                    await self._outgoing.commit(self.progress)
            task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _note_shown(self) -> None:
        """Take the mark away where everything that may have been seen is decided again."""
        if self._hand is None and self.progress.next_offset >= self._shown_until:
            self.progress.shown = False

    async def close(self, *, finish: bool) -> None:
        """Let go of the partition; with ``finish`` commit what is decided first."""
        async with self._turn:
            self._is_closed = True
            try:
                if self._hand is not None:
                    is_behind = self.progress.next_offset < self._shown_until
                    self.progress.shown = self.progress.shown and (self._is_handing or is_behind)
                is_marked = self._outgoing.is_marked != self.progress.shown
                has_more = bool(self._outgoing) or self._outgoing.is_busy or is_marked
                if finish and has_more and self._is_fit_to_commit:
                    await self._outgoing.commit(self.progress)
                else:
                    await self._outgoing.abandon()
            finally:
                await self._sink.close()
