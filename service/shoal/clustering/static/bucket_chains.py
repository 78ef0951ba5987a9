"""Chains through buckets: each record takes the place, in a chain, of the nearest that is free in the bucket before."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit
from shoal.clustering.numba.kd_tree import LOWEST, build, empty_neighbour_search, nearest, remove

__all__ = ["build_bucket_chains"]

LEAF = 32


@njit
def build_bucket_chains(values: Float64Matrix, order: Int64Vector, starts: Int64Vector) -> Int64Vector:
    """Return the chain (n,) of each record, from 0; of a record in no bucket it is 0.

    Bucket x is ``order[starts[x]:starts[x + 1]]``, none larger than the one before; its records are visited in this
    order, and ties go to the first.
    """
    chain = np.zeros(values.shape[0], np.int64)
    before = order[starts[0] : starts[1]]
    for x in range(before.size):
        chain[before[x]] = x
    for bucket in range(1, starts.size - 1):
        here = order[starts[bucket] : starts[bucket + 1]]
        tree, found = build(values[before], LEAF), empty_neighbour_search(1, LEAF)
        leaf = 0
        for i in here:
            nearest(tree, values[i], leaf, found, LOWEST)
            place = found.records[0]
            leaf = tree.leaves[place]
            remove(tree, place)
            chain[i] = chain[before[place]]
        before = here
    return chain
