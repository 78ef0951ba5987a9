"""The set partitioning problem: choose clusters of a pool so that each record is in exactly one (solved by HiGHS)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int32Matrix, Int64Vector
from shoal.errors import ParameterError

if TYPE_CHECKING:
    import highspy

__all__ = ["Choice", "LinearRelaxation", "SetPartitioning", "require_solver"]

RELATIVE_GAP = 1e-7
"""Relative gap at which a choice counts as the optimum of the pool."""
HALF = 0.5


class LinearRelaxation(NamedTuple):
    """The optimum where clusters may be chosen in part."""

    loss: float
    prices: Float64Vector  # (n,): dual price of each record


class Choice(NamedTuple):
    """Clusters that are chosen, and a lower bound on the loss of any choice from the same pool."""

    numbers: Int64Vector
    bound: float
    """Within the tolerances of the solver; 0 if it found none."""


def require_solver() -> None:
    """Check that HiGHS is installed.

    Raises
    ------
    ParameterError
        If it is not; the message says how to install it.
    """
    try:
        import highspy  # noqa: F401, PLC0415 - an optional dependency
    except ImportError:
        raise ParameterError("refine 'exact' needs the solver HiGHS: pip install 'shoal[exact]'") from None


class SetPartitioning:
    """A pool of clusters of n records that grows between solutions; each solution starts from the one before.

    HiGHS runs on one thread, so the same calls give the same results.

    Parameters
    ----------
    n : int
        Number of records.

    Attributes
    ----------
    count : int
        Number of clusters in the pool.
    """

    def __init__(self, n: int) -> None:
        import highspy  # noqa: PLC0415 - as in require_solver

        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._infinity = highspy.kHighsInf
        self._integer = highspy.HighsVarType.kInteger
        for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", RELATIVE_GAP)):
            self._solver.setOptionValue(option, value)
        self._solver.addRows(n, np.ones(n), np.ones(n), 0, np.zeros(n, np.int32), np.empty(0, np.int32), np.empty(0))
        self.count = 0

    def add(self, clusters: Int32Matrix, costs: Float64Vector) -> None:
        """Add clusters to the pool.

        Parameters
        ----------
        clusters : ndarray of int32, shape (m, largest)
            Members of each cluster, padded with -1.
        costs : ndarray of float64, shape (m,)
            Loss of each cluster.
        """
        present = clusters >= 0
        ends = np.cumsum(present.sum(axis=1))
        members = clusters[present].astype(np.int32)
        starts = np.concatenate(([0], ends[:-1])).astype(np.int32)
        lower, upper = np.zeros(len(clusters)), np.full(len(clusters), self._infinity)
        self._solver.addCols(len(clusters), costs, lower, upper, len(members), starts, members, np.ones(len(members)))
        self.count += len(clusters)

    def relax(self) -> LinearRelaxation:
        """Solve the linear relaxation."""
        self._solver.run()
        loss = self._solver.getInfo().objective_function_value
        return LinearRelaxation(loss, np.array(self._solver.getSolution().row_dual))

    def choose(self, start: Int64Vector, is_over: Callable[[], bool]) -> Choice:
        """Return the clusters to choose, by their numbers, and the bound that the solver proved.

        Parameters
        ----------
        start : ndarray of int64
            Numbers of the clusters of a partition to start from.
        is_over : callable
            Called between the steps of the solver; once it returns true, the best choice so far is returned. It may be
            no partition if the solver was stopped before it took the start over.
        """
        import highspy  # noqa: PLC0415 - as in require_solver

        columns = np.arange(self.count, dtype=np.int32)
        self._solver.changeColsIntegrality(self.count, columns, np.full(self.count, self._integer.value, np.uint8))
        first = highspy.HighsSolution()
        first.col_value = np.isin(columns, start).astype(float).tolist()
        self._solver.setSolution(first)

        def interrupt_if_over(event: highspy.HighsCallbackEvent) -> None:
            if is_over():
                event.interrupt()

        self._solver.cbMipInterrupt.subscribe(interrupt_if_over)
        self._solver.run()
        self._solver.cbMipInterrupt.unsubscribe(interrupt_if_over)
        numbers = np.flatnonzero(np.array(self._solver.getSolution().col_value) > HALF)
        statuses, bound = highspy.HighsModelStatus, self._solver.getInfo().mip_dual_bound
        is_valid = self._solver.getModelStatus() in {statuses.kOptimal, statuses.kInterrupt} and 0.0 < bound < np.inf
        return Choice(numbers, float(bound) if is_valid else 0.0)
