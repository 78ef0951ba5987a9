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
from shoal.clustering.static.solver import SetPartitioning, require_solver
from shoal.errors import ParameterError

__all__ = ["BoundedPartition", "check_exact", "choose_clusters"]

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


class BoundedPartition(NamedTuple):
    """A partition and a lower bound on the loss of any partition."""

    labels: Int32Vector  # (n,)
    bound: float


def choose_clusters(
    values: Float64Matrix, starts: list[Int32Vector], k: int, is_over: Callable[[], bool]
) -> BoundedPartition:
    """Choose the best partition from many thousand promising clusters, and bound the loss of any partition.

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
    above 2k - 1 can be split without loss. If it was not interrupted, the partition is optimal within the pool, which
    is not necessarily optimal.
    The same input gives the same result, unless ``is_over`` reads a clock: the solver runs on one thread.
    Cost: n² distances; seconds to a minute for a thousand records, most of it for the choice.

    References
    ----------
    .. [1] D. Aloise, P. Hansen, C. Rocha and É. Santi, "Column generation bounds for numerical microaggregation",
       Journal of Global Optimization 60, 2014. doi:10.1007/s10898-014-0149-3
    """
    usable = [labels for labels in starts if np.bincount(labels).max() <= 2 * k - 1] or [_any_partition(len(values), k)]
    with np.errstate(over="ignore"):
        unit = loss_of(values, usable[0]) / len(values)
    if not 0.0 < unit < np.inf:
        return BoundedPartition(usable[0], 0.0)  # no loss at all, or an overflow
    squares = pricing.squared_distances(values / np.sqrt(unit))  # the solver's tolerances are absolute
    pool = _ClusterPool(squares)
    pool.add(_clusters_of_neighbours(values, k))
    numbers = [pool.numbers_of(labels) for labels in usable]
    bound = _generate_columns(pool, squares, k, is_over) * unit
    chosen = None if is_over() else pool.labels_of(pool.problem.choose(numbers[0], is_over))
    return BoundedPartition(usable[0] if chosen is None else chosen, bound)


def check_exact(n: int, k: int, *, is_unconstrained: bool) -> None:
    """Check that the exact refinement can handle n records, k and the constraints, and that the solver is installed.

    Raises
    ------
    ParameterError
        If not; the message says what is needed and what to use instead.
    """
    faults = []
    if k > MAX_K:
        faults.append(f"k of at most {MAX_K}")
    if n > MAX_RECORDS:
        faults.append(f"at most {MAX_RECORDS:,} records")
    if not is_unconstrained:
        faults.append("no constraint on clusters besides k")
    if faults:
        raise ParameterError(f"refine 'exact' needs {' and '.join(faults)}; use 'anneal'")
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


def _generate_columns(pool: _ClusterPool, squares: Float64Matrix, k: int, is_over: Callable[[], bool]) -> float:
    """Add clusters with a negative reduced cost until there are none; return the lower bound."""
    result = pricing.empty_pricing_result(len(squares), QUOTA * len(squares))
    bound, stable = 0.0, None
    for _ in range(ROUNDS):
        relaxed = pool.problem.relax()
        prices = relaxed.prices if stable is None else 0.5 * (stable + relaxed.prices)  # smoothed: prices oscillate
        is_smoothed = stable is not None
        is_exact = pricing.price_clusters(
            squares, prices, k, MIN_REDUCTION * relaxed.loss / len(squares), QUOTA, result
        )
        lower = float(prices.sum() + result.floors.sum())
        if is_exact and lower > bound:
            bound, stable = lower, prices
        if relaxed.loss - bound <= MIN_GAP * relaxed.loss or is_over():
            break
        candidates = np.concatenate((result.best, result.clusters[: result.state[pricing.STORED]]))
        if not pool.add(candidates[candidates[:, 0] >= 0]):
            if not is_smoothed:
                break  # nothing has a negative reduced cost: the relaxation is optimal
            stable = None
    return bound * (1.0 - ROUNDING)


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
