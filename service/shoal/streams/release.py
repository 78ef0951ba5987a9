"""Release strategies: when the records of a decided cluster are released, and in which order.

`ReleaseStrategy` (``stream.release: cluster``) releases all records of a cluster when it is decided. `InOrder`
(``ordered``) releases each record when it is due, in the order of the input: decided rows wait in a `ReorderBuffer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, Protocol

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import Policy
from shoal.scales.loss import LossTotals
from shoal.streams.stats import EMPTY_STATS, NO_CONFIDENTIAL_STATS, ConfidentialStats, ReleaseStats


class DecidedCluster(NamedTuple):
    """A cluster whose members are final."""

    number: int  # number of the cluster in its partition, from 0, in the order of decision
    offsets: list[int]  # offsets of the members in their partition (record numbers in a file), ascending
    rows: list[bytes]
    """Published bytes of the members, sorted. With ``stream.reveal_order`` instead row i belongs to offset i."""
    centroid: tuple[str, ...]  # published quasi-identifiers, as JSON scalars
    subjects: int  # number of distinct subjects
    policy: str  # fingerprint (SHA-256, hex) of the policy under which the cluster was decided


@dataclass(frozen=True, slots=True)
class BlockDecisions:
    """All decisions that one block of records, or the end of the stream, leads to."""

    clusters: list[DecidedCluster]  # in the order of decision
    suppressed: list[int]  # offsets of suppressed records
    stats: ReleaseStats | None = None  # None where no cluster was decided and no record is released
    sst_growth: float = 0.0
    """Growth of the total sum of squares (SST) of all clusters, of numbers and times, in units of their ranges."""
    early_count: int = 0  # clusters decided before delta, because offset metadata or held bytes would exceed a limit
    released: list[int] = field(default_factory=list)  # offsets of the records that are released now
    rows: list[bytes] = field(default_factory=list)
    """Published bytes of the released records; aligned with ``released`` only where the order is revealed."""
    confidential: ConfidentialStats = NO_CONFIDENTIAL_STATS
    losses: LossTotals | None = None  # sums of the loss of the records of the clusters; None without a cluster


class PendingRow(NamedTuple):
    """Published bytes of a record, and the offset of the record in its partition (its number in a file)."""

    offset: int
    row: bytes


class DueRows(NamedTuple):
    """Rows to release, and for each the number of records that arrived since its own record."""

    rows: list[PendingRow]
    delays: Int64Vector


class RestoredMember(NamedTuple):
    """A record that is read again after a restart, and whose cluster was decided before it."""

    offset: int
    position: int
    expiry_keys: Int64Vector  # (C,)
    values: Float64Vector  # (d,): original units
    subject: int
    unchanged_fields: bytes


class OffsetCompletion(Protocol):
    """Completes the offsets of a partition. The offset tracker of a Kafka partition implements it."""

    def complete(self, offsets: Sequence[int]) -> list[int]:
        """Complete incomplete offsets; return when each was read (ms)."""

    def add_unfinished_cluster(self, members: Sequence[int]) -> None:
        """Mark incomplete offsets as one cluster, whose records are released one by one."""

    def release(self, offsets: Sequence[int]) -> list[int]:
        """Complete offsets of such clusters in ascending order; return when each was read (ms)."""


class ReleaseStrategy:
    """Releases all records of a cluster when it is decided. It has no state: task and producer may share one."""

    def complete(self, tracker: OffsetCompletion, decisions: BlockDecisions) -> list[int]:
        """Complete the offsets released by these decisions; return when each was read (ms)."""
        return tracker.complete(decisions.released)

    def output_rows(self, clusters: Iterable[DecidedCluster], rows: list[bytes]) -> list[bytes]:  # noqa: ARG002
        """Return the rows of one transaction cluster by cluster; ``rows`` are those in the order of release."""
        return [row for cluster in clusters for row in cluster.rows]

    def writes(self, decisions: BlockDecisions) -> Iterator[tuple[Sequence[DecidedCluster], list[bytes]]]:
        """Split the decisions into writes: clusters, and the rows to write after the evidence of these clusters."""
        return (([cluster], cluster.rows) for cluster in decisions.clusters)

    def smallest_unfinished_cluster(self, k: int) -> int:  # noqa: ARG002
        """Return the smallest size of a cluster that can be released in parts, or 0 if no cluster can."""
        return 0


class InOrder(ReleaseStrategy):
    """Each record of a decided cluster is released when it is due for release, in the order of the input."""

    def complete(self, tracker: OffsetCompletion, decisions: BlockDecisions) -> list[int]:
        """Add the decided clusters to the tracker, and complete the released offsets."""
        for cluster in decisions.clusters:
            tracker.add_unfinished_cluster(cluster.offsets)
        return tracker.release(decisions.released)

    def output_rows(self, clusters: Iterable[DecidedCluster], rows: list[bytes]) -> list[bytes]:  # noqa: ARG002
        """Return the rows in the order of release."""
        return rows

    def writes(self, decisions: BlockDecisions) -> Iterator[tuple[Sequence[DecidedCluster], list[bytes]]]:
        """Yield all clusters with all released rows."""
        return iter([(decisions.clusters, decisions.rows)])

    def smallest_unfinished_cluster(self, k: int) -> int:
        """Return k: every cluster can be released in parts."""
        return k


def release_strategy(policy: Policy) -> ReleaseStrategy:
    """Return the strategy for ``stream.release``."""
    return InOrder() if policy.require_stream().is_ordered else ReleaseStrategy()


def join_decisions(parts: list[BlockDecisions]) -> BlockDecisions:
    """Join the decisions on the consecutive parts of a block."""
    if len(parts) == 1:
        return parts[0]
    stats = [part.stats for part in parts if part.stats is not None]
    columns = ([getattr(one, column.name) for one in stats] for column in fields(ReleaseStats))
    return BlockDecisions(
        clusters=[cluster for part in parts for cluster in part.clusters],
        suppressed=[offset for part in parts for offset in part.suppressed],
        stats=ReleaseStats(*(np.concatenate(arrays) for arrays in columns)) if stats else None,
        sst_growth=sum(part.sst_growth for part in parts),
        early_count=sum(part.early_count for part in parts),
        released=[offset for part in parts for offset in part.released],
        rows=[row for part in parts for row in part.rows],
        confidential=ConfidentialStats.join(part.confidential for part in parts),
        losses=LossTotals.join([part.losses for part in parts if part.losses is not None]),
    )


def released_in_order(decisions: BlockDecisions, due: DueRows) -> BlockDecisions:
    """Return decisions with the rows of a `ReorderBuffer` that are due for release."""
    # Rows are released in the order of the input: no record is displaced.
    stats = replace(decisions.stats or EMPTY_STATS, delay=due.delays, displacement=np.zeros_like(due.delays))
    return replace(
        decisions,
        stats=stats if due.rows or decisions.clusters else None,
        released=[row.offset for row in due.rows],
        rows=[row.row for row in due.rows],
    )


class ReorderBuffer:
    """Rows of decided records that are not released, in the order of arrival of the records.

    Each row is released once, in the order of positions, with the first arrival that is ``delta`` positions after its
    record or exceeds one of ``expiry_limits``. Cost: O(held) per block.
    """

    def __init__(self, delta: int, expiry_limits: Sequence[int]) -> None:
        self._delta, self._expiry_limits = delta, tuple(expiry_limits)
        self._positions = np.zeros(0, np.int64)
        self._expiry_keys = np.zeros((0, len(self._expiry_limits)), np.int64)
        self._rows: list[PendingRow] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, positions: Int64Vector, expiry_keys: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Add n rows of decided records with positions (n,) and expiry keys (n, C), in any order."""
        joined = np.concatenate((self._positions, positions))
        order = np.argsort(joined, kind="stable")
        self._positions = joined[order]
        self._expiry_keys = np.concatenate((self._expiry_keys, expiry_keys))[order]
        unordered = [*self._rows, *rows]
        self._rows = [unordered[index] for index in order.tolist()]

    def pop_due(self, positions: Int64Vector, expiry_keys: Int64Matrix, first_undecided: int) -> DueRows:
        """Remove and return the rows that are due for release with the arrival of n records, positions ascending."""
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


class ClusterRestorer:
    """Collects the members of clusters that were decided, and released below ``released_up_to``, before a restart."""

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
