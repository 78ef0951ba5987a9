"""Skips to the end whose transaction had an unknown outcome, until the committed progress shows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafka import TopicPartition

from shoal.kafka.offset_metadata import CommittedState

__all__ = ["UnconfirmedSkips"]


@dataclass(slots=True)
class UnconfirmedSkips:
    """The last skip of each partition that this process sent, and that is not counted yet.

    A worker that gets no response to the end of a transaction does not know whether it was committed. Its next start
    reads the committed progress. If that is the commit of the skip, the skip is counted then.

    Notes
    -----
    The skip is not counted if the process ends before, or if another worker has taken over the partition and committed.
    """

    _sent: dict[TopicPartition, tuple[CommittedState, int]] = field(default_factory=dict)

    def add(self, tp: TopicPartition, commit: CommittedState, skipped_count: int) -> None:
        """Note that a transaction with this commit is about to be sent; it replaces an earlier one."""
        self._sent[tp] = commit, skipped_count

    def take(self, tp: TopicPartition, found: CommittedState) -> int | None:
        """Return the number of offsets that the skip with the commit found has skipped; None if it is of no skip.

        It is forgotten, so that it is counted once.
        """
        sent, skipped_count = self._sent.pop(tp, (None, None))
        if sent is None or (sent.at_ms, sent.state.committed_offset) != (found.at_ms, found.state.committed_offset):
            return None
        return skipped_count

    def forget(self, tp: TopicPartition) -> None:
        """Note that the transaction was committed, or that there was none."""
        self._sent.pop(tp, None)
