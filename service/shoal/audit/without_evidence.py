"""Clusters without evidence: read off the release, where its rows tell which records they are.

A row can be traced if its kept fields are unique among the originals of its partition. Then clusters are runs of
neighbouring rows that are equal on all quasi-identifiers, never all rows with equal values: a cluster of five is
not hidden by another five elsewhere. Members stand in byte order, so a run ends where it descends. Two
neighbours with equal centroids and no descent between them read as one; that does no harm: if each of two
clusters keeps k, the cap and its centroid, so does their union, and to a reader they are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from shoal.audit.check_counter import CheckCounter
from shoal.audit.evidence import ClaimedCluster
from shoal.audit.originals import Originals
from shoal.audit.releases import ReleasedRows, Rows
from shoal.audit.run_cover import runs
from shoal.policy import Policy

__all__ = ["REMEDY", "Rebuilt", "check_without_evidence", "rebuild"]

REMEDY = "give the evidence file (--evidence)"


@dataclass(slots=True)
class Rebuilt:
    """Clusters numbered from 0 in the order of the release; None if rows cannot be traced.

    ``doubt`` says why clusters may not be what they seem, and what would decide it.
    """

    named: list[ClaimedCluster] | None
    traced: CheckCounter
    doubt: str = ""


def rebuild(policy: Policy, originals: Originals, release: ReleasedRows) -> Rebuilt:
    """Trace the rows and cut the release into clusters.

    Returns
    -------
    Rebuilt
        With a ``doubt`` if the members cannot be told apart, or if the order of the rows need not show the
        clusters (a file sorted as a whole by a kept field, or left in the order of its input).
    """
    traced = CheckCounter("traced", "every row has the kept fields of one record, which no other row has")
    places = _places(originals)
    if places is None:
        _trace_values(originals, release, traced)
        return Rebuilt(None, traced, f"members cannot be told apart by their kept fields: {REMEDY}")
    named: list[ClaimedCluster] = []
    in_input_order = True
    for partition, rows in release.parts.items():
        known = places.get(partition, {})
        used: set[int] = set()
        members = []
        for line, kept in zip(rows.lines, rows.kept, strict=True):
            index = known.get(kept)
            traced.expect(index is not None and index not in used, line)
            members.append(-1 if index is None else index)
            used.add(members[-1])
        in_input_order &= members == sorted(members)
        for start, stop in _pieces(rows):
            offsets = tuple(originals.offsets[[index for index in members[start:stop] if index >= 0]].tolist())
            named.append(ClaimedCluster(partition, len(named), offsets))
    doubt = ""
    if not release.wrapped and in_input_order:
        doubt = f"the rows are in the order of the input, which does not show the clusters: {REMEDY}"
    elif not release.wrapped and _is_sorted_by_kept(policy, release):
        doubt = f"the file is in byte order as a whole, which does not show the clusters: {REMEDY}"
    return Rebuilt(named, traced, doubt)


def _places(originals: Originals) -> dict[int, dict[str, int]] | None:
    """Index of each usable record by partition and kept fields; None if two of them share these."""
    places: dict[int, dict[str, int]] = {}
    for index, (partition, kept) in enumerate(zip(originals.partitions.tolist(), originals.kept, strict=True)):
        if kept is not None and places.setdefault(partition, {}).setdefault(kept, index) != index:
            return None
    return places


def _trace_values(originals: Originals, release: ReleasedRows, traced: CheckCounter) -> None:
    """Compare the kept fields as multisets: more rows than records with a value were not made of records."""
    left = Counter(zip(originals.partitions.tolist(), originals.kept, strict=True))
    for partition, rows in release.parts.items():
        for line, kept in zip(rows.lines, rows.kept, strict=True):
            left[partition, kept] -= 1
            traced.expect(left[partition, kept] >= 0, line)


def _pieces(rows: Rows) -> Iterator[tuple[int, int]]:
    for start, stop in runs(rows):
        begin = start
        for index in range(start + 1, stop):
            if not rows.rises[index]:
                yield begin, index
                begin = index
        yield begin, stop


def _is_sorted_by_kept(policy: Policy, release: ReleasedRows) -> bool:
    """Whether a file in byte order has a kept field before the last quasi-identifier."""
    first = len(policy.quasi_identifiers)
    leading = policy.published[:first] == policy.quasi_identifiers
    return not leading and all(all(rows.rises) for rows in release.parts.values())


def check_without_evidence(policy: Policy, release: ReleasedRows) -> list[CheckCounter]:
    """Judge what the rows alone show: how many share their quasi-identifiers.

    Returns
    -------
    list of Tally
        ``alone``: rows whose quasi-identifiers fewer than k rows of their partition have, wherever they stand;
        these are in no cluster of k.
    """
    alone = CheckCounter(
        "alone", f"every row shares its quasi-identifiers with at least {policy.k} rows of its partition"
    )
    for rows in release.parts.values():
        counts = Counter(rows.quasi)
        for line, quasi in zip(rows.lines, rows.quasi, strict=True):
            alone.expect(counts[quasi] >= policy.k, line)
            alone.worst = counts[quasi] if alone.worst is None else min(alone.worst, counts[quasi])
    return [alone]
