"""Descent with all squared distances in memory: each change is evaluated in a few operations.

Let S(i, c) be the sum of the squared distances of record i from the members of cluster c, and W(c) the sum of S(i, c)
over these members. The loss of c is W(c) / (2 size). The change of the loss by a relocation or a swap follows from S, W
and one distance; carrying a change out costs O(n). For a few hundred records this is several times faster than
`descent`. It ends in the same kind of local optimum: no relocation, swap or new cluster lowers the loss, and neither
does a dissolved cluster whose members join others one by one. Cyclic exchanges are not tried.

Most swaps need not be evaluated. A swap of i in cluster a with o in cluster c (sizes |a|, |c|) changes the loss by

    S(i, c)/|c| - S(i, a)/|a|  +  S(o, a)/|a| - S(o, c)/|c|  -  (1/|a| + 1/|c|) times the squared distance of i and o.

The second part is at least its minimum over the members of c, which is kept for each pair of clusters; the third is at
most its value for the farthest member. If this bound shows no gain, no swap of i with a member of c has one. A record
is compared with a cluster again only after one of the two clusters has changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_inline, njit_inner
from shoal.clustering.static.constraints import NONE, subject_violation
from shoal.clustering.static.descent import MIN_RELATIVE_GAIN

__all__ = ["DENSE_UP_TO", "NO_SUBJECTS", "ROUNDS", "descend_dense", "pair_squares"]

DENSE_UP_TO = 256
"""Records up to which computing all distances is faster than searching for neighbours."""
ROUNDS = 100
"""Rounds of descent at most; descent ends long before."""


class DenseDescentState(NamedTuple):
    """A partition of n records with all squared distances; a cluster of size 0 is empty."""

    squares: Float64Matrix  # (n, n): squared distances
    sums: Float64Matrix  # (clusters, n): S(i, c) in row c, so that a change reads and writes rows
    max_squares: Float64Matrix  # (clusters, n): upper bound on the squared distance of a record to any member
    totals: Float64Vector  # (clusters,): W
    sizes: Int64Vector  # (clusters,)
    members: Int64Matrix  # (clusters, capacity)
    labels: Int32Vector  # (n,)
    positions: Int64Vector  # (n,): index of each record among the members of its cluster
    inverse_sizes: Float64Vector  # (clusters,): 1 / size
    join_slopes: Float64Vector  # (clusters,): 1 / (size + 1); joining costs join_slope * S - join_offset
    join_offsets: Float64Vector  # (clusters,)
    swap_bounds: Float64Matrix  # (clusters, clusters): minimum of S(o, a)/|a| - S(o, c)/|c| over members o of c
    bound_versions: Int64Matrix  # (clusters, clusters): number of the last change when the bound was computed
    versions: Int64Vector  # (clusters,): number of the last change of each cluster
    examined: Int64Vector  # (n,): number of the last change when each record was last examined
    changes: Int64Vector  # (1,): number of the last change
    saved_labels: Int32Vector  # (n,): labels before a change that may be undone
    subjects: Int64Vector  # (n,): subject of each record, from 0; empty if each has its own
    max_share: float
    tally: Int64Vector  # (n,): scratch by subject, zero between two uses


@njit
def pair_squares(rows: Float64Matrix) -> Float64Matrix:
    """Return the squared distances (n, n) between records, given by their coordinates (n, d); d may be 0. O(n² d)."""
    squares = np.empty((rows.shape[0], rows.shape[0]))
    _fill_squares(np.ascontiguousarray(rows.T), squares)
    return squares


NO_SUBJECTS = np.zeros(0, np.int64)
"""Every record has a subject of its own."""


@njit
def descend_dense(
    squares: Float64Matrix,
    labels: Int32Vector,
    k: int,
    rounds: int,
    subjects: Int64Vector,
    max_share: float,
) -> Int32Vector:
    """Return a partition whose loss no change that is tried lowers, or the one reached after ``rounds`` rounds.

    Parameters
    ----------
    squares : ndarray of float64, shape (n, n)
        Squared distances between the records, as of `pair_squares`; not modified.
    labels : ndarray of int32, shape (n,)
        The partition to start from: clusters of k or more, numbered from 0; not modified.
    k : int
        Smallest cluster; no cluster grows beyond 2k - 1.
    rounds : int
        Rounds at most.
    subjects : ndarray of int64, shape (n,)
        Subject of each record, from 0. Clusters of the start must then have k subjects, none with more than
        ``max_share`` of the records. `NO_SUBJECTS` if each record has a subject of its own.
    max_share : float
        Largest share of one subject in a cluster.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record; numbers may be left unused.

    Notes
    -----
    Guarantee: clusters of k or more records and, where subjects are given, of k subjects, none above its share; and no
    loss above that of the start, up to rounding. With subjects no cluster is dissolved or created.
    Cost: O(n²) to start, O(n) per change; O(n²) memory.
    """
    state = _build_state(squares, labels, k, subjects, max_share)
    loss = 0.0
    for cluster in range(state.sizes.size):
        loss += _loss(state, cluster)
    min_gain = MIN_RELATIVE_GAIN * loss / labels.size
    for _ in range(rounds):
        changes = 0
        for i in range(labels.size):
            changes += _relocate_or_swap(state, i, k, min_gain)
        if subjects.size == 0:
            for cluster in range(state.sizes.size):
                if state.sizes[cluster] > 0:
                    changes += _dissolve(state, cluster, k, min_gain)
            changes += _create(state, k, min_gain)
        if changes == 0:
            break
        _recompute_sums(state)
    return state.labels


@njit_inner
def _build_state(
    squares: Float64Matrix, labels: Int32Vector, k: int, subjects: Int64Vector, max_share: float
) -> DenseDescentState:
    """Return the state for a partition ``labels`` (n,) of records with the squared distances ``squares`` (n, n)."""
    n, clusters = squares.shape[0], squares.shape[0] // k
    for label in labels:
        clusters = max(clusters, label + 1)
    sizes = np.zeros(clusters, np.int64)
    for label in labels:
        sizes[label] += 1
    capacity = 2 * k
    for size in sizes:
        capacity = max(capacity, size + 1)
    inverse_sizes, join_slopes, join_offsets, totals = np.empty((4, clusters))
    state = DenseDescentState(
        squares=squares,
        sums=np.empty((clusters, n)),
        max_squares=np.empty((clusters, n)),
        totals=totals,
        sizes=np.zeros(clusters, np.int64),
        members=np.empty((clusters, capacity), np.int64),
        labels=labels.copy(),
        positions=np.empty(n, np.int64),
        inverse_sizes=inverse_sizes,
        join_slopes=join_slopes,
        join_offsets=join_offsets,
        swap_bounds=np.empty((clusters, clusters)),
        bound_versions=np.full((clusters, clusters), -1),
        versions=np.zeros(clusters, np.int64),
        examined=np.full(n, -1),
        changes=np.zeros(1, np.int64),
        saved_labels=labels.copy(),
        subjects=subjects,
        max_share=max_share,
        tally=np.zeros(subjects.size, np.int64),
    )
    for i in range(n):
        _append_member(state, i, labels[i])
    _recompute_sums(state)
    return state


@njit_inner
def _fill_squares(columns: Float64Matrix, squares: Float64Matrix) -> None:
    """Write the squared distances (n, n) between the records of ``columns`` (d, n).

    Two attributes per pass halve the memory traffic.
    """
    d, n = columns.shape
    if d == 0:
        squares.fill(0.0)
        return
    for i in range(n):
        away, column, value = squares[i], columns[0], columns[0, i]
        for x in range(n):
            step = column[x] - value
            away[x] = step * step
        for j in range(1, d - 1, 2):
            column, other, value, other_value = columns[j], columns[j + 1], columns[j, i], columns[j + 1, i]
            for x in range(n):
                step, other_step = column[x] - value, other[x] - other_value
                away[x] = away[x] + step * step + other_step * other_step
        if d % 2 == 0:
            column, value = columns[d - 1], columns[d - 1, i]
            for x in range(n):
                step = column[x] - value
                away[x] += step * step


@njit_inline
def _append_member(state: DenseDescentState, i: int, cluster: int) -> None:
    """Append a record to the members of a cluster."""
    state.members[cluster, state.sizes[cluster]] = i
    state.positions[i] = state.sizes[cluster]
    state.sizes[cluster] += 1
    state.labels[i] = cluster


@njit_inner
def _recompute_sums(state: DenseDescentState) -> None:
    """Compute all sums from the distances; each update adds a little rounding to them. O(n²)."""
    state.sums.fill(0.0)
    state.max_squares.fill(0.0)
    for cluster in range(state.sizes.size):
        total = 0.0
        for x in range(state.sizes[cluster]):
            _add_member_distances(state, cluster, state.squares[state.members[cluster, x]])
        for x in range(state.sizes[cluster]):
            total += state.sums[cluster, state.members[cluster, x]]
        state.totals[cluster] = total
        _update_join_costs(state, cluster)


@njit_inline
def _add_member_distances(state: DenseDescentState, cluster: int, away: Float64Vector) -> None:
    """Add the squared distances (n,) from a new member to the sums and bounds of its cluster."""
    sums, largest = state.sums[cluster], state.max_squares[cluster]
    for x in range(away.size):
        sums[x] += away[x]
    for x in range(away.size):
        largest[x] = largest[x] if largest[x] > away[x] else away[x]  # noqa: FURB136 - max() is not vectorised


@njit_inline
def _update_join_costs(state: DenseDescentState, cluster: int) -> None:
    """Store the quotients from which the costs of joining a cluster are computed."""
    size = state.sizes[cluster]
    inverse, slope = 1.0 / max(size, 1), 1.0 / (size + 1)
    state.inverse_sizes[cluster], state.join_slopes[cluster] = inverse, slope
    state.join_offsets[cluster] = 0.5 * state.totals[cluster] * inverse * slope


@njit_inline
def _loss(state: DenseDescentState, cluster: int) -> float:
    """Return the loss of one cluster."""
    return float(0.5 * state.totals[cluster] * state.inverse_sizes[cluster])


@njit_inline
def _join_cost(state: DenseDescentState, i: int, cluster: int) -> float:
    """Return by how much the loss rises when a record joins a cluster that it is not in."""
    return float(state.join_slopes[cluster] * state.sums[cluster, i] - state.join_offsets[cluster])


@njit_inline
def _leave_gain(state: DenseDescentState, i: int) -> float:
    """Return by how much the loss falls when a record leaves its cluster."""
    cluster = state.labels[i]
    rest = state.totals[cluster] - 2.0 * state.sums[cluster, i]
    return float(_loss(state, cluster) - rest / (2.0 * max(state.sizes[cluster] - 1, 1)))


@njit_inline
def _move(state: DenseDescentState, i: int, cluster: int) -> None:
    """Move a record to another cluster. O(n)."""
    own, away = state.labels[i], state.squares[i]
    own_sums = state.sums[own]
    state.totals[own] -= 2.0 * own_sums[i]
    state.totals[cluster] += 2.0 * state.sums[cluster, i]
    for x in range(away.size):
        own_sums[x] -= away[x]
    _add_member_distances(state, cluster, away)
    state.sizes[own] -= 1
    last, position = state.members[own, state.sizes[own]], state.positions[i]
    state.members[own, position], state.positions[last] = last, position
    _append_member(state, i, cluster)
    _update_join_costs(state, own)
    _update_join_costs(state, cluster)
    state.changes[0] += 1
    state.versions[own] = state.versions[cluster] = state.changes[0]


@njit_inline
def _relocate_or_swap(state: DenseDescentState, i: int, k: int, min_gain: float) -> int:
    """Carry out the best relocation or swap of a record, if one gains enough; return 1 if so, else 0."""
    own, since = state.labels[i], state.examined[i]
    if state.versions[own] > since:
        since = -1
    state.examined[i] = state.changes[0]
    best, target, partner = -min_gain, NONE, NONE
    for cluster in range(state.sizes.size):
        if state.versions[cluster] > since and cluster != own and state.sizes[cluster] > 0:
            change, other = _best_change(state, i, cluster, k, best)
            if change < best:
                best, target, partner = change, cluster, other
    if target == NONE:
        return 0
    if partner != NONE:
        _move(state, partner, own)
    _move(state, i, target)
    return 1


@njit_inline
def _best_change(state: DenseDescentState, i: int, cluster: int, k: int, limit: float) -> tuple[float, int]:
    """Return the change of the best relocation or swap of a record into another cluster, and the partner of the swap.

    The partner is -1 for a relocation. Without a change below ``limit``, the change returned is the limit.
    """
    own, best, partner = state.labels[i], limit, NONE
    if state.sizes[own] > k and state.sizes[cluster] < 2 * k - 1:
        change = _join_cost(state, i, cluster) - _leave_gain(state, i)
        if change < best and _is_allowed(state, i, cluster, NONE, k):
            best = change
    own_sums, other_sums, squares = state.sums[own], state.sums[cluster], state.squares[i]
    share, other_share = state.inverse_sizes[own], state.inverse_sizes[cluster]
    base, both = other_sums[i] * other_share - own_sums[i] * share, share + other_share
    if base + _swap_bound(state, own, cluster) - state.max_squares[cluster, i] * both < best:
        for x in range(state.sizes[cluster]):
            other = state.members[cluster, x]
            change = base + (own_sums[other] * share - other_sums[other] * other_share) - squares[other] * both
            if change < best and _is_allowed(state, i, cluster, other, k):
                best, partner = change, other
    return best, partner


@njit_inline
def _is_allowed(state: DenseDescentState, i: int, cluster: int, other: int, k: int) -> bool:
    """Whether the constraints on subjects hold if a record joins a cluster, and ``other``, if any, takes its place."""
    if state.subjects.size == 0:
        return True
    own, subjects, tally = state.labels[i], state.subjects, state.tally
    left, joined = state.members[own, : state.sizes[own]], state.members[cluster, : state.sizes[cluster]]
    violation = subject_violation(subjects, tally, left, i, other, state.max_share, k)
    return violation == 0 and subject_violation(subjects, tally, joined, other, i, state.max_share, k) == 0


@njit_inline
def _swap_bound(state: DenseDescentState, own: int, cluster: int) -> float:
    """Return the minimum over members o of ``cluster`` of S(o, own) / |own| - S(o, cluster) / |cluster|."""
    if state.bound_versions[own, cluster] < max(state.versions[own], state.versions[cluster]):
        own_sums, other_sums = state.sums[own], state.sums[cluster]
        share, other_share, least = state.inverse_sizes[own], state.inverse_sizes[cluster], np.inf
        for x in range(state.sizes[cluster]):
            other = state.members[cluster, x]
            least = min(least, own_sums[other] * share - other_sums[other] * other_share)
        state.swap_bounds[own, cluster] = least
        state.bound_versions[own, cluster] = state.changes[0]
    return float(state.swap_bounds[own, cluster])


@njit_inline
def _dissolve(state: DenseDescentState, cluster: int, k: int, min_gain: float) -> int:
    """Move each member to its cheapest other cluster, if that gains enough; return 1 if so, else 0."""
    change = -_loss(state, cluster)
    for x in range(state.sizes[cluster]):  # an estimate that skips most attempts: each member as if it moved alone
        change += _cheapest(state, state.members[cluster, x], cluster, k)[0]
        if change >= -min_gain:
            return 0
    _save_labels(state)
    change = -_loss(state, cluster)
    for i in range(state.labels.size):
        if state.saved_labels[i] == cluster:
            cost, target = _cheapest(state, i, cluster, k)
            change += cost
            if target == NONE or change >= -min_gain:
                _rollback(state)
                return 0
            _move(state, i, target)
    return 1


@njit_inline
def _cheapest(state: DenseDescentState, i: int, cluster: int, k: int) -> tuple[float, int]:
    """Return the least cost for a record to join a cluster other than ``cluster``, and which it is, or -1."""
    best, target = np.inf, NONE
    for other in range(state.sizes.size):
        if other != cluster and 0 < state.sizes[other] < 2 * k - 1:
            cost = _join_cost(state, i, other)
            if cost < best:
                best, target = cost, other
    return best, target


@njit_inline
def _create(state: DenseDescentState, k: int, min_gain: float) -> int:
    """Create clusters of records from clusters above k, where it gains enough; return their number."""
    changes = 0
    for i in range(state.labels.size):
        cluster, available = NONE, 0
        for other in range(state.sizes.size):
            available += max(0, state.sizes[other] - k)
            if state.sizes[other] == 0:
                cluster = other
        if cluster == NONE or available < k:
            return changes
        if state.sizes[state.labels[i]] > k:
            changes += _create_around(state, i, cluster, k, min_gain)
    return changes


@njit_inline
def _create_around(state: DenseDescentState, i: int, cluster: int, k: int, min_gain: float) -> int:
    """Create a cluster of a record and its k - 1 nearest in clusters above k, if it gains enough; return 1 if so."""
    _save_labels(state)
    change, record = 0.0, i
    while record != NONE and state.sizes[cluster] < k:
        change += _join_cost(state, record, cluster) - _leave_gain(state, record)
        _move(state, record, cluster)
        nearest, record = np.inf, NONE
        for x in range(state.labels.size):
            is_available = state.labels[x] != cluster and state.sizes[state.labels[x]] > k
            if is_available and state.squares[i, x] < nearest:
                nearest, record = state.squares[i, x], x
    if state.sizes[cluster] == k and change < -min_gain:
        return 1
    _rollback(state)
    return 0


@njit_inline
def _save_labels(state: DenseDescentState) -> None:
    """Save the labels, for `_rollback`."""
    for x in range(state.labels.size):
        state.saved_labels[x] = state.labels[x]


@njit_inline
def _rollback(state: DenseDescentState) -> None:
    """Move all records back to the clusters of the saved labels."""
    for x in range(state.labels.size):
        if state.labels[x] != state.saved_labels[x]:
            _move(state, x, state.saved_labels[x])
