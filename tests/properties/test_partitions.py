"""What holds for every partition of a table, whatever the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracle import partitions as plain
from shoal.arrays import Float64Matrix
from shoal.tables import microaggregate, refined
from shoal.tables.hilbert import best_runs, best_runs_of_line, label_runs
from shoal.tables.mdav import mdav_by_scan, mdav_by_tree
from shoal.tables.measures import loss_of
from support.by_night import by_day

LATTICE = st.integers(-3, 3).map(float)
"""Few values, so that ties are frequent."""
ANY = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def tables(draw: st.DrawFn, attributes: int = 3, most: int = 60) -> tuple[Float64Matrix, int]:
    n, d = draw(st.integers(2, most)), draw(st.integers(1, attributes))
    table = draw(arrays(np.float64, (n, d), elements=draw(st.sampled_from([LATTICE, ANY]))))
    return table, draw(st.integers(2, min(n, 12)))


@given(tables(), st.integers(1, 8))
def test_mdav_by_tree_equals_mdav_by_scan(case: tuple[Float64Matrix, int], width: int) -> None:
    table, k = case
    assert mdav_by_tree(table, k, width).tolist() == mdav_by_scan(table, k).tolist()


@given(tables(attributes=1))
def test_the_fast_partition_of_a_line_equals_the_plain_one(case: tuple[Float64Matrix, int]) -> None:
    table, k = case
    line = np.sort(table[:, 0])
    order = np.arange(len(line))
    fast = label_runs(best_runs_of_line(line, k), order)
    plain = label_runs(best_runs(line[:, None].copy(), k), order)
    losses = loss_of(line[:, None], fast), loss_of(line[:, None], plain)
    assert abs(losses[0] - losses[1]) <= 1e-9 * max(losses) + 1e-6


@given(tables(), st.sampled_from([0.25, 2.0, 1024.0]))
def test_scaling_by_a_power_of_two_changes_no_label(case: tuple[Float64Matrix, int], factor: float) -> None:
    table, k = case
    assert microaggregate(table * factor, k).tolist() == microaggregate(table, k).tolist()


@settings(max_examples=by_day(10, 20))
@given(tables(most=12), st.integers(2, 3))
def test_exact_equals_the_best_of_all_partitions_and_its_bound_is_not_above(
    case: tuple[Float64Matrix, int], k: int
) -> None:
    table, _ = case
    k = min(k, len(table))
    best = plain.best_of_all(table.tolist(), k)
    found = refined(table, k, "mdav", "exact")
    assert found.loss == pytest.approx(best, rel=1e-6, abs=1e-9)
    assert found.bound <= min(found.loss, best * (1.0 + 1e-9) + 1e-9)
    # A loss below the smallest float is given as that float, and its bound as 0: the gap is then 1.
    assert found.gap < 1e-6 or (found.loss < 1e-300 and found.bound == 0.0)


@settings(max_examples=by_day(10, 30))
@given(tables(most=30), st.floats(0.0, 1.0), st.sampled_from(["mdav", "auto"]))
def test_no_partition_loses_less_than_the_bound_wherever_the_budget_ends(
    case: tuple[Float64Matrix, int], used: float, algorithm: str
) -> None:
    table, _ = case
    k = min(3, len(table))
    other = refined(table, k, algorithm, "descent").loss
    found = refined(table, k, "hilbert", "exact", budget_used=lambda tried: used + tried / 100_000)
    assert 0.0 <= found.bound <= found.loss
    assert found.bound <= other * (1.0 + 1e-9) + 1e-9
