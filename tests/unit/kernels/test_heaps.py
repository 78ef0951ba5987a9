"""The heap, compared with a sort."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.kernels.containers import heapify, sift_down

pytestmark = pytest.mark.unit


def test_a_heap_returns_records_by_distance_and_the_older_first() -> None:
    random = np.random.default_rng(1)
    distances = random.integers(0, 4, 40).astype(np.float64)
    heap = random.permutation(40)
    heapify(heap, distances)
    returned = []
    for remaining in range(40, 0, -1):
        returned.append(int(heap[0]))
        heap[0] = heap[remaining - 1]
        sift_down(heap, remaining - 1, 0, distances)
    assert returned == sorted(range(40), key=lambda x: (distances[x], x))
