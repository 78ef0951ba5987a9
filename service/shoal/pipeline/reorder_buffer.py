"""Places of decided records, each filled when its own record expires: the output is in the order of the input.

A cluster is decided on as ever; its rows wait here. What else the rows hold (confidential and other fields) is dealt
to the cluster's places in the order of their bytes, so that a place tells no more than the cluster does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector

__all__ = ["ClusterRestorer", "DueRows", "PendingRow", "ReorderBuffer", "RestoredMember"]


class PendingRow(NamedTuple):
    """What leaves at the place of a record: its offset (or line number), and published bytes."""

    place: int
    row: bytes


class DueRows(NamedTuple):
    """Slots that leave, and how many records each of them has waited for."""

    slots: list[PendingRow]
    delays: Int64Vector


class ReorderBuffer:
    """Decided records that have not left, in the order of arrival.

    Parameters
    ----------
    delta : int
        A record leaves with the first arrival that is so many positions after it.
    reach : sequence of int
        One per column of marks: it leaves as soon as the mark of an arriving record exceeds its own by more.

    Notes
    -----
    Guarantee: in the order of positions, each once; the same whatever the blocks are. Cost: O(held) per block.
    """

    def __init__(self, delta: int, reach: Sequence[int]) -> None:
        self._delta, self._reach = delta, tuple(reach)
        self._positions = np.zeros(0, np.int64)
        self._marks = np.zeros((0, len(self._reach)), np.int64)
        self._slots: list[PendingRow] = []

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, positions: Int64Vector, marks: Int64Matrix, slots: Iterable[PendingRow]) -> None:
        """Take what was decided on, in any order; all of it after everything that has left."""
        joined = np.concatenate((self._positions, positions))
        order = np.argsort(joined, kind="stable")
        self._positions = joined[order]
        self._marks = np.concatenate((self._marks, marks))[order]
        every = [*self._slots, *slots]
        self._slots = [every[place] for place in order.tolist()]

    def due(self, positions: Int64Vector, marks: Int64Matrix, oldest: int) -> DueRows:
        """Take out what has expired by the arrival of these records; nothing from position ``oldest`` on."""
        expiry = np.searchsorted(positions, self._positions + self._delta)
        for column, reach in enumerate(self._reach):
            later = np.searchsorted(marks[:, column], self._marks[:, column] + reach, side="right")
            np.minimum(expiry, later, out=expiry)
        count = int(np.count_nonzero((expiry < len(positions)) & (self._positions < oldest)))
        return self._take(count, positions[expiry[:count]])

    def all(self, newest: int) -> DueRows:
        """Take out everything, as at the end of a stream; ``newest``: the last position that has arrived."""
        return self._take(len(self), np.full(len(self), newest))

    def _take(self, count: int, arrivals: Int64Vector) -> DueRows:
        left = DueRows(self._slots[:count], arrivals - self._positions[:count])
        self._positions, self._marks = self._positions[count:], self._marks[count:]
        self._slots = self._slots[count:]
        return left


class RestoredMember(NamedTuple):
    """A member of a cluster that was decided on before a restart."""

    place: int
    position: int
    marks: Int64Vector
    values: Float64Vector
    tail: bytes


class ClusterRestorer:
    """Clusters that were decided on before a restart, made again of their records as these are read again.

    Parameters
    ----------
    clusters : sequence of sequence of int
        Offsets of the members.
    frontier : int
        Offsets before it have left.
    """

    def __init__(self, clusters: Sequence[Sequence[int]], frontier: int) -> None:
        self.frontier = frontier
        self._cluster_of = {place: number for number, members in enumerate(clusters) for place in members}
        self._missing = [len(members) for members in clusters]
        self._arrived: dict[int, list[RestoredMember]] = {}

    def __bool__(self) -> bool:
        """Whether any are still to come."""
        return bool(self._cluster_of)

    def are_awaited(self, places: Int64Vector) -> BoolVector:
        """Tell for each offset whether it belongs to one of the clusters."""
        return np.fromiter((place in self._cluster_of for place in places.tolist()), np.bool_, len(places))

    def take(self, arrived: RestoredMember) -> list[RestoredMember] | None:
        """Take a member; return all of its cluster, by their offsets, when it is the last one to come."""
        number = self._cluster_of.pop(arrived.place)
        members = self._arrived.setdefault(number, [])
        members.append(arrived)
        self._missing[number] -= 1
        return None if self._missing[number] else self._arrived.pop(number)
