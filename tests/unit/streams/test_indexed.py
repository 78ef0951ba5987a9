"""Indexed rules: gaps in the buffer do not count as held records."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.streams import StreamClusterer, indexed, rules

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("rule", ["nearest", "awo"])
def test_gaps_do_not_count_towards_the_minimum_population(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this, a compiled rule gives the index up after one decision in so small a buffer.
    monkeypatch.setattr(indexed, "LOOKUP_COST", 0)
    monkeypatch.setattr(rules, "INDEXED_FROM", {"nearest": 2, "awo": 2})
    stream = StreamClusterer(2, 1000, 1, rule=rule, expiry_limits=(10,), min_population=14)
    near = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0])
    values = np.concatenate([near, near + 0.1, [99.0]])[:, None]
    stream.push(values[:16], np.arange(16), expiry_keys=np.zeros((16, 1), np.int64))
    out = stream.push(values[16:], np.array([16]), expiry_keys=np.array([[100]]))
    # With 17, 15 and then 13 subjects held, the clock releases no further cluster.
    assert len(out.cluster_bounds) - 1 == 2
    assert stream.population == 13
