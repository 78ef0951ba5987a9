"""Which clusters are joined: pairs of neighbours, of which at least one lacks something."""

from __future__ import annotations

import numpy as np

from shoal.arrays import BoolVector, Int32Matrix, Int64Vector
from shoal.clustering.numba.jit import njit

__all__ = ["pair_clusters"]


@njit
def pair_clusters(neighbours: Int32Matrix, lacking: BoolVector) -> Int64Vector:
    """Return for each cluster the one it becomes part of, itself if none.

    In order of their numbers, those that lack something take the nearest that is in no pair yet; at least one does.
    """
    joined, taken = np.arange(lacking.size), np.zeros(lacking.size, np.bool_)
    for cluster in range(lacking.size):
        if not lacking[cluster] or taken[cluster]:
            continue
        for other in neighbours[cluster]:
            if not taken[other]:
                taken[cluster] = taken[other] = True
                joined[cluster] = other
                break
    return joined
