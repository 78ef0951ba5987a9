"""A k-d tree that supports removal: exact nearest and farthest neighbours among the remaining records.

The tree is balanced and never rebuilt; its boxes shrink as records are removed. Node ``i`` has the children ``2i + 1``
and ``2i + 2``. The records of a leaf are stored together, one attribute after the other, so that a leaf is scanned with
vector instructions. Where boxes exclude nothing (many attributes), a search becomes a scan in blocks.

All bounds are computed with the operations of the distances themselves, which round monotonically. No bound is
therefore on the wrong side, and ties stay ties. Of equally distant records the one with the lowest number wins.

References
----------
.. [1] J. H. Friedman, J. L. Bentley, R. A. Finkel, "An Algorithm for Finding Best Matches in Logarithmic Expected
   Time", ACM TOMS 3(3), 1977. doi:10.1145/355744.355745
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Cube, Float64Matrix, Float64Vector, Int32Matrix, Int64Matrix, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.pieces import pieces, search_cost

NO_RECORD = np.iinfo(np.int64).max
"""Stands for no record; larger than any record number."""
SAMPLED_ROWS = 512
"""Rows from which the attribute to cut is chosen. The choice affects the speed only."""
LOWEST, ANY = 0, 1
"""How ties are resolved: the lowest record number, or any of the equally distant records."""
MAX_DEPTH = 64
"""More levels than any tree has."""


class Tree(NamedTuple):
    """Records in leaves of up to ``width``, and a box around the remaining records of each node."""

    points: Float64Cube  # (leaves, d, width)
    records: Int64Matrix  # (leaves, width)
    counts: Int64Vector  # (leaves,): remaining records, which come first
    low: Float64Matrix  # (nodes, d)
    high: Float64Matrix  # (nodes, d)
    first: Int64Vector  # (nodes,): the lowest remaining record number
    leaves: Int64Vector  # (n,): leaf of each record


class NeighbourSearch(NamedTuple):
    """The nearest records found so far, ordered by (distance, record), and scratch arrays of a search."""

    distances: Float64Vector  # (wanted,) squared
    records: Int64Vector  # (wanted,)
    nodes: Int64Vector  # (MAX_DEPTH,): stack of nodes to visit
    bounds: Float64Vector  # (MAX_DEPTH,): bounds of their distances
    row: Float64Vector  # (width,): distances in one leaf


@njit_inner
def empty_neighbour_search(wanted: int, width: int) -> NeighbourSearch:
    """Allocate a search for the ``wanted`` nearest records."""
    return NeighbourSearch(
        np.full(wanted, np.inf),
        np.full(wanted, NO_RECORD),
        np.zeros(MAX_DEPTH, np.int64),
        np.zeros(MAX_DEPTH),
        np.zeros(width),
    )


@njit
def build(values: Float64Matrix, width: int) -> Tree:
    """Build the tree of ``values`` (n, d) by halving the widest attribute down to leaves of ``width`` records."""
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
    leaf_size = ((n - 1) >> depth) + 1
    tree = Tree(
        np.zeros((leaves, d, leaf_size)),
        np.zeros((leaves, leaf_size), np.int64),
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


@njit_inner
def _widest(values: Float64Matrix, order: Int64Vector, start: int, end: int) -> int:
    """Return the attribute with the largest range, as estimated from some hundreds of records."""
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


@njit_inner
def split_at_median(
    values: Float64Matrix, order: Int64Vector, keys: Float64Vector, start: int, end: int, middle: int
) -> int:
    """Move the lower half in the widest attribute before ``middle``, by selection; return the attribute.

    ``keys`` are overwritten with the values of that attribute in the new order.
    """
    j = _widest(values, order, start, end)
    for x in range(start, end):
        keys[x] = values[order[x], j]
    first, last = start, end
    while last - first > 1:
        a, b, c = keys[first], keys[(first + last) // 2], keys[last - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        cut = _partition_below(order, keys, first, last, pivot)
        if cut == first:  # no value is lower
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


@njit_inline
def _partition_below(order: Int64Vector, keys: Float64Vector, first: int, last: int, limit: float) -> int:
    """Move entries below a limit to the front, without branches; return the index of the first other entry."""
    cut = first
    for x in range(first, last):
        key, record = keys[x], order[x]
        keys[x], order[x] = keys[cut], order[cut]
        keys[cut], order[cut] = key, record
        cut += key < limit
    return cut


@njit_inline
def _fit_leaf(tree: Tree, leaf: int) -> None:
    """Set the box of a leaf to its remaining records. The box of an empty leaf is inverted and infinitely distant."""
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


@njit_inline
def _fit_node(tree: Tree, node: int) -> bool:
    """Set the box of an inner node to the boxes of its children; return whether it changed."""
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


@njit_inner
def contains(tree: Tree, record: int) -> bool:
    """Whether a record has not been removed."""
    leaf = tree.leaves[record]
    entry, count = 0, tree.counts[leaf]
    while entry < count and tree.records[leaf, entry] != record:
        entry += 1
    return bool(entry < count)


@njit_inner
def remove(tree: Tree, record: int) -> None:
    """Remove a record and shrink the boxes that it bounded."""
    leaf = tree.leaves[record]
    last = tree.counts[leaf] - 1
    entry = 0
    while tree.records[leaf, entry] != record:
        entry += 1
    node = tree.counts.size - 1 + leaf
    on_boundary = record == tree.first[node]
    for j in range(tree.low.shape[1]):
        value = tree.points[leaf, j, entry]
        on_boundary = on_boundary or value == tree.low[node, j] or value == tree.high[node, j]
        tree.points[leaf, j, entry] = tree.points[leaf, j, last]
    tree.records[leaf, entry] = tree.records[leaf, last]
    tree.counts[leaf] = last
    if on_boundary:
        _fit_leaf(tree, leaf)
        while node > 0:
            node = (node - 1) // 2
            if not _fit_node(tree, node):
                return


@njit_inline
def _min_distance_to_box(tree: Tree, node: int, point: Float64Vector) -> float:
    """Return the squared distance from a point to the nearest point of a box."""
    total = 0.0
    for j in range(point.size):
        away = max(tree.low[node, j] - point[j], point[j] - tree.high[node, j], 0.0)
        total += away * away
    return total


@njit_inline
def _max_distance_to_box(tree: Tree, node: int, point: Float64Vector) -> float:
    """Return the squared distance from a point to the farthest corner of a box; -1 if the box is empty."""
    if tree.low[node, 0] > tree.high[node, 0]:
        return -1.0
    total = 0.0
    for j in range(point.size):
        away = max(abs(point[j] - tree.low[node, j]), abs(point[j] - tree.high[node, j]))
        total += away * away
    return total


@njit_inline
def _measure(tree: Tree, leaf: int, point: Float64Vector, row: Float64Vector) -> int:
    """Write the squared distances of the remaining records of a leaf to ``row``; return how many there are."""
    count = tree.counts[leaf]
    points = tree.points[leaf]
    row.fill(0.0)
    for j in range(point.size):
        centre = point[j]
        column = points[j]
        for x in range(column.size):  # also beyond the count, because a constant length is faster
            away = column[x] - centre
            row[x] += away * away
    return int(count)


@njit_inline
def _scan(tree: Tree, leaf: int, point: Float64Vector, found: NeighbourSearch) -> None:
    """Insert the records of a leaf that are nearer than the last one found."""
    last = found.distances.size - 1
    limit = found.distances[last]
    for x in range(_measure(tree, leaf, point, found.row)):
        distance = found.row[x]
        if distance <= limit:
            _insert(found, distance, tree.records[leaf, x], last)
            limit = found.distances[last]


@njit_inline
def _insert(found: NeighbourSearch, distance: float, record: int, last: int) -> None:
    """Insert a record in order, if it comes before the last one found."""
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


@njit_inner
def nearest(tree: Tree, point: Float64Vector, leaf: int, found: NeighbourSearch, ties: int = LOWEST) -> None:
    """Find the ``found.records.size`` records nearest to a point; if fewer remain, the rest is `NO_RECORD`.

    The search starts at ``leaf``; the leaf that contains the point is the fastest, and the result is the same. ``ties``
    is `LOWEST` or `ANY`.
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
            left = _min_distance_to_box(tree, 2 * node + 1, point)
            right = _min_distance_to_box(tree, 2 * node + 2, point)
            waiting = push_children(found.nodes, found.bounds, waiting, node, left, right)


@njit_inline
def push_children(nodes: Int64Vector, bounds: Float64Vector, waiting: int, node: int, left: float, right: float) -> int:
    """Push the children of a node and the bounds of their distances on a stack, the nearer last; return its length."""
    nearer = 2 * node + 1 if left <= right else 2 * node + 2
    nodes[waiting], bounds[waiting] = 4 * node + 3 - nearer, max(left, right)
    nodes[waiting + 1], bounds[waiting + 1] = nearer, min(left, right)
    return waiting + 2


@njit_inner
def farthest(tree: Tree, point: Float64Vector, found: NeighbourSearch) -> int:
    """Return the remaining record that is farthest from a point; of equally distant ones the lowest."""
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
            left = _max_distance_to_box(tree, 2 * node + 1, point)
            right = _max_distance_to_box(tree, 2 * node + 2, point)
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


def neighbours_of(rows: Float64Matrix, count: int, width: int) -> Int32Matrix:
    """Return the ``count`` < n nearest neighbours of each row, the nearest first; ``width`` limits leaves.

    Ties are resolved by the tree and not by the record number. With the lowest numbers, all records of a group of equal
    records would have the same neighbours.
    """
    n, d = rows.shape
    tree, neighbours = build(rows, width), np.zeros((n, count), np.int32)
    for first, end in pieces("nearest neighbours", n, search_cost(n, d)):
        _write_neighbours(tree, rows, first, end, neighbours)
    return neighbours


@njit
def _write_neighbours(tree: Tree, rows: Float64Matrix, first: int, end: int, neighbours: Int32Matrix) -> None:
    """Write the nearest neighbours of some rows (n, d), to their rows (n, count)."""
    count = neighbours.shape[1]
    found = empty_neighbour_search(count + 1, tree.records.shape[1])
    for i in range(first, end):
        nearest(tree, rows[i], tree.leaves[i], found, ANY)
        x = 0
        for record in found.records:
            if record != i and x < count:
                neighbours[i, x] = record
                x += 1
