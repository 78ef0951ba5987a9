"""Where held records lie: space halved again and again into cells, and in each cell its records from old to young.

It answers one question, who is nearest to a held record, and it answers as looking at everybody does, ties
and rounding included: bounds are computed with the operations of the distances themselves, which round monotonically,
and of equally far records the older wins. It holds nothing that is not in the held records: built anew from them, on
another day or machine, it gives the same answers.

Node ``i`` has the children ``2i + 1`` and ``2i + 2``. Cells stay as they are from one building to the next; a record
that arrives is put where it belongs, one that leaves is taken out. The position is no attribute of cells: who is
younger lies farther back in its cell, and if positions have a weight, is farther from the oldest ([1]_ for the tree,
[2]_ for doing without rebalancing).

References
----------
.. [1] J. H. Friedman, J. L. Bentley, R. A. Finkel, "An Algorithm for Finding Best Matches in Logarithmic Expected
   Time", ACM TOMS 3(3), 1977. doi:10.1145/355744.355745
.. [2] J. L. Bentley, "K-d Trees for Semidynamic Point Sets", SCG 1990. doi:10.1145/98524.98564
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Cube, Float64Vector, Int32Matrix, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.numba.kd_tree import push_children, split_at_median
from shoal.clustering.stream.held import EPOCH, HEAD, TAIL, HeldRecords

__all__ = ["BUILT", "LOOKED", "NOBODY", "SPARED", "Cells", "build", "empty_cells", "enter_arrived", "find", "take_out"]

WIDTH = 8
"""Records in a cell when it is built, at most."""
ROOM = 14
"""Records on a page, which with two other numbers fill a line of the processor's cache. Each cell has one page,
and more where many have arrived."""
COUNT, FURTHER, PLACES = range(3)
"""On a page: how many records, the next page of the same leaf or NOBODY, and from where on the records."""
LOW, HIGH = 0, 1
FIRST = 256
"""If positions have a weight, so many of the same age are looked at before any cell: often nobody else matters."""
FARTHEST = 1 << 62
"""Positions are never farther from each other."""
NOBODY = -1
DEEPEST = 64
"""More levels than records could ever fill."""

OLDER, YOUNGER = 0, 1
"""Places in `Cells.query`."""
INNER, ENTERED, BUILT, LOOKED, SPARED, PAGES = range(6)
"""Places in `Cells.state`."""


class Cells(NamedTuple):
    """The cells, their records on pages, and scratch.

    ``state`` (6,): how many nodes are halved; up to which place records have been entered; the epoch of
    `HeldRecords.gaps` whose places these are, or -1; how often a record or node was looked at since, or a found one
    moved down; how often
    records would have been without cells, which is for the user to count; and how many pages are in use.
    """

    axes: Int32Vector  # (nodes,): attribute by which a node is halved
    cuts: Float64Vector  # (nodes,): who is not above goes left
    sides: Float64Cube  # (nodes, 2, d): all of its records are at or above `LOW`, and at or below `HIGH`
    pages: Int32Matrix  # (pages, 2 + ROOM): records from old to young; page i is the first one of leaf i
    points: Float64Cube  # (pages, ROOM, d): their coordinates
    last: Int32Vector  # (leaves,): the last page of each
    leaves: Int32Vector  # (capacity,): where each record was put
    nodes: Int64Vector
    bounds: Float64Vector
    point: Float64Vector  # (d,): whose nearest are looked for
    query: Int64Vector  # (3,): up to which older place and from which younger one on records are left, its position
    state: Int64Vector


def empty_cells(capacity: int, dimensions: int) -> Cells:
    """Allocate the arrays once."""
    leaves = 1
    while leaves * WIDTH < capacity:
        leaves *= 2
    pages = leaves + capacity // ROOM + 1  # a page is taken when another is full
    return Cells(
        axes=np.zeros(leaves, np.int32),
        cuts=np.zeros(leaves),
        sides=np.zeros((2 * leaves, 2, dimensions)),
        pages=np.zeros((pages, 2 + ROOM), np.int32),
        points=np.zeros((pages, ROOM, dimensions)),
        last=np.zeros(leaves, np.int32),
        leaves=np.zeros(capacity, np.int32),
        nodes=np.zeros(DEEPEST, np.int64),
        bounds=np.zeros(DEEPEST),
        point=np.zeros(dimensions),
        query=np.zeros(3, np.int64),
        state=np.array([0, 0, NOBODY, 0, 0, 0]),
    )


@njit
def build(cells: Cells, held: HeldRecords, order: Int64Vector, keys: Float64Vector) -> None:
    """Halve space where the held records lie, and enter them; ``order`` and ``keys`` (capacity,) are scratch.

    Cost: O(n log n) for n held records.
    """
    values, n = held.coordinates.T, _list_held(held, order)
    depth = 0
    while (n >> depth) > WIDTH and (2 << depth) <= cells.last.size:
        depth += 1
    cells.sides[0, LOW] = -np.inf
    cells.sides[0, HIGH] = np.inf
    for level in range(depth):
        for x in range(1 << level):
            start, end, middle = (x * n) >> level, ((x + 1) * n) >> level, ((2 * x + 1) * n) >> (level + 1)
            axis = split_at_median(values, order, keys, start, end, middle)
            _part(cells, (1 << level) - 1 + x, axis, keys[start:middle])
    cells.state[PAGES] = 1 << depth
    for x in range(1 << depth):
        cells.pages[x, COUNT], cells.pages[x, FURTHER], cells.last[x] = 0, NOBODY, x
        for y in range((x * n) >> depth, ((x + 1) * n) >> depth):
            cells.leaves[order[y]] = x
    for x in range(_list_held(held, order)):
        _append(cells, held, order[x])
    cells.state[INNER], cells.state[ENTERED] = (1 << depth) - 1, held.line[TAIL]
    cells.state[BUILT] = held.gaps[EPOCH]
    cells.state[LOOKED] = cells.state[SPARED] = 0


@njit_in_place
def _list_held(held: HeldRecords, order: Int64Vector) -> int:
    """Write the places of all who are held to ``order``, the oldest first; return how many there are."""
    n = 0
    for place in range(held.line[HEAD], held.line[TAIL]):
        order[n] = place
        n += not held.gone[place]
    return n


@njit
def _part(cells: Cells, node: int, axis: int, keys: Float64Vector) -> None:
    """Give a node its children; ``keys`` are what its lower half has on the axis."""
    cut = -np.inf
    for key in keys:
        cut = max(cut, key)
    cells.axes[node], cells.cuts[node] = axis, cut
    for child in (2 * node + 1, 2 * node + 2):
        cells.sides[child] = cells.sides[node]
    cells.sides[2 * node + 1, HIGH, axis] = cells.sides[2 * node + 2, LOW, axis] = cut


@njit_in_place
def _append(cells: Cells, held: HeldRecords, place: int) -> None:
    """Write a record to the last page of its leaf, or to a new one."""
    leaf = cells.leaves[place]
    page = cells.last[leaf]
    if cells.pages[page, COUNT] == ROOM:
        new = cells.state[PAGES]
        cells.state[PAGES] = new + 1
        cells.pages[page, FURTHER] = cells.last[leaf] = new
        cells.pages[new, COUNT], cells.pages[new, FURTHER] = 0, NOBODY
        page = cells.last[leaf]
    count = cells.pages[page, COUNT]
    cells.pages[page, PLACES + count] = place
    for j in range(cells.point.size):
        cells.points[page, count, j] = held.coordinates[j, place]
    cells.pages[page, COUNT] = count + 1


@njit_in_place
def take_out(cells: Cells, place: int) -> None:
    """Take a record out that leaves; those behind it on its page move up."""
    page = cells.leaves[place]
    while True:
        count, x = cells.pages[page, COUNT], 0
        while x < count and cells.pages[page, PLACES + x] != place:
            x += 1
        if x < count:
            break
        page = cells.pages[page, FURTHER]
    for y in range(x, count - 1):
        cells.pages[page, PLACES + y] = cells.pages[page, PLACES + y + 1]
        for j in range(cells.point.size):
            cells.points[page, y, j] = cells.points[page, y + 1, j]
    cells.pages[page, COUNT] = count - 1


@njit_in_place
def enter_arrived(cells: Cells, held: HeldRecords) -> None:
    """Enter all records that have arrived since the last time."""
    inner, start, tail, leaves = cells.state[INNER], cells.state[ENTERED], held.line[TAIL], cells.leaves
    leaves[start:tail] = 0
    level = 0
    while level < inner:  # level by level: the steps of many records do not wait for each other
        for place in range(start, tail):
            node = leaves[place]
            leaves[place] = 2 * node + 1 + (held.coordinates[cells.axes[node], place] > cells.cuts[node])
        level = 2 * level + 1
    for place in range(start, tail):
        leaves[place] -= inner
        _append(cells, held, place)
    cells.state[ENTERED] = tail


@njit_in_place
def find(
    cells: Cells, held: HeldRecords, omega_p: float, its_place: int, distances: Float64Vector, places: Int64Vector
) -> None:
    """Write the nearest to a held record, in order of (distance, age), to ``places`` and ``distances``.

    As many as these have room for; more must be held. Looks at the cell of the record, then at those beside it, ever
    farther out, as far as anybody nearer can be.
    """
    inner, last, point = cells.state[INNER], distances.size - 1, cells.point
    for j in range(point.size):
        point[j] = held.coordinates[j, its_place]
    distances[:] = np.inf
    places[:] = held.gone.size
    cells.query[:] = its_place - 1, its_place + 1, held.positions[its_place]
    base = 0.0
    if omega_p > 0.0:
        base = _look_about(cells, held, omega_p, distances, places)
        if base > distances[last]:
            return
    climbing = inner + cells.leaves[its_place]
    _look_into(cells, held, omega_p, climbing, base, distances, places)
    while climbing > 0:
        cells.nodes[0] = climbing + 1 if climbing % 2 else climbing - 1
        cells.bounds[0] = _gap(cells, cells.nodes[0], base)
        climbing = (climbing - 1) // 2
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node, bound = cells.nodes[waiting], cells.bounds[waiting]
            cells.state[LOOKED] += 1
            if bound > distances[last]:
                continue
            if node >= inner:
                _look_into(cells, held, omega_p, node, bound, distances, places)
                continue
            left, right = _gap(cells, 2 * node + 1, base), _gap(cells, 2 * node + 2, base)
            waiting = push_children(cells.nodes, cells.bounds, waiting, node, left, right)


@njit_in_place
def _gap(cells: Cells, node: int, base: float) -> float:
    """Squared distance from the point to the nearest side of a node, for records as far away in age as ``base``."""
    total = base
    for j in range(cells.point.size):
        away = max(cells.sides[node, LOW, j] - cells.point[j], cells.point[j] - cells.sides[node, HIGH, j], 0.0)
        total += away * away
    return total


@njit_in_place
def _look_about(
    cells: Cells, held: HeldRecords, omega_p: float, distances: Float64Vector, places: Int64Vector
) -> float:
    """Enter those of about the same age into what was found; return what the age of all others makes at least."""
    head, tail, count = held.line[HEAD], held.line[TAIL], 0
    older, younger, its = cells.query
    while True:
        back = held.positions[older] if older >= head else its - FARTHEST
        ahead = held.positions[younger] if younger < tail else its + FARTHEST
        is_younger = ahead - its <= its - back
        step = omega_p * float(ahead - its if is_younger else its - back)
        if count == FIRST or (older < head and younger >= tail):
            break
        place = younger if is_younger else older
        if is_younger:
            younger += 1
        else:
            older -= 1
        if not held.gone[place]:
            count += 1
            _enter(cells, held.coordinates[:, place], place, step * step, distances, places)
    cells.query[OLDER], cells.query[YOUNGER] = older, younger
    cells.state[LOOKED] += count
    return step * step


@njit_in_place
def _look_into(
    cells: Cells,
    held: HeldRecords,
    omega_p: float,
    node: int,
    bound: float,
    distances: Float64Vector,
    places: Int64Vector,
) -> None:
    """Enter the records of a leaf that have not been looked at into what was found, oldest first.

    ``bound``: none is nearer. Whoever is younger than a record that is too far by its age is so too; and once the last
    of those found is as near as anybody can be here, younger ones come too late.
    """
    page, last = node - cells.state[INNER], distances.size - 1
    older, younger, its = cells.query
    while page != NOBODY:
        count = cells.pages[page, COUNT]
        cells.state[LOOKED] += count + 1
        for x in range(count):
            place, worst, aged = cells.pages[page, PLACES + x], distances[last], 0.0
            if place <= older or place >= younger:
                if omega_p > 0.0:
                    step = omega_p * float(held.positions[place] - its)
                    aged = step * step
                    if aged > worst and place <= older:
                        continue
                if aged > worst or bound > worst or (bound == worst and place > places[last]):
                    return
                _enter(cells, cells.points[page, x], place, aged, distances, places)
        page = cells.pages[page, FURTHER]


@njit_in_place
def _enter(
    cells: Cells, row: Float64Vector, place: int, aged: float, distances: Float64Vector, places: Int64Vector
) -> None:
    """Put a record into the order of what was found, if it comes before the last; ``aged`` is what its age makes."""
    distance, i = aged, distances.size - 1
    for j in range(cells.point.size):
        away = row[j] - cells.point[j]
        distance += away * away
    if distance > distances[i] or (distance == distances[i] and place > places[i]):
        return
    while i > 0 and (distances[i - 1] > distance or (distances[i - 1] == distance and places[i - 1] > place)):
        distances[i] = distances[i - 1]
        places[i] = places[i - 1]
        i -= 1
    distances[i] = distance
    places[i] = place
    cells.state[LOOKED] += (distances.size - i) >> 2
