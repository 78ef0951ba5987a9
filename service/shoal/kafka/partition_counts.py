"""What this process has counted of its partitions, over all their tasks: each record once, also after a failed task."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafka import TopicPartition

__all__ = ["PartitionCounts", "ProcessCounts"]


@dataclass(slots=True)
class PartitionCounts:
    """What this process has counted of one partition.

    A task that fails has counted records as read that no commit lists. The next task takes them for unread.

    Attributes
    ----------
    read_until : int
        What was read before this offset is counted.
    """

    read_until: int = 0

    def open(self, log_end: int) -> None:
        """Note that a task was opened: offsets from the end of the log on are counted anew if the log was cut."""
        self.read_until = min(self.read_until, log_end)


@dataclass(slots=True)
class ProcessCounts:
    """The counts of each partition that this process has had."""

    _of: dict[TopicPartition, PartitionCounts] = field(default_factory=dict)

    def of(self, tp: TopicPartition) -> PartitionCounts:
        """Return the counts of a partition, the same for all its tasks."""
        return self._of.setdefault(tp, PartitionCounts())
