"""Which records of a stream were held when one of them expired, computed from the clusters of the evidence.

Every decision of a stream concerns the oldest held record: it is released in a cluster, or suppressed; a release of all
held records includes it. So when a record is suppressed, a cluster with an older member has been decided before, and a
cluster without one is decided later, whatever the rule. The records that were held with a suppressed record are those
of later clusters and later suppressed ones, as far as they had arrived.

The moment is known where only delta and the end of the input decide: then delta more records have arrived, or the input
has ended. A clock, the size of the metadata or an operator may decide earlier. Then at least the newest member of all
earlier clusters has arrived.

The decided record is the oldest held one under every cause: delta, a clock, the size of the metadata. Rule block and a
flush decide on all held records, and number their clusters by the oldest member. A restart holds the undecided records
again. Records arrive in the order of their offsets. So the oldest members of the clusters ascend in the order of
decision, and no record is held that is older than the oldest member of a cluster that was decided.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.audit.arrivals import Arrivals, BoolVector, Int64Vector
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.policy import Policy

__all__ = ["PartitionHistory"]

FIRST_LOOK = 8
"""So many times k records are counted first; among them are usually k subjects."""


class PartitionHistory:
    """The arrivals of one partition and the decisions on them.

    Parameters
    ----------
    policy : Policy
        Must have a stream section.
    originals : Originals
    arrivals : Arrivals
    clusters : sequence of RecomputedCluster
        The clusters of the partition.
    may_flush_early : bool
        Whether something else than delta and the end of the input may have decided on records.
    """

    def __init__(
        self,
        policy: Policy,
        originals: Originals,
        arrivals: Arrivals,
        clusters: Sequence[RecomputedCluster],
        *,
        may_flush_early: bool,
    ) -> None:
        count = len(arrivals)
        self._arrivals, self._may_flush_early = arrivals, may_flush_early
        self._may_suppress_early = originals.is_export or (may_flush_early and policy.min_population is None)
        stream = policy.require_stream()
        self._k, self._delta = policy.k, stream.delta
        self._population = max(policy.k, policy.min_population or 0)
        self._subjects = originals.subjects[arrivals.indices]
        self._oldest = np.arange(count)
        """For a released record the position of the oldest member of its cluster; for others their own position."""
        self._is_released = np.zeros(count, np.bool_)
        newest = np.arange(count)
        spans = []
        for cluster in clusters:
            positions = arrivals.positions_of(originals.offsets[list(cluster.members)])
            start, end = int(positions.min()), int(positions.max())
            self._oldest[positions], self._is_released[positions] = start, True
            newest[start] = max(newest[start], end)
            spans.append((start, end))
        self._newest_of_earlier = np.maximum.accumulate(np.concatenate(([-1], newest)))[:-1]
        self._starts = np.sort(np.array([start for start, _ in spans], np.int64))
        self._last_start = max((start for start, _ in spans), default=0)
        self._releases_all = stream.rule == "block"
        self.is_flushed = not may_flush_early and self._has_flushed_cluster(spans)
        """Whether a cluster shows that the end of the input was decided on, so that nothing is held."""

    def _has_flushed_cluster(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether a cluster is too young for delta: neither it nor one released with it has a record that expired."""
        last_expired = len(self._arrivals) - 1 - self._delta
        if not self._releases_all:
            return any(start > last_expired for start, _ in spans)
        expired = max((start for start, _ in spans if start <= last_expired), default=-1 - self._delta)
        return any(end > expired + self._delta for _, end in spans)

    def flushed_population(self) -> int | None:
        """Return the subjects that were held when the end of the input released records; None if it is not known.

        Rule block also releases records that have not expired, so its last clusters do not show the end.
        """
        if not self.is_flushed or self._releases_all:
            return None
        held = self._arrivals.is_sure & (self._oldest >= len(self._arrivals) - self._delta)
        return len(np.unique(self._subjects[held]))

    def may_be_held(self, positions: Int64Vector, *, counts_all: bool) -> BoolVector:
        """Return for each position whether fewer than delta records arrived after it, so that a record may be held.

        ``counts_all``: count all records that may have been admitted, and not only those that certainly were.
        """
        count = len(self._arrivals)
        if self.is_flushed:
            return np.zeros(len(positions), np.bool_)
        if counts_all or not count:
            return np.asarray(count - 1 - positions < self._delta)
        at_least = self._arrivals.at_least
        return np.asarray(at_least[-1] - at_least[np.minimum(positions, count - 1)] < self._delta)

    def is_decided(self, offsets: Int64Vector) -> BoolVector:
        """Return for each offset whether it is older than the oldest member of a cluster, so that it is not held."""
        if not self._is_released.any():
            return np.zeros(len(offsets), np.bool_)
        return np.asarray(offsets < self._arrivals.offsets[self._last_start])

    def clusters_before(self, position: int) -> int:
        """Return how many clusters have a member that is older than the record at this position."""
        return int(np.searchsorted(self._starts, position))

    def was_short(self, position: int, *, counts_all: bool) -> bool:
        """Whether fewer than k subjects were held when the record at this position expired by delta or at the end.

        ``counts_all``: count all records that may have been admitted, and not only those that certainly were.
        """
        last = min(position + self._delta, len(self._arrivals) - 1)
        return self._is_short(position, last, is_end=last == len(self._arrivals) - 1, counts_all=counts_all)

    def may_have_been_short(self, position: int, *, counts_all: bool) -> bool:
        """Whether fewer than k subjects may have been held when something else decided on the record.

        An operator may flush a partition of a service. This decides as the end of a file does: fewer than
        ``min_population`` subjects are suppressed. A clock decides on nothing while fewer than that are held, so under
        ``min_population``, which is at least k, it suppresses no record.

        ``counts_all``: count all records that may have been admitted, and not only those that certainly were.
        """
        if not self._may_suppress_early:
            return False
        last = max(position, int(self._newest_of_earlier[position]))
        return self._is_short(position, last, is_end=True, counts_all=counts_all)

    def _is_short(self, position: int, last: int, *, is_end: bool, counts_all: bool) -> bool:
        """Whether too few subjects were held: records that had arrived and were not decided before."""
        held, subjects = self._held_with(position, min(last, position + FIRST_LOOK * self._k), counts_all=counts_all)
        if subjects < self._population:
            held, subjects = self._held_with(position, last, counts_all=counts_all)
        # Fewer than min_population are suppressed at the end of the input, and then all of them.
        is_all = is_end and not self._is_released[held].any()
        return subjects < (self._population if is_all else self._k)

    def _held_with(self, position: int, last: int, *, counts_all: bool) -> tuple[Int64Vector, int]:
        """Return the positions up to ``last`` held together with this one, and the number of their subjects."""
        window = slice(position, last + 1)
        may_be_held = self._oldest[window] >= position
        held = position + np.flatnonzero(may_be_held if counts_all else may_be_held & self._arrivals.is_sure[window])
        return held, len(np.unique(self._subjects[held]))
