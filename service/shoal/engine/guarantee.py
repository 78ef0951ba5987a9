"""The last check inside the engine: what leaves is recounted from the records as they came in. It fails closed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.errors import AnonymityViolation, DelayViolation, GuaranteeError
from shoal.kernel.arrays import Int64Vector
from shoal.kernel.held import FLUSHED, Outcome
from shoal.kernel.recount import Ledger, count_subjects, is_overdue, settle, strike

__all__ = ["Guarantee", "Sealed"]

SHARE_TOLERANCE = 1e-9
"""Rounding of max_share times a whole number is no violation."""


class Sealed(NamedTuple):
    """What was counted in each cluster: ``subjects`` and records of the ``heaviest`` subject, int64 (G,)."""

    subjects: Int64Vector
    heaviest: Int64Vector


class Guarantee:
    """Keeps its own ledger of who is held, and lets decisions pass only if they keep the promise.

    Parameters
    ----------
    k : int
        Subjects that each cluster must have.
    delta : int
        Largest delay in positions.
    max_share : float
        Largest share of one subject in a cluster.

    Notes
    -----
    Guarantees: a sealed cluster has at least k subjects and none above its share; every record leaves once; none was
    overdue when a record arrived after it, and none is overdue now. Where positions have no gaps this means: no delay
    above delta. After a violation everything is refused.
    Cost: O(held + block + decided log held) per call.
    """

    def __init__(self, k: int, delta: int, max_share: float) -> None:
        self._k = k
        self._delta = delta
        self._max_share = max_share
        self._positions = np.zeros(0, np.int64)
        self._subjects = np.zeros(0, np.int64)
        self._arrivals = np.full(1, -1, np.int64)
        self._broken = False

    def admit(self, positions: Int64Vector, subjects: Int64Vector) -> None:
        """Enter arriving records into the ledger.

        Raises
        ------
        GuaranteeError
            If the promise was broken before.
        """
        if self._broken:
            raise GuaranteeError("a guarantee was broken before: this stream is closed")
        self._positions = np.concatenate((self._positions, positions))
        self._subjects = np.concatenate((self._subjects, subjects))
        self._arrivals = np.concatenate((self._arrivals[-1:], positions))

    def seal(self, outcome: Outcome) -> Sealed:
        """Check decisions and strike what leaves from the ledger.

        Raises
        ------
        AnonymityViolation
            A cluster of too few subjects, a subject above its share, a record unknown or leaving twice.
        DelayViolation
            A record that was overdue when another arrived, or is overdue and still held.
        """
        self._broken = True  # until proven otherwise
        sealed = self._settle(outcome)
        self._check_delays(outcome)
        self._broken = False
        return sealed

    def _settle(self, outcome: Outcome) -> Sealed:
        ledger = Ledger(self._positions, self._subjects, np.zeros(len(self._positions), np.bool_))
        owners = np.empty(max(len(outcome.positions), len(outcome.suppressed)), np.int64)
        # The suppressed first: their subjects are of no interest, and are written over.
        if not (settle(ledger, outcome.suppressed, owners) and settle(ledger, outcome.positions, owners)):
            raise AnonymityViolation("a record that is not held was about to leave")
        sealed = Sealed(np.empty(len(outcome.newest), np.int64), np.empty(len(outcome.newest), np.int64))
        count_subjects(owners, outcome.offsets, sealed.subjects, sealed.heaviest)
        if (sealed.subjects < self._k).any():
            raise AnonymityViolation(
                f"a cluster of {sealed.subjects.min()} subjects was about to leave, k is {self._k}"
            )
        if (sealed.heaviest > self._max_share * np.diff(outcome.offsets) + SHARE_TOLERANCE).any():
            raise AnonymityViolation(f"a subject was about to own more than {self._max_share} of a cluster")
        kept = strike(ledger)
        self._positions = self._positions[:kept]
        self._subjects = self._subjects[:kept]
        return sealed

    def _check_delays(self, outcome: Outcome) -> None:
        singly = np.arange(len(outcome.suppressed) + 1)
        released = (outcome.positions, outcome.offsets, outcome.newest, outcome.causes == FLUSHED)
        suppressed = (outcome.suppressed, singly, outcome.suppressed_newest, outcome.suppressed_causes == FLUSHED)
        if any(is_overdue(*leaving, self._arrivals, self._delta) for leaving in (released, suppressed)):
            raise DelayViolation(f"a record was held for more than {self._delta} positions")
        if len(self._positions) and self._arrivals[-1] - self._positions[0] >= self._delta:
            raise DelayViolation(f"a record would be held for more than {self._delta} positions")
