"""Checks the delay of a stream: no record is released more than delta records after it arrived.

The bound follows from the definition of stream microaggregation with delay delta: a record is decided at the latest
with the delta-th arrival after it. Every member of a cluster has arrived when the cluster is decided, and clusters are
decided one after the other. So the newest member of all clusters decided so far is at most delta arrivals after the
oldest member of each cluster.

Source: J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation", ICDMW 2017, Definition 4
(doi:10.1109/ICDMW.2017.141).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.audit.arrivals import Arrivals
from shoal.audit.clusters import RecomputedCluster, clusters_by_partition, has_repeated_numbers
from shoal.audit.originals import Originals
from shoal.audit.verdict import CheckCounter, counted

__all__ = ["check_delay"]


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
