"""When the task of a partition commits, and when it should read no further until it has."""

from __future__ import annotations

import asyncio
import math

from shoal.kafka.collector import RecordCollector
from shoal.kafka.offset_tracker import OffsetTracker
from shoal.kafka.partition_reader import PartitionReader

__all__ = ["CommitTiming"]


class CommitTiming:
    """The times of the commits of one task.

    A commit is due when the commit interval has passed, and earlier when the decisions fill a transaction. If the
    output is slow, as under a quota, what is read in a long commit interval would exceed the transaction timeout.

    Parameters
    ----------
    collector, tracker, reader : RecordCollector, OffsetTracker, PartitionReader
        Of the task. They are read, and not changed.
    interval_s : float
        Commit interval (s).
    """

    def __init__(
        self, collector: RecordCollector, tracker: OffsetTracker, reader: PartitionReader, interval_s: float
    ) -> None:
        self._collector, self._tracker, self._reader = collector, tracker, reader
        self.interval_s = interval_s

    @property
    def can_commit(self) -> bool:
        """Whether the task may commit.

        A commit lists rejected future timestamps: the task must have read all messages up to the restored commit.
        """
        return self._tracker.can_commit and self._reader.has_restored

    @property
    def has_uncommitted_state(self) -> bool:
        """Whether there is anything to commit.

        This is so also if only control records were read. Otherwise Kafka's tools report a lag above 0.
        """
        return self._collector.has_unpacked or self._tracker.offset_to_commit > self._collector.committed_offset

    @property
    def is_full(self) -> bool:
        """Whether reading should pause until a transaction ends.

        Without a transaction, a task that cannot commit yet is never full: it must read on to be able to.
        """
        return self._collector.is_full and (self._collector.is_busy or self.can_commit)

    @property
    def wait_s(self) -> float:
        """Time until a commit is due (s), whether or not a transaction is being sent; infinite if none can be made."""
        if not (self.has_uncommitted_state and self.can_commit):
            return math.inf
        return 0.0 if self._collector.is_full else self._collector.interval_left_s(self.interval_s)

    @property
    def is_due(self) -> bool:
        """Whether a commit is due."""
        return self.wait_s == 0

    @property
    def next_commit(self) -> tuple[float, asyncio.Task[None] | None]:
        """Time until a commit is packed (s), infinite if it cannot; and the transaction that it waits for."""
        if not self._collector.is_busy:
            return self.wait_s, None
        is_awaited = self._collector.has_unpacked or self._collector.is_full
        return math.inf, self._collector.sending if is_awaited else None
