"""Engine and judge round the mean of times to the same step, and never outside the years 1 to 9999."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from shoal.audit.scales import TimeGrid
from shoal.policy import EpochUnit, TimeStep
from shoal.scales.time import TimePublisher

pytestmark = pytest.mark.property

FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in ms."""
STEPS = st.sampled_from(("s", "7s", "15min", "h", "day", "7day", "1000day", "999999day", "month", "year"))
TIMES = st.integers(FIRST, LAST) | st.integers(FIRST, FIRST + 10**11) | st.integers(LAST - 10**11, LAST)


@given(st.lists(TIMES, min_size=1, max_size=4), STEPS, st.sampled_from((None, *get_args(EpochUnit))))
@example([FIRST], "7day", None)
@example([LAST], "year", "us")
@example([LAST], "999999day", "days")
def test_engine_and_judge_publish_the_same_time(times: list[int], text: str, unit: EpochUnit | None) -> None:
    step = TimeStep.parse(text)
    assert step is not None
    assume(unit != "days" or step.is_whole_days)
    texts, published = TimePublisher(step, unit).publish(np.array(times, np.float64), np.array([0, len(times)]))
    assert FIRST <= published[0] <= LAST
    grid = TimeGrid(step, unit)
    mean = grid.mean([float(time) for time in times])
    assert texts[0].strip('"') == mean
    assert grid.parse(mean) == published[0]
