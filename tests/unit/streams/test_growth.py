"""Growing clusters: the oldest held records replace young members."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.streams import StreamClusterer

pytestmark = pytest.mark.unit


def test_a_record_that_would_find_too_few_others_replaces_the_farthest_young_member() -> None:
    # Without record 1, records 1 and 4 alone would be held when record 1 is due, and it would be suppressed.
    stream = StreamClusterer(3, 3, 1, rule="greedy")
    decided = stream.push(np.array([[0.0], [9.0], [0.1], [0.2]]))
    assert decided.positions.tolist() == [0, 1, 2]


def test_a_record_that_will_find_enough_others_stays_held() -> None:
    stream = StreamClusterer(3, 4, 1, rule="greedy")
    decided = stream.push(np.array([[0.0], [9.0], [0.1], [0.2], [0.3]]))
    assert decided.positions.tolist() == [0, 2, 3]
    assert stream.held_positions().tolist() == [1, 4]
