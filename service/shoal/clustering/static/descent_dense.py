"""Descent where all distances between records are at hand: every change is weighed in a few operations.

For a cluster c let S(i, c) be the sum of the squared distances of record i from its members, and W(c) the sum of S over
them: its loss is W / 2n. What a relocation or a swap changes follows from S, W and one distance; carrying a change out
costs O(n). For some hundred records that is several times faster than `descent`, and finds the same kind of optimum:
no relocation, swap or new cluster makes it better, and none can be dissolved at the cost of its members joining others
one by one. Rings are not tried.

Most swaps need not be looked at. A swap of i in a with o in c changes the loss by

    S(i, c)/c - S(i, a)/a  +  S(o, a)/a - S(o, c)/c  -  (1/a + 1/c) times the squared distance of i and o,

with a and c for the sizes. The second part is at least what it is for the best member of c, which is kept for each pair
of clusters; the third at most what it is for the farthest. If that cannot gain, no member can. And what could not gain
before cannot now, unless one of the two clusters has changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.static.descent import NOBODY, WORTHWHILE

__all__ = ["DENSE_UP_TO", "ROUNDS", "descend_dense"]

DENSE_UP_TO = 256
"""Records up to which computing all distances is faster than looking for neighbours."""
ROUNDS = 100
"""Of descent at most; it ends by itself long before."""


class DenseDescentState(NamedTuple):
    """A partition with all distances; clusters without a record have size 0."""

    squares: Float64Matrix  # (n, n): squared distances
    sums: Float64Matrix  # (clusters, n): S, transposed, so that a change reads and writes rows
    reaches: Float64Matrix  # (clusters, n): no member is farther
    totals: Float64Vector  # (clusters,): W
    sizes: Int64Vector  # (clusters,)
    members: Int64Matrix  # (clusters, room)
    labels: Int32Vector  # (n,)
    places: Int64Vector  # (n,): of each record among the members of its cluster
    shares: Float64Vector  # (clusters,): 1 / size
    slopes: Float64Vector  # (clusters,): 1 / (size + 1); who joins costs slope * S - level
    levels: Float64Vector  # (clusters,)
    easiest: Float64Matrix  # (clusters, clusters): least S(o, a)/a - S(o, c)/c of members o of the second, c
    weighed: Int64Matrix  # (clusters, clusters): the change at which it was
    changed: Int64Vector  # (clusters,): number of its last change
    seen: Int64Vector  # (n,): number of the last change when a record was last looked at
    changes: Int64Vector  # (1,): how many there were
    was: Int32Vector  # (n,): labels before a change that may be taken back


@njit
def descend_dense(rows: Float64Matrix, labels: Int32Vector, k: int, rounds: int) -> Int32Vector:
    """Return a partition that no change tried makes better, or the one reached after so many rounds.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        Coordinates; O(n²) memory is taken.
    labels : ndarray of int32, shape (n,)
        Where to begin: clusters of k and more, numbered from 0.
    k : int
        Smallest cluster; none grows beyond 2k - 1.
    rounds : int
        At most.
    """
    close = _gathered(rows, labels, k)
    loss = 0.0
    for cluster in range(close.sizes.size):
        loss += _loss(close, cluster)
    worthwhile = WORTHWHILE * loss / labels.size
    for _ in range(rounds):
        changes = 0
        for i in range(labels.size):
            changes += _improve(close, i, k, worthwhile)
        for cluster in range(close.sizes.size):
            if close.sizes[cluster] > 0:
                changes += _dissolve(close, cluster, k, worthwhile)
        changes += _create(close, k, worthwhile)
        if changes == 0:
            break
        _settle(close)
    return close.labels


@njit
def _gathered(rows: Float64Matrix, labels: Int32Vector, k: int) -> DenseDescentState:
    n, clusters = rows.shape[0], rows.shape[0] // k
    for label in labels:
        clusters = max(clusters, label + 1)
    sizes = np.zeros(clusters, np.int64)
    for label in labels:
        sizes[label] += 1
    room = 2 * k
    for size in sizes:
        room = max(room, size + 1)
    shares, slopes, levels, totals = np.empty((4, clusters))
    close = DenseDescentState(
        squares=np.empty((n, n)),
        sums=np.empty((clusters, n)),
        reaches=np.empty((clusters, n)),
        totals=totals,
        sizes=np.zeros(clusters, np.int64),
        members=np.empty((clusters, room), np.int64),
        labels=labels.copy(),
        places=np.empty(n, np.int64),
        shares=shares,
        slopes=slopes,
        levels=levels,
        easiest=np.empty((clusters, clusters)),
        weighed=np.full((clusters, clusters), -1),
        changed=np.zeros(clusters, np.int64),
        seen=np.full(n, -1),
        changes=np.zeros(1, np.int64),
        was=labels.copy(),
    )
    _measure(np.ascontiguousarray(rows.T), close.squares)
    for i in range(n):
        _enter(close, i, labels[i])
    _settle(close)
    return close


@njit
def _measure(columns: Float64Matrix, squares: Float64Matrix) -> None:
    """Write all squared distances; two attributes at a time halve the traffic."""
    d, n = columns.shape
    for i in range(n):
        away, column, value = squares[i], columns[0], columns[0, i]
        for x in range(n):
            step = column[x] - value
            away[x] = step * step
        for j in range(1, d - 1, 2):
            column, other, value, its = columns[j], columns[j + 1], columns[j, i], columns[j + 1, i]
            for x in range(n):
                step, way = column[x] - value, other[x] - its
                away[x] = away[x] + step * step + way * way
        if d % 2 == 0:
            column, value = columns[d - 1], columns[d - 1, i]
            for x in range(n):
                step = column[x] - value
                away[x] += step * step


@njit_in_place
def _enter(close: DenseDescentState, i: int, cluster: int) -> None:
    """Put a record behind the members of a cluster."""
    close.members[cluster, close.sizes[cluster]] = i
    close.places[i] = close.sizes[cluster]
    close.sizes[cluster] += 1
    close.labels[i] = cluster


@njit
def _settle(close: DenseDescentState) -> None:
    """Add all sums up anew: adding and subtracting leaves a little rounding each time."""
    close.sums.fill(0.0)
    close.reaches.fill(0.0)
    for cluster in range(close.sizes.size):
        total = 0.0
        for x in range(close.sizes[cluster]):
            _add(close, cluster, close.squares[close.members[cluster, x]])
        for x in range(close.sizes[cluster]):
            total += close.sums[cluster, close.members[cluster, x]]
        close.totals[cluster] = total
        _weigh(close, cluster)


@njit_in_place
def _add(close: DenseDescentState, cluster: int, away: Float64Vector) -> None:
    """Take the distances from a new member into account."""
    sums, reach = close.sums[cluster], close.reaches[cluster]
    for x in range(away.size):
        sums[x] += away[x]
    for x in range(away.size):
        reach[x] = reach[x] if reach[x] > away[x] else away[x]  # noqa: FURB136 - vectorised only so


@njit_in_place
def _weigh(close: DenseDescentState, cluster: int) -> None:
    """Divide once what is divided by often."""
    size = close.sizes[cluster]
    close.shares[cluster] = 1.0 / max(size, 1)
    close.slopes[cluster] = 1.0 / (size + 1)
    close.levels[cluster] = 0.5 * close.totals[cluster] * close.shares[cluster] * close.slopes[cluster]


@njit_in_place
def _loss(close: DenseDescentState, cluster: int) -> float:
    return float(0.5 * close.totals[cluster] * close.shares[cluster])


@njit_in_place
def _join_cost(close: DenseDescentState, i: int, cluster: int) -> float:
    """By how much the loss rises when a record joins a cluster that it is not in."""
    return float(close.slopes[cluster] * close.sums[cluster, i] - close.levels[cluster])


@njit_in_place
def _leave_gain(close: DenseDescentState, i: int) -> float:
    """By how much the loss falls when a record leaves its cluster."""
    cluster = close.labels[i]
    rest = close.totals[cluster] - 2.0 * close.sums[cluster, i]
    return float(_loss(close, cluster) - rest / (2.0 * max(close.sizes[cluster] - 1, 1)))


@njit_in_place
def _move(close: DenseDescentState, i: int, cluster: int) -> None:
    own, away = close.labels[i], close.squares[i]
    mine = close.sums[own]
    close.totals[own] -= 2.0 * mine[i]
    close.totals[cluster] += 2.0 * close.sums[cluster, i]
    for x in range(away.size):
        mine[x] -= away[x]
    _add(close, cluster, away)
    close.sizes[own] -= 1
    last, place = close.members[own, close.sizes[own]], close.places[i]
    close.members[own, place], close.places[last] = last, place
    _enter(close, i, cluster)
    _weigh(close, own)
    _weigh(close, cluster)
    close.changes[0] += 1
    close.changed[own] = close.changed[cluster] = close.changes[0]


@njit_in_place
def _improve(close: DenseDescentState, i: int, k: int, worthwhile: float) -> int:
    """Do the best relocation or swap of a record, if there is one that pays; return whether there was."""
    own, since = close.labels[i], close.seen[i]
    if close.changed[own] > since:
        since = -1
    close.seen[i] = close.changes[0]
    best, target, partner = -worthwhile, NOBODY, NOBODY
    for cluster in range(close.sizes.size):
        if close.changed[cluster] > since and cluster != own and close.sizes[cluster] > 0:
            change, other = _best_change(close, i, cluster, k, best)
            if change < best:
                best, target, partner = change, cluster, other
    if target == NOBODY:
        return 0
    if partner != NOBODY:
        _move(close, partner, own)
    _move(close, i, target)
    return 1


@njit_in_place
def _best_change(close: DenseDescentState, i: int, cluster: int, k: int, limit: float) -> tuple[float, int]:
    """Return the best change between a record and another cluster, if below ``limit``: with whom it is swapped, or -1.

    Nobody: it relocates.
    """
    own, best, partner = close.labels[i], limit, NOBODY
    if close.sizes[own] > k and close.sizes[cluster] < 2 * k - 1:
        best = min(best, _join_cost(close, i, cluster) - _leave_gain(close, i))
    mine, its, near = close.sums[own], close.sums[cluster], close.squares[i]
    share, its_share = close.shares[own], close.shares[cluster]
    base, both = its[i] * its_share - mine[i] * share, share + its_share
    if base + _easiest(close, own, cluster) - close.reaches[cluster, i] * both < best:
        for x in range(close.sizes[cluster]):
            other = close.members[cluster, x]
            change = base + (mine[other] * share - its[other] * its_share) - near[other] * both
            if change < best:
                best, partner = change, other
    return best, partner


@njit_in_place
def _easiest(close: DenseDescentState, own: int, cluster: int) -> float:
    """Return the least that a member of a cluster costs in another cluster rather than in its own, on average."""
    if close.weighed[own, cluster] < max(close.changed[own], close.changed[cluster]):
        mine, its = close.sums[own], close.sums[cluster]
        share, its_share, least = close.shares[own], close.shares[cluster], np.inf
        for x in range(close.sizes[cluster]):
            other = close.members[cluster, x]
            least = min(least, mine[other] * share - its[other] * its_share)
        close.easiest[own, cluster] = least
        close.weighed[own, cluster] = close.changes[0]
    return float(close.easiest[own, cluster])


@njit_in_place
def _dissolve(close: DenseDescentState, cluster: int, k: int, worthwhile: float) -> int:
    """Move all members to the cheapest other clusters if that pays; return whether it did."""
    change = -_loss(close, cluster)
    for x in range(close.sizes[cluster]):  # as if each were alone, for it seldom pays
        change += _cheapest(close, close.members[cluster, x], cluster, k)[0]
        if change >= -worthwhile:
            return 0
    _remember(close)
    change = -_loss(close, cluster)
    for i in range(close.labels.size):
        if close.was[i] == cluster:
            cost, target = _cheapest(close, i, cluster, k)
            change += cost
            if target == NOBODY or change >= -worthwhile:
                _take_back(close)
                return 0
            _move(close, i, target)
    return 1


@njit_in_place
def _cheapest(close: DenseDescentState, i: int, cluster: int, k: int) -> tuple[float, int]:
    """Return what it costs a record to join the cheapest cluster but one, and which that is."""
    best, target = np.inf, NOBODY
    for other in range(close.sizes.size):
        if other != cluster and 0 < close.sizes[other] < 2 * k - 1:
            cost = _join_cost(close, i, other)
            if cost < best:
                best, target = cost, other
    return best, target


@njit_in_place
def _create(close: DenseDescentState, k: int, worthwhile: float) -> int:
    """Make new clusters of records and their nearest that can be spared, where it pays; return how many."""
    changes = 0
    for i in range(close.labels.size):
        cluster, spared = NOBODY, 0
        for other in range(close.sizes.size):
            spared += max(0, close.sizes[other] - k)
            if close.sizes[other] == 0:
                cluster = other
        if cluster == NOBODY or spared < k:
            return changes
        if close.sizes[close.labels[i]] > k:
            changes += _create_round(close, i, cluster, k, worthwhile)
    return changes


@njit_in_place
def _create_round(close: DenseDescentState, i: int, cluster: int, k: int, worthwhile: float) -> int:
    """Make a cluster round one record if that pays; return whether it did."""
    _remember(close)
    change, record = 0.0, i
    while record != NOBODY and close.sizes[cluster] < k:
        change += _join_cost(close, record, cluster) - _leave_gain(close, record)
        _move(close, record, cluster)
        nearest, record = np.inf, NOBODY
        for x in range(close.labels.size):
            is_spare = close.labels[x] != cluster and close.sizes[close.labels[x]] > k
            if is_spare and close.squares[i, x] < nearest:
                nearest, record = close.squares[i, x], x
    if close.sizes[cluster] == k and change < -worthwhile:
        return 1
    _take_back(close)
    return 0


@njit_in_place
def _remember(close: DenseDescentState) -> None:
    for x in range(close.labels.size):
        close.was[x] = close.labels[x]


@njit_in_place
def _take_back(close: DenseDescentState) -> None:
    for x in range(close.labels.size):
        if close.labels[x] != close.was[x]:
            _move(close, x, close.was[x])
