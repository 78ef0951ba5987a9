"""What this process has counted of its partitions, over all their tasks: each record once, also after a failed task.

Records are counted as read when a task reads them, and by what became of them when a transaction is committed. After a
failed task two things are not known: which records were counted as read although no commit lists them, and whether the
last transaction was committed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aiokafka import TopicPartition

from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.producer import TransactionBatch
from shoal.observability import ClusterFigures, Metrics, logger
from shoal.records import DropReason, Reason

__all__ = ["PartitionCounts", "ProcessCounts", "TransactionCounts"]

NOT_KNOWN = "it is not known whether a transaction was committed: what became of its records is in no count"

log = logger("kafka")


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """What the metrics count when a transaction is committed. It holds no row.

    Attributes
    ----------
    released, clusters : int
        Numbers of released records and of clusters.
    unpublished : Counter of str
        Suppressed and quarantined records by reason.
    dropped : Counter of DropReason
        Dropped messages.
    stats : list
        As of `TransactionBatch`.
    """

    released: int
    clusters: int
    unpublished: Counter[str]
    dropped: Counter[DropReason]
    stats: list[ClusterFigures]

    @classmethod
    def of(cls, batch: TransactionBatch) -> TransactionCounts:
        """Return the counts of a batch."""
        reasons = Counter(entry.reason for entry in batch.unpublished)
        return cls(len(batch.rows), len(batch.clusters), reasons, batch.dropped, batch.stats)

    @property
    def record_count(self) -> int:
        """Number of released, suppressed and quarantined records."""
        return self.released + self.unpublished.total()

    def add_to(self, metrics: Metrics, topic: str, partition: int) -> None:
        """Count them."""

        def count(outcome: str, reason: str, number: int) -> None:
            metrics.records.labels(outcome, reason, topic, partition).inc(number)

        count("released", "", self.released)
        metrics.clusters.labels(topic, partition).inc(self.clusters)
        for reason, number in self.unpublished.items():
            count("suppressed" if reason == Reason.SUPPRESSED else "quarantined", reason, number)
        for dropped, number in self.dropped.items():
            count("dropped", dropped, number)
        for figures in self.stats:
            metrics.observe(*figures, partition=(topic, partition))


class _SentTransaction(NamedTuple):
    """A transaction of which it is not known whether it was committed, and the commit before it."""

    before: CommittedState
    commit: CommittedState
    counts: TransactionCounts


@dataclass(slots=True)
class PartitionCounts:
    """What this process has counted of one partition.

    Attributes
    ----------
    topic, partition : str, int
        Of the input.
    read_until : int
        What was read before this offset is counted as read.

    Notes
    -----
    At most one transaction has an unknown outcome: after a failed one a task sends no other, and the next task is
    opened with the commit that was found.
    """

    topic: str
    partition: int
    read_until: int = 0
    _sent: _SentTransaction | None = None

    @property
    def unconfirmed_count(self) -> int:
        """Number of records of the transaction whose outcome is not known."""
        return 0 if self._sent is None else self._sent.counts.record_count

    def send(self, before: CommittedState, commit: CommittedState, counts: TransactionCounts) -> None:
        """Note that a transaction is about to be sent, after the commit ``before``."""
        self._sent = _SentTransaction(before, commit, counts)

    def confirm(self, metrics: Metrics) -> None:
        """Count the transaction that was sent: it is committed."""
        if self._sent is not None:
            self._sent.counts.add_to(metrics, self.topic, self.partition)
        self._sent = None

    def forget(self) -> None:
        """Note that the transaction that was sent is not committed."""
        self._sent = None

    def open(self, found: CommittedState, log_end: int, metrics: Metrics) -> None:
        """Note that a task continues from a commit, and count the last transaction if this is its commit.

        If the commit is neither its own nor the one before it, another worker has continued: its outcome stays unknown.
        What is read from the end of the log on is counted, because the log may have been cut and written again.
        """
        self.read_until = min(self.read_until, log_end)
        sent = self._sent
        if sent is None:
            return
        if _is_same(sent.commit, found):
            self.confirm(metrics)
            return
        if sent.counts.record_count and not _is_same(sent.before, found):
            log.warning(NOT_KNOWN, topic=self.topic, partition=self.partition, records=sent.counts.record_count)
        self.forget()


@dataclass(slots=True)
class ProcessCounts:
    """The counts of each partition that this process has had."""

    _of: dict[TopicPartition, PartitionCounts] = field(default_factory=dict)

    def of(self, tp: TopicPartition) -> PartitionCounts:
        """Return the counts of a partition, the same for all its tasks."""
        return self._of.setdefault(tp, PartitionCounts(tp.topic, tp.partition))

    def log_unconfirmed(self) -> None:
        """Log how many records the transactions hold whose outcome this process no longer learns."""
        records = sum(one.unconfirmed_count for one in self._of.values())
        if records:
            log.warning(NOT_KNOWN, records=records)


def _is_same(one: CommittedState, other: CommittedState) -> bool:
    """Return whether two commits are the same progress, also if one was committed again under another policy."""
    first, second = (replace(commit.state, adaptive_state=b"") for commit in (one, other))
    return one.at_ms == other.at_ms and first == second
