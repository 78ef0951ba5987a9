"""Rule block: when a record expires, all held records are released in the clusters of a partition.

Parameters that all kernels of the rules share are described in `expiry`.
"""

from __future__ import annotations

from functools import partial

from shoal.arrays import Int64Vector
from shoal.kernels.jit import njit
from shoal.streams.expiry import NEWEST_POSITION, Candidates, StreamConstraints, Workspace, append_until_due
from shoal.streams.growth import GrowthRule, decide_by_growth
from shoal.streams.held_records import FLUSHED, HEAD, NOT_DUE, TAIL, DecisionBuffer, HeldRecords
from shoal.streams.partition import PAIRS_UP_TO, held_as_table, partition_dense, release_partition
from shoal.tables.descent import DENSE_UP_TO

__all__ = ["BlockRule", "decide_due_by_partition"]


class BlockRule(GrowthRule):
    """When a record expires, all held records are released in the clusters of a partition by MDAV and descent.

    Notes
    -----
    Parameters are those of `GrowthRule`. Clusters have k to 2k - 1 records.

    A cluster with fewer than k subjects, or with a subject above ``max_share``, exchanges records with others. If that
    does not suffice, the partition is discarded. Only the cluster of the expiring record is then released; it grows as
    by `GrowthRule`. Merging clusters until all constraints hold would lose up to three times as much. At the end of the
    stream clusters are merged.

    A weighted position is one more coordinate.

    The rule loses less than nearest in all but a few settings of small k. Rule nearest takes the middle out of a group
    of records, and those around it wait for records of another region (docs/reports/benchmarks.md).

    Cost per release: that of `clustering.static.mdav` and `clustering.static.refinement` for the held records.
    """

    def precompile(self) -> None:
        """Compile all kernels by deciding on no records and on a few artificial ones."""
        super().precompile()
        self._run_on_zeros(partial(self._release_all, cause=FLUSHED))

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        held, workspace, candidates, constraints = (
            self._buffer.held,
            self._workspace,
            self._candidates,
            self._constraints,
        )
        refused_cause = NOT_DUE
        while (
            cause := decide_due_by_partition(held, workspace, candidates, decisions, constraints, cursor, refused_cause)
        ) != NOT_DUE:
            refused_cause = NOT_DUE if self._release_all(decisions, int(cursor[NEWEST_POSITION]), cause) else cause

    def _release_all(self, decisions: DecisionBuffer, newest: int, cause: int) -> bool:
        """Release all held records if their partition is feasible; return whether they were released."""
        held, constraints = self._buffer.held, self._constraints
        _, labels, is_feasible = self._partition()
        if not is_feasible:
            return False
        release_partition(held, decisions, constraints, labels, newest, cause)
        return True


@njit
def decide_due_by_partition(
    held: HeldRecords,
    workspace: Workspace,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
    refused_cause: int,
) -> int:
    """Append staged records and decide on expiring ones, while few enough records are held for the dense descent.

    Parameters
    ----------
    held, workspace, candidates, decisions, constraints, cursor
        As described in `expiry` and `growth`.
    refused_cause : int
        Cause for which only the cluster of the oldest record must be released first, or `NOT_DUE`.

    Returns
    -------
    int
        Cause for which the caller must partition and release all held records, or `NOT_DUE` if all staged records have
        been appended.
    """
    while True:
        cause = refused_cause
        if cause == NOT_DUE:
            cause = append_until_due(held, workspace, constraints, cursor)
            largest = DENSE_UP_TO if held.code_distances.size == 0 else PAIRS_UP_TO
            if cause == NOT_DUE or held.extent[TAIL] - held.extent[HEAD] > largest:
                return cause
            rows = held_as_table(held, workspace, constraints)
            if rows.shape[0] > 0:
                labels, is_feasible = partition_dense(held, rows, workspace, constraints)
                if is_feasible:
                    release_partition(held, decisions, constraints, labels, cursor[NEWEST_POSITION], cause)
                    continue
        refused_cause = NOT_DUE
        decide_by_growth(held, workspace, candidates, decisions, constraints, cursor[NEWEST_POSITION], cause)
