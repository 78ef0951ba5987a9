"""The arrivals of a stream, and the delay and the order of its decisions.

The delay is counted in arrivals, per partition: a log has gaps, and a record does not arrive if it is unusable, above
``privacy.per_subject``, too large, or dated too far ahead. If files do not show whether a record arrived, counts get a
lower and an upper bound.

A record is decided at the latest with the delta-th arrival after it. Every member of a cluster has arrived when it is
decided, and clusters are decided one after the other. So the newest member of all clusters decided so far is at most
delta arrivals after the oldest member of each. Each cluster holds the oldest held record, and clusters released
together are numbered by their oldest members. So the oldest members ascend in the order of decision.

Source: J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation", ICDMW 2017, Definition 4
(doi:10.1109/ICDMW.2017.141).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from shoal.audit.clusters import (
    AdmissionLimits,
    BoolVector,
    RecomputedCluster,
    clusters_by_partition,
    has_repeated_numbers,
    members_of,
    starts_of,
)
from shoal.audit.fields import Int32Vector, Int64Vector
from shoal.audit.originals import UNKNOWN_TIMESTAMP, UNUSABLE, Originals
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import Policy

Counted: TypeAlias = Literal["certain", "unless claimed", "all"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The records of one partition that may have arrived, by their positions in the order of offsets."""

    indices: Int64Vector
    offsets: Int64Vector
    is_sure: BoolVector  # whether the record arrived for certain
    at_least: Int32Vector  # how many up to and including this position did

    def __len__(self) -> int:
        return len(self.indices)

    def positions_of(self, offsets: Int64Vector) -> Int64Vector:
        """Return the positions of offsets. For an offset without such a record: the position of the next record."""
        return np.searchsorted(self.offsets, offsets).astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class StreamArrivals:
    """The arrivals of all partitions of a stream; the vectors are of all originals."""

    by_partition: dict[int, Arrivals]
    may_be_in_lost_window: BoolVector  # a restart may have suppressed the record because of ``privacy.per_subject``
    is_window_whole: BoolVector  # the original has the start of its quota window; if the log had, it was counted again

    def certain(self) -> dict[int, int]:
        """Return the number of certain arrivals in each partition."""
        return {partition: int(np.count_nonzero(found.is_sure)) for partition, found in self.by_partition.items()}


def arrivals_of(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    is_released: BoolVector,
    reasons: Mapping[int, str] | None,
    *,
    counted: Counted = "certain",
    ahead: Collection[int] = (),
) -> StreamArrivals:
    """Return the arrivals of each partition; ``reasons`` is None without a quarantine file. Cost: O(n log n).

    ``counted``: which records count as certain arrivals. "certain": files prove the arrival. "all": no file shows that
    a limit is exceeded, whatever the quarantine says. "unless claimed": these without ``ahead``, the records that are
    claimed to be dated too far ahead.
    """
    usable = originals.subjects != UNUSABLE
    excess, unclear = limits.exceeds_quota, limits.may_be_too_large.copy()
    if not originals.is_ended:
        unclear[-1] = True
    possible = usable & ~excess & ~limits.is_too_large
    sure = possible & ~unclear if counted == "certain" else possible.copy()
    if counted == "unless claimed":
        possible[list(ahead)] = sure[list(ahead)] = False
    if originals.is_export and counted == "certain":
        if reasons is None:
            sure &= _is_not_ahead(originals, is_released)  # a service also rejects records by its clock
        else:
            # The quarantine says which were rejected, and which arrived; a restart may have suppressed the others.
            suppressed, others = _referenced(reasons, len(originals))
            possible, sure = usable & ~others & ~(suppressed & excess), suppressed & ~excess
    possible |= is_released
    may_be_in_lost_window = _may_be_in_lost_window(policy, originals, is_released, possible)
    is_window_whole = _is_window_whole(policy, originals)
    may_be_lost = {
        "certain": may_be_in_lost_window,
        "unless claimed": may_be_in_lost_window & ~is_window_whole,
        "all": np.zeros_like(sure),
    }
    sure = (sure & usable & ~may_be_lost[counted]) | is_released
    by_partition = {}
    for partition, chosen in originals.by_partition.items():
        indices, offsets = chosen, originals.offsets_of(partition)
        if not possible[chosen].all():
            indices = chosen[possible[chosen]]
            offsets = originals.offsets[indices]
        by_partition[partition] = Arrivals(indices, offsets, sure[indices], np.cumsum(sure[indices], dtype=np.int32))
    return StreamArrivals(by_partition, may_be_in_lost_window, is_window_whole)


def check_delay(
    delta: int, originals: Originals, arrivals: Mapping[int, Arrivals], clusters: Sequence[RecomputedCluster]
) -> CheckCounter:
    """Return the check ``delay``; its worst value is the largest certain delay, in records. Cost: O(n log n)."""
    check = CheckCounter(
        "delay", f"no record was released more than {counted(delta, 'record')} after it arrived", "cluster"
    )
    for members, is_in_order in _decided(originals, clusters):
        found, starts = arrivals[members[0].partition], starts_of(members)
        ranks = found.at_least[found.positions_of(originals.offsets[members_of(members)])]
        newest = np.maximum.reduceat(ranks, starts)
        delays = (np.maximum.accumulate(newest) if is_in_order else newest) - np.minimum.reduceat(ranks, starts)
        check.expect_all(delays <= delta, [cluster.label for cluster in members].__getitem__)
        check.worst = max(int(delays.max()), int(check.worst or 0))
    return check


def check_decision_order(originals: Originals, clusters: Sequence[RecomputedCluster]) -> CheckCounter:
    """Return the check ``oldest_first``: oldest members ascend in the order of decision. O(n + m log m), m clusters."""
    check = CheckCounter("oldest_first", "clusters were decided in the order of their oldest records", "cluster")
    for members, is_in_order in _decided(originals, clusters):
        if not is_in_order:
            check.skip("the evidence repeats numbers of clusters")
            continue
        oldest = np.minimum.reduceat(originals.offsets[members_of(members)], starts_of(members))
        newest_before = np.maximum.accumulate(np.concatenate(([-1], oldest[:-1])))
        check.expect_all(oldest > newest_before, [cluster.label for cluster in members].__getitem__)
    return check


def _decided(
    originals: Originals, clusters: Sequence[RecomputedCluster]
) -> Iterator[tuple[list[RecomputedCluster], bool]]:
    """Yield the clusters of each partition in the order of decision, and whether the evidence shows that order."""
    for members in clusters_by_partition(clusters).values():
        is_in_order = not (originals.is_export and has_repeated_numbers(members))
        if originals.is_export and is_in_order:
            members.sort(key=lambda cluster: cluster.number)
        yield members, is_in_order


def _is_not_ahead(originals: Originals, is_released: BoolVector) -> BoolVector:
    """Return which records the clock did not reject: a released one with a lower offset is not earlier, shape (n,)."""
    found = np.zeros(len(originals), np.bool_)
    for chosen in originals.by_partition.values():
        timestamps = originals.timestamps[chosen]
        latest = np.maximum.accumulate(np.where(is_released[chosen], timestamps, UNKNOWN_TIMESTAMP))
        latest_before = np.concatenate(([UNKNOWN_TIMESTAMP], latest[:-1]))
        found[chosen] = (timestamps != UNKNOWN_TIMESTAMP) & (timestamps <= latest_before)
    return found


def _is_window_whole(policy: Policy, originals: Originals) -> BoolVector:
    found = np.ones(len(originals), np.bool_)
    option = policy.per_subject
    if option is None:
        return found
    for chosen in originals.by_partition.values():
        offsets = originals.offsets[chosen]
        found[chosen] = offsets - offsets % option.window >= offsets[0]
    return found


def _may_be_in_lost_window(
    policy: Policy, originals: Originals, is_released: BoolVector, may_arrive: BoolVector
) -> BoolVector:
    """Return which records a restart may have suppressed because of ``privacy.per_subject``, shape (n,).

    A restarted service suppresses the rest of a quota window whose first records it cannot read again. If a record of
    the window was released more than delta arrivals later, the restart did not suppress this record.
    """
    lost = np.zeros(len(originals), np.bool_)
    option = policy.per_subject
    if option is None or policy.stream is None or not originals.is_export:
        return lost
    for chosen in originals.by_partition.values():
        ranks = np.cumsum(may_arrive[chosen])
        windows = originals.offsets[chosen] // option.window
        starts = np.flatnonzero(np.diff(windows, prepend=windows[0] - 1))
        latest = np.maximum.reduceat(np.where(is_released[chosen], ranks, 0), starts)
        sizes = np.diff(np.append(starts, len(chosen)))
        lost[chosen] = np.repeat(latest, sizes) - ranks <= policy.stream.delta
    return lost


def _referenced(reasons: Mapping[int, str], count: int) -> tuple[BoolVector, BoolVector]:
    """Return which records are referenced as suppressed, and which for another reason."""
    suppressed, others = np.zeros((2, count), np.bool_)
    for index, reason in reasons.items():
        (suppressed if reason == "suppressed" else others)[index] = True
    return suppressed, others
