"""The last check inside the engine: what leaves is recounted from the records as they came in. It fails closed."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.clustering.stream import recount
from shoal.clustering.stream.dominance import NO_DOMINANCE, is_dominated
from shoal.clustering.stream.dominance_kernel import Dominance
from shoal.clustering.stream.held import END, DecisionBuffer, empty_decision_buffer
from shoal.clustering.stream.recount import InvariantLimits, RegisteredRecords
from shoal.errors import AnonymityViolation, DelayViolation, GuaranteeError

__all__ = ["InvariantChecker"]

LEAST = 4096
"""Room in the ledger, in records: those who have left are forgotten together when it is full."""


class InvariantChecker:
    """Keeps its own ledger of who is held, and lets decisions pass only if they keep the promise.

    Parameters
    ----------
    k : int
        Subjects that each cluster must have.
    delta : int
        Largest delay in positions.
    max_share : float
        Largest share of one subject in a cluster.
    dominance : Dominance
        How well nobody's contribution may be worked out.

    Notes
    -----
    Guarantees: a sealed cluster has at least k subjects, none above its share and none that stands out; every record
    leaves once; none was overdue when a record arrived after it, and none is overdue now. Where positions have no gaps
    this means: no delay above delta. After a violation everything is refused.
    Cost: O(block + decided) per call on average, O(log held) more per decided record where positions have gaps.
    """

    def __init__(self, k: int, delta: int, max_share: float, dominance: Dominance = NO_DOMINANCE) -> None:
        self._dominance = dominance
        self._promise = InvariantLimits(k, delta, max_share)
        self._amounts = np.zeros((0, len(dominance.references)))
        self._ledger = _empty_ledger(0)
        self._filled = 0
        self._arrivals = np.full(1, -1, np.int64)
        self._broken = False
        self.seal(empty_decision_buffer(0))  # compiles here, not while the first records wait

    def admit(self, positions: Int64Vector, subjects: Int64Vector, amounts: Float64Matrix | None = None) -> None:
        """Enter arriving records into the ledger.

        Raises
        ------
        GuaranteeError
            If the promise was broken before.
        """
        if self._broken:
            raise GuaranteeError("a guarantee was broken before: this stream is closed")
        end = self._filled + len(positions)
        if end > len(self._ledger.gone):
            self._make_room(len(positions))
            end = self._filled + len(positions)
        self._ledger.positions[self._filled : end] = positions
        self._ledger.subjects[self._filled : end] = subjects
        if amounts is not None and amounts.shape[1]:
            self._amounts[self._filled : end] = amounts
        self._filled = end
        self._arrivals = np.concatenate((self._arrivals[-1:], positions))

    def seal(self, outcome: DecisionBuffer) -> Int64Matrix:
        """Check decisions and strike what leaves from the ledger.

        Returns
        -------
        ndarray of int64, shape (2, G)
            Subjects of each cluster, and records of its heaviest subject; as counted here.

        Raises
        ------
        AnonymityViolation
            A cluster of too few subjects, a subject above its share or too large in it, a record that is not held or
        leaves twice.
        DelayViolation
            A record that was overdue when another arrived, or is overdue and still held.
        """
        self._broken = True  # until proven otherwise
        balanced = self._is_balanced(outcome)
        positions, subjects, gone, first = self._ledger
        ledger = RegisteredRecords(positions[: self._filled], subjects[: self._filled], gone[: self._filled], first)
        counted = np.empty((2, outcome.clusters.shape[1]), np.int64)
        owners = np.empty(outcome.positions.size + outcome.suppressed.shape[1], np.int64)
        verdict = recount.examine(ledger, self._arrivals, outcome, self._promise, counted, owners)
        if verdict == recount.UNKNOWN:
            raise AnonymityViolation("a record that is not held was about to leave")
        if verdict == recount.TOO_FEW:
            raise AnonymityViolation(f"a cluster of fewer than {self._promise.k} subjects was about to leave")
        if verdict == recount.TOO_MUCH:
            raise AnonymityViolation(f"a subject was about to own more than {self._promise.max_share} of a cluster")
        if verdict == recount.OVERDUE:
            raise DelayViolation(f"a record was held for more than {self._promise.delta} positions")
        if not balanced:
            raise AnonymityViolation("a cluster in which one contribution stands out was about to leave")
        self._broken = False
        return counted

    def _make_room(self, arriving: int) -> None:
        """Forget who has left, and take as much room again as what is left and arrives needs."""
        left = np.flatnonzero(~self._ledger.gone[: self._filled])
        ledger = _empty_ledger(max(2 * (len(left) + arriving), LEAST))
        amounts = np.zeros((len(ledger.gone), self._amounts.shape[1]))
        for new, old in ((ledger.positions, self._ledger.positions), (ledger.subjects, self._ledger.subjects)):
            new[: len(left)] = old[left]
        amounts[: len(left)] = self._amounts[left]
        self._ledger, self._amounts, self._filled = ledger, amounts, len(left)

    def _is_balanced(self, outcome: DecisionBuffer) -> bool:
        """Whether nobody's contribution stands out in any cluster; of records that are not held it says nothing."""
        if not self._dominance.share:
            return True
        for positions in np.split(outcome.positions, outcome.clusters[END, :-1]):
            places = np.searchsorted(self._ledger.positions[: self._filled], positions)
            places = places[places < self._filled]
            if len(places) and is_dominated(self._dominance, self._amounts[places], self._ledger.subjects[places]):
                return False
        return True


def _empty_ledger(room: int) -> RegisteredRecords:
    positions, subjects, first = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(1, np.int64)
    return RegisteredRecords(positions, subjects, np.zeros(room, np.bool_), first)
