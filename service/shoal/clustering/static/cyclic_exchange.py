"""Cyclic exchange: a record moves to a second cluster, one of that to a third, and one of the third to the first.

All sizes stay as they are, so an exchange remains possible where k and 2k - 1 forbid a relocation. Where both sizes
allow it, the last move is left out. If a cycle has a gain, it can be started at a record from which every partial sum
is a gain; so only partial cycles with a gain are extended.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int32Matrix, Int64Vector
from shoal.clustering.numba.jit import njit_inline, njit_inner
from shoal.clustering.static.constraints import NONE
from shoal.clustering.static.partition_state import (
    MAX_SIZE,
    MIN_SIZE,
    PartitionState,
    UndoLog,
    are_allowed,
    cost_to_join,
    gain_of_leaving,
    member,
    move_logged,
    rollback,
)

__all__ = ["ExchangeCosts", "cyclic_exchange", "empty_exchange_costs", "reset_exchange_costs", "update_leaving_gains"]

THIRD_NEIGHBOURS = 5
"""Nearest neighbours of the second record whose clusters may be the third."""


class ExchangeCosts(NamedTuple):
    """Costs that several cycles share."""

    leaving_gains: Float64Vector  # (n,): by how much the loss falls when a record leaves its cluster
    closing_costs: Float64Vector  # (clusters,): least cost for a member to join the first cluster of the cycle
    closing_records: Int64Vector  # (clusters,): that member
    closed_for: Int64Vector  # (clusters,): first record of the cycle for which the two were computed


class ExchangeCycle(NamedTuple):
    """A cycle and its estimated change of the loss; ``last`` is -1 where the last move is left out."""

    change: float
    second: int
    last: int
    second_cluster: int
    third_cluster: int


@njit_inner
def cyclic_exchange(
    partition: PartitionState,
    neighbours: Int32Matrix,
    i: int,
    visited_for: Int64Vector,
    log: UndoLog,
    costs: ExchangeCosts,
    min_gain: float,
) -> bool:
    """Carry out the best cycle that starts with a record, if the loss falls by more than ``min_gain``.

    The three moves are chosen as if each were alone; their joint change is computed while they are carried out.

    Parameters
    ----------
    partition : PartitionState
        Changed in place.
    neighbours : ndarray of int32, shape (n, m)
        Nearest neighbours of each record, the nearest first.
    i : int
        The first record of the cycle.
    visited_for : ndarray of int64, shape (clusters,)
        Scratch: the last record for which a cluster was tried as the second one.
    log : UndoLog
        Empty; holds the moves afterwards if the result is true.
    costs : ExchangeCosts
        Up to date for this partition.
    min_gain : float
        Smallest gain that counts.

    Returns
    -------
    bool
        Whether a cycle was carried out.
    """
    own = partition.labels[i]
    gain = costs.leaving_gains[i]
    best = ExchangeCycle(-min_gain, NONE, NONE, NONE, NONE)
    visited_for[own] = i
    for neighbour in neighbours[i]:
        target = partition.labels[neighbour]
        if visited_for[target] == i:
            continue
        visited_for[target] = i
        first = cost_to_join(partition, i, target) - gain
        if first < 0.0:
            for x in range(partition.sizes[target]):
                best = _best_extension(partition, neighbours, costs, i, first, member(partition, target, x), best)
    if best.second == NONE:
        return False
    change = cost_to_join(partition, i, best.second_cluster) - gain
    move_logged(partition, log, i, best.second_cluster)
    change += cost_to_join(partition, best.second, best.third_cluster) - gain_of_leaving(partition, best.second)
    move_logged(partition, log, best.second, best.third_cluster)
    if best.last != NONE:
        change += cost_to_join(partition, best.last, own) - gain_of_leaving(partition, best.last)
        move_logged(partition, log, best.last, own)
    if change < -min_gain and are_allowed(partition, log):
        return True
    rollback(partition, log)
    return False


@njit_inline
def _best_extension(
    partition: PartitionState,
    neighbours: Int32Matrix,
    costs: ExchangeCosts,
    i: int,
    first: float,
    second: int,
    best: ExchangeCycle,
) -> ExchangeCycle:
    """Return the best of a cycle and the cycles whose second record is ``second``; ``first`` is the first change."""
    own, second_cluster = partition.labels[i], partition.labels[second]
    gain = costs.leaving_gains[second]
    previous = NONE
    for x in range(min(THIRD_NEIGHBOURS, neighbours.shape[1])):
        third = partition.labels[neighbours[second, x]]
        if third in (own, second_cluster, previous):
            continue
        previous = third
        so_far = first + cost_to_join(partition, second, third) - gain
        if so_far >= 0.0:
            continue
        if (
            partition.sizes[own] > partition.counters[MIN_SIZE]
            and partition.sizes[third] < partition.counters[MAX_SIZE]
        ):
            if so_far < best.change:
                best = ExchangeCycle(so_far, second, NONE, second_cluster, third)
            continue
        if costs.closed_for[third] != i:
            costs.closed_for[third] = i
            _find_closing_record(partition, costs, own, third)
        if so_far + costs.closing_costs[third] < best.change:
            best = ExchangeCycle(
                so_far + costs.closing_costs[third], second, costs.closing_records[third], second_cluster, third
            )
    return best


@njit_inline
def _find_closing_record(partition: PartitionState, costs: ExchangeCosts, own: int, third: int) -> None:
    """Find the member of the third cluster that joins the first cluster at the least cost."""
    costs.closing_costs[third], costs.closing_records[third] = np.inf, NONE
    for x in range(partition.sizes[third]):
        last = member(partition, third, x)
        change = cost_to_join(partition, last, own) - costs.leaving_gains[last]
        if change < costs.closing_costs[third]:
            costs.closing_costs[third], costs.closing_records[third] = change, last


@njit_inner
def empty_exchange_costs(n: int, clusters: int) -> ExchangeCosts:
    """Return costs for n records, still to be computed by `reset_exchange_costs`."""
    return ExchangeCosts(np.zeros(n), np.zeros(clusters), np.full(clusters, NONE), np.full(clusters, NONE))


@njit_inner
def reset_exchange_costs(partition: PartitionState, costs: ExchangeCosts) -> None:
    """Compute the gains of all records, and mark all closing costs as not computed."""
    costs.closed_for.fill(NONE)
    for cluster in range(partition.sizes.size):
        update_leaving_gains(partition, costs, cluster)


@njit_inline
def update_leaving_gains(partition: PartitionState, costs: ExchangeCosts, cluster: int) -> None:
    """Compute the gains of the members of a cluster that has changed."""
    for x in range(partition.sizes[cluster]):
        i = member(partition, cluster, x)
        costs.leaving_gains[i] = gain_of_leaving(partition, i)
