"""Data structures of kernels: sorted arrays, a heap of records, and consecutive numbers for subjects.

The functions are few instructions, which the compiler inlines, and need no memory but what is given. The heap has the
nearest record on top; of two equally distant records the older is the nearer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.kernels.jit import njit_inline


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
def _sift_down(heap: Int64Vector, size: int, index: int, distances: Float64Vector) -> None:
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
def fill_heap(heap: Int64Vector, distances: Float64Vector) -> None:
    """Fill a heap with all records but the oldest, which is 0."""
    for x in range(heap.size):
        heap[x] = x + 1
    for index in range(heap.size // 2 - 1, -1, -1):
        _sift_down(heap, heap.size, index, distances)


@njit_inline
def pop_nearest(heap: Int64Vector, size: int, distances: Float64Vector) -> int:
    """Remove the nearest record from ``heap[:size]`` and return it."""
    record = heap[0]
    heap[0] = heap[size - 1]
    _sift_down(heap, size - 1, 0, distances)
    return int(record)


class Numbering(NamedTuple):
    """Numbers of the subjects of one decision: a hash table with open addressing, cleared by the list of its slots."""

    slots: Int64Vector  # (s,): number of a subject plus 1, or 0; s is a power of two above the number of subjects
    codes: Int64Vector  # (capacity,): subject code of each number
    used_slots: Int64Vector  # (capacity,): slot of each number
    size: Int64Vector  # (1,): numbers given so far


def empty_numbering(capacity: int) -> Numbering:
    """Allocate a table for the subjects of ``capacity`` records."""
    slots = np.zeros(1 << (2 * capacity).bit_length(), np.int64)
    return Numbering(slots, np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(1, np.int64))


@njit_inline
def number(numbering: Numbering, code: int) -> int:
    """Return the number of a subject code. Numbers are given from 0 in the order of first occurrence."""
    slots, codes = numbering.slots, numbering.codes
    # Shifts and xors only: integers cannot overflow where this runs as plain Python.
    slot = (code ^ (code >> 13) ^ (code >> 29) ^ (code >> 47)) & (slots.size - 1)
    while slots[slot] != 0:
        found = slots[slot] - 1
        if codes[found] == code:
            return int(found)
        slot = (slot + 1) & (slots.size - 1)
    found = numbering.size[0]
    slots[slot] = found + 1
    codes[found] = code
    numbering.used_slots[found] = slot
    numbering.size[0] = found + 1
    return int(found)


@njit_inline
def clear(numbering: Numbering) -> None:
    """Remove all numbers."""
    slots, used_slots = numbering.slots, numbering.used_slots
    for i in range(numbering.size[0]):
        slots[used_slots[i]] = 0
    numbering.size[0] = 0


@njit_inline
def count_up_to(numbering: Numbering, codes: Int64Vector, enough: int) -> int:
    """Return the number of distinct codes, but at most ``enough``. The numbering is clear before and after."""
    for x in range(codes.size):
        if number(numbering, codes[x]) + 1 >= enough:
            break
    counted = numbering.size[0]
    clear(numbering)
    return int(counted)
