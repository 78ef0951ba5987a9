"""Ordered release: decided rows wait in a reorder buffer until they are due for release.

The output then has the order of the input. Clusters are decided as usual. The unchanged fields of a cluster are
assigned to the members in the order of their bytes, so that a member reveals no more than its cluster does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector

__all__ = ["ClusterRestorer", "DueRows", "PendingRow", "ReorderBuffer", "RestoredMember"]


class PendingRow(NamedTuple):
    """Published bytes of a record, and the offset of the record in its partition (its number in a file)."""

    offset: int
    row: bytes


class DueRows(NamedTuple):
    """Rows to release, and for each the number of records that arrived since its own record."""

    rows: list[PendingRow]
    delays: Int64Vector


class ReorderBuffer:
    """Rows of decided records that are not released, in the order of arrival of the records.

    Parameters
    ----------
    delta : int
        A row is released with the first arrival that is at least so many positions after its record.
    expiry_limits : sequence of int
        One per column of the expiry keys. A row is released as soon as a key of an arriving record exceeds the key of
        its own record by more than the limit.

    Notes
    -----
    Guarantee: rows are released in the order of positions, each once, however the records are divided into blocks.
    Cost: O(held) per block.
    """

    def __init__(self, delta: int, expiry_limits: Sequence[int]) -> None:
        self._delta, self._expiry_limits = delta, tuple(expiry_limits)
        self._positions = np.zeros(0, np.int64)
        self._expiry_keys = np.zeros((0, len(self._expiry_limits)), np.int64)
        self._rows: list[PendingRow] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, positions: Int64Vector, expiry_keys: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Add the rows of decided records, in any order; all positions are after those of released rows.

        Parameters
        ----------
        positions : ndarray of int64, shape (n,)
            Arrival ranks of the records.
        expiry_keys : ndarray of int64, shape (n, C)
            One column per expiry limit.
        rows : iterable of PendingRow
            n rows.
        """
        joined = np.concatenate((self._positions, positions))
        order = np.argsort(joined, kind="stable")
        self._positions = joined[order]
        self._expiry_keys = np.concatenate((self._expiry_keys, expiry_keys))[order]
        unordered = [*self._rows, *rows]
        self._rows = [unordered[index] for index in order.tolist()]

    def pop_due(self, positions: Int64Vector, expiry_keys: Int64Matrix, first_undecided: int) -> DueRows:
        """Remove and return the rows that are due for release with the arrival of records.

        Parameters
        ----------
        positions : ndarray of int64, shape (n,)
            Arrival ranks of the arriving records, ascending.
        expiry_keys : ndarray of int64, shape (n, C)
            Expiry keys of the arriving records.
        first_undecided : int
            Rows from this position on stay.
        """
        expiry = np.searchsorted(positions, self._positions + self._delta)
        for column, limit in enumerate(self._expiry_limits):
            later = np.searchsorted(expiry_keys[:, column], self._expiry_keys[:, column] + limit, side="right")
            np.minimum(expiry, later, out=expiry)
        count = int(np.count_nonzero((expiry < len(positions)) & (self._positions < first_undecided)))
        return self._pop(count, positions[expiry[:count]])

    def pop_all(self, last_position: int) -> DueRows:
        """Remove and return all rows, as at the end of a stream; ``last_position`` is that of the last arrival."""
        return self._pop(len(self), np.full(len(self), last_position))

    def _pop(self, count: int, arrivals: Int64Vector) -> DueRows:
        due = DueRows(self._rows[:count], arrivals - self._positions[:count])
        self._positions, self._expiry_keys = self._positions[count:], self._expiry_keys[count:]
        self._rows = self._rows[count:]
        return due


class RestoredMember(NamedTuple):
    """A record that is read again after a restart, and whose cluster was decided before it.

    ``values`` has shape (d,), original units; ``expiry_keys`` shape (C,).
    """

    offset: int
    position: int
    expiry_keys: Int64Vector
    values: Float64Vector
    unchanged_fields: bytes


class ClusterRestorer:
    """Collects the members of clusters that were decided, and released in part, before a restart.

    Parameters
    ----------
    clusters : sequence of sequence of int
        Offsets of the members of each cluster.
    released_up_to : int
        Records with a smaller offset were released.
    """

    def __init__(self, clusters: Sequence[Sequence[int]], released_up_to: int) -> None:
        self.released_up_to = released_up_to
        self._cluster_numbers = {offset: number for number, members in enumerate(clusters) for offset in members}
        self._missing = [len(members) for members in clusters]
        self._members: dict[int, list[RestoredMember]] = {}

    def __bool__(self) -> bool:
        """Whether any members are missing."""
        return bool(self._cluster_numbers)

    def contains(self, offsets: Int64Vector) -> BoolVector:
        """Return for each offset whether it is a missing member; shape (n,)."""
        return np.fromiter((offset in self._cluster_numbers for offset in offsets.tolist()), np.bool_, len(offsets))

    def collected_values(self) -> list[Float64Vector]:
        """Return the values of the members of incomplete clusters, in any order."""
        return [member.values for members in self._members.values() for member in members]

    def add(self, member: RestoredMember) -> list[RestoredMember] | None:
        """Add a missing member; return all members in the order of their offsets if the cluster is complete."""
        number = self._cluster_numbers.pop(member.offset)
        members = self._members.setdefault(number, [])
        members.append(member)
        self._missing[number] -= 1
        return None if self._missing[number] else self._members.pop(number)
