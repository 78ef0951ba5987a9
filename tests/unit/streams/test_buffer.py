"""The buffer: staging slices, and compaction when it is full."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.streams.held_records import HEAD, TAIL, Buffer, CoordinateBlock

pytestmark = pytest.mark.unit

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
