"""Where a partition begins: its committed state is read after fencing, checked, and accepted or refused.

No record may be released twice. If that is not certain, the start is refused. The message names the partition and the
remedies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka.backoff import jittered
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.client import reading
from shoal.kafka.committed_offsets import fetch_committed, fetch_first_partition_count
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import LogTruncatedError, OffsetState
from shoal.kafka.output_end import check_no_open_transaction, end_at_start
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.kafka.topic_pairs import has_several_inputs
from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = [
    "PartitionStart",
    "StartOptions",
    "check_output_is_empty",
    "initialize_partition",
    "is_published_since",
    "read_committed_records",
]

RECHECK_DELAY_S = 1.0
READ_TIMEOUT_S = 10.0
POLL_RECORDS = 500
APPEND_TIME = 1
"""Timestamp type of a topic with ``message.timestamp.type=LogAppendTime``."""

log = logger("kafka")


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of the operator.

    Attributes
    ----------
    reset : {"earliest", "latest"} or None
        Where a partition without a commit begins, like Kafka's ``auto.offset.reset``. With None it is refused. A
        partition that was created after the first start of the group begins at its start in any case.
    skip_to_end : bool
        A partition that would be refused begins at the end of its log.
    drain : bool
        Read to the end of the log, release or suppress all incomplete records, and end.
    """

    reset: Literal["earliest", "latest"] | None = None
    skip_to_end: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where a partition begins.

    Attributes
    ----------
    commit : CommittedState
        The commit from which to continue.
    log_start, log_end : int
        First offset of the log, and the end of its committed part (exclusive).
    skipped_count : int or None
        Number of offsets that ``--skip-to-end`` skipped: from the committed offset to the end of the log, or the whole
        log if the committed offset does not belong to it. None without a skip.
    is_first : bool
        There was no commit before, and no record was published.
    output_end : int or None
        Offset in the output from which on this worker is the only writer. None without an output topic.
    """

    commit: CommittedState
    log_start: int
    log_end: int
    skipped_count: int | None = None
    is_first: bool = False
    output_end: int | None = None


async def initialize_partition(
    admin: AIOKafkaAdminClient,
    consumer: AIOKafkaConsumer,
    producer: TransactionalProducer,
    settings: KafkaSection,
    fingerprint: str,
    partition: int,
    start: StartOptions,
    cipher: MetadataCipher,
    partition_count: int,
) -> PartitionStart:
    """Return where a partition begins; commit the beginning if there is no usable commit.

    It commits in two cases: there is no commit yet, or ``start.skip_to_end`` replaces one that is refused. The producer
    must be open, so that earlier owners are fenced.

    Raises
    ------
    InputError
        The committed state cannot be trusted, or there is none and the operator did not say where to begin.
    """
    tp, partition_name = TopicPartition(settings.input, partition), f"{settings.input}-{partition}"
    log_start = (await consumer.beginning_offsets([tp]))[tp]
    log_end = (await consumer.end_offsets([tp]))[tp]
    offset_and_metadata, known_count = await fetch_committed(admin, settings, partition), None
    try:
        if offset_and_metadata is not None:
            metadata, offset = offset_and_metadata.metadata or "", offset_and_metadata.offset
            commit = cipher.decode(metadata, str(settings.input), partition, offset)
            _check_log(commit.state, partition_name, log_start, log_end)
            if start.skip_to_end:
                # Without this option the task checks the reference record when it reads the first record.
                await _check_reference(settings, commit.state, tp, log_start)
            _check_policy(commit, fingerprint, partition_name, drain=start.drain)
            output_end = await end_at_start(settings, partition, commit.state)
            await _check_output(settings, partition, commit)
            commit = replace(commit, first_partition_count=commit.first_partition_count or partition_count)
            return PartitionStart(commit, log_start, log_end, output_end=output_end)
        known_count = await fetch_first_partition_count(admin, settings, partition_count, cipher)
        offset = await _first_offset(producer, settings, partition, start, log_start, log_end, known_count)
        skipped_count = None
    except InputError as refusal:
        if await _committed_offset_changed(admin, settings, partition, offset_and_metadata):
            return await initialize_partition(
                admin, consumer, producer, settings, fingerprint, partition, start, cipher, partition_count
            )
        if not start.skip_to_end:
            raise
        first_skipped = log_start if offset_and_metadata is None else offset_and_metadata.offset
        if first_skipped > log_end or isinstance(refusal, LogTruncatedError):
            first_skipped = log_start
        offset, skipped_count = log_end, log_end - first_skipped
    commit = await _commit_beginning(
        producer, settings, fingerprint, partition, cipher, offset, skipped_count, known_count or partition_count
    )
    output_end = await end_at_start(settings, partition, commit.state)
    is_first = skipped_count is None
    return PartitionStart(commit, log_start, log_end, skipped_count, is_first=is_first, output_end=output_end)


async def _commit_beginning(
    producer: TransactionalProducer,
    settings: KafkaSection,
    fingerprint: str,
    partition: int,
    cipher: MetadataCipher,
    offset: int,
    skipped_count: int | None,
    first_partition_count: int,
) -> CommittedState:
    """Commit that a partition begins at an offset."""
    now_ms = time.time_ns() // 1_000_000
    if skipped_count is None:
        # Before the timestamps of this commit interval: a later start finds what another group publishes in it.
        now_ms = now_ms // settings.commit_interval_ms * settings.commit_interval_ms - 1
    else:
        # Later starts compare the output with this time. A worker with a fast clock may have published later than now.
        now_ms = max(now_ms, await _latest_published(settings, partition))
    # After a skip it is not known which records were released before.
    first_released = offset if skipped_count is None else 0
    # A partition has at most as many clusters as offsets. So numbering from the offset repeats no number after a skip.
    state = OffsetState(offset, offset, released_from=first_released, next_cluster_number=offset)
    commit = CommittedState(state, fingerprint, now_ms, first_partition_count)
    # The transaction holds nothing else: if this commit fails, nothing was published.
    await producer.publish_and_commit(
        TransactionBatch(), offset, cipher.encode(commit, str(settings.input), partition), now_ms
    )
    return commit


async def _committed_offset_changed(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition: int, expected: OffsetAndMetadata | None
) -> bool:
    """Return whether the coordinator now returns another commit: under load its first answer may be an older one."""
    await asyncio.sleep(jittered(RECHECK_DELAY_S))
    return await fetch_committed(admin, settings, partition) != expected


def _check_log(state: OffsetState, partition_name: str, log_start: int, log_end: int) -> None:
    if log_start > state.committed_offset:
        raise InputError(
            f"{partition_name}: the log begins at {log_start}, after the committed offset {state.committed_offset}. "
            "Records that were never published are no longer retained. Lengthen the retention of the topic, and start "
            "with --skip-to-end to continue at the end and count the skipped offsets"
        )
    if log_end < state.next_offset:
        raise LogTruncatedError(
            partition_name, f"the log ends at {log_end}, before offset {state.next_offset}, up to which it was read"
        )


async def _check_reference(settings: KafkaSection, state: OffsetState, tp: TopicPartition, log_start: int) -> None:
    """Compare the record at the offset of the reference record, if it is retained, with the one at the last commit."""
    reference = state.reference
    if reference is None or reference.offset < log_start:
        return
    async with aclosing(read_committed_records(settings, tp, reference.offset)) as records:
        async for record in records:
            if reference.is_contradicted(record.offset, record.timestamp):
                raise LogTruncatedError.at_reference(f"{tp.topic}-{tp.partition}", reference)
            return


def _check_policy(commit: CommittedState, fingerprint: str, partition_name: str, *, drain: bool) -> None:
    if commit.state.unfinished_clusters and not commit.has_policy(fingerprint):
        raise InputError(
            f"{partition_name}: the policy has changed while partly released clusters are still to be completed. Run "
            "'shoal run POLICY --drain' with the old policy first"
        )
    if commit.state.flush_at_offset is not None and not commit.has_policy(fingerprint) and not drain:
        raise InputError(
            f"{partition_name}: the policy has changed while a flush that was decided is not done. Run "
            "'shoal run POLICY --drain' first, preferably with the old policy"
        )
    if commit.state.handed_over_uncommitted and not commit.has_policy(fingerprint):
        raise InputError(
            f"{partition_name}: the policy has changed while a Faust stage may have received clusters that are not "
            "committed (its worker was killed). The new policy could release the same records in different clusters. "
            "Run the worker with the old policy until it has caught up, and stop it with SIGTERM; or start with "
            "--skip-to-end to continue at the end and count the skipped offsets"
        )


async def _check_output(settings: KafkaSection, partition: int, commit: CommittedState) -> None:
    """Check that this is the last commit: from an older one, records would be released a second time."""
    if settings.output is not None and await is_published_since(settings, partition, commit.at_ms):
        raise InputError(
            f"{settings.input}-{partition}: {settings.output}-{partition} holds records that were published after the "
            "commit (a second group over the same topics? committed offsets reset by another tool? an old export "
            "imported?). Continuing would publish them a second time. Stop the other group, import the latest export "
            "with 'shoal progress POLICY --import FILE', or start with --skip-to-end to continue at the end and count "
            "the skipped offsets"
        )


async def check_output_is_empty(producer: TransactionalProducer, settings: KafkaSection, partition: int) -> None:
    """Refuse to begin without a commit if records of this partition were published before.

    Raises
    ------
    InputError
        There are committed records in the output partition, or evidence or cluster messages of this partition. (A Faust
        stage without an output topic writes only evidence and cluster messages.)
    """
    # With one input, messages name none. With several, messages without a name are of a time with one input, whose
    # output tells whether it was released.
    inputs = (settings.input,) if has_several_inputs(settings) else (settings.input, None)
    checks: list[tuple[str | None, Callable[[bytes | None], bool]]] = [
        (settings.output, lambda _: True),
        (settings.evidence, partial(_is_about, inputs, partition)),
        (settings.clusters, partial(_is_about, inputs, None)),
    ]
    for topic, is_own in checks:
        # Evidence names the input partition. In other topics, records belong to it only if it is the only writer.
        if topic is None or not (topic == settings.evidence or producer.is_only_writer(topic)):
            continue
        async with aclosing(read_committed_records(settings, producer.target(topic))) as records:
            async for record in records:
                if not is_own(record.value):
                    continue
                tp = producer.target(topic)
                raise InputError(
                    f"{settings.input}-{partition}: group {settings.group} has no committed offset, but "
                    f"{tp.topic}-{tp.partition} holds records already. Starting over would publish them a second "
                    "time. Import the committed offsets with 'shoal progress POLICY --import FILE', or start with "
                    "--skip-to-end to continue at the end and count the skipped offsets, or use an empty output"
                )


def _is_about(inputs: Collection[str | None], partition: int | None, message: bytes | None) -> bool:
    """Return whether a message of a side topic is about one of these inputs (None: names none) and this partition.

    Without a partition, messages that are no JSON object are, too: this partition alone may write to theirs.
    """
    try:
        content = msgspec.json.decode(message or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        return partition is None
    return content.get("topic") in inputs and partition in (None, content.get("partition"))


async def _latest_published(settings: KafkaSection, partition: int) -> int:
    """Return the timestamp (ms) of the latest committed record in the output; -1 if there is none."""
    tp, latest = TopicPartition(settings.output, partition), -1
    if settings.output is None:
        return latest
    async with aclosing(read_committed_records(settings, tp, since_ms=time.time_ns() // 1_000_000)) as records:
        async for record in records:
            latest = max(latest, record.timestamp)
    return latest


async def _first_offset(
    producer: TransactionalProducer,
    settings: KafkaSection,
    partition: int,
    start: StartOptions,
    log_start: int,
    log_end: int,
    known_count: int | None,
) -> int:
    """Return where a partition without a commit begins.

    A partition that was created after the group's first start begins at its start: at its end, the records that were
    appended before a worker noticed it would be skipped. Otherwise the operator decides.
    """
    partition_name = f"{settings.input}-{partition}"
    await check_no_open_transaction(settings, partition)
    await check_output_is_empty(producer, settings, partition)
    if known_count and partition >= known_count:
        created = "partition was created after the first start of the group: beginning at its start"
        log.info(created, topic=settings.input, partition=partition, offset=log_start)
        return log_start
    if start.reset is None:
        raise InputError(
            f"{partition_name}: group {settings.group} has no committed offset. Say where to begin with --from "
            "earliest or --from latest (in an app: start=), or import committed offsets with "
            "'shoal progress POLICY --import FILE', or start with --skip-to-end (skip_to_end=True)"
        )
    offset = log_start if start.reset == "earliest" else log_end
    if known_count == 0:
        log.warning(
            "not known whether the partition was created after the first start of the group: --from decides",
            topic=settings.input,
            partition=partition,
            offset=offset,
        )
    return offset


async def is_published_since(settings: KafkaSection, partition: int, at_ms: int) -> bool:
    """Return whether the output holds records with a later timestamp than this time of a commit (ms).

    Records carry the time of their commit, floored to a multiple of the commit interval. A commit that is at least one
    interval later is therefore found, if the clock was not set back. A later commit before the next multiple is not
    found: its records carry the same timestamp as those of this commit, which is not after ``at_ms``. With
    ``LogAppendTime``, records count from one transaction timeout after ``at_ms`` on.
    """
    tp = TopicPartition(settings.output, partition)
    async with aclosing(read_committed_records(settings, tp, since_ms=at_ms + 1)) as records:
        async for record in records:
            # With LogAppendTime the records of this commit, too, have a later timestamp.
            tolerance_ms = settings.transaction_timeout_ms if record.timestamp_type == APPEND_TIME else 0
            if record.timestamp > at_ms + tolerance_ms:
                return True
    return False


async def read_committed_records(
    settings: KafkaSection, tp: TopicPartition, begin: int = 0, since_ms: int | None = None
) -> AsyncGenerator[Any, None]:
    """Yield the committed records of a partition from an offset and a time (ms) on, up to the present end of the log.

    Records of aborted transactions do not count: a worker that was killed in its first transaction can start again.

    Raises
    ------
    BrokerUnavailableError
        No record arrived for 10 s.
    """
    async with reading(settings) as consumer:
        consumer.assign([tp])
        log_start = (await consumer.beginning_offsets([tp]))[tp]
        log_end = (await consumer.end_offsets([tp]))[tp]
        if since_ms is not None:
            later = (await consumer.offsets_for_times({tp: since_ms}))[tp]
            log_start = log_end if later is None else later.offset
        consumer.seek(tp, max(log_start, begin))
        deadline = time.monotonic() + READ_TIMEOUT_S
        while await consumer.position(tp) < log_end:
            for records in (await consumer.getmany(tp, timeout_ms=200, max_records=POLL_RECORDS)).values():
                for record in records:
                    if record.offset < log_end:
                        yield record
                deadline = time.monotonic() + READ_TIMEOUT_S
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{tp.topic}-{tp.partition}: cannot be read to its end; trying again")
