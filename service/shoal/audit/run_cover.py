"""Runs of rows to clusters, in a topic: clusters of one transaction do not stand in the order of the evidence.

Rows equal on all quasi-identifiers may belong to several clusters with equal centroids, next to each other or
far apart. Whether whole clusters can be laid along them is searched for, cluster by cluster, in the order of the
evidence, turning back where that leads nowhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from shoal.audit.clusters import RecomputedCluster
from shoal.audit.releases import Rows

__all__ = ["Parted", "part", "runs"]

MOST_TRIES = 64
"""Places where a cluster is tried, per row; few are needed unless hundreds of clusters look alike."""

Content: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parted:
    """Clusters with the row where each begins; else the row where it failed, or None if it was given up."""

    found: list[tuple[int, RecomputedCluster]]
    stuck: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether there may be a way that was not tried."""
        return not self.found and self.stuck is None


def runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Stretches of neighbouring rows that are equal on all quasi-identifiers: first, and one after the last."""
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows.quasi[index] != rows.quasi[start]:
            yield start, index
            start = index


def part(rows: Rows, places: list[tuple[int, int]], clusters: list[RecomputedCluster]) -> Parted:
    """Lay clusters with one and the same centroid along the runs that have it.

    Parameters
    ----------
    rows : Rows
        Of one partition.
    places : list of (int, int)
        The runs, in their order.
    clusters : list of Cluster
        In the order of the evidence.

    Returns
    -------
    Parted
        With members in byte order if there is such a way, else in any.
    """
    here = Counter(kept for start, stop in places for kept in rows.kept[start:stop])
    if here != Counter(kept for cluster in clusters for kept in cluster.kept):
        return Parted([], stuck=places[0][0])
    rising = _Search(rows, places, clusters, rising=True).run()
    if rising.found or rising.is_open:
        return rising
    return _Search(rows, places, clusters, rising=False).run()


class _Search:
    """One search for whole clusters along runs; every row is covered once or the search has failed."""

    def __init__(
        self, rows: Rows, places: list[tuple[int, int]], clusters: list[RecomputedCluster], *, rising: bool
    ) -> None:
        self._rows, self._rising = rows, rising
        self._ends = [stop for start, stop in places for _ in range(start, stop)]
        self._order = [index for start, stop in places for index in range(start, stop)]
        self._sizes = sorted({len(cluster.kept) for cluster in clusters})
        # Last comes first: the stacks are taken from their ends.
        self._waiting: dict[Content, list[tuple[int, RecomputedCluster]]] = defaultdict(list)
        for number, cluster in reversed(list(enumerate(clusters))):
            self._waiting[tuple(sorted(cluster.kept))].append((number, cluster))

    def run(self) -> Parted:
        """Search until all rows are covered, nothing is left to try, or too much was tried."""
        path: list[tuple[int, Content, tuple[int, RecomputedCluster]]] = []
        options = [self._options(0)]
        position = furthest = 0
        tries = MOST_TRIES * len(self._order)
        while position < len(self._order):
            tries -= len(self._sizes)
            if tries < 0:
                return Parted([])
            if options[-1]:
                content = options[-1].pop()
                path.append((position, content, self._waiting[content].pop()))
                position += len(content)
                furthest = max(furthest, position)
                options.append(self._options(position))
            elif path:
                options.pop()
                position, content, wrong = path.pop()
                self._waiting[content].append(wrong)
            else:
                return Parted([], stuck=self._order[min(furthest, len(self._order) - 1)])
        return Parted([(self._order[begin], cluster) for begin, _, (_, cluster) in path])

    def _options(self, position: int) -> list[Content]:
        """Contents of waiting clusters that fit here, the one named first by the evidence at the end."""
        if position == len(self._order):
            return []
        begin, stop = self._order[position], self._ends[position]
        fitting = []
        for size in self._sizes:
            end = begin + size
            if end > stop or (self._rising and not all(self._rows.rises[begin + 1 : end])):
                break
            content = tuple(sorted(self._rows.kept[begin:end]))
            if self._waiting.get(content):
                fitting.append(content)
        return sorted(fitting, key=lambda content: self._waiting[content][-1][0], reverse=True)
