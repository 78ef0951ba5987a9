"""The released rows against the recomputed ones: nothing else, nothing missing, and in no telling order."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import eq

from shoal.audit.check_counter import CheckCounter
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.audit.releases import ReleasedRows, Rows
from shoal.audit.run_cover import part, runs

__all__ = ["compare_rows", "judge_order"]


def compare_rows(release: ReleasedRows, clusters: list[RecomputedCluster]) -> list[CheckCounter]:
    """Compare the multisets of each partition.

    Returns
    -------
    list of Tally
        ``nothing_else``: rows that no cluster explains. ``nothing_missing``: clusters with a row that was not
        released. A wrong centroid or a changed value is both.
    """
    extra = CheckCounter("nothing_else", "every row is the recomputed row of a member of a cluster")
    missing = CheckCounter("nothing_missing", "every recomputed row of a cluster was released", "cluster")
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


def judge_order(
    release: ReleasedRows, clusters: list[RecomputedCluster], originals: Originals, *, keeps_order: bool
) -> list[CheckCounter]:
    """Judge where rows stand: members of a cluster together and in byte order, clusters as they were decided.

    A file that is in byte order as a whole tells no more about arrival; one in the order of its input does, and
    is let pass, unexamined, only where the summary owns to it (``keeps_order``).
    """
    together = CheckCounter(
        "together", "members of a cluster stand together, equal on all quasi-identifiers", "cluster"
    )
    ordered = CheckCounter("byte_order", "members of a cluster stand in byte order")
    parts: dict[int, list[RecomputedCluster]] = defaultdict(list)
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


def _stands_in_turn(rows: Rows, clusters: list[RecomputedCluster]) -> bool:
    together = CheckCounter("", "")
    _judge_in_turn(rows, clusters, together, CheckCounter("", ""))
    return not together.failed


def _judge_in_turn(
    rows: Rows, clusters: list[RecomputedCluster], together: CheckCounter, ordered: CheckCounter
) -> None:
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


def _is_run(rows: Rows, start: int, stop: int, cluster: RecomputedCluster) -> bool:
    if stop > len(rows) or any(quasi != cluster.quasi for quasi in rows.quasi[start:stop]):
        return False
    return sorted(rows.kept[start:stop]) == sorted(cluster.kept)


def _judge_bytes(rows: Rows, start: int, stop: int, ordered: CheckCounter) -> None:
    for index in range(start, stop):
        ordered.expect(index == start or bool(rows.rises[index]), rows.lines[index])


def _follows_input(rows: Rows, clusters: list[RecomputedCluster], originals: Originals) -> bool:
    placed = sorted((index, cluster.quasi) for cluster in clusters for index in cluster.members)
    texts = ((quasi, originals.kept[index]) for index, quasi in placed)
    return len(placed) == len(rows) and all(map(eq, texts, zip(rows.quasi, rows.kept, strict=True)))


# ---------------------------------------------------------------- topics


def _judge_runs(rows: Rows, clusters: list[RecomputedCluster], together: CheckCounter, ordered: CheckCounter) -> None:
    """Look for whole clusters wherever rows are equal on all quasi-identifiers."""
    waiting: dict[str, list[RecomputedCluster]] = defaultdict(list)
    for cluster in clusters:
        waiting[cluster.quasi].append(cluster)
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for start, stop in runs(rows):
        places[rows.quasi[start]].append((start, stop))
    for quasi, here in places.items():
        together.examined += len(waiting[quasi])
        parted = part(rows, here, waiting[quasi])
        if parted.is_open:
            together.leave("too many clusters with equal centroids look alike to tell where each stands")
        elif parted.stuck is not None:
            together.fail(f"row {rows.lines[parted.stuck]}")
        for begin, cluster in parted.found:
            _judge_bytes(rows, begin, begin + len(cluster.kept), ordered)
