"""The best partition there is, or nearly, and a bound below which none can be: column generation, then a choice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.neighbours import neighbours_of
from shoal.clustering.static import pricing
from shoal.clustering.static.solver import Covering, require_solver
from shoal.errors import ParameterError

__all__ = ["Proven", "check_exact", "choose_clusters"]

LARGEST_K = 3
LEAF = 64
MOST = 6_000
"""Records: all squared distances are kept, 288 MB of them."""
NEAR = 6
"""Nearest records with which every record is put into clusters to begin with."""
EACH = 6
"""Clusters that a search keeps of each record, beside the best."""
ENOUGH = 1e-7
"""Relative to the mean loss of a record: a cluster must miss its prices by so much to be worth adding."""
CLOSE = 1e-6
"""Relative gap between relaxation and bound that ends column generation."""
ROUNDS = 200
ROUNDING = 1e-9
"""Relative: taken off the bound for the rounding of its sums."""


class Proven(NamedTuple):
    """A partition and what no partition can lose less than."""

    labels: Int32Vector
    bound: float


class _Pool:
    """Clusters that may be chosen, each once."""

    def __init__(self, squares: Float64Matrix) -> None:
        self._squares = squares
        self._numbers: dict[bytes, int] = {}
        self._members: list[Int32Matrix] = []
        self.choice = Covering(len(squares))

    def add(self, clusters: Int32Matrix) -> int:
        """Add clusters of at most five, filled up with -1; return how many are new."""
        ordered = np.ascontiguousarray(np.unique(-np.sort(-clusters, axis=1), axis=0), np.int32)
        new = np.array([row.tobytes() not in self._numbers for row in ordered], bool)
        if new.any():
            fresh = ordered[new]
            for row in fresh:
                self._numbers[row.tobytes()] = len(self._numbers)
            self._members.append(fresh)
            self.choice.add(fresh, self._costs(fresh))
        return int(new.sum())

    def numbers_of(self, labels: Int32Vector) -> Int64Vector:
        """Return the numbers of a partition's clusters, after adding those that are not there."""
        clusters = _clusters_of(labels)
        self.add(clusters)
        ordered = np.ascontiguousarray(-np.sort(-clusters, axis=1), np.int32)
        return np.array([self._numbers[row.tobytes()] for row in ordered])

    def labels_of(self, numbers: Int64Vector) -> Int32Vector | None:
        """Return the partition into these clusters; None if they are none, as when a solver was stopped too early."""
        labels = np.full(len(self._squares), -1, np.int32)
        clusters = np.concatenate(self._members)[numbers]
        for label, members in enumerate(clusters):
            labels[members[members >= 0]] = label
        is_partition = (labels >= 0).all() and (clusters >= 0).sum() == len(labels)
        return labels if is_partition else None

    def _costs(self, clusters: Int32Matrix) -> Float64Vector:
        total: Float64Vector = np.zeros(len(clusters))
        for a, b in combinations(range(clusters.shape[1]), 2):
            both = clusters[:, b] >= 0  # sorted: then a is there, too
            total[both] += self._squares[clusters[both, a], clusters[both, b]]
        total /= (clusters >= 0).sum(axis=1)
        return total


def check_exact(n: int, k: int, *, is_free: bool) -> None:
    """Raise if the best partition is not to be had for so many records or such a k.

    Raises
    ------
    ParameterError
        With what to ask for instead.
    """
    faults = []
    if k > LARGEST_K:
        faults.append(f"k of at most {LARGEST_K}")
    if n > MOST:
        faults.append(f"at most {MOST:,} records")
    if not is_free:
        faults.append("clusters of which nothing but k is asked")
    if faults:
        raise ParameterError(f"refine 'exact' needs {' and '.join(faults)}; use 'anneal'")
    require_solver()


def choose_clusters(values: Float64Matrix, starts: list[Int32Vector], k: int, is_over: Callable[[], bool]) -> Proven:
    """Choose the best partition from many thousand promising clusters, and bound what any partition can reach.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    starts : list of ndarray of int32, shape (n,)
        Partitions, the best first, into clusters of k to 2k - 1 (larger ones are passed over); their clusters are
        among those to choose from.
    k : int
        Smallest cluster, 2 or 3.
    is_over : callable
        Asked now and then; once it is true, the best so far is returned. One round of pricing and one of the solver's
        steps, seconds for thousands of records, are not interrupted.

    Returns
    -------
    Proven
        Labels, and a bound that holds for every partition into clusters of k and more.

    Notes
    -----
    Guarantee: `pricing.search` looks at every cluster that could be below the prices of its members, so that the sum
    of prices and floors bounds the loss of all partitions, whatever the solver has computed (Lagrange); what is larger
    than 2k - 1 can be split without loss. The choice is the best of the pool, if it was not interrupted; not
    necessarily the best there is.
    The same input gives the same result, unless ``is_over`` looks at a clock: the solver runs on one thread.
    Cost: n² distances; seconds to a minute for a thousand records, most of it the choice.

    References
    ----------
    .. [1] D. Aloise, P. Hansen, C. Rocha and É. Santi, "Column generation bounds for numerical microaggregation",
       Journal of Global Optimization 60, 2014. doi:10.1007/s10898-014-0149-3
    """
    usable = [labels for labels in starts if np.bincount(labels).max() <= 2 * k - 1] or [_runs(len(values), k)]
    unit = _loss_of_a_record(values, usable[0])
    if not 0.0 < unit < np.inf:
        return Proven(usable[0], 0.0)  # no loss at all, or one that is no number
    squares = pricing.squares_between(values / np.sqrt(unit))  # the solver's tolerances are absolute
    pool = _Pool(squares)
    pool.add(_near_clusters(values, k))
    numbers = [pool.numbers_of(labels) for labels in usable]
    bound = _generate(pool, squares, k, is_over) * unit
    chosen = None if is_over() else pool.labels_of(pool.choice.choose(numbers[0], is_over))
    return Proven(usable[0] if chosen is None else chosen, bound)


def _generate(pool: _Pool, squares: Float64Matrix, k: int, is_over: Callable[[], bool]) -> float:
    """Add clusters that the prices of the relaxation miss until there are none; return the bound."""
    found = pricing.empty_found(len(squares), EACH * len(squares))
    bound, stable = 0.0, None
    for _ in range(ROUNDS):
        relaxed = pool.choice.relax()
        prices = relaxed.prices if stable is None else 0.5 * (stable + relaxed.prices)  # damped: they swing
        is_mixed = stable is not None
        is_whole = pricing.search(squares, prices, k, ENOUGH * relaxed.loss / len(squares), EACH, found)
        lower = float(prices.sum() + found.floors.sum())
        if is_whole and lower > bound:
            bound, stable = lower, prices
        if relaxed.loss - bound <= CLOSE * relaxed.loss or is_over():
            break
        candidates = np.concatenate((found.best, found.clusters[: found.state[pricing.KEPT]]))
        if not pool.add(candidates[candidates[:, 0] >= 0]):
            if not is_mixed:
                break  # its own prices miss nothing: the relaxation is as low as it gets
            stable = None
    return bound * (1.0 - ROUNDING)


def _loss_of_a_record(values: Float64Matrix, labels: Int32Vector) -> float:
    """Return the mean squared distance to the centroids; inf where it is too large."""
    counts = np.bincount(labels)
    with np.errstate(over="ignore"):
        squares = [(column - (np.bincount(labels, column) / counts)[labels]) ** 2 for column in values.T]
        return float(sum(square.sum() for square in squares) / len(values))


def _near_clusters(values: Float64Matrix, k: int) -> Int32Matrix:
    """Return every record with any k - 1 and any k of its nearest."""
    n = len(values)
    near = neighbours_of(values, min(NEAR, n - 1), LEAF)
    own = np.arange(n, dtype=np.int32)[:, None]
    made = []
    for others in (k - 1, k):
        for chosen in combinations(range(near.shape[1]), others):
            rest = np.full((n, pricing.LARGEST - 1 - others), -1, np.int32)
            made.append(np.concatenate((own, near[:, chosen], rest), axis=1))
    return np.concatenate(made)


def _clusters_of(labels: Int32Vector) -> Int32Matrix:
    """Return the members of each cluster, filled up with -1."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    places = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    clusters = np.full((len(sizes), pricing.LARGEST), -1, np.int32)
    clusters[labels[order], places] = order
    return clusters


def _runs(n: int, k: int) -> Int32Vector:
    """Return any partition into clusters of k to 2k - 1."""
    return np.minimum(np.arange(n) // k, n // k - 1).astype(np.int32)
