"""Which clusters of a pool to take, so that each record is in one: relaxed to linear, and whole (through HiGHS)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int32Matrix, Int64Vector
from shoal.errors import ParameterError

if TYPE_CHECKING:
    import highspy

__all__ = ["Covering", "Relaxed", "require_solver"]

NEARLY = 1e-6
"""Relative gap at which a choice counts as the best of the pool."""
HALF = 0.5


class Relaxed(NamedTuple):
    """The linear relaxation: clusters may be taken in part."""

    loss: float
    prices: Float64Vector
    """What each record costs there, shape (n,)."""


def require_solver() -> None:
    """Raise unless HiGHS is installed.

    Raises
    ------
    ParameterError
        With the remedy.
    """
    try:
        import highspy  # noqa: F401, PLC0415 - an extra: only who asks for it needs it
    except ImportError:
        raise ParameterError("refine 'exact' needs the solver HiGHS: pip install 'shoal[exact]'") from None


class Covering:
    """A pool of clusters of n records that grows between solutions; each solution starts from the one before."""

    def __init__(self, n: int) -> None:
        import highspy  # noqa: PLC0415 - as in require_solver

        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._infinity = highspy.kHighsInf
        self._whole = highspy.HighsVarType.kInteger
        for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", NEARLY)):
            self._solver.setOptionValue(option, value)
        self._solver.addRows(n, np.ones(n), np.ones(n), 0, np.zeros(n, np.int32), np.empty(0, np.int32), np.empty(0))
        self.count = 0

    def add(self, clusters: Int32Matrix, costs: Float64Vector) -> None:
        """Add clusters: members, shape (m, most), filled up with -1; and what each loses, shape (m,)."""
        present = clusters >= 0
        ends = np.cumsum(present.sum(axis=1))
        members = clusters[present].astype(np.int32)
        starts = np.concatenate(([0], ends[:-1])).astype(np.int32)
        zeros, without_end = np.zeros(len(clusters)), np.full(len(clusters), self._infinity)
        self._solver.addCols(
            len(clusters), costs, zeros, without_end, len(members), starts, members, np.ones(len(members))
        )
        self.count += len(clusters)

    def relax(self) -> Relaxed:
        """Solve the linear relaxation."""
        self._solver.run()
        return Relaxed(self._solver.getInfo().objective_function_value, np.array(self._solver.getSolution().row_dual))

    def choose(self, start: Int64Vector, is_over: Callable[[], bool]) -> Int64Vector:
        """Return the numbers of the clusters to take, from a legal choice ``start`` on, until ``is_over`` says so."""
        import highspy  # noqa: PLC0415 - as in require_solver

        every = np.arange(self.count, dtype=np.int32)
        self._solver.changeColsIntegrality(self.count, every, np.full(self.count, self._whole.value, np.uint8))
        first = highspy.HighsSolution()
        first.col_value = np.isin(every, start).astype(float).tolist()
        self._solver.setSolution(first)

        def ask(event: highspy.HighsCallbackEvent) -> None:
            if is_over():
                event.interrupt()

        self._solver.cbMipInterrupt.subscribe(ask)
        self._solver.run()
        self._solver.cbMipInterrupt.unsubscribe(ask)
        return np.flatnonzero(np.array(self._solver.getSolution().col_value) > HALF)
