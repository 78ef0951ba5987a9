"""Release strategies: when the records of a decided cluster are released, and in which order.

There is one strategy for each value of ``stream.release``. `WholeClusters` (``cluster``) releases all records of a
cluster when the cluster is decided. `InOrder` (``ordered``) releases each record when it is due for release, in the
order of the input. The two differ in three things: the buffer of decided rows in the pipeline, the completion of
offsets, and the order of rows in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from shoal.arrays import Int64Matrix, Int64Vector
from shoal.pipeline.decisions import BlockDecisions, DecidedCluster
from shoal.pipeline.reorder_buffer import DueRows, PendingRow, ReorderBuffer
from shoal.pipeline.stats import EMPTY_STATS
from shoal.policy import Policy

__all__ = ["InOrder", "OffsetCompletion", "ReleaseBuffer", "ReleaseStrategy", "WholeClusters", "release_strategy"]


class OffsetCompletion(Protocol):
    """Completes the offsets of a partition. The offset tracker of a Kafka partition implements it."""

    def complete(self, offsets: Sequence[int]) -> list[int]:
        """Complete incomplete offsets; return when each was read (ms)."""

    def add_unfinished_cluster(self, members: Sequence[int]) -> None:
        """Mark incomplete offsets as one cluster, whose records are released one by one."""

    def release(self, offsets: Sequence[int]) -> list[int]:
        """Complete offsets of such clusters in ascending order; return when each was read (ms)."""


class ReleaseBuffer(Protocol):
    """Rows of decided clusters that are not due for release yet."""

    def __len__(self) -> int:
        """Return the number of rows in the buffer."""

    def add(self, positions: Int64Vector, expiry_keys: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Add the rows of decided clusters: shapes (n,), (n, 2) and n rows."""

    def add_due(
        self,
        decisions: BlockDecisions,
        positions: Int64Vector,
        expiry_keys: Int64Matrix,
        first_undecided: Callable[[], int],
    ) -> BlockDecisions:
        """Return the decisions on a block with the rows that are due for release; the arrays describe its records."""

    def flush(self, decisions: BlockDecisions, last_position: int) -> BlockDecisions:
        """Return the decisions with all rows of the buffer; ``last_position`` is that of the last arrival."""


class ReleaseStrategy(Protocol):
    """How the records of decided clusters are released. It has no state: pipeline, task and producer may share one."""

    def buffer(self, delta: int, expiry_limits: Sequence[int]) -> ReleaseBuffer:
        """Return an empty buffer; the parameters are those of `ReorderBuffer`."""

    def complete(self, tracker: OffsetCompletion, decisions: BlockDecisions) -> list[int]:
        """Complete the offsets released by these decisions; return when each was read (ms)."""

    def output_rows(self, clusters: Iterable[DecidedCluster], rows: list[bytes]) -> list[bytes]:
        """Return the rows of one transaction in the order in which they are sent.

        ``clusters`` are those it contains, in an order that does not depend on the order of decision. ``rows`` are
        those it publishes, in the order of release.
        """

    def writes(self, decisions: BlockDecisions) -> Iterator[tuple[Sequence[DecidedCluster], list[bytes]]]:
        """Split the decisions into writes: clusters, and the rows to write after the evidence of these clusters."""

    def smallest_unfinished_cluster(self, k: int) -> int:
        """Return the smallest size of a cluster that can be released in parts, or 0 if no cluster can."""


class _NoBuffer:
    """Releases the rows of a cluster with its decision."""

    def __len__(self) -> int:
        return 0

    def add(self, positions: Int64Vector, expiry_keys: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Do nothing: the decisions contain the rows."""

    def add_due(
        self,
        decisions: BlockDecisions,
        positions: Int64Vector,  # noqa: ARG002 - the protocol's
        expiry_keys: Int64Matrix,  # noqa: ARG002
        first_undecided: Callable[[], int],  # noqa: ARG002
    ) -> BlockDecisions:
        """Return the decisions with the rows of their clusters."""
        return self._released(decisions)

    def flush(self, decisions: BlockDecisions, last_position: int) -> BlockDecisions:  # noqa: ARG002 - the protocol's
        """Return the decisions with the rows of their clusters."""
        return self._released(decisions)

    @staticmethod
    def _released(decisions: BlockDecisions) -> BlockDecisions:
        if not decisions.clusters:
            return decisions
        return replace(
            decisions,
            released=[offset for cluster in decisions.clusters for offset in cluster.offsets],
            rows=[row for cluster in decisions.clusters for row in cluster.rows],
        )


class _OrderedBuffer:
    """Releases each row when it is due for release."""

    def __init__(self, delta: int, expiry_limits: Sequence[int]) -> None:
        self._rows = ReorderBuffer(delta, expiry_limits)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, positions: Int64Vector, expiry_keys: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Keep the rows until they are due for release."""
        self._rows.add(positions, expiry_keys, rows)

    def add_due(
        self,
        decisions: BlockDecisions,
        positions: Int64Vector,
        expiry_keys: Int64Matrix,
        first_undecided: Callable[[], int],
    ) -> BlockDecisions:
        """Return the decisions with the rows that are due for release with the arrival of these records."""
        return self._released(decisions, self._rows.pop_due(positions, expiry_keys, first_undecided()))

    def flush(self, decisions: BlockDecisions, last_position: int) -> BlockDecisions:
        """Return the decisions with all rows of the buffer."""
        return self._released(decisions, self._rows.pop_all(last_position))

    @staticmethod
    def _released(decisions: BlockDecisions, due: DueRows) -> BlockDecisions:
        rows, delays = due
        # Rows are released in the order of the input: no record is displaced.
        stats = replace(decisions.stats or EMPTY_STATS, delay=delays, displacement=np.zeros_like(delays))
        return replace(
            decisions,
            stats=stats if rows or decisions.clusters else None,
            released=[row.offset for row in rows],
            rows=[row.row for row in rows],
        )


class WholeClusters:
    """Releases all records of a cluster when it is decided."""

    def buffer(self, delta: int, expiry_limits: Sequence[int]) -> ReleaseBuffer:  # noqa: ARG002 - the protocol's
        """Return a buffer that keeps nothing."""
        return _NoBuffer()

    def complete(self, tracker: OffsetCompletion, decisions: BlockDecisions) -> list[int]:
        """Complete the offsets of the decided clusters."""
        return tracker.complete(decisions.released)

    def output_rows(self, clusters: Iterable[DecidedCluster], rows: list[bytes]) -> list[bytes]:  # noqa: ARG002
        """Return the rows cluster by cluster, in the order of the clusters given."""
        return [row for cluster in clusters for row in cluster.rows]

    def writes(self, decisions: BlockDecisions) -> Iterator[tuple[Sequence[DecidedCluster], list[bytes]]]:
        """Yield each cluster with its rows."""
        return (([cluster], cluster.rows) for cluster in decisions.clusters)

    def smallest_unfinished_cluster(self, k: int) -> int:  # noqa: ARG002 - the protocol's
        """Return 0: no cluster is released in parts."""
        return 0


class InOrder:
    """Releases each record of a decided cluster when it is due for release, in the order of the input."""

    def buffer(self, delta: int, expiry_limits: Sequence[int]) -> ReleaseBuffer:
        """Return a buffer that keeps rows until they are due for release."""
        return _OrderedBuffer(delta, expiry_limits)

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
    return InOrder() if policy.require_stream().is_ordered else WholeClusters()
