"""A binary heap of records, the nearest on top; of two that are equally far the older is the nearer."""

from __future__ import annotations

from shoal.arrays import Float64Vector, Int64Vector
from shoal.clustering.numba.jit import njit_in_place

__all__ = ["build", "sink"]


@njit_in_place
def _is_nearer(distances: Float64Vector, one: int, other: int) -> bool:
    return bool(distances[one] < distances[other] or (distances[one] == distances[other] and one < other))


@njit_in_place
def sink(heap: Int64Vector, size: int, place: int, distances: Float64Vector) -> None:
    """Restore the order below one place of ``heap[:size]``."""
    record = heap[place]
    child = 2 * place + 1
    while child < size:
        if child + 1 < size and _is_nearer(distances, heap[child + 1], heap[child]):
            child += 1
        if not _is_nearer(distances, heap[child], record):
            break
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = record


@njit_in_place
def build(heap: Int64Vector, distances: Float64Vector) -> None:
    """Order arbitrary records, in place."""
    for place in range(heap.size // 2 - 1, -1, -1):
        sink(heap, heap.size, place, distances)
