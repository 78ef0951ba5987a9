"""The arrays of held records: removal keeps order, suppressions are recorded, slices are staged and compacted."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.streams.held_records import (
    HEAD,
    TAIL,
    Buffer,
    CoordinateBlock,
    append_next,
    empty_decision_buffer,
    empty_held,
    release,
    suppress,
)

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


SLICE = 1024


def block(positions: list[int]) -> CoordinateBlock:
    column = np.array(positions, np.int64)
    return CoordinateBlock(
        np.tile(column.astype(np.float64)[:, None], 2),
        column * 10,
        column,
        column[:, None] * 100,
        column[:, None] * 7,
    )


def test_slices_are_staged_behind_the_held_records_and_a_full_buffer_is_compacted() -> None:
    buffer = Buffer(3, 2, 1, code_distances=np.array([0.5]))
    whole = block(list(range(SLICE + 10)))
    assert buffer.stage(whole, 0) == SLICE
    assert len(buffer) == 0
    buffer.held.extent[:] = SLICE - 2, SLICE
    assert buffer.stage(whole, SLICE) == 10
    assert buffer.held.extent.tolist() == [0, 2]
    assert buffer.positions().tolist() == [SLICE - 2, SLICE - 1]
    buffer.held.extent[TAIL] += 10
    last = SLICE + 9
    assert len(buffer) == 12
    assert buffer.held.positions[11] == last
    assert buffer.held.subjects[11] == last * 10
    assert buffer.held.expiry_keys[0, 11] == last * 100
    assert buffer.held.codes[0, 11] == last * 7
    assert buffer.held.coordinates[:, 11].tolist() == [last, last]
    assert buffer.held.extent[HEAD] == 0


def test_a_slice_fits_while_delta_records_are_held() -> None:
    buffer = Buffer(5, 2, 1, code_distances=np.array([0.5]))
    buffer.held.extent[:] = 0, 5
    assert buffer.stage(block(list(range(SLICE))), 0) == SLICE
    assert buffer.held.extent.tolist() == [0, 5]
