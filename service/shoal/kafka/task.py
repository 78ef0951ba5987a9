"""The task of one assigned partition: it takes messages, decides on their records, and commits the decisions.

A consumer loop calls `process` and `punctuate`. Decisions depend only on the records, their offsets and timestamps:
after a restart the same messages give the same decisions. Two decisions use the clock: a flush (also on the operator's
request), and rejecting a record dated too far ahead. Both are committed before any decision that depends on them.

Which messages of a block are pushed to the pipeline, and which are rejected or dropped.

`classify_messages` reads the offset tracker and returns a `Classification`. The partition task, which alone changes the
tracker, then calls `apply_classification`. All steps work on whole columns, because a partition reads a hundred
thousand messages per second.

The consumer position of a task: which messages it takes; and the check that the log is still the same.

When the task of a partition commits, and when it should read no further until it has.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np

from shoal.arrays import BoolVector, Int64Matrix, Int64Vector
from shoal.errors import GuaranteeError, InputError
from shoal.formats import Block, DropReason, Envelope, MessageDecoder, Reason, RecordFault, message_format
from shoal.kafka.cipher import NO_ENCRYPTION, MetadataCipher
from shoal.kafka.cluster_listener import ClusterListener
from shoal.kafka.metadata import CommittedState, OutputRows, span_limit
from shoal.kafka.offsets import LogTruncatedError, OffsetState, OffsetTracker
from shoal.kafka.transactions import PartitionCounts, RecordCollector, TransactionBatch, TransactionSink
from shoal.observability import Metrics, logger
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

__all__ = [
    "MAX_AHEAD_MS",
    "Classification",
    "CommitTiming",
    "Message",
    "MessageColumns",
    "PartitionReader",
    "PartitionTask",
    "Rejection",
    "apply_classification",
    "block_length",
    "classify_messages",
    "restore_pipeline",
]

MAX_AHEAD_MS = 3_600_000
"""A record with a timestamp further ahead of the wall clock is invalid: it would expire all records that wait."""

_EARLIEST = np.iinfo(np.int64).min
_offset, _timestamp = attrgetter("offset"), attrgetter("timestamp")


class Message(Envelope, Protocol):
    """The fields of a consumed message that a task reads."""

    @property
    def offset(self) -> int:
        """Offset in the partition."""

    @property
    def value(self) -> bytes | None:
        """The record, or None."""


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Columns of n messages, in the order of the log.

    Attributes
    ----------
    offsets, timestamps : ndarray of int64, shape (n,)
        Offsets, and broker timestamps (ms).
    """

    offsets: Int64Vector
    timestamps: Int64Vector

    @classmethod
    def of(cls, messages: Sequence[Message]) -> MessageColumns:
        """Collect them from messages."""
        n = len(messages)
        return cls(
            np.fromiter(map(_offset, messages), np.int64, n),
            np.fromiter(map(_timestamp, messages), np.int64, n),
        )

    def check_order(self, position: int) -> None:
        """Raise `GuaranteeError` unless the offsets ascend from ``position`` on."""
        if self.offsets[0] < position or (np.diff(self.offsets) <= 0).any():
            raise GuaranteeError("messages are not in the order of the log; nothing of its block was sent")

    def chosen(self, mask: BoolVector) -> MessageColumns:
        """Return the columns of the messages that a mask, shape (n,), chooses."""
        return MessageColumns(self.offsets[mask], self.timestamps[mask])


class Rejection(NamedTuple):
    """A message that is not pushed. ``is_future``: rejected for its timestamp (ms), not for its content."""

    offset: int
    timestamp: int
    reason: Reason
    is_future: bool


@dataclass(frozen=True, slots=True)
class Classification:
    """The messages of a block, classified.

    Attributes
    ----------
    columns : MessageColumns
        Of the n messages.
    is_open : ndarray of bool, shape (n,)
        Whether the offset of each message is unread or incomplete.
    stream_times : ndarray of int64, shape (n,)
        Stream time (ms) just before each message.
    stream_time : int
        Stream time after the block.
    chosen : ndarray of bool, shape (accepted records of the block,)
        Which of them are pushed.
    is_undecided : ndarray of bool, shape (pushed,)
        False for a record that was completed before a restart: it only takes its position.
    expiry_keys : ndarray of int64, shape (pushed, 2)
        Stream time (ms) and offset of each pushed record.
    rejections : list of Rejection
        Open messages that are not pushed and not dropped, in order.
    dropped : list of (int, DropReason)
        Offsets of the open messages that are dropped, and why; in order.
    known_future : MessageColumns
        Completed messages that were rejected before a restart for a timestamp in the future.
    new_count : int
        Number of messages that are not dropped, are unread, and were read by no earlier task of this process.
    """

    columns: MessageColumns
    is_open: BoolVector
    stream_times: Int64Vector
    stream_time: int
    chosen: BoolVector
    is_undecided: BoolVector
    expiry_keys: Int64Matrix
    rejections: list[Rejection]
    dropped: list[tuple[int, DropReason]]
    known_future: MessageColumns
    new_count: int

    @property
    def rejects_future(self) -> bool:
        """Whether a message is rejected for its timestamp: at a later time it could be accepted."""
        return any(one.is_future for one in self.rejections)


def block_length(messages: Sequence[Message], now_ms: int, *, hands_over: bool) -> int:
    """Return how many messages, from the first on, become one block that is read at this time (ms).

    Large blocks take less time. But a block may be committed between reading and deciding: if a record is rejected for
    its timestamp, and while clusters are handed over to a listener. All its offsets are then committed as incomplete,
    and the limit on their span allows `BLOCK_RECORDS` of them.
    """
    latest = max(map(_timestamp, messages[:LARGE_BLOCK_RECORDS]))
    return BLOCK_RECORDS if hands_over or latest > now_ms + MAX_AHEAD_MS else LARGE_BLOCK_RECORDS


def classify_messages(
    tracker: OffsetTracker, columns: MessageColumns, block: Block, begin: int, now_ms: int, counted_until: int = 0
) -> Classification:
    """Classify the messages of a block.

    Parameters
    ----------
    tracker : OffsetTracker
        Before the block. It is not changed.
    columns : MessageColumns
        Of the n messages.
    block : Block
        The records decoded from them.
    begin : int
        Committed offset at which this process began. A record that was completed before the restart is pushed again, so
        that it takes its position again. A record before ``begin`` is not: there it is not known which records were
        rejected for their timestamps and took no position.
    now_ms : int
        Wall clock (ms).
    counted_until : int
        What is before this offset was read by an earlier task of this process.
    """
    offsets, timestamps = columns.offsets, columns.timestamps
    unread = offsets >= tracker.next_offset
    is_open = unread if unread.all() else unread | tracker.are_incomplete(offsets)
    accepted = np.zeros(len(offsets), np.bool_)
    accepted[block.index] = True
    is_dropped = np.zeros(len(offsets), np.bool_)
    is_dropped[[index for index, _ in block.dropped]] = True
    # An incomplete record was accepted before, at another time, and stays accepted.
    is_future = unread & accepted & (timestamps > now_ms + MAX_AHEAD_MS)
    pushed = accepted & ~is_future
    known_future = np.zeros(len(offsets), np.bool_)
    if not is_open.all():
        again = np.flatnonzero(~is_open & accepted)
        known_future[again] = tracker.future_timestamps.were_rejected(offsets[again], timestamps[again])
        pushed[again] = (offsets[again] >= begin) & ~known_future[again]
    after = np.maximum.accumulate(np.where(pushed, timestamps, _EARLIEST))
    np.maximum(after, tracker.stream_time, out=after)
    return Classification(
        columns=columns,
        is_open=is_open,
        stream_times=np.concatenate(([tracker.stream_time], after[:-1])),
        stream_time=int(after[-1]),
        chosen=pushed[block.index],
        is_undecided=is_open[pushed],
        expiry_keys=np.column_stack((after[pushed], offsets[pushed])),
        rejections=(
            _rejections(columns, is_open & ~pushed & ~is_dropped, block) if block.rejected or is_future.any() else []
        ),
        dropped=[(int(offsets[index]), reason) for index, reason in block.dropped if is_open[index]],
        known_future=columns.chosen(known_future),
        new_count=int(np.count_nonzero(unread & ~is_dropped & (offsets >= counted_until))),
    )


def apply_classification(tracker: OffsetTracker, classified: Classification, read_ms: int) -> None:
    """Update the tracker with the messages read at this time (ms, monotonic), the rejections and the drops."""
    columns, is_open, known_future = classified.columns, classified.is_open, classified.known_future
    tracker.future_timestamps.note(known_future.offsets.tolist(), known_future.timestamps.tolist())
    tracker.stream_time = classified.stream_time
    opened, stream_times = columns.chosen(is_open), classified.stream_times
    tracker.mark_read(opened.offsets.tolist(), opened.timestamps.tolist(), stream_times[is_open].tolist(), read_ms)
    if tracker.unfinished.is_restoring:
        timestamps = columns.timestamps.tolist()
        tracker.unfinished.read_again(columns.offsets.tolist(), timestamps, stream_times.tolist(), read_ms)
    for rejection in classified.rejections:
        if rejection.is_future:
            tracker.reject_future_timestamp(rejection.offset, rejection.timestamp)
        else:
            tracker.complete((rejection.offset,))
    tracker.complete([offset for offset, _ in classified.dropped])


def _rejections(columns: MessageColumns, rejected: BoolVector, block: Block) -> list[Rejection]:
    """Reject messages by their content, or else by their timestamps; in order."""
    reasons = dict(block.rejected)
    return [
        Rejection(
            int(columns.offsets[index]),
            int(columns.timestamps[index]),
            reasons.get(index) or Reason.INVALID,
            is_future=index not in reasons,
        )
        for index in np.flatnonzero(rejected).tolist()
    ]


MAX_DESCRIBED_BYTES = 10_000
"""Longer messages are counted as rejected without the field at fault, so that they cost no time."""

TOLD_EVERY_MS = 10_000
"""Time (ms) between two lines of the log that say how many records were rejected as dated ahead."""

DATED_AHEAD = RecordFault("dated more than an hour ahead")
NO_VALUE = RecordFault("no value")
REJECTED_AS_AHEAD = "records rejected: dated more than an hour ahead of the clock of this machine"

log = logger("kafka")


def restore_pipeline(policy: Policy, state: OffsetState) -> PartitionPipeline:
    """Return the pipeline of a partition in the state of its last commit; incomplete records must still be read again.

    Raises
    ------
    InputError
        The committed adaptive state is not one of this policy.
    """
    return PartitionPipeline(
        policy,
        message_format(policy).encoder(policy),
        max_offset_span=span_limit(policy),
        next_cluster_number=state.next_cluster_number,
        adaptive_state=AdaptiveState.from_bytes(state.adaptive_state, policy),
        restorer=ClusterRestorer(state.unfinished_clusters, state.released_up_to),
    )


class PartitionReader:
    """Takes messages in the order of the log, decodes, classifies and counts them. It changes no offset.

    Parameters
    ----------
    topic, partition : str, int
        Input topic and partition.
    decoder : MessageDecoder
        May be shared.
    pipeline : PartitionPipeline
        Applies the quota of each subject.
    state : OffsetState
        Of the commit from which the task continues.
    metrics : Metrics
        Count the messages that are read, those that do not fit the policy, and the values that a taxonomy lacks.
    counts : PartitionCounts
        What an earlier task of this process has read is not counted again.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        decoder: MessageDecoder,
        pipeline: PartitionPipeline,
        state: OffsetState,
        metrics: Metrics,
        counts: PartitionCounts,
    ) -> None:
        self._tp, self._name = (topic, partition), f"{topic}-{partition}"
        self._decoder, self._pipeline, self._metrics, self._counts = decoder, pipeline, metrics, counts
        self._has_taxonomy = any(attribute.taxonomy is not None for attribute in pipeline.policy.clustered)
        self.position = state.committed_offset
        """Offset from which the next message is taken."""
        self._begin, self._released_from, self._reference = (
            state.committed_offset,
            state.released_from,
            state.reference,
        )
        self._restored_until = state.next_offset
        self._untold_ahead_count, self._told_ahead_ms = 0, -TOLD_EVERY_MS

    @property
    def has_restored(self) -> bool:
        """Whether all messages that were read before the restored commit were read again."""
        return self.position >= self._restored_until

    def restore(self, log_start: int) -> bool:
        """Move the position back to where a restart must begin.

        Reading begins at the earliest of: the committed offset; the reference record, to check that the log is still
        the same; the start of the quota window, to count the records of each subject again.

        Parameters
        ----------
        log_start : int
            First offset of the log.

        Returns
        -------
        bool
            False: the log lost the start of the quota window, and the records of this window are suppressed.
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
        """Decode and classify a block of messages, and move the position behind it.

        Raises
        ------
        GuaranteeError
            The messages are out of order.
        LogTruncatedError
            The offset of the reference record holds a different record than before the restart.
        """
        columns = MessageColumns.of(messages)
        columns.check_order(self.position)
        self._check_reference(columns)
        block = self._decoder.decode([message.value for message in messages], messages)
        if self._has_taxonomy:
            first_new = max(tracker.next_offset, self._counts.read_until)
            is_new = (columns.offsets >= first_new) & (columns.timestamps <= now_ms + MAX_AHEAD_MS)
            self._count_unknown(block, is_new[block.index])
        block = self._pipeline.apply_quota(block, columns.offsets[block.index])
        self.position = messages[-1].offset + 1
        counted_until = self._counts.read_until
        classified = classify_messages(tracker, columns, block, self._begin, now_ms, counted_until)
        self._count_refusals(messages, block, classified)
        new = (rejection for rejection in classified.rejections if rejection.offset >= counted_until)
        self._count_ahead(sum(rejection.is_future for rejection in new), now_ms)
        self._metrics.records.labels("in", "", *self._tp).inc(classified.new_count)
        self._counts.read_until = max(counted_until, self.position)
        return block, classified

    def _count_unknown(self, block: Block, is_new: BoolVector) -> None:
        """Count the values that a taxonomy lacks, of records that are read for the first time."""
        counts = self._pipeline.count_unknown(block)
        if counts and not is_new.all():
            counts = self._pipeline.count_unknown(block.filter(is_new))
        self._metrics.count_unknown(*self._tp, counts)

    def _count_refusals(self, messages: Sequence[Message], block: Block, classified: Classification) -> None:
        """Count the messages that are rejected now. Those above a quota are not counted: they are suppressed."""
        for index, reason in block.rejected:
            is_new = messages[index].offset >= self._counts.read_until
            if is_new and reason is not Reason.SUPPRESSED and classified.is_open[index]:
                self._metrics.refusals.add(reason.value, _find_faults(self._decoder, messages[index].value))

    def _count_ahead(self, count: int, now_ms: int) -> None:
        """Count records that are rejected for their timestamps; the log says it at most every ten seconds."""
        if not count:
            return
        self._metrics.dated_ahead.labels(*self._tp).inc(count)
        self._metrics.refusals.add(Reason.INVALID.value, [DATED_AHEAD], count)
        self._untold_ahead_count += count
        if not 0 <= now_ms - self._told_ahead_ms < TOLD_EVERY_MS:
            log.warning(REJECTED_AS_AHEAD, partition=self._name, count=self._untold_ahead_count)
            self._untold_ahead_count, self._told_ahead_ms = 0, now_ms

    def _check_reference(self, columns: MessageColumns) -> None:
        """Compare the record at the offset of the reference record, when it is read, with that of the last commit."""
        reference = self._reference
        if reference is None or columns.offsets[-1] < reference.offset:
            return
        self._reference = None
        index = int(np.searchsorted(columns.offsets, reference.offset))
        if reference.is_contradicted(int(columns.offsets[index]), int(columns.timestamps[index])):
            raise LogTruncatedError.at_reference(self._name, reference)


def _find_faults(decoder: MessageDecoder, value: bytes | None) -> list[RecordFault]:
    """Return what is wrong with a message; an empty list if that is not known."""
    if value is None:
        return [NO_VALUE]
    return [] if len(value) > MAX_DESCRIBED_BYTES else decoder.explain(value)


class CommitTiming:
    """The times of the commits of one task.

    A commit is due when the commit interval has passed, and earlier when the decisions fill a transaction. If the
    output is slow, as under a quota, what is read in a long commit interval would exceed the transaction timeout.

    Parameters
    ----------
    collector, tracker, reader : RecordCollector, OffsetTracker, PartitionReader
        Of the task. They are read, and not changed.
    interval_s : float
        Commit interval (s).
    """

    def __init__(
        self, collector: RecordCollector, tracker: OffsetTracker, reader: PartitionReader, interval_s: float
    ) -> None:
        self._collector, self._tracker, self._reader = collector, tracker, reader
        self.interval_s = interval_s

    @property
    def can_commit(self) -> bool:
        """Whether the task may commit.

        A commit lists rejected future timestamps: the task must have read all messages up to the restored commit.
        """
        return self._tracker.can_commit and self._reader.has_restored

    @property
    def has_uncommitted_state(self) -> bool:
        """Whether there is anything to commit.

        This is so also if only control records were read. Otherwise Kafka's tools report a lag above 0.
        """
        return self._collector.has_unpacked or self._tracker.offset_to_commit > self._collector.committed_offset

    @property
    def is_full(self) -> bool:
        """Whether reading should pause until a transaction ends.

        Without a transaction, a task that cannot commit yet is never full: it must read on to be able to.
        """
        return self._collector.is_full and (self._collector.is_busy or self.can_commit)

    @property
    def wait_s(self) -> float:
        """Time until a commit is due (s), whether or not a transaction is being sent; infinite if none can be made."""
        if not (self.has_uncommitted_state and self.can_commit):
            return math.inf
        return 0.0 if self._collector.is_full else self._collector.interval_left_s(self.interval_s)

    @property
    def is_due(self) -> bool:
        """Whether a commit is due."""
        return self.wait_s == 0

    @property
    def next_commit(self) -> tuple[float, asyncio.Task[None] | None]:
        """Time until a commit is packed (s), infinite if it cannot; and the transaction that it waits for."""
        if not self._collector.is_busy:
            return self.wait_s, None
        is_awaited = self._collector.has_unpacked or self._collector.is_full
        return math.inf, self._collector.sending if is_awaited else None


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
    policy, decoder : Policy, MessageDecoder
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
        decoder: MessageDecoder,
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
