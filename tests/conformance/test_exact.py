"""The exact refinement and its bound against all partitions; pricing against all clusters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from oracle import partitions as plain
from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector
from shoal.errors import ParameterError
from shoal.tables import ClusterConstraints, RefinedPartition, exact, microaggregate, refined
from shoal.tables.descent import pair_squares
from shoal.tables.exact import ClusterPool
from shoal.tables.measures import loss_of
from support.constrained_tables import shapes
from support.input_size import sized

pytestmark = pytest.mark.conformance


MANY = 10**9
"""Sets that a search may look at."""


def small_budget(tried: int) -> float:
    """A budget of a few batches and many calls."""
    return tried / 40_000


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.tables.refinement.BATCH", 500)


RANDOM = np.random.default_rng(5)
TABLES = {
    **{name: table for name, table in shapes(9).items() if name not in {"all the same", "tiny"}},
    **{f"{n} records": RANDOM.random((n, 2)) for n in (3, 5, 6)},
    **{f"times {scale}": RANDOM.random((9, 2)) * scale for scale in (1e-9, 1e6, 1e120, 1e150)},
    **{f"equal values of {value}": np.full((9, 2), value) for value in (0.0, 1e-300, 3.0, 1e150)},
}


def reduced_costs(rows: Float64Matrix, prices: Float64Vector, k: int) -> dict[tuple[int, ...], float]:
    """The loss of every cluster of k to 2k - 1 records, less the prices of its records."""
    return {
        cluster: plain.loss(rows.tolist(), [list(cluster)]) - sum(prices[list(cluster)])
        for size in range(k, 2 * k)
        for cluster in combinations(range(len(rows)), size)
    }


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_optimum_is_found_and_no_partition_is_below_the_bound(name: str, k: int) -> None:
    values = TABLES[name]
    best = plain.best_of_all(values.tolist(), k)
    found = refined(values, k, "mdav", "exact", budget_used=small_budget)
    assert np.bincount(found.labels).min() >= k
    assert found.loss == pytest.approx(loss_of(values, found.labels))
    assert found.loss == pytest.approx(best, rel=1e-6, abs=1e-12 if values.max() > 1e-3 else 0.0)
    assert found.bound <= best * (1.0 + 1e-12)
    assert found.bound <= found.loss
    assert found.gap < 1e-6


@pytest.mark.parametrize("k", [2, 3, 4, 7])
@pytest.mark.parametrize("name", ["one attribute", "ties", "two distant groups"])
def test_one_attribute_has_its_loss_as_the_bound_for_every_k_and_without_the_solver(
    name: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    random = np.random.default_rng(6)
    tables = {
        "one attribute": random.random((12, 1)),
        "ties": random.integers(0, 4, (12, 1)).astype(np.float64),
        # Sums of squares of 1e9 leave no digit of the losses within the second group.
        "two distant groups": np.concatenate((np.full(4, -1e9), random.random(8) * 1e-3))[:, None],
    }
    found = refined(tables[name], k, "mdav", "exact")
    assert np.bincount(found.labels).min() >= k
    assert found.loss == pytest.approx(plain.best_of_all(tables[name].tolist(), k), rel=1e-9, abs=1e-15)
    assert found.bound == found.loss
    assert found.gap == 0.0


def test_a_search_for_better_clusters_that_finds_too_many_leaves_the_gap_open(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((40, 2))
    closed = refined(values, 3, "mdav", "exact", budget_used=small_budget)
    monkeypatch.setattr("shoal.tables.exact.MAX_BETTER", 2)
    left_open = refined(values, 3, "mdav", "exact", budget_used=small_budget)
    assert left_open.loss == pytest.approx(closed.loss)
    assert closed.gap < 1e-6
    assert left_open.gap > 1e-3


def test_a_solver_without_a_result_gives_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((40, 2))
    monkeypatch.setattr(ClusterPool, "choose", lambda _, start, __: (start, 0.0))
    found = refined(values, 3, "mdav", "exact", budget_used=small_budget)
    assert 1e-3 < found.gap < 0.2


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-160])
@pytest.mark.parametrize("refine", ["none", "descent", "anneal", "exact"])
def test_a_loss_below_the_smallest_float_is_not_zero_and_the_labels_are_those_of_larger_values(
    scale: float, refine: str
) -> None:
    values = np.random.default_rng(8).integers(0, 1 << 20, (30, 2)).astype(np.float64)
    small = np.column_stack((values * scale, np.full(30, 7.0)))
    found, expected = (
        refined(table, 3, "auto", refine, budget_used=lambda tried: tried / sized(40_000, 4_000))
        for table in (small, np.column_stack((values, np.full(30, 7.0))))
    )
    assert found.loss == pytest.approx(loss_of(values * scale * 1e100, expected.labels) * 1e-200, rel=1e-6, abs=5e-324)
    assert 0.0 <= found.bound <= found.loss
    assert found.loss > 0.0
    assert found.labels.tolist() == expected.labels.tolist()


@pytest.fixture
def choosing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Not empty once the solver chooses among clusters."""
    begun: list[bool] = []
    choose = ClusterPool.choose

    def recorded(self: ClusterPool, start: Int32Vector, is_over: Callable[[], bool]) -> tuple[Int32Vector, float]:
        begun.append(True)
        return choose(self, start, is_over)

    monkeypatch.setattr(ClusterPool, "choose", recorded)
    return begun


def test_a_solver_stopped_at_its_first_call_returns_the_start(choosing: list[bool]) -> None:
    values = np.random.default_rng(3).random((60, 6))
    found = refined(values, 3, "mdav", "exact", budget_used=lambda _: 1.0 if choosing else 0.5)
    assert choosing
    assert np.bincount(found.labels).min() >= 3
    assert 0.0 < found.bound <= found.loss <= loss_of(values, microaggregate(values, 3, "mdav", "descent"))


@pytest.mark.untraced
def test_an_exception_of_the_budget_reaches_the_caller_from_the_solver(choosing: list[bool]) -> None:
    def budget_used(_: int) -> float:
        if choosing:
            raise KeyError
        return 0.5

    with pytest.raises(KeyError):
        refined(np.random.default_rng(3).random((60, 6)), 3, "mdav", "exact", budget_used=budget_used)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_pricing_finds_the_least_reduced_cost_of_every_record(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 4, (10, 2)).astype(np.float64) if seed % 2 else random.standard_normal((10, 2))
    prices = random.normal(0.8, 0.5, 10)
    found = exact.empty_pricing_result(10, 50)
    assert exact.search_clusters(pair_squares(rows), prices, k, 0.0, -1e-9, 5, MANY, found)
    floors = np.zeros(10)
    for cluster, reduced in reduced_costs(rows, prices, k).items():
        floors[list(cluster)] = np.minimum(floors[list(cluster)], reduced / len(cluster))
    assert found.floors == pytest.approx(floors, abs=1e-9)
    assert (floors < -1e-9).any()
    for record in np.flatnonzero(floors < -1e-8):
        members = found.best[record][found.best[record] >= 0].tolist()
        reduced = plain.loss(rows.tolist(), [members]) - sum(prices[members])
        assert record in members
        assert reduced / len(members) == pytest.approx(floors[record], abs=1e-9)
    for kept in found.clusters[: found.state[exact.STORED]]:
        members = kept[kept >= 0].tolist()
        assert plain.loss(rows.tolist(), [members]) < sum(prices[members])


def test_a_budget_used_up_at_once_loses_no_more_than_descent_and_gives_a_bound() -> None:
    values = np.random.default_rng(3).random((40, 2))
    at_once = refined(values, 3, "mdav", "exact", budget_used=lambda _: 1.0)
    assert at_once.loss <= loss_of(values, microaggregate(values, 3, "mdav", "descent"))
    assert 0.0 <= at_once.bound <= at_once.loss


@pytest.mark.parametrize(
    ("shape", "k", "constraints", "message"),
    [
        ((6_001, 2), 4, {}, "k of at most 3 and at most 6,000 records; use 'anneal'"),
        ((6, 1), 3, {"subjects": np.arange(6)}, "no constraint on clusters besides k; use 'anneal'"),
    ],
)
def test_what_the_choice_cannot_handle_is_refused_with_the_alternative(
    shape: tuple[int, int], k: int, constraints: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        microaggregate(np.zeros(shape), k, refine="exact", constraints=ClusterConstraints(**constraints))


def test_without_the_solver_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ParameterError, match=r"HiGHS: pip install 'shoal\[exact\]'"):
        microaggregate(np.zeros((6, 2)), 3, refine="exact")


def test_other_refinements_have_no_bound() -> None:
    found = refined(np.random.default_rng(0).random((20, 2)), 3, "mdav", "descent")
    assert isinstance(found, RefinedPartition)
    assert found.bound == 0.0
    assert found.gap == 1.0
