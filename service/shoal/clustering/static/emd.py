"""Earth mover's distance between the values in a cluster and those in the whole table.

References
----------
.. [1] N. Li, T. Li and S. Venkatasubramanian, "t-Closeness: Privacy Beyond k-Anonymity and l-Diversity", ICDE 2007.
   doi:10.1109/ICDE.2007.367856
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place

__all__ = ["Spectrum", "distances", "sorted_distance"]


class Spectrum(NamedTuple):
    """Values of confidential attributes, as bins 0, 1, ... of each attribute, and how the table has them.

    ``bins`` (a, n); ``starts`` (a + 1,): where the bins of each attribute begin in ``shares`` (of the table, by bin),
    ``reach`` (shares up to and with a bin) and ``sums`` (of ``reach`` up to a bin, one more per attribute, so that
    those of attribute a begin at ``starts[a] + a``); ``ordered`` (a,): whether bins lie on a line.
    """

    bins: Int64Matrix
    starts: Int64Vector
    shares: Float64Vector
    reach: Float64Vector
    sums: Float64Vector
    ordered: BoolVector


@njit
def distances(spectrum: Spectrum, attribute: int, order: Int64Vector, offsets: Int64Vector) -> Float64Vector:
    """Return the distance of each cluster.

    ``order`` (n,) are records cluster after cluster, by bin within each; cluster g is
    ``order[offsets[g]:offsets[g + 1]]``. O(size log bins) each.
    """
    found = np.empty(offsets.size - 1)
    bins = spectrum.bins[attribute][order]
    for cluster in range(found.size):
        found[cluster] = sorted_distance(spectrum, attribute, bins[offsets[cluster] : offsets[cluster + 1]])
    return found


@njit_in_place
def sorted_distance(spectrum: Spectrum, attribute: int, bins: Int64Vector) -> float:
    """Return the distance of the ascending bins of one cluster."""
    first, end = spectrum.starts[attribute], spectrum.starts[attribute + 1]
    if spectrum.ordered[attribute]:
        reach = spectrum.reach[first:end]
        return float(_along(bins, reach, spectrum.sums[first + attribute : end + attribute + 1]))
    return float(_apart(bins, spectrum.shares[first:end]))


@njit_in_place
def _along(bins: Int64Vector, reach: Float64Vector, sums: Float64Vector) -> float:
    """Sum |share up to a bin in the cluster - the same in the table| over bins, 1 / (m - 1) apart.

    The first is a staircase of few steps, the second only rises: each step is cut once, where they meet.
    """
    m, count = reach.size, bins.size
    if m == 1:
        return 0.0
    before, total = 0, 0.0
    for step in range(count + 1):
        behind = bins[step] if step < count else m
        if behind > before:
            height = step / count
            meet = _first_above(reach, height, before, behind)
            total += height * (meet - before) - (sums[meet] - sums[before])
            total += (sums[behind] - sums[meet]) - height * (behind - meet)
            before = behind
    return max(total, 0.0) / (m - 1)


@njit_in_place
def _first_above(reach: Float64Vector, height: float, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) >> 1
        if reach[middle] > height:
            high = middle
        else:
            low = middle + 1
    return low


@njit_in_place
def _apart(bins: Int64Vector, shares: Float64Vector) -> float:
    """Half the sum of |share in the cluster - share in the table|: all bins are equally far from each other."""
    common, x, count = 0.0, 0, bins.size
    while x < count:
        y = x
        while y < count and bins[y] == bins[x]:
            y += 1
        common += min((y - x) / count, shares[bins[x]])
        x = y
    return max(1.0 - common, 0.0)
