"""The exact refinement and its bound against all partitions; pricing against all clusters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import combinations, count

import numpy as np
import pytest
from oracle import partitions as plain
from shoal.arrays import Float64Matrix, Int64Vector
from shoal.clustering.static import ClusterConstraints, RefinedPartition, microaggregate, pricing, refined
from shoal.clustering.static.centroids import loss_of
from shoal.clustering.static.solver import Choice, SetPartitioning
from shoal.errors import ParameterError

pytestmark = pytest.mark.conformance


def small_budget(tried: int) -> float:
    """A budget of a few batches and many calls."""
    return tried / 40_000


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.clustering.static.refinement.BATCH", 500)


def tables() -> dict[str, Float64Matrix]:
    random = np.random.default_rng(5)
    return {
        "uniform": random.random((9, 2)),
        "one attribute": random.random((9, 1)),
        "lattice": random.integers(0, 3, (9, 2)).astype(np.float64),
        "duplicates": np.repeat(random.random((4, 2)), [3, 2, 3, 1], axis=0),
        "all the same": np.ones((9, 2)),
        "heavy tails": np.exp(3.0 * random.standard_normal((9, 3))),
        "far from the origin": 1e9 + random.random((9, 2)),
    }


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", sorted(tables()))
def test_the_optimum_is_found_and_no_partition_is_below_the_bound(name: str, k: int) -> None:
    values = tables()[name]
    best = plain.best_of_all(values.tolist(), k)
    found = refined(values, k, "mdav", "exact", budget_used=small_budget)
    assert np.bincount(found.labels).min() >= k
    assert found.loss == pytest.approx(loss_of(values, found.labels))
    assert found.loss == pytest.approx(best, rel=1e-6, abs=1e-12)
    assert found.bound <= best * (1.0 + 1e-12)
    assert found.bound <= found.loss
    assert found.gap < 0.5


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6, 1e120])
def test_the_scale_of_the_coordinates_does_not_matter(scale: float) -> None:
    values = np.random.default_rng(8).random((9, 2))
    found = refined(values * scale, 3, "mdav", "exact", budget_used=small_budget)
    assert found.loss == pytest.approx(plain.best_of_all(values.tolist(), 3) * scale**2)
    assert 0.9 * found.loss <= found.bound <= found.loss


def test_a_solver_stopped_at_its_first_call_returns_the_start() -> None:
    values = np.random.default_rng(3).random((60, 6))
    choosing: list[bool] = []
    choose = SetPartitioning.choose

    def recorded(self: SetPartitioning, start: Int64Vector, is_over: Callable[[], bool]) -> Choice:
        choosing.append(True)
        return choose(self, start, is_over)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SetPartitioning, "choose", recorded)
        found = refined(values, 3, "mdav", "exact", budget_used=lambda _: 1.0 if choosing else 0.5)
    assert choosing
    assert np.bincount(found.labels).min() >= 3
    assert 0.0 < found.bound <= found.loss <= loss_of(values, microaggregate(values, 3, "mdav", "descent"))


@pytest.mark.parametrize("n", [3, 5, 6])
def test_few_records(n: int) -> None:
    values = np.random.default_rng(n).random((n, 2))
    assert refined(values, 3, "mdav", "exact", budget_used=small_budget).gap < 0.5
    assert refined(values, 3, "mdav", "exact", budget_used=small_budget).loss == pytest.approx(
        plain.best_of_all(values.tolist(), 3)
    )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_pricing_finds_the_least_reduced_cost_of_every_record(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 4, (10, 2)).astype(np.float64) if seed % 2 else random.standard_normal((10, 2))
    prices = random.normal(0.8, 0.5, 10)
    found = pricing.empty_pricing_result(10, 50)
    assert pricing.price_clusters(pricing.squared_distances(rows), prices, k, 1e-9, 5, found)
    floors = np.zeros(10)
    for size in range(k, 2 * k):
        for cluster in combinations(range(10), size):
            reduced = plain.loss(rows.tolist(), [list(cluster)]) - sum(prices[list(cluster)])
            floors[list(cluster)] = np.minimum(floors[list(cluster)], reduced / size)
    assert found.floors == pytest.approx(floors, abs=1e-9)
    assert (floors < -1e-9).any()
    for record in np.flatnonzero(floors < -1e-8):
        members = found.best[record][found.best[record] >= 0].tolist()
        reduced = plain.loss(rows.tolist(), [members]) - sum(prices[members])
        assert record in members
        assert reduced / len(members) == pytest.approx(floors[record], abs=1e-9)
    for kept in found.clusters[: found.state[pricing.STORED]]:
        members = kept[kept >= 0].tolist()
        assert plain.loss(rows.tolist(), [members]) < sum(prices[members])


def test_a_search_beyond_its_limit_returns_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "MAX_SETS", 3)
    search = getattr(
        pricing.price_clusters, "py_func", pricing.price_clusters
    )  # a compiled function keeps the constants of its compilation
    found = pricing.empty_pricing_result(10, 50)
    assert not search(np.zeros((10, 10)), np.ones(10), 3, 1e-9, 5, found)


def test_the_same_budget_gives_the_same_labels() -> None:
    values = np.random.default_rng(3).random((40, 2))
    one, other = (refined(values, 3, "mdav", "exact", seed=4, budget_used=small_budget) for _ in range(2))
    assert one.labels.tolist() == other.labels.tolist()
    assert one.bound == other.bound


def test_a_budget_used_up_at_once_loses_no_more_than_descent_and_gives_a_bound() -> None:
    values = np.random.default_rng(3).random((40, 2))
    at_once = refined(values, 3, "mdav", "exact", budget_used=lambda _: 1.0)
    assert at_once.loss <= loss_of(values, microaggregate(values, 3, "mdav", "descent"))
    assert 0.0 <= at_once.bound <= at_once.loss


def test_an_exception_of_the_budget_reaches_the_caller() -> None:
    class StopHereError(Exception):
        pass

    values = np.random.default_rng(3).random((60, 6))
    calls = count()
    refined(
        values, 3, "mdav", "exact", budget_used=lambda _: 0.5 + 0.0 * next(calls)
    )  # annealing is over, the choice never is
    last = next(calls) - 1  # the last call came from the solver

    def budget_used(_: int) -> float:
        if next(again) == last:
            raise StopHereError
        return 0.5

    again = count()
    with pytest.raises(StopHereError):
        refined(values, 3, "mdav", "exact", budget_used=budget_used)


def test_large_k_and_many_records_are_refused_with_the_alternative() -> None:
    with pytest.raises(ParameterError, match="k of at most 3 and at most 6,000 records; use 'anneal'"):
        microaggregate(np.zeros((6_001, 2)), 4, refine="exact")


def test_constraints_are_refused() -> None:
    with pytest.raises(ParameterError, match="no constraint on clusters besides k; use 'anneal'"):
        microaggregate(np.zeros((6, 1)), 3, refine="exact", constraints=ClusterConstraints(subjects=np.arange(6)))


def test_without_the_solver_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ParameterError, match=r"HiGHS: pip install 'shoal\[exact\]'"):
        microaggregate(np.zeros((6, 2)), 3, refine="exact")


def test_other_refinements_have_no_bound() -> None:
    found = refined(np.random.default_rng(0).random((20, 2)), 3, "mdav", "descent")
    assert isinstance(found, RefinedPartition)
    assert found.bound == 0.0
    assert found.gap == 1.0
