"""Checks the order of the clusters in a topic against their numbers.

A service numbers the clusters of a partition in the order of decision. Each transaction holds the clusters that were
decided since the one before, sorted by their first rows. An export does not show where transactions end. Between two
clusters an end is possible only if every cluster before it has a smaller number than every cluster after it. So the
clusters between two possible ends are those of one transaction, and their first rows must ascend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from shoal.audit.clusters import RecomputedCluster, clusters_by_partition, has_repeated_numbers
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.rows import LOOK_ALIKE, LocatedClusters
from shoal.audit.verdict import CheckCounter

__all__ = ["check_topic_order", "repeated_numbers"]


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
