"""Selecting records of a block."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.formats import Block, Reason

pytestmark = pytest.mark.unit

SLICE = 512


def block() -> Block:
    """Return a block of messages 0 to 4, of which 3 is rejected."""
    return Block(
        values=np.array([[0.0], [1.0], [2.0], [4.0]]),
        subjects=np.array([10, 11, 12, 14], dtype=np.int64),
        unchanged_fields=[b"a", b"b", b"c", b"e"],
        index=np.array([0, 1, 2, 4], dtype=np.int64),
        rejected=[(3, Reason.INVALID)],
        clipped=7,
        unchanged_columns=[["a", "b", "c", "e"]],
    )


def test_filter_keeps_the_records_of_the_mask() -> None:
    chosen = block().filter(np.array([True, False, False, True]))
    assert chosen.values.tolist() == [[0.0], [4.0]]
    assert chosen.subjects.tolist() == [10, 14]
    assert chosen.unchanged_fields == [b"a", b"e"]
    assert chosen.index.tolist() == [0, 4]
    assert chosen.unchanged_columns == [["a", "e"]]
    assert (chosen.rejected, chosen.clipped) == ([(3, Reason.INVALID)], 7)


def test_slice_keeps_consecutive_records() -> None:
    chosen = block().slice(slice(1, 3))
    assert chosen.values.tolist() == [[1.0], [2.0]]
    assert chosen.subjects.tolist() == [11, 12]
    assert chosen.unchanged_fields == [b"b", b"c"]
    assert chosen.index.tolist() == [1, 2]
    assert chosen.unchanged_columns == [["b", "c"]]
    assert (chosen.rejected, chosen.clipped) == ([(3, Reason.INVALID)], 7)
    whole = block()
    assert whole.slice(slice(0, 4)) is whole
