"""What the last check counts, from the records as they came in; it shares nothing with the rule it checks."""

from __future__ import annotations

from shoal.kernel.arrays import BoolVector, Int64Vector
from shoal.kernel.jit import njit

__all__ = ["recount", "settle"]


@njit
def settle(
    positions: Int64Vector, subjects: Int64Vector, leaving: Int64Vector, gone: BoolVector, owners: Int64Vector
) -> bool:
    """Find leaving records among ``positions`` (ascending): mark them in ``gone``, write their subjects to ``owners``.

    Returns False as soon as one is unknown or leaves a second time.
    """
    for i in range(leaving.size):
        low, high = 0, positions.size
        while low < high:
            middle = (low + high) >> 1
            if positions[middle] < leaving[i]:
                low = middle + 1
            else:
                high = middle
        if low == positions.size or positions[low] != leaving[i] or gone[low]:
            return False
        gone[low] = True
        owners[i] = subjects[low]
    return True


@njit
def recount(owners: Int64Vector, offsets: Int64Vector, distinct: Int64Vector, heaviest: Int64Vector) -> None:
    """Count the subjects of each cluster, and the records of its heaviest one; sorts ``owners`` within clusters."""
    for cluster in range(distinct.size):
        members = owners[offsets[cluster] : offsets[cluster + 1]]
        members.sort()
        run = 0
        for i in range(members.size):
            run = run + 1 if i > 0 and members[i] == members[i - 1] else 1
            if run == 1:
                distinct[cluster] += 1
            heaviest[cluster] = max(heaviest[cluster], run)
