"""Rule awo for many held records: the same decisions as by scans of all of them, found through a cell index.

Space is halved recursively into cells that list their records, oldest first. The cells are the leaves of a binary tree
([1]_); node ``i`` has the children ``2i + 1`` and ``2i + 2``. Nodes do not change between two builds ([2]_). A record
that arrives is appended to its cell, and a record that leaves is removed from it.

The index gives the answers of a full scan, ties and rounding included: lower bounds are computed with the operations of
the distances themselves, which round monotonically. It is derived from the held records only, and is no part of the
state that must survive a restart.

Whether it pays is counted in records read, so that two machines do the same work. Where it does not, all held records
are scanned for the next `RETRY_AFTER` records.

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
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.kd_tree import push_children, split_at_median
from shoal.streams.expiry import (
    NEWEST_POSITION,
    STAGED,
    StreamConstraints,
    StreamState,
    append_until_due,
    limit_shares_and_reset,
    write_point,
)
from shoal.streams.growth import Candidates, GrowthRule, grow, opportunity_cost, set_candidate
from shoal.streams.held_records import (
    COMPACTIONS,
    GAP_COUNT,
    HEAD,
    NOT_DUE,
    TAIL,
    Buffer,
    DecisionBuffer,
    HeldRecords,
    empty_decision_buffer,
    release_in_place,
)

INDEXED_FROM = 4000
"""Held records from which the index is used. With 5,000 it doubles the speed at least, with 2,000 it gains nothing."""
MAX_INDEXED_DIMENSIONS = 8  # coordinates up to which the index may be faster than a scan
CELL_SIZE = 8  # largest number of records of a cell when the index is built
PAGE_SIZE = 14
"""Records on a page; with two more integers they fill one cache line. A cell gets further pages as records arrive."""
COUNT, NEXT_PAGE, FIRST_RECORD = range(3)
"""Entries of a page: the number of its records, the next page of the same cell or `NONE`, and the first record."""
LOW, HIGH = 0, 1
"""Indices into the second axis of `CellIndex.boxes`."""
NONE = -1  # stands for no page in a list of pages, and for no index in ``state[BUILT_AT]``
MAX_DEPTH = 64  # more levels than any tree has
INNER_NODES, INSERTED_UP_TO, BUILT_AT, SEARCH_COST, SCAN_COST, PAGES_USED = range(6)
"""Indices into `CellIndex.state`: number of inner nodes; slot up to which records are inserted; compactions of the
buffer at the build, or `NONE`; records and nodes read since; records that scans would have read; pages in use."""
RETRY_AFTER = 1 << 16  # records that arrive before an index is tried again where it did not pay
LOOKUP_COST = 8  # cost of reading one record through the index, in records read by a scan
TRIAL_DECISIONS = 16  # decisions for which an index may cost as much as scans before it is given up
DONE, NOT_BUILT, TOO_COSTLY, TOO_FEW = range(4)
"""Results of `decide_due_by_index`; the last: too few records or subjects are found for the decision."""


def is_indexable(buffer: Buffer, constraints: StreamConstraints) -> bool:
    """Whether the index may be faster than scans. Cells bound numeric coordinates only, and know no position."""
    has_weight = constraints.omega_p[0] > 0.0 or constraints.target.span >= 0.0
    is_narrow = len(buffer.held.coordinates) <= MAX_INDEXED_DIMENSIONS and not len(buffer.held.code_distances)
    return constraints.delta >= INDEXED_FROM and is_narrow and not has_weight


class CellIndex(NamedTuple):
    """Nodes, cells with their records on pages, and scratch arrays of a search."""

    axes: Int32Vector  # (nodes,): attribute by which a node is halved
    cuts: Float64Vector  # (nodes,): largest value of its left child
    boxes: Float64Cube  # (nodes, 2, d): lower and upper bounds of the coordinates in each node
    pages: Int32Matrix  # (pages, 2 + PAGE_SIZE): entries as above, records as slots, oldest first; page i begins leaf i
    points: Float64Cube  # (pages, PAGE_SIZE, d): coordinates of these records
    last_page: Int32Vector  # (leaves,): last page of each leaf
    leaf_of: Int32Vector  # (capacity,): leaf of the record in each slot
    stack_nodes: Int64Vector  # (MAX_DEPTH,): nodes that a search has yet to visit
    stack_bounds: Float64Vector  # (MAX_DEPTH,): lower bounds of their distances
    point: Float64Vector  # (d,): the record whose nearest are searched
    state: Int64Vector  # (6,)


class IndexedGrowthRule(GrowthRule):
    """Rule awo without a weight of the position; finds candidates and their opportunity costs through a cell index.

    Cost per cluster: about O(k^2 + k log held) for few attributes, and never much above that of `GrowthRule`.
    """

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float) -> None:
        super().__init__(buffer, constraints, opportunity_weight)
        self._index = _empty_cell_index(buffer.capacity, len(buffer.held.coordinates))
        self._retry_in = 0

    def precompile(self) -> None:
        """Compile the kernels of scans and of the index."""
        super().precompile()
        self._build_index()
        self._scan_rest(empty_decision_buffer(0), np.zeros(2, np.int64))

    def _decide_due(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        stream, index, candidates = self._stream, self._index, self._candidates
        self._retry_in = max(0, self._retry_in - int(cursor[STAGED]))
        while (status := decide_due_by_index(stream, index, candidates, decisions, cursor)) != DONE:
            if status == TOO_COSTLY:
                self._retry_in = RETRY_AFTER
            if status == TOO_FEW or self._retry_in or len(self._buffer) < INDEXED_FROM:
                self._scan_rest(decisions, cursor)
                return
            self._build_index()

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        self._buffer.compact()
        super()._flush(decisions, newest)

    def _build_index(self) -> None:
        workspace = self._stream.workspace
        build(self._index, self._buffer.held, workspace.members, workspace.distances)

    def _scan_rest(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        """Discard the index and decide on the remaining staged records by scans."""
        self._index.state[[BUILT_AT, SEARCH_COST, SCAN_COST]] = NONE, 0, 0
        if self._buffer.held.gap_state[GAP_COUNT]:
            self._buffer.compact(int(cursor[STAGED]))
        super()._decide_due(decisions, cursor)


def _empty_cell_index(capacity: int, dimensions: int) -> CellIndex:
    """Allocate the arrays once."""
    leaves = 1
    while leaves * CELL_SIZE < capacity:
        leaves *= 2
    pages = leaves + capacity // PAGE_SIZE + 1  # a further page is used only when another one is full
    return CellIndex(
        axes=np.zeros(leaves, np.int32),
        cuts=np.zeros(leaves),
        boxes=np.zeros((2 * leaves, 2, dimensions)),
        pages=np.zeros((pages, 2 + PAGE_SIZE), np.int32),
        points=np.zeros((pages, PAGE_SIZE, dimensions)),
        last_page=np.zeros(leaves, np.int32),
        leaf_of=np.zeros(capacity, np.int32),
        stack_nodes=np.zeros(MAX_DEPTH, np.int64),
        stack_bounds=np.zeros(MAX_DEPTH),
        point=np.zeros(dimensions),
        state=np.array([0, 0, NONE, 0, 0, 0]),
    )


@njit
def build(index: CellIndex, held: HeldRecords, order: Int64Vector, keys: Float64Vector) -> None:
    """Build the index over the held records in O(n log n); ``order`` and ``keys`` (capacity,) are scratch."""
    values, n = held.coordinates.T, _list_held(held, order)
    depth = 0
    while (n >> depth) > CELL_SIZE and (2 << depth) <= index.last_page.size:
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
        index.pages[x, COUNT], index.pages[x, NEXT_PAGE], index.last_page[x] = 0, NONE, x
        for y in range((x * n) >> depth, ((x + 1) * n) >> depth):
            index.leaf_of[order[y]] = x
    for x in range(_list_held(held, order)):
        _append(index, held, order[x])
    index.state[INNER_NODES], index.state[INSERTED_UP_TO] = (1 << depth) - 1, held.extent[TAIL]
    index.state[BUILT_AT] = held.gap_state[COMPACTIONS]
    index.state[SEARCH_COST] = index.state[SCAN_COST] = 0


@njit
def decide_due_by_index(
    stream: StreamState, index: CellIndex, candidates: Candidates, decisions: DecisionBuffer, cursor: Int64Vector
) -> int:
    """Append staged records and decide on each expiring record, as long as the index pays."""
    held, members = stream.held, stream.workspace.members
    scans = candidates.records.size + 1  # scans that one decision would take
    while True:
        cause = append_until_due(stream, cursor)
        if cause == NOT_DUE:
            return DONE
        if index.state[BUILT_AT] != held.gap_state[COMPACTIONS]:
            return NOT_BUILT
        held_count = held.extent[TAIL] - held.extent[HEAD] - held.gap_state[GAP_COUNT]
        if (
            held_count < scans + stream.constraints.k
        ):  # enough candidates for the next decision, whichever records leave now
            return TOO_FEW
        if LOOKUP_COST * index.state[SEARCH_COST] > index.state[SCAN_COST] + TRIAL_DECISIONS * scans * held_count:
            return TOO_COSTLY
        insert_arrived(index, held)
        size = _grow_from_index(stream, index, candidates, cursor[NEWEST_POSITION])
        if size == 0:
            return TOO_FEW
        kept = _sort_members(members[:size])
        for record in members[:kept]:
            remove_from_index(index, held.extent[HEAD] + record)
        release_in_place(held, decisions, members[:kept], cursor[NEWEST_POSITION], cause)
        index.state[SCAN_COST] += scans * held_count


@njit_inline
def _grow_from_index(stream: StreamState, index: CellIndex, candidates: Candidates, newest: int) -> int:
    """Write the cluster of `growth.select_by_growth` to `Workspace.members` (-1: removed); return its size or 0."""
    held, workspace, constraints = stream.held, stream.workspace, stream.constraints
    head, count = held.extent[HEAD], candidates.records.size
    found, others = workspace.heap[:count], workspace.members[: constraints.k - 1]
    find_nearest(index, held, head, workspace.nearest_distances[:count], found)
    for candidate in range(count):
        set_candidate(held, candidates, candidate, found[candidate] - head, 0.0)
        find_nearest(index, held, found[candidate], candidates.smallest_squared_distances, others)
        age = newest - held.positions[found[candidate]]
        candidates.opportunity_costs[candidate] = opportunity_cost(candidates, constraints.delta, age)
    write_point(held, 0, 0.0, candidates.centroid)
    size = grow(stream, candidates, count)
    has_enough = workspace.numbering.size[0] == constraints.k
    limit_shares_and_reset(workspace, size, constraints.max_share if has_enough else 1.0)
    return size if has_enough else 0


@njit_inline
def insert_arrived(index: CellIndex, held: HeldRecords) -> None:
    """Insert all records that have arrived since the last call."""
    inner, start, level = index.state[INNER_NODES], index.state[INSERTED_UP_TO], 0
    tail, leaf_of = held.extent[TAIL], index.leaf_of
    leaf_of[start:tail] = 0
    while level < inner:  # level by level, so that the processor can handle many records at once
        for slot in range(start, tail):
            node = leaf_of[slot]
            leaf_of[slot] = 2 * node + 1 + (held.coordinates[index.axes[node], slot] > index.cuts[node])
        level = 2 * level + 1
    for slot in range(start, tail):
        leaf_of[slot] -= inner
        _append(index, held, slot)
    index.state[INSERTED_UP_TO] = tail


@njit_inline
def remove_from_index(index: CellIndex, slot: int) -> None:
    """Remove a record; the records behind it on its page move up."""
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


@njit_inline
def find_nearest(index: CellIndex, held: HeldRecords, slot: int, distances: Float64Vector, found: Int64Vector) -> None:
    """Write the m nearest records of the one in ``slot`` to ``found`` (slots) and ``distances``, by (distance, age)."""
    inner, last, point = index.state[INNER_NODES], distances.size - 1, index.point
    for j in range(point.size):
        point[j] = held.coordinates[j, slot]
    distances[:] = np.inf
    found[:] = held.removed.size
    node_upwards = inner + index.leaf_of[slot]
    _scan_leaf(index, node_upwards, slot, 0.0, distances, found)
    while node_upwards > 0:
        index.stack_nodes[0] = node_upwards + 1 if node_upwards % 2 else node_upwards - 1
        index.stack_bounds[0] = _min_distance_to_node(index, index.stack_nodes[0])
        node_upwards = (node_upwards - 1) // 2
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node, bound = index.stack_nodes[waiting], index.stack_bounds[waiting]
            index.state[SEARCH_COST] += 1
            if bound > distances[last]:
                continue
            if node >= inner:
                _scan_leaf(index, node, slot, bound, distances, found)
                continue
            left, right = _min_distance_to_node(index, 2 * node + 1), _min_distance_to_node(index, 2 * node + 2)
            waiting = push_children(index.stack_nodes, index.stack_bounds, waiting, node, left, right)


@njit_inline
def _min_distance_to_node(index: CellIndex, node: int) -> float:
    """Return the smallest squared distance of the point from a node."""
    total = 0.0
    for j in range(index.point.size):
        difference = max(index.boxes[node, LOW, j] - index.point[j], index.point[j] - index.boxes[node, HIGH, j], 0.0)
        total += difference * difference
    return total


@njit_inline
def _scan_leaf(
    index: CellIndex, node: int, own: int, bound: float, distances: Float64Vector, found: Int64Vector
) -> None:
    """Read the records of a leaf but that in slot ``own``, oldest first, until ``bound`` excludes younger ones."""
    page, last = node - index.state[INNER_NODES], distances.size - 1
    while page != NONE:
        count = index.pages[page, COUNT]
        index.state[SEARCH_COST] += count + 1
        for x in range(count):
            slot, limit = index.pages[page, FIRST_RECORD + x], distances[last]
            if slot != own:
                if bound > limit or (bound == limit and slot > found[last]):
                    return
                _insert(index, index.points[page, x], slot, distances, found)
        page = index.pages[page, NEXT_PAGE]


@njit_inline
def _insert(index: CellIndex, row: Float64Vector, slot: int, distances: Float64Vector, found: Int64Vector) -> None:
    """Insert a record into what was found if it comes before the last."""
    distance, i = 0.0, distances.size - 1
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


@njit_inline
def _list_held(held: HeldRecords, order: Int64Vector) -> int:
    """Write the slots of the held records to ``order``, oldest first; return how many there are."""
    n = 0
    for slot in range(held.extent[HEAD], held.extent[TAIL]):
        order[n] = slot
        n += not held.removed[slot]
    return n


@njit_inner
def _split_node(index: CellIndex, node: int, axis: int, keys: Float64Vector) -> None:
    """Set the children of a node; ``keys`` are the values of its lower half on the axis."""
    cut = -np.inf
    for key in keys:
        cut = max(cut, key)
    index.axes[node], index.cuts[node] = axis, cut
    for child in (2 * node + 1, 2 * node + 2):
        index.boxes[child] = index.boxes[node]
    index.boxes[2 * node + 1, HIGH, axis] = index.boxes[2 * node + 2, LOW, axis] = cut


@njit_inline
def _append(index: CellIndex, held: HeldRecords, slot: int) -> None:
    """Write a record to the last page of its leaf, or to a new page."""
    leaf = index.leaf_of[slot]
    page = index.last_page[leaf]
    if index.pages[page, COUNT] == PAGE_SIZE:
        new = index.state[PAGES_USED]
        index.state[PAGES_USED] = new + 1
        index.pages[page, NEXT_PAGE] = index.last_page[leaf] = new
        index.pages[new, COUNT], index.pages[new, NEXT_PAGE] = 0, NONE
        page = index.last_page[leaf]
    count = index.pages[page, COUNT]
    index.pages[page, FIRST_RECORD + count] = slot
    for j in range(index.point.size):
        index.points[page, count, j] = held.coordinates[j, slot]
    index.pages[page, COUNT] = count + 1


@njit_inline
def _sort_members(members: Int64Vector) -> int:
    """Move the members (-1: removed) to the front, oldest first; return how many there are."""
    size = 0
    for record in members:
        if record >= 0:
            i = size
            while i > 0 and members[i - 1] > record:
                members[i] = members[i - 1]
                i -= 1
            members[i] = record
            size += 1
    return size
