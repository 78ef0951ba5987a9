"""The task of one assigned partition: it takes messages, decides on their records, and commits the decisions.

Decisions depend only on the records, their offsets and timestamps: after a restart the same messages give the same
decisions. Two decisions use the clock: a flush, and rejecting a record dated too far ahead. Both are committed before
any decision that depends on them. `PartitionReader` works on whole columns, because a partition reads a hundred
thousand messages per second. Only `PartitionTask` changes the offset tracker.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np
from aiokafka import TopicPartition

from shoal.arrays import BoolVector, Int64Matrix, Int64Vector
from shoal.errors import GuaranteeError, InputError
from shoal.formats import Block, DropReason, Envelope, FaultReason, MessageDecoder, Reason, RecordFault, message_format
from shoal.kafka.broker_time import MAX_AHEAD_MS, ClockCheck
from shoal.kafka.metadata import CommittedState, span_limit
from shoal.kafka.offsets import OffsetState, OffsetTracker, contradicted
from shoal.kafka.transactions import PartitionCounts, RecordCollector, TaskContext, TransactionSink
from shoal.kafka.waits import LONG_S, WaitReason
from shoal.kernels.jit import INTERPRETED_HELD, is_compiled, is_preparing
from shoal.observability import logger
from shoal.policy import Policy
from shoal.streams import (
    BLOCK_RECORDS,
    LARGE_BLOCK_RECORDS,
    AdaptiveState,
    BlockDecisions,
    ClusterRestorer,
    PartitionPipeline,
    release_strategy,
)

MAX_DESCRIBED_BYTES = 10_000
"""Longer messages are counted as rejected without the field at fault, so that they cost no time."""

INTERPRETED_S = 20e-6
"""Time (s) to decide on a record while kernels are interpreted, for each held record; less for most rules."""

INTERPRETED_BLOCK_S = 0.5
"""Time (s) of a block while kernels are interpreted: a revocation and the end of the worker wait for it."""

INTERPRETED_BLOCK_RECORDS = 100
"""Most records of such a block."""

POLL_S = 0.1  # time (s) between two looks whether kernels are compiled
LAG_S = 2.0
"""Time (s) of the messages of one poll from which on a worker lags."""

TOLD_EVERY_MS = 60_000  # time (ms) between two lines of the log that say how many records were rejected as dated ahead

DATED_AHEAD = RecordFault(FaultReason.DATED_AHEAD)
NO_VALUE = RecordFault(FaultReason.TOMBSTONE)
REJECTED_AS_AHEAD = "records rejected: dated more than an hour ahead of the clock of this machine"

_EARLIEST = np.iinfo(np.int64).min
_offset, _timestamp = attrgetter("offset"), attrgetter("timestamp")

log = logger("kafka")


class Message(Envelope, Protocol):
    """The fields of a consumed message that a task reads."""

    @property
    def offset(self) -> int:
        """Offset in the partition."""

    @property
    def value(self) -> bytes | None:
        """The record, or None."""


class PartitionTask:
    """The state of one partition between assignment and revocation; it closes ``sink``.

    Guarantee: each offset with a record is completed at most once. One transaction carries the row (or quarantine
    entry) of a record and the commit that completes its offset: a snapshot of the tracker (`OffsetState`), and all
    results added since the transaction before. Transactions are sent in the order of packing; after one failed, none is
    sent.

    Records of clusters that an earlier task handed over have offsets below ``log_end``. ``counts`` is what earlier
    tasks of this process have counted.
    """

    def __init__(
        self,
        tp: TopicPartition,
        context: TaskContext,
        sink: TransactionSink,
        last_commit: CommittedState,
        *,
        log_end: int = 0,
        counts: PartitionCounts | None = None,
    ) -> None:
        policy = context.policy
        if not last_commit.has_policy(policy.fingerprint):
            last_commit = last_commit.under_policy(policy.fingerprint)
        state, counts = last_commit.state, counts or PartitionCounts(tp.topic, tp.partition)
        self._tp, self._context, self._sink, self._metrics = tp, context, sink, context.metrics
        self._labels: tuple[str, int] = (tp.topic, tp.partition)
        self._first_partition_count = last_commit.first_partition_count
        self.tracker = OffsetTracker.restore(state, last_commit.at_ms + MAX_AHEAD_MS)
        self._collector = RecordCollector(tp, context, sink, last_commit, counts)
        self._hand_over = context.listener.on_decided
        self._may_have_handed_over = state.handed_over_uncommitted
        """Whether the next commit says that clusters decided after it may have been handed over."""
        self._handed_over_until = log_end if state.handed_over_uncommitted else 0
        """An earlier process may have handed over clusters of records before this offset."""
        self._is_handing_over = False
        self._release = release_strategy(policy)
        self._pipeline = restore_pipeline(policy, state)
        self.tracker.adaptive_state = self._pipeline.adaptive_state.to_bytes(self._pipeline.policy)
        self._metrics.add_partition(*self._labels, self._pipeline)
        self._reader = PartitionReader(tp, context, self._pipeline, state, counts)
        # aiokafka revokes partitions in another asyncio task, while the loop may be processing a block.
        self._lock = asyncio.Lock()
        self._clock = ClockCheck(self._ask_broker, context.monotonic_clock, is_too_old=not sink.tells_time)
        self._deferred: Sequence[Message] = ()  # messages that were delivered and wait for the clock
        self._is_closed = self._is_leaving = self._has_unconfirmed_rejection = False
        self.is_drained = False
        """Whether the task has flushed after the end of the log (``commit(flush=True)``). It takes no more messages."""

    @property
    def position(self) -> int:
        """Consumer position (Kafka): offset of the next message to take. Earlier messages are ignored."""
        return self._reader.position

    @property
    def committed_offset(self) -> int:
        """Committed offset of the latest commit; at first, of the commit from which the task continues."""
        return self._collector.committed_offset

    @property
    def has_stopped(self) -> bool:
        """Whether the task takes no more messages: it is closed, or a cluster was not handled."""
        return self._is_closed

    @property
    def is_restoring(self) -> bool:
        """Whether incomplete records, or members of unfinished clusters, must still be read again after a restart."""
        return self.tracker.is_restoring

    @property
    def waiting_count(self) -> int:
        """Number of records that were read and are not yet published, suppressed or quarantined."""
        return self.tracker.waiting_count

    @property
    def oldest_held_s(self) -> float | None:
        """How long ago this process read the oldest waiting record (s); None if none waits or all is not read again."""
        oldest = None if self.tracker.is_restoring else self.tracker.oldest
        return None if oldest is None else self._context.monotonic_clock() - oldest.read_ms / 1000

    @property
    def wait_reason(self) -> WaitReason | None:
        """Why records wait for longer than they should; None if none does."""
        if self._deferred and self._clock.behind_ms is not None:
            return WaitReason.CLOCK if self._clock.behind_ms else WaitReason.BROKER_TIME
        if self._waits_for_compiler:
            return WaitReason.KERNELS
        max_delay_s = self._context.policy.require_stream().max_delay_s
        if (self.oldest_held_s or 0.0) < (max_delay_s or 0.0) + LONG_S:
            return None
        if self._collector.is_full:
            return WaitReason.OUTPUT
        if max_delay_s is None:
            return WaitReason.DELTA
        return WaitReason.UNREAD if self._pipeline.has_min_population else WaitReason.MIN_POPULATION

    @property
    def clock_behind_s(self) -> int:
        """How far the clock of this machine is behind the broker's while records wait for it (s); else 0."""
        return round((self._clock.behind_ms or 0) / 1000) if self._deferred else 0

    @property
    def is_full(self) -> bool:
        """Whether reading should pause until a transaction ends; never if it must read on to be able to commit."""
        return bool(self._deferred) or (self._collector.is_full and (self._collector.is_busy or self._can_commit))

    @property
    def is_sending(self) -> bool:
        """Whether a transaction is being sent; its end frees memory."""
        return self._collector.is_busy

    @property
    def next_commit(self) -> tuple[float, asyncio.Task[None] | None]:
        """Time until `punctuate` packs a commit (s), infinite if it cannot; and the transaction that it waits for."""
        if not self._collector.is_busy:
            return self._commit_wait_s, None
        is_awaited = self._collector.has_unpacked or self._collector.is_full
        return math.inf, self._collector.sending if is_awaited else None

    def restore(self, log_start: int) -> bool:
        """Call before the first message: move the consumer position back; see `PartitionReader.restore`."""
        return self._reader.restore(log_start)

    async def process(self, messages: Sequence[Message]) -> None:
        """Take messages in the order of the log. Messages below `position` are ignored.

        It asks no broker for its time, as `punctuate` does: other partitions wait for its end.
        """
        async with self._lock:
            if self._is_closed or self.is_drained:
                return
            new = [*self._deferred, *self._reader.new_messages(messages)] if self._deferred else messages
            self._deferred = await self._process(new, may_ask=False)

    async def _process(self, messages: Sequence[Message], *, may_ask: bool) -> Sequence[Message]:
        """Take messages; return those that wait for the clock."""
        new, start, began_s = self._reader.new_messages(messages), 0, self._context.monotonic_clock()
        while start < len(new) and not (self.has_stopped or self._is_leaving):
            if not is_compiled() and self._context.monotonic_clock() - began_s > LAG_S:
                _say_that_worker_lags()
            if self._waits_for_compiler:
                await asyncio.sleep(POLL_S)
                if self._commit_wait_s == 0:
                    await self._commit()
            elif (taken := await self._process_slice(new[start:], may_ask=may_ask)) is None:
                return new[start:]
            else:
                start += taken
        return ()

    @property
    def _waits_for_compiler(self) -> bool:
        """Whether decisions on the held records would take long as plain Python, and will soon take little time."""
        return is_preparing() and self._pipeline.waiting_count > INTERPRETED_HELD

    async def _process_slice(self, messages: Sequence[Message], *, may_ask: bool) -> int | None:
        """Process the first block of these messages; return how many were taken; None: the first waits for a clock."""
        now_ms = round(self._context.wall_clock() * 1000)
        held = self._pipeline.waiting_count
        is_ahead = is_any_ahead(messages[:LARGE_BLOCK_RECORDS], now_ms)
        messages = messages[: block_length(held, is_small=is_ahead or self._hand_over is not None)]
        if self.tracker.flush_at_offset is not None:
            first_unread_offset = self.tracker.next_offset
            new = (i for i, message in enumerate(messages) if message.offset >= first_unread_offset)
            restored_count = next(new, len(messages))
            if restored_count == 0:
                self._suppress_compacted(first_unread_offset)
                await self._flush_committed()
                return 0
            messages = messages[:restored_count]
        if is_ahead and not (messages := await self._takeable(messages, now_ms, may_ask=may_ask)):
            return None
        push = self._decode(messages, now_ms)
        if push is not None:
            await self._hand_over_and_apply(await run_kernels(push))
        self._note_read()
        return len(messages)

    async def _takeable(self, messages: Sequence[Message], now_ms: int, *, may_ask: bool) -> Sequence[Message]:
        """Return the messages before the first that must not be refused now."""
        first_unread_offset = self.tracker.next_offset
        if messages[0].offset < first_unread_offset:
            return [message for message in messages if message.offset < first_unread_offset]
        if not is_any_ahead(messages, now_ms):
            return messages
        # All before it was delivered; control records are none that a commit would have to wait for.
        self._reader.position = messages[0].offset
        return messages[: await self._clock.first_that_waits(messages, now_ms, may_ask=may_ask)]

    async def _ask_broker(self) -> int | None:
        """Return what time it is for the broker (ms), after a commit that tells it; None without an answer."""
        self._suppress_compacted(self.tracker.next_offset)
        if not self._can_commit:
            return None
        await self._commit()
        return await self._sink.broker_time_ms()

    def _decode(self, messages: Sequence[Message], now_ms: int) -> Callable[[], BlockDecisions] | None:
        """Decode a block; return what decides on its records, or None without records. The caller applies decisions."""
        block, classified = self._reader.read(messages, self.tracker, now_ms)
        classified.apply_to(self.tracker, int(self._context.monotonic_clock() * 1000))  # never later than now
        for rejection in classified.rejections:
            self._collector.add_unpublished(rejection.offset, rejection.reason)
        self._collector.add_dropped(reason for _, reason in classified.dropped)
        self._suppress_compacted(self.position)
        if any(rejection.is_future for rejection in classified.rejections):
            # A restart may reject other records, so this rejection is committed before decisions that depend on it.
            self._pack_commit()
            self._has_unconfirmed_rejection = True
        if not len(classified.expiry_keys):
            return None
        self._metrics.count_clipped(*self._labels, block.clipped)
        pushed = block if classified.chosen.all() else block.filter(classified.chosen)
        return partial(self._pipeline.push, pushed, classified.expiry_keys, classified.is_undecided)

    def _suppress_compacted(self, before: int) -> None:
        """Suppress incomplete records below ``before`` that compaction removed."""
        if self.tracker.unfinished.has_missing_members(before):
            raise InputError(
                f"{self._tp.topic}-{self._tp.partition}: records of a partly released cluster are missing from the log "
                "(compacted?): the cluster cannot be released in full; start with --skip-to-end to continue at the end "
                "and count skipped offsets"
            )
        self._suppress(self.tracker.lost_to_compaction(before))

    def _suppress(self, offsets: list[int]) -> None:
        self.tracker.complete(offsets)
        for offset in offsets:
            self._collector.add_unpublished(offset, Reason.SUPPRESSED)

    async def _hand_over_and_apply(self, decisions: BlockDecisions) -> bool:
        """Apply decisions once their clusters are handled; return False if one is not: the task takes nothing more."""
        # A commit during the hand-over lists these records as incomplete. A restart decides the same.
        if self._hand_over is not None:
            for cluster in decisions.clusters:
                self._is_handing_over = True
                await self._ensure_still_owner()
                if not await self._until_handled(self._hand_over(self._tp.partition, cluster)):
                    self._is_closed = True
                    return False
            self._is_handing_over = False
        read_ms = self._release.complete(self.tracker, decisions)
        self.tracker.next_cluster_number += len(decisions.clusters)
        self.tracker.adaptive_state = self._pipeline.adaptive_state.to_bytes(self._pipeline.policy)
        self._metrics.set_position_weight(*self._labels, self._pipeline.position_weight)
        self._suppress(decisions.suppressed)
        self._collector.add(decisions, self._context.monotonic_clock() - np.array(read_ms) / 1000)
        if decisions.early_count:
            self._metrics.early.labels(*self._labels).inc(decisions.early_count)
        return True

    async def _until_handled(self, handling: Awaitable[bool]) -> bool:
        """Wait until a cluster was handled, and meanwhile commit earlier decisions in the commit interval."""
        waiter = asyncio.ensure_future(handling)
        try:
            while not waiter.done():
                await asyncio.wait({waiter}, timeout=self._context.commit_interval_s / 2)
                if not waiter.done() and self._commit_wait_s == 0:
                    await self._commit()
            return waiter.result()
        finally:
            waiter.cancel()
            await asyncio.wait({waiter})

    async def _ensure_still_owner(self) -> None:
        """Prove ownership by a commit that says that clusters may have been handed over; it lasts for the interval.

        Guarantee: the commit fails if another worker owns the partition, so nothing is handed over that it has
        released.
        """
        if self._has_unconfirmed_rejection:
            await self._collector.wait_until_committed()
            self._has_unconfirmed_rejection = False
        age_s = self._context.wall_clock() - self._collector.confirmed_at_s
        if self._may_have_handed_over and 0 <= age_s < self._context.commit_interval_s:
            return
        self._may_have_handed_over = True
        if self._can_commit:
            await self._commit()
        else:
            await self._collector.recommit_as_handed_over()

    @property
    def _can_commit(self) -> bool:
        """Whether all messages up to the restored commit were read: a commit lists rejected future timestamps."""
        return self.tracker.can_commit and self._reader.has_restored

    @property
    def _has_uncommitted_state(self) -> bool:
        """Whether there is anything to commit; control records alone are enough, or tools would report a lag."""
        return self._collector.has_unpacked or self.tracker.offset_to_commit > self.committed_offset

    @property
    def _commit_wait_s(self) -> float:
        """Time until a commit is due (s), whether or not a transaction is being sent; infinite if none can be made.

        Decisions that fill a transaction are committed earlier, so that a slow output does not pass the transaction
        timeout.
        """
        if not (self._has_uncommitted_state and self._can_commit):
            return math.inf
        return 0.0 if self._collector.is_full else self._collector.interval_left_s

    @property
    def _should_flush(self) -> bool:
        """Whether the oldest record has waited for `max_delay_s`, and enough subjects wait for a flush."""
        # Counted from reading. By timestamps, old records would be flushed at each poll, and one from the future would
        # delay all.
        max_delay_s, held_s = self._context.policy.require_stream().max_delay_s, self.oldest_held_s
        if max_delay_s is None or held_s is None or held_s < max_delay_s:
            return False
        return self._pipeline.has_min_population  # with few subjects, all but one could be an attacker's

    async def punctuate(self, delivered_up_to: int | None = None, log_end: int | None = None) -> None:
        """Commit, or flush, if that is due. A flush that was committed before a restart runs when all was read again.

        Every record before ``delivered_up_to`` was delivered to `process`. A new flush starts only at ``log_end``.
        """
        async with self._lock:
            if self._is_closed:
                return
            if self._deferred:
                self._deferred = await self._process(self._deferred, may_ask=True)
            if delivered_up_to is not None and not (self.is_drained or self._deferred):
                self._advance_position(delivered_up_to)
            self._collector.check()
            at_end = log_end is not None and 0 <= log_end <= self.position
            if at_end and self.tracker.is_restoring:
                self._suppress_compacted(self.tracker.next_offset)
            if not self._waits_for_compiler:
                await self._flush_if_due(at_end=at_end)
            if self._commit_wait_s == 0 and not self._collector.is_busy:
                self._pack_commit()
                if self._hand_over is not None:
                    # A fenced task fails here and hands nothing over.
                    await self._collector.wait_until_committed()

    async def _flush_if_due(self, *, at_end: bool) -> None:
        if self.tracker.flush_at_offset is not None and not self.tracker.is_restoring:
            await self._flush_committed()
        elif at_end and self._should_flush:
            await self._flush()

    def _advance_position(self, delivered_up_to: int) -> None:
        self._reader.position = max(self.position, delivered_up_to)
        self.tracker.skip_offset_gaps(delivered_up_to)
        self._note_read()

    def _note_read(self) -> None:
        """Without a listener, note when all records were read of clusters that may have been handed over before."""
        if self._hand_over is None and self.tracker.next_offset >= self._handed_over_until:
            self._may_have_handed_over = False

    async def commit(self, *, flush: bool = False) -> None:
        """Commit the decisions, and wait until they are committed; do nothing before all was read again.

        With ``flush`` all incomplete records are released or suppressed first, and the task takes no more messages.
        """
        async with self._lock:
            if self._is_closed or self.is_drained or self.tracker.is_restoring:
                return
            if flush:
                await self._flush()
            elif not self._can_commit:
                return
            if self._has_uncommitted_state or self._collector.is_busy:
                await self._commit()
            self.is_drained = flush and not self._is_closed

    def _pack_commit(self) -> None:
        """Do steps 1 to 3 of a commit; the other steps follow in the background."""
        self._collector.pack_and_send(self._state_to_commit)

    def _state_to_commit(self, at_ms: int) -> CommittedState:
        state = self.tracker.snapshot(at_ms + MAX_AHEAD_MS, handed_over_uncommitted=self._may_have_handed_over)
        return CommittedState(state, self._context.policy.fingerprint, at_ms, self._first_partition_count)

    async def _commit(self) -> None:
        self._pack_commit()
        await self._collector.wait_until_committed()

    async def _flush(self) -> None:
        """Commit the decision to flush, because a restart would not repeat it; then flush."""
        if self.tracker.waiting_count:
            self.tracker.flush_at_offset = self.tracker.next_offset
            await self._commit()
            await self._flush_committed()

    async def _flush_committed(self) -> None:
        if await self._hand_over_and_apply(await run_kernels(self._pipeline.flush)):
            self.tracker.flush_at_offset = None
            await self._commit()

    async def close(self, *, commit: bool) -> None:
        """Close the producer of the partition; with ``commit``, commit first if the task can commit yet."""
        self._is_leaving = True  # `process` ends after the block that it decides on
        async with self._lock:
            self._is_closed = True
            try:
                has_read_all = self.tracker.next_offset >= self._handed_over_until
                if self._hand_over is not None and not self._is_handing_over and has_read_all:
                    self._may_have_handed_over = False  # the last commit covers every cluster that was handed over
                packed = self._collector.last_packed.state
                has_flag_changed = packed.handed_over_uncommitted != self._may_have_handed_over
                # A worker that reads held records again must find them in the commit, to count them once.
                has_read_more = self.tracker.next_offset > packed.next_offset
                has_more = self._collector.has_unpacked or self._collector.is_busy or has_flag_changed or has_read_more
                if commit and has_more and self._can_commit:
                    await self._commit()
                else:
                    await self._collector.cancel()
            finally:
                await self._sink.close()


def restore_pipeline(policy: Policy, state: OffsetState) -> PartitionPipeline:
    """Return the pipeline of a partition in the state of its last commit; incomplete records are to be read again."""
    return PartitionPipeline(
        policy,
        message_format(policy).encoder(policy),
        max_offset_span=span_limit(policy),
        next_cluster_number=state.next_cluster_number,
        adaptive_state=AdaptiveState.from_bytes(state.adaptive_state, policy),
        restorer=ClusterRestorer(state.unfinished_clusters, state.released_up_to),
    )


async def run_kernels(work: Callable[[], BlockDecisions]) -> BlockDecisions:
    """Return the result of ``work``: in a thread while kernels are interpreted, so that heartbeats go on."""
    if is_compiled():
        return work()
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    finally:
        if not running.done():  # cancelled: nothing else may use the pipeline before the work has ended
            await asyncio.wait({running})


@cache
def _say_that_worker_lags() -> None:
    """Log it, once."""
    log.info("records arrive faster than they are processed, until the faster form of the kernels is in use")


def is_any_ahead(messages: Sequence[Message], now_ms: int) -> bool:
    """Return whether one of these messages is dated too far ahead of a time (ms)."""
    latest_ms: int = max(map(_timestamp, messages))
    return latest_ms > now_ms + MAX_AHEAD_MS


def block_length(held: int, *, is_small: bool) -> int:
    """Return how many messages become one block.

    If a commit may come between reading a block and deciding on it, all offsets of the block are incomplete in it.
    """
    if not is_compiled():
        return min(INTERPRETED_BLOCK_RECORDS, math.ceil(INTERPRETED_BLOCK_S / INTERPRETED_S / (held + 1)))
    return BLOCK_RECORDS if is_small else LARGE_BLOCK_RECORDS


class PartitionReader:
    """Takes messages in the order of the log, decodes, classifies and counts them. It changes no offset."""

    def __init__(
        self,
        tp: TopicPartition,
        context: TaskContext,
        pipeline: PartitionPipeline,
        state: OffsetState,
        counts: PartitionCounts,
    ) -> None:
        self._decoder, self._metrics = context.decoder, context.metrics
        self._labels: tuple[str, int] = (tp.topic, tp.partition)
        self._name = f"{tp.topic}-{tp.partition}"
        self._pipeline, self._counts = pipeline, counts
        self._has_taxonomy = any(attribute.taxonomy is not None for attribute in pipeline.policy.clustered)
        self.position = state.committed_offset  # offset from which the next message is taken
        self._begin, self._released_from = state.committed_offset, state.released_from
        self._reference, self._restored_until = state.reference, state.next_offset
        self._untold_ahead_count, self._told_ahead_ms = 0, -TOLD_EVERY_MS

    @property
    def has_restored(self) -> bool:
        """Whether all messages that were read before the restored commit were read again."""
        return self.position >= self._restored_until

    def restore(self, log_start: int) -> bool:
        """Move the position back to where a restart must begin, in a log that begins at ``log_start``.

        Return False if the log lost the start of the quota window: its records are suppressed.
        """
        if self._reference is not None and log_start <= self._reference.offset < self.position:
            self.position = self._reference.offset
        window = self._pipeline.quota_window_start(self._begin)
        if window is None:
            return True
        start = max(window, self._released_from)
        if start < log_start:
            self._pipeline.suppress_window(self._begin)
        self.position = min(self.position, max(start, log_start))
        return start >= log_start

    def new_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages from the position on. Messages below it are ignored."""
        if not messages or messages[0].offset >= self.position:
            return messages
        return [message for message in messages if message.offset >= self.position]

    def read(self, messages: Sequence[Message], tracker: OffsetTracker, now_ms: int) -> tuple[Block, Classification]:
        """Decode and classify a block of messages, and move the position behind it."""
        n, counted_until = len(messages), self._counts.read_until
        offsets = np.fromiter(map(_offset, messages), np.int64, n)
        timestamps = np.fromiter(map(_timestamp, messages), np.int64, n)
        if offsets[0] < self.position or (np.diff(offsets) <= 0).any():
            raise GuaranteeError("messages are not in the order of the log; nothing of their block was sent")
        self._check_reference(offsets, timestamps)
        block = self._decoder.decode([message.value for message in messages], messages)
        if self._has_taxonomy:
            first_new = max(tracker.next_offset, counted_until)
            is_new = (offsets >= first_new) & (timestamps <= now_ms + MAX_AHEAD_MS)
            self._count_unknown(block, is_new[block.index])
        block = self._pipeline.apply_quota(block, offsets[block.index])
        self.position = messages[-1].offset + 1
        classified = classify_messages(tracker, offsets, timestamps, block, self._begin, now_ms)
        self._count_refusals(messages, block, classified)
        new = (rejection for rejection in classified.rejections if rejection.offset >= counted_until)
        self._count_ahead(sum(rejection.is_future for rejection in new), now_ms)
        self._metrics.records.labels("in", "", *self._labels).inc(classified.count_new(counted_until))
        self._counts.read_until = max(counted_until, self.position)
        return block, classified

    def _count_unknown(self, block: Block, is_new: BoolVector) -> None:
        """Count the values that a taxonomy lacks, of records that are read for the first time."""
        counts = self._pipeline.count_unknown(block)
        if counts and not is_new.all():
            counts = self._pipeline.count_unknown(block.filter(is_new))
        self._metrics.count_unknown(*self._labels, counts)

    def _count_refusals(self, messages: Sequence[Message], block: Block, classified: Classification) -> None:
        """Count the messages that are rejected now. Those above a quota are not counted: they are suppressed."""
        for index, reason in block.rejected:
            is_new = messages[index].offset >= self._counts.read_until
            if is_new and reason is not Reason.SUPPRESSED and classified.is_uncompleted[index]:
                self._metrics.count_refused(reason.value, _find_faults(self._decoder, messages[index]))

    def _count_ahead(self, count: int, now_ms: int) -> None:
        """Count records that are rejected for their timestamps; the log says it at most every `TOLD_EVERY_MS`."""
        if not count:
            return
        self._metrics.dated_ahead.labels(*self._labels).inc(count)
        self._metrics.count_refused(Reason.INVALID.value, [DATED_AHEAD], count)
        self._untold_ahead_count += count
        if not 0 <= now_ms - self._told_ahead_ms < TOLD_EVERY_MS:
            log.warning(REJECTED_AS_AHEAD, partition=self._name, count=self._untold_ahead_count)
            self._untold_ahead_count, self._told_ahead_ms = 0, now_ms

    def _check_reference(self, offsets: Int64Vector, timestamps: Int64Vector) -> None:
        """At its offset, compare the record read with the reference record of the last commit."""
        reference = self._reference
        if reference is None or offsets[-1] < reference.offset:
            return
        self._reference = None
        index = int(np.searchsorted(offsets, reference.offset))
        if reference.is_contradicted(int(offsets[index]), int(timestamps[index])):
            raise contradicted(self._name, reference)


def _find_faults(decoder: MessageDecoder, message: Message) -> list[RecordFault]:
    """Return what is wrong with a message; an empty list if that is not known."""
    if message.value is None:
        return [NO_VALUE]
    return [] if len(message.value) > MAX_DESCRIBED_BYTES else decoder.explain(message.value, message)


class Rejection(NamedTuple):
    """A message that is not pushed. ``is_future``: rejected for its timestamp (ms), not for its content."""

    offset: int
    timestamp: int
    reason: Reason
    is_future: bool


@dataclass(frozen=True, slots=True)
class Classification:
    """The n messages of a block, in the order of the log, classified. Times are ms."""

    offsets: Int64Vector
    timestamps: Int64Vector
    is_uncompleted: BoolVector  # shape (n,): whether the offset of each message is unread or incomplete
    is_unread: BoolVector  # shape (n,): whether each message is unread and not dropped
    stream_times: Int64Vector  # shape (n,): stream time just before each message
    stream_time: int  # stream time after the block
    chosen: BoolVector  # which of the accepted records of the block are pushed
    is_undecided: BoolVector
    """Shape (pushed,): false for a record that was completed before a restart: it only takes its position."""
    expiry_keys: Int64Matrix  # shape (pushed, 2): stream time and offset of each pushed record
    rejections: list[Rejection]  # uncompleted messages that are not pushed and not dropped, in order
    dropped: list[tuple[int, DropReason]]  # offsets of the uncompleted messages that are dropped, and why; in order
    known_future: BoolVector
    """Shape (n,): completed messages that were rejected before a restart for a timestamp in the future."""

    def count_new(self, counted_until: int) -> int:
        """Return how many messages are unread, not dropped, and not before this offset: earlier tasks read those."""
        return int(np.count_nonzero(self.is_unread & (self.offsets >= counted_until)))

    def apply_to(self, tracker: OffsetTracker, read_ms: int) -> None:
        """Update the tracker with the messages read at this time (monotonic), the rejections and the drops."""
        offsets, timestamps, known, marked = self.offsets, self.timestamps, self.known_future, self.is_uncompleted
        tracker.future_timestamps.note(offsets[known].tolist(), timestamps[known].tolist())
        tracker.stream_time = self.stream_time
        tracker.mark_read(
            offsets[marked].tolist(), timestamps[marked].tolist(), self.stream_times[marked].tolist(), read_ms
        )
        if tracker.unfinished.is_restoring:
            tracker.unfinished.read_again(offsets.tolist(), timestamps.tolist(), self.stream_times.tolist(), read_ms)
        for rejection in self.rejections:
            if rejection.is_future:
                tracker.reject_future_timestamp(rejection.offset, rejection.timestamp)
            else:
                tracker.complete((rejection.offset,))
        tracker.complete([offset for offset, _ in self.dropped])


def classify_messages(
    tracker: OffsetTracker, offsets: Int64Vector, timestamps: Int64Vector, block: Block, begin: int, now_ms: int
) -> Classification:
    """Classify the n messages from which a block was decoded; the tracker is as before the block, and not changed.

    A record completed before the restart is pushed again, to take its position again, but not below ``begin``: there it
    is unknown which records were rejected for their timestamps and took no position.
    """
    unread = offsets >= tracker.next_offset
    is_uncompleted = unread if unread.all() else unread | tracker.are_incomplete(offsets)
    accepted = np.zeros(len(offsets), np.bool_)
    accepted[block.index] = True
    is_dropped = np.zeros(len(offsets), np.bool_)
    is_dropped[[index for index, _ in block.dropped]] = True
    # An incomplete record was accepted before, at another time, and stays accepted.
    is_future = unread & accepted & (timestamps > now_ms + MAX_AHEAD_MS)
    pushed = accepted & ~is_future
    known_future = np.zeros(len(offsets), np.bool_)
    if not is_uncompleted.all():
        again = np.flatnonzero(~is_uncompleted & accepted)
        known_future[again] = tracker.future_timestamps.were_rejected(offsets[again], timestamps[again])
        pushed[again] = (offsets[again] >= begin) & ~known_future[again]
    after = np.maximum.accumulate(np.where(pushed, timestamps, _EARLIEST))
    np.maximum(after, tracker.stream_time, out=after)
    reasons = dict(block.rejected)
    has_rejections = bool(reasons) or is_future.any()
    return Classification(
        offsets=offsets,
        timestamps=timestamps,
        is_uncompleted=is_uncompleted,
        is_unread=unread & ~is_dropped,
        stream_times=np.concatenate(([tracker.stream_time], after[:-1])),
        stream_time=int(after[-1]),
        chosen=pushed[block.index],
        is_undecided=is_uncompleted[pushed],
        expiry_keys=np.column_stack((after[pushed], offsets[pushed])),
        rejections=[
            # By their content, or else by their timestamps.
            Rejection(int(offsets[i]), int(timestamps[i]), reasons.get(i) or Reason.INVALID, is_future=i not in reasons)
            for i in (np.flatnonzero(is_uncompleted & ~pushed & ~is_dropped).tolist() if has_rejections else ())
        ],
        dropped=[(int(offsets[index]), reason) for index, reason in block.dropped if is_uncompleted[index]],
        known_future=known_future,
    )
