"""Checks a release in the order of the input (``release: ordered``).

There each row is published at the position of one record of its cluster, so the rows of a cluster are not adjacent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from shoal.audit.arrivals import BoolVector
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.verdict import CheckCounter

__all__ = ["check_ordered_release"]


class _ExpectedRow(NamedTuple):
    """What the row at the position of a record must show: the centroid of its cluster, one of its unchanged fields."""

    record: int
    offset: int
    cluster: RecomputedCluster
    own_unchanged: str


class _OrderChecks:
    """The four checks, over all partitions."""

    def __init__(self, *, reveals: bool) -> None:
        self.extra = CheckCounter("nothing_else", "every row is the recomputed row of a member of a cluster")
        self.missing = CheckCounter(
            "nothing_missing", "every recomputed row of a cluster was released at a position of the cluster", "cluster"
        )
        self.in_turn = CheckCounter("in_turn", "rows are in the order of the input, one at the position of each record")
        claim = (
            "each row has the unchanged fields of the record at its position"
            if reveals
            else "rows of a cluster are in byte order"
        )
        self.arrangement = CheckCounter("own_position" if reveals else "byte_order", claim)


def check_ordered_release(
    release: ReleasedRows,
    clusters: list[RecomputedCluster],
    originals: Originals,
    *,
    reveals: bool,
    is_due: BoolVector | None,
) -> list[CheckCounter]:
    """Check a release in which each row is published at the position of a record.

    Parameters
    ----------
    release : ReleasedRows
        With the rows as published.
    clusters : list of RecomputedCluster
    originals : Originals
    reveals : bool
        Whether the policy publishes the unchanged fields of a record at its own position (``reveal_order``).
        Otherwise those of a cluster are assigned to its positions in byte order.
    is_due : ndarray of bool, shape (n,), optional
        Which records must have been released by the end of the original. None: the release is a part, and any row may
        be missing at its end.

    Returns
    -------
    list of CheckCounter
        ``nothing_else``, ``nothing_missing``, ``in_turn``, and ``own_position`` or ``byte_order``.
    """
    checks = _OrderChecks(reveals=reveals)
    expected: dict[int, list[_ExpectedRow]] = defaultdict(list)
    for cluster in clusters:
        for index, unchanged in zip(cluster.members, cluster.unchanged, strict=True):
            row = _ExpectedRow(index, int(originals.offsets[index]), cluster, unchanged)
            expected[cluster.partition].append(row)
    unfinished = 0
    for partition in expected.keys() | release.by_partition.keys():
        rows = release.by_partition.get(partition, PartitionRows())
        in_order = sorted(expected[partition], key=lambda row: row.offset)
        _check_rows(rows, in_order, checks, reveals=reveals)
        unfinished += _check_complete(rows, in_order, checks.missing, is_due)
    if unfinished:
        named, then = ("1 cluster is", "it is") if unfinished == 1 else (f"{unfinished} clusters are", "they are")
        checks.missing.note = f"{named} not yet released as a whole: verify again when {then}"
    return [checks.extra, checks.missing, checks.in_turn, checks.arrangement]


def _check_rows(rows: PartitionRows, expected: list[_ExpectedRow], checks: _OrderChecks, *, reveals: bool) -> None:
    """Check each row against the record at its position, and against the previous row of the same cluster."""
    unmatched: dict[int, Counter[str]] = {}
    previous: dict[int, str] = {}
    for position, line in enumerate(rows.lines):
        if position >= len(expected):
            checks.extra.expect(False, line)
            continue
        row = expected[position]
        cluster = id(row.cluster)
        unchanged, text = rows.unchanged[position], rows.texts[position]
        counts = unmatched.setdefault(cluster, Counter(row.cluster.unchanged))
        is_equal = rows.quasi[position] == row.cluster.quasi
        checks.in_turn.expect(is_equal, line)
        checks.extra.expect(is_equal and counts[unchanged] > 0, line)
        counts[unchanged] -= 1
        checks.arrangement.expect(
            unchanged == row.own_unchanged if reveals else previous.get(cluster, "") <= text, line
        )
        previous[cluster] = text


def _check_complete(
    rows: PartitionRows, expected: list[_ExpectedRow], missing: CheckCounter, is_due: BoolVector | None
) -> int:
    """Check that clusters were released as far as they are due; return the number of those that are not finished."""
    clusters: dict[int, RecomputedCluster] = {}
    unmatched: dict[int, Counter[str]] = {}
    unreleased: dict[int, list[int]] = defaultdict(list)
    for position, row in enumerate(expected):
        key = id(row.cluster)
        clusters[key] = row.cluster
        counts = unmatched.setdefault(key, Counter(row.cluster.unchanged))
        if position < len(rows):
            counts[rows.unchanged[position]] -= 1
        else:
            unreleased[key].append(row.record)
    unfinished = 0
    for key, cluster in clusters.items():
        if key not in unreleased:
            missing.expect(not any(unmatched[key].values()), cluster.label)
        elif is_due is not None and is_due[unreleased[key]].any():
            missing.expect(False, cluster.label)
        else:
            unfinished += 1
    return unfinished
