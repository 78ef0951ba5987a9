"""Which offsets of one input partition are completed and which are incomplete. It uses neither broker nor clock.

An offset is in one of four states:

- *unread*: at or after ``next_offset``;
- *incomplete*: it was read, and no decision on its record is applied;
- *clustered*: its record is in a decided cluster that is *unfinished*: under ``stream.release: ordered`` some of its
  rows are not released yet;
- *completed*: released, suppressed or quarantined, or no record (control records, compaction).

A completed offset stays completed. An offset with a record is completed only from incomplete or clustered. So no record
can be released twice. The committed offset is the lowest one that is incomplete or in an unfinished cluster; without
one, ``next_offset``. The metadata lists all of these: a decision must not be made again. A restart reads from the
committed offset or earlier (`PartitionTask.restore`), and decides only on unread and incomplete records. The Parallel
Consumer of Confluent keeps its offsets in the same way (its class PartitionState).

A record that was rejected for a timestamp in the future took no position in the stream, and must take none when a later
process reads it again (ADR 2, point 6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat, takewhile
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Int64Vector
from shoal.errors import GuaranteeError, InputError

Times = tuple[int, int, int]  # broker timestamp, stream time before the record, and when this process read it (all ms)
_read_ms = itemgetter(2)


@dataclass(slots=True)
class UnfinishedClusters:
    """The clusters of which at least one record is not released.

    Guarantee: an offset is in one cluster at most, and is released once, after every lower offset in a cluster.
    """

    released_up_to: int = 0  # all members before this offset are released
    _clusters: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by their first offset, the offsets ascending
    _first_of: dict[int, int] = field(default_factory=dict)  # first offset of the cluster of each member
    _times: dict[int, Times] = field(default_factory=dict)
    _not_read_again: set[int] = field(default_factory=set)  # restored members that were not read again yet

    @classmethod
    def restore(cls, clusters: Iterable[Sequence[int]], released_up_to: int) -> UnfinishedClusters:
        """Continue from a commit; all members are to be read again."""
        restored = cls(released_up_to=released_up_to)
        for members in clusters:
            restored._enter(members)
        restored._not_read_again = set(restored._first_of)
        return restored

    def __len__(self) -> int:
        """Return the number of records that are not released."""
        return sum(offset >= self.released_up_to for offset in self._first_of)

    @property
    def clusters(self) -> tuple[tuple[int, ...], ...]:
        """The clusters, by their first offset."""
        return tuple(self._clusters[first] for first in sorted(self._clusters))

    @property
    def oldest_member(self) -> int | None:
        """Offset from which a restart must read to make the clusters again."""
        return min(self._clusters, default=None)

    @property
    def oldest_unreleased(self) -> int | None:
        """The lowest offset whose record is not released."""
        return min((offset for offset in self._first_of if offset >= self.released_up_to), default=None)

    @property
    def is_restoring(self) -> bool:
        """Whether members are still to be read again."""
        return bool(self._not_read_again)

    def times_of(self, offset: int) -> Times:
        """Return the times of a member that was read."""
        return self._times[offset]

    def read_again(
        self, offsets: Sequence[int], timestamps: Sequence[int], stream_times: Sequence[int], read_ms: int
    ) -> None:
        """Mark the members among these records as read again; parameters as in `OffsetTracker.mark_read`."""
        for offset, timestamp, stream_time in zip(offsets, timestamps, stream_times, strict=True):
            if offset in self._first_of:
                self._not_read_again.discard(offset)
                self._times[offset] = (timestamp, stream_time, read_ms)

    def has_missing_members(self, before: int) -> bool:
        """Return whether a member below ``before`` was not read again."""
        return any(offset < before for offset in self._not_read_again)

    def add(self, members: Sequence[int], times: Iterable[Times]) -> None:
        """Add a decided cluster: its offsets, ascending, and the times of each."""
        self._enter(members)
        self._times.update(zip(members, times, strict=True))

    def release(self, offsets: Sequence[int]) -> list[int]:
        """Release the records of these offsets, in this order; return when this process read each of them (ms)."""
        read_ms = []
        for offset in offsets:
            first = self._first_of.get(offset)
            if first is None or offset < self.released_up_to or offset in self._not_read_again:
                raise GuaranteeError("a record was about to be released out of order; nothing of its block was sent")
            self.released_up_to = offset + 1
            read_ms.append(self._times[offset][2])
            if offset == self._clusters[first][-1]:
                for member in self._clusters.pop(first):
                    del self._first_of[member], self._times[member]
        return read_ms

    def _enter(self, members: Sequence[int]) -> None:
        if any(offset in self._first_of for offset in members):
            raise GuaranteeError("an offset was about to be in two clusters; nothing of its block was sent")
        self._clusters[members[0]] = tuple(members)
        self._first_of.update(dict.fromkeys(members, members[0]))


MAX_FUTURE_TIMESTAMPED = 64
"""A commit lists at most this many rejected future timestamps, those with the lowest offsets. After a restart others
take positions in the stream, unless they are later than what could be accepted at the commit. None is released."""

MAX_REMEMBERED = 1024
"""Limit of what is remembered for later commits: of timestamps that are no longer in the future, and of the others."""

NO_LIMIT_MS = 1 << 62  # a time (ms) after all timestamps


@dataclass(slots=True)
class FutureTimestamps:
    """Which offsets were rejected for their timestamps; ``restored`` are those that the restored commit lists."""

    restored: frozenset[int] = frozenset()
    latest_accepted_ms: int = NO_LIMIT_MS
    _timestamps: dict[int, int] = field(default_factory=dict)  # timestamps (ms) by offset

    def were_rejected(self, offsets: Int64Vector, timestamps: Int64Vector) -> BoolVector:
        """Return which of these completed offsets, shape (n,), were rejected before a restart."""
        listed = np.fromiter((offset in self.restored for offset in offsets.tolist()), np.bool_, len(offsets))
        return listed | (timestamps > self.latest_accepted_ms)

    def note(self, offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        """Remember them, because for a later commit these timestamps may no longer be in the future."""
        self._timestamps.update(zip(offsets, timestamps, strict=True))
        if len(self._timestamps) > 4 * MAX_REMEMBERED and self.latest_accepted_ms != NO_LIMIT_MS:
            # Nothing is committed while a restarted task reads again, so no commit forgets any.
            self._forget(-1, self.latest_accepted_ms)

    def to_commit(self, committed_offset: int, latest_accepted_ms: int) -> tuple[int, ...]:
        """Return the offsets that a commit lists, ascending; forget those that no commit will list.

        Guarantee: afterwards at most 2 * `MAX_REMEMBERED` are remembered.
        """
        return tuple(self._forget(committed_offset, latest_accepted_ms)[:MAX_FUTURE_TIMESTAMPED])

    def _forget(self, committed_offset: int, latest_accepted_ms: int) -> list[int]:
        """Forget those that no commit will list; return the offsets of those that are no longer in the future."""
        stamps = self._timestamps
        offsets = sorted(offset for offset in stamps if offset > committed_offset)
        passed = [offset for offset in offsets if stamps[offset] <= latest_accepted_ms]
        later = [offset for offset in offsets if stamps[offset] > latest_accepted_ms]
        later.sort(key=stamps.__getitem__)
        self._timestamps = {offset: stamps[offset] for offset in [*passed[:MAX_REMEMBERED], *later[:MAX_REMEMBERED]]}
        return passed


UNKNOWN = -1  # timestamp of a record that was not read again yet


class RecordTimes(NamedTuple):
    """The times (ms) that belong to a record that is not released."""

    timestamp: int
    stream_time: int
    read_ms: int


class ReferenceRecord(NamedTuple):
    """Offset and broker timestamp (ms) of a record that must still be at this offset after a restart."""

    offset: int
    timestamp: int

    def is_contradicted(self, offset: int, timestamp: int) -> bool:
        """Return whether a record that was read shows that the log was replaced."""
        return offset == self.offset and timestamp != self.timestamp and UNKNOWN not in (timestamp, self.timestamp)


_OF_ANOTHER_LOG = "of another topic id"


class ProgressError(InputError):
    """The progress may be valid, but cannot be used; ``committed_offset`` is that of a refused copy."""

    def __init__(self, message: str, state: str = "", committed_offset: int | None = None) -> None:
        super().__init__(message)
        self.state, self.committed_offset = state, committed_offset

    @property
    def is_of_another_log(self) -> bool:
        """Whether the topic was recreated, or its log was truncated."""
        return self.state == _OF_ANOTHER_LOG


def log_truncated(partition_name: str, reason: str) -> ProgressError:
    """Return the error for committed offsets that belong to another log."""
    return ProgressError(
        f"{partition_name}: {reason}. The topic was recreated, or its log was truncated. Releasing from here could "
        "publish records twice. Use another group and an empty output, or start with --skip-to-end to continue at the "
        "end and count the skipped offsets",
        _OF_ANOTHER_LOG,
    )


def contradicted(partition_name: str, reference: ReferenceRecord) -> ProgressError:
    """Return the error for a reference record that is contradicted."""
    return log_truncated(partition_name, f"offset {reference.offset} holds a different record than before the restart")


@dataclass(frozen=True, slots=True)
class OffsetState:
    """What one commit says."""

    committed_offset: int  # all offsets before it are completed
    next_offset: int  # first unread offset
    incomplete: tuple[int, ...] = ()  # ascending
    future_timestamped: tuple[int, ...] = ()
    """At most `MAX_FUTURE_TIMESTAMPED` offsets above the committed one, rejected for a timestamp in the future."""
    stream_time: int = -1  # stream time (ms) just before the record at the committed offset
    next_cluster_number: int = 0  # the count of clusters decided so far
    flush_at_offset: int | None = None
    """The task flushes before it processes this offset; a restart would not decide so again. None: none pending."""
    reference: ReferenceRecord | None = None
    """The record at the committed offset, or the last record read if no record waits."""
    released_from: int = 0  # the group released no record before this offset; 0 if that is not known
    adaptive_state: bytes = b""
    """What later decisions take from earlier ones (`AdaptiveState`); empty where the policy keeps nothing."""
    unfinished_clusters: tuple[tuple[int, ...], ...] = ()
    """Clusters of which at least one record is not released, by their first offset; ascending in each."""
    released_up_to: int = 0  # members of unfinished clusters before this offset are released; 0 where there are none
    handed_over_uncommitted: bool = False
    """Clusters that are decided after this commit may have been handed over to a listener."""

    @property
    def waiting_count(self) -> int:
        """Number of records that were read and are not yet published, suppressed or quarantined."""
        unreleased = sum(offset >= self.released_up_to for members in self.unfinished_clusters for offset in members)
        return len(self.incomplete) + unreleased

    def covers(self, other: OffsetState) -> bool:
        """Return whether every offset that is completed or clustered in ``other`` is so here."""
        if self.next_offset < other.committed_offset:
            return False
        still_open = [offset for offset in self.incomplete if offset < other.next_offset]
        if not set(other.incomplete).issuperset([*still_open, *range(self.next_offset, other.next_offset)]):
            return False
        return self._keeps_decisions(other)

    def _keeps_decisions(self, other: OffsetState) -> bool:
        """Return whether unfinished clusters here are the same in the other state, or not decided there."""
        incomplete, decided = set(other.incomplete), set(other.unfinished_clusters)
        for members in self.unfinished_clusters:
            if members in decided:
                if any(self.released_up_to <= offset < other.released_up_to for offset in members):
                    return False
            elif not all(offset in incomplete or offset >= other.next_offset for offset in members):
                return False
        return True


@dataclass(slots=True)
class OffsetTracker:
    """State of the offsets of one partition, from assignment to revocation. The partition task alone changes it.

    Guarantee: under any interleaving of reads, completions, commits and restarts from a commit, an offset is processed
    again after each restart until its completion is committed, and is never decided on after that.
    """

    next_offset: int
    stream_time: int = -1
    next_cluster_number: int = 0
    flush_at_offset: int | None = None
    released_from: int = 0
    adaptive_state: bytes = b""
    unfinished: UnfinishedClusters = field(default_factory=UnfinishedClusters)
    _incomplete: dict[int, Times] = field(default_factory=dict)
    """Broker timestamp, stream time and read time (ms) by offset, ascending: the first key is the lowest offset."""
    future_timestamps: FutureTimestamps = field(default_factory=FutureTimestamps)
    _not_read_again: dict[int, None] = field(default_factory=dict)
    """Restored incomplete offsets that were not read again yet."""
    _last_read: ReferenceRecord | None = None

    @classmethod
    def restore(cls, state: OffsetState, latest_accepted_ms: int = NO_LIMIT_MS) -> OffsetTracker:
        """Continue from a commit; ``latest_accepted_ms`` is the largest timestamp that could be accepted then."""
        return cls(
            next_offset=state.next_offset,
            stream_time=state.stream_time,
            next_cluster_number=state.next_cluster_number,
            flush_at_offset=state.flush_at_offset,
            released_from=state.released_from,
            adaptive_state=state.adaptive_state,
            unfinished=UnfinishedClusters.restore(state.unfinished_clusters, state.released_up_to),
            _incomplete=dict.fromkeys(state.incomplete, (UNKNOWN, state.stream_time, UNKNOWN)),
            future_timestamps=FutureTimestamps(frozenset(state.future_timestamped), latest_accepted_ms),
            _not_read_again=dict.fromkeys(state.incomplete),
            _last_read=state.reference,
        )

    @property
    def offset_to_commit(self) -> int:
        """Offset to commit now: the oldest that a restart must read again, or the next one to read."""
        first, first_clustered = next(iter(self._incomplete), self.next_offset), self.unfinished.oldest_member
        return first if first_clustered is None else min(first, first_clustered)

    @property
    def waiting_count(self) -> int:
        """Number of incomplete and clustered offsets."""
        return len(self._incomplete) + len(self.unfinished)

    @property
    def oldest(self) -> RecordTimes | None:
        """The times of the record at the lowest incomplete or clustered offset."""
        candidates = (next(iter(self._incomplete), None), self.unfinished.oldest_unreleased)
        return self._times_of(min((offset for offset in candidates if offset is not None), default=None))

    @property
    def is_restoring(self) -> bool:
        """Whether records of incomplete offsets or unfinished clusters of the last commit must still be read again."""
        return bool(self._not_read_again) or self.unfinished.is_restoring

    @property
    def can_commit(self) -> bool:
        """Whether the stream time to commit is known: what is at the committed offset was read again."""
        if self.unfinished.is_restoring:
            return False
        return not self._not_read_again or next(iter(self._incomplete)) not in self._not_read_again

    def are_incomplete(self, offsets: Int64Vector) -> BoolVector:
        """Return for each offset, shape (n,), whether it is incomplete."""
        return np.fromiter((offset in self._incomplete for offset in offsets.tolist()), np.bool_, len(offsets))

    def lost_to_compaction(self, before: int) -> list[int]:
        """Return the incomplete offsets below ``before`` that were not read again. They stay incomplete."""
        return list(takewhile(lambda offset: offset < before, self._not_read_again))

    def mark_read(
        self, offsets: Sequence[int], timestamps: Sequence[int], stream_times: Sequence[int], read_ms: int
    ) -> None:
        """Mark records as incomplete, read at ``read_ms`` for the first time or again; offsets ascend.

        An unread offset below the last one that is not among them holds no record, and is completed.
        """
        if not offsets:
            return
        incomplete, first_unread_offset = self._incomplete, self.next_offset
        has_old = offsets[0] < first_unread_offset
        if has_old and any(offset < first_unread_offset and offset not in incomplete for offset in offsets):
            raise GuaranteeError("an offset that was to be read again is not incomplete; nothing of its block was sent")
        incomplete.update(zip(offsets, zip(timestamps, stream_times, repeat(read_ms)), strict=False))
        if self._not_read_again:
            for offset in offsets:
                self._not_read_again.pop(offset, None)
        last = offsets[-1]
        self.next_offset = max(self.next_offset, last + 1)
        if self._last_read is None or last >= self._last_read.offset:
            self._last_read = ReferenceRecord(last, timestamps[-1])

    def skip_offset_gaps(self, before: int) -> None:
        """Complete the unread offsets below ``before``, which hold no record; not while restoring or before a flush."""
        if not self.is_restoring and self.flush_at_offset is None:
            self.next_offset = max(self.next_offset, before)

    def complete(self, offsets: Collection[int]) -> list[int]:
        """Complete these incomplete offsets; return when this process read each of them (ms)."""
        try:
            completed = list(map(self._incomplete.pop, offsets))
        except KeyError:
            raise GuaranteeError(
                "an offset that was to be completed is not incomplete; nothing of its block was sent"
            ) from None
        if self._not_read_again:
            for offset in offsets:
                self._not_read_again.pop(offset, None)
        return list(map(_read_ms, completed))

    def add_unfinished_cluster(self, members: Sequence[int]) -> None:
        """Mark these incomplete offsets, ascending, as the members of one cluster; raises as `complete`."""
        times_of_members = [self._incomplete.get(offset) for offset in members]
        self.complete(members)
        self.unfinished.add(members, [times for times in times_of_members if times is not None])

    def release(self, offsets: Sequence[int]) -> list[int]:
        """Complete these clustered offsets, in this order; returns and raises as `UnfinishedClusters.release`."""
        return self.unfinished.release(offsets)

    def reject_future_timestamp(self, offset: int, timestamp: int) -> None:
        """Complete an incomplete offset that was rejected only for its timestamp (ms): it got no stream position."""
        self.complete((offset,))
        self.future_timestamps.note((offset,), (timestamp,))

    def snapshot(self, latest_accepted_ms: int = NO_LIMIT_MS, *, handed_over_uncommitted: bool = False) -> OffsetState:
        """Return the state to commit now, with every decision applied so far."""
        committed = self.offset_to_commit
        oldest = self._times_of(None if committed == self.next_offset else committed)
        unfinished_clusters = self.unfinished.clusters
        return OffsetState(
            committed_offset=committed,
            next_offset=self.next_offset,
            incomplete=tuple(self._incomplete),
            future_timestamped=self.future_timestamps.to_commit(committed, latest_accepted_ms),
            stream_time=self.stream_time if oldest is None else oldest.stream_time,
            next_cluster_number=self.next_cluster_number,
            flush_at_offset=self.flush_at_offset,
            reference=self._last_read if oldest is None else ReferenceRecord(committed, oldest.timestamp),
            released_from=self.released_from,
            adaptive_state=self.adaptive_state,
            unfinished_clusters=unfinished_clusters,
            released_up_to=self.unfinished.released_up_to if unfinished_clusters else 0,
            handed_over_uncommitted=handed_over_uncommitted,
        )

    def _times_of(self, offset: int | None) -> RecordTimes | None:
        if offset is None:
            return None
        times = self._incomplete[offset] if offset in self._incomplete else self.unfinished.times_of(offset)
        return RecordTimes(*times)
