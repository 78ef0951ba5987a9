"""Which of two commits of a partition is the newer one, decided by what they say, without a clock."""

from __future__ import annotations

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
    other way round. If each covers the other, they differ in a decision that is taken and not applied (a flush), and
    the later one is newer.

    Guarantee: a record that is completed in either commit is completed in the newer one, so continuing from it releases
    no record a second time. Where that holds for neither commit, they contradict each other.

    Notes
    -----
    One commit after the other is `Order.NEWER`, because a completed offset stays completed and the time of a commit
    never goes back. So the order of the commits is known without a number in the metadata.
    """
    if copied == of_group:
        return Order.SAME
    covers, is_covered = copied.state.covers(of_group.state), of_group.state.covers(copied.state)
    if covers == is_covered:
        ranks = [(commit.at_ms, commit.state.handed_over_uncommitted) for commit in (copied, of_group)]
        if not covers or ranks[0] == ranks[1]:
            return Order.CONTRADICTS
        covers = ranks[0] > ranks[1]
    return Order.NEWER if covers else Order.OLDER
