"""Where a partition begins: its committed state is read after fencing, checked, and accepted or refused.

No record may be released twice. If that is not certain, the start is refused. The message names the partition and the
remedies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import InputError
from shoal.kafka.backoff import jittered
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.commit_checks import check_log, check_policy, check_reference
from shoal.kafka.committed_offsets import fetch_committed, fetch_first_partition_count
from shoal.kafka.committed_records import read_committed_records
from shoal.kafka.newest_commit import StaleCopyError, newest_commit
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import LogTruncatedError, OffsetState
from shoal.kafka.output_end import check_no_open_transaction, end_at_start
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.kafka.topic_pairs import has_several_inputs
from shoal.kafka.unconfirmed_skips import UnconfirmedSkips
from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = [
    "PartitionStart",
    "StartOptions",
    "check_output_is_empty",
    "initialize_partition",
    "is_published_since",
]

RECHECK_DELAY_S = 1.0
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
    """

    commit: CommittedState
    log_start: int
    log_end: int
    skipped_count: int | None = None
    is_first: bool = False


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
    unconfirmed: UnconfirmedSkips,
) -> PartitionStart:
    """Return where a partition begins; commit the beginning if there is no usable commit.

    It commits if there is no commit yet, if ``start.skip_to_end`` replaces one that is refused, if the commit was
    encrypted under another key than the first, and in any case if the producer keeps a copy. The producer must be open,
    so that earlier owners are fenced. A skip whose outcome was unknown is counted when its commit is found
    (``unconfirmed``).

    Raises
    ------
    InputError
        The committed state cannot be trusted, or there is none and the operator did not say where to begin.
    """
    tp = TopicPartition(settings.input, partition)
    log_start = (await consumer.beginning_offsets([tp]))[tp]
    log_end = (await consumer.end_offsets([tp]))[tp]
    of_group, known_count, commit = await fetch_committed(admin, settings, partition), None, None
    try:
        commit = await newest_commit(of_group, producer.copy, settings, partition, cipher, producer.know_output_end)
        if commit is not None:
            output_end = await _check_commit(settings, fingerprint, tp, start, commit, log_start, log_end)
            producer.expect_output_from(output_end)
            commit = replace(commit, first_partition_count=commit.first_partition_count or partition_count)
            if producer.copy is not None or of_group is None or not cipher.is_current(of_group.metadata):
                await _commit_again(producer, commit, cipher, tp)
            return PartitionStart(commit, log_start, log_end, unconfirmed.take(tp, commit))
        known_count = await fetch_first_partition_count(admin, settings, partition_count, cipher)
        if known_count is None and producer.copy is not None:
            known_count = await producer.copy.first_partition_count()
        offset = await _first_offset(producer, settings, partition, start, log_start, log_end, known_count)
        skipped_count = None
    except InputError as refusal:
        if await _committed_offset_changed(admin, settings, partition, of_group):
            return await initialize_partition(
                admin, consumer, producer, settings, fingerprint, partition, start, cipher, partition_count, unconfirmed
            )
        if not start.skip_to_end:
            raise
        copied_offset = refusal.committed_offset if isinstance(refusal, StaleCopyError) else None
        is_known = not isinstance(refusal, LogTruncatedError)
        first = _committed_offset(copied_offset, commit, of_group) if is_known else None
        offset, skipped_count = log_end, log_end - (log_start if first is None or first > log_end else first)
    commit = await _commit_beginning(
        producer,
        settings,
        fingerprint,
        partition,
        cipher,
        offset,
        skipped_count,
        known_count or partition_count,
        unconfirmed,
    )
    unconfirmed.take(tp, commit)
    # Nothing that may fail comes between this commit and the count of skipped offsets.
    return PartitionStart(commit, log_start, log_end, skipped_count, is_first=skipped_count is None)


async def _check_commit(
    settings: KafkaSection,
    fingerprint: str,
    tp: TopicPartition,
    start: StartOptions,
    commit: CommittedState,
    log_start: int,
    log_end: int,
) -> int | None:
    """Compare a commit with the log, the policy and the output; return where the output ends."""
    partition_name = f"{tp.topic}-{tp.partition}"
    check_log(commit.state, partition_name, log_start, log_end)
    if start.skip_to_end:
        # Without this option the task checks the reference record when it reads the first record.
        await check_reference(settings, commit.state, tp, log_start)
    check_policy(commit, fingerprint, partition_name, drain=start.drain)
    output_end = await end_at_start(settings, tp.partition, commit.state)
    await _check_output(settings, tp.partition, commit)
    return output_end


def _committed_offset(
    copied_offset: int | None, commit: CommittedState | None, of_group: OffsetAndMetadata | None
) -> int | None:
    """Return the committed offset: of a refused copy, of a commit that can be read, or as the group holds it."""
    if copied_offset is not None:
        return copied_offset
    if commit is not None:
        return commit.state.committed_offset
    return None if of_group is None else int(of_group.offset)


async def _commit_again(
    producer: TransactionalProducer,
    commit: CommittedState,
    cipher: MetadataCipher,
    tp: TopicPartition,
) -> None:
    """Commit the state of the start once more: under the first key, and to the copy with the output's end.

    So the group and the copy hold the same commit, also if one of them was lost, and a missing permission ends the
    start. Without this, a partition without new records would keep a key that is to be removed.
    """
    metadata, now_ms = cipher.encode(commit, tp.topic, tp.partition), time.time_ns() // 1_000_000
    await producer.publish_and_commit(
        TransactionBatch(), commit.state.committed_offset, metadata, min(commit.at_ms, now_ms)
    )


async def _commit_beginning(
    producer: TransactionalProducer,
    settings: KafkaSection,
    fingerprint: str,
    partition: int,
    cipher: MetadataCipher,
    offset: int,
    skipped_count: int | None,
    first_partition_count: int,
    unconfirmed: UnconfirmedSkips,
) -> CommittedState:
    """Commit that a partition begins at an offset, and copy it; return the commit."""
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
    producer.expect_output_from(await end_at_start(settings, partition, state))
    if skipped_count is not None:
        unconfirmed.add(TopicPartition(settings.input, partition), commit, skipped_count)
    # The transaction holds nothing else: if this commit fails, nothing was published.
    await producer.publish_and_commit(
        TransactionBatch(),
        offset,
        cipher.encode(commit, str(settings.input), partition),
        min(now_ms, time.time_ns() // 1_000_000),
    )
    return commit


async def _committed_offset_changed(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition: int, expected: OffsetAndMetadata | None
) -> bool:
    """Return whether the coordinator now returns another commit: under load its first answer may be an older one."""
    await asyncio.sleep(jittered(RECHECK_DELAY_S))
    return await fetch_committed(admin, settings, partition) != expected


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
                    "--skip-to-end to continue at the end and count the skipped offsets, or use an "
                    "empty output, if the old one is deleted"
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
