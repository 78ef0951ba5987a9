"""How far a cluster is from satisfying the constraints on subjects, before and after a change."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.diversity import SHARE_TOLERANCE
from shoal.clustering.numba.jit import njit_inline
from shoal.clustering.static.constraints import NONE

__all__ = ["subject_violation"]


@njit_inline
def subject_violation(
    subjects: Int64Vector,
    tally: Int64Vector,
    members: Int64Vector,
    leaving: int,
    joining: int,
    max_share: float,
    k: int,
) -> int:
    """Return how many subjects a cluster lacks, and how many records of one subject are above its share.

    Parameters
    ----------
    subjects : ndarray of int64, shape (n,)
        Subject of each record, from 0.
    tally : ndarray of int64, shape (n,)
        Scratch; zero before and after.
    members : ndarray of int64, shape (m,)
        Records of the cluster.
    leaving, joining : int
        Member that leaves and record that joins; -1 for none.
    max_share : float
        Largest share of one subject.
    k : int
        Smallest number of subjects.

    Returns
    -------
    int
        0 if the cluster satisfies both. O(m).
    """
    distinct, most, size = 0, 0, 0
    for x in range(members.size + 1):
        record = joining if x == members.size else members[x]
        if record != NONE and record != leaving:  # noqa: PLR1714 - a tuple would not be inlined
            tally[subjects[record]] += 1
            distinct += tally[subjects[record]] == 1
            most = max(most, tally[subjects[record]])
            size += 1
    for x in range(members.size + 1):
        record = joining if x == members.size else members[x]
        if record != NONE:
            tally[subjects[record]] = 0
    above = float(most) - max_share * size - SHARE_TOLERANCE
    return max(0, k - distinct) + (int(np.ceil(above)) if above > 0.0 else 0)
