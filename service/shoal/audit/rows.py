"""Compares the released rows with the recomputed ones: their contents, and their order.

Contents are compared as multisets per partition. The order must not show more than the clusters: rows of a cluster
are adjacent and in byte order. In the file of a stream the clusters stand in the order of the evidence. The rows of a
table are sorted as a whole, or in the order of the input if the policy allows it: clusters one after the other would
show the order of arrival. With ``release: ordered`` each row is published at the position of one record of its cluster.

Without evidence, clusters are inferred. A row can be traced to its record if its unchanged fields are unique among the
originals of its partition. Then a cluster is a run of adjacent rows that are equal on all quasi-identifiers and in byte
order. Equal rows elsewhere are not counted: they do not make a cluster of five safe. Two adjacent clusters with equal
centroids and ascending rows are taken for one. This is harmless: a reader of the release cannot tell them apart either.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq
from typing import NamedTuple

from shoal.audit.clusters import BoolVector, RecomputedCluster, clusters_by_partition, has_repeated_numbers
from shoal.audit.evidence import EvidenceCluster
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.scales import PublishedCategories, PublishedValues
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

REMEDY = "give the evidence file (--evidence)"


def compare_rows(release: ReleasedRows, clusters: list[RecomputedCluster]) -> list[CheckCounter]:
    """Compare released and recomputed rows as multisets; a wrong centroid or a changed value fails both checks."""
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
    release: ReleasedRows,
    clusters: list[RecomputedCluster],
    originals: Originals,
    *,
    is_table: bool,
    keeps_order: bool = False,
) -> list[CheckCounter]:
    """Check the order of the rows: ``together`` for the clusters, ``byte_order`` for the rows.

    Rows that are sorted by their bytes as a whole reveal no order of arrival. Rows in the order of the input do, which
    ``keeps_order`` allows, and so do the clusters of a table one after the other.
    """
    together = CheckCounter("together", "rows of a cluster are adjacent and equal on all quasi-identifiers", "cluster")
    ordered = CheckCounter("byte_order", "rows of a cluster are in byte order")
    by_partition = clusters_by_partition(clusters)
    for partition, rows in release.by_partition.items():
        members = by_partition[partition]
        if release.is_export:
            _check_topic(rows, members, together, ordered)
        elif is_table:
            is_kept = keeps_order and is_in_input_order(rows, members, originals)
            _check_table(rows, members, together, ordered, is_kept=is_kept)
        else:
            _check_file(rows, members, together, ordered)
    return [together, ordered]


def is_in_input_order(rows: PartitionRows, clusters: Iterable[RecomputedCluster], originals: Originals) -> bool:
    """Whether the rows are those of the clusters in the order of the original."""
    members = sorted((index, cluster.quasi) for cluster in clusters for index in cluster.members)
    expected = ((quasi, originals.unchanged[index]) for index, quasi in members)
    return len(members) == len(rows) and all(map(eq, expected, zip(rows.quasi, rows.unchanged, strict=True)))


def repeated_numbers(clusters: Iterable[RecomputedCluster]) -> list[str]:
    """Return the question that is open if clusters of a partition have the same number; empty if none have."""
    by_partition = clusters_by_partition(clusters)
    partitions = sorted(partition for partition, members in by_partition.items() if has_repeated_numbers(members))
    if not partitions:
        return []
    named = ", ".join(map(str, partitions))
    question = f"the evidence repeats numbers of clusters (partition {named}), so the order of decision is unknown: "
    return [question + "give the evidence of this release alone (--evidence)"]


def check_ordered_release(
    release: ReleasedRows,
    clusters: list[RecomputedCluster],
    originals: Originals,
    *,
    reveals: bool,
    is_due: BoolVector | None,
) -> list[CheckCounter]:
    """Check a release in which each row is published at the position of a record.

    With ``reveals`` a record has its own unchanged fields at its position; otherwise those of a cluster are assigned to
    its positions in byte order. ``is_due``: which records must have been released; None if the release is a part.
    """
    extra = CheckCounter("nothing_else", "every row is the recomputed row of a member of a cluster")
    released = "every recomputed row of a cluster was released at a position of the cluster"
    missing = CheckCounter("nothing_missing", released, "cluster")
    in_turn = CheckCounter("in_turn", "rows are in the order of the input, one at the position of each record")
    arrangement = CheckCounter("byte_order", "rows of a cluster are in byte order")
    if reveals:
        arrangement = CheckCounter("own_position", "each row has the unchanged fields of the record at its position")
    expected: dict[int, list[_ExpectedRow]] = defaultdict(list)
    for cluster in clusters:
        for index, unchanged in zip(cluster.members, cluster.unchanged, strict=True):
            row = _ExpectedRow(index, int(originals.offsets[index]), cluster, unchanged)
            expected[cluster.partition].append(row)
    unfinished = 0
    for partition in expected.keys() | release.by_partition.keys():
        rows = release.by_partition.get(partition, PartitionRows())
        in_order = sorted(expected[partition], key=lambda row: row.offset)
        _check_rows(rows, in_order, extra, in_turn, arrangement, reveals=reveals)
        for line in rows.lines[len(in_order) :]:
            extra.expect(False, line)
        unfinished += _check_complete(rows, in_order, missing, is_due)
    if unfinished:
        named, then = ("1 cluster is", "it is") if unfinished == 1 else (f"{unfinished} clusters are", "they are")
        missing.note = f"{named} not yet released as a whole: verify again when {then}"
    return [extra, missing, in_turn, arrangement]


@dataclass(slots=True)
class InferredClusters:
    """Clusters read off the release, of a topic in the order of their oldest records: no other order is possible."""

    clusters: list[EvidenceCluster] | None  # None if rows cannot be traced to records
    traced: CheckCounter
    doubt: str = ""  # why the clusters may be wrong, and what would decide it


def infer_clusters(policy: Policy, originals: Originals, release: ReleasedRows) -> InferredClusters:
    """Trace the rows to records and split the release into clusters; ``doubt`` if the rows need not show them."""
    traced = CheckCounter("traced", "every row has the unchanged fields of one record, which no other row has")
    index_of = _index_by_unchanged_fields(originals)
    if index_of is None:
        _check_unchanged_counts(originals, release, traced)
        return InferredClusters(None, traced, f"records cannot be told apart by their unchanged fields: {REMEDY}")
    clusters: list[EvidenceCluster] = []
    in_input_order = True
    for partition, rows in release.by_partition.items():
        known = index_of.get(partition, {})
        used: set[int] = set()
        members = []
        for line, unchanged in zip(rows.lines, rows.unchanged, strict=True):
            index = known.get(unchanged)
            traced.expect(index is not None and index not in used, line)
            members.append(-1 if index is None else index)
            used.add(members[-1])
        in_input_order &= members == sorted(members)
        for start, stop in _ascending_runs(rows):
            offsets = tuple(originals.offsets[[index for index in members[start:stop] if index >= 0]].tolist())
            clusters.append(EvidenceCluster(partition, len(clusters), offsets))
    if release.is_export:
        by_age = sorted(clusters, key=lambda cluster: min(cluster.offsets, default=-1))
        clusters = [EvidenceCluster(one.partition, number, one.offsets) for number, one in enumerate(by_age)]
    doubt = ""
    if not release.is_export and in_input_order:
        doubt = f"the rows are in the order of the input, which does not show the clusters: {REMEDY}"
    elif not release.is_export and _is_sorted_by_unchanged_field(policy, release):
        doubt = f"the file is in byte order as a whole, which does not show the clusters: {REMEDY}"
    return InferredClusters(clusters, traced, doubt)


def check_without_evidence(
    policy: Policy, release: ReleasedRows, published: Sequence[PublishedValues]
) -> list[CheckCounter]:
    """Check what rows show of themselves: ``alone`` is in no cluster of k, ``categories`` are those of records."""
    alone = CheckCounter(
        "alone", f"every row shares its quasi-identifiers with at least {policy.k} rows of its partition"
    )
    for rows in release.by_partition.values():
        counts = Counter(rows.quasi)
        for line, quasi in zip(rows.lines, rows.quasi, strict=True):
            alone.expect(counts[quasi] >= policy.k, line)
            alone.worst = counts[quasi] if alone.worst is None else min(alone.worst, counts[quasi])
    has_categories = any(isinstance(one, PublishedCategories) for one in published)
    return [alone, _check_categories(release, published)] if has_categories else [alone]


def _check_table(
    rows: PartitionRows,
    clusters: list[RecomputedCluster],
    together: CheckCounter,
    ordered: CheckCounter,
    *,
    is_kept: bool,
) -> None:
    """Check the rows of a table; ``is_kept``: whether they are in the order of the input, and the policy allows it."""
    trial = CheckCounter("", "")
    if rows.is_sorted:
        _check_file(rows, clusters, trial, trial)
    if rows.is_sorted and not trial.failed:
        _check_file(rows, clusters, together, ordered)
    elif is_kept:
        for check in (together, ordered):
            check.skip("the rows are in the order of the input, as the policy allows (table.keep_order)")
    else:
        _check_byte_order(rows, 0, len(rows), ordered)
        if rows.is_sorted:
            together.skip("the file is in byte order as a whole: clusters need not be adjacent")
            ordered.note = "the file is in byte order as a whole"
        else:
            together.skip("the rows of a table need not be adjacent")
            ordered.note = "the rows of a table must be in byte order as a whole"


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
        ordered.expect(index == start or rows.is_ascending(index), rows.lines[index])


def _check_topic(
    rows: PartitionRows, clusters: list[RecomputedCluster], together: CheckCounter, ordered: CheckCounter
) -> None:
    """Check that the rows of each centroid are those of whole clusters, wherever these stand in the topic.

    Clusters with one centroid may be adjacent, in any order. So there are at most as many runs of equal rows as
    clusters, and at most as many ascending pieces of runs. If there are as many, each piece is a cluster. If there are
    fewer, clusters with one centroid follow each other in byte order, and cannot be told apart.
    """
    clusters_of: dict[str, list[RecomputedCluster]] = defaultdict(list)
    for cluster in clusters:
        clusters_of[cluster.quasi].append(cluster)
    pieces_of: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for start, stop in _ascending_runs(rows):
        pieces_of[rows.quasi[start]].append((start, stop))
    descents: set[int] = set()
    for quasi, pieces in pieces_of.items():
        own = clusters_of[quasi]
        runs = [start for start, _ in pieces if not start or rows.quasi[start - 1] != quasi]
        together.examined += len(own)
        for start in runs[len(own) :]:
            together.fail(f"row {rows.lines[start]}")
        in_runs = set(runs)
        descents |= set([start for start, _ in pieces if start not in in_runs][max(len(own) - len(runs), 0) :])
        contents = Counter(tuple(sorted(rows.unchanged[start:stop])) for start, stop in pieces)
        if len(pieces) == len(own) and contents != Counter(tuple(sorted(one.unchanged)) for one in own):
            together.fail(f"row {rows.lines[runs[0]]}")
    for index, line in enumerate(rows.lines):
        ordered.expect(index not in descents, line)


class _ExpectedRow(NamedTuple):
    """What the row at the position of a record must show: the centroid of its cluster, one of its unchanged fields."""

    record: int
    offset: int
    cluster: RecomputedCluster
    own_unchanged: str


def _check_rows(
    rows: PartitionRows,
    expected: list[_ExpectedRow],
    extra: CheckCounter,
    in_turn: CheckCounter,
    arrangement: CheckCounter,
    *,
    reveals: bool,
) -> None:
    """Check each row against the record at its position, and against the previous row of the same cluster."""
    unmatched: dict[int, Counter[str]] = {}
    previous: dict[int, str] = {}
    for row, line, quasi, unchanged, text in zip(
        expected, rows.lines, rows.quasi, rows.unchanged, rows.texts, strict=False
    ):
        cluster = id(row.cluster)
        counts = unmatched.setdefault(cluster, Counter(row.cluster.unchanged))
        is_equal = quasi == row.cluster.quasi
        in_turn.expect(is_equal, line)
        extra.expect(is_equal and counts[unchanged] > 0, line)
        counts[unchanged] -= 1
        in_order = unchanged == row.own_unchanged if reveals else previous.get(cluster, "") <= text
        arrangement.expect(in_order, line)
        previous[cluster] = text


def _check_complete(
    rows: PartitionRows, expected: list[_ExpectedRow], missing: CheckCounter, is_due: BoolVector | None
) -> int:
    """Check that clusters were released as far as they are due; return the number of those that are not finished."""
    clusters = {id(row.cluster): row.cluster for row in expected}
    unmatched = {key: Counter(cluster.unchanged) for key, cluster in clusters.items()}
    for row, unchanged in zip(expected, rows.unchanged, strict=False):
        unmatched[id(row.cluster)][unchanged] -= 1
    unreleased: dict[int, list[int]] = defaultdict(list)
    for row in expected[len(rows) :]:
        unreleased[id(row.cluster)].append(row.record)
    unfinished = 0
    for key, cluster in clusters.items():
        if key not in unreleased:
            missing.expect(not any(unmatched[key].values()), cluster.label)
        elif is_due is not None and is_due[unreleased[key]].any():
            missing.expect(False, cluster.label)
        else:
            unfinished += 1
    return unfinished


def _index_by_unchanged_fields(originals: Originals) -> dict[int, dict[str, int]] | None:
    """Return the index of each usable record by partition and unchanged fields; None if two records have equal ones."""
    found: dict[int, dict[str, int]] = {}
    places = zip(originals.partitions.tolist(), originals.unchanged, strict=True)
    for index, (partition, unchanged) in enumerate(places):
        if unchanged is not None and found.setdefault(partition, {}).setdefault(unchanged, index) != index:
            return None
    return found


def _check_unchanged_counts(originals: Originals, release: ReleasedRows, traced: CheckCounter) -> None:
    """Compare unchanged fields as multisets: a value on more rows than records does not come from the originals."""
    unmatched = Counter(zip(originals.partitions.tolist(), originals.unchanged, strict=True))
    for partition, rows in release.by_partition.items():
        for line, unchanged in zip(rows.lines, rows.unchanged, strict=True):
            unmatched[partition, unchanged] -= 1
            traced.expect(unmatched[partition, unchanged] >= 0, line)


def _ascending_runs(rows: PartitionRows) -> Iterator[tuple[int, int]]:
    """Split the rows where the quasi-identifiers change, or the byte order descends."""
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows.quasi[index] != rows.quasi[start] or not rows.is_ascending(index):
            yield start, index
            start = index


def _is_sorted_by_unchanged_field(policy: Policy, release: ReleasedRows) -> bool:
    """Whether a file is in byte order, with an unchanged field before the last quasi-identifier."""
    first = len(policy.quasi_identifiers)
    quasi_identifiers_lead = policy.published[:first] == policy.quasi_identifiers
    return not quasi_identifiers_lead and all(rows.is_sorted for rows in release.by_partition.values())


def _check_categories(release: ReleasedRows, published: Sequence[PublishedValues]) -> CheckCounter:
    check = CheckCounter("categories", "every published category is one of a record, or above one in the taxonomy")
    known = [
        one.inner_nodes | {one.missing, *map(one.shown_category, one.categories.texts)}
        if isinstance(one, PublishedCategories)
        else None
        for one in published
    ]
    for rows in release.by_partition.values():
        is_known = {
            quasi: all(
                names is None or text in names for names, text in zip(known, quasi.split(FIELD_SEPARATOR), strict=False)
            )
            for quasi in set(rows.quasi)
        }
        for line, quasi in zip(rows.lines, rows.quasi, strict=True):
            check.expect(is_known[quasi], line)
    return check
