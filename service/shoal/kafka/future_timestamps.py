"""The valid records of one input partition that were rejected for a timestamp in the future (ADR 2, point 6).

A rejected record took no position in the stream, and must take none when a later process reads it again, at a time at
which its timestamp is no longer in the future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shoal.arrays import BoolVector, Int64Vector

__all__ = ["MAX_FUTURE_TIMESTAMPED", "NO_LIMIT_MS", "FutureTimestamps"]

MAX_FUTURE_TIMESTAMPED = 64
"""A commit lists at most this many rejected future timestamps, those with the lowest offsets.

More come from a wrong clock or an attack. After a restart the task recognizes the others only if their timestamps are
later than ``latest_accepted_ms`` of the commit. Else they take positions in the stream. None is released.
"""

MAX_REMEMBERED = 1024
"""Limit of what is remembered for later commits: of timestamps that are no longer in the future, and of the others."""

NO_LIMIT_MS = 1 << 62
"""A time (ms) after all timestamps."""


@dataclass(slots=True)
class FutureTimestamps:
    """Which offsets were rejected for their timestamps.

    Attributes
    ----------
    restored : frozenset of int
        What the restored commit lists. Kept after the committed offset passes them; they are read again.
    latest_accepted_ms : int
        Latest timestamp (ms) that was accepted before that commit.
    """

    restored: frozenset[int] = frozenset()
    latest_accepted_ms: int = NO_LIMIT_MS
    _timestamps: dict[int, int] = field(default_factory=dict)
    """Timestamps (ms) by offset."""

    def were_rejected(self, offsets: Int64Vector, timestamps: Int64Vector) -> BoolVector:
        """Return which of these completed offsets, shape (n,), were rejected before a restart."""
        listed = np.fromiter((offset in self.restored for offset in offsets.tolist()), np.bool_, len(offsets))
        return listed | (timestamps > self.latest_accepted_ms)

    def note(self, offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        """Remember them, because these timestamps are no longer in the future for a later commit."""
        self._timestamps.update(zip(offsets, timestamps, strict=True))
        if len(self._timestamps) > 4 * MAX_REMEMBERED and self.latest_accepted_ms != NO_LIMIT_MS:
            # Nothing is committed while a restarted task reads again, so no commit forgets any.
            self._forget(-1, self.latest_accepted_ms)

    def to_commit(self, committed_offset: int, latest_accepted_ms: int) -> tuple[int, ...]:
        """Return the offsets that a commit lists, ascending; forget those that no commit will list.

        Those after ``latest_accepted_ms`` are not listed: `were_rejected` recognizes them by the same time.

        Guarantee: afterwards at most 2 * `MAX_REMEMBERED` are remembered. Of timestamps that are no longer in the
        future, a commit lists the lowest offsets, so these are remembered; of the others, those that come first.
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
