"""What becomes of the messages of one block: which are pushed, which are refused, on what the clock stands then.

All of it over columns: a partition reads a hundred thousand messages a second, and no step is taken for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

import numpy as np

from shoal.arrays import BoolVector, Int64Matrix, Int64Vector
from shoal.kafka.offset_tracker import OffsetTracker
from shoal.records import Block, Envelope, Reason

__all__ = ["AHEAD_MS", "Classification", "Message", "MessageColumns", "classify_messages"]

AHEAD_MS = 3_600_000
"""A record that claims to be from further ahead would expire everything: it is invalid."""

_EARLIEST = np.iinfo(np.int64).min
_offset, _timestamp = attrgetter("offset"), attrgetter("timestamp")


class Message(Envelope, Protocol):
    """What is needed of a consumed message."""

    @property
    def offset(self) -> int:
        """MessagePart in the log."""

    @property
    def value(self) -> bytes | None:
        """The record, or None."""


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Offsets and broker timestamps (ms) of n messages, int64, shape (n,), in the order of the log."""

    offsets: Int64Vector
    timestamps: Int64Vector

    @classmethod
    def of(cls, messages: Sequence[Message]) -> MessageColumns:
        """Take them from messages."""
        n = len(messages)
        return cls(
            np.fromiter(map(_offset, messages), np.int64, n),
            np.fromiter(map(_timestamp, messages), np.int64, n),
        )


@dataclass(frozen=True, slots=True)
class Classification:
    """What became of the messages of a block.

    Attributes
    ----------
    chosen : ndarray of bool, shape (accepted records of the block,)
        Which of them are pushed.
    fresh : ndarray of bool, shape (pushed,)
        False for a record that was resolved before a restart: it takes its position, and nothing else.
    marks : ndarray of int64, shape (pushed, 2)
        Event clock (ms) and offset of each.
    refused : list of (int, Reason)
        Offsets that were resolved because their message was refused.
    unread : int
        How many messages were never read before.
    is_by_clock : bool
        Whether the wall clock refused any of them: a second try could decide otherwise.
    """

    chosen: BoolVector
    fresh: BoolVector
    marks: Int64Matrix
    refused: list[tuple[int, Reason]]
    unread: int
    is_by_clock: bool


def classify_messages(
    progress: OffsetTracker, stamps: MessageColumns, block: Block, begin: int, now_ms: int
) -> Classification:
    """Give each message of a block its fate, and note it in the progress.

    Parameters
    ----------
    progress : Progress
        Takes what is read and resolved.
    stamps : Stamps
        Of the n messages.
    block : Block
        What was decoded of them.
    begin : int
        Watermark from which this process began. What was resolved before is pushed again for the position that it
        took, if it took one; what lies before the watermark counts no more, for the clock may have refused it and
        nobody remembers that.
    now_ms : int
        Wall clock.

    Returns
    -------
    Fates
    """
    offsets, timestamps = stamps.offsets, stamps.timestamps
    unread = offsets >= progress.next_offset
    is_open = unread if unread.all() else unread | progress.are_held(offsets)
    accepted = np.zeros(len(offsets), np.bool_)
    accepted[block.index] = True
    # What is held was let in by the clock before, and stays so.
    ahead = unread & accepted & (timestamps > now_ms + AHEAD_MS)
    pushed = accepted & ~ahead
    if not is_open.all():
        again = np.flatnonzero(~is_open & accepted)
        void = progress.recall_void(offsets[again], timestamps[again])
        pushed[again] = (offsets[again] >= begin) & ~void
    clock = np.maximum.accumulate(np.where(pushed, timestamps, _EARLIEST))
    np.maximum(clock, progress.clock, out=clock)
    before = np.concatenate(([progress.clock], clock[:-1]))
    progress.clock = int(clock[-1])
    progress.read(offsets[is_open].tolist(), timestamps[is_open].tolist(), before[is_open].tolist(), now_ms)
    if progress.promises.is_restoring:
        progress.promises.read_again(offsets.tolist(), timestamps.tolist(), before.tolist(), now_ms)
    return Classification(
        chosen=pushed[block.index],
        fresh=is_open[pushed],
        marks=np.column_stack((clock[pushed], offsets[pushed])),
        refused=_refuse(progress, stamps, is_open & ~pushed, block) if block.rejected or ahead.any() else [],
        unread=int(np.count_nonzero(unread)),
        is_by_clock=bool(ahead.any()),
    )


def _refuse(
    progress: OffsetTracker, stamps: MessageColumns, refused: BoolVector, block: Block
) -> list[tuple[int, Reason]]:
    """Resolve what was refused, in order: by its content, or else by the clock."""
    reasons = dict(block.rejected)
    found = []
    for place in np.flatnonzero(refused).tolist():
        offset, reason = int(stamps.offsets[place]), reasons.get(place)
        if reason is None:
            progress.refuse_by_clock(offset, int(stamps.timestamps[place]))
        else:
            progress.complete((offset,))
        found.append((offset, reason or Reason.INVALID))
    return found
