"""A partition close to the optimum and a proven lower bound on the loss of any partition, by column generation.

Pricing finds all clusters of k to 2k - 1 records with a small reduced cost: the loss of a cluster minus the dual prices
of its members. Clusters are small (k of 2 or 3, so at most five records), and the search is exhaustive: bounds exclude
most sets unseen. The solver HiGHS then chooses clusters so that each record is in exactly one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Matrix, Int32Vector, Int64Vector
from shoal.errors import ParameterError
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.kd_tree import neighbours_of
from shoal.kernels.pieces import OPERATIONS, pieces
from shoal.tables.descent import pair_squares
from shoal.tables.hilbert import best_runs, label_runs
from shoal.tables.measures import loss_of

LARGEST = 5  # records of a cluster at most: 2k - 1 for k = 3
STORED, LEFT, BUDGET = 0, 1, 2  # entries of `PricingResult.state`
PRICED = 64  # records whose clusters one piece of a search looks at
MAX_SETS = 2_000_000_000
"""Sets that a search looks at before it gives up: with many equal records, bounds exclude nothing."""
MAX_SETS_BELOW = 1_000_000_000  # the same, of a search for all clusters below a reduced cost


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
def empty_pricing_result(n: int, capacity: int) -> PricingResult:
    """Return an empty result for n records, with room for ``capacity`` clusters besides the best of each record."""
    return PricingResult(
        np.zeros(n),
        np.full((n, LARGEST), -1, np.int32),
        np.full((capacity, LARGEST), -1, np.int32),
        np.zeros(3, np.int64),
    )


def search_clusters(
    squares: Float64Matrix,
    prices: Float64Vector,
    k: int,
    limit: float,
    stored_below: float,
    quota: int,
    max_sets: int,
    result: PricingResult,
) -> bool:
    """Visit all clusters of k to 2k - 1 records with a reduced cost below ``limit``, 0 or more; k is 2 or 3.

    Those below ``stored_below``, at most ``limit``, are stored, ``quota`` at most per record that has the highest price
    in them. False: there were more than ``max_sets`` to look at, or too many to store, and the floors are not exact.
    """
    result.state[BUDGET] = max_sets
    result.floors[:] = 0.0
    result.best[:] = -1
    result.state[STORED] = 0
    order = np.argsort(-prices, kind="mergesort")
    for first, end in pieces("pricing", len(order), OPERATIONS / PRICED):
        _search_some(squares, prices, order, first, end, k, limit, stored_below, quota, result)
    return bool(result.state[BUDGET] >= 0)


@njit
def _search_some(
    squares: Float64Matrix,
    prices: Float64Vector,
    order: Int64Vector,
    first: int,
    end: int,
    k: int,
    limit: float,
    stored_below: float,
    quota: int,
    result: PricingResult,
) -> None:
    """Visit the clusters in which some records of ``order`` have the highest price."""
    for x in range(first, end):
        if k * prices[order[x]] + limit <= 0.0 or result.state[BUDGET] < 0:  # no loss is below zero
            break
        result.state[LEFT] = quota
        _enumerate(squares, _candidates_of(squares, prices, order, x, k, limit), k, limit, stored_below, result)


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
    """Update the floors of the members, and store a cluster of a low reduced cost; without room, the search ends."""
    for x in range(size):
        if reduced / size < result.floors[group[x]]:
            result.floors[group[x]] = reduced / size
            if reduced < stored_below:
                _write_members(result.best, group[x], group, size)
    stored = result.state[STORED]
    if reduced < stored_below and result.state[LEFT] > 0:
        if stored == result.clusters.shape[0]:
            result.state[BUDGET] = -1
            return
        _write_members(result.clusters, stored, group, size)
        result.state[STORED] += 1
        result.state[LEFT] -= 1


@njit_inline
def _write_members(clusters: Int32Matrix, row: int, group: Int64Vector, size: int) -> None:
    """Write a cluster into one row, padded with -1."""
    for y in range(LARGEST):
        clusters[row, y] = group[y] if y < size else -1


MAX_K = 3
MAX_RECORDS = 6_000  # all squared distances are kept: 288 MB for 6,000 records
LEAF_SIZE = 64
NEIGHBOURS = 6  # nearest records that form the first clusters of the pool with each record
QUOTA = 6  # clusters that one pricing round stores per record, besides the best
MIN_REDUCTION = 1e-7  # relative to the mean loss of a record: reduced cost below which a cluster is worth adding
MIN_GAP = 1e-6  # relative gap between relaxation and bound that ends column generation
ROUNDS = 200
ROUNDING = 1e-9  # relative: subtracted from the bound for the rounding of its sums
SOLVER_ROUNDING = 1e-7
"""Relative: subtracted from a bound of the solver, which accepts reduced costs of -1e-7 per cluster as not negative."""
RELATIVE_GAP = 1e-7  # relative gap at which a choice of the solver counts as the optimum of the pool
HALF = 0.5
MAX_BETTER = 100_000
"""Clusters that a partition better than the best one can have: with more of them, the gap is left open."""
MAX_LINE_STEPS = 10_000_000_000  # records times k with one attribute: about half a minute


def choose_clusters(
    values: Float64Matrix, starts: list[Int32Vector], k: int, is_over: Callable[[], bool]
) -> tuple[Int32Vector, float]:
    """Choose the best partition from many thousand promising clusters, and bound the loss of any; k is 2 or 3.

    ``starts`` are partitions, the best first; their clusters are in the pool, unless they exceed 2k - 1 records. Once
    ``is_over`` returns true, the best partition so far is returned; a round of pricing and a step of the solver,
    seconds for thousands of records, are not interrupted.

    Guarantee: pricing looks at every cluster that could have a negative reduced cost, so the sum of prices and floors
    is a lower bound on the loss of all partitions into clusters of k or more (Lagrange), whatever the solver computed.
    Clusters above 2k - 1 can be split without loss. With floors added to the prices, no reduced cost is negative, and
    those of a partition add up to the distance of its loss from the bound. So a better partition has no cluster with a
    reduced cost above the gap. If at most `MAX_BETTER` are below it, the solver chooses among them, its bound holds for
    all partitions within its tolerances, and the partition is optimal.
    The same input gives the same result, unless ``is_over`` reads a clock: the solver runs on one thread.
    Cost: n² distances; seconds to a minute for a thousand records, most of it for the choices.

    References
    ----------
    .. [1] D. Aloise, P. Hansen, C. Rocha and É. Santi, "Column generation bounds for numerical microaggregation",
       Journal of Global Optimization 60, 2014. doi:10.1007/s10898-014-0149-3
    """
    n = len(values)
    in_order = np.minimum(np.arange(n) // k, n // k - 1).astype(np.int32)
    usable = [labels for labels in starts if np.bincount(labels).max() <= 2 * k - 1] or [in_order]
    best = usable[0]
    with np.errstate(over="ignore"):
        unit = loss_of(values, best) / n
    if not 0.0 < unit < np.inf:
        return best, 0.0  # no loss at all, or an overflow
    squares = pair_squares(values / np.sqrt(unit))  # the solver's tolerances are absolute
    pool = ClusterPool(squares)
    pool.add(_clusters_of_neighbours(values, k))
    for labels in usable:
        pool.add(_members_of(labels))
    prices, bound = _generate_columns(pool, squares, k, is_over)
    if not is_over():
        best, _ = pool.choose(best, is_over)
        complete = None if is_over() else _pool_of_better_clusters(squares, best, k, prices, bound)
        if complete is not None:
            best, solved = complete.choose(best, is_over)
            bound = max(bound, min(solved, pool.loss_of(best)))
    return best, bound * unit


def optimal_of_line(values: Float64Matrix, k: int) -> Int32Vector:
    """Return the optimal partition (n,) of one attribute (n, 1); unlike `hilbert.optimal`, no large sums. O(n k)."""
    order = np.argsort(values[:, 0], kind="stable")
    return label_runs(best_runs(values[order], k), order)


def check_exact(n: int, d: int, k: int, *, is_unconstrained: bool) -> None:
    """Raise ParameterError unless `refine="exact"` can handle n records, d attributes, k and the constraints."""
    faults = []
    if d > 1 and k > MAX_K:
        faults.append(f"k of at most {MAX_K}")
    if d > 1 and n > MAX_RECORDS:
        faults.append(f"at most {MAX_RECORDS:,} records")
    if d == 1 and n * k > MAX_LINE_STEPS:
        faults.append(f"records times k of at most {MAX_LINE_STEPS:,}")
    if not is_unconstrained:
        faults.append("no constraint on clusters besides k")
    if faults:
        raise ParameterError(f"refine 'exact' needs {' and '.join(faults)}; use 'anneal'")
    if d > 1:
        try:
            import highspy  # noqa: F401, PLC0415 - an optional dependency
        except ImportError:
            raise ParameterError("refine 'exact' needs the solver HiGHS: pip install 'shoal[exact]'") from None


class ClusterPool:
    """The clusters to choose from, each once, in the solver; on one thread, so equal calls have equal results."""

    def __init__(self, squares: Float64Matrix) -> None:
        import highspy  # noqa: PLC0415 - as in check_exact

        self._squares = squares
        self._numbers: dict[bytes, int] = {}
        self._members: list[Int32Matrix] = []
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", RELATIVE_GAP)):
            self._solver.setOptionValue(option, value)
        n = len(squares)
        self._solver.addRows(n, np.ones(n), np.ones(n), 0, np.zeros(n, np.int32), np.empty(0, np.int32), np.empty(0))

    def add(self, clusters: Int32Matrix) -> int:
        """Add clusters (m, 5), padded with -1; return how many are new."""
        ordered = np.ascontiguousarray(np.unique(-np.sort(-clusters, axis=1), axis=0), np.int32)
        new = ordered[np.array([row.tobytes() not in self._numbers for row in ordered], bool)]
        if len(new):
            for row in new:
                self._numbers[row.tobytes()] = len(self._numbers)
            self._members.append(new)
            present = new >= 0
            sizes, members = present.sum(axis=1), new[present]
            starts, upper = (np.cumsum(sizes) - sizes).astype(np.int32), np.full(len(new), np.inf)
            lower, ones = np.zeros(len(new)), np.ones(len(members))
            self._solver.addCols(len(new), self._costs(new), lower, upper, len(members), starts, members, ones)
        return len(new)

    def loss_of(self, labels: Int32Vector) -> float:
        """Return the loss of a partition, in the unit of ``squares``."""
        return float(self._costs(_members_of(labels)).sum())

    def relax(self) -> tuple[float, Float64Vector]:
        """Return the least loss where clusters may be chosen in part, and the dual price of each record (n,)."""
        self._solver.run()
        return self._solver.getInfo().objective_function_value, np.array(self._solver.getSolution().row_dual)

    def choose(self, start: Int32Vector, is_over: Callable[[], bool]) -> tuple[Int32Vector, float]:
        """Return the best partition of the pool, and a lower bound on the loss of any; 0 if the solver found none.

        Once ``is_over`` returns true between two steps of the solver, the best choice so far is returned, or the start.
        """
        import highspy  # noqa: PLC0415 - as in check_exact

        first = highspy.HighsSolution()
        first.col_value = self._chosen_by(start).astype(float).tolist()
        columns = np.arange(len(self._numbers), dtype=np.int32)
        integer = np.full(len(columns), highspy.HighsVarType.kInteger.value, np.uint8)
        self._solver.changeColsIntegrality(len(columns), columns, integer)
        self._solver.setSolution(first)

        def interrupt_if_over(event: highspy.HighsCallbackEvent) -> None:
            if is_over():
                event.interrupt()

        self._solver.cbMipInterrupt.subscribe(interrupt_if_over)
        self._solver.run()
        self._solver.cbMipInterrupt.unsubscribe(interrupt_if_over)
        labels = self._labels_of(np.array(self._solver.getSolution().col_value) > HALF)
        statuses, bound = highspy.HighsModelStatus, self._solver.getInfo().mip_dual_bound
        is_valid = self._solver.getModelStatus() in {statuses.kOptimal, statuses.kInterrupt} and 0.0 < bound < np.inf
        proven = bound * (1.0 - SOLVER_ROUNDING) if is_valid else 0.0
        return (start if labels is None else labels), proven

    def _chosen_by(self, labels: Int32Vector) -> BoolVector:
        """Return which clusters of the pool are those of a partition, after adding those that are missing."""
        clusters = _members_of(labels)
        self.add(clusters)
        ordered = np.ascontiguousarray(-np.sort(-clusters, axis=1), np.int32)
        chosen = np.zeros(len(self._numbers), np.bool_)
        chosen[[self._numbers[row.tobytes()] for row in ordered]] = True
        return chosen

    def _labels_of(self, chosen: BoolVector) -> Int32Vector | None:
        """Return the partition into these clusters; None if they are none, because the solver was stopped too early."""
        labels = np.full(len(self._squares), -1, np.int32)
        clusters = np.concatenate(self._members)[chosen]
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


def _pool_of_better_clusters(
    squares: Float64Matrix, best: Int32Vector, k: int, prices: Float64Vector, bound: float
) -> ClusterPool | None:
    """Return all clusters that a better partition than ``best`` can have; None if they are too many."""
    pool = ClusterPool(squares)
    loss = pool.loss_of(best)
    limit, found = loss - bound + ROUNDING * loss, empty_pricing_result(len(squares), MAX_BETTER)
    if not search_clusters(squares, prices, k, limit, limit, MAX_BETTER + 1, MAX_SETS_BELOW, found):
        return None
    pool.add(found.clusters[: found.state[STORED]])
    return pool


def _generate_columns(
    pool: ClusterPool, squares: Float64Matrix, k: int, is_over: Callable[[], bool]
) -> tuple[Float64Vector, float]:
    """Add clusters of negative reduced cost until there are none; return prices (n,) and their sum, the lower bound."""
    n = len(squares)
    result = empty_pricing_result(n, QUOTA * n)
    bound, stable, feasible = 0.0, None, np.zeros(n)
    for _ in range(ROUNDS):
        loss, relaxed = pool.relax()
        prices = relaxed if stable is None else 0.5 * (stable + relaxed)  # smoothed: prices oscillate
        is_smoothed = stable is not None
        is_exact = search_clusters(squares, prices, k, 0.0, -MIN_REDUCTION * loss / n, QUOTA, MAX_SETS, result)
        lower = float(prices.sum() + result.floors.sum())
        if is_exact and lower > bound:
            bound, stable, feasible = lower, prices, prices + result.floors
        if loss - bound <= MIN_GAP * loss or is_over():
            break
        candidates = np.concatenate((result.best, result.clusters[: result.state[STORED]]))
        if not pool.add(candidates[candidates[:, 0] >= 0]):
            if not is_smoothed:
                break  # nothing has a negative reduced cost: the relaxation is optimal
            stable = None
    return feasible, bound * (1.0 - ROUNDING)


def _clusters_of_neighbours(values: Float64Matrix, k: int) -> Int32Matrix:
    """Return clusters of each record with any k - 1 and any k of its nearest, padded with -1."""
    n = len(values)
    near = neighbours_of(values, min(NEIGHBOURS, n - 1), LEAF_SIZE)
    own = np.arange(n, dtype=np.int32)[:, None]
    made = []
    for others in (k - 1, k):
        for chosen in combinations(range(near.shape[1]), others):
            padding = np.full((n, LARGEST - 1 - others), -1, np.int32)
            made.append(np.concatenate((own, near[:, chosen], padding), axis=1))
    return np.concatenate(made)


def _members_of(labels: Int32Vector) -> Int32Matrix:
    """Return the members of each cluster, shape (clusters, 5), padded with -1."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    positions = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    clusters = np.full((len(sizes), LARGEST), -1, np.int32)
    clusters[labels[order], positions] = order
    return clusters
