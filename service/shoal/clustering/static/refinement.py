"""What can be made of a partition: descent, annealing, the best there is; always with clusters of k to 2k - 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from shoal.arrays import Float64Matrix, Int32Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.neighbours import neighbours_of
from shoal.clustering.static import partition_state as groupings
from shoal.clustering.static.annealing import anneal
from shoal.clustering.static.constraint_arrays import no_constraints
from shoal.clustering.static.constraints import ClusterConstraints
from shoal.clustering.static.descent import descend
from shoal.clustering.static.descent_dense import DENSE_UP_TO, ROUNDS, descend_dense
from shoal.clustering.static.exact import choose_clusters
from shoal.clustering.static.hilbert import order_along_curve
from shoal.clustering.static.mdav import SMALL, mdav

__all__ = [
    "NO_DEMANDS",
    "REFINEMENTS",
    "Pace",
    "Refined",
    "descended",
    "loss_of",
    "precompile_refinement",
    "refine",
    "steady_pace",
]

REFINEMENTS = ("none", "descent", "anneal", "exact")

Pace: TypeAlias = Callable[[int], float]
"""Changes tried so far, to the share of the refinement that is over; 1 ends it."""

LEAF = 64
FEW, MANY = 20, 15
"""Neighbours of a record, at least 3k and this many for few records, so many for many."""
LARGE = 20_000
WIDE, CLOSE_WIDE = 1_000, 100
"""Members of the largest cluster that is refined; fewer, where each change asks how far it is from the table, unless
buckets leave few changes to ask about."""
SLICE, CLOSE_SLICE = 100_000, 5_000
"""Changes tried at one heat; fewer, but not below n, where each asks how far clusters are from the table."""
HOT, COLD = 2.0, 0.05
"""Rise of loss that is accepted once in e times: at first, at last. The unit is the geometric mean of two spreads (mean
squared distances to the centroid), that of the clusters touched and that of all."""
CHANGES_PER_RECORD, MOST_CHANGES = 10_000, 200_000_000
"""Tried by default, and altogether at most: minutes."""
RUNS, ANNEALED = 8, 0.25
"""Before the exact choice: times that is annealed, each from the same start, and their share of the whole."""
CHANGES_PER_QUESTION = 50
"""And record: what it counts when pricing or the solver asks whether it is over."""
NO_DEMANDS = ClusterConstraints()


class Refined(NamedTuple):
    """A partition, its loss, and what is known of the best."""

    labels: Int32Vector
    loss: float
    bound: float = 0.0
    """No partition into clusters of k and more loses less; proven by ``exact`` only, 0 otherwise."""

    @property
    def gap(self) -> float:
        """By which share of its loss it may be above the best, at most."""
        return (self.loss - self.bound) / self.loss if self.loss > 0.0 else 0.0


def steady_pace(n: int) -> Pace:
    """Return the pace that tries so many changes, whatever the clock says: the same result everywhere."""
    return lambda tried: tried / min(CHANGES_PER_RECORD * n, MOST_CHANGES)


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
    return float(sum(np.square(residue).sum() for residue in residues))  # a product would wake the threads of BLAS


def refine(
    values: Float64Matrix,
    starts: list[Int32Vector],
    k: int,
    how: str,
    seed: int = 0,
    pace: Pace | None = None,
    demands: ClusterConstraints = NO_DEMANDS,
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
        How far annealing and the exact choice have come, from 0 to 1, given the number of changes tried; it may look at
        a clock or move a progress bar. By default 10,000 changes per record, at most 200 million.
    demands : Demands
        What clusters must keep beside their size: the starts keep it, and no change is made that does not.

    Returns
    -------
    Refined
        No loss above the least of the starts; sizes of k to 2k - 1 but for clusters that were larger from the start.

    Raises
    ------
    ParameterError
        If ``exact`` is asked for with k above 3, more than 6,000 records or without its solver.

    Notes
    -----
    Descent tries, for each record, the clusters of its nearest neighbours: relocation and swap, then dissolving a whole
    cluster and creating one, then rings of three clusters, until nothing gains; for up to 256 records without demands
    it tries all clusters, and no rings. Annealing tries the same at random, and accepts a rise by chance, measured by
    the spread of the clusters touched (Metropolis, geometric cooling). Where two such steps lead from one partition to
    another, the changes of loss are exact in O(d).
    ``exact`` anneals several times, then chooses among all clusters seen and many more (`exact.choose_clusters`).
    Cost: the nearest neighbours, O(n log n) for few attributes and O(n² d) for many, dominate descent.

    References
    ----------
    .. [1] S. Kirkpatrick, C. D. Gelatt and M. P. Vecchi, "Optimization by Simulated Annealing", Science 220, 1983.
       doi:10.1126/science.220.4598.671
    """
    if how == "descent" and demands.are_none and len(values) <= DENSE_UP_TO:
        starts, how = [descended(values, start, k) for start in starts], "none"
    scored = [Refined(labels, loss_of(values, labels)) for labels in starts]
    if how == "none" or len(values) < 2 * k:
        best = min(scored, key=_by_loss)
        return best._replace(bound=best.loss) if how == "exact" else best  # one cluster is all there is
    scenes = _scenes(values, [refined.labels for refined in scored], k, demands)
    refined = [_descend(scene, values) for scene in scenes]
    scored += refined
    asked = _Asked(pace or steady_pace(len(values)), len(values), demands)
    if how == "anneal" and scenes:
        coldest = scenes[min(range(len(scenes)), key=lambda number: refined[number].loss)]
        asked.anneal(coldest.grouping, coldest.neighbours, np.random.default_rng(seed), 0.0, 1.0)
        scored.append(_read(coldest, values))
    if how == "exact":
        return _choose(values, scenes[0], scored, k, seed, asked)
    return min(scored, key=_by_loss)


def descended(values: Float64Matrix, start: Int32Vector, k: int) -> Int32Vector:
    """Return what `refine` makes of one partition by descent, without weighing it."""
    if len(values) < 2 * k:
        return start
    if len(values) <= DENSE_UP_TO:
        return _numbered(descend_dense(values, start, k, ROUNDS))
    return refine(values, [start], k, "descent").labels


def precompile_refinement(most: int) -> None:
    """Compile what MDAV and `descended` need for up to so many records, so that no record waits for it."""
    rows = (np.arange(2.0 * (SMALL + 1)) * 0.618034 % 1.0).reshape(-1, 2)
    if most > DENSE_UP_TO:
        for few in (rows[:SMALL], rows):
            descended(few, mdav(few, 2), 2)
    if most > LARGE:
        order_along_curve(rows)


class _Asked:
    """The pace, and what has been counted for it so far."""

    def __init__(self, pace: Pace, n: int, demands: ClusterConstraints) -> None:
        self._pace, self._n, self._tried = pace, n, 0
        self._slice = SLICE if demands.t is None else min(SLICE, max(CLOSE_SLICE, n))

    def is_over(self) -> bool:
        """Tell whether all is over; each question counts as some changes."""
        self._tried += CHANGES_PER_QUESTION * self._n
        return self._pace(self._tried) >= 1.0

    def anneal(
        self,
        grouping: groupings.PartitionState,
        neighbours: Int32Matrix,
        random: np.random.Generator,
        begin: float,
        end: float,
    ) -> None:
        """Cool down slice by slice between two shares of the pace, and descend to the bottom."""
        while (share := (self._pace(self._tried) - begin) / (end - begin)) < 1.0:
            anneal(grouping, neighbours, self._slice, HOT * (COLD / HOT) ** share, random)
            self._tried += self._slice
        groupings.settle(grouping)
        descend(grouping, neighbours, ROUNDS)


class _Scene(NamedTuple):
    """A partition that is being changed: its start, the records taking part in order of memory, their neighbours."""

    start: Int32Vector
    order: Int64Vector
    grouping: groupings.PartitionState
    neighbours: Int32Matrix


def _scenes(values: Float64Matrix, starts: list[Int32Vector], k: int, demands: ClusterConstraints) -> list[_Scene]:
    """Return the partitions with room to change.

    Clusters too wide to be looked at member by member stay as they are, and their records take no part.
    """
    everybody = order_along_curve(values) if len(values) > LARGE else np.arange(len(values))
    about = values - values.mean(axis=0)

    def ground(order: Int64Vector) -> tuple[Float64Matrix, Int32Matrix]:
        rows = np.ascontiguousarray(about[order])  # neighbours in space are neighbours in memory
        return rows, _neighbours(rows, k)

    widest = max(2 * k - 1, WIDE if demands.t is None or demands.buckets is not None else CLOSE_WIDE)
    scenes, ground_of_all = [], cache(lambda: ground(everybody))
    for start in starts:
        narrow = np.bincount(start) <= widest
        order = everybody if narrow.all() else everybody[narrow[start[everybody]]]
        if len(order) >= 2 * k:
            rows, neighbours = ground_of_all() if narrow.all() else ground(order)
            grouping = groupings.gather(rows, start[order], k, demands.ordered(order))
            scenes.append(_Scene(start, order, grouping, neighbours))
    return scenes


def _descend(scene: _Scene, values: Float64Matrix) -> Refined:
    descend(scene.grouping, scene.neighbours, ROUNDS)
    return _read(scene, values)


def _choose(values: Float64Matrix, scene: _Scene, scored: list[Refined], k: int, seed: int, asked: _Asked) -> Refined:
    """Anneal the best several times, choose among all their clusters and more, and tell the bound."""
    start, rows = min(scored, key=_by_loss).labels, scene.grouping.rows
    for run in range(RUNS):
        annealed = scene._replace(start=start, grouping=groupings.gather(rows, start[scene.order], k, no_constraints()))
        shares = ANNEALED * run / RUNS, ANNEALED * (run + 1) / RUNS
        asked.anneal(annealed.grouping, scene.neighbours, np.random.default_rng([seed, run]), *shares)
        scored.append(_read(annealed, values))
    scored.sort(key=_by_loss)
    proven = choose_clusters(rows, [refined.labels for refined in scored], k, asked.is_over)
    scored.append(Refined(proven.labels, loss_of(values, proven.labels)))
    best = min(scored, key=_by_loss)
    return best._replace(bound=min(proven.bound, best.loss))


def _read(scene: _Scene, values: Float64Matrix) -> Refined:
    """Return the labels in order of the table, without those of empty clusters; who takes no part keeps his cluster."""
    labels = scene.start.astype(np.int64) + scene.grouping.sizes.size
    labels[scene.order] = scene.grouping.labels
    numbered = _numbered(labels)
    return Refined(numbered, loss_of(values, numbered))


def _numbered(labels: Int32Vector | Int64Vector) -> Int32Vector:
    """Number clusters anew, leaving out those without a record."""
    used = np.zeros(int(labels.max()) + 1, np.int32)
    used[labels] = 1
    return (used.cumsum(dtype=np.int32) - 1)[labels].astype(np.int32)


def _by_loss(refined: Refined) -> float:
    return refined.loss


def _neighbours(rows: Float64Matrix, k: int) -> Int32Matrix:
    count = MANY if len(rows) > LARGE else max(FEW, 3 * k)
    return neighbours_of(rows, min(count, len(rows) - 1), LEAF)
