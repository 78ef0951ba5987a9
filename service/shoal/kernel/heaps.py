"""Binary heaps of records ordered by distance, then by age: the older of two equally far ones is the nearer."""

from __future__ import annotations

from shoal.kernel.arrays import Float64Vector, Int64Vector
from shoal.kernel.jit import njit

__all__ = ["build", "sink"]


@njit
def _precedes(distances: Float64Vector, one: int, other: int, farthest: bool) -> bool:  # noqa: FBT001 - numba
    if distances[one] != distances[other]:
        return bool((distances[one] > distances[other]) == farthest)
    return (one > other) == farthest


@njit
def sink(heap: Int64Vector, size: int, place: int, distances: Float64Vector, farthest: bool) -> None:  # noqa: FBT001 - numba
    """Restore the order below one place of ``heap[:size]``; the top is the farthest record, or the nearest."""
    record = heap[place]
    child = 2 * place + 1
    while child < size:
        if child + 1 < size and _precedes(distances, heap[child + 1], heap[child], farthest):
            child += 1
        if not _precedes(distances, heap[child], record, farthest):
            break
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = record


@njit
def build(heap: Int64Vector, distances: Float64Vector, farthest: bool) -> None:  # noqa: FBT001 - numba
    """Order a heap of arbitrary records, in place."""
    for place in range(heap.size // 2 - 1, -1, -1):
        sink(heap, heap.size, place, distances, farthest)
