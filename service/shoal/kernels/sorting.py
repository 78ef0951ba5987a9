"""Sorting in kernels: few instructions, which the compiler inlines, and no memory.

The heap has the nearest record on top. Of two equally distant records the older is the nearer.
"""

from __future__ import annotations

from shoal.arrays import Float64Vector, Int64Vector
from shoal.kernels.jit import njit_inline

__all__ = ["heapify", "shell_sort", "sift_down"]


@njit_inline
def shell_sort(values: Float64Vector | Int64Vector) -> None:
    """Sort values (n,) in place, ascending, by Shell's method with gaps 1, 4, 13, 40, ...; O(n^1.5) at worst.

    It is an insertion sort for the few records of a usual cluster.
    """
    gap = 1
    while gap < values.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, values.size):
            value, index = values[i], i
            while index >= gap and values[index - gap] > value:
                values[index] = values[index - gap]
                index -= gap
            values[index] = value
        gap //= 3


@njit_inline
def _is_nearer(distances: Float64Vector, one: int, other: int) -> bool:
    """Whether record ``one`` is nearer than record ``other``."""
    return bool(distances[one] < distances[other] or (distances[one] == distances[other] and one < other))


@njit_inline
def sift_down(heap: Int64Vector, size: int, index: int, distances: Float64Vector) -> None:
    """Move the record at ``index`` down in ``heap[:size]`` until no child is nearer."""
    record = heap[index]
    child = 2 * index + 1
    while child < size:
        if child + 1 < size and _is_nearer(distances, heap[child + 1], heap[child]):
            child += 1
        if not _is_nearer(distances, heap[child], record):
            break
        heap[index] = heap[child]
        index = child
        child = 2 * index + 1
    heap[index] = record


@njit_inline
def heapify(heap: Int64Vector, distances: Float64Vector) -> None:
    """Bring the records of ``heap`` into heap order, in place."""
    for index in range(heap.size // 2 - 1, -1, -1):
        sift_down(heap, heap.size, index, distances)
