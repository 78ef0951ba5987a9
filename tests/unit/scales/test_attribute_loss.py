"""The loss of each attribute: a clock is measured against what is left after its trend; categories are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.policy import Attribute, Scale
from shoal.scales.loss import LossTotals, mean_loss
from support.scales import attribute

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


BIRTHS, SAME = TICKS[[0, 3, 6, 1, 4, 7, 2, 5, 8]], np.full(9, 1.7e12)
STEPS = np.repeat([1.7e12 + 1, 1.7e12 + 1 / 3, 1.7e12 + 7], 3)


@pytest.mark.parametrize(
    ("values", "published", "loss", "is_clock"),
    [
        (TICKS, TICKS + 5, 225 / 600, True),  # against what is left after the trend
        (TICKS, TICKS + 20, 1.0, True),  # at most all that is left
        (STEPS, STEPS + 1, None, True),  # it stands still within each window
        (BIRTHS, BIRTHS + 5, 225 / 6_000_600, False),  # without a trend, against its total
        (SAME, SAME + 1, None, False),
        # Records without a time or a published one are left out.
        (np.append(TICKS, [np.nan, 5e9]), np.append(TICKS + 5, [7.0, np.nan]), 225 / 600, True),
    ],
)
def test_a_clock_is_measured_against_what_is_left_after_its_trend(
    values: np.ndarray,
    published: np.ndarray,
    loss: float | None,
    is_clock: bool,  # noqa: FBT001
) -> None:
    windows = np.append(OFFSETS // 3, [0, 1])[: len(values)]
    found = totals_of(published, values, windows=windows)
    assert found.by_attribute() == {"at": None if loss is None else pytest.approx(loss)}
    assert found.clocks == ["at"] * is_clock


def test_a_clock_counts_in_the_sums_of_all_attributes_with_its_trend() -> None:
    found = totals_of(TICKS + 5)
    assert [found.sse, found.sst] == pytest.approx([9 * 225 / 6_000_600, 9.0])


def test_a_time_of_which_half_is_left_is_no_clock() -> None:
    values, windows = np.array([0.0, 2.0, 2.0, 4.0]), np.array([0, 0, 1, 1])  # 8 in total; 2 in each window
    assert totals_of(values, values, windows=windows).clocks == []
    later = values + np.array([0, 0, 1e-6, 1e-6])
    assert totals_of(later, later, windows=windows).clocks == ["at"]


def test_numbers_and_tables_keep_their_trend() -> None:
    assert totals_of(TICKS + 5, kind=AGE).by_attribute() == {"age": pytest.approx(225 / 6_000_600)}
    of_table = totals_of(TICKS + 5, windows=None)
    assert of_table.by_attribute() == {"at": pytest.approx(225 / 6_000_600)}
    assert of_table.clocks == []


@pytest.mark.parametrize(
    ("codes", "counted"),
    # More than 500 categories are not told apart.
    [([3, 1, 3, np.nan, 7, 1], 3), ([np.nan] * 3, 0), (range(500), 500), (range(2000), 501)],
)
def test_categories_of_the_released_records_are_counted_up_to_a_limit(codes: Any, counted: int) -> None:
    found = LossTotals((SHOP,))
    for part in np.array_split(np.array(codes, float), 3):
        found.merge(totals_of(part, part, SHOP, None))
    assert found.categories == {"shop": counted}


def test_the_mean_leaves_out_what_has_no_loss() -> None:
    assert mean_loss({"age": 0.25, "shop": 0.75, "at": None}) == 0.5
    assert mean_loss({"at": None}) is None
    assert mean_loss({}) is None
