"""The CASTLE that Shoal is compared with keeps what CASTLE limits."""

from __future__ import annotations

import numpy as np
import pytest
from castle import Castle

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("k", "delta", "beta"), [(3, 10, 2), (5, 40, 8), (10, 100, 50), (20, 25, 3)])
@pytest.mark.parametrize("tied", [False, True])
def test_records_leave_once_in_time_in_boxes_of_k(k: int, delta: int, beta: int, tied: bool) -> None:  # noqa: FBT001
    values = np.random.default_rng(1).random((700, 2))
    values = values.round(1) if tied else values
    left = Castle(values, k, delta, beta).run()
    gone = [one for members in left.members for one in members]
    assert len(gone) == len(set(gone)) == len(values) - left.suppressed
    first: dict[bytes, int] = {}
    for members, box, newest in zip(left.members, left.boxes, left.newest, strict=True):
        assert all(newest - one <= delta for one in members)
        assert (box[0] <= values[members]).all()
        assert (values[members] <= box[1]).all()
        # Fewer than k only where others, k or more, have left with the same box.
        assert len(members) >= k or (len(members) == 1 and first[box.tobytes()] >= k)
        first.setdefault(box.tobytes(), len(members))
