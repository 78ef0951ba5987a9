"""The earth mover's distance between the values of a cluster and a reference distribution, for three ground distances.

Source: Li, Li and Venkatasubramanian, t-Closeness (ICDE 2007), doi:10.1109/ICDE.2007.367856, section 4. Nothing here is
shared with the kernels of the engine: the hierarchical distance is summed over the edges of the tree, and the other two
over cumulative shares and over shares.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from decimal import Context, Decimal
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["OrderedReference", "equal_distance", "hierarchical_distance", "nearest"]

Path = TypeVar("Path", bound=tuple[Hashable, ...])
"""The nodes of a value from the leaf up to the child of the root."""


class OrderedReference:
    """A distribution over bins in their order, from which the ordered distance of clusters is computed.

    Parameters
    ----------
    shares : sequence of float, length m
        Weight of each bin, the lowest bin first; their sum need not be 1.
    """

    def __init__(self, shares: Sequence[float]) -> None:
        found = np.asarray(shares, np.float64)
        self._cumulative: npt.NDArray[np.float64] = np.cumsum(found)[:-1] / found.sum()
        self._prefix_sums = np.concatenate([[0.0], np.cumsum(self._cumulative)])

    def distance(self, bins: Sequence[int]) -> float:
        """Return the distance of a cluster: the mean difference of the two cumulative distributions.

        Neighbouring bins are 1 / (m - 1) apart, so the mean is taken over the m - 1 steps between them. Between two
        values of a cluster its cumulative share is constant and that of the reference rises. Each of these intervals
        is split where the latter passes the former, so that the absolute differences can be summed with prefix sums.
        Cost: O(size log m).
        """
        steps = len(self._cumulative)
        if not steps:
            return 0.0
        own = np.sort(np.asarray(bins))
        edges = np.concatenate([[0], np.minimum(own, steps), [steps]])
        shares = np.arange(len(own) + 1) / len(own)
        low, high = edges[:-1], edges[1:]
        middle = np.clip(np.searchsorted(self._cumulative, shares, side="right"), low, high)
        below = shares * (middle - low) - (self._prefix_sums[middle] - self._prefix_sums[low])
        above = (self._prefix_sums[high] - self._prefix_sums[middle]) - shares * (high - middle)
        return float((below + above).sum() / steps)


def equal_distance(counts: Mapping[str, int], reference: Mapping[str, float]) -> float:
    """Return the distance if all values are 1 apart: what is not common to both distributions.

    Parameters
    ----------
    counts : mapping
        Number of members with each value; at least one member.
    reference : mapping
        Share of each value. One that is not listed has none.
    """
    size = sum(counts.values())
    return 1.0 - math.fsum(min(count / size, reference.get(key, 0.0)) for key, count in counts.items())


def hierarchical_distance(paths: Mapping[Path, int], reference: Mapping[Path, float]) -> float:
    """Return the distance if two values are as far apart as their lowest common ancestor is high, over the levels.

    The edge above a node is 1 / (2 levels) long, and carries the difference of the shares below the node.

    Parameters
    ----------
    paths : mapping
        Number of members of each path; all paths have the same length, at least 1.
    reference : mapping
        Share of each path.
    """
    size, levels = sum(paths.values()), len(next(iter(paths)))
    below: defaultdict[tuple[int, Hashable], float] = defaultdict(float)
    for path, count in paths.items():
        for level, node in enumerate(path):
            below[level, node] += count / size
    for path, share in reference.items():
        for level, node in enumerate(path):
            below[level, node] -= share
    return math.fsum(abs(difference) for difference in below.values()) / (2 * levels)


def nearest(value: Decimal, listed: Sequence[Decimal]) -> int:
    """Return the index of the listed number that is nearest to a value; of two, that of the lower one.

    ``listed``: ascending. The comparison with the middle of two listed numbers is exact.
    """
    place = bisect_left(listed, value)
    if place in {0, len(listed)}:
        return min(place, len(listed) - 1)
    middle = _EXACT.divide(_EXACT.add(listed[place - 1], listed[place]), Decimal(2))
    return place - 1 if value <= middle else place


_EXACT = Context(prec=5000)
"""More digits than the sum of two float64 has."""
