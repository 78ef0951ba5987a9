"""Refinement of partitions: descent, annealing, or a nearly optimal choice; clusters keep k to 2k - 1 records."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from shoal.arrays import Float64Matrix, Int32Matrix, Int32Vector, Int64Vector
from shoal.kernels.kd_tree import neighbours_of
from shoal.kernels.pieces import tell
from shoal.tables.constraints import ClusterConstraints, no_constraints
from shoal.tables.descent import (
    DENSE_UP_TO,
    NO_SUBJECTS,
    ROUNDS,
    PartitionState,
    anneal,
    build_partition_state,
    descend,
    descend_dense,
    pair_squares,
    recompute_centroids,
)
from shoal.tables.exact import choose_clusters, optimal_of_line
from shoal.tables.hilbert import order_along_curve
from shoal.tables.mdav import SCAN_UP_TO, mdav
from shoal.tables.measures import loss_of

REFINEMENTS = ("none", "descent", "anneal", "exact")

BudgetUsed: TypeAlias = Callable[[int], float]
"""Given the number of changes tried so far, the share of the budget that is used; 1 ends the refinement."""

LEAF_SIZE = 64
NEIGHBOURS, NEIGHBOURS_OF_MANY = 20, 15
"""Neighbours of a record: at least the first and 3k; with more than `MANY` records the second."""
MANY = 20_000
MAX_CLUSTER, MAX_T_CLOSE_CLUSTER = 1_000, 100
"""Records of the largest cluster that is refined. With t-closeness or l-diversity it is the second, as every change
looks at all values of two clusters; with buckets it is the first."""
BATCH, T_CLOSE_BATCH = 100_000, 5_000
"""Changes that annealing tries at one temperature. With t-closeness it is the second, or n if that is more."""
START_TEMPERATURE, END_TEMPERATURE = 2.0, 0.05  # in the unit of `descent.anneal`
CHANGES_PER_RECORD, MAX_CHANGES = 10_000, 200_000_000
"""The default budget: changes per record, and in all at most, which take minutes."""
ANNEALING_RUNS, ANNEALING_SHARE = 8, 0.25
"""Before the exact choice: annealing runs from the same start, and the share of the budget that they use together."""
CHANGES_PER_CALL = 50  # changes per record that one question of pricing or the solver counts for
NO_CONSTRAINTS = ClusterConstraints()


class RefinedPartition(NamedTuple):
    """A partition of n records, its loss, and a lower bound on the loss of any partition."""

    labels: Int32Vector  # (n,): cluster of each record
    loss: float
    bound: float = 0.0
    """No partition into clusters of k or more loses less; proven by ``exact`` only, 0 otherwise. A gap of a millionth
    or less means that the partition is optimal."""

    @property
    def gap(self) -> float:
        """Largest share of the loss by which it can be above the optimum, from 0 to 1."""
        return (self.loss - self.bound) / self.loss if self.loss > 0.0 else 0.0


def default_budget(n: int) -> BudgetUsed:
    """Return the default budget for n records: 10,000 changes per record, at most 200 million.

    It reads no clock, so results do not depend on the machine.
    """
    return lambda tried: tried / min(CHANGES_PER_RECORD * n, MAX_CHANGES)


def refine(
    values: Float64Matrix,
    starts: list[Int32Vector],
    k: int,
    how: str,
    seed: int = 0,
    budget_used: BudgetUsed | None = None,
    constraints: ClusterConstraints = NO_CONSTRAINTS,
) -> RefinedPartition:
    """Refine several partitions by one of `REFINEMENTS` and return the best result.

    Guarantee: its loss is not above the least loss of the starts, which satisfy the constraints, and no change is made
    that violates one. Clusters have k to 2k - 1 records, except those that were larger in the start.

    Descent tries, for up to 256 records without constraints, all clusters and no cyclic exchanges, else the clusters of
    the nearest neighbours. Annealing starts from the best partition after descent, tries the same changes at random,
    and accepts a rise of the loss with a probability that falls with the temperature (Metropolis, geometric cooling
    [1]_). Descent follows. ``exact`` anneals several times, then chooses among all clusters seen and many more
    (`choose_clusters`); without the solver it raises ParameterError. One attribute needs neither (`optimal_of_line`).
    Cost: descent is dominated by the nearest neighbours, O(n log n) for few attributes and O(n² d) for many.

    References
    ----------
    .. [1] S. Kirkpatrick, C. D. Gelatt and M. P. Vecchi, "Optimization by Simulated Annealing", Science 220, 1983.
       doi:10.1126/science.220.4598.671
    """
    if how == "exact" and values.shape[1] == 1:
        labels = optimal_of_line(values, k)
        return RefinedPartition(labels, least := loss_of(values, labels), least)
    if how == "descent" and constraints.are_none and len(values) <= DENSE_UP_TO:
        starts, how = [descended(values, start, k) for start in starts], "none"
    scored = [RefinedPartition(labels, loss_of(values, labels)) for labels in starts]
    if how == "none" or len(values) < 2 * k:
        best = min(scored, key=_by_loss)
        return best._replace(bound=best.loss) if how == "exact" else best  # one cluster is the only partition
    searches = _search_states(values, [start.labels for start in scored], k, constraints)
    for search in searches:
        descend(search.partition, ROUNDS)
    refined = [_result(search, values) for search in searches]
    scored += refined
    budget = _Budget(budget_used or default_budget(len(values)), len(values), constraints)
    if how == "anneal" and searches:
        best_search = searches[min(range(len(searches)), key=lambda number: refined[number].loss)]
        _anneal(best_search, budget, np.random.default_rng(seed), 0.0, 1.0)
        scored.append(_result(best_search, values))
    if how == "exact":
        return _choose(values, searches[0], scored, k, seed, budget)
    return min(scored, key=_by_loss)


def descended(values: Float64Matrix, start: Int32Vector, k: int) -> Int32Vector:
    """Return the labels (n,) of one partition after descent without constraints, as `refine` does it."""
    if len(values) < 2 * k:
        return start
    if len(values) <= DENSE_UP_TO:
        return _renumbered(descend_dense(pair_squares(values), start, k, ROUNDS, NO_SUBJECTS, 1.0))
    return refine(values, [start], k, "descent").labels


def precompile_refinement(most: int) -> None:
    """Compile what MDAV and `descended` need for up to ``most`` records, so that no record waits for it."""
    rows = (np.arange(2.0 * (SCAN_UP_TO + 1)) * 0.618034 % 1.0).reshape(-1, 2)
    if most > DENSE_UP_TO:
        for few in (rows[:SCAN_UP_TO], rows):
            descended(few, mdav(few, 2), 2)
    if most > MANY:
        order_along_curve(rows)


class _Budget:
    """The budget of one refinement of n records, and the changes counted so far."""

    def __init__(self, budget_used: BudgetUsed, n: int, constraints: ClusterConstraints) -> None:
        self._budget_used, self._n, self.tried = budget_used, n, 0
        self.batch = BATCH if constraints.t is None else min(BATCH, max(T_CLOSE_BATCH, n))

    def used(self) -> float:
        share = self._budget_used(self.tried)
        tell("budget", min(1.0, share))
        return share

    def is_over(self) -> bool:
        """Return whether the budget is used up; the call itself counts as some changes."""
        self.tried += CHANGES_PER_CALL * self._n
        return self.used() >= 1.0


class _SearchState(NamedTuple):
    """A partition that is being refined."""

    start: Int32Vector  # (n,): the partition at the start
    order: Int64Vector  # (m,): records that take part, in their order in the state
    partition: PartitionState


def _search_states(
    values: Float64Matrix, starts: list[Int32Vector], k: int, constraints: ClusterConstraints
) -> list[_SearchState]:
    """Return the states of the partitions; records of clusters too large to look at each member take no part."""
    all_records = order_along_curve(values) if len(values) > MANY else np.arange(len(values))
    centred = values - values.mean(axis=0)

    def rows_and_neighbours(order: Int64Vector) -> tuple[Float64Matrix, Int32Matrix]:
        rows = np.ascontiguousarray(centred[order])  # along the curve, neighbours in space are neighbours in memory
        count = NEIGHBOURS_OF_MANY if len(rows) > MANY else max(NEIGHBOURS, 3 * k)
        return rows, neighbours_of(rows, min(count, len(rows) - 1), LEAF_SIZE)

    looks_at_values = (constraints.t is not None or constraints.limit_values) and constraints.buckets is None
    largest = max(2 * k - 1, MAX_T_CLOSE_CLUSTER if looks_at_values else MAX_CLUSTER)
    searches, of_all_records = [], cache(lambda: rows_and_neighbours(all_records))
    for start in starts:
        takes_part = np.bincount(start) <= largest
        order = all_records if takes_part.all() else all_records[takes_part[start[all_records]]]
        if len(order) >= 2 * k:
            rows, neighbours = of_all_records() if takes_part.all() else rows_and_neighbours(order)
            partition = build_partition_state(rows, start[order], k, constraints.arrays(order), neighbours)
            searches.append(_SearchState(start, order, partition))
    return searches


def _anneal(search: _SearchState, budget: _Budget, random: np.random.Generator, begin: float, end: float) -> None:
    """Anneal in batches while the used share of the budget goes from ``begin`` to ``end``; then descend."""
    while (share := (budget.used() - begin) / (end - begin)) < 1.0:
        temperature = START_TEMPERATURE * (END_TEMPERATURE / START_TEMPERATURE) ** share
        anneal(search.partition, budget.batch, temperature, random)
        budget.tried += budget.batch
    recompute_centroids(search.partition)
    descend(search.partition, ROUNDS)


def _choose(
    values: Float64Matrix, search: _SearchState, scored: list[RefinedPartition], k: int, seed: int, budget: _Budget
) -> RefinedPartition:
    """Anneal the best partition several times, choose among the clusters of all runs and more, and prove a bound."""
    start, rows, neighbours = min(scored, key=_by_loss).labels, search.partition.rows, search.partition.neighbours
    budget.batch = min(budget.batch, CHANGES_PER_RECORD // 2 * len(values))  # few records: leave budget for the choice
    for run in range(ANNEALING_RUNS):
        partition = build_partition_state(rows, start[search.order], k, no_constraints(), neighbours)
        annealed = search._replace(start=start, partition=partition)
        shares = ANNEALING_SHARE * run / ANNEALING_RUNS, ANNEALING_SHARE * (run + 1) / ANNEALING_RUNS
        _anneal(annealed, budget, np.random.default_rng([seed, run]), *shares)
        scored.append(_result(annealed, values))
    scored.sort(key=_by_loss)
    labels, bound = choose_clusters(rows, [found.labels for found in scored], k, budget.is_over)
    scored.append(RefinedPartition(labels, loss_of(values, labels)))
    best = min(scored, key=_by_loss)
    return best._replace(bound=min(bound, best.loss))


def _result(search: _SearchState, values: Float64Matrix) -> RefinedPartition:
    """Return the partition in the order of the table; records that take no part keep their clusters."""
    labels = search.start.astype(np.int64) + search.partition.sizes.size
    labels[search.order] = search.partition.labels
    renumbered = _renumbered(labels)
    return RefinedPartition(renumbered, loss_of(values, renumbered))


def _renumbered(labels: Int32Vector | Int64Vector) -> Int32Vector:
    """Number clusters from 0 without gaps, in the same order."""
    used = np.zeros(int(labels.max()) + 1, np.int32)
    used[labels] = 1
    return (used.cumsum(dtype=np.int32) - 1)[labels].astype(np.int32)


def _by_loss(refined: RefinedPartition) -> float:
    return refined.loss
