"""B."""

from __future__ import annotations

from functools import partial

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit
from shoal.clustering.static.descent_dense import DENSE_UP_TO, ROUNDS, descend_dense
from shoal.clustering.static.mdav_kernel import by_scan
from shoal.clustering.stream.expiry import StreamConstraints, Workspace, append_until_due
from shoal.clustering.stream.growth import Candidates, GrowthRule, expire
from shoal.clustering.stream.held_records import FLUSHED, HEAD, NOT_DUE, TAIL, DecisionBuffer, HeldRecords
from shoal.clustering.stream.partition import held_as_table, is_feasible, release_partition

__all__ = ["BlockRule", "expire_due"]


class BlockRule(GrowthRule):
    """B."""

    def precompile(self) -> None:
        """P."""
        super().precompile()
        self._run_on_zeros(partial(self._release_all, cause=FLUSHED))

    def _scan(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        held, workspace, candidates, constraints = (
            self._buffer.held,
            self._workspace,
            self._candidates,
            self._constraints,
        )
        refused_cause = NOT_DUE
        while (
            cause := expire_due(held, workspace, candidates, decisions, constraints, cursor, refused_cause)
        ) != NOT_DUE:
            refused_cause = NOT_DUE if self._release_all(decisions, int(cursor[1]), cause) else cause

    def _release_all(self, decisions: DecisionBuffer, newest: int, cause: int) -> bool:
        """R."""
        held, workspace, constraints = self._buffer.held, self._workspace, self._constraints
        _, labels = self._partition()
        if not len(labels) or not is_feasible(held, labels, workspace, constraints):
            return False
        release_partition(held, decisions, constraints, labels, newest, cause)
        return True


@njit
def expire_due(
    held: HeldRecords,
    workspace: Workspace,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
    refused_cause: int,
) -> int:
    """Let records of the block in and decide on all that becomes due, until more are held than this can partition.

    Parameters
    ----------
    held, scratch, offer, outcome, demand
        Of the stream.
    steps : ndarray of int64, shape (2,)
        How many records are still to come in, and the newest position; both are kept up.
    refused : int
        Cause for which the oldest record must leave without the others, in a cluster that grows, or `NOT_DUE`.

    Returns
    -------
    int
        Cause for which all that is held must leave now, in the clusters of the caller, or `NOT_DUE`: the block is in.
    """
    if refused_cause != NOT_DUE:
        expire(held, workspace, candidates, decisions, constraints, cursor[1], refused_cause)
    while True:
        cause = append_until_due(held, workspace, constraints, cursor)
        if cause == NOT_DUE or held.extent[TAIL] - held.extent[HEAD] > DENSE_UP_TO:
            return cause
        rows = held_as_table(held, workspace, constraints)
        if rows.shape[0] > 0:
            labels = _partition(rows, constraints.k)
            if is_feasible(held, labels, workspace, constraints):
                release_partition(held, decisions, constraints, labels, cursor[1], cause)
                continue
        expire(held, workspace, candidates, decisions, constraints, cursor[1], cause)


@njit
def _partition(rows: Float64Matrix, k: int) -> Int32Vector:
    """Do what `clustering.static` does with a table of few records: MDAV, then descent."""
    labels = by_scan(rows, k)
    return labels if rows.shape[0] < 2 * k else descend_dense(rows, labels, k, ROUNDS)
