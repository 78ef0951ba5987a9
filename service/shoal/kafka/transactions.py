"""The transactions of one partition: decisions are collected, packed with the offset state, and sent in order.

`RecordCollector` sends one transaction at a time, in the order of packing. `TransactionalProducer` writes rows and
committed offset together or not at all.

`PartitionCounts` counts each record of a partition once, also after a failed task: as read when a task reads it, and by
what became of it when a transaction is committed. After a failed task it is not known which records were counted as
read although no commit lists them, and whether the last transaction was committed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import IllegalOperation, InvalidTxnState
from aiokafka.structs import OffsetAndMetadata

from shoal.arrays import Float64Vector
from shoal.errors import BrokerUnavailableError, FencedError, GuaranteeError, InputError, ShoalError
from shoal.formats import DropReason, MessageDecoder, Reason
from shoal.kafka.aiokafka_compat import InvalidRecordError, append_values
from shoal.kafka.broker_time import TELLS_NO_TIME, transaction_start_ms
from shoal.kafka.checks import TopicLayout
from shoal.kafka.client import (
    CLIENT_ERRORS,
    TRANSACTION_TIMEOUT_MS,
    NotYetError,
    SharedReaders,
    broker_error,
    producer,
    shared_readers,
    stop,
    transaction_coordinator,
    transaction_error,
    transactional_id,
)
from shoal.kafka.logs import first_record
from shoal.kafka.metadata import NO_ENCRYPTION, CommittedState, MetadataCipher, OutputRows
from shoal.kafka.progress_copy import ProgressCopy
from shoal.kafka.topics import has_several_inputs
from shoal.observability import ClusterFigures, Metrics, logger
from shoal.policy import KafkaSection, Policy
from shoal.streams import BlockDecisions, DecidedCluster, release_strategy

START_S = 30.0
"""Time limit (s). Within this time the broker aborts the previous producer's transaction, if it can."""
CLOSE_S = 1.5
ASK_S = 10.0
REFERENCE_BYTES = 100
"""Approximate length of a message about a record or cluster, with what the record batch adds (bytes)."""

log = logger("kafka")


class UnpublishedRecord(NamedTuple):
    """A record that is suppressed or quarantined: its offset in the input, and the reason."""

    offset: int
    reason: str


@dataclass(slots=True)
class TransactionBatch:
    """Decisions that go into one transaction."""

    clusters: list[DecidedCluster] = field(default_factory=list)  # in the order of decision
    unpublished: list[UnpublishedRecord] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)  # in the order in which the pipeline released them
    row_bytes: int = 0
    stats: list[ClusterFigures] = field(default_factory=list)
    dropped: Counter[DropReason] = field(default_factory=Counter)  # counted after the commit; nothing of them is sent

    @property
    def size_bytes(self) -> int:
        """Approximate length of all messages (bytes)."""
        return self.row_bytes + REFERENCE_BYTES * (len(self.unpublished) + len(self.clusters))

    def __bool__(self) -> bool:
        """Return whether there is anything to send."""
        return bool(self.clusters or self.unpublished or self.rows)


class TransactionalProducer:
    """The only writer of the output and the offset of one input partition; each transaction also writes ``copy``.

    ``output_ends`` are ends of output partitions that brokers have acknowledged to this process; they are kept up to
    date.

    Guarantee: `publish_and_commit` either commits the whole batch or raises. After an error this object must not be
    used again: the state of the partition is then unknown until the committed offset is read again.
    """

    tells_time: ClassVar[bool] = True

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
        readers: SharedReaders | None = None,
    ) -> None:
        self._readers = readers
        self._output_ends = {} if output_ends is None else output_ends
        self._publishes, self.copy, self._metrics = publishes, copy, metrics
        self._release = release_strategy(policy)
        self._settings, self._partition, self._partitions = settings, partition, layout.partitions
        self._names = [attribute.name for attribute in policy.quasi_identifiers]
        self._source = TopicPartition(settings.input, partition)
        self._named_input = {"topic": str(settings.input)} if has_several_inputs(settings) else {}
        self._producer = producer(settings, partition, layout.batch_bytes)
        self._has_failed = False
        self._began_s = 0.0  # when the last transaction began (s, monotonic)
        self._next_offset: int | None = None
        """Offset in the output from which on all records are this producer's; one that is not shows a second writer."""
        self._check_first: Callable[[], Awaitable[None]] | None = None
        self.searched: dict[TopicPartition, int] = {}
        """Offset up to which `check_output_is_empty` has found nothing, by partition; kept up to date there."""

    def check_before_first(self, check: Callable[[], Awaitable[None]]) -> None:
        """Await this check before the first rows or clusters are sent; it raises if they must not be."""
        self._check_first = check

    def expect_output_from(self, offset: int | None) -> None:
        """From this offset of the output on, expect only own records; None: from the first own record on."""
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
        """Return whether no other partition of this input writes to the same partition of a topic."""
        return topic == self._settings.output or self._partitions[topic] >= self._partitions[str(self._settings.input)]

    async def open(self) -> None:
        """Fence the previous owner of the partition, and abort its transaction; raises `NotYetError` after 30 s."""
        limit = asyncio.timeout(START_S)
        try:
            async with limit:
                await self._producer.start()
        except CLIENT_ERRORS as error:
            if not limit.expired():
                raise broker_error(error, self._settings, "WRITE") from None
            raise NotYetError(
                f"{self._source.topic}-{self._partition}: transactional id "
                f"{transactional_id(self._settings, self._partition)} could not begin in {START_S:g} s: "
                f"{self._why_not_begun()}",
                waited_s=START_S,
            ) from None

    def _why_not_begun(self) -> str:
        broker = transaction_coordinator(self._producer)
        name = "" if broker is None else f", broker {broker},"
        look = (
            f"its coordinator{name} does not answer, or an earlier transaction cannot be ended. Look whether all "
            "partitions of __transaction_state, __consumer_offsets and the output have leaders and enough replicas in "
            "sync"
        )
        if broker is None:
            return look
        return (
            f"{look}. If they have, restart broker {broker}: after the failure of a disk it may not try again. "
            "Do not abort the transaction: it may be decided as committed"
        )

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        """Send a batch and the committed offset in one transaction; an empty batch commits the offset alone.

        Messages are dated ``at_ms``, floored to the commit interval. Raises `BrokerError` if the transaction is not
        committed or its outcome is unknown, and `InputError` if another producer writes to the output; then it is not
        committed.
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
            async with asyncio.timeout(TRANSACTION_TIMEOUT_MS / 1000):
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

    async def broker_time_ms(self) -> int | None:
        """Return what time it is for the coordinator (ms), after a transaction; else as `transaction_start_ms`."""
        start_ms = await transaction_start_ms(self._producer, transactional_id(self._settings, self._partition))
        if start_ms is None or start_ms == TELLS_NO_TIME:
            return start_ms
        return start_ms + round((time.monotonic() - self._began_s) * 1000)

    async def _transact(self, batch: TransactionBatch, offset: OffsetAndMetadata, timestamp: int) -> None:
        await self._producer.begin_transaction()
        self._began_s = time.monotonic()
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
            async with shared_readers(self._readers):
                await self._check_first()
        except InputError:
            # The records found may be those of another worker of this group that owns the partition now.
            await self._check_ownership(offset)
            raise
        self._check_first = None

    async def _check_ownership(self, offset: OffsetAndMetadata) -> None:
        """Raise `FencedError` if another worker owns the partition, which an aborted transaction shows."""
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

        Offsets that are missing may be control records, so they are read. An offset below the expected one shows no
        second writer, but an output that ended elsewhere: the next start checks it.
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
        """Take over an end of the output that brokers acknowledged to an earlier process, for `expect_output_from`."""
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
        """Send a copy of the commit. The rows must be sent before, because it says where the output ends."""
        value = copy.encode(offset.offset, offset.metadata, self._next_offset)
        record_batch = self._producer.create_batch()
        record_batch.append(key=copy.key, value=value, timestamp=timestamp)
        record_batch.close()
        await (await self._submit(record_batch, copy.tp))

    async def _send(self, topic: str, values: Sequence[bytes], timestamp: int) -> list[tuple[int, int]]:
        """Send messages; return the first offset and the number of messages of each record batch."""
        tp = self.target(topic)
        pending: list[asyncio.Future[Any]] = []
        counts: list[int] = []
        start = 0
        while start < len(values):
            record_batch = self._producer.create_batch()
            counts.append(append_values(record_batch, values[start:], timestamp))
            if not counts[-1]:
                raise GuaranteeError(
                    "a message does not fit into an empty batch; nothing of its transaction is committed"
                )
            start += counts[-1]
            record_batch.close()
            pending.append(await self._submit(record_batch, tp))
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
        """Submit a record batch; return the future of its acknowledgement."""
        acknowledged: asyncio.Future[Any] = await self._producer.send_batch(
            record_batch, tp.topic, partition=tp.partition
        )
        # Nothing awaits it if a later batch fails first. Asyncio would then log its error, in addition to the other.
        acknowledged.add_done_callback(lambda future: None if future.cancelled() else future.exception())
        return acknowledged


NOT_KNOWN = "it is not known whether a transaction was committed: the outcomes of its records are not counted"


class _SentTransaction(NamedTuple):
    """A transaction of which it is not known whether it was committed. It holds no row."""

    before: CommittedState  # the commit before it
    commit: CommittedState
    outcomes: Counter[tuple[str, str]]  # numbers of records and dropped messages, by outcome and reason
    cluster_count: int
    stats: list[ClusterFigures]

    @property
    def record_count(self) -> int:
        """Number of released, suppressed and quarantined records."""
        return sum(count for (outcome, _), count in self.outcomes.items() if outcome != "dropped")


def _outcomes(batch: TransactionBatch) -> Counter[tuple[str, str]]:
    outcomes = Counter({("released", ""): len(batch.rows)})
    for _, reason in batch.unpublished:
        outcomes["suppressed" if reason == Reason.SUPPRESSED else "quarantined", reason] += 1
    outcomes.update({("dropped", reason): count for reason, count in batch.dropped.items()})
    return outcomes


@dataclass(slots=True)
class PartitionCounts:
    """What this process has counted of one partition; at most one transaction has an unknown outcome."""

    topic: str
    partition: int
    read_until: int = 0  # messages before this offset are counted as read already
    sent: _SentTransaction | None = None  # the transaction whose outcome is not known
    sent_skip: tuple[CommittedState, int] | None = None
    """The commit of a skip that was sent and is not counted yet, and how many offsets it skips."""

    def note_sent(self, before: CommittedState, commit: CommittedState, batch: TransactionBatch) -> None:
        """Note that a transaction is about to be sent, after the commit ``before``."""
        self.sent = _SentTransaction(before, commit, _outcomes(batch), len(batch.clusters), batch.stats)

    def confirm(self, metrics: Metrics) -> None:
        """Count the transaction that was sent: it is committed."""
        if self.sent is not None:
            place = self.topic, self.partition
            for (outcome, reason), count in self.sent.outcomes.items():
                metrics.records.labels(outcome, reason, *place).inc(count)
            metrics.clusters.labels(*place).inc(self.sent.cluster_count)
            for figures in self.sent.stats:
                metrics.observe(*figures, partition=place)
        self.sent = None

    def take_skip(self, found: CommittedState) -> int | None:
        """Forget a sent skip; return its number of skipped offsets if this commit is its, else None."""
        sent, self.sent_skip = self.sent_skip, None
        if sent is None:
            return None
        commit, skipped_count = sent
        is_found = (commit.at_ms, commit.state.committed_offset) == (found.at_ms, found.state.committed_offset)
        return skipped_count if is_found else None

    def open(self, found: CommittedState, log_end: int, metrics: Metrics) -> None:
        """Note that a task continues from a commit, and count the last transaction if this is its commit.

        Messages from ``log_end`` on are counted again: the log may have been cut and written again.
        """
        self.read_until = min(self.read_until, log_end)
        sent = self.sent
        if sent is None:
            return
        if _is_same(sent.commit, found):
            self.confirm(metrics)
            return
        if sent.record_count and not _is_same(sent.before, found):
            log.warning(NOT_KNOWN, topic=self.topic, partition=self.partition, records=sent.record_count)
        self.sent = None


@dataclass(slots=True)
class ProcessCounts:
    """The counts of each partition that this process has had."""

    _of: dict[TopicPartition, PartitionCounts] = field(default_factory=dict)

    def of(self, tp: TopicPartition) -> PartitionCounts:
        """Return the counts of a partition, the same for all its tasks."""
        return self._of.setdefault(tp, PartitionCounts(tp.topic, tp.partition))

    def log_unconfirmed(self) -> None:
        """Log how many records the transactions hold whose outcome this process no longer learns."""
        records = sum(one.sent.record_count for one in self._of.values() if one.sent is not None)
        if records:
            log.warning(NOT_KNOWN, records=records)


def _is_same(one: CommittedState, other: CommittedState) -> bool:
    """Return whether two commits are the same progress, also if one was committed again under another policy."""
    first, second = (replace(commit.state, adaptive_state=b"") for commit in (one, other))
    return one.at_ms == other.at_ms and first == second


FULL_ROWS, FULL_BYTES, FULL_TRANSACTIONS = 50_000, 1 << 25, 16
"""With so many rows and references together, so many bytes, or so many uncommitted transactions, reading pauses."""
FIRST_BYTES, LEAST_BYTES, LONG_TRANSACTION_S = 1 << 19, 1 << 16, 5.0
"""A transaction may have `FIRST_BYTES` at first, and `LEAST_BYTES` always. After one that took longer than
`LONG_TRANSACTION_S` the next may have fewer: the broker would abort it after its timeout if the output is slow."""

TOLERATED_AHEAD_MS = 1_800_000
"""How far ahead of the clock messages may be dated (ms). By default, a broker refuses more than an hour."""


class TransactionSink(Protocol):
    """Where transactions go; the transactional producer is one."""

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        """Send the batch and the offset in one transaction."""

    def output_rows_of(self, batch: TransactionBatch) -> OutputRows | None:  # noqa: ARG002 - for sinks with an output
        """Return where the rows of a batch will be in the output if it is sent next; None if that is not known."""
        return None

    tells_time: ClassVar[bool] = False
    """Whether a broker may tell its time."""

    async def broker_time_ms(self) -> int | None:
        """Return what time it is for the broker (ms), after a transaction; else as `transaction_start_ms`."""
        return TELLS_NO_TIME

    async def close(self) -> None:
        """Close the producer of the partition."""


@dataclass(frozen=True, slots=True)
class ClusterListener:
    """Callbacks of a process that receive the clusters of its partitions; their first argument is the partition."""

    publishes: bool = True
    """Whether clusters are sent to the output. If not, only offsets, quarantine entries and evidence are committed."""
    on_decided: Callable[[int, DecidedCluster], Awaitable[bool]] | None = None
    on_committed: Callable[[int, Sequence[DecidedCluster]], None] | None = None
    """Receives the clusters of each committed transaction; it must not wait."""
    is_full: Callable[[], bool] = lambda: False  # whether the listener is so far behind that reading should pause


NO_LISTENER = ClusterListener()


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What all partition tasks of a process share."""

    policy: Policy
    decoder: MessageDecoder
    metrics: Metrics
    commit_interval_s: float
    cipher: MetadataCipher = NO_ENCRYPTION
    listener: ClusterListener = NO_LISTENER
    wall_clock: Callable[[], float] = time.time
    monotonic_clock: Callable[[], float] = time.monotonic
    """A clock (s) that is never set: it tells how long records are held."""


class RecordCollector:
    """Collects the decisions and rows of one partition until they are committed. It holds no input records.

    Guarantee: one transaction is sent at a time, in the order of packing; after one has failed no other is sent.
    """

    def __init__(
        self,
        tp: TopicPartition,
        context: TaskContext,
        sink: TransactionSink,
        last_commit: CommittedState,
        counts: PartitionCounts,
    ) -> None:
        self._tp, self._sink, self._counts = tp, sink, counts
        self._metrics, self._cipher, self._on_committed = context.metrics, context.cipher, context.listener.on_committed
        self._wall_clock, self._interval_s = context.wall_clock, context.commit_interval_s
        self.last_packed = self._last_committed = last_commit
        self._packed_at_s = self._wall_clock()
        """When a transaction was last packed (s); at first, when the collector was made."""
        self.confirmed_at_s = 0.0
        """When the last committed transaction was sent (s): until then no other worker owned the partition."""
        self._batch = TransactionBatch()
        self._pending: deque[tuple[TransactionBatch, CommittedState]] = deque()
        self.sending: asyncio.Task[None] | None = None
        """The transactions that are being sent, for callers that wait for their end."""
        self._most_bytes = FIRST_BYTES

    @property
    def committed_offset(self) -> int:
        """Offset of the last commit."""
        return self._last_committed.state.committed_offset

    @property
    def has_unpacked(self) -> bool:
        """Whether decisions are not packed yet."""
        return bool(self._batch)

    @property
    def is_busy(self) -> bool:
        """Whether a transaction is being sent."""
        return self.sending is not None

    @property
    def is_full(self) -> bool:
        """Whether reading should pause until a transaction ends; if none is being sent, until one is packed."""
        batches = [self._batch, *(batch for batch, _ in self._pending)]
        rows = sum(len(batch.rows) + len(batch.unpublished) for batch in batches)
        size = sum(batch.size_bytes for batch in batches)
        is_large = size >= FULL_BYTES or self._batch.size_bytes >= self._most_bytes
        return is_large or rows >= FULL_ROWS or len(self._pending) >= FULL_TRANSACTIONS

    def add(self, decisions: BlockDecisions, waited_s: Float64Vector) -> None:
        """Add decided clusters and the released rows; ``waited_s`` is how long each of their records waited (s)."""
        batch = self._batch
        batch.clusters += decisions.clusters
        batch.rows += decisions.rows
        batch.row_bytes += sum(map(len, decisions.rows))
        if decisions.stats is not None:
            figures = decisions.stats, decisions.sst_growth, waited_s, decisions.confidential, decisions.losses
            batch.stats.append(figures)

    def add_unpublished(self, offset: int, reason: Reason) -> None:
        """Add a record that is suppressed or quarantined."""
        self._batch.unpublished.append(UnpublishedRecord(offset, reason.value))

    def add_dropped(self, reasons: Iterable[DropReason]) -> None:
        """Count messages that are dropped."""
        self._batch.dropped.update(reasons)

    @property
    def interval_left_s(self) -> float:
        """Time until the commit interval has passed since a transaction was packed (s)."""
        passed_s = self._wall_clock() - self._packed_at_s
        return max(0.0, self._interval_s - passed_s) if passed_s >= 0 else 0.0  # negative: the clock was set back

    def pack_and_send(self, commit_at: Callable[[int], CommittedState]) -> None:
        """Pack what was added, and send it after all transactions that were packed before.

        ``commit_at`` returns the state to commit at a time (ms), which is never before that of an earlier commit.
        """
        self.check()
        self._packed_at_s = self._wall_clock()
        self.last_packed = commit_at(max(self.last_packed.at_ms, round(self._packed_at_s * 1000)))
        self._pending.append((self._batch, self.last_packed))
        self._batch = TransactionBatch()
        self._send_in_background()

    async def recommit_as_handed_over(self) -> None:
        """Commit the last state with ``handed_over_uncommitted``; fails if another worker owns the partition."""
        self.check()
        self.last_packed = replace(
            self.last_packed, state=replace(self.last_packed.state, handed_over_uncommitted=True)
        )
        self._pending.append((TransactionBatch(), self.last_packed))
        self._send_in_background()
        await self.wait_until_committed()

    def check(self) -> None:
        """Raise the error of a transaction that failed in the background."""
        if self.sending is not None and self.sending.done():
            self.sending.result()
            self.sending = None

    async def wait_until_committed(self) -> None:
        """Wait until everything that was packed is committed."""
        if self.sending is not None:
            await self.sending
        self.check()

    async def cancel(self) -> None:
        """Send nothing more, and cancel the transaction that is being sent."""
        self._pending.clear()
        if self.sending is not None:
            self.sending.cancel()
            await asyncio.wait([self.sending])

    def _send_in_background(self) -> None:
        if self.sending is None:
            self.sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._pending:
            await self._send(*self._pending[0])
            self._pending.popleft()

    async def _send(self, batch: TransactionBatch, commit: CommittedState) -> None:
        started = self._wall_clock()
        try:
            # Not earlier: all transactions before this one are committed now.
            commit = replace(commit, output_rows=self._sink.output_rows_of(batch))
            metadata = self._cipher.encode(commit, self._tp.topic, self._tp.partition)
            dated_ms = _message_time(commit.at_ms, round(started * 1000))
            # Before it is sent: after an error, or if this is cancelled, the transaction may be committed all the same.
            self._counts.note_sent(self._last_committed, commit, batch)
            await self._sink.publish_and_commit(batch, commit.state.committed_offset, metadata, dated_ms)
        except ShoalError as error:
            self._metrics.transactions.labels("aborted").inc()
            if isinstance(error, (InputError, NotYetError)):
                self._counts.sent = None  # raised before the commit, so nothing is committed
            raise
        took_s = max(0.0, self._wall_clock() - started)
        self._last_committed = commit
        self.confirmed_at_s = started
        self._limit_next(batch.size_bytes, took_s)
        self._metrics.transactions.labels("committed").inc()
        self._metrics.transaction_seconds.observe([took_s])
        self._counts.confirm(self._metrics)
        if self._on_committed is not None:
            self._on_committed(self._tp.partition, batch.clusters)

    def _limit_next(self, size_bytes: int, took_s: float) -> None:
        """Let transactions grow while they are short, and shrink to what takes `LONG_TRANSACTION_S` if they are not."""
        if took_s > LONG_TRANSACTION_S:
            self._most_bytes = max(LEAST_BYTES, round(size_bytes * LONG_TRANSACTION_S / took_s))
        elif 2 * size_bytes >= self._most_bytes:
            self._most_bytes = min(FULL_BYTES, 2 * self._most_bytes)


def _message_time(commit_ms: int, now_ms: int) -> int:
    """Return the timestamp of the messages of a commit (ms): its time, or now if that is far ahead of the clock."""
    return commit_ms if commit_ms <= now_ms + TOLERATED_AHEAD_MS else now_ms
