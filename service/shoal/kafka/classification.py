"""Which messages of a block are pushed to the pipeline, and which are rejected or dropped.

`classify_messages` reads the offset tracker and returns a `Classification`. The partition task, which alone changes the
tracker, then calls `apply_classification`. All steps work on whole columns, because a partition reads a hundred
thousand messages per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np

from shoal.arrays import BoolVector, Int64Matrix, Int64Vector
from shoal.errors import GuaranteeError
from shoal.kafka.offset_tracker import OffsetTracker
from shoal.pipeline import BLOCK_RECORDS, LARGE_BLOCK_RECORDS
from shoal.records import Block, DropReason, Envelope, Reason

__all__ = [
    "MAX_AHEAD_MS",
    "Classification",
    "Message",
    "MessageColumns",
    "Rejection",
    "apply_classification",
    "block_length",
    "classify_messages",
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
