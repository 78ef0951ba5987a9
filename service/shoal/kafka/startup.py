"""Where a partition begins: its committed state is read after fencing, checked, and accepted or refused.

No record may be released twice. If that is not certain, the start is refused. The message names the partition and the
remedies.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import InputError
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.client import log_bounds
from shoal.kafka.commit_checks import check_log, check_policy, check_reference
from shoal.kafka.committed_offsets import fetch_committed, fetch_committed_again, fetch_first_partition_count
from shoal.kafka.newest_commit import StaleCopyError, newest_commit
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import LogTruncatedError, OffsetState
from shoal.kafka.output_end import check_no_open_transaction, end_at_start
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.kafka.published_records import (
    check_output_is_empty,
    check_output_is_whole,
    is_published_after,
    latest_published,
)
from shoal.kafka.unconfirmed_skips import UnconfirmedSkips
from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = [
    "PartitionContext",
    "PartitionStart",
    "StartOptions",
    "initialize_partition",
]

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
    has_new_policy : bool
        The commit that was found is of another policy.
    """

    commit: CommittedState
    log_start: int
    log_end: int
    skipped_count: int | None = None
    is_first: bool = False
    has_new_policy: bool = False


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What the start of a partition uses.

    Attributes
    ----------
    admin, consumer, producer : AIOKafkaAdminClient, AIOKafkaConsumer, TransactionalProducer
        Clients. The producer must be open, so that earlier owners are fenced.
    settings : KafkaSection
        Of the input and its output.
    partition, partition_count : int
        The partition, and how many the input has.
    fingerprint : str
        Of the policy.
    options : StartOptions
        Of the operator.
    cipher : MetadataCipher
        Encodes the offset metadata.
    unconfirmed : UnconfirmedSkips
        Skips of this process whose outcome is unknown.
    """

    admin: AIOKafkaAdminClient
    consumer: AIOKafkaConsumer
    producer: TransactionalProducer
    settings: KafkaSection
    partition: int
    partition_count: int
    fingerprint: str
    options: StartOptions
    cipher: MetadataCipher
    unconfirmed: UnconfirmedSkips

    @property
    def tp(self) -> TopicPartition:
        """Topic and partition of the input."""
        return TopicPartition(self.settings.input, self.partition)


async def initialize_partition(context: PartitionContext) -> PartitionStart:
    """Return where a partition begins; commit the beginning if there is no usable commit.

    It commits if there is no commit yet, if ``--skip-to-end`` replaces one that is refused, if the commit is of another
    policy or was encrypted under another key than the first, and in any case if the producer keeps a copy. A skip whose
    outcome was unknown is counted when its commit is found.

    Raises
    ------
    InputError
        The committed state cannot be trusted, or there is none and the operator did not say where to begin.
    NotYetError
        What is compared with it cannot be read now.
    """
    tp, producer, settings, partition = context.tp, context.producer, context.settings, context.partition
    log_start, log_end = await log_bounds(context.consumer, tp)
    of_group, known_count, commit = await fetch_committed(context.admin, settings, partition), None, None
    try:
        commit = await newest_commit(
            of_group, producer.copy, settings, partition, context.cipher, producer.know_output_end
        )
        if commit is not None:
            accepted = await _accept(context, of_group, commit, log_start, log_end)
            return PartitionStart(
                accepted,
                log_start,
                log_end,
                context.unconfirmed.take(tp, commit),
                has_new_policy=not commit.has_policy(context.fingerprint),
            )
        known_count = await _first_partition_count(context)
        offset = await _first_offset(producer, settings, partition, context.options, log_start, log_end, known_count)
        skipped_count = None
    except InputError as refusal:
        if await _committed_offset_changed(context.admin, settings, partition, of_group):
            return await initialize_partition(context)
        if not context.options.skip_to_end:
            raise
        copied_offset = refusal.committed_offset if isinstance(refusal, StaleCopyError) else None
        is_known = not isinstance(refusal, LogTruncatedError)
        first = _committed_offset(copied_offset, commit, of_group) if is_known else None
        offset, skipped_count = log_end, log_end - (log_start if first is None or first > log_end else first)
    commit = await _commit_beginning(context, offset, skipped_count, known_count or context.partition_count)
    # Nothing that may fail comes between this commit and the count of skipped offsets.
    return PartitionStart(commit, log_start, log_end, skipped_count, is_first=skipped_count is None)


async def _accept(
    context: PartitionContext, of_group: OffsetAndMetadata | None, commit: CommittedState, log_start: int, log_end: int
) -> CommittedState:
    """Return a commit from which to continue; commit it once more if the group or the copy must hold it anew."""
    producer = context.producer
    producer.expect_output_from(await _check_commit(context, commit, log_start, log_end))
    commit = replace(commit, first_partition_count=commit.first_partition_count or context.partition_count)
    # A decided flush stays under its own policy until it is done: only a drain may do it under another one.
    has_new_policy = not commit.has_policy(context.fingerprint) and commit.state.flush_at_offset is None
    if has_new_policy:
        commit = commit.under_policy(context.fingerprint)
    is_current = of_group is not None and context.cipher.is_current(of_group.metadata)
    if producer.copy is not None or has_new_policy or not is_current:
        await _commit_again(producer, commit, context.cipher, context.tp)
    return commit


async def _check_commit(context: PartitionContext, commit: CommittedState, log_start: int, log_end: int) -> int | None:
    """Compare a commit with the log, the policy and the output; return where the output ends."""
    settings, tp = context.settings, context.tp
    partition_name = f"{tp.topic}-{tp.partition}"
    check_log(commit.state, partition_name, log_start, log_end)
    if context.options.skip_to_end:
        # Without this option the task checks the reference record when it reads the first record.
        await check_reference(settings, commit.state, tp, log_start)
    check_policy(commit, context.fingerprint, partition_name, drain=context.options.drain)
    output_end = await end_at_start(settings, tp.partition, commit.state)
    await _check_output(settings, tp.partition, commit)
    return output_end


async def _first_partition_count(context: PartitionContext) -> int | None:
    """Return the number of partitions that the input had when the group first started; None if that is not known."""
    known_count = await fetch_first_partition_count(
        context.admin, context.settings, context.partition_count, context.cipher
    )
    if known_count is None and context.producer.copy is not None:
        return await context.producer.copy.first_partition_count()
    return known_count


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
    """Commit the state of the start once more: under this policy and the first key, and to the copy.

    So the group and the copy hold the same commit, also if one of them was lost, and a missing permission ends the
    start. Without this, a partition without new records would keep a key that is to be removed, and each of its starts
    would report a change of the policy again.
    """
    commit = replace(commit, output_rows=producer.output_rows_of(TransactionBatch()))
    metadata, now_ms = cipher.encode(commit, tp.topic, tp.partition), time.time_ns() // 1_000_000
    await producer.publish_and_commit(
        TransactionBatch(), commit.state.committed_offset, metadata, min(commit.at_ms, now_ms)
    )


async def _commit_beginning(
    context: PartitionContext, offset: int, skipped_count: int | None, first_partition_count: int
) -> CommittedState:
    """Commit that a partition begins at an offset, and copy it; return the commit."""
    settings, partition, tp = context.settings, context.partition, context.tp
    now_ms = time.time_ns() // 1_000_000
    if skipped_count is None:
        # Before the timestamps of this commit interval: a later start finds what another group publishes in it.
        now_ms = now_ms // settings.commit_interval_ms * settings.commit_interval_ms - 1
    else:
        # Later starts compare the output with this time. A worker with a fast clock may have published later than now.
        now_ms = max(now_ms, await latest_published(settings, partition))
    # After a skip it is not known which records were released before.
    first_released = offset if skipped_count is None else 0
    # A partition has at most as many clusters as offsets. So numbering from the offset repeats no number after a skip.
    state = OffsetState(offset, offset, released_from=first_released, next_cluster_number=offset)
    context.producer.expect_output_from(await end_at_start(settings, partition, state))
    output_rows = context.producer.output_rows_of(TransactionBatch())
    commit = CommittedState(state, context.fingerprint, now_ms, first_partition_count, output_rows)
    if skipped_count is not None:
        context.unconfirmed.add(tp, commit, skipped_count)
    # The transaction holds nothing else: if this commit fails, nothing was published.
    await context.producer.publish_and_commit(
        TransactionBatch(),
        offset,
        context.cipher.encode(commit, tp.topic, partition),
        min(now_ms, time.time_ns() // 1_000_000),
    )
    context.unconfirmed.forget(tp)
    return commit


async def _committed_offset_changed(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition: int, expected: OffsetAndMetadata | None
) -> bool:
    """Return whether the coordinator now returns another commit: under load its first answer may be an older one."""
    return await fetch_committed_again(admin, settings, partition) != expected


async def _check_output(settings: KafkaSection, partition: int, commit: CommittedState) -> None:
    """Check that this is the last commit: from an older one, records would be released a second time."""
    if await is_published_after(settings, partition, commit):
        raise InputError(
            f"{settings.input}-{partition}: {settings.output}-{partition} holds records that were published after the "
            "commit (a second group over the same topics? committed offsets reset by another tool? an old export "
            "imported?). Continuing would publish them a second time. Stop the other group, import the latest export "
            "with 'shoal progress POLICY --import FILE', or start with --skip-to-end to continue at the end and count "
            "the skipped offsets"
        )


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
    await check_no_open_transaction(settings, partition)
    await check_output_is_empty(producer, settings, partition)
    offset = _chosen_offset(settings, partition, start, log_start, log_end, known_count)
    if offset < log_end:
        await check_output_is_whole(producer, settings, partition)
    return offset


def _chosen_offset(
    settings: KafkaSection, partition: int, start: StartOptions, log_start: int, log_end: int, known_count: int | None
) -> int:
    """Return the start of the log for a partition that was created later, and for another what the operator says."""
    if known_count and partition >= known_count:
        created = "partition was created after the first start of the group: beginning at its start"
        log.info(created, topic=settings.input, partition=partition, offset=log_start)
        return log_start
    if start.reset is None:
        raise InputError(
            f"{settings.input}-{partition}: group {settings.group} has no committed offset. Say where to begin with "
            "--from earliest or --from latest (in an app: start=), or import committed offsets with "
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
