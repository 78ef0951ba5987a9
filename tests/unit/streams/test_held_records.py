"""The arrays of held records: removal keeps order, and suppressions are recorded."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.streams.held_records import HEAD, TAIL, append_next, empty_decision_buffer, empty_held, release, suppress

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("members", [[0], [0, 1, 2], [0, 9], [0, 3, 4, 8], [0, 40], [0, 20, 299]])
def test_remaining_records_keep_their_order_and_all_columns(members: list[int]) -> None:
    held, decisions = empty_held(400, 2, 1), empty_decision_buffer(400)
    held.extent[:] = 5, 305
    for scale, column in enumerate([held.positions, held.subjects, *held.expiry_keys, *held.coordinates], 1):
        column[:] = np.arange(400) * scale
    release(held, decisions, np.array(members), 999, 3)
    remaining = np.delete(np.arange(5, 305), members)
    live = slice(held.extent[HEAD], held.extent[TAIL])
    for scale, column in enumerate([held.positions, held.subjects, *held.expiry_keys, *held.coordinates], 1):
        assert column[live].tolist() == (remaining * scale).tolist()
    assert decisions.positions[: len(members)].tolist() == [5 + member for member in members]
    assert decisions.clusters[:, 0].tolist() == [len(members), 3, 999]
    assert decisions.counts.tolist() == [1, len(members), 0]


def test_a_suppressed_record_has_the_number_of_clusters_before_it() -> None:
    held, decisions = empty_held(10, 1, 0), empty_decision_buffer(10)
    held.positions[:4] = 10, 11, 12, 13
    assert [append_next(held) for _ in range(4)] == [10, 11, 12, 13]
    release(held, decisions, np.array([0, 1]), 13, 0)
    suppress(held, decisions, 13, -1)
    assert decisions.suppressed[:, 0].tolist() == [12, -1, 13, 1]
    assert held.extent.tolist() == [3, 4]
