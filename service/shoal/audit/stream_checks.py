"""Checks the delay of a stream, its unpublished records, and with ``release: ordered`` its rows.

All of them count arrivals. Where files do not show for certain whether a record arrived, the checks are made twice:
without these records, and with every record that no file shows to be above a limit. A check that fails only with them
is not examined. If it fails without the claimed ones, too, or if these are more than half of all records, the verdict
is undecided. So no statement of the quarantine makes a check less strict, whether it is a claim or disputed.

Checks the delay and the order of the decisions of a stream.

No record is released more than delta records after it arrived.

The bound follows from the definition of stream microaggregation with delay delta: a record is decided at the latest
with the delta-th arrival after it. Every member of a cluster has arrived when the cluster is decided, and clusters are
decided one after the other. So the newest member of all clusters decided so far is at most delta arrivals after the
oldest member of each cluster.

Each cluster holds the oldest held record, and clusters that are released together are numbered by their oldest
members (`held`). So the oldest members ascend in the order of decision. Any other order could tell something else.

Source: J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation", ICDMW 2017, Definition 4
(doi:10.1109/ICDMW.2017.141).

Checks a release in the order of the input (``release: ordered``).

There each row is published at the position of one record of its cluster, so the rows of a cluster are not adjacent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.audit.clusters import (
    AdmissionLimits,
    Arrivals,
    BoolVector,
    Counted,
    RecomputedCluster,
    RecomputedClusters,
    StreamArrivals,
    arrivals_of,
    clusters_by_partition,
    has_repeated_numbers,
)
from shoal.audit.originals import Originals
from shoal.audit.reconciliation import AuditedReferences
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.unpublished import Accounts, StatedAccounts, check_unpublished
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import Policy

__all__ = ["StreamChecks", "check_decision_order", "check_delay", "check_ordered_release", "check_stream"]


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


DISPUTED = (
    "the files do not show whether records that are referenced as rejected, or as suppressed after a restart, count as "
    "arrivals"
)
NOT_REFERENCED = (
    "the files do not show whether records that were not released count as arrivals: give the quarantine file "
    "(--quarantine)"
)


@dataclass(slots=True)
class StreamChecks:
    """Results of `check_stream`.

    Attributes
    ----------
    accounts : Accounts or None
        The unpublished records; None if a part is judged.
    checks : list of CheckCounter
    undecided : list of str
        Why a check is not decided.
    """

    accounts: Accounts | None = None
    checks: list[CheckCounter] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def check_stream(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    release: ReleasedRows,
    clusters: RecomputedClusters,
    references: AuditedReferences | None,
    stated: StatedAccounts,
    *,
    is_partial: bool,
) -> StreamChecks:
    """Run all checks that count arrivals. Cost: that of `check_unpublished` and `check_delay`, up to three times.

    Parameters
    ----------
    policy : Policy
        Must have a stream section.
    originals : Originals
    limits : AdmissionLimits
    release : ReleasedRows
    clusters : RecomputedClusters
    references : AuditedReferences or None
        None without a quarantine file.
    stated : StatedAccounts
    is_partial : bool
        Whether unpublished records are not examined.
    """
    reasons = None if references is None else references.reasons
    ahead = () if references is None else references.ahead
    if 2 * len(ahead) > originals.usable:
        ahead = ()  # the clock of most records is more likely right than that of the others

    def arrived(counted: Counted) -> StreamArrivals:
        return arrivals_of(policy, originals, limits, clusters.is_member(), reasons, counted=counted, ahead=ahead)

    def found(arrivals: StreamArrivals, *, is_partial: bool) -> StreamChecks:
        return _check_arrivals(policy, originals, limits, release, clusters, arrivals, stated, is_partial=is_partial)

    certain, largest = arrived("certain"), arrived("all")
    result = found(certain, is_partial=is_partial)
    if certain.has_as_many(largest):
        return result
    # Only the rows of an ordered release are compared with the records that are due.
    is_partial = is_partial or not policy.require_stream().is_ordered
    doubtful = _failed_besides(result, found(largest, is_partial=is_partial))
    if doubtful:
        disputed = _failed_besides(result, found(arrived("unless claimed"), is_partial=is_partial))
        reason = NOT_REFERENCED if references is None else DISPUTED
        for check in doubtful:
            check.skip(reason)
            result.undecided += [f"whether {check.claim}: {reason}"] if check in disputed else []
    return result


def _failed_besides(result: StreamChecks, other: StreamChecks) -> list[CheckCounter]:
    """Return the checks of a result that fail in the other result alone."""
    pairs = zip(result.checks, other.checks, strict=True)
    return [check for check, other_check in pairs if other_check.failed and not check.failed]


def _check_arrivals(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    release: ReleasedRows,
    clusters: RecomputedClusters,
    arrivals: StreamArrivals,
    stated: StatedAccounts,
    *,
    is_partial: bool,
) -> StreamChecks:
    stream, found = policy.require_stream(), StreamChecks()
    if not is_partial:
        found.accounts = check_unpublished(policy, originals, limits, clusters, arrivals, stated)
    found.checks.append(
        check_delay(stream.delta, originals, arrivals.by_partition, clusters.clusters, is_export=release.is_export)
    )
    found.checks.append(check_decision_order(originals, clusters.clusters, is_export=release.is_export))
    if stream.is_ordered:
        is_due = None if found.accounts is None else found.accounts.is_due
        found.checks += check_ordered_release(
            release, clusters.clusters, originals, reveals=stream.reveal_order, is_due=is_due
        )
    return found
