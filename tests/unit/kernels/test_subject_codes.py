"""Numbers of subjects."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.kernels.containers import clear, count_up_to, empty_numbering, number

pytestmark = pytest.mark.unit


def test_subjects_are_numbered_by_first_occurrence_until_cleared() -> None:
    numbering = empty_numbering(50)
    codes = [7, -7, 2**62, -(2**62), 7, 0, 64, 128, 192, 64]  # the last ones collide in one slot
    for _ in range(2):
        numbers = [number(numbering, code) for code in codes]
        assert numbers == [0, 1, 2, 3, 0, 4, 5, 6, 7, 5]
        clear(numbering)
        assert not numbering.slots.any()


@pytest.mark.parametrize(("enough", "counted"), [(1, 1), (2, 2), (3, 3), (4, 3), (100, 3)])
def test_subjects_are_counted_up_to_a_limit(enough: int, counted: int) -> None:
    numbering = empty_numbering(10)
    assert count_up_to(numbering, np.array([5, 5, 6, 7, 5]), enough) == counted
    assert not numbering.slots.any()
