"""Rules nearest and awo for large buffers: the same decisions as a full scan, found through a cell index.

An index pays where many records with few attributes are held. `IndexedExpiry` counts what searches cost and what full
scans would have cost, rebuilds the index when the buffer has been compacted, and falls back to full scans where the
index does not pay. Costs are counted in records read, not in seconds, so that they do not depend on the machine.

Parameters that all kernels of the rules share are described in `expiry`.

A cell index of the held records: space is halved recursively into cells that list their records, oldest first.

The index finds the records nearest to a held record, and it gives the answer of a full scan, ties and rounding
included. Lower bounds are computed with the operations of the distances themselves, which round monotonically. Of
equally distant records the older is nearer. The index is derived from the held records only: built again from the same
records, on any machine, it gives the same answers.

The cells are the leaves of a binary tree ([1]_); node ``i`` has the children ``2i + 1`` and ``2i + 2``. Nodes do not
change between two builds ([2]_). A record that arrives is appended to its cell, and a record that leaves is removed
from it. The position is not an attribute of nodes: a younger record stands later in its cell, and if positions have a
weight, it is farther from the oldest record.

References
----------
.. [1] J. H. Friedman, J. L. Bentley, R. A. Finkel, "An Algorithm for Finding Best Matches in Logarithmic Expected
   Time", ACM TOMS 3(3), 1977. doi:10.1145/355744.355745
.. [2] J. L. Bentley, "K-d Trees for Semidynamic Point Sets", SCG 1990. doi:10.1145/98524.98564
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from shoal.arrays import Float64Cube, Float64Vector, Int32Matrix, Int32Vector, Int64Vector
from shoal.kernels.jit import njit, njit_inline, njit_inner
from shoal.kernels.kd_tree import push_children, split_at_median
from shoal.streams.expiry import (
    NEWEST_POSITION,
    STAGED,
    Candidates,
    StreamConstraints,
    Workspace,
    add_member,
    append_until_due,
    empty_candidates,
    limit_shares_and_reset,
    opportunity_cost,
    set_candidate,
    write_point,
)
from shoal.streams.growth import GrowthRule, grow
from shoal.streams.held_records import (
    CLUSTERS,
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
    suppress_in_place,
)
from shoal.streams.nearest import NearestRule
from shoal.streams.steering import update_weight

__all__ = [
    "BUILT_AT",
    "NONE",
    "SCAN_COST",
    "SEARCH_COST",
    "CellIndex",
    "IndexedExpiry",
    "IndexedGrowthRule",
    "IndexedNearestRule",
    "build",
    "decide_due_by_index",
    "empty_cell_index",
    "find_nearest",
    "insert_arrived",
    "remove_from_index",
]

CELL_SIZE = 8
"""Largest number of records of a cell when the index is built."""

PAGE_SIZE = 14
"""Records on a page; with two more integers they fill one cache line. A cell gets further pages as records arrive."""

COUNT, NEXT_PAGE, FIRST_RECORD = range(3)
"""Entries of a page: the number of its records, the next page of the same cell or `NONE`, and the first record."""

LOW, HIGH = 0, 1
"""Indices into the second axis of `CellIndex.boxes`."""

SCANNED_BY_AGE = 256
"""Records of about the same age that are read before any cell if positions have a weight. They often suffice."""

MAX_GAP = 1 << 62
"""Larger than any difference of positions."""

NONE = -1
"""Stands for no page in a list of pages, and for no index in ``state[BUILT_AT]``."""

MAX_DEPTH = 64
"""More levels than any tree has."""

OLDER, YOUNGER = 0, 1
"""Indices into `CellIndex.query`."""

INNER_NODES, INSERTED_UP_TO, BUILT_AT, SEARCH_COST, SCAN_COST, PAGES_USED = range(6)
"""Indices into `CellIndex.state`."""


class CellIndex(NamedTuple):
    """Nodes, cells with their records on pages, and scratch arrays of a search.

    Attributes
    ----------
    axes, cuts : int32 (nodes,), float64 (nodes,)
        Attribute by which a node is halved, and the largest value of its left child.
    boxes : float64 (nodes, 2, d)
        Lower and upper bounds of the coordinates in each node.
    pages : int32 (pages, 2 + PAGE_SIZE)
        Number of records, next page, and slots of the records, oldest first. Page i is the first page of leaf i.
    points : float64 (pages, PAGE_SIZE, d)
        Coordinates of these records.
    last_page : int32 (leaves,)
        Last page of each leaf.
    leaf_of : int32 (capacity,)
        Leaf of the record in each slot.
    stack_nodes, stack_bounds : int64, float64 (MAX_DEPTH,)
        Nodes that a search has yet to visit, and lower bounds of their distances.
    point : float64 (d,)
        Coordinates of the record whose nearest are searched.
    query : int64 (3,)
        Slots before and behind the records that have been read by age, and the position of the record.
    state : int64 (6,)
        Number of inner nodes; slot up to which records are inserted; `HeldRecords.gap_state` at the build, or `NONE`;
        records and nodes read since; records that full scans would have read, counted by the caller; pages in use.
    """

    axes: Int32Vector
    cuts: Float64Vector
    boxes: Float64Cube
    pages: Int32Matrix
    points: Float64Cube
    last_page: Int32Vector
    leaf_of: Int32Vector
    stack_nodes: Int64Vector
    stack_bounds: Float64Vector
    point: Float64Vector
    query: Int64Vector
    state: Int64Vector


def empty_cell_index(capacity: int, dimensions: int) -> CellIndex:
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
        query=np.zeros(3, np.int64),
        state=np.array([0, 0, NONE, 0, 0, 0]),
    )


@njit
def build(index: CellIndex, held: HeldRecords, order: Int64Vector, keys: Float64Vector) -> None:
    """Build the index over the held records; ``order`` and ``keys`` (capacity,) are scratch.

    Cost: O(n log n) for n held records.
    """
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
def insert_arrived(index: CellIndex, held: HeldRecords) -> None:
    """Insert all records that have arrived since the last call."""
    inner, start, tail, leaf_of = (
        index.state[INNER_NODES],
        index.state[INSERTED_UP_TO],
        held.extent[TAIL],
        index.leaf_of,
    )
    leaf_of[start:tail] = 0
    level = 0
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
def find_nearest(
    index: CellIndex, held: HeldRecords, omega_p: float, slot: int, distances: Float64Vector, found: Int64Vector
) -> None:
    """Write the nearest records of a held record to ``found`` (slots) and ``distances``, ordered by (distance, age).

    Parameters
    ----------
    index, held, omega_p
        Index, held records, weight of the position.
    slot : int
        Slot of the record.
    distances : ndarray of float64, shape (m,)
        Overwritten with squared distances, ascending. More than m records must be held.
    found : ndarray of int64, shape (m,)
        Overwritten with the slots of the records at these distances.

    Notes
    -----
    The search reads the record's own leaf first, then other nodes in the order of the tree, and skips a node whose
    lower bound exceeds the last distance found.
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
        index.stack_nodes[0] = node_upwards + 1 if node_upwards % 2 else node_upwards - 1
        index.stack_bounds[0] = _min_distance_to_node(index, index.stack_nodes[0], base)
        node_upwards = (node_upwards - 1) // 2
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node, bound = index.stack_nodes[waiting], index.stack_bounds[waiting]
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
            waiting = push_children(index.stack_nodes, index.stack_bounds, waiting, node, left, right)


@njit_inline
def _min_distance_to_node(index: CellIndex, node: int, base: float) -> float:
    """Return the smallest squared distance of the point from a node, added to ``base``."""
    total = base
    for j in range(index.point.size):
        difference = max(index.boxes[node, LOW, j] - index.point[j], index.point[j] - index.boxes[node, HIGH, j], 0.0)
        total += difference * difference
    return total


@njit_inline
def _scan_by_age(
    index: CellIndex, held: HeldRecords, omega_p: float, distances: Float64Vector, found: Int64Vector
) -> float:
    """Read records of about the same age; return the smallest squared age term of all other records."""
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


@njit_inline
def _scan_leaf(
    index: CellIndex,
    held: HeldRecords,
    omega_p: float,
    node: int,
    bound: float,
    distances: Float64Vector,
    found: Int64Vector,
) -> None:
    """Read the records of a leaf that have not been read by age, oldest first.

    ``bound`` is a lower bound of their distances. If the age alone makes a younger record too distant, all records
    behind it are too distant as well. If the last record found is as near as ``bound``, younger records cannot replace
    it.
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


@njit_inline
def _insert(
    index: CellIndex, row: Float64Vector, slot: int, age_term: float, distances: Float64Vector, found: Int64Vector
) -> None:
    """Insert a record into what was found if it comes before the last; ``age_term`` is the share of its age."""
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


Scan: TypeAlias = Callable[[DecisionBuffer, Int64Vector], None]

BUILD_COST = 160
"""Cost of building an index, per record, in records read by a full scan."""

RETRY_AFTER = 1 << 16
"""Records that arrive before an index is tried again where it did not pay."""

DONE, NOT_BUILT, TOO_COSTLY, TOO_FEW = range(4)
"""Results of `decide_due_by_index`: all staged records are appended; the index is not built over the present slots; the
index costs more than full scans; too few records are held for an index.
"""

LOOKUP_COST = 8
"""Cost of reading one record through the index, in records read by a full scan."""

WIDENING = 4
"""Factor by which a search is widened if the records found have fewer than k subjects."""

TRIAL_DECISIONS = 16
"""Decisions for which an index may cost as much as full scans before it is given up."""


class IndexedExpiry:
    """Decides on expiring records through a cell index or by full scans; the decisions are the same.

    Parameters
    ----------
    buffer, constraints, workspace
        Those of the rule.
    candidates : Candidates
        Those of rule awo; without entries for rule nearest.
    min_held : int
        Held records from which an index is built.
    scan : callable
        Appends the remaining staged records and decides by full scans.

    Notes
    -----
    The index is not part of the state that must survive a restart. Where it does not pay (many attributes, large k, one
    subject with most records), full scans are used for the next `RETRY_AFTER` records.
    """

    def __init__(
        self,
        buffer: Buffer,
        constraints: StreamConstraints,
        workspace: Workspace,
        candidates: Candidates,
        min_held: int,
        scan: Scan,
    ) -> None:
        self._buffer, self._constraints, self._workspace = buffer, constraints, workspace
        self._candidates, self._scan = candidates, scan
        self._index = empty_cell_index(buffer.capacity, len(buffer.held.coordinates))
        self._min_held, self._retry_in, self._built_over = min_held, 0, 0

    def precompile(self) -> None:
        """Compile all kernels by building an index over no records."""
        self._build_index()
        self._scan_rest(empty_decision_buffer(0), np.zeros(2, np.int64))

    def decide_due(self, decisions: DecisionBuffer, staged: int) -> None:
        """Append so many staged records and decide on each expiring record."""
        cursor, held, workspace = np.array([staged, -1]), self._buffer.held, self._workspace
        index, candidates, constraints = self._index, self._candidates, self._constraints
        self._retry_in = max(0, self._retry_in - staged)
        while (
            status := decide_due_by_index(held, workspace, index, candidates, decisions, constraints, cursor)
        ) != DONE:
            if not self._should_build(status):
                self._scan_rest(decisions, cursor)
                return
            self._build_index()

    def _should_build(self, status: int) -> bool:
        """Whether to build the index anew; False for a while after it did not pay."""
        if status == TOO_FEW or len(self._buffer) < self._min_held:
            return False
        if status == TOO_COSTLY or not self._was_worthwhile():
            self._retry_in = RETRY_AFTER
        return self._retry_in == 0

    def _was_worthwhile(self) -> bool:
        """Whether the last index saved more than it cost; True if none has been built."""
        cost = LOOKUP_COST * self._index.state[SEARCH_COST] + BUILD_COST * self._built_over
        return bool(cost <= self._index.state[SCAN_COST])

    def _build_index(self) -> None:
        self._built_over = len(self._buffer)
        build(self._index, self._buffer.held, self._workspace.members, self._workspace.distances)

    def _scan_rest(self, decisions: DecisionBuffer, cursor: Int64Vector) -> None:
        """Discard the index and decide on the remaining staged records by full scans."""
        self._index.state[SEARCH_COST] = self._index.state[SCAN_COST] = self._built_over = 0
        self._index.state[BUILT_AT] = NONE
        if self._buffer.held.gap_state[GAP_COUNT]:
            self._buffer.compact(int(cursor[STAGED]))
        self._scan(decisions, cursor)


class _IndexedRule(NearestRule):
    """A rule that decides on expiring records through `IndexedExpiry`."""

    _indexed: IndexedExpiry

    def precompile(self) -> None:
        """Compile the kernels of full scans and of the index."""
        super().precompile()
        self._indexed.precompile()

    def _decide_staged(self, decisions: DecisionBuffer, staged: int) -> None:
        self._indexed.decide_due(decisions, staged)

    def _flush(self, decisions: DecisionBuffer, newest: int) -> None:
        self._buffer.compact()
        super()._flush(decisions, newest)


class IndexedNearestRule(_IndexedRule):
    """Rule nearest for large buffers; finds the nearest records through a cell index.

    Parameters
    ----------
    buffer, constraints
        As of `NearestRule`.
    min_held : int
        Held records from which an index is built.

    Notes
    -----
    Cost per cluster: about O(k + log held) for few attributes, and never much above that of `NearestRule`.
    """

    def __init__(self, buffer: Buffer, constraints: StreamConstraints, min_held: int) -> None:
        super().__init__(buffer, constraints)
        no_candidates = empty_candidates(0, len(buffer.held.coordinates), constraints.k, 0.0)
        self._indexed = IndexedExpiry(buffer, constraints, self._workspace, no_candidates, min_held, self._decide_due)


class IndexedGrowthRule(_IndexedRule, GrowthRule):
    """Rule awo for large buffers; finds candidates and their opportunity costs through a cell index.

    Parameters
    ----------
    buffer, constraints, opportunity_weight
        As of `GrowthRule`; the weight is above 0.
    min_held : int
        Held records from which an index is built.

    Notes
    -----
    Cost per cluster: about O(k^2 + k log held) for few attributes, and never much above that of `GrowthRule`.
    """

    def __init__(
        self, buffer: Buffer, constraints: StreamConstraints, opportunity_weight: float, min_held: int
    ) -> None:
        super().__init__(buffer, constraints, opportunity_weight)
        self._indexed = IndexedExpiry(
            buffer, constraints, self._workspace, self._candidates, min_held, self._decide_due
        )


@njit
def decide_due_by_index(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    cursor: Int64Vector,
) -> int:
    """Append staged records and decide on each expiring record, as long as the index pays.

    If the result is not `DONE`, the oldest held record expires and has not been decided on.
    """
    scans = candidates.records.size + 1  # full scans that one decision would take
    while True:
        cause = append_until_due(held, workspace, constraints, cursor)
        if cause == NOT_DUE:
            return DONE
        if index.state[BUILT_AT] != held.gap_state[COMPACTIONS]:
            return NOT_BUILT
        held_count = held.extent[TAIL] - held.extent[HEAD] - held.gap_state[GAP_COUNT]
        if held_count < scans + constraints.k:  # enough candidates for the next decision, whichever records leave now
            return TOO_FEW
        if LOOKUP_COST * index.state[SEARCH_COST] > index.state[SCAN_COST] + TRIAL_DECISIONS * scans * held_count:
            return TOO_COSTLY
        insert_arrived(index, held)
        clusters_before = decisions.counts[CLUSTERS]
        if candidates.records.size > 0:
            has_decided = _grow_from_index(
                held, workspace, index, candidates, decisions, constraints, cursor[NEWEST_POSITION], cause, held_count
            )
        else:
            has_decided = _release_nearest_from_index(
                held, workspace, index, decisions, constraints, cursor[NEWEST_POSITION], cause, held_count
            )
        if not has_decided:
            return TOO_COSTLY
        update_weight(constraints.omega_p, constraints.target, decisions, clusters_before)
        index.state[SCAN_COST] += scans * held_count


@njit_inline
def _grow_from_index(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    candidates: Candidates,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    newest: int,
    cause: int,
    held_count: int,
) -> bool:
    """Decide as `growth.decide_by_growth` does; return False if too many records would have to be read."""
    head, omega_p, count = held.extent[HEAD], constraints.omega_p[0], candidates.records.size
    found, others = workspace.heap[:count], workspace.members[: constraints.k - 1]
    find_nearest(index, held, omega_p, head, workspace.nearest_distances[:count], found)
    for candidate in range(count):
        set_candidate(held, candidates, candidate, found[candidate] - head, omega_p)
        find_nearest(index, held, omega_p, found[candidate], candidates.smallest_squared_distances, others)
        candidates.opportunity_costs[candidate] = opportunity_cost(
            candidates, constraints, newest - held.positions[found[candidate]]
        )
    write_point(held, 0, omega_p, candidates.centroid)
    size = grow(held, workspace, candidates, constraints.k, count)
    has_enough = workspace.numbering.size[0] == constraints.k
    limit_shares_and_reset(workspace, size, constraints.max_share if has_enough else 1.0)
    if not has_enough:
        return _release_nearest_from_index(held, workspace, index, decisions, constraints, newest, cause, held_count)
    _release(held, workspace, index, decisions, size, newest, cause)
    return True


@njit_inline
def _release(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    decisions: DecisionBuffer,
    size: int,
    newest: int,
    cause: int,
) -> None:
    """Record the cluster, and remove its members from the index."""
    members = workspace.members[: _sort_members(workspace.members[:size])]
    for record in members:
        remove_from_index(index, held.extent[HEAD] + record)
    release_in_place(held, decisions, members, newest, cause)


@njit_inline
def _release_nearest_from_index(
    held: HeldRecords,
    workspace: Workspace,
    index: CellIndex,
    decisions: DecisionBuffer,
    constraints: StreamConstraints,
    newest: int,
    cause: int,
    held_count: int,
) -> bool:
    """Decide as `nearest.decide_by_distance` does; return False if too many records would have to be read."""
    head, wanted = held.extent[HEAD], constraints.k - 1
    subjects = held.subjects[head : held.extent[TAIL]]
    while True:
        found = workspace.heap[:wanted]
        find_nearest(index, held, constraints.omega_p[0], head, workspace.nearest_distances[:wanted], found)
        for i in range(wanted):
            found[i] -= head
        size, subjects_in = _add_found(subjects, found, workspace, constraints.k)
        limit_shares_and_reset(workspace, size, constraints.max_share if subjects_in == constraints.k else 1.0)
        if subjects_in == constraints.k:
            _release(held, workspace, index, decisions, size, newest, cause)
            return True
        if wanted == held_count - 1:
            break
        wanted = min(WIDENING * wanted, held_count - 1)
        if wanted * wanted > LOOKUP_COST * held_count:
            return False
    remove_from_index(index, head)
    suppress_in_place(held, decisions, newest, cause)
    return True


@njit_inline
def _add_found(subjects: Int64Vector, found: Int64Vector, workspace: Workspace, k: int) -> tuple[int, int]:
    """Add the oldest record and those found until k subjects are members; return the members and subjects added."""
    subjects_in, size = add_member(workspace, subjects, 0, 0), 1
    for record in found:
        if subjects_in == k:
            break
        subjects_in += add_member(workspace, subjects, record, size)
        size += 1
    return size, subjects_in


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
