"""The arrivals of a stream: which records arrived at the clusterer, and how many between two of them.

The delay of a stream is counted in arrivals, per partition. Offsets do not count, because a log has gaps. A record does
not arrive if it is unusable, above ``privacy.per_subject``, too large, or dated too far ahead. If files do not show
whether a record arrived, counts get a lower and an upper bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.audit.originals import UNKNOWN_TIMESTAMP, UNUSABLE, Originals
from shoal.audit.sizes import DEFAULT_MAX_BYTES
from shoal.policy import PerSubject, Policy

__all__ = ["AdmissionLimits", "Arrivals", "BoolVector", "Counted", "Int64Vector", "StreamArrivals", "arrivals_of"]

BoolVector: TypeAlias = npt.NDArray[np.bool_]
Counted: TypeAlias = Literal["certain", "unless claimed", "all"]
Int64Vector: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The records of one partition that may have arrived, in the order of their offsets.

    The position of a record is its index in these arrays.

    Attributes
    ----------
    indices, offsets : ndarray of int64, shape (n,)
        Indices of the originals, and their offsets.
    is_sure : ndarray of bool, shape (n,)
        Whether the record arrived for certain.
    at_least : ndarray of int64, shape (n,)
        Number of records up to and including this position that arrived for certain.
    """

    indices: Int64Vector
    offsets: Int64Vector
    is_sure: BoolVector
    at_least: Int64Vector

    def __len__(self) -> int:
        return len(self.indices)

    def positions_of(self, offsets: Int64Vector) -> Int64Vector:
        """Return the positions of offsets. For an offset without such a record: the position of the next record."""
        return np.searchsorted(self.offsets, offsets).astype(np.int64)


@dataclass(frozen=True, slots=True)
class StreamArrivals:
    """The arrivals of all partitions of a stream.

    Attributes
    ----------
    by_partition : dict of int to Arrivals
    may_be_in_lost_window : ndarray of bool, shape (n,)
        Which of all originals a restart may have suppressed because of ``privacy.per_subject``.
    is_window_whole : ndarray of bool, shape (n,)
        True if the original begins at or before the first offset of the record's quota window. If the log did too, a
        restart counted the whole window again.
    """

    by_partition: dict[int, Arrivals]
    may_be_in_lost_window: BoolVector
    is_window_whole: BoolVector

    def has_as_many(self, other: StreamArrivals) -> bool:
        """Whether both have the same number of certain arrivals in each partition."""
        pairs = ((found, other.by_partition[partition]) for partition, found in self.by_partition.items())
        return all(np.count_nonzero(one.is_sure) == np.count_nonzero(two.is_sure) for one, two in pairs)


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Which originals exceed a limit of the policy, computed once for all checks.

    Attributes
    ----------
    exceeds_quota : ndarray of bool, shape (n,)
        Which usable records exceed ``privacy.per_subject``. In each window the first records of a subject arrive.
    is_too_large, may_be_too_large : ndarray of bool, shape (n,)
        True if the smallest (largest) possible size exceeds ``kafka.max_record_bytes``.
    """

    exceeds_quota: BoolVector
    is_too_large: BoolVector
    may_be_too_large: BoolVector

    @classmethod
    def of(cls, policy: Policy, originals: Originals) -> AdmissionLimits:
        """Compare all records with the limits. Cost: O(n)."""
        limit = DEFAULT_MAX_BYTES if policy.kafka is None else policy.kafka.max_record_bytes
        is_too_large, may_be_too_large = (originals.sizes > limit).T
        is_counted = (originals.subjects != UNUSABLE) & ~is_too_large
        return cls(_exceeds_quota(policy.per_subject, originals, is_counted), is_too_large, may_be_too_large)


def _exceeds_quota(option: PerSubject | None, originals: Originals, is_counted: BoolVector) -> BoolVector:
    exceeds = np.zeros(len(originals), np.bool_)
    if option is None:
        return exceeds
    for chosen in originals.by_partition.values():
        usable = chosen[is_counted[chosen]]
        windows = (originals.offsets[usable] // option.window).tolist()
        counts: Counter[tuple[int, int]] = Counter()
        for index, key in zip(
            usable.tolist(), zip(windows, originals.subjects[usable].tolist(), strict=True), strict=True
        ):
            counts[key] += 1
            exceeds[index] = counts[key] > option.max
    return exceeds


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
    """Return the arrivals of each partition. Cost: O(n log n).

    Parameters
    ----------
    policy : Policy
    originals : Originals
    limits : AdmissionLimits
    is_released : ndarray of bool, shape (n,)
        Whether each record is a member of a cluster. Unusable records are never members.
    reasons : mapping of int to str, or None
        Reason of each referenced original, by its index; None without a quarantine file.
    counted : {"certain", "unless claimed", "all"}
        Which records count as certain arrivals. "certain": files prove the arrival. "all": no file shows that a limit
        is exceeded; the quarantine is ignored. "unless claimed": as "all", without records whose rejection is only
        claimed.
    ahead : collection of int
        Indices of the records that are claimed to be rejected by the clock.
    """
    usable = originals.subjects != UNUSABLE
    excess, unclear = limits.exceeds_quota, limits.may_be_too_large.copy()
    if not originals.is_ended:
        unclear[-1] = True
    possible = usable & ~excess & ~limits.is_too_large
    sure = possible & ~unclear if counted == "certain" else possible.copy()
    if counted == "unless claimed":
        possible[list(ahead)] = sure[list(ahead)] = False
    if originals.is_export and counted == "certain" and reasons is None:
        sure &= _is_not_ahead(originals, is_released)  # a service also rejects records by its clock
    elif originals.is_export and counted == "certain" and reasons is not None:
        # The quarantine says which records were rejected, and which arrived; a restart may have suppressed the others.
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
    by_partition = {
        partition: _arrivals(originals, chosen[possible[chosen]], sure)
        for partition, chosen in originals.by_partition.items()
    }
    return StreamArrivals(by_partition, may_be_in_lost_window, is_window_whole)


def _is_not_ahead(originals: Originals, is_released: BoolVector) -> BoolVector:
    """Return which records were not rejected by the clock, as released records show, shape (n,). Cost: O(n log n).

    True if a released record with a lower offset has the same or a later timestamp. The service did not reject this
    record by its clock.
    """
    found = np.zeros(len(originals), np.bool_)
    for chosen in originals.by_partition.values():
        timestamps = originals.timestamps[chosen]
        latest = np.maximum.accumulate(np.where(is_released[chosen], timestamps, UNKNOWN_TIMESTAMP))
        latest_before = np.concatenate(([UNKNOWN_TIMESTAMP], latest[:-1]))
        found[chosen] = (timestamps != UNKNOWN_TIMESTAMP) & (timestamps <= latest_before)
    return found


def _is_window_whole(policy: Policy, originals: Originals) -> BoolVector:
    """Return `StreamArrivals.is_window_whole`: an array, shape (n,)."""
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
    """Return which records a restart may have suppressed because of ``privacy.per_subject``, shape (n,). Cost: O(n).

    A restarted service suppresses the rest of a quota window whose first records it cannot read again. If a record of
    the window was released more than delta arrivals later, the restart did not suppress this record.

    Parameters
    ----------
    policy : Policy
    originals : Originals
    is_released, may_arrive : ndarray of bool, shape (n,)
        Which records were released, and which may have arrived.
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


def _arrivals(originals: Originals, indices: Int64Vector, sure: BoolVector) -> Arrivals:
    return Arrivals(indices, originals.offsets[indices], sure[indices], np.cumsum(sure[indices]))
