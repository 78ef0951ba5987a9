"""Decided clusters whose records are released one by one (``stream.release: ordered``). No I/O and no clock.

The decision on an unfinished cluster must not be made again. So it is committed: which offsets are in which
cluster, and the offset up to which records are released. They are released in ascending order of offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shoal.errors import GuaranteeError

__all__ = ["Times", "UnfinishedClusters"]

Times = tuple[int, int, int]
"""Broker timestamp, stream time before the record, and when this process read it (all ms)."""


@dataclass(slots=True)
class UnfinishedClusters:
    """The clusters of which at least one record is not released.

    Guarantee: an offset is in one cluster at most, and is released once, after every lower offset in a cluster.
    """

    released_up_to: int = 0
    """All members before this offset are released."""
    _clusters: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By their first offset, the offsets ascending."""
    _first_of: dict[int, int] = field(default_factory=dict)
    """First offset of the cluster of each member."""
    _times: dict[int, Times] = field(default_factory=dict)
    _not_read_again: set[int] = field(default_factory=set)
    """Restored members that were not read again yet."""

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

    def __contains__(self, offset: object) -> bool:
        """Return whether an offset belongs to one of the clusters."""
        return offset in self._first_of

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
        """Release the records of these offsets, in this order.

        Returns
        -------
        list of int
            When this process read each of them (ms).

        Raises
        ------
        GuaranteeError
            One of them is in no cluster, was not read again, or is released already; or a later one is released.
        """
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
