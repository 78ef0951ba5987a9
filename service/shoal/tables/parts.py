"""Parts of a table with many categories: each is partitioned by itself, so that the cost per record stays bounded.

Distances of categories need one coordinate per code (`Embedding.dense`). With thousands of codes these coordinates take
nearly all time and memory. Records of one cluster mostly share a branch of the taxonomy. A table with many codes is
therefore cut into parts along its taxonomies, and a code gets a coordinate only if a cluster can be filled with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoal.arrays import BoolVector, Int32Vector, Int64Matrix, Int64Vector

MAX_CODES = 256
"""Coordinates that the codes of one part have at most. A table with so many codes is one part."""
LARGE_ENTRIES = 1 << 22
"""Records times codes up to which a table is one part."""
MAX_ENTRIES = 1 << 20
"""Records times coordinates of a part, if it can be cut further."""
LEAST_RECORDS = 8
"""A part has at least so many records for each that a code needs to have a coordinate."""


def has_many_codes(codes: Int64Matrix) -> bool:
    """Return whether the different codes of all columns (n, c) are too many for one part. Cost: O(n c log n)."""
    count = sum(len(np.unique(column)) for column in codes.T)
    return count > MAX_CODES and count * len(codes) > LARGE_ENTRIES


def split_by_codes(
    codes: Int64Matrix,
    attributes: Int64Vector,
    coordinates: int,
    fewest: int,
    violates: Callable[[Int32Vector], BoolVector],
) -> list[Int64Vector]:
    """Cut a table into parts and return the records of each part, ascending.

    ``attributes`` (c,) are the attributes of the columns of codes (n, c), which ascend in the taxonomy of each.
    Codes of ``fewest`` records have coordinates; ``coordinates`` is the number of all others. ``violates`` returns for
    the labels of a partition which of its clusters cannot be a part; such a part is joined with its neighbour.
    Cost: O(n c log² n).
    """
    labels = np.empty(len(codes), np.int32)
    waiting, part_count = [np.arange(len(labels))], 0
    while waiting:
        records = waiting.pop()
        halves = _cut(codes, attributes, records, coordinates, fewest)
        if halves is not None:
            waiting += reversed(halves)
            continue
        labels[records] = part_count
        part_count += 1
    while part_count > 1 and (violating := violates(labels)).any():
        labels = _join(labels, violating)
        part_count = int(labels.max()) + 1
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])


def _cut(
    codes: Int64Matrix, attributes: Int64Vector, records: Int64Vector, coordinates: int, fewest: int
) -> tuple[Int64Vector, Int64Vector] | None:
    """Cut a part in two along the attribute with most codes; None if the part is small enough."""
    codes = codes[records]
    counts = np.array([_count_frequent(column, fewest) for column in codes.T])
    is_small = counts.sum() <= MAX_CODES and len(records) * (coordinates + counts.sum()) <= MAX_ENTRIES
    if is_small or len(records) < 2 * LEAST_RECORDS * fewest:
        return None
    totals = np.bincount(attributes, counts)
    own = codes[:, attributes == np.argmax(totals)]
    if not totals.max():
        return None
    order = np.lexsort(own.T)  # the highest level first
    cut = _place_of_cut(own[order])
    return records[np.sort(order[:cut])], records[np.sort(order[cut:])]


def _count_frequent(column: Int64Vector, fewest: int) -> int:
    """Return how many codes of a column have at least ``fewest`` records."""
    return int((np.unique(column, return_counts=True)[1] >= fewest).sum())


def _place_of_cut(ordered: Int64Matrix) -> int:
    """Return where records (n, levels), in the order of the tree, are cut: in the middle half, between high branches.

    Of several equally high places the one nearest to the middle is chosen; without any, the middle.
    """
    n = len(ordered)
    middle, first, last = n // 2, n // 4, n - n // 4
    changes = ordered[first - 1 : last - 1] != ordered[first:last]
    heights = (changes * np.arange(1, ordered.shape[1] + 1)).max(axis=1)
    away = np.abs(np.arange(first, last) - middle)
    return first + int(np.lexsort((away, -heights))[0])


def _join(labels: Int32Vector, violating: BoolVector) -> Int32Vector:
    """Join each violating part with the next one, the last one with the part before it; number them again."""
    numbers, part = np.zeros(len(violating), np.int32), 0
    while part < len(violating):
        joined = min(part + 1 + bool(violating[part]), len(violating))
        numbers[part:joined] = numbers[part - 1] + 1 if part else 0
        part = joined
    if violating[-1] and len(numbers) > 1 and numbers[-1] != numbers[-2]:
        numbers[-1] = numbers[-2]
    return numbers[labels]
