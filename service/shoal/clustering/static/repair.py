"""Exchange of records between near clusters, so that clusters get the confidential values that they lack."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Matrix, Int32Vector, Int64Vector
from shoal.clustering.diversity import DISTINCT, LDiversity
from shoal.clustering.numba.jit import njit, njit_inline, njit_inner
from shoal.clustering.numba.neighbours import neighbours_of
from shoal.clustering.static.centroids import centroids_of
from shoal.clustering.static.constraints import (
    NONE,
    ClusterConstraints,
    excess_of_constraints,
    violating_clusters,
)
from shoal.clustering.static.emd import ConfidentialAttribute
from shoal.clustering.static.partition_state import (
    MIN_SIZE,
    PartitionState,
    build_partition_state,
    cost_to_swap,
    member,
    move,
    recompute_centroids,
)

__all__ = ["NEAR_CLUSTERS", "precompile_repair", "repair_by_swaps"]

LEAF_SIZE = 64
NEAR_CLUSTERS = (8, 32, 128)
"""Nearest clusters that exchange records with a cluster, round by round; only the first round is needed for most."""


def repair_by_swaps(
    values: Float64Matrix,
    labels: Int32Vector,
    k: int,
    constraints: ClusterConstraints,
    near: tuple[int, ...] = NEAR_CLUSTERS,
) -> Int32Vector:
    """Exchange records of clusters that violate a constraint with records of near clusters.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    labels : ndarray of int32, shape (n,)
        A partition into clusters of k or more; not modified.
    k : int
        Smallest cluster, in subjects where they are given.
    constraints : ClusterConstraints
        What every cluster must satisfy; with l-diversity, a largest share of a value, or t.
    near : tuple of int
        Nearest clusters that are tried, round by round.

    Returns
    -------
    ndarray of int32, shape (n,)
        A new partition into clusters of the same sizes.

    Notes
    -----
    Guarantee: a cluster that satisfied the constraints does so afterwards. Clusters that still violate them have to be
    merged (`merge_until_feasible`).
    Of all exchanges of one member with one record of a near cluster, the one is made that leaves the cluster nearest to
    what is asked for, and among those the one that raises the loss least. An exchange never makes the other cluster
    violate a constraint, nor violate it more. A cluster takes part until it is feasible, or no exchange brings it
    nearer to that; at most as often as it has members. Clusters that are still not feasible then look farther.
    Cost: O(k² m) checks for each exchange with m near clusters. The result depends on the order of the records and on
    which codes are equal, not on their values.
    """
    rows = np.ascontiguousarray(values - values.mean(axis=0))
    partition = None
    for count in near:
        violating = violating_clusters(labels, k, constraints)
        if not violating.any() or len(violating) == 1:
            break
        if partition is None:
            partition = build_partition_state(rows, labels, k, constraints.arrays(np.arange(len(rows))))
        centroids = np.ascontiguousarray(centroids_of(rows, labels))
        nearest = neighbours_of(centroids, min(count, len(centroids) - 1), LEAF_SIZE)
        _exchange(partition, nearest, np.flatnonzero(violating))
        labels = partition.labels.astype(np.int32)
    return labels


def precompile_repair() -> None:
    """Compile what `repair_by_swaps` needs, so that no table waits for it."""
    rows, labels = np.arange(40.0).reshape(-1, 2), (np.arange(20) // 4).astype(np.int32)
    halves = ConfidentialAttribute(np.arange(20) // 10, ordered=False)
    repair_by_swaps(rows, labels, 4, ClusterConstraints(confidential=(halves,), l=LDiversity(DISTINCT, 2)))


@njit
def _exchange(partition: PartitionState, near: Int32Matrix, violating: Int64Vector) -> None:
    """Exchange records of the clusters ``violating`` (v,) with ``near`` ones; the partition is changed in place.

    ``near`` (clusters, m) lists the nearest clusters of each cluster.
    """
    excesses = np.zeros(partition.sizes.size)
    for cluster in violating:
        excesses[cluster] = _excess(partition, cluster, NONE, NONE)
    for cluster in violating:
        for _ in range(partition.sizes[cluster]):
            if excesses[cluster] == 0.0:
                break
            one, other = _best_exchange(partition, near[cluster], cluster, excesses)
            if one == NONE:
                break
            target = partition.labels[other]
            move(partition, one, target)
            move(partition, other, cluster)
            excesses[cluster] = _excess(partition, cluster, NONE, NONE)
            if excesses[target] > 0.0:
                excesses[target] = _excess(partition, target, NONE, NONE)
    recompute_centroids(partition)


@njit_inline
def _best_exchange(
    partition: PartitionState, near: Int32Vector, cluster: int, excesses: Float64Vector
) -> tuple[int, int]:
    """Return a member of a cluster and the record to exchange it with; -1 for both if no exchange helps."""
    best, best_cost, one, other = excesses[cluster], np.inf, NONE, NONE
    for target in near:
        for x in range(partition.sizes[cluster]):
            i = member(partition, cluster, x)
            found, cost, partner = _best_partner(partition, i, target, excesses[target], best, best_cost)
            if partner != NONE:
                best, best_cost, one, other = found, cost, i, partner
    return one, other


@njit_inner
def _best_partner(
    partition: PartitionState, i: int, target: int, limit: float, best: float, best_cost: float
) -> tuple[float, float, int]:
    """Return the excess and the cost of the best exchange of a record with a member of another cluster, and the member.

    It is better than an exchange with ``best`` and ``best_cost``, and leaves the other cluster an excess of at most
    ``limit``. If there is none, the member is -1.
    """
    cluster, partner = partition.labels[i], NONE
    for y in range(partition.sizes[target]):
        j = member(partition, target, y)
        if _have_equal_values(partition, i, j):
            continue
        cost = cost_to_swap(partition, i, j)
        if best == 0.0 and cost >= best_cost:
            continue
        excess = _excess(partition, cluster, i, j)
        is_better = excess < best or (excess == best and cost < best_cost < np.inf)
        if is_better and _excess(partition, target, j, i) <= limit:
            best, best_cost, partner = excess, cost, j
    return best, best_cost, partner


@njit_inline
def _have_equal_values(partition: PartitionState, one: int, other: int) -> bool:
    """Whether two records agree in all protected attributes and in their subject."""
    constraints = partition.constraints
    if constraints.subjects.size > 0 and constraints.subjects[one] != constraints.subjects[other]:
        return False
    for attribute in range(constraints.values.shape[0]):
        if constraints.values[attribute, one] != constraints.values[attribute, other]:
            return False
    for attribute in range(constraints.bins.shape[0]):
        if constraints.bins[attribute, one] != constraints.bins[attribute, other]:
            return False
    return True


@njit_inner
def _excess(partition: PartitionState, cluster: int, leaving: int, joining: int) -> float:
    """Return the excess of a cluster without one member and with another record; -1: neither."""
    first = partition.starts[cluster]
    members = partition.members[first : first + partition.sizes[cluster]]
    return float(excess_of_constraints(partition.constraints, members, leaving, joining, partition.counters[MIN_SIZE]))
