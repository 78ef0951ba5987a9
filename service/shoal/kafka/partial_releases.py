"""Clusters that are decided on and leave record by record, each at its own time (``release: ordered``). Pure.

A decision may not be taken again while a part of it has left, so it is committed: which offsets are in which
cluster, and up to where they have left. They leave in the order of the log, and one offset says that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shoal.errors import GuaranteeError

__all__ = ["Known", "PartialReleases"]

Known = tuple[int, int, int]
"""Broker timestamp, event clock before the record, when this process read it (all ms)."""


@dataclass(slots=True)
class PartialReleases:
    """The clusters of which somebody has yet to leave.

    Guarantee: an offset is promised once, leaves once, and none leaves before one that stands before it.
    """

    frontier: int = 0
    """Everything promised before this offset has left."""
    _clusters: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By their first offset, the offsets ascending."""
    _cluster_of: dict[int, int] = field(default_factory=dict)
    _known: dict[int, Known] = field(default_factory=dict)
    _unseen: set[int] = field(default_factory=set)

    @classmethod
    def restore(cls, clusters: Iterable[Sequence[int]], frontier: int) -> PartialReleases:
        """Go on from a commit; all members are to be read again."""
        promises = cls(frontier=frontier)
        for members in clusters:
            promises._enter(members)
        promises._unseen = set(promises._cluster_of)
        return promises

    def __len__(self) -> int:
        """Records that have not left yet."""
        return sum(offset >= self.frontier for offset in self._cluster_of)

    def __contains__(self, offset: object) -> bool:
        """Whether an offset belongs to a cluster of which somebody has yet to leave."""
        return offset in self._cluster_of

    @property
    def clusters(self) -> tuple[tuple[int, ...], ...]:
        """The clusters, by their first offset."""
        return tuple(self._clusters[first] for first in sorted(self._clusters))

    @property
    def oldest(self) -> int | None:
        """First offset from which a restart must read to make the clusters again."""
        return min(self._clusters, default=None)

    @property
    def next_to_leave(self) -> int | None:
        """The oldest record that has not left yet."""
        return min((offset for offset in self._cluster_of if offset >= self.frontier), default=None)

    @property
    def is_restoring(self) -> bool:
        """Whether members are still to be read again."""
        return bool(self._unseen)

    def known(self, offset: int) -> Known:
        """What is known of a member that was read."""
        return self._known[offset]

    def read_again(self, offsets: Sequence[int], timestamps: Sequence[int], clocks: Sequence[int], seen: int) -> None:
        """Note which members are among records that were just read; as `OffsetTracker.read`."""
        for offset, timestamp, clock in zip(offsets, timestamps, clocks, strict=True):
            if offset in self._cluster_of:
                self._unseen.discard(offset)
                self._known[offset] = (timestamp, clock, seen)

    def has_lost(self, before: int) -> bool:
        """Whether a member below ``before`` did not come again."""
        return any(offset < before for offset in self._unseen)

    def add(self, members: Sequence[int], known: Iterable[Known]) -> None:
        """Promise a cluster; its offsets ascend."""
        self._enter(members)
        self._known.update(zip(members, known, strict=True))

    def leave(self, offsets: Sequence[int]) -> list[int]:
        """Let these leave, in this order.

        Returns
        -------
        list of int
            When this process read each of them (ms).

        Raises
        ------
        GuaranteeError
            One of them was not promised, or has left, or one after it has.
        """
        seen = []
        for offset in offsets:
            first = self._cluster_of.get(offset)
            if first is None or offset < self.frontier or offset in self._unseen:
                raise GuaranteeError("a record was about to leave out of turn; nothing was sent")
            self.frontier = offset + 1
            seen.append(self._known[offset][2])
            if offset == self._clusters[first][-1]:
                for member in self._clusters.pop(first):
                    del self._cluster_of[member], self._known[member]
        return seen

    def _enter(self, members: Sequence[int]) -> None:
        if any(offset in self._cluster_of for offset in members):
            raise GuaranteeError("an offset was about to be in two clusters; nothing was sent")
        self._clusters[members[0]] = tuple(members)
        self._cluster_of.update(dict.fromkeys(members, members[0]))
