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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import eq

import numpy as np

from shoal.audit.clusters import BoolVector, RecomputedCluster, clusters_by_partition, has_repeated_numbers, members_of
from shoal.audit.evidence import EvidenceCluster
from shoal.audit.fields import (
    FIELD_SEPARATOR,
    ChosenTexts,
    Int32Vector,
    Int64Vector,
    Texts,
    joint_codes,
    passes_of,
    text_codes,
)
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.scales import PublishedCategories, PublishedValues
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

REMEDY = "give the evidence file (--evidence)"


def compare_rows(release: ReleasedRows, clusters: list[RecomputedCluster]) -> list[CheckCounter]:
    """Compare released and recomputed rows as multisets; a wrong centroid or a changed value fails both checks."""
    extra = CheckCounter("nothing_else", "every row is the recomputed row of a member of a cluster")
    missing = CheckCounter("nothing_missing", "every recomputed row of a cluster was released", "cluster")
    incomplete: set[int] = set()
    by_partition = clusters_by_partition(clusters)
    for partition in [*release.by_partition, *(by_partition.keys() - release.by_partition.keys())]:
        rows, own = release.by_partition.get(partition, PartitionRows()), by_partition[partition]
        if (codes := _RowCodes.of(rows, own)) is not None and codes.are_same:
            extra.examined += len(rows)
            continue
        is_surplus = np.zeros(len(rows), np.bool_)
        for places in passes_of(len(rows) + len(own), _quasi_of(rows, own)):
            here = places[places < len(rows)].tolist()
            unmatched = Counter((rows.quasi[place], rows.unchanged[place]) for place in here)
            for cluster in [own[place] for place in places[len(here) :] - len(rows)]:
                for row in [(cluster.quasi, unchanged) for unchanged in cluster.unchanged]:
                    if unmatched[row]:
                        unmatched[row] -= 1
                    else:
                        incomplete.add(id(cluster))
            for place in here if any(unmatched.values()) else []:
                row = (rows.quasi[place], rows.unchanged[place])
                is_surplus[place] = unmatched[row] > 0
                unmatched[row] -= int(is_surplus[place])
        extra.expect_each((~is_surplus).tolist(), rows.lines)
    is_whole = np.array([id(cluster) not in incomplete for cluster in clusters], np.bool_)
    missing.expect_all(is_whole, lambda place: clusters[place].label)
    return [extra, missing]


@dataclass(frozen=True, slots=True)
class _RowCodes:
    """Codes of the rows of a partition and of the members of its clusters, equal for equal texts."""

    quasi: Int32Vector
    unchanged: Int32Vector
    own_quasi: Int32Vector  # of the cluster of each member
    own_unchanged: Int32Vector
    clusters: Int32Vector  # the place of the cluster of each member

    @classmethod
    def of(cls, rows: PartitionRows, clusters: Sequence[RecomputedCluster]) -> _RowCodes | None:
        """Return the codes; None if the members are more than the rows, or have no texts in common with originals."""
        chosen = [one.unchanged for one in clusters if isinstance(one.unchanged, ChosenTexts)]
        if not chosen or len(chosen) < len(clusters) or sum(map(len, chosen)) > len(rows):
            return None
        places, every = _places_of(clusters), chosen[0].every
        if not isinstance(every, Texts) or any(one.every is not every for one in chosen):
            return None
        members = np.concatenate([one.places for one in chosen])
        own_quasi = Texts(one.quasi for one in clusters)
        every_row = np.arange(len(rows), dtype=np.int32)
        quasi, of_clusters = joint_codes(rows.quasi, every_row, own_quasi, np.arange(len(clusters)))
        unchanged, of_members = joint_codes(rows.unchanged, every_row, every, members)
        return cls(quasi, unchanged, of_clusters[places], of_members, places)

    @property
    def are_same(self) -> bool:
        """Whether rows and members are the same, in any order."""
        return len(self.quasi) == len(self.own_quasi) and self._are_same_pairs(self.quasi, self.own_quasi)

    @property
    def are_in_order(self) -> bool:
        """Whether the first rows are those of one cluster after the other."""
        is_in_place = np.array_equal(self.quasi[: len(self.clusters)], self.own_quasi)
        return is_in_place and self._are_same_pairs(self.clusters, self.clusters)

    def _are_same_pairs(self, groups: Int32Vector, own_groups: Int32Vector) -> bool:
        """Whether the unchanged fields of the first rows are those of the members, in each group."""
        width = int(max(self.unchanged.max(), self.own_unchanged.max())) + 1
        both = []
        for one, codes in ((groups, self.unchanged[: len(groups)]), (own_groups, self.own_unchanged)):
            pairs = one.astype(np.int64)
            pairs *= width
            pairs += codes
            pairs.sort()
            both.append(pairs)
        return np.array_equal(both[0], both[1])


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


def is_in_input_order(rows: PartitionRows, clusters: Sequence[RecomputedCluster], originals: Originals) -> bool:
    """Whether the rows are those of the clusters in the order of the original."""
    members, places = members_of(clusters), _places_of(clusters)
    if len(members) != len(rows):
        return False
    in_order = np.argsort(members, kind="stable")
    quasi = (clusters[place].quasi for place in places[in_order])
    unchanged = (originals.unchanged[index] for index in members[in_order])
    return all(map(eq, rows.quasi, quasi)) and all(map(eq, rows.unchanged, unchanged))


def _places_of(clusters: Sequence[RecomputedCluster]) -> Int32Vector:
    """Return the place of the cluster of each of `members_of`."""
    return np.repeat(
        np.arange(len(clusters), dtype=np.int32), np.array([len(cluster.members) for cluster in clusters], np.int64)
    )


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
    expected, unfinished = clusters_by_partition(clusters), 0
    for partition in expected.keys() | release.by_partition.keys():
        rows, own = release.by_partition.get(partition, PartitionRows()), expected[partition]
        members, places = members_of(own), _places_of(own)
        in_order = np.argsort(originals.offsets[members], kind="stable")
        members, places = members[in_order], places[in_order]
        own_texts = map(originals.unchanged.__getitem__, members) if reveals else repeat(None)
        is_matched = _check_rows(rows, own, places, own_texts, extra, in_turn, arrangement)
        for line in rows.lines[len(members) :]:
            extra.expect(False, line)
        is_unreleased, is_overdue = np.zeros((2, len(own)), np.bool_)
        is_unreleased[places[len(rows) :]] = True
        if is_due is not None:
            is_overdue[places[len(rows) :][is_due[members[len(rows) :]]]] = True
        for place in places[np.sort(np.unique(places, return_index=True)[1])].tolist():
            if is_unreleased[place] and not is_overdue[place]:
                unfinished += 1
            else:
                missing.expect(bool(is_matched[place] and not is_overdue[place]), own[place].label)
    if unfinished:
        named, then = ("1 cluster is", "it is") if unfinished == 1 else (f"{unfinished} clusters are", "they are")
        missing.note = f"{named} not yet released as a whole: verify again when {then}"
    return [extra, missing, in_turn, arrangement]


def _quasi_of(rows: PartitionRows, clusters: Sequence[RecomputedCluster]) -> Callable[[int], str]:
    count = len(rows)
    return lambda place: rows.quasi[place] if place < count else clusters[place - count].quasi


@dataclass(slots=True)
class InferredClusters:
    """Clusters read off the release, of a topic in the order of their oldest records: no other order is possible."""

    clusters: list[EvidenceCluster] | None  # None if rows cannot be traced to records
    traced: CheckCounter
    doubt: str = ""  # why the clusters may be wrong, and what would decide it


def infer_clusters(policy: Policy, originals: Originals, release: ReleasedRows) -> InferredClusters:
    """Trace the rows to records and split the release into clusters; ``doubt`` if the rows need not show them."""
    traced = CheckCounter("traced", "every row has the unchanged fields of one record, which no other row has")
    codes_of = {
        partition: _UnchangedCodes(originals, partition, release.by_partition.get(partition, PartitionRows()))
        for partition in originals.by_partition.keys() | release.by_partition.keys()
    }
    if not all(codes.are_unique for codes in codes_of.values()):
        _check_unchanged_counts(release, codes_of, traced)
        return InferredClusters(None, traced, f"records cannot be told apart by their unchanged fields: {REMEDY}")
    clusters: list[EvidenceCluster] = []
    in_input_order = True
    for partition, rows in release.by_partition.items():
        members = codes_of[partition].members()
        is_traced = np.zeros(len(rows), np.bool_)
        is_traced[np.unique(members, return_index=True)[1]] = True
        is_traced &= members >= 0
        traced.expect_each(is_traced.tolist(), rows.lines)
        in_input_order &= bool(np.all(np.diff(members) >= 0))
        for start, stop in _ascending_runs(rows):
            own = members[start:stop]
            clusters.append(EvidenceCluster(partition, len(clusters), originals.offsets[own[own >= 0]]))
    if release.is_export:
        by_age = sorted(clusters, key=lambda cluster: min(cluster.offsets.tolist(), default=-1))
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
        _check_file(rows, clusters, trial, trial, is_trial=True)
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
    rows: PartitionRows,
    clusters: list[RecomputedCluster],
    together: CheckCounter,
    ordered: CheckCounter,
    *,
    is_trial: bool = False,
) -> None:
    """Check the clusters one after the other, in the order of the evidence; a trial ends at the first misplaced one.

    After a misplaced cluster, rows with the quasi-identifiers of no later one are passed over: they are rows of it, of
    an earlier one, or of none.
    """
    if (codes := _RowCodes.of(rows, clusters)) is not None and codes.are_in_order:
        together.examined += len(clusters)
        is_start = np.diff(codes.clusters, prepend=-1) != 0
        count = len(is_start)
        ordered.expect_all(is_start | rows.ascends[:count], lambda index: rows.lines[index])
        return
    start = 0
    later: Counter[str] | None = None
    for place, cluster in enumerate(clusters):
        while later is not None and start < len(rows) and not later[rows.quasi[start]]:
            start += 1
        stop = start + len(cluster.unchanged)
        is_here = _is_cluster(rows, start, stop, cluster)
        together.expect(is_here, cluster.label)
        if is_here:
            _check_byte_order(rows, start, stop, ordered)
            start = stop
        elif is_trial:
            return
        elif later is None:
            later = Counter(one.quasi for one in clusters[place:])
        if later is not None:
            later[cluster.quasi] -= 1


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


def _check_rows(
    rows: PartitionRows,
    clusters: Sequence[RecomputedCluster],
    places: Int32Vector,
    own_unchanged: Iterable[str | None],
    extra: CheckCounter,
    in_turn: CheckCounter,
    arrangement: CheckCounter,
) -> BoolVector:
    """Check each row against the record at its position, and against the previous row of the same cluster.

    ``places``: the cluster of each position. Return which clusters have their own rows, as far as they were released.
    """
    unmatched: dict[int, Counter[str]] = {}
    previous: dict[int, str] = {}
    is_matched, left = np.ones(len(clusters), np.bool_), [len(cluster.members) for cluster in clusters]
    texts = zip(rows.lines, rows.quasi, rows.unchanged, rows.texts, strict=True)  # every row has all, or it fails
    found = zip(map(int, places), texts, own_unchanged, strict=False)
    for place, (line, quasi, unchanged, text), own in found:
        counts = unmatched.get(place)
        if counts is None:
            counts = unmatched[place] = Counter(clusters[place].unchanged)
        is_equal = quasi == clusters[place].quasi
        in_turn.expect(is_equal, line)
        extra.expect(is_equal and counts[unchanged] > 0, line)
        counts[unchanged] -= 1
        arrangement.expect(unchanged == own if own is not None else previous.get(place, "") <= text, line)
        previous[place] = text
        left[place] -= 1
        if not left[place]:
            is_matched[place] = not any(counts.values())
            del unmatched[place], previous[place]
    return is_matched


class _UnchangedCodes:
    """Codes of the unchanged fields of one partition: of its usable records, and of its rows."""

    def __init__(self, originals: Originals, partition: int, rows: PartitionRows) -> None:
        indices = originals.by_partition.get(partition, np.zeros(0, np.int64))
        self.indices = indices = indices[originals.subjects[indices] != UNUSABLE]
        count = len(indices)

        def text(place: int) -> str:
            return originals.unchanged[indices[place]] if place < count else rows.unchanged[place - count]

        codes = text_codes(count + len(rows), text)
        self.rows, self._records = codes[count:], codes[:count]
        self.counts = np.bincount(self._records, minlength=codes.max(initial=-1) + 1)
        self.are_unique = bool(self.counts.max(initial=0) <= 1)

    def members(self) -> Int64Vector:
        """Return the record with the unchanged fields of each row; -1 for none."""
        index_of = np.full(len(self.counts), -1)
        index_of[self._records] = self.indices
        return index_of[self.rows]


def _check_unchanged_counts(
    release: ReleasedRows, codes_of: Mapping[int, _UnchangedCodes], traced: CheckCounter
) -> None:
    """Compare unchanged fields as multisets: a value on more rows than records does not come from the originals."""
    for partition, rows in release.by_partition.items():
        left = codes_of[partition].counts.tolist()
        for line, code in zip(rows.lines, map(int, codes_of[partition].rows), strict=True):
            left[code] -= 1
            traced.expect(left[code] >= 0, line)


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
