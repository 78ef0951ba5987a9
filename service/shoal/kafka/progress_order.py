"""Which of two commits of a partition is the newer one, decided by what they have completed."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from shoal.kafka.offset_metadata import CommittedState

__all__ = ["Order", "order_of"]


class Order(Enum):
    """How the commit in the copy compares with that of the group."""

    SAME = auto()
    NEWER = auto()
    OLDER = auto()
    CONTRADICTS = auto()


def order_of(copied: CommittedState, of_group: CommittedState) -> Order:
    """Return how a copied commit compares with the commit of the group.

    A commit is newer than another if every offset that is completed or clustered in the other is so in it, and not the
    other way round. If each covers the other, the one is newer that has read further, and then by its time, by a flush
    that is decided and not done, and by clusters that may have been handed over and are not committed. The same
    progress under two policies is the same: a start under a changed policy commits it once more, and a worker without
    the setting writes no copy.

    Guarantee: a record that is completed in either commit is completed in the newer one, so continuing from it releases
    no record a second time. Where that holds for neither commit, they contradict each other.

    Notes
    -----
    The later of two commits of one history is `Order.NEWER`, because a completed offset stays completed, and neither
    the next offset nor the time of a commit goes back. So no number of the commit is needed in the metadata.
    """
    # A start commits the same state once more: then only the place of the rows in the output differs.
    copied = replace(copied, output_rows=of_group.output_rows)
    if copied == of_group or _differ_only_in_policy(copied, of_group):
        return Order.SAME
    covers, is_covered = copied.state.covers(of_group.state), of_group.state.covers(copied.state)
    if covers == is_covered:
        if not covers or _rank(copied) == _rank(of_group):
            return Order.CONTRADICTS
        covers = _rank(copied) > _rank(of_group)
    return Order.NEWER if covers else Order.OLDER


def _differ_only_in_policy(one: CommittedState, other: CommittedState) -> bool:
    """Return whether a start under another policy has committed the progress of one of them as the other."""
    fingerprint = other.fingerprint
    return not one.has_policy(fingerprint) and one.under_policy(fingerprint) == other.under_policy(fingerprint)


def _rank(commit: CommittedState) -> tuple[int, int, bool, bool]:
    """Return what never becomes smaller from one commit to the next, as long as no further offset is completed."""
    state = commit.state
    return state.next_offset, commit.at_ms, state.flush_at_offset is not None, state.handed_over_uncommitted
