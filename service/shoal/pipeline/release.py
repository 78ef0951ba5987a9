"""When the records of a decided cluster leave, and in which order: the two values of the policy's ``stream.release``.

`WholeClusters` (``cluster``): all records of a cluster leave when the cluster is decided. `InOrder` (``ordered``): each
record leaves when it expires, in the order of the input. Everything that differs between the two is here: the buffer
of decided rows in the pipeline, the completion of offsets, and the order of rows in one transaction.
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

__all__ = ["InOrder", "OffsetLedger", "ReleaseBuffer", "ReleaseStrategy", "WholeClusters", "release_strategy"]


class OffsetLedger(Protocol):
    """Where offsets are marked as completed; the offset tracker of a Kafka partition is one."""

    def complete(self, offsets: Sequence[int]) -> list[int]:
        """Complete incomplete offsets; return when each was read (ms)."""

    def assign(self, members: Sequence[int]) -> None:
        """Note that incomplete offsets form one cluster, whose records leave one by one."""

    def release(self, offsets: Sequence[int]) -> list[int]:
        """Complete assigned offsets in ascending order; return when each was read (ms)."""


class ReleaseBuffer(Protocol):
    """Decided rows that have not left the pipeline."""

    def __len__(self) -> int:
        """Return how many records wait."""

    def add(self, positions: Int64Vector, marks: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Take the rows of decided clusters, shapes (n,), (n, 2) and n rows."""

    def due(
        self,
        decisions: BlockDecisions,
        positions: Int64Vector,
        marks: Int64Matrix,
        first_undecided: Callable[[], int],
    ) -> BlockDecisions:
        """Add to the decisions on a block what leaves with it; the arrays describe the records that arrived."""

    def flush(self, decisions: BlockDecisions, newest: int) -> BlockDecisions:
        """Add everything that waits; ``newest`` is the position of the last record that arrived."""


class ReleaseStrategy(Protocol):
    """How the records of decided clusters leave. It has no state: pipeline, task and producer may share one."""

    def buffer(self, delta: int, reach: Sequence[int]) -> ReleaseBuffer:
        """Return an empty buffer; the parameters are those of `ReorderBuffer`."""

    def complete(self, ledger: OffsetLedger, decisions: BlockDecisions) -> list[int]:
        """Complete the offsets that leave with these decisions; return when each was read (ms)."""

    def output_rows(self, clusters: Iterable[DecidedCluster], rows: list[bytes]) -> list[bytes]:
        """Return the rows of one transaction in the order in which they are sent.

        ``clusters`` are those decided in it, in an order that does not tell when; ``rows`` what left, in order.
        """

    def writes(self, decisions: BlockDecisions) -> Iterator[tuple[Sequence[DecidedCluster], list[bytes]]]:
        """Split the decisions into single writes: decided clusters, and the rows to write after their evidence."""

    def min_partial_cluster(self, k: int) -> int:
        """Return the size of the smallest cluster that can leave in parts, or 0 where none can."""


class _NoBuffer:
    """Lets the rows of a cluster leave with its decision."""

    def __len__(self) -> int:
        return 0

    def add(self, positions: Int64Vector, marks: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Take nothing: the decisions hold the rows."""

    def due(
        self,
        decisions: BlockDecisions,
        positions: Int64Vector,  # noqa: ARG002 - the protocol's
        marks: Int64Matrix,  # noqa: ARG002
        first_undecided: Callable[[], int],  # noqa: ARG002
    ) -> BlockDecisions:
        """Return the decisions with the rows of their clusters."""
        return self._released(decisions)

    def flush(self, decisions: BlockDecisions, newest: int) -> BlockDecisions:  # noqa: ARG002 - the protocol's
        """Do the same at the end of the stream."""
        return self._released(decisions)

    @staticmethod
    def _released(decisions: BlockDecisions) -> BlockDecisions:
        if not decisions.clusters:
            return decisions
        return replace(
            decisions,
            released=[offset for cluster in decisions.clusters for offset in cluster.places],
            rows=[row for cluster in decisions.clusters for row in cluster.rows],
        )


class _OrderedBuffer:
    """Lets each row leave when its record expires."""

    def __init__(self, delta: int, reach: Sequence[int]) -> None:
        self._rows = ReorderBuffer(delta, reach)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, positions: Int64Vector, marks: Int64Matrix, rows: Iterable[PendingRow]) -> None:
        """Keep the rows until they are due."""
        self._rows.put(positions, marks, rows)

    def due(
        self,
        decisions: BlockDecisions,
        positions: Int64Vector,
        marks: Int64Matrix,
        first_undecided: Callable[[], int],
    ) -> BlockDecisions:
        """Return the decisions with the rows that have expired by the arrival of these records."""
        return self._released(decisions, self._rows.due(positions, marks, first_undecided()))

    def flush(self, decisions: BlockDecisions, newest: int) -> BlockDecisions:
        """Return the decisions with every row that waits."""
        return self._released(decisions, self._rows.all(newest))

    @staticmethod
    def _released(decisions: BlockDecisions, due: DueRows) -> BlockDecisions:
        rows, delays = due
        # Rows leave in the order of the input: no record is displaced.
        figures = replace(decisions.figures or EMPTY_STATS, delay=delays, displacement=np.zeros_like(delays))
        return replace(
            decisions,
            figures=figures if rows or decisions.clusters else None,
            released=[row.place for row in rows],
            rows=[row.row for row in rows],
        )


class WholeClusters:
    """All records of a cluster leave when it is decided."""

    def buffer(self, delta: int, reach: Sequence[int]) -> ReleaseBuffer:  # noqa: ARG002 - the protocol's
        """Return a buffer that keeps nothing."""
        return _NoBuffer()

    def complete(self, ledger: OffsetLedger, decisions: BlockDecisions) -> list[int]:
        """Complete the members of the decided clusters."""
        return ledger.complete(decisions.released)

    def output_rows(self, clusters: Iterable[DecidedCluster], rows: list[bytes]) -> list[bytes]:  # noqa: ARG002
        """Return the rows cluster by cluster, in the order of the clusters given."""
        return [row for cluster in clusters for row in cluster.rows]

    def writes(self, decisions: BlockDecisions) -> Iterator[tuple[Sequence[DecidedCluster], list[bytes]]]:
        """Yield each cluster with its rows."""
        return (([cluster], cluster.rows) for cluster in decisions.clusters)

    def min_partial_cluster(self, k: int) -> int:  # noqa: ARG002 - the protocol's
        """Return 0: no cluster leaves in parts."""
        return 0


class InOrder:
    """Each record of a decided cluster leaves when it expires, in the order of the input."""

    def buffer(self, delta: int, reach: Sequence[int]) -> ReleaseBuffer:
        """Return a buffer that keeps rows until they are due."""
        return _OrderedBuffer(delta, reach)

    def complete(self, ledger: OffsetLedger, decisions: BlockDecisions) -> list[int]:
        """Assign the members of the decided clusters, and complete the offsets that leave."""
        for cluster in decisions.clusters:
            ledger.assign(cluster.places)
        return ledger.release(decisions.released)

    def output_rows(self, clusters: Iterable[DecidedCluster], rows: list[bytes]) -> list[bytes]:  # noqa: ARG002
        """Return the rows in the order in which they left."""
        return rows

    def writes(self, decisions: BlockDecisions) -> Iterator[tuple[Sequence[DecidedCluster], list[bytes]]]:
        """Yield all clusters with all rows that leave."""
        return iter([(decisions.clusters, decisions.rows)])

    def min_partial_cluster(self, k: int) -> int:
        """Return k: every cluster can leave in parts."""
        return k


def release_strategy(policy: Policy) -> ReleaseStrategy:
    """Return the strategy that ``stream.release`` names."""
    return InOrder() if policy.require_stream().is_ordered else WholeClusters()
