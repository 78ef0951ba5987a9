"""The last check: who leaves is counted from the records as they came in. It counts apart from the rule it checks."""

from __future__ import annotations

from typing import NamedTuple

from shoal.arrays import BoolVector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.stream.held import CAUSE, END, FLUSHED, NEWEST, POSITION, DecisionBuffer

__all__ = ["KEPT", "OVERDUE", "TOO_FEW", "TOO_MUCH", "UNKNOWN", "InvariantLimits", "RegisteredRecords", "examine"]

KEPT, UNKNOWN, TOO_FEW, TOO_MUCH, OVERDUE = range(5)
"""Verdicts: the promise is kept; a record is not held, k is missed, a share is exceeded, a record was held too long."""

SHARE_TOLERANCE = 1e-9
"""Rounding of a share times a whole number is no excess."""


class RegisteredRecords(NamedTuple):
    """Who is held, by ascending position: ``positions``, ``subjects``, and ``gone`` for those who have left.

    ``first`` (1,) is the place of the oldest who has not, or behind all.
    """

    positions: Int64Vector
    subjects: Int64Vector
    gone: BoolVector
    first: Int64Vector


class InvariantLimits(NamedTuple):
    """At least ``k`` subjects in a cluster, each with ``max_share`` of it at most; at most ``delta`` positions held."""

    k: int
    delta: int
    max_share: float


@njit_in_place
def examine(
    ledger: RegisteredRecords,
    arrivals: Int64Vector,
    outcome: DecisionBuffer,
    promise: InvariantLimits,
    counted: Int64Matrix,
    owners: Int64Vector,
) -> int:
    """Check decisions and strike who leaves from the ledger; return the verdict.

    ``arrivals`` are the positions of the block and the one before it. Writes the subjects of each cluster and the
    records of its heaviest one to the rows of ``counted`` (2, G); ``owners`` (E,) is scratch.
    """
    if not _settle(ledger, outcome.suppressed[POSITION], owners) or not _settle(ledger, outcome.positions, owners):
        return UNKNOWN
    ends, start = outcome.clusters[END], 0
    for cluster in range(ends.size):
        subjects, heaviest = _count_subjects(owners[start : ends[cluster]])
        counted[0, cluster], counted[1, cluster] = subjects, heaviest
        if subjects < promise.k:
            return TOO_FEW
        if heaviest > promise.max_share * (ends[cluster] - start) + SHARE_TOLERANCE:
            return TOO_MUCH
        start = ends[cluster]
    first = _oldest_left(ledger)
    overdue = (
        _is_overdue(outcome.positions, ends, outcome.clusters, arrivals, promise.delta)
        or _is_overdue(outcome.suppressed[POSITION], ends[:0], outcome.suppressed, arrivals, promise.delta)
        or (first < ledger.gone.size and arrivals[arrivals.size - 1] - ledger.positions[first] >= promise.delta)
    )
    return OVERDUE if overdue else KEPT


@njit_in_place
def _settle(ledger: RegisteredRecords, leaving: Int64Vector, owners: Int64Vector) -> bool:
    """Mark leaving records as gone and write their subjects to ``owners``.

    Returns False as soon as one is unknown or leaves a second time.
    """
    positions, count = ledger.positions, ledger.positions.size
    for i in range(leaving.size):
        # Positions that have just arrived mostly have no gaps, so that one look is enough.
        place = count - 1 - (positions[count - 1] - leaving[i]) if count else -1
        if place < 0 or place >= count or positions[place] != leaving[i]:
            place = _place(positions, leaving[i])
        if place < 0 or ledger.gone[place]:
            return False
        ledger.gone[place] = True
        owners[i] = ledger.subjects[place]
    return True


@njit_in_place
def _place(positions: Int64Vector, wanted: int) -> int:
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
def _oldest_left(ledger: RegisteredRecords) -> int:
    """Move ``first`` to the oldest who has not left, and return it."""
    first = ledger.first[0]
    while first < ledger.gone.size and ledger.gone[first]:
        first += 1
    ledger.first[0] = first
    return int(first)


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
            value, place = values[i], i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
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
