"""What can be made of a partition: descent, then annealing, always with clusters of k to 2k - 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from shoal.engine.static.hilbert import order_along_curve
from shoal.kernel.arrays import Float64Matrix, Int32Matrix, Int32Vector, Int64Vector
from shoal.kernel.static import grouping as groupings
from shoal.kernel.static.anneal import anneal
from shoal.kernel.static.close import descend_close
from shoal.kernel.static.descent import descend
from shoal.kernel.static.neighbours import neighbours_of

__all__ = ["REFINEMENTS", "Pace", "Refined", "descended", "loss_of", "refine", "steady_pace"]

REFINEMENTS = ("none", "descent", "anneal")

Pace: TypeAlias = Callable[[int], float]
"""Changes tried so far, to the share of the annealing that is over; 1 ends it."""

LEAF = 64
ROUNDS = 100
"""Of descent at most; it ends by itself long before."""
FEW, MANY = 20, 15
"""Neighbours of a record, at least 3k and this many for few records, so many for many."""
LARGE = 20_000
FEW_ENOUGH = 256
"""Records of which all distances are computed: faster than looking for neighbours."""
SLICE = 100_000
"""Changes tried at one heat."""
HOT, COLD = 2.0, 0.05
"""Rise of loss that is accepted once in e times: at first, at last. The unit is the geometric mean of two spreads (mean
squared distances to the centroid), that of the clusters touched and that of all."""
CHANGES_PER_RECORD = 10_000
"""Tried by default."""


class Refined(NamedTuple):
    """A partition and its loss."""

    labels: Int32Vector
    loss: float


def steady_pace(n: int) -> Pace:
    """Return the pace that tries so many changes per record, whatever the clock says: the same result everywhere."""
    return lambda tried: tried / (CHANGES_PER_RECORD * n)


def loss_of(values: Float64Matrix, labels: Int32Vector) -> float:
    """Return the sum of squared distances to the centroids of clusters.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        Coordinates.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0.
    """
    counts = np.bincount(labels)
    residues = ((column - (np.bincount(labels, column) / counts)[labels]) for column in values.T)
    return float(sum(residue @ residue for residue in residues))


def refine(
    values: Float64Matrix, starts: list[Int32Vector], k: int, how: str, seed: int = 0, pace: Pace | None = None
) -> Refined:
    """Refine several partitions and return the best; annealing begins with the best after descent.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    starts : list of ndarray of int32, shape (n,)
        Partitions into clusters of k and more.
    k : int
        Smallest cluster, 2 <= k <= n.
    how : str
        One of `REFINEMENTS`.
    seed : int
        Of annealing; descent draws nothing.
    pace : callable, optional
        How far annealing has come, from 0 to 1, given the number of changes tried; it may look at a clock or move a
        progress bar. By default 10,000 changes per record.

    Returns
    -------
    Refined
        No loss above the least of the starts; sizes of k to 2k - 1 but for clusters that were larger from the start.

    Notes
    -----
    Descent tries, for each record, the clusters of its nearest neighbours: relocation and swap, then dissolving a whole
    cluster and creating one, then rings of three clusters, until nothing gains; for up to 256 records it tries all
    clusters, and no rings. Annealing tries the same at random, and accepts a rise by chance, measured by the spread of
    the clusters touched (Metropolis, geometric cooling). Where two such steps lead from one partition to another, the
    changes of loss are exact in O(d).
    Cost: the nearest neighbours, O(n log n) for few attributes and O(n² d) for many, dominate descent.

    References
    ----------
    .. [1] S. Kirkpatrick, C. D. Gelatt and M. P. Vecchi, "Optimization by Simulated Annealing", Science 220, 1983.
       doi:10.1126/science.220.4598.671
    """
    if how == "descent" and len(values) <= FEW_ENOUGH:
        starts, how = [descended(values, start, k) for start in starts], "none"
    scored = [Refined(labels, loss_of(values, labels)) for labels in starts]
    if how == "none" or len(values) < 2 * k:
        return min(scored, key=_by_loss)
    centred = values - values.mean(axis=0)
    order = order_along_curve(values) if len(values) > LARGE else np.arange(len(values))
    rows = np.ascontiguousarray(centred[order])  # neighbours in space are neighbours in memory
    neighbours = _neighbours(rows, k)
    groups = [groupings.gather(rows, start[order], k) for start in starts]
    for grouping in groups:
        descend(grouping, neighbours, ROUNDS)
        scored.append(_read(grouping, values, order))
    if how == "anneal":
        coldest = min(groups, key=groupings.loss)
        _anneal(coldest, neighbours, np.random.default_rng(seed), pace or steady_pace(len(values)))
        scored.append(_read(coldest, values, order))
    return min(scored, key=_by_loss)


def descended(values: Float64Matrix, start: Int32Vector, k: int) -> Int32Vector:
    """Return what `refine` makes of one partition by descent, without weighing it."""
    if len(values) < 2 * k:
        return start
    if len(values) <= FEW_ENOUGH:
        return _numbered(descend_close(values, start, k, ROUNDS))
    return refine(values, [start], k, "descent").labels


def _read(grouping: groupings.Grouping, values: Float64Matrix, order: Int64Vector) -> Refined:
    """Return the labels in order of the table, without those of empty clusters."""
    labels = np.empty(len(values), np.int32)
    labels[order] = _numbered(grouping.labels)
    return Refined(labels, loss_of(values, labels))


def _numbered(labels: Int32Vector | Int64Vector) -> Int32Vector:
    """Number clusters anew, leaving out those without a record."""
    used = np.zeros(len(labels), np.int32)
    used[labels] = 1
    return (used.cumsum(dtype=np.int32) - 1)[labels].astype(np.int32)


def _by_loss(refined: Refined) -> float:
    return refined.loss


def _neighbours(rows: Float64Matrix, k: int) -> Int32Matrix:
    count = MANY if len(rows) > LARGE else max(FEW, 3 * k)
    return neighbours_of(rows, min(count, len(rows) - 1), LEAF)


def _anneal(grouping: groupings.Grouping, neighbours: Int32Matrix, random: np.random.Generator, pace: Pace) -> None:
    """Cool down slice by slice, and descend to the bottom."""
    tried = 0
    while (share := pace(tried)) < 1.0:
        anneal(grouping, neighbours, SLICE, HOT * (COLD / HOT) ** share, random)
        tried += SLICE
    groupings.settle(grouping)
    descend(grouping, neighbours, ROUNDS)
