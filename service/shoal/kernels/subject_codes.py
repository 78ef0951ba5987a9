"""Consecutive numbers for the subjects of one decision: a hash table that is cleared by the list of its used slots."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Int64Vector
from shoal.kernels.jit import njit_inline

__all__ = ["Numbering", "clear", "count_up_to", "empty_numbering", "number"]


class Numbering(NamedTuple):
    """A hash table with open addressing and linear probing."""

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
