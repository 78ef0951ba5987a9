"""Numbers for the subjects of one decision: a hash table that is cleared by its own list of what it holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.numba.jit import njit_in_place

__all__ = ["Numbering", "clear", "count_up_to", "empty_numbering", "number"]


class Numbering(NamedTuple):
    """Open addressing with linear steps.

    ``slots`` (a power of two, more than records can be held): number plus one, 0 where free; ``codes`` and ``places``
    by number: the subject, its slot; ``size`` (1,).
    """

    slots: Int64Vector
    codes: Int64Vector
    places: Int64Vector
    size: Int64Vector


def empty_numbering(capacity: int) -> Numbering:
    """Make room for the subjects of ``capacity`` records."""
    slots = np.zeros(1 << (2 * capacity).bit_length(), np.int64)
    return Numbering(slots, np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(1, np.int64))


@njit_in_place
def number(numbering: Numbering, code: int) -> int:
    """Return the number of a subject; numbers go up from 0 in the order in which subjects are first met."""
    slots, codes = numbering.slots, numbering.codes
    # Shifts and xors only: they cannot overflow where this runs as plain Python.
    place = (code ^ (code >> 13) ^ (code >> 29) ^ (code >> 47)) & (slots.size - 1)
    while slots[place] != 0:
        found = slots[place] - 1
        if codes[found] == code:
            return int(found)
        place = (place + 1) & (slots.size - 1)
    found = numbering.size[0]
    slots[place] = found + 1
    codes[found] = code
    numbering.places[found] = place
    numbering.size[0] = found + 1
    return int(found)


@njit_in_place
def clear(numbering: Numbering) -> None:
    """Forget all numbers."""
    slots, places = numbering.slots, numbering.places
    for i in range(numbering.size[0]):
        slots[places[i]] = 0
    numbering.size[0] = 0


@njit_in_place
def count_up_to(numbering: Numbering, codes: Int64Vector, enough: int) -> int:
    """Count distinct subjects, but not beyond ``enough``; leaves the numbering clear."""
    for x in range(codes.size):
        if number(numbering, codes[x]) + 1 >= enough:
            break
    counted = numbering.size[0]
    clear(numbering)
    return int(counted)
