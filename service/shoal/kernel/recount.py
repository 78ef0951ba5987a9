"""What the last check counts, from the records as they came in; it shares nothing with the rule it checks."""

from __future__ import annotations

from typing import NamedTuple

from shoal.kernel.arrays import BoolVector, Int64Vector
from shoal.kernel.jit import njit_in_place

__all__ = ["Ledger", "count_subjects", "is_overdue", "settle", "strike"]


class Ledger(NamedTuple):
    """Who is held, by ascending position: ``positions``, ``subjects``, and ``gone`` for those that leave now."""

    positions: Int64Vector
    subjects: Int64Vector
    gone: BoolVector


@njit_in_place
def settle(ledger: Ledger, leaving: Int64Vector, owners: Int64Vector) -> bool:
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
def strike(ledger: Ledger) -> int:
    """Bring what is not gone to the front, in order; return how many."""
    positions, subjects, kept = ledger.positions, ledger.subjects, 0
    for i in range(positions.size):
        positions[kept] = positions[i]
        subjects[kept] = subjects[i]
        kept += not ledger.gone[i]
    return kept


@njit_in_place
def count_subjects(owners: Int64Vector, offsets: Int64Vector, subjects: Int64Vector, heaviest: Int64Vector) -> None:
    """Count the subjects of each cluster, and the records of its heaviest one; sorts ``owners`` within clusters."""
    for cluster in range(subjects.size):
        members = owners[offsets[cluster] : offsets[cluster + 1]]
        _sort(members)
        run, most, different = 0, 0, 0
        for i in range(members.size):
            run = run + 1 if i > 0 and members[i] == members[i - 1] else 1
            different += run == 1
            most = max(most, run)
        subjects[cluster] = different
        heaviest[cluster] = most


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
def is_overdue(
    positions: Int64Vector,
    offsets: Int64Vector,
    newest: Int64Vector,
    flushed: BoolVector,
    arrivals: Int64Vector,
    delta: int,
) -> bool:
    """Whether a record that leaves was due already at the arrival before the one at which it leaves.

    At the end of the stream nothing arrives, and what is due has left before. ``newest`` never descends.
    """
    arrival = 0
    for decision in range(newest.size):
        while arrival + 1 < arrivals.size and arrivals[arrival + 1] < newest[decision]:
            arrival += 1
        seen = newest[decision] if flushed[decision] else arrivals[arrival]
        for i in range(offsets[decision], offsets[decision + 1]):
            if seen - positions[i] >= delta:
                return True
    return False
