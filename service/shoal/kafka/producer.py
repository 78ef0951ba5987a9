"""One partition's transactional producer: what leaves and the progress that says so, together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import BrokerUnavailableError, FencedError, InputError
from shoal.kafka.client import CLIENT_ERRORS, broker_error, producer, stop
from shoal.kafka.gap_reader import first_record
from shoal.kafka.preflight import TopicLayout
from shoal.pipeline import DecidedCluster, release_strategy
from shoal.policy import KafkaSection, Policy

__all__ = ["QuarantineEntry", "TransactionBatch", "TransactionalProducer"]

CLOSE_S = 1.5
ASK_S = 10.0


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A record that is not published: where it stands in the input, and one of four reasons."""

    offset: int
    reason: str


@dataclass(slots=True)
class TransactionBatch:
    """Decisions that wait for the next transaction.

    ``rows``: what leaves of clusters, where these do not leave as a whole.
    """

    clusters: list[DecidedCluster] = field(default_factory=list)
    references: list[QuarantineEntry] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self.clusters or self.references or self.rows)


class TransactionalProducer:
    """The only writer of one input partition's output and progress.

    Parameters
    ----------
    policy, settings
        The names of quasi-identifiers; topics, group and timings.
    partition : int
        Of the input; output goes to the same number.
    layout : Layout
        Partition counts of the topics, of which side topics may have fewer, and how much they take at once.
    publishes : bool
        Whether clusters go to the output; if not, only what is told about them does, each to its topic.

    Notes
    -----
    Guarantee: `publish` either commits all of it or raises, after which this object is of no more use: any
    exception in a transaction is fatal for the producer and for the partition's state.
    """

    def __init__(
        self, policy: Policy, settings: KafkaSection, partition: int, layout: TopicLayout, *, publishes: bool = True
    ) -> None:
        self._publishes = publishes
        self._release = release_strategy(policy)
        self._settings, self._partition, self._partitions = settings, partition, layout.partitions
        self._names = [attribute.name for attribute in policy.quasi_identifiers]
        self._source = TopicPartition(settings.input, partition)
        self._producer = producer(settings, transactional_id(settings, partition), layout.batch_bytes)
        self._is_spent = False
        self._next_offset: int | None = None
        """What follows our last transaction: the next record there is ours, unless somebody else writes to it."""
        self._check_first: Callable[[], Awaitable[None]] | None = None

    def check_before_first(self, check: Callable[[], Awaitable[None]]) -> None:
        """Wait for this before the first clusters are sent; it raises if they must not be."""
        self._check_first = check

    def place_in(self, topic: str) -> TopicPartition:
        """Where it writes in a topic: side topics may have fewer partitions than the input; the output has not."""
        is_output = topic == self._settings.output
        return TopicPartition(topic, self._partition if is_output else self._partition % self._partitions[topic])

    def is_alone_in(self, topic: str) -> bool:
        """Whether nobody else of this group writes to that place."""
        return topic == self._settings.output or self._partitions[topic] >= self._partitions[str(self._settings.input)]

    async def open(self) -> None:
        """Fence whoever held the partition before, and end the transaction it may have left open."""
        try:
            await self._producer.start()
        except CLIENT_ERRORS as error:
            raise broker_error(error) from None

    async def publish(self, outbox: TransactionBatch, watermark: int, metadata: str, at_ms: int) -> None:
        """Send everything in the outbox and the progress in one transaction.

        Parameters
        ----------
        outbox : Outbox
            May be empty: progress alone.
        watermark, metadata
            What is committed for the group.
        at_ms : int
            Time of the commit (ms); messages carry it, floored to the commit interval.

        Raises
        ------
        BrokerError
            The transaction is not committed, or nobody knows: read the progress again.
        InputError
            Somebody else publishes to the output. Not committed.

        Notes
        -----
        Lasts as long as a transaction may, and two seconds more where a reader has to be closed.
        """
        timestamp = at_ms // self._settings.commit_interval_ms * self._settings.commit_interval_ms
        if self._is_spent:
            raise BrokerUnavailableError("a transaction failed before: what was committed must be read again")
        self._is_spent = True
        try:
            # When this is over the broker ends the transaction by itself: there is nothing more to wait for.
            async with asyncio.timeout(self._settings.transaction_timeout_ms / 1000):
                await self._transact(outbox, OffsetAndMetadata(watermark, metadata), timestamp)
        except CLIENT_ERRORS as error:
            raise broker_error(error) from None
        self._is_spent = False

    async def _transact(self, outbox: TransactionBatch, offset: OffsetAndMetadata, timestamp: int) -> None:
        if outbox.clusters or outbox.rows:
            await self._check_beginning(offset)
        await self._producer.begin_transaction()
        messages = list(self._messages(outbox))
        # Together, so that the broker is asked once for all topics.
        sent = await asyncio.gather(*(self._send(topic, values, timestamp) for topic, values in messages))
        for (topic, _), batches in zip(messages, sent, strict=True):
            if topic == self._settings.output:
                await self._check_alone(batches)
        await self._producer.send_offsets_to_transaction({self._source: offset}, self._settings.group)
        await self._producer.commit_transaction()

    async def _check_beginning(self, offset: OffsetAndMetadata) -> None:
        if self._check_first is None:
            return
        try:
            await self._check_first()
        except InputError:
            # What was found may be the work of a member of this group that has taken the partition over meanwhile.
            await self._check_held(offset)
            raise
        self._check_first = None

    async def _check_held(self, offset: OffsetAndMetadata) -> None:
        """Ask the broker, with a transaction that is never committed; without an answer the partition is ours."""
        try:
            async with asyncio.timeout(ASK_S):
                await self._producer.begin_transaction()
                await self._producer.send_offsets_to_transaction({self._source: offset}, self._settings.group)
                await self._producer.abort_transaction()
        except CLIENT_ERRORS as error:
            if isinstance(told := broker_error(error), FencedError):
                raise told from None

    async def _check_alone(self, batches: Sequence[tuple[int, int]]) -> None:
        """A second group over the same topics would publish every record a second time: it shows in the offsets.

        Marks of transactions are nobody's records: who coordinates ours writes one again where it was replaced in the
        middle of a commit, or could not tell whether it had. Where a gap cannot be read now nothing is committed.
        """
        place, expected = self.place_in(str(self._settings.output)), self._next_offset
        for first, count in batches:
            if expected not in (None, first) and await first_record(self._settings, place, expected) != first:
                raise InputError(
                    f"{place.topic}-{place.partition}: somebody else writes to it (a second group over the same "
                    "topics?), which could publish records twice; nothing more was sent. Stop the other, or give it an "
                    "output of its own"
                )
            expected = first + count
        # The mark at the end of the transaction takes an offset, too.
        self._next_offset = sum(batches[-1]) + 1

    async def close(self) -> None:
        """Stop the producer; a transaction that is still open is aborted by whoever opens the next one."""
        await stop(self._producer, CLOSE_S)

    def _messages(self, outbox: TransactionBatch) -> Iterable[tuple[str, Sequence[bytes]]]:
        settings, encode = self._settings, msgspec.json.encode
        # The order of clusters must not tell which was decided first.
        clusters = sorted(outbox.clusters, key=lambda cluster: cluster.rows[0])
        rows = self._release.output_rows(clusters, outbox.rows)
        if rows and self._publishes:
            yield str(settings.output), rows
        if settings.clusters and clusters:
            yield settings.clusters, [self._summary(cluster) for cluster in clusters]
        if settings.evidence and clusters:
            yield (
                settings.evidence,
                [
                    encode({"partition": self._partition, "cluster": cluster.number, "offsets": cluster.offsets})
                    for cluster in sorted(clusters, key=lambda cluster: cluster.number)
                ],
            )
        if settings.quarantine and outbox.references:
            topic, partition = settings.input, self._partition
            yield (
                settings.quarantine,
                [
                    encode({"topic": topic, "partition": partition, "offset": one.offset, "reason": one.reason})
                    for one in outbox.references
                ],
            )

    def _summary(self, cluster: DecidedCluster) -> bytes:
        centroid = {name: msgspec.Raw(text.encode()) for name, text in zip(self._names, cluster.centroid, strict=True)}
        return msgspec.json.encode({"centroid": centroid, "size": len(cluster.rows), "subjects": cluster.subjects})

    async def _send(self, topic: str, values: Sequence[bytes], timestamp: int) -> list[tuple[int, int]]:
        """Send messages and return of each batch its first offset, and how many are in it."""
        partition = self.place_in(topic).partition
        pending, counts = [], [0]
        batch = self._producer.create_batch()
        for value in values:
            if batch.append(key=None, value=value, timestamp=timestamp) is None:
                batch.close()
                pending.append(await self._producer.send_batch(batch, topic, partition=partition))
                batch = self._producer.create_batch()
                batch.append(key=None, value=value, timestamp=timestamp)
                counts.append(0)
            counts[-1] += 1
        batch.close()
        pending.append(await self._producer.send_batch(batch, topic, partition=partition))
        sent = await asyncio.gather(*pending)
        return [(int(one.offset), count) for one, count in zip(sent, counts, strict=True)]


def transactional_id(settings: KafkaSection, partition: int) -> str:
    """One per deployment and input partition: whoever starts it last is the only one who can commit."""
    return f"{settings.group}-{settings.input}-{partition}"
