"""C."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Cube, Float64Vector, Int32Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.numba.kd_tree import push_children, split_at_median
from shoal.clustering.stream.held_records import COMPACTIONS, HEAD, TAIL, HeldRecords

__all__ = [
    "BUILT_AT",
    "NONE",
    "SCAN_COST",
    "SEARCH_COST",
    "CellIndex",
    "build",
    "empty_cell_index",
    "find_nearest",
    "insert_arrived",
    "remove_from_index",
]

CELL_SIZE = 8
"""Records in a cell when it is built, at most."""

PAGE_SIZE = 14
"""Records on a page, which with two other numbers fill a line of the processor's cache. Each cell has one page,
and more where many have arrived."""

COUNT, NEXT_PAGE, FIRST_RECORD = range(3)
"""On a page: how many records, the next page of the same leaf or NOBODY, and from where on the records."""

LOW, HIGH = 0, 1

SCANNED_BY_AGE = 256
"""If positions have a weight, so many of the same age are looked at before any cell: often nobody else matters."""

MAX_GAP = 1 << 62
"""Positions are never farther from each other."""

NONE = -1

MAX_DEPTH = 64
"""More levels than records could ever fill."""

OLDER, YOUNGER = 0, 1
"""Places in `Cells.query`."""

INNER_NODES, INSERTED_UP_TO, BUILT_AT, SEARCH_COST, SCAN_COST, PAGES_USED = range(6)
"""Places in `Cells.state`."""


class CellIndex(NamedTuple):
    """The cells, their records on pages, and scratch.

    ``state`` (6,): how many nodes are halved; up to which place records have been entered; the epoch of
    `HeldRecords.gaps` whose places these are, or -1; how often a record or node was looked at since, or a found one
    moved down; how often
    records would have been without cells, which is for the user to count; and how many pages are in use.
    """

    axes: Int32Vector  # (nodes,): attribute by which a node is halved
    cuts: Float64Vector  # (nodes,): who is not above goes left
    boxes: Float64Cube  # (nodes, 2, d): all of its records are at or above `LOW`, and at or below `HIGH`
    pages: Int32Matrix  # (pages, 2 + ROOM): records from old to young; page i is the first one of leaf i
    points: Float64Cube  # (pages, ROOM, d): their coordinates
    last: Int32Vector  # (leaves,): the last page of each
    leaf_of: Int32Vector  # (capacity,): where each record was put
    nodes: Int64Vector
    bounds: Float64Vector
    point: Float64Vector  # (d,): whose nearest are looked for
    query: Int64Vector  # (3,): up to which older place and from which younger one on records are left, its position
    state: Int64Vector


def empty_cell_index(capacity: int, dimensions: int) -> CellIndex:
    """Allocate the arrays once."""
    leaf_of = 1
    while leaf_of * CELL_SIZE < capacity:
        leaf_of *= 2
    pages = leaf_of + capacity // PAGE_SIZE + 1  # a page is taken when another is full
    return CellIndex(
        axes=np.zeros(leaf_of, np.int32),
        cuts=np.zeros(leaf_of),
        boxes=np.zeros((2 * leaf_of, 2, dimensions)),
        pages=np.zeros((pages, 2 + PAGE_SIZE), np.int32),
        points=np.zeros((pages, PAGE_SIZE, dimensions)),
        last=np.zeros(leaf_of, np.int32),
        leaf_of=np.zeros(capacity, np.int32),
        nodes=np.zeros(MAX_DEPTH, np.int64),
        bounds=np.zeros(MAX_DEPTH),
        point=np.zeros(dimensions),
        query=np.zeros(3, np.int64),
        state=np.array([0, 0, NONE, 0, 0, 0]),
    )


@njit
def build(index: CellIndex, held: HeldRecords, order: Int64Vector, keys: Float64Vector) -> None:
    """Halve space where the held records lie, and enter them; ``order`` and ``keys`` (capacity,) are scratch.

    Cost: O(n log n) for n held records.
    """
    values, n = held.coordinates.T, _list_held(held, order)
    depth = 0
    while (n >> depth) > CELL_SIZE and (2 << depth) <= index.last.size:
        depth += 1
    index.boxes[0, LOW] = -np.inf
    index.boxes[0, HIGH] = np.inf
    for level in range(depth):
        for x in range(1 << level):
            start, end, middle = (x * n) >> level, ((x + 1) * n) >> level, ((2 * x + 1) * n) >> (level + 1)
            axis = split_at_median(values, order, keys, start, end, middle)
            _split_node(index, (1 << level) - 1 + x, axis, keys[start:middle])
    index.state[PAGES_USED] = 1 << depth
    for x in range(1 << depth):
        index.pages[x, COUNT], index.pages[x, NEXT_PAGE], index.last[x] = 0, NONE, x
        for y in range((x * n) >> depth, ((x + 1) * n) >> depth):
            index.leaf_of[order[y]] = x
    for x in range(_list_held(held, order)):
        _append(index, held, order[x])
    index.state[INNER_NODES], index.state[INSERTED_UP_TO] = (1 << depth) - 1, held.extent[TAIL]
    index.state[BUILT_AT] = held.gap_state[COMPACTIONS]
    index.state[SEARCH_COST] = index.state[SCAN_COST] = 0


@njit_in_place
def _list_held(held: HeldRecords, order: Int64Vector) -> int:
    """Write the places of all who are held to ``order``, the oldest first; return how many there are."""
    n = 0
    for slot in range(held.extent[HEAD], held.extent[TAIL]):
        order[n] = slot
        n += not held.removed[slot]
    return n


@njit
def _split_node(index: CellIndex, node: int, axis: int, keys: Float64Vector) -> None:
    """Give a node its children; ``keys`` are what its lower half has on the axis."""
    cut = -np.inf
    for key in keys:
        cut = max(cut, key)
    index.axes[node], index.cuts[node] = axis, cut
    for child in (2 * node + 1, 2 * node + 2):
        index.boxes[child] = index.boxes[node]
    index.boxes[2 * node + 1, HIGH, axis] = index.boxes[2 * node + 2, LOW, axis] = cut


@njit_in_place
def _append(index: CellIndex, held: HeldRecords, slot: int) -> None:
    """Write a record to the last page of its leaf, or to a new one."""
    leaf = index.leaf_of[slot]
    page = index.last[leaf]
    if index.pages[page, COUNT] == PAGE_SIZE:
        new = index.state[PAGES_USED]
        index.state[PAGES_USED] = new + 1
        index.pages[page, NEXT_PAGE] = index.last[leaf] = new
        index.pages[new, COUNT], index.pages[new, NEXT_PAGE] = 0, NONE
        page = index.last[leaf]
    count = index.pages[page, COUNT]
    index.pages[page, FIRST_RECORD + count] = slot
    for j in range(index.point.size):
        index.points[page, count, j] = held.coordinates[j, slot]
    index.pages[page, COUNT] = count + 1


@njit_in_place
def remove_from_index(index: CellIndex, slot: int) -> None:
    """Take a record out that leaves; those behind it on its page move up."""
    page = index.leaf_of[slot]
    while True:
        count, x = index.pages[page, COUNT], 0
        while x < count and index.pages[page, FIRST_RECORD + x] != slot:
            x += 1
        if x < count:
            break
        page = index.pages[page, NEXT_PAGE]
    for y in range(x, count - 1):
        index.pages[page, FIRST_RECORD + y] = index.pages[page, FIRST_RECORD + y + 1]
        for j in range(index.point.size):
            index.points[page, y, j] = index.points[page, y + 1, j]
    index.pages[page, COUNT] = count - 1


@njit_in_place
def insert_arrived(index: CellIndex, held: HeldRecords) -> None:
    """Enter all records that have arrived since the last time."""
    inner, start, tail, leaf_of = (
        index.state[INNER_NODES],
        index.state[INSERTED_UP_TO],
        held.extent[TAIL],
        index.leaf_of,
    )
    leaf_of[start:tail] = 0
    level = 0
    while level < inner:  # level by level: the steps of many records do not wait for each other
        for slot in range(start, tail):
            node = leaf_of[slot]
            leaf_of[slot] = 2 * node + 1 + (held.coordinates[index.axes[node], slot] > index.cuts[node])
        level = 2 * level + 1
    for slot in range(start, tail):
        leaf_of[slot] -= inner
        _append(index, held, slot)
    index.state[INSERTED_UP_TO] = tail


@njit_in_place
def find_nearest(
    index: CellIndex, held: HeldRecords, omega_p: float, slot: int, distances: Float64Vector, found: Int64Vector
) -> None:
    """Write the nearest to a held record, in order of (distance, age), to ``places`` and ``distances``.

    As many as these have room for; more must be held. Looks at the cell of the record, then at those beside it, ever
    farther out, as far as anybody nearer can be.
    """
    inner, last, point = index.state[INNER_NODES], distances.size - 1, index.point
    for j in range(point.size):
        point[j] = held.coordinates[j, slot]
    distances[:] = np.inf
    found[:] = held.removed.size
    index.query[:] = slot - 1, slot + 1, held.positions[slot]
    base = 0.0
    if omega_p > 0.0:
        base = _scan_by_age(index, held, omega_p, distances, found)
        if base > distances[last]:
            return
    node_upwards = inner + index.leaf_of[slot]
    _scan_leaf(index, held, omega_p, node_upwards, base, distances, found)
    while node_upwards > 0:
        index.nodes[0] = node_upwards + 1 if node_upwards % 2 else node_upwards - 1
        index.bounds[0] = _min_distance_to_node(index, index.nodes[0], base)
        node_upwards = (node_upwards - 1) // 2
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node, bound = index.nodes[waiting], index.bounds[waiting]
            index.state[SEARCH_COST] += 1
            if bound > distances[last]:
                continue
            if node >= inner:
                _scan_leaf(index, held, omega_p, node, bound, distances, found)
                continue
            left, right = (
                _min_distance_to_node(index, 2 * node + 1, base),
                _min_distance_to_node(index, 2 * node + 2, base),
            )
            waiting = push_children(index.nodes, index.bounds, waiting, node, left, right)


@njit_in_place
def _min_distance_to_node(index: CellIndex, node: int, base: float) -> float:
    """Squared distance from the point to the nearest side of a node, for records as far away in age as ``base``."""
    total = base
    for j in range(index.point.size):
        difference = max(index.boxes[node, LOW, j] - index.point[j], index.point[j] - index.boxes[node, HIGH, j], 0.0)
        total += difference * difference
    return total


@njit_in_place
def _scan_by_age(
    index: CellIndex, held: HeldRecords, omega_p: float, distances: Float64Vector, found: Int64Vector
) -> float:
    """Enter those of about the same age into what was found; return what the age of all others makes at least."""
    head, tail, count = held.extent[HEAD], held.extent[TAIL], 0
    older, younger, position = index.query
    while True:
        back = held.positions[older] if older >= head else position - MAX_GAP
        ahead = held.positions[younger] if younger < tail else position + MAX_GAP
        is_younger = ahead - position <= position - back
        step = omega_p * float(ahead - position if is_younger else position - back)
        if count == SCANNED_BY_AGE or (older < head and younger >= tail):
            break
        slot = younger if is_younger else older
        if is_younger:
            younger += 1
        else:
            older -= 1
        if not held.removed[slot]:
            count += 1
            _insert(index, held.coordinates[:, slot], slot, step * step, distances, found)
    index.query[OLDER], index.query[YOUNGER] = older, younger
    index.state[SEARCH_COST] += count
    return step * step


@njit_in_place
def _scan_leaf(
    index: CellIndex,
    held: HeldRecords,
    omega_p: float,
    node: int,
    bound: float,
    distances: Float64Vector,
    found: Int64Vector,
) -> None:
    """Enter the records of a leaf that have not been looked at into what was found, oldest first.

    ``bound``: none is nearer. Whoever is younger than a record that is too far by its age is so too; and once the last
    of those found is as near as anybody can be here, younger ones come too late.
    """
    page, last = node - index.state[INNER_NODES], distances.size - 1
    older, younger, position = index.query
    while page != NONE:
        count = index.pages[page, COUNT]
        index.state[SEARCH_COST] += count + 1
        for x in range(count):
            slot, limit, age_term = index.pages[page, FIRST_RECORD + x], distances[last], 0.0
            if slot <= older or slot >= younger:
                if omega_p > 0.0:
                    step = omega_p * float(held.positions[slot] - position)
                    age_term = step * step
                    if age_term > limit and slot <= older:
                        continue
                if age_term > limit or bound > limit or (bound == limit and slot > found[last]):
                    return
                _insert(index, index.points[page, x], slot, age_term, distances, found)
        page = index.pages[page, NEXT_PAGE]


@njit_in_place
def _insert(
    index: CellIndex, row: Float64Vector, slot: int, age_term: float, distances: Float64Vector, found: Int64Vector
) -> None:
    """Put a record into the order of what was found, if it comes before the last; ``aged`` is what its age makes."""
    distance, i = age_term, distances.size - 1
    for j in range(index.point.size):
        difference = row[j] - index.point[j]
        distance += difference * difference
    if distance > distances[i] or (distance == distances[i] and slot > found[i]):
        return
    while i > 0 and (distances[i - 1] > distance or (distances[i - 1] == distance and found[i - 1] > slot)):
        distances[i] = distances[i - 1]
        found[i] = found[i - 1]
        i -= 1
    distances[i] = distance
    found[i] = slot
    index.state[SEARCH_COST] += (distances.size - i) >> 2
