"""Suppressions that the files show to be possible, and not to have happened: what may have caused them, and how often.

A flush decides on all held records at once, and so do a time limit and the size of the offset metadata as far as they
suppress: the records that one moment suppresses were all held, so they belong to fewer than k subjects (of fewer than
``min_population`` where the policy sets it). No cluster with an older member was decided between them. If the one
between a and b was decided at that moment, its members were held when a was suppressed, and k subjects were held. So
the claimed records of a partition, in the order of their positions, need a moment for each group of fewer than k
subjects between two clusters. The fewest groups are found by taking as many records as possible into each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import Enum

from shoal.audit.verdict import counted
from shoal.policy import Policy

__all__ = ["Cause", "ClaimedSuppressions"]

UNDECIDED_WINDOW = (
    "referenced as suppressed although k subjects were held: only a restart that did not find the start of their quota "
    "window in the log explains this, and the original has the start: give an original that begins where the log "
    "began then, or judge a part (--partial)"
)


class Cause(Enum):
    """What may have suppressed a record although delta and the end of the input did not."""

    DOMINANCE = "dominance"
    VALUES = "l, t or max_value_share"
    EARLY = "early"
    LOST_WINDOW = "a restart that lost the start of a quota window"
    WHOLE_WINDOW = "a restart, although the original has the start of the quota window"


class ClaimedSuppressions:
    """Collects claimed suppressions in the order of their positions, and tells of them.

    Parameters
    ----------
    policy : Policy
        Must have a stream section.
    is_export : bool
        Whether the original is an export of a topic. A file is flushed by a time limit alone.
    """

    def __init__(self, policy: Policy, *, is_export: bool) -> None:
        self._population = max(policy.k, policy.min_population or 0)
        has_time_limit = policy.require_stream().max_delay_s is not None and policy.min_population is None
        causes = ["a flush", "the size of the offset metadata"] if is_export else []
        self._early_causes = " or ".join([*(["a time limit"] if has_time_limit or not is_export else []), *causes])
        self._counts: Counter[Cause] = Counter()
        self.names_records = True
        """Whether it is stated which records were suppressed, and not only how many."""
        self._held: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def add(self, cause: Cause, partition: int, gap: int, position: int, subject: int) -> None:
        """Add a record; ``gap``: how many clusters have an older member."""
        self._counts[cause] += 1
        if cause is Cause.EARLY:
            self._held[partition].append((position, gap, subject))

    def fewest_moments(self) -> int:
        """Return at how many moments the records of `Cause.EARLY` must have been suppressed. Cost: O(n log n)."""
        moments = 0
        for records in self._held.values():
            subjects: set[int] = set()
            last_gap = -1
            for _, gap, subject in sorted(records):
                if gap != last_gap or len(subjects | {subject}) >= self._population:
                    moments, subjects, last_gap = moments + 1, set(), gap
                subjects.add(subject)
        return moments

    def texts(self, source: str) -> Counter[str]:
        """Return numbers of records by what is claimed of them; ``source``: what states the suppressions."""
        found: Counter[str] = Counter()
        for cause, count in self._counts.items():
            if cause is Cause.WHOLE_WINDOW:
                continue
            named, needed = cause.value, ""
            if cause is Cause.EARLY:
                named = self._early_causes
            if cause is Cause.EARLY and self.names_records:
                needed = f" (needs at least {counted(self.fewest_moments(), 'such decision')})"
            found[
                f"suppressed because of {named}, as the {source} states: the files show that this is possible, and not "
                f"that it is so{needed}"
            ] = count
        return found

    def undecided(self) -> Counter[str]:
        """Return numbers of records by what would decide on them."""
        count = self._counts[Cause.WHOLE_WINDOW]
        return Counter({UNDECIDED_WINDOW: count} if count else {})
