"""Infers the clusters from the release if there is no evidence.

A row can be traced to its record if its unchanged fields are unique among the originals of its partition. Then a
cluster is a run of adjacent rows that are equal on all quasi-identifiers; a run ends where the byte order descends,
since the rows of a cluster are in byte order. Equal rows elsewhere are not counted: they do not make a cluster of five
safe.

Two adjacent clusters with equal centroids and ascending rows are taken for one. This is harmless: if each of them has
k subjects and respects the cap, so does their union, and a reader of the release cannot tell them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shoal.audit.evidence import EvidenceCluster
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.published_values import PublishedCategories, PublishedValues
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.rows import equal_runs
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

__all__ = ["REMEDY", "InferredClusters", "check_without_evidence", "infer_clusters"]

REMEDY = "give the evidence file (--evidence)"


@dataclass(slots=True)
class InferredClusters:
    """Clusters read off the release.

    Attributes
    ----------
    clusters : list of EvidenceCluster or None
        Numbered from 0 in the order of the release, those of a topic by their oldest records: no other order of
        decision is possible. None if rows cannot be traced to records.
    traced : CheckCounter
        Whether every row has the unchanged fields of a record.
    doubt : str
        Why the clusters may be wrong and what would decide it; empty if they are certain.
    """

    clusters: list[EvidenceCluster] | None
    traced: CheckCounter
    doubt: str = ""


def infer_clusters(policy: Policy, originals: Originals, release: ReleasedRows) -> InferredClusters:
    """Trace the rows to records and split the release into clusters.

    Returns
    -------
    InferredClusters
        With a ``doubt`` if records have equal unchanged fields, or if the order of the rows need not show the clusters
        (a file in the order of its input, or sorted as a whole by an unchanged field).
    """
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
        clusters = _numbered_by_age(clusters)
    doubt = ""
    if not release.is_export and in_input_order:
        doubt = f"the rows are in the order of the input, which does not show the clusters: {REMEDY}"
    elif not release.is_export and _is_sorted_by_unchanged_field(policy, release):
        doubt = f"the file is in byte order as a whole, which does not show the clusters: {REMEDY}"
    return InferredClusters(clusters, traced, doubt)


def _numbered_by_age(clusters: list[EvidenceCluster]) -> list[EvidenceCluster]:
    by_age = sorted(clusters, key=lambda cluster: min(cluster.offsets, default=-1))
    return [EvidenceCluster(cluster.partition, number, cluster.offsets) for number, cluster in enumerate(by_age)]


def _index_by_unchanged_fields(originals: Originals) -> dict[int, dict[str, int]] | None:
    """Return the index of each usable record by partition and unchanged fields; None if two records have equal ones."""
    found: dict[int, dict[str, int]] = {}
    for index, (partition, unchanged) in enumerate(
        zip(originals.partitions.tolist(), originals.unchanged, strict=True)
    ):
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
    """Split the runs of equal rows where the byte order descends."""
    for run_start, run_stop in equal_runs(rows):
        start = run_start
        for index in range(run_start + 1, run_stop):
            if not rows.is_ascending[index]:
                yield start, index
                start = index
        yield start, run_stop


def _is_sorted_by_unchanged_field(policy: Policy, release: ReleasedRows) -> bool:
    """Whether a file is in byte order, with an unchanged field before the last quasi-identifier."""
    first = len(policy.quasi_identifiers)
    quasi_identifiers_lead = policy.published[:first] == policy.quasi_identifiers
    return not quasi_identifiers_lead and all(all(rows.is_ascending) for rows in release.by_partition.values())


def check_without_evidence(
    policy: Policy, originals: Originals, release: ReleasedRows, published: Sequence[PublishedValues]
) -> list[CheckCounter]:
    """Check what the rows show if their clusters are not known.

    Returns
    -------
    list of CheckCounter
        ``alone``: rows whose quasi-identifiers are shared by fewer than k rows of their partition, wherever these
        stand. Such a row is in no cluster of k. ``categories``: rows with a category that no record has, where the
        policy has nominal attributes.
    """
    alone = CheckCounter(
        "alone", f"every row shares its quasi-identifiers with at least {policy.k} rows of its partition"
    )
    for rows in release.by_partition.values():
        counts = Counter(rows.quasi)
        for line, quasi in zip(rows.lines, rows.quasi, strict=True):
            alone.expect(counts[quasi] >= policy.k, line)
            alone.worst = counts[quasi] if alone.worst is None else min(alone.worst, counts[quasi])
    return [alone, _check_categories(originals, release, published)] if originals.categories else [alone]


def _check_categories(
    originals: Originals, release: ReleasedRows, published: Sequence[PublishedValues]
) -> CheckCounter:
    check = CheckCounter("categories", "every published category is one of a record, or above one in the taxonomy")
    known = [
        one.inner_nodes | {one.missing, *map(one.shown_category, categories.texts)}
        if isinstance(one, PublishedCategories) and categories is not None
        else None
        for one, categories in zip(published, originals.categories, strict=True)
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
