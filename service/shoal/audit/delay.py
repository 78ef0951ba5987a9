"""Checks the delay and the order of the decisions of a stream.

No record is released more than delta records after it arrived.

The bound follows from the definition of stream microaggregation with delay delta: a record is decided at the latest
with the delta-th arrival after it. Every member of a cluster has arrived when the cluster is decided, and clusters are
decided one after the other. So the newest member of all clusters decided so far is at most delta arrivals after the
oldest member of each cluster.

Each cluster holds the oldest held record, and clusters that are released together are numbered by their oldest
members (`held`). So the oldest members ascend in the order of decision. Any other order could tell something else.

Source: J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation", ICDMW 2017, Definition 4
(doi:10.1109/ICDMW.2017.141).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.audit.arrivals import Arrivals
from shoal.audit.clusters import RecomputedCluster, clusters_by_partition, has_repeated_numbers
from shoal.audit.originals import Originals
from shoal.audit.verdict import CheckCounter, counted

__all__ = ["check_decision_order", "check_delay"]


def check_delay(
    delta: int,
    originals: Originals,
    arrivals: Mapping[int, Arrivals],
    clusters: Sequence[RecomputedCluster],
    *,
    is_export: bool,
) -> CheckCounter:
    """Check the delay of every cluster. Cost: O(n log n).

    Parameters
    ----------
    delta : int
    originals : Originals
    arrivals : mapping of int to Arrivals
        By partition.
    clusters : sequence of RecomputedCluster
        In the order of the evidence.
    is_export : bool
        Whether the release is an export of a topic. Its clusters are taken in the order of their numbers; where a
        number is repeated, each cluster is checked by itself.

    Returns
    -------
    CheckCounter
        ``delay``; its worst value is the largest delay that is certain, in records.
    """
    check = CheckCounter(
        "delay", f"no record was released more than {counted(delta, 'record')} after it arrived", "cluster"
    )
    for partition, members in clusters_by_partition(clusters).items():
        is_in_order = not (is_export and has_repeated_numbers(members))
        if is_export and is_in_order:
            members.sort(key=lambda cluster: cluster.number)
        newest = 0
        for cluster in members:
            found = arrivals[partition]
            ranks = found.at_least[found.positions_of(originals.offsets[list(cluster.members)])]
            newest = max(newest, int(ranks.max())) if is_in_order else int(ranks.max())
            delay = newest - int(ranks.min())
            check.expect(delay <= delta, cluster.label)
            check.worst = delay if check.worst is None else max(check.worst, delay)
    return check


def check_decision_order(
    originals: Originals, clusters: Sequence[RecomputedCluster], *, is_export: bool
) -> CheckCounter:
    """Check that the oldest members of clusters ascend in the order of decision. Cost: O(n + m log m) for m clusters.

    Parameters
    ----------
    originals : Originals
    clusters : sequence of RecomputedCluster
        In the order of the evidence.
    is_export : bool
        Whether the release is an export of a topic, whose clusters are taken in the order of their numbers.

    Returns
    -------
    CheckCounter
        ``oldest_first``. It is not examined in partitions in which a number is repeated.
    """
    check = CheckCounter("oldest_first", "clusters were decided in the order of their oldest records", "cluster")
    for members in clusters_by_partition(clusters).values():
        if is_export and has_repeated_numbers(members):
            check.skip("the evidence repeats numbers of clusters")
            continue
        decided = sorted(members, key=lambda cluster: cluster.number) if is_export else members
        newest_start = -1
        for cluster in decided:
            oldest = int(originals.offsets[list(cluster.members)].min())
            check.expect(oldest > newest_start, cluster.label)
            newest_start = max(newest_start, oldest)
    return check
