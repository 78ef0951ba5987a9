"""How far one input partition has come: which offsets are done, which are held. Pure; no broker, no clock.

An offset has exactly one fate. It is *unread* (at or after ``next_offset``), *held* (read, waiting for its
cluster) or *resolved* (released, suppressed, quarantined, or a hole in the log). Resolving is final, and an
offset that is not held cannot be resolved: this is where a second release would have to pass, and cannot.
Where records leave in order there is a step between the two: *promised*, its cluster is decided on and it leaves at
its own time (`promises`).

What is committed is the low watermark (the oldest offset that is held or in a cluster of which somebody has yet to
leave, or the next one to read) and, beside it, those offsets above it. A restart reads again from the watermark and
takes only what is unread or held, and the members of promised clusters, to make the same clusters of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Int64Vector
from shoal.errors import GuaranteeError, InputError
from shoal.kafka.partial_releases import PartialReleases

__all__ = ["UNKNOWN", "VOID_LIMIT", "IncompleteOffset", "LogProbe", "LogTruncatedError", "OffsetState", "OffsetTracker"]

VOID_LIMIT = 64
"""Most offsets that a commit lists as refused by the clock; more than that is an attack."""

NEVER = 1 << 62
"""A time (ms) after all others."""

UNKNOWN = -1
"""Timestamp of a record that has not been read again yet."""


class IncompleteOffset(NamedTuple):
    """What is known of a held offset.

    ``timestamp`` (ms) identifies the record without its content; ``clock`` (ms) is the event clock just before
    it was read, from which a restart computes the same deadlines again; ``seen`` (ms) when this process read it.
    """

    timestamp: int
    clock: int
    seen: int


class LogProbe(NamedTuple):
    """A record that must still be where it was: offset and broker timestamp (ms)."""

    offset: int
    timestamp: int

    def is_contradicted(self, offset: int, timestamp: int) -> bool:
        """Whether a record that was read cannot be the one that stood there, or one after it."""
        return offset == self.offset and timestamp != self.timestamp and UNKNOWN not in (timestamp, self.timestamp)


class LogTruncatedError(InputError):
    """The log is not the one of which the progress speaks: its offsets mean other records now."""

    def __init__(self, where: str, found: str) -> None:
        super().__init__(
            f"{where}: {found} (topic made anew, or its log truncated): releasing from here could publish records "
            "twice; use another group and an empty output, or start with --skip-to-end to go on at the end and "
            "count the gap"
        )


@dataclass(frozen=True, slots=True)
class OffsetState:
    """What one commit says.

    Attributes
    ----------
    watermark : int
        Offset committed for the group: everything before it is resolved.
    next_offset : int
        First offset never read.
    held : tuple of int
        Held offsets, ascending.
    void : tuple of int
        Offsets above the watermark that were well formed and refused by the clock: they took no position.
    clock : int
        Event clock (ms) just before the record at the watermark was read.
    clusters : int
        Clusters decided so far: the number of the next one.
    drain : int or None
        A decision that came from a clock: when ``next_offset`` stands here, all that is held leaves.
    anchor : Anchor or None
        The record at the watermark, or the last one read when none is held.
    origin : int
        No record before this offset was ever released by this group; 0 if that is not known.
    course : bytes
        What earlier decisions leave to later ones, as `pipeline.adaptive_state` writes it; empty where the policy keeps
        nothing.
    promised : tuple of tuple of int
        Clusters of which somebody has yet to leave, by their first offset; ascending in each. The watermark is the
        first offset that is held or promised.
    frontier : int
        What is promised before this offset has left; 0 where nothing is promised.
    shown : bool
        Somebody outside may have seen clusters that are decided after this commit.
    """

    watermark: int
    next_offset: int
    held: tuple[int, ...] = ()
    void: tuple[int, ...] = ()
    clock: int = -1
    clusters: int = 0
    drain: int | None = None
    anchor: LogProbe | None = None
    origin: int = 0
    course: bytes = b""
    promised: tuple[tuple[int, ...], ...] = ()
    frontier: int = 0
    shown: bool = False

    @property
    def waiting(self) -> int:
        """Records that were read and have neither left nor been given up."""
        return len(self.held) + sum(offset >= self.frontier for members in self.promised for offset in members)

    def covers(self, other: OffsetState) -> bool:
        """Whether everything that the other has resolved or decided on is so here too."""
        if self.next_offset < other.watermark:
            return False
        still_open = [offset for offset in self.held if offset < other.next_offset]
        if not set(other.held).issuperset([*still_open, *range(self.next_offset, other.next_offset)]):
            return False
        # A cluster of which somebody has yet to leave here: the other has it too, or has not decided on it.
        waiting = [members for members in self.promised if members not in other.promised]
        held = set(other.held)
        return all(held.issuperset(members) for members in waiting) and (
            not self.promised or self.frontier >= other.frontier
        )


@dataclass(slots=True)
class OffsetTracker:
    """State of one partition between two commits.

    Guarantee: under any interleaving of reading, resolving, snapshots and restarts from a snapshot, every
    offset is handed out for processing until it is resolved, and never again.
    """

    next_offset: int
    clock: int = -1
    clusters: int = 0
    drain: int | None = None
    origin: int = 0
    course: bytes = b""
    promises: PartialReleases = field(default_factory=PartialReleases)
    shown: bool = False
    _held: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _void: dict[int, int] = field(default_factory=dict)
    _void_before: frozenset[int] = frozenset()
    _horizon: int = NEVER
    """Those of the commit this process began from: they are read again, however far the watermark has come by then."""
    _unseen: dict[int, None] = field(default_factory=dict)
    _last: LogProbe | None = None

    @classmethod
    def restore(cls, snapshot: OffsetState, horizon: int = NEVER) -> OffsetTracker:
        """Go on from a commit: read again from the watermark.

        ``horizon`` is the latest timestamp (ms) that the clock can have let in before that commit.
        """
        progress = cls(
            next_offset=snapshot.next_offset,
            clock=snapshot.clock,
            clusters=snapshot.clusters,
            drain=snapshot.drain,
            origin=snapshot.origin,
            course=snapshot.course,
            promises=PartialReleases.restore(snapshot.promised, snapshot.frontier),
            shown=snapshot.shown,
            _void_before=frozenset(snapshot.void),
            _horizon=horizon,
            _unseen=dict.fromkeys(snapshot.held),
        )
        # In order of arrival, as reading would have put them: the first key is always the oldest.
        progress._held = dict.fromkeys(snapshot.held, (UNKNOWN, snapshot.clock, UNKNOWN))
        progress._last = snapshot.anchor
        return progress

    @property
    def watermark(self) -> int:
        """Oldest offset that a restart must read again, or the next one to read."""
        first, promised = next(iter(self._held), self.next_offset), self.promises.oldest
        return first if promised is None else min(first, promised)

    @property
    def held(self) -> int:
        """Number of records that were read and have neither left nor been given up."""
        return len(self._held) + len(self.promises)

    @property
    def oldest(self) -> IncompleteOffset | None:
        """What is known of the oldest record that has neither left nor been given up."""
        first, waiting = next(iter(self._held), None), self.promises.next_to_leave
        return self._about(first if waiting is None or (first is not None and first < waiting) else waiting)

    @property
    def is_replaying(self) -> bool:
        """Whether records held or promised at the last commit are still to be read again."""
        return bool(self._unseen) or self.promises.is_restoring

    @property
    def is_fit_to_commit(self) -> bool:
        """Whether the record at the watermark was read: until then nobody knows the event clock just before it."""
        if self.promises.is_restoring:
            return False
        return not self._unseen or next(iter(self._held)) not in self._unseen

    def are_held(self, offsets: Int64Vector) -> BoolVector:
        """Tell for each offset whether it is held."""
        return np.fromiter((offset in self._held for offset in offsets.tolist()), np.bool_, len(offsets))

    def recall_void(self, offsets: Int64Vector, timestamps: Int64Vector) -> BoolVector:
        """Tell which of these resolved offsets the clock refused before this process: they took no position."""
        listed = np.fromiter((offset in self._void_before for offset in offsets.tolist()), np.bool_, len(offsets))
        void = listed | (timestamps > self._horizon)
        # Other commits will have other horizons.
        self._void.update(zip(offsets[void].tolist(), timestamps[void].tolist(), strict=True))
        return void

    def read(self, offsets: Sequence[int], timestamps: Sequence[int], clocks: Sequence[int], seen: int) -> None:
        """Hold records that were just read, for the first time or again.

        Offsets skipped since the last unread one are holes in the log (control records, compaction) and are
        resolved by that.

        Parameters
        ----------
        offsets : sequence of int
            Ascending; each one unread or held.
        timestamps, clocks : sequence of int
            Of each (ms): its broker timestamp, and the event clock just before it was read.
        seen : int
            When they were read (ms).

        Raises
        ------
        GuaranteeError
            If one of them is resolved.
        """
        if not offsets:
            return
        held, unread = self._held, self.next_offset
        if offsets[0] < unread and any(offset < unread and offset not in held for offset in offsets):
            raise GuaranteeError("an offset was about to be read again that is resolved; nothing was sent")
        held.update(zip(offsets, zip(timestamps, clocks, repeat(seen)), strict=False))
        if self._unseen:
            for offset in offsets:
                self._unseen.pop(offset, None)
        last = offsets[-1]
        self.next_offset = max(self.next_offset, last + 1)
        if self._last is None or last >= self._last.offset:
            self._last = LogProbe(last, timestamps[-1])

    def pass_holes(self, before: int) -> None:
        """Go on to ``before``: everything up to there was delivered, so that what was not read is no record."""
        if not self.is_replaying and self.drain is None:
            self.next_offset = max(self.next_offset, before)

    def vanished(self, before: int) -> list[int]:
        """Held offsets below ``before`` that did not come again: compaction took them. They stay held."""
        gone = []
        for offset in self._unseen:
            if offset >= before:
                break
            gone.append(offset)
        return gone

    def complete(self, offsets: Collection[int]) -> list[int]:
        """Give each of these held offsets its final fate.

        Returns
        -------
        list of int
            When this process read each of them (ms).

        Raises
        ------
        GuaranteeError
            If one of them is not held: it was resolved before, or never read.
        """
        pop = self._held.pop
        gone = [pop(offset, None) for offset in offsets]
        if None in gone:
            raise GuaranteeError("an offset was about to be resolved twice; nothing was sent")
        if self._unseen:
            for offset in offsets:
                self._unseen.pop(offset, None)
        return [held[2] for held in gone if held is not None]

    def assign(self, members: Sequence[int]) -> None:
        """Decide that these held offsets, ascending, are one cluster; they leave one by one.

        Raises
        ------
        GuaranteeError
            As `complete`.
        """
        known = [self._held.get(offset) for offset in members]
        self.complete(members)
        self.promises.add(members, [about for about in known if about is not None])

    def release(self, offsets: Sequence[int]) -> list[int]:
        """Complete these assigned offsets, in this order; as `PartialReleases.leave`."""
        return self.promises.leave(offsets)

    def refuse_by_clock(self, offset: int, timestamp: int) -> None:
        """Resolve a held offset that only the wall clock refused, and remember that it took no position."""
        self.complete((offset,))
        self._void[offset] = timestamp

    def snapshot(self, horizon: int = NEVER) -> OffsetState:
        """State to commit now, with every decision taken so far in it.

        A record with a timestamp after ``horizon`` (ms), as `restore` will be told it, needs not be listed as void.
        """
        watermark = self.watermark
        self._void = {offset: timestamp for offset, timestamp in self._void.items() if offset > watermark}
        void = sorted(offset for offset, timestamp in self._void.items() if timestamp <= horizon)
        oldest = self._about(None if watermark == self.next_offset else watermark)
        promised = self.promises.clusters
        return OffsetState(
            watermark=watermark,
            next_offset=self.next_offset,
            held=tuple(self._held),
            void=tuple(void[:VOID_LIMIT]),
            clock=self.clock if oldest is None else oldest.clock,
            clusters=self.clusters,
            drain=self.drain,
            anchor=self._last if oldest is None else LogProbe(watermark, oldest.timestamp),
            origin=self.origin,
            course=self.course,
            promised=promised,
            frontier=self.promises.frontier if promised else 0,
            shown=self.shown,
        )

    def _about(self, offset: int | None) -> IncompleteOffset | None:
        """What is known of an offset that is held or promised."""
        if offset is None:
            return None
        return IncompleteOffset(*(self._held[offset] if offset in self._held else self.promises.known(offset)))
