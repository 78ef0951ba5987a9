"""Inv."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.stream.dominance import NO_DOMINANCE, Dominance, is_dominated
from shoal.clustering.stream.held_records import (
    CAUSE,
    END,
    FLUSHED,
    NEWEST,
    POSITION,
    DecisionBuffer,
    empty_decision_buffer,
)
from shoal.errors import AnonymityViolation, DelayViolation, GuaranteeError

__all__ = [
    "NOT_HELD",
    "OVERDUE",
    "SHARE_EXCEEDED",
    "TOO_FEW_SUBJECTS",
    "VALID",
    "InvariantChecker",
    "InvariantLimits",
    "RegisteredRecords",
    "check_decisions",
]

VALID, NOT_HELD, TOO_FEW_SUBJECTS, SHARE_EXCEEDED, OVERDUE = range(5)
"""Verdicts: the promise is kept; a record is not held, k is missed, a share is exceeded, a record was held too long."""

SHARE_TOLERANCE = 1e-9
"""Rounding of a share times a whole number is no excess."""

MIN_CAPACITY = 4096
"""Room in the ledger, in records: those who have left are forgotten together when it is full."""


class InvariantLimits(NamedTuple):
    """At least ``k`` subjects in a cluster, each with ``max_share`` of it at most; at most ``delta`` positions held."""

    k: int
    delta: int
    max_share: float


class RegisteredRecords(NamedTuple):
    """Who is held, by ascending position: ``positions``, ``subjects``, and ``gone`` for those who have left.

    ``first`` (1,) is the place of the oldest who has not, or behind all.
    """

    positions: Int64Vector
    subjects: Int64Vector
    removed: BoolVector
    oldest: Int64Vector


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
        self._limits = InvariantLimits(k, delta, max_share)
        self._amounts = np.zeros((0, len(dominance.references)))
        self._registry = _empty_registry(0)
        self._filled = 0
        self._arrivals = np.full(1, -1, np.int64)
        self._broken = False
        self.verify(empty_decision_buffer(0))  # compiles here, not while the first records wait

    def register(self, positions: Int64Vector, subjects: Int64Vector, amounts: Float64Matrix | None = None) -> None:
        """Enter arriving records into the ledger.

        Raises
        ------
        GuaranteeError
            If the promise was broken before.
        """
        if self._broken:
            raise GuaranteeError("a guarantee was broken before: this stream is closed")
        end = self._filled + len(positions)
        if end > len(self._registry.removed):
            self._forget_released(len(positions))
            end = self._filled + len(positions)
        self._registry.positions[self._filled : end] = positions
        self._registry.subjects[self._filled : end] = subjects
        if amounts is not None and amounts.shape[1]:
            self._amounts[self._filled : end] = amounts
        self._filled = end
        self._arrivals = np.concatenate((self._arrivals[-1:], positions))

    def verify(self, decisions: DecisionBuffer) -> Int64Matrix:
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
        undominated = self._is_undominated(decisions)
        positions, subjects, removed, oldest = self._registry
        registry = RegisteredRecords(
            positions[: self._filled], subjects[: self._filled], removed[: self._filled], oldest
        )
        counted = np.empty((2, decisions.clusters.shape[1]), np.int64)
        owners = np.empty(decisions.positions.size + decisions.suppressed.shape[1], np.int64)
        verdict = check_decisions(registry, self._arrivals, decisions, self._limits, counted, owners)
        if verdict == NOT_HELD:
            raise AnonymityViolation("a record that is not held was about to leave")
        if verdict == TOO_FEW_SUBJECTS:
            raise AnonymityViolation(f"a cluster of fewer than {self._limits.k} subjects was about to leave")
        if verdict == SHARE_EXCEEDED:
            raise AnonymityViolation(f"a subject was about to own more than {self._limits.max_share} of a cluster")
        if verdict == OVERDUE:
            raise DelayViolation(f"a record was held for more than {self._limits.delta} positions")
        if not undominated:
            raise AnonymityViolation("a cluster in which one contribution stands out was about to leave")
        self._broken = False
        return counted

    def _forget_released(self, arriving: int) -> None:
        """Forget who has left, and take as much room again as what is left and arrives needs."""
        kept = np.flatnonzero(~self._registry.removed[: self._filled])
        registry = _empty_registry(max(2 * (len(kept) + arriving), MIN_CAPACITY))
        amounts = np.zeros((len(registry.removed), self._amounts.shape[1]))
        for new, old in ((registry.positions, self._registry.positions), (registry.subjects, self._registry.subjects)):
            new[: len(kept)] = old[kept]
        amounts[: len(kept)] = self._amounts[kept]
        self._registry, self._amounts, self._filled = registry, amounts, len(kept)

    def _is_undominated(self, decisions: DecisionBuffer) -> bool:
        """Whether nobody's contribution stands out in any cluster; of records that are not held it says nothing."""
        if not self._dominance.share:
            return True
        for positions in np.split(decisions.positions, decisions.clusters[END, :-1]):
            slots = np.searchsorted(self._registry.positions[: self._filled], positions)
            slots = slots[slots < self._filled]
            if len(slots) and is_dominated(self._dominance, self._amounts[slots], self._registry.subjects[slots]):
                return False
        return True


def _empty_registry(capacity: int) -> RegisteredRecords:
    positions, subjects, oldest = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(1, np.int64)
    return RegisteredRecords(positions, subjects, np.zeros(capacity, np.bool_), oldest)


@njit_in_place
def check_decisions(
    registry: RegisteredRecords,
    arrivals: Int64Vector,
    decisions: DecisionBuffer,
    limits: InvariantLimits,
    counted: Int64Matrix,
    owners: Int64Vector,
) -> int:
    """Check decisions and strike who leaves from the ledger; return the verdict.

    ``arrivals`` are the positions of the block and the one before it. Writes the subjects of each cluster and the
    records of its heaviest one to the rows of ``counted`` (2, G); ``owners`` (E,) is scratch.
    """
    if not _remove_released(registry, decisions.suppressed[POSITION], owners) or not _remove_released(
        registry, decisions.positions, owners
    ):
        return NOT_HELD
    ends, start = decisions.clusters[END], 0
    for cluster in range(ends.size):
        subjects, heaviest = _count_subjects(owners[start : ends[cluster]])
        counted[0, cluster], counted[1, cluster] = subjects, heaviest
        if subjects < limits.k:
            return TOO_FEW_SUBJECTS
        if heaviest > limits.max_share * (ends[cluster] - start) + SHARE_TOLERANCE:
            return SHARE_EXCEEDED
        start = ends[cluster]
    oldest = _oldest_held(registry)
    overdue = (
        _is_overdue(decisions.positions, ends, decisions.clusters, arrivals, limits.delta)
        or _is_overdue(decisions.suppressed[POSITION], ends[:0], decisions.suppressed, arrivals, limits.delta)
        or (oldest < registry.removed.size and arrivals[arrivals.size - 1] - registry.positions[oldest] >= limits.delta)
    )
    return OVERDUE if overdue else VALID


@njit_in_place
def _remove_released(registry: RegisteredRecords, leaving: Int64Vector, owners: Int64Vector) -> bool:
    """Mark leaving records as gone and write their subjects to ``owners``.

    Returns False as soon as one is unknown or leaves a second time.
    """
    positions, count = registry.positions, registry.positions.size
    for i in range(leaving.size):
        # Positions that have just arrived mostly have no gaps, so that one look is enough.
        index = count - 1 - (positions[count - 1] - leaving[i]) if count else -1
        if index < 0 or index >= count or positions[index] != leaving[i]:
            index = _find(positions, leaving[i])
        if index < 0 or registry.removed[index]:
            return False
        registry.removed[index] = True
        owners[i] = registry.subjects[index]
    return True


@njit_in_place
def _find(positions: Int64Vector, wanted: int) -> int:
    """Return where a position stands, or -1."""
    low, high = 0, positions.size
    while low < high:
        middle = (low + high) >> 1
        if positions[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < positions.size and positions[low] == wanted else -1


@njit_in_place
def _oldest_held(registry: RegisteredRecords) -> int:
    """Move ``first`` to the oldest who has not left, and return it."""
    oldest = registry.oldest[0]
    while oldest < registry.removed.size and registry.removed[oldest]:
        oldest += 1
    registry.oldest[0] = oldest
    return int(oldest)


@njit_in_place
def _count_subjects(owners: Int64Vector) -> tuple[int, int]:
    """Return how many differ, and how often the most frequent one occurs; sorts them."""
    _sort(owners)
    different, run, most = 0, 0, 0
    for i in range(owners.size):
        run = run + 1 if i > 0 and owners[i] == owners[i - 1] else 1
        different += run == 1
        most = max(most, run)
    return different, most


@njit_in_place
def _sort(values: Int64Vector) -> None:
    """Shell's sort with gaps 1, 4, 13, 40...: insertion for the few records of a usual cluster."""
    gap = 1
    while gap < values.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, values.size):
            value, index = values[i], i
            while index >= gap and values[index - gap] > value:
                values[index] = values[index - gap]
                index -= gap
            values[index] = value
        gap //= 3


@njit_in_place
def _is_overdue(
    positions: Int64Vector, ends: Int64Vector, decisions: Int64Matrix, arrivals: Int64Vector, delta: int
) -> bool:
    """Whether a record that leaves was due already at the arrival before the one at which it leaves.

    At the end of the stream nothing arrives, and what is due has left before. Without ``ends`` each leaves alone.
    """
    arrival, start = 0, 0
    for decision in range(decisions.shape[1]):
        newest = decisions[NEWEST, decision]  # never descends
        while arrival + 1 < arrivals.size and arrivals[arrival + 1] < newest:
            arrival += 1
        seen = newest if decisions[CAUSE, decision] == FLUSHED else arrivals[arrival]
        end = ends[decision] if ends.size else decision + 1
        for i in range(start, end):
            if seen - positions[i] >= delta:
                return True
        start = end
    return False
