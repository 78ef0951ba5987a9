"""Rule block, and the end of streams under rules greedy, awo and block, in plain Python.

The start of a partition and its descent are given as functions, which a test takes from elsewhere; repairs, exchanges
and merges are those of this package. A record's ``x`` are the points whose distances count; its numbers and codes are
kept beside them, by position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oracle.exchange import Exchanges, Labels, clusters_of
from oracle.growth import NaiveGrowth
from oracle.naive import FLUSHED, NaiveStream
from oracle.partitions import mean, squared_distance

__all__ = ["Mixed", "NaivePartition"]

Points = list[list[float]]


@dataclass(frozen=True)
class Mixed:
    """Numbers and codes of all records, by position, and what a column of codes costs."""

    numeric: Sequence[Sequence[float]] = ()
    codes: Sequence[Sequence[int]] = ()
    costs: Sequence[float] = ()
    agree: Sequence[bool] = ()


def cluster_size(subjects: Sequence[int], k: int) -> int:
    """Records a cluster, if there are as many clusters as can have k different subjects each, and 5 % to spare."""
    counts = [subjects.count(subject) for subject in set(subjects)]
    for clusters in range(len(subjects) // k, 1, -1):
        if sum(min(count, clusters) for count in counts) >= 1.05 * k * clusters:
            return len(subjects) // clusters
    return len(subjects)


@dataclass
class NaivePartition(NaiveGrowth):
    """Held records are released as a table: at the end of the stream, and under rule block when one expires."""

    k: int
    delta: int
    omega_p: float
    max_share: float
    mixed: Mixed
    start: Callable[[Points, int], Labels]
    descend: Callable[[Points, Labels, int, Sequence[int], float], Labels]
    releases_all: bool = False
    exchanges: int = field(default=0, init=False)
    repairs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(self.k, self.delta, self.omega_p, self.max_share)

    def expire(self, cause: int) -> None:
        if cause == FLUSHED:
            NaiveStream.expire(self, cause)
            return
        labels, is_feasible = self.partition() if self.releases_all else ([], False)
        if is_feasible:
            self.release_partition(labels, cause)
        else:
            super().expire(cause)

    def flush(self) -> None:
        labels, is_feasible = self.partition()
        if labels and (is_feasible or self.merge(labels)):
            self.release_partition(labels, FLUSHED)
        super().flush()

    def release_partition(self, labels: Labels, cause: int) -> None:
        held = list(self.buffer)
        for members in sorted(filter(None, clusters_of(labels))):
            self.release([held[i] for i in members], cause)

    def partition(self) -> tuple[Labels, bool]:
        """The cluster of each held record, and whether all clusters satisfy the constraints; no labels if none may."""
        if self.subjects_held() < self.k:
            return [], False
        positions = [record["position"] for record in self.buffer]
        points = [self.row(record) for record in self.buffer]
        owners = [record["subject"] for record in self.buffer]
        known = sorted(set(owners))
        subjects = [known.index(owner) for owner in owners] if len(known) < len(owners) else []
        exchanges, is_large = self.exchanges_of(positions, subjects), len(points) >= 2 * self.k
        labels, is_feasible, is_changed = [0] * len(points), True, False
        if is_large:
            labels = self.descend(points, self.start(points, self.k), self.k, [], self.max_share)
        if subjects:
            descended = labels
            labels, is_feasible = exchanges.repaired(descended)
            is_changed = labels != descended
            if not is_feasible and is_large:
                size = cluster_size(subjects, self.k)
                start = self.start(points, size) if len(points) >= 2 * size else [0] * len(points)
                labels, is_feasible = exchanges.repaired(start)
                is_changed = True
        if is_changed and is_feasible:
            self.repairs += 1
            labels = self.descend(points, labels, self.k, subjects, self.max_share)
        if is_large and self.mixed.costs:
            before = labels
            labels = self.exchanges_of(positions, subjects if is_feasible else []).exchanged(before)
            self.exchanges += labels != before
        return labels, is_feasible

    def exchanges_of(self, positions: list[int], subjects: list[int]) -> Exchanges:
        first = positions[0]
        weighted = [[self.omega_p * float(position - first)] if self.omega_p > 0 else [] for position in positions]
        rows = [[*self.mixed.numeric[p], *extra] for p, extra in zip(positions, weighted, strict=True)]
        columns = list(zip(*(self.mixed.codes[p] for p in positions), strict=True))
        return Exchanges(rows, columns, self.mixed.costs, self.mixed.agree, subjects, self.max_share, self.k)

    def merge(self, labels: Labels) -> bool:
        """Merge the first cluster that violates a constraint with the nearest one, until none does."""
        points = [self.row(record) for record in self.buffer]
        exchanges = self.exchanges_of([r["position"] for r in self.buffer], [r["subject"] for r in self.buffer])
        while True:
            clusters = {number: members for number, members in enumerate(clusters_of(labels)) if members}
            violating = [number for number, members in clusters.items() if exchanges.violation(members)]
            if not violating:
                return True
            one = violating[0]
            means = {number: mean(points, members) for number, members in clusters.items()}
            others = [number for number in clusters if number != one]
            if not others:
                return False
            into = min(others, key=lambda number: (squared_distance(means[number], means[one]), number))
            labels[:] = [into if label == one else label for label in labels]
