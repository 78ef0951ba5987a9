"""Every cluster of k to 2k - 1 records that would cost less than its members may; most need not be looked at.

Each record has a price, what it may cost. A cluster whose loss is below the prices of its members is missed by whoever
set them. Small clusters only (k of 2 or 3, hence at most five records): the search is exhaustive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place

__all__ = ["KEPT", "LARGEST", "Found", "empty_found", "search", "squares_between"]

LARGEST = 5
"""Records of a cluster at most: 2k - 1 for k = 3."""
KEPT, LEFT, WORK = 0, 1, 2
EFFORT = 2_000_000_000
"""Sets looked at before a search gives up: many equal records leave nothing to prune."""


class Found(NamedTuple):
    """What a search found."""

    floors: Float64Vector  # (n,): least (loss - prices) / records of a cluster with this record; at most 0
    best: Int32Matrix  # (n, 5): the cluster that has it, filled up with -1
    clusters: Int32Matrix  # (room, 5): more of them, as each record found them
    state: Int64Vector  # how many of these, how many more the record at hand may keep, how many sets may be looked at


class Draft(NamedTuple):
    """The candidates that one record has for its cluster, nearest first."""

    one: int
    price: float
    away: Float64Vector  # squared distance to the record
    prices: Float64Vector
    records: Int64Vector
    top: float  # the highest price among them, at least 0


@njit
def squares_between(rows: Float64Matrix) -> Float64Matrix:
    """Return the squared distances between all records (n, d), as (n, n)."""
    n, d = rows.shape
    squares = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            total = 0.0
            for c in range(d):
                way = rows[i, c] - rows[j, c]
                total += way * way
            squares[i, j] = squares[j, i] = total
    return squares


@njit
def empty_found(n: int, room: int) -> Found:
    """Return room for the result of a search among n records."""
    return Found(
        np.zeros(n), np.full((n, LARGEST), -1, np.int32), np.full((room, LARGEST), -1, np.int32), np.zeros(3, np.int64)
    )


@njit
def search(squares: Float64Matrix, prices: Float64Vector, k: int, enough: float, each: int, found: Found) -> bool:
    """Search all clusters of k to 2k - 1 whose loss is below the prices of their members; False if that is too many.

    If true, ``found.floors`` is exact for every record. Clusters that miss the prices by less than ``enough`` are not
    kept, nor more than ``each`` per record that has the highest price in its cluster.
    """
    found.floors[:] = 0.0
    found.best[:] = -1
    found.state[KEPT], found.state[WORK] = 0, EFFORT
    order = np.argsort(-prices, kind="mergesort")
    for x in range(order.size):
        if prices[order[x]] <= 0.0 or found.state[WORK] < 0:  # no loss is below zero
            break
        found.state[LEFT] = each
        _extend(squares, _draft(squares, prices, order, x, k), k, enough, found)
    return bool(found.state[WORK] >= 0)


@njit
def _draft(squares: Float64Matrix, prices: Float64Vector, order: Int64Vector, x: int, k: int) -> Draft:
    """Return the candidates for clusters in which record ``order[x]`` has the highest price."""
    one, most = order[x], 2 * k - 1
    chosen = np.empty(order.size, np.int64)
    away = np.empty(order.size)
    count, top = 0, 0.0
    for y in range(x + 1, order.size):
        other = order[y]
        if squares[one, other] * 0.5 < (most - 1) * prices[one] + prices[other]:  # two of a cluster bound its loss
            chosen[count], away[count] = other, squares[one, other]
            count += 1
            top = max(top, prices[other])
    near = np.argsort(away[:count], kind="mergesort")
    records = chosen[:count][near]
    return Draft(one, prices[one], away[:count][near], prices[records], records, top)


@njit
def _extend(squares: Float64Matrix, draft: Draft, k: int, enough: float, found: Found) -> None:
    """Try all sets of candidates, nearest first: those after a candidate are no nearer, so that few need be tried."""
    most = 2 * k - 1
    group, following = np.full(LARGEST, -1, np.int64), np.zeros(LARGEST + 1, np.int64)
    sums, worths = np.zeros(LARGEST + 1), np.zeros(LARGEST + 1)  # of squared distances and of prices, by size
    group[0], worths[1], size = draft.one, draft.price, 1
    while size > 0:
        y = following[size]
        if y == draft.away.size or not _may(sums[size], worths[size], draft.away[y], draft.top, size, k):
            size -= 1
            continue
        found.state[WORK] -= 1
        if found.state[WORK] < 0:
            break
        following[size] = y + 1
        squared, worth = sums[size] + draft.away[y], worths[size] + draft.prices[y]
        for z in range(1, size):
            squared += squares[group[z], draft.records[y]]
        group[size] = draft.records[y]
        missed = squared / (size + 1) - worth
        if size + 1 >= k and missed < 0.0:
            _enter(missed, group, size + 1, enough, found)
        if size + 1 < most and missed < (most - size - 1) * draft.top:  # more members never lose less
            size += 1
            sums[size], worths[size], following[size] = squared, worth, y + 1


@njit_in_place
def _may(squared: float, worth: float, away: float, top: float, size: int, k: int) -> bool:
    """Tell whether a set with one or more candidates that are at least so far away may still be below its prices."""
    for final in range(max(k, size + 1), 2 * k):
        more = final - size
        if (squared + more * away) / final < worth + more * top:
            return True
    return False


@njit_in_place
def _enter(missed: float, group: Int64Vector, size: int, enough: float, found: Found) -> None:
    """Enter a cluster that is below its prices."""
    for x in range(size):
        if missed / size < found.floors[group[x]]:
            found.floors[group[x]] = missed / size
            if missed < -enough:
                _note(found.best, group[x], group, size)
    if missed < -enough and found.state[LEFT] > 0 and found.state[KEPT] < found.clusters.shape[0]:
        _note(found.clusters, found.state[KEPT], group, size)
        found.state[KEPT] += 1
        found.state[LEFT] -= 1


@njit_in_place
def _note(clusters: Int32Matrix, row: int, group: Int64Vector, size: int) -> None:
    for y in range(LARGEST):
        clusters[row, y] = group[y] if y < size else -1
