"""A partition close to the optimum and a proven lower bound on the loss of any partition, by column generation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.neighbours import neighbours_of
from shoal.clustering.static import pricing
from shoal.clustering.static.centroids import loss_of
from shoal.clustering.static.hansen_mukherjee import best_runs, label_runs
from shoal.clustering.static.solver import SetPartitioning, require_solver
from shoal.errors import ParameterError

__all__ = ["BoundedPartition", "check_exact", "choose_clusters", "optimal_of_line"]

MAX_K = 3
MAX_RECORDS = 6_000
"""All squared distances are kept: 288 MB for 6,000 records."""
LEAF_SIZE = 64
NEIGHBOURS = 6
"""Nearest records that form the first clusters of the pool with each record."""
QUOTA = 6
"""Clusters that one pricing round stores per record, besides the best."""
MIN_REDUCTION = 1e-7
"""Relative to the mean loss of a record: reduced cost below which a cluster is worth adding."""
MIN_GAP = 1e-6
"""Relative gap between relaxation and bound that ends column generation."""
ROUNDS = 200
ROUNDING = 1e-9
"""Relative: subtracted from the bound for the rounding of its sums."""
SOLVER_ROUNDING = 1e-7
"""Relative: subtracted from a bound of the solver, which accepts reduced costs of -1e-7 per cluster as not negative."""
MAX_BETTER = 100_000
"""Clusters that a partition better than the best one can have: with more of them, the gap is left open."""
MAX_LINE_STEPS = 10_000_000_000
"""Records times k with one attribute: about half a minute."""


class BoundedPartition(NamedTuple):
    """A partition and a lower bound on the loss of any partition."""

    labels: Int32Vector  # (n,)
    bound: float


class _DualBound(NamedTuple):
    """Prices for which no cluster has a negative reduced cost, up to rounding, and their sum."""

    prices: Float64Vector  # (n,)
    bound: float


def choose_clusters(
    values: Float64Matrix, starts: list[Int32Vector], k: int, is_over: Callable[[], bool]
) -> BoundedPartition:
    """Choose the best partition from many thousand promising clusters, and bound the loss of any partition.

    If few clusters could be part of a better partition, all of them are tried: the partition is then optimal.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    starts : list of ndarray of int32, shape (n,)
        Partitions into clusters of k to 2k - 1, the best first; their clusters are in the pool. Partitions with larger
        clusters are left out.
    k : int
        Smallest cluster, 2 or 3.
    is_over : callable
        Called now and then; once it returns true, the best partition so far is returned. A round of pricing and a step
        of the solver, seconds for thousands of records, are not interrupted.

    Returns
    -------
    BoundedPartition
        Labels, and a bound that holds for every partition into clusters of k or more.

    Notes
    -----
    Guarantee: `pricing.price_clusters` looks at every cluster that could have a negative reduced cost, so the sum of
    prices and floors is a lower bound on the loss of all partitions (Lagrange), whatever the solver computed. Clusters
    above 2k - 1 can be split without loss.
    With floors added to the prices, no reduced cost is negative, and those of a partition add up to the distance of its
    loss from the bound. A better partition has therefore no cluster with a reduced cost above the gap. All clusters
    below it are found by `pricing.clusters_below`; if they are at most `MAX_BETTER`, the solver chooses among them, and
    its bound holds for all partitions, within its tolerances.
    The same input gives the same result, unless ``is_over`` reads a clock: the solver runs on one thread.
    Cost: n² distances; seconds to a minute for a thousand records, most of it for the choices.

    References
    ----------
    .. [1] D. Aloise, P. Hansen, C. Rocha and É. Santi, "Column generation bounds for numerical microaggregation",
       Journal of Global Optimization 60, 2014. doi:10.1007/s10898-014-0149-3
    """
    usable = [labels for labels in starts if np.bincount(labels).max() <= 2 * k - 1] or [_any_partition(len(values), k)]
    best = usable[0]
    with np.errstate(over="ignore"):
        unit = loss_of(values, best) / len(values)
    if not 0.0 < unit < np.inf:
        return BoundedPartition(best, 0.0)  # no loss at all, or an overflow
    squares = pricing.squared_distances(values / np.sqrt(unit))  # the solver's tolerances are absolute
    pool = _ClusterPool(squares)
    pool.add(_clusters_of_neighbours(values, k))
    for labels in usable:
        pool.add(_members_of(labels))
    dual = _generate_columns(pool, squares, k, is_over)
    bound = dual.bound
    if not is_over():
        best = pool.choose(best, is_over).labels
        complete = None if is_over() else _pool_of_better_clusters(squares, best, k, dual)
        if complete is not None:
            best, solved = complete.choose(best, is_over)
            bound = max(bound, min(solved, pool.loss_of(best)))
    return BoundedPartition(best, bound * unit)


def optimal_of_line(values: Float64Matrix, k: int) -> Int32Vector:
    """Return the optimal partition (n,) of one attribute (n, 1).

    Unlike `hansen_mukherjee.optimal` it subtracts no large sums, so that the loss is the least possible up to the
    rounding of the losses of single clusters. O(n k).
    """
    order = np.argsort(values[:, 0], kind="stable")
    return label_runs(best_runs(values[order], k), order)


def check_exact(n: int, d: int, k: int, *, is_unconstrained: bool) -> None:
    """Check that the exact refinement can handle n records, d attributes, k and the constraints.

    With several attributes the solver must be installed.

    Raises
    ------
    ParameterError
        If not; the message says what is needed and what to use instead.
    """
    faults = []
    if d > 1 and k > MAX_K:
        faults.append(f"k of at most {MAX_K}")
    if d > 1 and n > MAX_RECORDS:
        faults.append(f"at most {MAX_RECORDS:,} records")
    if d == 1 and n * k > MAX_LINE_STEPS:
        faults.append(f"records times k of at most {MAX_LINE_STEPS:,}")
    if not is_unconstrained:
        faults.append("no constraint on clusters besides k")
    if faults:
        raise ParameterError(f"refine 'exact' needs {' and '.join(faults)}; use 'anneal'")
    if d > 1:
        require_solver()


class _ClusterPool:
    """The clusters to choose from, each once; ``squares`` (n, n) are squared distances."""

    def __init__(self, squares: Float64Matrix) -> None:
        self._squares = squares
        self._numbers: dict[bytes, int] = {}
        self._members: list[Int32Matrix] = []
        self.problem = SetPartitioning(len(squares))

    def add(self, clusters: Int32Matrix) -> int:
        """Add clusters (m, 5), padded with -1; return how many are new."""
        ordered = np.ascontiguousarray(np.unique(-np.sort(-clusters, axis=1), axis=0), np.int32)
        is_new = np.array([row.tobytes() not in self._numbers for row in ordered], bool)
        if is_new.any():
            new = ordered[is_new]
            for row in new:
                self._numbers[row.tobytes()] = len(self._numbers)
            self._members.append(new)
            self.problem.add(new, self._costs(new))
        return int(is_new.sum())

    def numbers_of(self, labels: Int32Vector) -> Int64Vector:
        """Return the numbers of the clusters of a partition, after adding those that are missing."""
        clusters = _members_of(labels)
        self.add(clusters)
        ordered = np.ascontiguousarray(-np.sort(-clusters, axis=1), np.int32)
        return np.array([self._numbers[row.tobytes()] for row in ordered])

    def loss_of(self, labels: Int32Vector) -> float:
        """Return the loss of a partition, in the unit of ``squares``."""
        return float(self._costs(_members_of(labels)).sum())

    def choose(self, start: Int32Vector, is_over: Callable[[], bool]) -> BoundedPartition:
        """Return the best partition of the pool, and the solver's bound on the loss of the partitions of the pool."""
        choice = self.problem.choose(self.numbers_of(start), is_over)
        labels = self.labels_of(choice.numbers)
        return BoundedPartition(start if labels is None else labels, choice.bound * (1.0 - SOLVER_ROUNDING))

    def labels_of(self, numbers: Int64Vector) -> Int32Vector | None:
        """Return the partition into these clusters; None if they are none, because the solver was stopped too early."""
        labels = np.full(len(self._squares), -1, np.int32)
        clusters = np.concatenate(self._members)[numbers]
        for label, members in enumerate(clusters):
            labels[members[members >= 0]] = label
        is_partition = (labels >= 0).all() and (clusters >= 0).sum() == len(labels)
        return labels if is_partition else None

    def _costs(self, clusters: Int32Matrix) -> Float64Vector:
        """Return the loss of each cluster, from the distances between its members."""
        total: Float64Vector = np.zeros(len(clusters))
        for a, b in combinations(range(clusters.shape[1]), 2):
            both = clusters[:, b] >= 0  # members are sorted, the padding last: member a is then present as well
            total[both] += self._squares[clusters[both, a], clusters[both, b]]
        total /= (clusters >= 0).sum(axis=1)
        return total


def _pool_of_better_clusters(
    squares: Float64Matrix, best: Int32Vector, k: int, dual: _DualBound
) -> _ClusterPool | None:
    """Return all clusters that a better partition than ``best`` can have; None if they are too many."""
    pool = _ClusterPool(squares)
    loss = pool.loss_of(best)
    found = pricing.empty_pricing_result(len(squares), MAX_BETTER)
    if not pricing.clusters_below(squares, dual.prices, k, loss - dual.bound + ROUNDING * loss, found):
        return None
    pool.add(found.clusters[: found.state[pricing.STORED]])
    return pool


def _generate_columns(pool: _ClusterPool, squares: Float64Matrix, k: int, is_over: Callable[[], bool]) -> _DualBound:
    """Add clusters with a negative reduced cost until there are none; return the lower bound."""
    result = pricing.empty_pricing_result(len(squares), QUOTA * len(squares))
    bound, stable, feasible = 0.0, None, np.zeros(len(squares))
    for _ in range(ROUNDS):
        relaxed = pool.problem.relax()
        prices = relaxed.prices if stable is None else 0.5 * (stable + relaxed.prices)  # smoothed: prices oscillate
        is_smoothed = stable is not None
        is_exact = pricing.price_clusters(
            squares, prices, k, MIN_REDUCTION * relaxed.loss / len(squares), QUOTA, result
        )
        lower = float(prices.sum() + result.floors.sum())
        if is_exact and lower > bound:
            bound, stable, feasible = lower, prices, prices + result.floors
        if relaxed.loss - bound <= MIN_GAP * relaxed.loss or is_over():
            break
        candidates = np.concatenate((result.best, result.clusters[: result.state[pricing.STORED]]))
        if not pool.add(candidates[candidates[:, 0] >= 0]):
            if not is_smoothed:
                break  # nothing has a negative reduced cost: the relaxation is optimal
            stable = None
    return _DualBound(feasible, bound * (1.0 - ROUNDING))


def _clusters_of_neighbours(values: Float64Matrix, k: int) -> Int32Matrix:
    """Return clusters of each record with any k - 1 and any k of its nearest, padded with -1."""
    n = len(values)
    near = neighbours_of(values, min(NEIGHBOURS, n - 1), LEAF_SIZE)
    own = np.arange(n, dtype=np.int32)[:, None]
    made = []
    for others in (k - 1, k):
        for chosen in combinations(range(near.shape[1]), others):
            padding = np.full((n, pricing.LARGEST - 1 - others), -1, np.int32)
            made.append(np.concatenate((own, near[:, chosen], padding), axis=1))
    return np.concatenate(made)


def _members_of(labels: Int32Vector) -> Int32Matrix:
    """Return the members of each cluster, shape (clusters, 5), padded with -1."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    positions = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    clusters = np.full((len(sizes), pricing.LARGEST), -1, np.int32)
    clusters[labels[order], positions] = order
    return clusters


def _any_partition(n: int, k: int) -> Int32Vector:
    """Return a partition into clusters of k to 2k - 1, in the order of the table."""
    return np.minimum(np.arange(n) // k, n // k - 1).astype(np.int32)
