"""The released rows against the recomputed ones: nothing else, nothing missing, and in no telling order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from operator import eq

from shoal.audit.clusters import Cluster
from shoal.audit.originals import Originals
from shoal.audit.releases import Release, Rows
from shoal.audit.tally import Tally

__all__ = ["compare_rows", "judge_order", "runs"]

MOST_TRIES = 64
"""Ways tried to part a run that several clusters with equal centroids may share, per row."""


def compare_rows(release: Release, clusters: list[Cluster]) -> list[Tally]:
    """Compare the multisets of each partition.

    Returns
    -------
    list of Tally
        ``nothing_else``: rows that no cluster explains. ``nothing_missing``: clusters with a row that was not
        released. A wrong centroid or a changed value is both.
    """
    extra = Tally("nothing_else", "every row is the recomputed row of a member of a cluster")
    missing = Tally("nothing_missing", "every recomputed row of a cluster was released", "cluster")
    left: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for partition, rows in release.parts.items():
        left[partition].update(zip(rows.quasi, rows.kept, strict=True))
    for cluster in clusters:
        part = left[cluster.partition]
        whole = True
        for kept in cluster.kept:
            row = (cluster.quasi, kept)
            if part[row] > 0:
                part[row] -= 1
            else:
                whole = False
        missing.expect(whole, cluster.place)
    for partition, rows in release.parts.items():
        part = left[partition]
        for line, row in zip(rows.lines, zip(rows.quasi, rows.kept, strict=True), strict=True):
            surplus = part[row] > 0
            part[row] -= surplus
            extra.expect(not surplus, line)
    return [extra, missing]


def judge_order(release: Release, clusters: list[Cluster], originals: Originals, *, keeps_order: bool) -> list[Tally]:
    """Judge where rows stand: members of a cluster together and in byte order, clusters as they were decided.

    A file that is in byte order as a whole tells no more about arrival; one in the order of its input does, and
    is let pass, unexamined, only where the summary owns to it (``keeps_order``).
    """
    together = Tally("together", "members of a cluster stand together, equal on all quasi-identifiers", "cluster")
    ordered = Tally("byte_order", "members of a cluster stand in byte order")
    parts: dict[int, list[Cluster]] = defaultdict(list)
    for cluster in clusters:
        parts[cluster.partition].append(cluster)
    for partition, rows in release.parts.items():
        members = parts[partition]
        if release.wrapped:
            _judge_runs(rows, members, together, ordered)
        elif not _stands_in_turn(rows, members) and all(rows.rises):
            together.leave("the file is in byte order as a whole: clusters need not stand together")
            ordered.examined += len(rows)
            ordered.note = "the file is in byte order as a whole"
        elif keeps_order and _follows_input(rows, members, originals):
            reason = "the rows are in the order of the input, as the summary says: arrival can be read from it"
            together.leave(reason)
            ordered.leave(reason)
        else:
            _judge_in_turn(rows, members, together, ordered)
    return [together, ordered]


# ---------------------------------------------------------------- files


def _stands_in_turn(rows: Rows, clusters: list[Cluster]) -> bool:
    together = Tally("", "")
    _judge_in_turn(rows, clusters, together, Tally("", ""))
    return not together.failed


def _judge_in_turn(rows: Rows, clusters: list[Cluster], together: Tally, ordered: Tally) -> None:
    """Judge the clusters one after the other, in the order of the evidence."""
    start = 0
    for cluster in clusters:
        stop = start + len(cluster.kept)
        placed = _is_run(rows, start, stop, cluster)
        together.expect(placed, cluster.place)
        if not placed:
            together.note = "what follows the first cluster in a wrong place was not examined"
            return
        _judge_bytes(rows, start, stop, ordered)
        start = stop


def _is_run(rows: Rows, start: int, stop: int, cluster: Cluster) -> bool:
    if stop > len(rows) or any(quasi != cluster.quasi for quasi in rows.quasi[start:stop]):
        return False
    return sorted(rows.kept[start:stop]) == sorted(cluster.kept)


def _judge_bytes(rows: Rows, start: int, stop: int, ordered: Tally) -> None:
    for index in range(start, stop):
        ordered.expect(index == start or bool(rows.rises[index]), rows.lines[index])


def _follows_input(rows: Rows, clusters: list[Cluster], originals: Originals) -> bool:
    placed = sorted((index, cluster.quasi) for cluster in clusters for index in cluster.members)
    texts = ((quasi, originals.kept[index]) for index, quasi in placed)
    return len(placed) == len(rows) and all(map(eq, texts, zip(rows.quasi, rows.kept, strict=True)))


# ---------------------------------------------------------------- topics


def _judge_runs(rows: Rows, clusters: list[Cluster], together: Tally, ordered: Tally) -> None:
    """Search each run of equal quasi-identifiers for whole clusters.

    Clusters of one transaction stand in byte order, not in that of the evidence, and neighbours may have equal
    centroids: so a run is parted into clusters by their content.
    """
    waiting: dict[str, _Waiting] = defaultdict(_Waiting)
    for cluster in clusters:
        waiting[cluster.quasi].add(cluster)
    for start, stop in runs(rows):
        # Parts in byte order are what is looked for; only if there are none, parts in any order.
        here = waiting[rows.quasi[start]]
        parted = here.part(rows, start, stop, rising=True) or here.part(rows, start, stop, rising=False)
        if parted is None:
            together.fail(f"row {rows.lines[start]}")
            continue
        for begin, cluster in parted:
            together.examined += 1
            _judge_bytes(rows, begin, begin + len(cluster.kept), ordered)
    for rest in waiting.values():
        for cluster in rest:
            together.expect(False, cluster.place)


class _Waiting:
    """Clusters with one and the same centroid that have not been found in the release yet."""

    def __init__(self) -> None:
        self._by_rows: dict[tuple[str, ...], list[Cluster]] = defaultdict(list)
        self._sizes: list[int] = []

    def __iter__(self) -> Iterator[Cluster]:
        return chain.from_iterable(self._by_rows.values())

    def add(self, cluster: Cluster) -> None:
        self._by_rows[tuple(sorted(cluster.kept))].append(cluster)
        self._sizes = sorted({*self._sizes, len(cluster.kept)}, reverse=True)

    def part(self, rows: Rows, start: int, stop: int, *, rising: bool) -> list[tuple[int, Cluster]] | None:
        """Part a run into clusters, each taken out of those waiting; None if it cannot be done."""
        path: list[tuple[int, Cluster]] = []
        options = [iter(self._sizes)]
        position, tries = start, MOST_TRIES * (stop - start)
        while position < stop:
            cluster = None
            for size in options[-1]:
                tries -= 1
                end = position + size
                if end > stop or (rising and not all(rows.rises[position + 1 : end])):
                    continue
                if cluster := self._take(rows.kept[position:end]):
                    break
            if cluster is not None:
                path.append((position, cluster))
                options.append(iter(self._sizes))
                position += len(cluster.kept)
            elif path and tries > 0:
                options.pop()
                position, wrong = path.pop()
                self._by_rows[tuple(sorted(wrong.kept))].append(wrong)
            else:
                self._put_back(path)
                return None
        return path

    def _take(self, kept: list[str]) -> Cluster | None:
        found = self._by_rows.get(tuple(sorted(kept)))
        return found.pop() if found else None

    def _put_back(self, path: list[tuple[int, Cluster]]) -> None:
        for _, cluster in path:
            self._by_rows[tuple(sorted(cluster.kept))].append(cluster)


def runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Stretches of neighbouring rows that are equal on all quasi-identifiers: first, and one after the last."""
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows.quasi[index] != rows.quasi[start]:
            yield start, index
            start = index
