"""The pricing problem of column generation: all clusters of k to 2k - 1 records with a small reduced cost.

Each record has a dual price. The reduced cost of a cluster is its loss minus the prices of its members. Clusters are
small (k of 2 or 3, so at most five records), and the search is exhaustive: bounds exclude most sets unseen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_inline, njit_inner

__all__ = [
    "LARGEST",
    "STORED",
    "PricingResult",
    "clusters_below",
    "empty_pricing_result",
    "price_clusters",
    "squared_distances",
]

LARGEST = 5
"""Records of a cluster at most: 2k - 1 for k = 3."""
STORED, QUOTA, BUDGET = 0, 1, 2
"""Entries of `PricingResult.state`."""
MAX_SETS = 2_000_000_000
"""Sets that a search looks at before it gives up: with many equal records, bounds exclude nothing."""
MAX_SETS_BELOW = 1_000_000_000
"""The same, of a search for all clusters below a reduced cost."""


class PricingResult(NamedTuple):
    """What a search among n records found."""

    floors: Float64Vector  # (n,): least reduced cost per member of any cluster with this record; at most 0
    best: Int32Matrix  # (n, 5): the cluster that has it, padded with -1
    clusters: Int32Matrix  # (capacity, 5): more clusters with a negative reduced cost
    state: Int64Vector  # (3,): clusters stored, how many more the current record may store, sets that may be looked at


class PricingCandidates(NamedTuple):
    """The records that can be in a cluster with one record, the nearest first."""

    record: int
    price: float
    squares: Float64Vector  # squared distances to the record
    prices: Float64Vector
    records: Int64Vector
    highest_price: float  # among the candidates, at least 0


@njit
def price_clusters(
    squares: Float64Matrix, prices: Float64Vector, k: int, min_reduction: float, quota: int, result: PricingResult
) -> bool:
    """Search all clusters of k to 2k - 1 records with a negative reduced cost.

    Parameters
    ----------
    squares : ndarray of float64, shape (n, n)
        Squared distances.
    prices : ndarray of float64, shape (n,)
        Dual price of each record.
    k : int
        Smallest cluster, 2 or 3.
    min_reduction : float
        Clusters are stored only if their reduced cost is below minus this.
    quota : int
        Clusters stored at most per record that has the highest price in them.
    result : PricingResult
        Overwritten.

    Returns
    -------
    bool
        True: ``result.floors`` is exact for every record. False: there were too many sets to look at.
    """
    result.state[BUDGET] = MAX_SETS
    return _search(squares, prices, k, 0.0, -min_reduction, quota, result)


@njit
def clusters_below(squares: Float64Matrix, prices: Float64Vector, k: int, limit: float, result: PricingResult) -> bool:
    """Find all clusters of k to 2k - 1 records with a reduced cost below a limit.

    Parameters
    ----------
    squares, prices, k
        As in `price_clusters`.
    limit : float
        Clusters are stored if their reduced cost is below this; 0 or more.
    result : PricingResult
        Overwritten.

    Returns
    -------
    bool
        True: ``result.clusters`` has all of them. False: there were too many to store, or too many sets to look at.
    """
    result.state[BUDGET] = MAX_SETS_BELOW
    return _search(squares, prices, k, limit, limit, result.clusters.shape[0] + 1, result)


@njit
def squared_distances(rows: Float64Matrix) -> Float64Matrix:
    """Return the squared distances (n, n) between all rows (n, d). O(n² d)."""
    n, d = rows.shape
    squares = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            total = 0.0
            for c in range(d):
                step = rows[i, c] - rows[j, c]
                total += step * step
            squares[i, j] = squares[j, i] = total
    return squares


@njit
def empty_pricing_result(n: int, capacity: int) -> PricingResult:
    """Return an empty result for n records, with room for ``capacity`` clusters besides the best of each record."""
    return PricingResult(
        np.zeros(n),
        np.full((n, LARGEST), -1, np.int32),
        np.full((capacity, LARGEST), -1, np.int32),
        np.zeros(3, np.int64),
    )


@njit_inner
def _search(
    squares: Float64Matrix,
    prices: Float64Vector,
    k: int,
    limit: float,
    stored_below: float,
    quota: int,
    result: PricingResult,
) -> bool:
    """Visit all clusters with a reduced cost below ``limit``; return whether the search was completed.

    Those below ``stored_below``, at most ``limit``, are stored, up to ``quota`` per record.
    """
    result.floors[:] = 0.0
    result.best[:] = -1
    result.state[STORED] = 0
    order = np.argsort(-prices, kind="mergesort")
    for x in range(order.size):
        if k * prices[order[x]] + limit <= 0.0 or result.state[BUDGET] < 0:  # no loss is below zero
            break
        result.state[QUOTA] = quota
        _enumerate(squares, _candidates_of(squares, prices, order, x, k, limit), k, limit, stored_below, result)
    return bool(result.state[BUDGET] >= 0)


@njit_inner
def _candidates_of(
    squares: Float64Matrix, prices: Float64Vector, order: Int64Vector, x: int, k: int, limit: float
) -> PricingCandidates:
    """Return the candidates for clusters in which record ``order[x]`` has the highest price."""
    record, largest = order[x], 2 * k - 1
    others_worth = (largest - 1) * max(prices[record], 0.0) + limit
    chosen = np.empty(order.size, np.int64)
    away = np.empty(order.size)
    # Not below 0: the bounds of `_enumerate` multiply it by the most records that can still join. Fewer may join.
    count, highest = 0, 0.0
    for y in range(x + 1, order.size):
        other = order[y]
        # The loss of a cluster is at least half the squared distance of any two members.
        if squares[record, other] * 0.5 < others_worth + prices[other]:
            chosen[count], away[count] = other, squares[record, other]
            count += 1
            highest = max(highest, prices[other])
    near = np.argsort(away[:count], kind="mergesort")
    records = chosen[:count][near]
    return PricingCandidates(record, prices[record], away[:count][near], prices[records], records, highest)


@njit_inner
def _enumerate(
    squares: Float64Matrix,
    candidates: PricingCandidates,
    k: int,
    limit: float,
    stored_below: float,
    result: PricingResult,
) -> None:
    """Try all sets of candidates, depth first, the nearest first: a later candidate is never nearer."""
    largest = 2 * k - 1
    group, following = np.full(LARGEST, -1, np.int64), np.zeros(LARGEST + 1, np.int64)
    sums, worths = np.zeros(LARGEST + 1), np.zeros(LARGEST + 1)  # of squared distances and of prices, by size
    group[0], worths[1], size = candidates.record, candidates.price, 1
    while size > 0:
        y = following[size]
        if y == candidates.squares.size or not _can_be_below(
            sums[size], worths[size] + limit, candidates.squares[y], candidates.highest_price, size, k
        ):
            size -= 1
            continue
        result.state[BUDGET] -= 1
        if result.state[BUDGET] < 0:
            break
        following[size] = y + 1
        squared, worth = sums[size] + candidates.squares[y], worths[size] + candidates.prices[y]
        for z in range(1, size):
            squared += squares[group[z], candidates.records[y]]
        group[size] = candidates.records[y]
        reduced = squared / (size + 1) - worth
        if size + 1 >= k and reduced < limit:
            _store_cluster(reduced, group, size + 1, stored_below, result)
        if size + 1 < largest and reduced < (largest - size - 1) * candidates.highest_price + limit:  # loss never falls
            size += 1
            sums[size], worths[size], following[size] = squared, worth, y + 1


@njit_inline
def _can_be_below(squared: float, worth: float, away: float, highest: float, size: int, k: int) -> bool:
    """Whether a set can cost less than ``worth`` and the prices of one or more candidates at least ``away`` far."""
    for final in range(max(k, size + 1), 2 * k):
        more = final - size
        if (squared + more * away) / final < worth + more * highest:
            return True
    return False


@njit_inline
def _store_cluster(reduced: float, group: Int64Vector, size: int, stored_below: float, result: PricingResult) -> None:
    """Update the floors of the members of a cluster, and store the cluster if its reduced cost is low enough.

    If there is no room, the search ends; the quotas of `price_clusters` do not exceed the room.
    """
    for x in range(size):
        if reduced / size < result.floors[group[x]]:
            result.floors[group[x]] = reduced / size
            if reduced < stored_below:
                _write_members(result.best, group[x], group, size)
    stored = result.state[STORED]
    if reduced < stored_below and result.state[QUOTA] > 0:
        if stored == result.clusters.shape[0]:
            result.state[BUDGET] = -1
            return
        _write_members(result.clusters, stored, group, size)
        result.state[STORED] += 1
        result.state[QUOTA] -= 1


@njit_inline
def _write_members(clusters: Int32Matrix, row: int, group: Int64Vector, size: int) -> None:
    """Write a cluster into one row, padded with -1."""
    for y in range(LARGEST):
        clusters[row, y] = group[y] if y < size else -1
