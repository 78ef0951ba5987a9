"""A k-d tree that records can be taken out of: exact nearest and farthest neighbours among those that are left.

The tree is balanced and never rebuilt; its boxes shrink as records go. Node ``i`` has the children ``2i + 1`` and
``2i + 2``. The records of a leaf lie together, one attribute after the other, so that a leaf is scanned at the speed of
the vector unit; where boxes cannot exclude anything (many attributes) a search becomes a plain scan in blocks.

All bounds are computed with the operations of the distances themselves, which round monotonically: no bound is ever on
the wrong side, and ties are ties. A tie goes to the lowest record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Cube, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place

__all__ = [
    "ANY",
    "LOWEST",
    "NeighbourSearch",
    "Tree",
    "build",
    "contains",
    "empty_neighbour_search",
    "farthest",
    "nearest",
    "push_children",
    "remove",
    "split_at_median",
]

NO_RECORD = np.iinfo(np.int64).max
SAMPLED_ROWS = 512
"""Rows that are looked at to choose where to cut; any cut is a right one."""
LOWEST, ANY = 0, 1
MAX_DEPTH = 64
"""More levels than records could ever fill."""


class Tree(NamedTuple):
    """Records in leaves of up to ``width``, and a box round all that is left below each node."""

    points: Float64Cube  # (leaves, d, width)
    records: Int64Matrix  # (leaves, width)
    counts: Int64Vector  # (leaves,): how many are left, in front
    low: Float64Matrix  # (nodes, d)
    high: Float64Matrix  # (nodes, d)
    first: Int64Vector  # (nodes,): the lowest record that is left below; among equals nobody else matters
    leaves: Int64Vector  # (n,): where each record was put


class NeighbourSearch(NamedTuple):
    """The nearest so far, in order of (distance, record), and scratch of a search."""

    distances: Float64Vector  # (wanted,) squared
    records: Int64Vector  # (wanted,)
    nodes: Int64Vector
    bounds: Float64Vector
    row: Float64Vector  # (width,)


@njit
def empty_neighbour_search(wanted: int, width: int) -> NeighbourSearch:
    """Return room for the ``wanted`` nearest."""
    return NeighbourSearch(
        np.full(wanted, np.inf),
        np.full(wanted, NO_RECORD),
        np.zeros(MAX_DEPTH, np.int64),
        np.zeros(MAX_DEPTH),
        np.zeros(width),
    )


@njit
def build(values: Float64Matrix, width: int) -> Tree:
    """Build the tree of ``values`` (n, d), halving the widest attribute down to leaves of at most ``width``."""
    n, d = values.shape
    depth = 0
    while ((n - 1) >> depth) + 1 > width:
        depth += 1
    leaves = 1 << depth
    order, keys = np.arange(n), np.zeros(n)
    for level in range(depth):
        for node in range(1 << level):
            start, end = (node * n) >> level, ((node + 1) * n) >> level
            middle = ((2 * node + 1) * n) >> (level + 1)
            split_at_median(values, order, keys, start, end, middle)
    room = ((n - 1) >> depth) + 1
    tree = Tree(
        np.zeros((leaves, d, room)),
        np.zeros((leaves, room), np.int64),
        np.zeros(leaves, np.int64),
        np.full((2 * leaves - 1, d), np.inf),
        np.full((2 * leaves - 1, d), -np.inf),
        np.full(2 * leaves - 1, NO_RECORD),
        np.zeros(n, np.int64),
    )
    for leaf in range(leaves):
        start, end = (leaf * n) >> depth, ((leaf + 1) * n) >> depth
        tree.counts[leaf] = end - start
        for x in range(end - start):
            tree.records[leaf, x] = order[start + x]
            tree.leaves[order[start + x]] = leaf
            for j in range(d):
                tree.points[leaf, j, x] = values[order[start + x], j]
        _fit_leaf(tree, leaf)
    for node in range(leaves - 2, -1, -1):
        _fit_node(tree, node)
    return tree


@njit
def _widest(values: Float64Matrix, order: Int64Vector, start: int, end: int) -> int:
    """Return the attribute in which some records are farthest apart, as far as some hundreds of them show."""
    widest, j = -1.0, 0
    step = (end - start) // SAMPLED_ROWS + 1
    for column in range(values.shape[1]):
        low, high = np.inf, -np.inf
        for x in range(start, end, step):
            value = values[order[x], column]
            low, high = min(low, value), max(high, value)
        if high - low > widest:
            widest, j = high - low, column
    return j


@njit
def split_at_median(
    values: Float64Matrix, order: Int64Vector, keys: Float64Vector, start: int, end: int, middle: int
) -> int:
    """Bring what is lower in the widest attribute before ``middle`` (selection by partition); return the attribute.

    ``keys`` are the values of that attribute afterwards, in the new order.
    """
    j = _widest(values, order, start, end)
    for x in range(start, end):
        keys[x] = values[order[x], j]
    first, last = start, end
    while last - first > 1:
        a, b, c = keys[first], keys[(first + last) // 2], keys[last - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        cut = _partition_below(order, keys, first, last, pivot)
        if cut == first:  # nothing is lower
            cut = _partition_below(order, keys, first, last, np.nextafter(pivot, np.inf))
            if cut >= middle:
                return j
        if cut > middle:
            last = cut
        elif cut < middle:
            first = cut
        else:
            return j
    return j


@njit_in_place
def _partition_below(order: Int64Vector, keys: Float64Vector, first: int, last: int, limit: float) -> int:
    """Bring what is below a limit to the front, without a branch to guess; return where the rest begins."""
    cut = first
    for x in range(first, last):
        key, record = keys[x], order[x]
        keys[x], order[x] = keys[cut], order[cut]
        keys[cut], order[cut] = key, record
        cut += key < limit
    return cut


@njit_in_place
def _fit_leaf(tree: Tree, leaf: int) -> None:
    """Draw the box of a leaf round what is left in it; round nothing it is inside out, and infinitely far."""
    node = tree.counts.size - 1 + leaf
    for j in range(tree.low.shape[1]):
        low, high = np.inf, -np.inf
        for x in range(tree.counts[leaf]):
            low, high = min(low, tree.points[leaf, j, x]), max(high, tree.points[leaf, j, x])
        tree.low[node, j], tree.high[node, j] = low, high
    first = NO_RECORD
    for x in range(tree.counts[leaf]):
        first = min(first, tree.records[leaf, x])
    tree.first[node] = first


@njit_in_place
def _fit_node(tree: Tree, node: int) -> bool:
    """Draw the box of an inner node round those of its children; return whether it changed."""
    changed = False
    for j in range(tree.low.shape[1]):
        low = min(tree.low[2 * node + 1, j], tree.low[2 * node + 2, j])
        high = max(tree.high[2 * node + 1, j], tree.high[2 * node + 2, j])
        changed = changed or low != tree.low[node, j] or high != tree.high[node, j]
        tree.low[node, j], tree.high[node, j] = low, high
    first = min(tree.first[2 * node + 1], tree.first[2 * node + 2])
    changed = changed or first != tree.first[node]
    tree.first[node] = first
    return changed


@njit
def contains(tree: Tree, record: int) -> bool:
    """Whether a record has not been removed."""
    leaf = tree.leaves[record]
    place, count = 0, tree.counts[leaf]
    while place < count and tree.records[leaf, place] != record:
        place += 1
    return bool(place < count)


@njit
def remove(tree: Tree, record: int) -> None:
    """Take a record out, and shrink the boxes that it held open."""
    leaf = tree.leaves[record]
    last = tree.counts[leaf] - 1
    place = 0
    while tree.records[leaf, place] != record:
        place += 1
    node = tree.counts.size - 1 + leaf
    on_boundary = record == tree.first[node]
    for j in range(tree.low.shape[1]):
        value = tree.points[leaf, j, place]
        on_boundary = on_boundary or value == tree.low[node, j] or value == tree.high[node, j]
        tree.points[leaf, j, place] = tree.points[leaf, j, last]
    tree.records[leaf, place] = tree.records[leaf, last]
    tree.counts[leaf] = last
    if on_boundary:
        _fit_leaf(tree, leaf)
        while node > 0:
            node = (node - 1) // 2
            if not _fit_node(tree, node):
                return


@njit_in_place
def _min_distance_to_box(tree: Tree, node: int, point: Float64Vector) -> float:
    """Squared distance from a point to the nearest corner or side of a box."""
    total = 0.0
    for j in range(point.size):
        away = max(tree.low[node, j] - point[j], point[j] - tree.high[node, j], 0.0)
        total += away * away
    return total


@njit_in_place
def _max_distance_to_box(tree: Tree, node: int, point: Float64Vector) -> float:
    """Squared distance from a point to the farthest corner of a box; -1 if there is nothing in it."""
    if tree.low[node, 0] > tree.high[node, 0]:
        return -1.0
    total = 0.0
    for j in range(point.size):
        away = max(abs(point[j] - tree.low[node, j]), abs(point[j] - tree.high[node, j]))
        total += away * away
    return total


@njit_in_place
def _measure(tree: Tree, leaf: int, point: Float64Vector, row: Float64Vector) -> int:
    """Write squared distances to what is left in a leaf to ``row``; return how many there are."""
    count = tree.counts[leaf]
    points = tree.points[leaf]
    row.fill(0.0)
    for j in range(point.size):
        centre = point[j]
        column = points[j]
        for x in range(column.size):  # beyond the count as well: a length known beforehand is faster
            away = column[x] - centre
            row[x] += away * away
    return int(count)


@njit_in_place
def _scan(tree: Tree, leaf: int, point: Float64Vector, found: NeighbourSearch) -> None:
    """Enter the records of a leaf that are nearer than the last one found."""
    last = found.distances.size - 1
    limit = found.distances[last]
    for x in range(_measure(tree, leaf, point, found.row)):
        distance = found.row[x]
        if distance <= limit:
            _insert(found, distance, tree.records[leaf, x], last)
            limit = found.distances[last]


@njit_in_place
def _insert(found: NeighbourSearch, distance: float, record: int, last: int) -> None:
    """Put a record into the order, if it comes before the last one."""
    if distance == found.distances[last] and record > found.records[last]:
        return
    i = last
    while i > 0 and (
        found.distances[i - 1] > distance or (found.distances[i - 1] == distance and found.records[i - 1] > record)
    ):
        found.distances[i] = found.distances[i - 1]
        found.records[i] = found.records[i - 1]
        i -= 1
    found.distances[i] = distance
    found.records[i] = record


@njit
def nearest(tree: Tree, point: Float64Vector, leaf: int, found: NeighbourSearch, ties: int = LOWEST) -> None:
    """Find the ``found.records.size`` nearest to a point, beginning with ``leaf`` and going outwards.

    Any leaf will do, the one that the point belongs to is the fastest. Where fewer are left, the rest is `NOBODY`.
    Of equally far ones the lowest are found or, with `ANY`, those near in the tree.
    """
    found.distances.fill(np.inf)
    found.records.fill(NO_RECORD)
    inner, last = tree.counts.size - 1, found.distances.size - 1
    _scan(tree, leaf, point, found)
    climbing = inner + leaf
    while climbing > 0:
        found.nodes[0] = climbing + 1 if climbing % 2 else climbing - 1
        found.bounds[0] = _min_distance_to_box(tree, found.nodes[0], point)
        climbing = (climbing - 1) // 2
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node = found.nodes[waiting]
            bound, limit = found.bounds[waiting], found.distances[last]
            if not bound < limit and not (ties == LOWEST and bound == limit and tree.first[node] < found.records[last]):
                continue
            if node >= inner:
                _scan(tree, node - inner, point, found)
                continue
            left, right = (
                _min_distance_to_box(tree, 2 * node + 1, point),
                _min_distance_to_box(tree, 2 * node + 2, point),
            )
            waiting = push_children(found.nodes, found.bounds, waiting, node, left, right)


@njit_in_place
def push_children(nodes: Int64Vector, bounds: Float64Vector, waiting: int, node: int, left: float, right: float) -> int:
    """Put the children of a node with what bounds their distances on a stack, the nearer on top; return its length."""
    nearer = 2 * node + 1 if left <= right else 2 * node + 2
    nodes[waiting], bounds[waiting] = 4 * node + 3 - nearer, max(left, right)
    nodes[waiting + 1], bounds[waiting + 1] = nearer, min(left, right)
    return waiting + 2


@njit
def farthest(tree: Tree, point: Float64Vector, found: NeighbourSearch) -> int:
    """Return the farthest record that is left."""
    inner = tree.counts.size - 1
    best, record = -1.0, NO_RECORD
    found.nodes[0], found.bounds[0] = 0, _max_distance_to_box(tree, 0, point)
    waiting = 1
    while waiting > 0:
        waiting -= 1
        node = found.nodes[waiting]
        bound = found.bounds[waiting]
        if bound < best or (bound == best and tree.first[node] > record) or bound < 0.0:
            continue
        if node < inner:
            left, right = (
                _max_distance_to_box(tree, 2 * node + 1, point),
                _max_distance_to_box(tree, 2 * node + 2, point),
            )
            farther = 2 * node + 1 if left >= right else 2 * node + 2
            found.nodes[waiting], found.bounds[waiting] = 4 * node + 3 - farther, min(left, right)
            found.nodes[waiting + 1], found.bounds[waiting + 1] = farther, max(left, right)
            waiting += 2
            continue
        leaf = node - inner
        for x in range(_measure(tree, leaf, point, found.row)):
            if found.row[x] > best or (found.row[x] == best and tree.records[leaf, x] < record):
                best, record = found.row[x], tree.records[leaf, x]
    return int(record)
