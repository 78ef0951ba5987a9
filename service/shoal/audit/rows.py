"""Compares the released rows with the recomputed ones: their contents, and their order.

Contents are compared as multisets per partition. The order must not show more than the clusters: rows of a cluster
are adjacent and in byte order. In the file of a stream the clusters stand in the order of the evidence. The rows of a
table are sorted as a whole, or in the order of the input if the policy allows it: clusters one after the other would
show the order of arrival. In a topic one transaction may hold several clusters: there they are searched for along runs
of equal rows.

Checks the order of the clusters in a topic against their numbers.

A service numbers the clusters of a partition in the order of decision. Each transaction holds the clusters that were
decided since the one before, sorted by their first rows. An export does not show where transactions end. Between two
clusters an end is possible only if every cluster before it has a smaller number than every cluster after it. So the
clusters between two possible ends are those of one transaction, and their first rows must ascend.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import eq
from typing import NamedTuple, TypeAlias

from shoal.audit.clusters import RecomputedCluster, clusters_by_partition, has_repeated_numbers
from shoal.audit.originals import Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.verdict import CheckCounter

__all__ = [
    "LOOK_ALIKE",
    "AllowedOrder",
    "LocatedClusters",
    "RowOrder",
    "RunCover",
    "check_order",
    "check_topic_order",
    "compare_rows",
    "cover_runs",
    "equal_runs",
    "is_in_input_order",
    "repeated_numbers",
]

MAX_TRIES_PER_ROW = 64
"""Limit of the search for a run cover. It is reached only where hundreds of clusters have equal centroids."""

LOOK_ALIKE = "too many clusters with equal centroids look alike to tell where each stands"

Contents: TypeAlias = tuple[str, ...]
"""Unchanged fields of the rows of a cluster, sorted."""


class AllowedOrder(NamedTuple):
    """Allowed orders of the rows of a file: sorted by bytes as a whole, that of the input, or both.

    If neither is allowed, the clusters stand one after the other. If one is, they must not.
    """

    sorted_as_whole: bool
    order_of_input: bool


@dataclass(frozen=True, slots=True)
class LocatedClusters:
    """Where the clusters of one partition of a topic stand.

    Attributes
    ----------
    starts : list of (int, RecomputedCluster)
        The first row of each cluster, ascending.
    ambiguous : frozenset of str
        Centroids whose clusters may stand elsewhere: at least two of them are in one run of equal rows.
    """

    starts: list[tuple[int, RecomputedCluster]]
    ambiguous: frozenset[str]


@dataclass(slots=True)
class RowOrder:
    """Result of `check_order`.

    Attributes
    ----------
    checks : list of CheckCounter
        ``together``: the rows of a cluster are adjacent. ``byte_order``: they are in byte order.
    gave_up : bool
        Whether a search for the clusters of a topic was given up.
    located : dict of int to LocatedClusters
        Of a topic, by partition, without partitions in which the search gave up or failed.
    """

    checks: list[CheckCounter]
    gave_up: bool = False
    located: dict[int, LocatedClusters] = field(default_factory=dict)


def compare_rows(release: ReleasedRows, clusters: list[RecomputedCluster]) -> list[CheckCounter]:
    """Compare released and recomputed rows as multisets, per partition.

    Returns
    -------
    list of CheckCounter
        ``nothing_else``: rows that belong to no cluster. ``nothing_missing``: clusters with a row that was not
        released. A wrong centroid or a changed value fails both.
    """
    extra = CheckCounter("nothing_else", "every row is the recomputed row of a member of a cluster")
    missing = CheckCounter("nothing_missing", "every recomputed row of a cluster was released", "cluster")
    unmatched: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for partition, rows in release.by_partition.items():
        unmatched[partition].update(zip(rows.quasi, rows.unchanged, strict=True))
    for cluster in clusters:
        counts = unmatched[cluster.partition]
        is_complete = True
        for unchanged in cluster.unchanged:
            row = (cluster.quasi, unchanged)
            if counts[row] > 0:
                counts[row] -= 1
            else:
                is_complete = False
        missing.expect(is_complete, cluster.label)
    for partition, rows in release.by_partition.items():
        counts = unmatched[partition]
        for line, row in zip(rows.lines, zip(rows.quasi, rows.unchanged, strict=True), strict=True):
            is_surplus = counts[row] > 0
            counts[row] -= is_surplus
            extra.expect(not is_surplus, line)
    return [extra, missing]


def check_order(
    release: ReleasedRows, clusters: list[RecomputedCluster], originals: Originals, *, allowed: AllowedOrder
) -> RowOrder:
    """Check the order of the rows: cluster after cluster as in the evidence, or for a table the allowed orders.

    Rows that are sorted by their bytes as a whole reveal no order of arrival. Rows in the order of the input do, and so
    do the clusters of a table one after the other.

    Returns
    -------
    RowOrder
    """
    together = CheckCounter("together", "rows of a cluster are adjacent and equal on all quasi-identifiers", "cluster")
    ordered = CheckCounter("byte_order", "rows of a cluster are in byte order")
    found = RowOrder([together, ordered])
    by_partition = clusters_by_partition(clusters)
    for partition, rows in release.by_partition.items():
        members = by_partition[partition]
        if release.is_export:
            _check_topic(partition, rows, members, found)
        elif allowed.sorted_as_whole or allowed.order_of_input:
            _check_table(rows, members, originals, allowed, found)
        else:
            _check_file(rows, members, together, ordered)
    return found


# ---------------------------------------------------------------- tables


def _check_table(
    rows: PartitionRows,
    clusters: list[RecomputedCluster],
    originals: Originals,
    allowed: AllowedOrder,
    found: RowOrder,
) -> None:
    together, ordered = found.checks
    if allowed.sorted_as_whole and all(rows.is_ascending) and _is_in_evidence_order(rows, clusters):
        _check_file(rows, clusters, together, ordered)
    elif allowed.order_of_input and is_in_input_order(rows, clusters, originals):
        reason = "the rows are in the order of the input, as the policy allows (table.keep_order)"
        together.skip(reason)
        ordered.skip(reason)
    elif all(rows.is_ascending):
        together.skip("the file is in byte order as a whole: clusters need not be adjacent")
        _check_byte_order(rows, 0, len(rows), ordered)
        ordered.note = "the file is in byte order as a whole"
    else:
        together.skip("the rows of a table need not be adjacent")
        _check_byte_order(rows, 0, len(rows), ordered)
        ordered.note = "the rows of a table must be in byte order as a whole"


# ---------------------------------------------------------------- files of streams


def _is_in_evidence_order(rows: PartitionRows, clusters: list[RecomputedCluster]) -> bool:
    together, ordered = CheckCounter("", ""), CheckCounter("", "")
    _check_file(rows, clusters, together, ordered)
    return not together.failed and not ordered.failed


def _check_file(
    rows: PartitionRows, clusters: list[RecomputedCluster], together: CheckCounter, ordered: CheckCounter
) -> None:
    """Check the clusters one after the other, in the order of the evidence."""
    start = 0
    for cluster in clusters:
        stop = start + len(cluster.unchanged)
        is_here = _is_cluster(rows, start, stop, cluster)
        together.expect(is_here, cluster.label)
        if not is_here:
            together.note = "clusters after the first misplaced one were not examined"
            return
        _check_byte_order(rows, start, stop, ordered)
        start = stop


def _is_cluster(rows: PartitionRows, start: int, stop: int, cluster: RecomputedCluster) -> bool:
    if stop > len(rows) or any(quasi != cluster.quasi for quasi in rows.quasi[start:stop]):
        return False
    return sorted(rows.unchanged[start:stop]) == sorted(cluster.unchanged)


def _check_byte_order(rows: PartitionRows, start: int, stop: int, ordered: CheckCounter) -> None:
    for index in range(start, stop):
        ordered.expect(index == start or bool(rows.is_ascending[index]), rows.lines[index])


def is_in_input_order(rows: PartitionRows, clusters: Iterable[RecomputedCluster], originals: Originals) -> bool:
    """Whether the rows are those of the clusters in the order of the original."""
    members = sorted((index, cluster.quasi) for cluster in clusters for index in cluster.members)
    expected = ((quasi, originals.unchanged[index]) for index, quasi in members)
    return len(members) == len(rows) and all(map(eq, expected, zip(rows.quasi, rows.unchanged, strict=True)))


# ---------------------------------------------------------------- topics


def _check_topic(partition: int, rows: PartitionRows, clusters: list[RecomputedCluster], found: RowOrder) -> None:
    """Search for whole clusters in the runs of equal rows."""
    clusters_of: dict[str, list[RecomputedCluster]] = defaultdict(list)
    # Of clusters with equal rows, the one that was decided first stands first.
    for cluster in sorted(clusters, key=lambda cluster: cluster.number):
        clusters_of[cluster.quasi].append(cluster)
    runs_of: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for start, stop in equal_runs(rows):
        runs_of[rows.quasi[start]].append((start, stop))
    covers = {quasi: cover_runs(rows, runs, clusters_of[quasi]) for quasi, runs in runs_of.items()}
    for quasi, cover in covers.items():
        _check_cover(rows, cover, len(clusters_of[quasi]), found)
    starts = sorted((start for cover in covers.values() for start in cover.starts), key=lambda start: start[0])
    if len(starts) == len(clusters):
        ambiguous = (quasi for quasi, cover in covers.items() if len(cover.starts) > len(runs_of[quasi]))
        found.located[partition] = LocatedClusters(starts, frozenset(ambiguous))


def _check_cover(rows: PartitionRows, cover: RunCover, count: int, found: RowOrder) -> None:
    """Check the rows of one centroid, which has ``count`` clusters."""
    together, ordered = found.checks
    together.examined += count
    if cover.gave_up:
        found.gave_up = True
        together.skip(LOOK_ALIKE)
    elif cover.failed_row is not None:
        together.fail(f"row {rows.lines[cover.failed_row]}")
    for start, cluster in cover.starts:
        _check_byte_order(rows, start, start + len(cluster.unchanged), ordered)


def equal_runs(rows: PartitionRows) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each maximal run of adjacent rows that are equal on all quasi-identifiers."""
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows.quasi[index] != rows.quasi[start]:
            yield start, index
            start = index


@dataclass(frozen=True, slots=True)
class RunCover:
    """Clusters laid along runs of equal rows.

    Attributes
    ----------
    starts : list of (int, RecomputedCluster)
        The first row of each cluster; empty if no cover was found.
    failed_row : int or None
        The row that no cluster can cover; None if a cover was found or the search gave up.
    """

    starts: list[tuple[int, RecomputedCluster]]
    failed_row: int | None = None

    @property
    def gave_up(self) -> bool:
        """Whether the search ended before all combinations were tried."""
        return not self.starts and self.failed_row is None


def cover_runs(rows: PartitionRows, runs: list[tuple[int, int]], clusters: list[RecomputedCluster]) -> RunCover:
    """Cover the runs of one centroid with the clusters that have this centroid.

    Parameters
    ----------
    rows : PartitionRows
    runs : list of (int, int)
        Start and stop of the runs, ascending.
    clusters : list of RecomputedCluster
        In the order of the evidence.

    Returns
    -------
    RunCover
        With the rows of each cluster in byte order if such a cover exists, else in any order.
    """
    released = Counter(unchanged for start, stop in runs for unchanged in rows.unchanged[start:stop])
    if released != Counter(unchanged for cluster in clusters for unchanged in cluster.unchanged):
        return RunCover([], failed_row=runs[0][0])
    ascending = _CoverSearch(rows, runs, clusters, ascending=True).run()
    if ascending.starts or ascending.gave_up:
        return ascending
    return _CoverSearch(rows, runs, clusters, ascending=False).run()


class _CoverSearch:
    """Depth-first search with backtracking for a cover of all rows by whole clusters."""

    def __init__(
        self,
        rows: PartitionRows,
        runs: list[tuple[int, int]],
        clusters: list[RecomputedCluster],
        *,
        ascending: bool,
    ) -> None:
        self._rows, self._ascending = rows, ascending
        self._ends = [stop for start, stop in runs for _ in range(start, stop)]
        self._indices = [index for start, stop in runs for index in range(start, stop)]
        self._sizes = sorted({len(cluster.unchanged) for cluster in clusters})
        # Stacks: the cluster that the evidence names first is at the end.
        self._unused: dict[Contents, list[tuple[int, RecomputedCluster]]] = defaultdict(list)
        for number, cluster in reversed(list(enumerate(clusters))):
            self._unused[tuple(sorted(cluster.unchanged))].append((number, cluster))

    def run(self) -> RunCover:
        """Search until all rows are covered, all combinations have been tried, or the limit is reached."""
        path: list[tuple[int, Contents, tuple[int, RecomputedCluster]]] = []
        candidates = [self._candidates(0)]
        position = furthest = 0
        tries = MAX_TRIES_PER_ROW * len(self._indices)
        while position < len(self._indices):
            tries -= len(self._sizes)
            if tries < 0:
                return RunCover([])
            if candidates[-1]:
                contents = candidates[-1].pop()
                path.append((position, contents, self._unused[contents].pop()))
                position += len(contents)
                furthest = max(furthest, position)
                candidates.append(self._candidates(position))
            elif path:
                candidates.pop()
                position, contents, rejected = path.pop()
                self._unused[contents].append(rejected)
            else:
                return RunCover([], failed_row=self._indices[min(furthest, len(self._indices) - 1)])
        return RunCover([(self._indices[start], cluster) for start, _, (_, cluster) in path])

    def _candidates(self, position: int) -> list[Contents]:
        """Return the contents of unused clusters that fit here; that of the first in the evidence is last."""
        if position == len(self._indices):
            return []
        start, stop = self._indices[position], self._ends[position]
        fitting = []
        for size in self._sizes:
            end = start + size
            if end > stop or (self._ascending and not all(self._rows.is_ascending[start + 1 : end])):
                break
            contents = tuple(sorted(self._rows.unchanged[start:end]))
            if self._unused.get(contents):
                fitting.append(contents)
        return sorted(fitting, key=lambda contents: self._unused[contents][-1][0], reverse=True)


def check_topic_order(release: ReleasedRows, located: Mapping[int, LocatedClusters]) -> CheckCounter:
    """Check that clusters follow each other by their numbers, or by their first rows within one transaction.

    Parameters
    ----------
    release : ReleasedRows
        An export, with the rows as published.
    located : mapping of int to LocatedClusters
        Where the clusters of each partition stand. Partitions in which this is unknown are missing.

    Returns
    -------
    CheckCounter
        ``sequence``. It is not examined if numbers are repeated, and if only clusters that can be mistaken for each
        other stand in another order. Cost: O(m log m) for m clusters.
    """
    claim = "clusters are in the order of their numbers, or sorted by their rows within a transaction"
    check = CheckCounter("sequence", claim, "cluster")
    for partition, found in located.items():
        if has_repeated_numbers([cluster for _, cluster in found.starts]):
            check.skip("the evidence repeats numbers of clusters")
            continue
        rows = release.by_partition[partition]
        unordered = _out_of_order(rows, found.starts)
        if unordered and found.ambiguous:
            certain = [(start, cluster) for start, cluster in found.starts if cluster.quasi not in found.ambiguous]
            unordered = _out_of_order(rows, certain)
            if not unordered:
                check.skip(LOOK_ALIKE)
        check.examined += len(found.starts)
        for cluster in unordered:
            check.fail(cluster.label)
    return check


def _out_of_order(rows: PartitionRows, starts: Sequence[tuple[int, RecomputedCluster]]) -> list[RecomputedCluster]:
    """Return the clusters whose first row is below that of the cluster before it, in the same transaction."""
    found = []
    for members in _transactions(starts):
        # Rows of a cluster that are not in byte order break another check: its smallest row is its first one here.
        first_rows = [min(rows.texts[start : start + len(cluster.unchanged)]) for start, cluster in members]
        found += [
            cluster
            for (before, after), (_, cluster) in zip(pairwise(first_rows), members[1:], strict=True)
            if after < before
        ]
    return found


def _transactions(
    starts: Sequence[tuple[int, RecomputedCluster]],
) -> Iterator[Sequence[tuple[int, RecomputedCluster]]]:
    """Split clusters wherever a transaction may end. Starts ascend."""
    numbers = [cluster.number for _, cluster in starts]
    largest_before = list(accumulate(numbers, max))
    smallest_after = list(accumulate(reversed(numbers), min))[::-1]
    begin = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or largest_before[end - 1] < smallest_after[end]:
            yield starts[begin:end]
            begin = end


def repeated_numbers(clusters: Iterable[RecomputedCluster]) -> list[str]:
    """Return the question that is open if clusters of a partition have the same number; empty if none have."""
    by_partition = clusters_by_partition(clusters)
    partitions = sorted(partition for partition, members in by_partition.items() if has_repeated_numbers(members))
    if not partitions:
        return []
    named = ", ".join(map(str, partitions))
    question = f"the evidence repeats numbers of clusters (partition {named}), so the order of decision is unknown: "
    return [question + "give the evidence of this release alone (--evidence)"]
