"""Which bins a growing cluster may take, so that it can still be t-close when it has n records.

A cluster of n records is t-close if its counts are at most n t away from those of the reference. A record of a bin is
permitted if a lower bound on the distance of the finished cluster stays within n t. All quantities are in records: n
times a distance.

Equal distance: the excess of the members over the reference, plus the least excess that the open entries must add with
the records that are held. The bound is exact. Hierarchical distance: the excess at each level of the tree, divided by
the levels. Ordered distance: the cumulative count of the finished cluster lies between that of the members and the same
plus the open entries. The last two bounds are not exact, so clusters are tried with smaller budgets, too: a *reserve* r
from 0 to 1 lets the members use the share 1 - r + r size / n of the budget. The hierarchical distance is at most the
equal one, whose exact bound takes the place of its own at reserve 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Vector
from shoal.clustering.diversity import EQUAL, ORDERED, DiversityRule
from shoal.clustering.numba.jit import njit_inline
from shoal.clustering.numba.sorting import shell_sort

__all__ = ["BinBudgets", "add_to_bin", "empty_bin_budgets", "permit_bins", "reset_bins"]

TOLERANCE = 1e-9
"""Rounding allowance in records. The finished cluster is checked exactly."""


class BinBudgets(NamedTuple):
    """Counts of a growing cluster by bin, and scratch. All bins of all protected attributes, as in `DiversityRule`.

    Attributes
    ----------
    counts, available : int64 (bins,)
        Members in each bin, and held records in it that are not members.
    node_counts : int64 (nodes,)
        Members below each node of the trees.
    is_permitted : bool (bins,)
        Whether a record of the bin may join.
    costs : float64 (bins,)
        Scratch.
    """

    counts: Int64Vector
    available: Int64Vector
    node_counts: Int64Vector
    is_permitted: BoolVector
    costs: Float64Vector


def empty_bin_budgets(rule: DiversityRule) -> BinBudgets:
    """Allocate the arrays for a rule."""
    bins, nodes = rule.shares.size, rule.node_shares.size
    return BinBudgets(
        np.zeros(bins, np.int64),
        np.zeros(bins, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(bins, np.bool_),
        np.zeros(bins),
    )


@njit_inline
def reset_bins(budgets: BinBudgets) -> None:
    """Forget members and held records."""
    budgets.counts[:] = 0
    budgets.available[:] = 0
    budgets.node_counts[:] = 0


@njit_inline
def add_to_bin(rule: DiversityRule, budgets: BinBudgets, attribute: int, own: int) -> None:
    """Count a new member, which was a held record of the bin ``own`` of an attribute."""
    entry = rule.bin_bounds[attribute] + own
    budgets.counts[entry] += 1
    budgets.available[entry] -= 1
    for level in range(rule.levels[attribute]):
        budgets.node_counts[rule.paths[entry, level]] += 1


@njit_inline
def permit_bins(rule: DiversityRule, budgets: BinBudgets, attribute: int, n: int, size: int, reserve: float) -> bool:
    """Write which bins of an attribute may join a cluster of ``size`` members that shall have n; return if any may."""
    first, end = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1]
    costs, whole, found = budgets.costs[first:end], n * rule.t, False
    budget = whole * (1.0 - reserve + reserve * (size + 1) / n)
    if rule.distances[attribute] == ORDERED:
        _bound_ordered(rule.cumulative[first:end], budgets.counts[first:end], n, n - size, costs)
        budget *= end - first - 1
    elif rule.distances[attribute] == EQUAL or reserve == 1.0:
        least = _bound_equal(rule, budgets, attribute, n, n - size)
        if least > whole + TOLERANCE:
            return False
        budget = max(budget, least)  # what the finished cluster cannot avoid does not count against the reserve
    else:
        _bound_hierarchical(rule, budgets, attribute, n)
    for entry in range(first, end):
        budgets.is_permitted[entry] = budgets.costs[entry] <= budget + TOLERANCE
        found |= budgets.is_permitted[entry] and budgets.available[entry] > 0
    return bool(found)


@njit_inline
def _bound_ordered(
    cumulative: Float64Vector, counts: Int64Vector, n: int, open_entries: int, costs: Float64Vector
) -> None:
    """Write a lower bound on the ordered distance, times n and the bins less one, if a record of each bin joins.

    The cumulative count at a bin is one more for a record at or below it. It grows by at most the entries that are then
    open. Bounds are summed from both ends: ``costs`` first holds the sum over lower bins without the record.
    """
    last, below, members = counts.size - 1, 0.0, 0
    for own in range(last):
        costs[own] = below
        members += counts[own]
        expected = n * cumulative[own]
        below += max(0.0, members - expected, expected - members - (open_entries - 1))
    costs[last] = below
    above = 0.0
    for own in range(last - 1, -1, -1):
        expected = n * cumulative[own]
        above += max(0.0, members + 1 - expected, expected - members - open_entries)
        costs[own] += above
        members -= counts[own]


@njit_inline
def _bound_equal(rule: DiversityRule, budgets: BinBudgets, attribute: int, n: int, open_entries: int) -> float:
    """Write the least equal distance, times n, of a cluster that a record of each bin joins; return the least of all.

    A bin has room for some records without excess, then for one with a part of a record in excess; all others are in
    excess. The cheapest of them fill the open entries.
    """
    first, end = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1]
    excess, free, parts, costs = 0.0, 0, 0, budgets.costs[first:end]
    for entry in range(first, end):
        expected, members = n * rule.shares[entry], budgets.counts[entry]
        excess += max(0.0, members - expected)
        room = int(expected + TOLERANCE) - members
        free += max(0, min(room, budgets.available[entry]))
        if 0 <= room < budgets.available[entry]:
            costs[parts] = room + members + 1 - expected
            parts += 1
    shell_sort(costs[:parts])
    cheapest = 0.0
    for unit in range(open_entries):
        excess += cheapest
        if unit >= free:
            cheapest = costs[unit - free] if unit - free < parts else 1.0
    for entry in range(first, end):
        added = budgets.counts[entry] + 1 - n * rule.shares[entry]
        budgets.costs[entry] = excess + min(max(added, 0.0), 1.0)
    return excess + cheapest


@njit_inline
def _bound_hierarchical(rule: DiversityRule, budgets: BinBudgets, attribute: int, n: int) -> None:
    """Write the excess over the reference at all levels, divided by the levels, if a record of each bin joins."""
    first, end, levels = rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1], rule.levels[attribute]
    excess = 0.0
    for level in range(levels):
        node = -1
        for entry in range(first, end):  # the bins below one node follow one another
            if rule.paths[entry, level] != node:
                node = rule.paths[entry, level]
                excess += max(0.0, budgets.node_counts[node] - n * rule.node_shares[node])
    for entry in range(first, end):
        total = excess
        for level in range(levels):
            node = rule.paths[entry, level]
            total += min(max(budgets.node_counts[node] + 1 - n * rule.node_shares[node], 0.0), 1.0)
        budgets.costs[entry] = total / levels
