"""The transactional producer of one partition: rows and committed offset are written together or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import IllegalOperation, InvalidTxnState
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import BrokerUnavailableError, FencedError, InputError
from shoal.kafka.client import CLIENT_ERRORS, broker_error, producer, stop, transaction_error
from shoal.kafka.gap_reader import first_record
from shoal.kafka.invalid_record import InvalidRecordError
from shoal.kafka.output_rows import OutputRows
from shoal.kafka.preflight import TopicLayout
from shoal.kafka.producer_start import start_in_time
from shoal.kafka.progress_copy import ProgressCopy
from shoal.kafka.topic_pairs import has_several_inputs
from shoal.observability import ClusterFigures, Metrics, logger
from shoal.pipeline import DecidedCluster, release_strategy
from shoal.policy import KafkaSection, Policy
from shoal.records import DropReason

__all__ = ["TransactionBatch", "TransactionalProducer", "UnpublishedRecord"]

CLOSE_S = 1.5
ASK_S = 10.0
REFERENCE_BYTES = 100
"""Approximate length of a message about a record or cluster, with what the record batch adds (bytes)."""

log = logger("kafka")


@dataclass(frozen=True, slots=True)
class UnpublishedRecord:
    """A record that is suppressed or quarantined: its offset in the input, and the reason."""

    offset: int
    reason: str


@dataclass(slots=True)
class TransactionBatch:
    """Decisions that go into one transaction.

    Attributes
    ----------
    clusters : list of DecidedCluster
        In the order of decision.
    unpublished : list of UnpublishedRecord
        Records that are suppressed or quarantined.
    rows : list of bytes
        Published rows, in the order in which the pipeline released them.
    row_bytes : int
        Total length of the rows (bytes).
    stats : list of ClusterFigures
        What `Metrics.observe` counts after the commit.
    dropped : Counter of DropReason
        Messages that are dropped. They are counted after the commit; nothing of them is sent.
    """

    clusters: list[DecidedCluster] = field(default_factory=list)
    unpublished: list[UnpublishedRecord] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    row_bytes: int = 0
    stats: list[ClusterFigures] = field(default_factory=list)
    dropped: Counter[DropReason] = field(default_factory=Counter)

    @property
    def size_bytes(self) -> int:
        """Approximate length of all messages (bytes)."""
        return self.row_bytes + REFERENCE_BYTES * (len(self.unpublished) + len(self.clusters))

    def __bool__(self) -> bool:
        """Return whether there is anything to send."""
        return bool(self.clusters or self.unpublished or self.rows)


class TransactionalProducer:
    """The only writer of the output and the offset of one input partition.

    Parameters
    ----------
    policy : Policy
        Names of the quasi-identifiers, and how clusters are released.
    settings : KafkaSection
        Topics of the pair, group and timeouts.
    partition : int
        Of the input. Output goes to the partition of the same number.
    layout : TopicLayout
        Number of partitions of each topic (evidence, cluster messages and quarantine may have fewer), and the
        largest record batch.
    publishes : bool
        Whether rows are sent to the output. Evidence, cluster messages and quarantine entries are sent in any case.
    output_ends : dict, optional
        Ends of output partitions that brokers have acknowledged to earlier producers of the process; kept up to date.
    copy : ProgressCopy, optional
        Where each transaction also writes a copy of the commit.
    metrics : Metrics, optional
        Counts published offsets that brokers have lost.

    Notes
    -----
    Guarantee: `publish_and_commit` either commits the whole batch or raises. After an error this object must not be
    used again: the state of the partition is then unknown until the committed offset is read again.
    """

    def __init__(
        self,
        policy: Policy,
        settings: KafkaSection,
        partition: int,
        layout: TopicLayout,
        *,
        publishes: bool = True,
        output_ends: dict[TopicPartition, int] | None = None,
        copy: ProgressCopy | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._output_ends = {} if output_ends is None else output_ends
        self._publishes, self.copy, self._metrics = publishes, copy, metrics
        self._release = release_strategy(policy)
        self._settings, self._partition, self._partitions = settings, partition, layout.partitions
        self._names = [attribute.name for attribute in policy.quasi_identifiers]
        self._source = TopicPartition(settings.input, partition)
        self._named_input = {"topic": str(settings.input)} if has_several_inputs(settings) else {}
        self._producer = producer(settings, partition, layout.batch_bytes)
        self._has_failed = False
        self._next_offset: int | None = None
        """Offset in the output from which on all records are this producer's; one that is not shows a second writer."""
        self._check_first: Callable[[], Awaitable[None]] | None = None
        self.searched: dict[TopicPartition, int] = {}
        """Offset up to which `check_output_is_empty` has found nothing, by partition; kept up to date there."""

    def check_before_first(self, check: Callable[[], Awaitable[None]]) -> None:
        """Await this check before the first rows or clusters are sent; it raises if they must not be."""
        self._check_first = check

    def expect_output_from(self, offset: int | None) -> None:
        """Report a record of another producer in the output from this offset on; None: from its own first one on.

        The output ends there now. If it has ended later before, records are lost: brokers had acknowledged them. That
        is logged and counted.
        """
        self._next_offset = offset
        if offset is None:
            return
        tp = self.target(str(self._settings.output))
        lost_count = self._output_ends.get(tp, 0) - offset
        if lost_count > 0:
            self._output_ends[tp] = offset
            if self._metrics is not None:
                self._metrics.output_lost.labels(self._source.topic, self._partition).inc(lost_count)
            log.error(
                "the brokers have lost published records: the output ends before offsets that they had acknowledged "
                "(unclean leader election? topic recreated?). These records are not published again",
                topic=tp.topic,
                partition=tp.partition,
                end=offset,
                lost=lost_count,
            )

    def target(self, topic: str) -> TopicPartition:
        """Return the partition of a topic to which this producer writes."""
        is_output = topic == self._settings.output
        return TopicPartition(topic, self._partition if is_output else self._partition % self._partitions[topic])

    def is_only_writer(self, topic: str) -> bool:
        """Return whether this partition alone, of those of its input, writes to its partition of a topic."""
        return topic == self._settings.output or self._partitions[topic] >= self._partitions[str(self._settings.input)]

    async def open(self) -> None:
        """Fence the previous owner of the partition; its open transaction is aborted. Raises as `start_in_time`."""
        await start_in_time(self._producer, self._settings, self._partition)

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        """Send a batch and the committed offset in one transaction.

        Parameters
        ----------
        batch : TransactionBatch
            An empty one commits the offset alone.
        committed_offset : int
            Offset to commit for the group.
        metadata : str
            Offset metadata.
        at_ms : int
            Time of the commit (ms). Messages get it as their timestamp, floored to a multiple of the commit interval.

        Raises
        ------
        BrokerError
            The transaction is not committed, or its outcome is unknown.
        InputError
            Another producer writes to the output. The transaction is not committed.

        Notes
        -----
        Takes at most the transaction timeout, and two seconds more if a gap in the output was read. Before the first
        rows or clusters, what `check_before_first` was given takes its time in addition.
        """
        timestamp = at_ms // self._settings.commit_interval_ms * self._settings.commit_interval_ms
        if self._has_failed:
            raise BrokerUnavailableError("a transaction failed before: the committed offset must be read again")
        self._has_failed = True  # until the commit has succeeded
        try:
            if batch.clusters or batch.rows:
                # Before the transaction begins: it may read for longer than the timeout.
                await self._run_first_check(OffsetAndMetadata(committed_offset, metadata))
            # After this time the broker aborts the transaction by itself.
            async with asyncio.timeout(self._settings.transaction_timeout_ms / 1000):
                await self._transact(batch, OffsetAndMetadata(committed_offset, metadata), timestamp)
        except (IllegalOperation, InvalidTxnState) as error:
            # If the broker has refused one topic of a transaction, it refuses all its messages in this way. The client
            # refuses what is appended after that.
            cause = transaction_error(self._producer)
            if cause is None and not isinstance(error, InvalidTxnState):
                raise
            raise broker_error(cause or error, self._settings, "WRITE") from None
        except CLIENT_ERRORS as error:
            raise broker_error(error, self._settings, "WRITE") from None
        self._has_failed = False

    async def _transact(self, batch: TransactionBatch, offset: OffsetAndMetadata, timestamp: int) -> None:
        await self._producer.begin_transaction()
        messages = list(self._messages(batch))
        # Concurrently: aiokafka then adds all topics to the transaction with one request.
        sent = await asyncio.gather(*(self._send(topic, values, timestamp) for topic, values in messages))
        for (topic, _), record_batches in zip(messages, sent, strict=True):
            if topic == self._settings.output:
                await self._check_single_writer(record_batches)
        if self.copy is not None:
            await self._send_copy(self.copy, offset, timestamp)
        await self._producer.send_offsets_to_transaction({self._source: offset}, self._settings.group)
        await self._producer.commit_transaction()

    async def _run_first_check(self, offset: OffsetAndMetadata) -> None:
        if self._check_first is None:
            return
        try:
            await self._check_first()
        except InputError:
            # The records found may be those of another worker of this group that owns the partition now.
            await self._check_ownership(offset)
            raise
        self._check_first = None

    async def _check_ownership(self, offset: OffsetAndMetadata) -> None:
        """Raise `FencedError` if another worker owns the partition.

        It starts a transaction to find out, and aborts it. If the broker does not answer, this returns, and the caller
        raises its own error.
        """
        try:
            async with asyncio.timeout(ASK_S):
                await self._producer.begin_transaction()
                await self._producer.send_offsets_to_transaction({self._source: offset}, self._settings.group)
                await self._producer.abort_transaction()
        except CLIENT_ERRORS as error:
            if isinstance(fenced := broker_error(error), FencedError):
                raise fenced from None

    async def _check_single_writer(self, record_batches: Sequence[tuple[int, int]]) -> None:
        """Raise if another producer writes to the output: a second group would publish every record a second time.

        If offsets are missing between two record batches, there may be a second writer, or control records (transaction
        markers; a broker that restarts in the middle of a commit may write one twice). So these offsets are read. If
        they cannot be read, the transaction is not committed.

        An offset below the expected one shows no writer: the last transaction did not end as it was said to, or the
        output was recreated. Then `BrokerUnavailableError` is raised, and the next start checks both.
        """
        tp, expected = self.target(str(self._settings.output)), self._next_offset
        for first, count in record_batches:
            if expected is not None and first < expected:
                raise BrokerUnavailableError(
                    f"{tp.topic}-{tp.partition}: it ends before the end of the last transaction (was it recreated?): "
                    "the committed offset is read again"
                )
            if expected not in (None, first) and await first_record(self._settings, tp, expected) != first:
                raise InputError(
                    f"{tp.topic}-{tp.partition}: another producer writes to it (a second group over the same topics?), "
                    "which could publish records twice; nothing more was sent. Stop the other one: two groups over the "
                    "same records remove the guarantee, also with two outputs"
                )
            expected = first + count
        self._output_ends[tp] = sum(record_batches[-1])
        # The control record at the end of the transaction takes one offset.
        self._next_offset = self._output_ends[tp] + 1

    def know_output_end(self, offset: int) -> None:
        """Take over an end of the output that brokers acknowledged to an earlier process, as the copy says.

        `expect_output_from` then reports the records that were lost while no process ran.
        """
        if self._settings.output is not None:
            tp = self.target(self._settings.output)
            self._output_ends[tp] = max(offset, self._output_ends.get(tp, 0))

    def output_rows_of(self, batch: TransactionBatch) -> OutputRows | None:
        """Return where the rows of a batch will be in the output if it is sent next; None if that is not known."""
        output = self._settings.output
        if output is None or not self._publishes or self._next_offset is None:
            return None
        return OutputRows.of(output, self._next_offset, len(self._release.output_rows(batch.clusters, batch.rows)))

    async def close(self) -> None:
        """Stop the producer. An open transaction is aborted when the next producer of the partition opens."""
        await stop(self._producer, CLOSE_S)

    def _messages(self, batch: TransactionBatch) -> Iterable[tuple[str, Sequence[bytes]]]:
        """Yield each topic with its messages."""
        settings, encode = self._settings, msgspec.json.encode
        # Sorted, so that the order of clusters does not show which was decided first.
        clusters = sorted(batch.clusters, key=lambda cluster: cluster.rows[0])
        rows = self._release.output_rows(clusters, batch.rows)
        if rows and self._publishes:
            yield str(settings.output), rows
        if settings.clusters and clusters:
            yield settings.clusters, [self._cluster_message(cluster) for cluster in clusters]
        if settings.evidence and clusters:
            yield (
                settings.evidence,
                [self._evidence(cluster) for cluster in sorted(clusters, key=lambda cluster: cluster.number)],
            )
        if settings.quarantine and batch.unpublished:
            topic, partition = settings.input, self._partition
            yield (
                settings.quarantine,
                [
                    encode({"topic": topic, "partition": partition, "offset": entry.offset, "reason": entry.reason})
                    for entry in batch.unpublished
                ],
            )

    def _evidence(self, cluster: DecidedCluster) -> bytes:
        content = {"partition": self._partition, "cluster": cluster.number, "offsets": cluster.offsets}
        return msgspec.json.encode(self._named_input | content | {"policy": cluster.policy})

    def _cluster_message(self, cluster: DecidedCluster) -> bytes:
        centroid = {name: msgspec.Raw(text.encode()) for name, text in zip(self._names, cluster.centroid, strict=True)}
        content = {"centroid": centroid, "size": len(cluster.rows), "subjects": cluster.subjects}
        return msgspec.json.encode(self._named_input | content)

    async def _send_copy(self, copy: ProgressCopy, offset: OffsetAndMetadata, timestamp: int) -> None:
        """Send a copy of the commit, when it is known where the rows of this transaction end in the output."""
        value = copy.encode(offset.offset, offset.metadata, self._next_offset)
        record_batch = self._producer.create_batch()
        record_batch.append(key=copy.key, value=value, timestamp=timestamp)
        record_batch.close()
        await (await self._submit(record_batch, copy.tp))

    async def _send(self, topic: str, values: Sequence[bytes], timestamp: int) -> list[tuple[int, int]]:
        """Send messages; return the first offset and the number of messages of each record batch."""
        partition = self.target(topic).partition
        pending, counts = [], [0]
        record_batch = self._producer.create_batch()
        for value in values:
            if record_batch.append(key=None, value=value, timestamp=timestamp) is None:
                record_batch.close()
                pending.append(await self._submit(record_batch, TopicPartition(topic, partition)))
                record_batch = self._producer.create_batch()
                record_batch.append(key=None, value=value, timestamp=timestamp)
                counts.append(0)
            counts[-1] += 1
        record_batch.close()
        pending.append(await self._submit(record_batch, TopicPartition(topic, partition)))
        try:
            sent = await asyncio.gather(*pending)
        except InvalidRecordError:
            raise InputError(
                f"topic {topic} refuses the messages: it is compacted, and takes none without a key. Set its "
                "cleanup.policy to delete. If it is not compacted, a validation on the broker refuses them: turn that "
                "off for this topic"
            ) from None
        return [(int(one.offset), count) for one, count in zip(sent, counts, strict=True)]

    async def _submit(self, record_batch: Any, tp: TopicPartition) -> asyncio.Future[Any]:  # noqa: ANN401 - the client has no types
        """Submit a record batch; return what its acknowledgement is awaited by."""
        acknowledged: asyncio.Future[Any] = await self._producer.send_batch(
            record_batch, tp.topic, partition=tp.partition
        )
        # Nothing awaits it if a later batch fails first. Asyncio would then log its error, in addition to the other.
        acknowledged.add_done_callback(lambda future: None if future.cancelled() else future.exception())
        return acknowledged
