"""What a cluster must keep beside its size while a partition is changed: people, their shares, closeness, buckets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.clustering.static.emd import Spectrum, sorted_distance

__all__ = ["SHARE_SLACK", "SLACK", "ConstraintArrays", "admits", "are_free", "no_constraints"]

NOBODY = -1
SLACK = 1e-12
"""Of a distance between distributions: rounding is no excess."""
SHARE_SLACK = 1e-9
"""Of a number of records."""


class ConstraintArrays(NamedTuple):
    """Terms of the caller; empty arrays ask for nothing.

    ``people`` (n,): whose record each is, as codes from 0; ``share``: the most of a cluster that may be one person's.
    ``spectrum``, ``t``: how far a cluster may be from the table. ``buckets`` (n,): only two records of one bucket may
    change places, and nothing else may move. ``scratch`` (2, room): of one check; ``counts`` (people,): likewise, else
    zero.
    """

    people: Int64Vector
    share: float
    spectrum: Spectrum
    t: float
    buckets: Int64Vector
    scratch: Int64Matrix
    counts: Int64Vector


def no_constraints() -> ConstraintArrays:
    """Return terms that ask for nothing."""
    nothing, none = np.zeros(0, np.int64), np.zeros(0)
    spectrum = Spectrum(np.zeros((0, 0), np.int64), np.zeros(1, np.int64), none, none, none, np.zeros(0, np.bool_))
    return ConstraintArrays(nothing, 1.0, spectrum, 1.0, nothing, np.zeros((2, 0), np.int64), nothing)


@njit_in_place
def are_free(terms: ConstraintArrays) -> bool:
    """Whether there is nothing to look at."""
    return terms.people.size == 0 and terms.spectrum.ordered.size == 0 and terms.buckets.size == 0


@njit_in_place
def admits(terms: ConstraintArrays, members: Int64Vector, leaving: int, joining: int, k: int) -> bool:
    """Whether a cluster keeps the terms without one of its members and with another record; -1 is nobody.

    Of an empty cluster nothing is asked. O(s) for s members and their people, O(s (s + log bins)) for closeness.
    """
    room, count = terms.scratch[0], 0
    for x in range(members.size):
        if members[x] != leaving:
            room[count] = members[x]
            count += 1
    if joining != NOBODY:
        room[count] = joining
        count += 1
    if count == 0:
        return True
    if terms.people.size > 0 and not _has_people(terms, count, k):
        return False
    for attribute in range(terms.spectrum.ordered.size):
        if _distance(terms, attribute, count) > terms.t + SLACK:
            return False
    return True


@njit_in_place
def _has_people(terms: ConstraintArrays, count: int, k: int) -> bool:
    room, counts, different, most = terms.scratch[0], terms.counts, 0, 0
    for x in range(count):
        person = terms.people[room[x]]
        counts[person] += 1
        different += counts[person] == 1
        most = max(most, counts[person])
    for x in range(count):
        counts[terms.people[room[x]]] = 0
    return bool(different >= k and most <= terms.share * count + SHARE_SLACK)


@njit_in_place
def _distance(terms: ConstraintArrays, attribute: int, count: int) -> float:
    """Sort the records at hand by their bins, and measure."""
    room, bins, column = terms.scratch[0], terms.scratch[1], terms.spectrum.bins[attribute]
    for x in range(count):
        code, place = column[room[x]], x
        while place > 0 and bins[place - 1] > code:
            bins[place] = bins[place - 1]
            place -= 1
        bins[place] = code
    return sorted_distance(terms.spectrum, attribute, bins[:count])
