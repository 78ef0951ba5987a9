"""How many records of each subject are held: a hash table of fixed size whose entries do not move.

The entry of a subject is its *owner number*: small, stable while the subject holds a record, and so fit to index the
scratch counters of a rule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.kernel.arrays import Int64Vector
from shoal.kernel.jit import njit

__all__ = ["Tally", "drop", "empty_tally", "take"]

DISTINCT, FRESH, FREE = 0, 1, 2
"""Places in `Tally.book`: subjects held, entries ever used, first free entry (plus one)."""


class Tally(NamedTuple):
    """Chains of entries; every link is an entry plus one, 0 ends a chain, so that zeroed memory is empty.

    ``buckets`` (a power of two), ``links``, ``subjects`` and ``counts`` (one per entry), ``book`` (3).
    """

    buckets: Int64Vector
    links: Int64Vector
    subjects: Int64Vector
    counts: Int64Vector
    book: Int64Vector


def empty_tally(capacity: int) -> Tally:
    """Make room for the subjects of ``capacity`` records held at once."""
    return Tally(
        buckets=np.zeros(1 << max(4, (capacity - 1).bit_length()), np.int64),
        links=np.zeros(capacity, np.int64),
        subjects=np.zeros(capacity, np.int64),
        counts=np.zeros(capacity, np.int64),
        book=np.zeros(3, np.int64),
    )


@njit
def _bucket(subject: int, buckets: int) -> int:
    """Fold a code into a bucket; shifts and xors only, so that nothing overflows when run as plain Python."""
    folded = subject ^ (subject >> 17) ^ (subject >> 31) ^ (subject >> 47)
    return folded & (buckets - 1)


@njit
def take(tally: Tally, subject: int) -> int:
    """Count one more record of a subject and return its owner number."""
    bucket = _bucket(subject, tally.buckets.size)
    link = tally.buckets[bucket]
    while link:
        if tally.subjects[link - 1] == subject:
            tally.counts[link - 1] += 1
            return int(link - 1)
        link = tally.links[link - 1]
    owner = tally.book[FREE] - 1
    if owner >= 0:
        tally.book[FREE] = tally.links[owner]
    else:
        owner = tally.book[FRESH]
        tally.book[FRESH] += 1
    tally.subjects[owner] = subject
    tally.counts[owner] = 1
    tally.links[owner] = tally.buckets[bucket]
    tally.buckets[bucket] = owner + 1
    tally.book[DISTINCT] += 1
    return int(owner)


@njit
def drop(tally: Tally, owner: int) -> None:
    """Count one record less; the last one frees the owner number."""
    tally.counts[owner] -= 1
    if tally.counts[owner] > 0:
        return
    bucket = _bucket(tally.subjects[owner], tally.buckets.size)
    link = tally.buckets[bucket]
    if link == owner + 1:
        tally.buckets[bucket] = tally.links[owner]
    else:
        while tally.links[link - 1] != owner + 1:
            link = tally.links[link - 1]
        tally.links[link - 1] = tally.links[owner]
    tally.links[owner] = tally.book[FREE]
    tally.book[FREE] = owner + 1
    tally.book[DISTINCT] -= 1
