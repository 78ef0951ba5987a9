"""The loss of each attribute: a clock is measured against what is left after its trend; categories are counted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from shoal.formats import JsonEncoder
from shoal.policy import Attribute, Scale, TimeStep
from shoal.scales.loss import LossTotals, WindowSums, mean_loss
from shoal.streams import PartitionPipeline
from support.scales import attribute, block_of, policy_with

pytestmark = pytest.mark.unit

AT, AGE, SHOP = attribute("at", Scale.TIME), attribute("age", Scale.NUMERIC), attribute("shop", Scale.NOMINAL)
OFFSETS = np.arange(9)
TICKS = np.array([0.0, 10.0, 20.0, 1000.0, 1010.0, 1020.0, 2000.0, 2010.0, 2020.0])
"""Three windows of three offsets each, with a sum of squares of 200 after the trend, and of 6,000,600 before it."""


def totals_of(
    published: np.ndarray, values: np.ndarray = TICKS, kind: Attribute = AT, windows: np.ndarray | None = OFFSETS // 3
) -> LossTotals:
    columns = values[:, None], published[:, None], (values - published)[:, None]
    return LossTotals.of((kind,), *columns, windows)


def test_a_clock_is_measured_against_what_is_left_after_its_trend() -> None:
    found = totals_of(TICKS + 5)
    assert found.by_attribute() == {"at": 225 / 600}
    assert found.clocks == ["at"]
    assert [found.sse, found.sst] == pytest.approx([9 * 225 / 6_000_600, 9.0])


def test_a_clock_loses_at_most_all_that_is_left() -> None:
    assert totals_of(TICKS + 20).by_attribute() == {"at": 1.0}


def test_a_clock_that_stands_still_within_each_window_has_no_loss() -> None:
    steps = np.repeat([1.7e12 + 1, 1.7e12 + 1 / 3, 1.7e12 + 7], 3)
    found = totals_of(steps + 1, steps)
    assert (found.by_attribute(), found.clocks) == ({"at": None}, ["at"])


def test_a_time_without_a_trend_is_measured_against_its_total() -> None:
    births = TICKS[[0, 3, 6, 1, 4, 7, 2, 5, 8]]
    found = totals_of(births + 5, births)
    assert found.by_attribute() == {"at": pytest.approx(225 / 6_000_600)}
    assert found.clocks == []


def test_a_time_of_which_half_is_left_is_no_clock() -> None:
    values = np.array([0.0, 2.0, 2.0, 4.0])  # 8 in total; 2 in each window
    assert totals_of(values, values, windows=np.array([0, 0, 1, 1])).clocks == []
    later = values + np.array([0, 0, 1e-6, 1e-6])
    assert totals_of(later, later, windows=np.array([0, 0, 1, 1])).clocks == ["at"]


def test_equal_times_have_no_loss_and_are_no_clock() -> None:
    same = np.full(9, 1.7e12)
    found = totals_of(same + 1, same)
    assert (found.by_attribute(), found.clocks) == ({"at": None}, [])


def test_numbers_and_tables_keep_their_trend() -> None:
    assert totals_of(TICKS + 5, kind=AGE).by_attribute() == {"age": pytest.approx(225 / 6_000_600)}
    of_table = totals_of(TICKS + 5, windows=None)
    assert of_table.by_attribute() == {"at": pytest.approx(225 / 6_000_600)}
    assert of_table.clocks == []


def test_records_without_a_time_or_a_published_one_are_left_out() -> None:
    values, published = np.append(TICKS, [np.nan, 5e9]), np.append(TICKS + 5, [7.0, np.nan])
    found = totals_of(published, values, windows=np.append(OFFSETS // 3, [0, 1]))
    assert found.by_attribute() == {"at": 225 / 600}


def test_windows_that_come_in_parts_are_one() -> None:
    every = np.arange(9)
    for parts in ([[0, 3, 6], [1, 4, 7, 8], [2, 5]], [[n] for n in (8, 0, 5, 3, 1, 7, 2, 6, 4)]):
        found = LossTotals((AT,))
        for part in parts:
            values = TICKS[part][:, None]
            found.add(values, values + 5, np.full_like(values, 5.0), every[part] // 3)
        assert found.by_attribute() == {"at": pytest.approx(225 / 600)}


def test_windows_are_forgotten_once_they_are_closed() -> None:
    sums = WindowSums.of(OFFSETS // 3, TICKS[:, None])
    sums.close_before(2)
    assert (len(sums), sums.squares.tolist()) == (1, [600.0])
    sums.merge(WindowSums.of(np.array([0]), np.array([[99.0]])))
    assert (len(sums), sums.squares.tolist()) == (2, [600.0]), "a single record of a new window is its mean"
    sums.close_before(9)
    assert (len(sums), sums.squares.tolist()) == (0, [600.0])


def test_categories_of_the_released_records_are_counted_up_to_a_limit() -> None:
    def counted(codes: Any) -> dict[str, int]:
        values = np.array(codes, float)[:, None]
        found = LossTotals((SHOP,))
        for part in np.array_split(values, 3):
            found.add(part, part, np.zeros_like(part))
        return found.categories

    assert counted([3, 1, 3, np.nan, 7, 1]) == {"shop": 3}
    assert counted([np.nan] * 3) == {"shop": 0}
    assert counted(range(500)) == {"shop": 500}
    assert counted(range(2000)) == {"shop": 501}, "more than 500 are not told apart"


def test_the_mean_leaves_out_what_has_no_loss() -> None:
    assert mean_loss({"age": 0.25, "shop": 0.75, "at": None}) == 0.5
    assert mean_loss({"at": None}) is None
    assert mean_loss({}) is None


@pytest.mark.parametrize("rule", ["nearest", "greedy", "awo", "block"])
def test_the_summary_of_a_stream_has_the_loss_of_its_clock_and_the_mean(rule: str) -> None:
    """Every hour has one record; the offsets have gaps, and records with a distance of ten hours have one wage."""
    at = attribute("at", Scale.TIME, bounds=(0.0, 400 * 3.6e6), time_step=TimeStep(1, "h"))
    wage = attribute("wage", Scale.NUMERIC, bounds=(0.0, 9.0), resolution=0, weight=0.2)
    policy = policy_with(at, wage, k=3, stream={"delta": 20, "rule": rule})
    hours, wages = np.arange(300), np.arange(300) * 7 % 10
    offsets = hours + hours // 4
    pipeline = PartitionPipeline(policy, JsonEncoder(policy))
    found = []
    for start in range(0, 300, 37):
        rows = [[hours[n] * 3.6e6, wages[n]] for n in range(start, min(start + 37, 300))]
        own = offsets[start : start + 37]
        found.append(pipeline.push(block_of(policy, rows, start), np.column_stack([np.zeros_like(own), own])))
    found.append(pipeline.flush())
    summary = pipeline.summary.as_dict(0, 1.0)
    released = {
        int(np.searchsorted(offsets, offset)): cluster.centroid
        for part in found
        for cluster in part.clusters
        for offset in cluster.offsets
    }
    assert len(released) == 300
    shown = np.array([np.datetime64(json.loads(released[n][0]).rstrip("Z"), "h").astype(int) for n in range(300)])
    windows = offsets // 21
    left = sum(((hours[windows == one] - hours[windows == one].mean()) ** 2).sum() for one in set(windows.tolist()))
    loss = ((hours - shown) ** 2).sum() / left
    assert 0.01 < loss < 1
    assert summary["clocks"] == ["at"]
    assert summary["loss"]["at"] == pytest.approx(loss)
    assert summary["mean_loss"] == pytest.approx((loss + summary["loss"]["wage"]) / 2)
    assert summary["sst"] == 600.0


def test_a_summary_without_records_has_no_losses() -> None:
    policy = policy_with(AT, SHOP)
    summary = PartitionPipeline(policy, JsonEncoder(policy)).summary.as_dict(0, 1.0)
    assert (summary["loss"], summary["mean_loss"], summary["clocks"]) == ({"at": None, "shop": None}, None, [])
