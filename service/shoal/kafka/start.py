"""Where a partition begins: its committed state is read after fencing, checked, and accepted or refused.

No record may be released twice. If that is not certain, the start is refused, with the remedies. The commit of the
group, or its copy if that is newer, is compared with the log of the input, the policy, and what was published. From
where the output ends on, a record that the worker did not send is another group's, whatever the clocks say.
"""

from __future__ import annotations

import time
from asyncio import sleep
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import msgspec
from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka.client import TRANSACTION_TIMEOUT_MS, NotYetError, asking, log_bounds, log_end, reading
from shoal.kafka.logs import GapReader, offset_since, read_committed_records
from shoal.kafka.metadata import CommittedState, MetadataCipher
from shoal.kafka.offsets import OffsetState, ProgressError, contradicted, log_truncated
from shoal.kafka.progress_copy import CopiedCommit, Order, ProgressCopy, order_of
from shoal.kafka.retries import jittered
from shoal.kafka.topics import has_several_inputs
from shoal.kafka.transactions import PartitionCounts, TransactionalProducer, TransactionBatch
from shoal.observability import logger
from shoal.policy import KafkaSection

log = logger("kafka")

IMPORT = "'shoal progress POLICY --import FILE'"
SKIP = "start with --skip-to-end to continue at the end: all that is in the log before is left out, and counted"


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of the operator."""

    reset: Literal["earliest", "latest"] | None = None
    """Where a partition without a commit begins; None: refused, if it was there at the group's first start."""
    skip_to_end: bool = False  # a partition that would be refused begins at the end of its log
    skip_lost: bool = False  # a partition whose oldest waiting records were deleted goes on without them
    drain: bool = False  # read to the end of the log, release or suppress all incomplete records, and end


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where a partition begins."""

    commit: CommittedState  # the commit from which to continue
    log_start: int
    log_end: int  # end of the committed part of the log (exclusive)
    skipped_count: int | None = None  # number of offsets that were skipped by an option; None without a skip
    is_first: bool = False  # there was no commit before, and no record was published
    has_new_policy: bool = False  # the commit that was found is of another policy


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What the start of a partition uses. The producer is open, so that earlier owners are fenced."""

    admin: AIOKafkaAdminClient
    producer: TransactionalProducer
    settings: KafkaSection
    partition: int
    partition_count: int
    fingerprint: str
    options: StartOptions
    cipher: MetadataCipher
    counts: PartitionCounts
    first_partition_counts: dict[str, int]
    """Numbers of partitions of inputs when the group first started, as far as they are known; kept up to date."""

    @property
    def tp(self) -> TopicPartition:
        """Topic and partition of the input."""
        return TopicPartition(self.settings.input, self.partition)


async def initialize_partition(context: PartitionContext) -> PartitionStart:
    """Return where a partition begins; commit the beginning if there is no usable commit, or as `_accept` says."""
    tp, producer, settings, partition = context.tp, context.producer, context.settings, context.partition
    async with asking(settings) as reader:
        log_start, log_end = await log_bounds(reader, tp)
    of_group, known_count, commit = await fetch_committed(context.admin, settings, partition), None, None
    try:
        commit = await newest_commit(
            of_group, producer.copy, settings, partition, context.cipher, producer.know_output_end
        )
        if commit is not None:
            kept, lost_count = _without_lost(context, commit, log_start)
            accepted = await _accept(context, of_group, kept, log_start, log_end, lost_count)
            return PartitionStart(
                accepted,
                log_start,
                log_end,
                lost_count or context.counts.take_skip(commit),
                has_new_policy=not commit.has_policy(context.fingerprint),
            )
        known_count = await _first_partition_count(context)
        offset = await _first_offset(context, log_start, log_end, known_count)
        skipped_count = None
    except InputError as refusal:
        # Under load the first answer of a coordinator may be an older commit.
        if await fetch_committed_again(context.admin, settings, partition) != of_group:
            return await initialize_partition(context)
        if not context.options.skip_to_end:
            raise
        first = _refused_offset(refusal, commit, of_group)
        offset, skipped_count = log_end, log_end - (log_start if first is None or first > log_end else first)
    commit = await _commit_beginning(context, offset, skipped_count, known_count or context.partition_count)
    # Nothing that may fail comes between this commit and the count of skipped offsets.
    return PartitionStart(commit, log_start, log_end, skipped_count, is_first=skipped_count is None)


def _without_lost(context: PartitionContext, commit: CommittedState, log_start: int) -> tuple[CommittedState, int]:
    """Return the commit without the incomplete offsets that were deleted, and the number of these and unread ones.

    Only with ``--skip-lost``. Guarantee: a cluster that is partly released stays whole, or the start is refused.
    """
    state = commit.state
    if not context.options.skip_lost or log_start <= state.committed_offset:
        return commit, 0
    if any(members[0] < log_start for members in state.unfinished_clusters):
        tp = context.tp
        raise InputError(
            f"{tp.topic}-{tp.partition}: records of a partly released cluster were deleted, so --skip-lost cannot "
            f"release it in full; {SKIP}"
        )
    kept = tuple(offset for offset in state.incomplete if offset >= log_start)
    lost_count = len(state.incomplete) - len(kept) + max(0, log_start - state.next_offset)
    next_offset = max(state.next_offset, log_start)
    committed_offset = min([next_offset, *kept, *(members[0] for members in state.unfinished_clusters)])
    has_flush = state.flush_at_offset is not None and state.flush_at_offset >= next_offset
    has_reference = state.reference is not None and state.reference.offset >= log_start
    shortened = replace(
        state,
        committed_offset=committed_offset,
        next_offset=next_offset,
        incomplete=kept,
        future_timestamped=tuple(offset for offset in state.future_timestamped if offset > committed_offset),
        flush_at_offset=state.flush_at_offset if has_flush else None,
        reference=state.reference if has_reference else None,
    )
    return replace(commit, state=shortened), lost_count


async def _accept(
    context: PartitionContext,
    of_group: OffsetAndMetadata | None,
    commit: CommittedState,
    log_start: int,
    log_end: int,
    lost_count: int,
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
    if producer.copy is not None or has_new_policy or lost_count or not is_current:
        # So the group and the copy hold the same commit, also if one of them was lost, and a missing permission ends
        # the start. A partition without new records would otherwise keep a key that is to be removed, and each of its
        # starts would report a change of the policy again.
        renewed = replace(commit, output_rows=producer.output_rows_of(TransactionBatch()))
        await _commit_skip(context, renewed, lost_count or None)
    return commit


async def _check_commit(context: PartitionContext, commit: CommittedState, log_start: int, log_end: int) -> int | None:
    """Compare a commit with the log, the policy and the output; return where the output ends."""
    settings, tp = context.settings, context.tp
    partition_name = f"{tp.topic}-{tp.partition}"
    check_log(commit.state, partition_name, log_start, log_end)
    if context.options.skip_to_end:
        # Without this option the task checks the reference record when it reads the first record.
        await check_reference(settings, commit.state, tp, log_start)
    check_policy_change(commit, context.fingerprint, partition_name, drain=context.options.drain)
    output_end = await end_at_start(settings, tp.partition, commit.state)
    if await is_published_after(settings, tp.partition, commit):
        raise InputError(
            f"{partition_name}: {settings.output}-{tp.partition} holds records that were published after the commit (a "
            "second group over the same topics? committed offsets reset by another tool? an old export imported?). "
            "Continuing would publish them a second time. Stop the other group, import the latest export with "
            f"{IMPORT}, or {SKIP}"
        )
    return output_end


async def _first_partition_count(context: PartitionContext) -> int | None:
    """Return the number of partitions of the input when the group first started; None if that is not known."""
    # It never changes, and the request is about all partitions of the input.
    if known_count := context.first_partition_counts.get(context.tp.topic):
        return known_count
    known_count = await fetch_first_partition_count(
        context.admin, context.settings, context.partition_count, context.cipher
    )
    if known_count is None and context.producer.copy is not None:
        known_count = await context.producer.copy.first_partition_count()
    if known_count:
        context.first_partition_counts[context.tp.topic] = known_count
    return known_count


def _refused_offset(
    refusal: InputError, commit: CommittedState | None, of_group: OffsetAndMetadata | None
) -> int | None:
    """Return the committed offset: of a refused copy, of a commit that can be read, or as the group holds it."""
    if isinstance(refusal, ProgressError) and refusal.is_of_another_log:
        return None
    if isinstance(refusal, ProgressError) and refusal.committed_offset is not None:
        return refusal.committed_offset
    if commit is not None:
        return commit.state.committed_offset
    return None if of_group is None else int(of_group.offset)


async def _commit_beginning(
    context: PartitionContext, offset: int, skipped_count: int | None, first_partition_count: int
) -> CommittedState:
    """Commit that a partition begins at an offset, and copy it; return the commit."""
    settings, partition = context.settings, context.partition
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
    await _commit_skip(context, commit, skipped_count)
    return commit


async def _commit_skip(context: PartitionContext, commit: CommittedState, skipped_count: int | None) -> None:
    """Commit alone, and note how many offsets that skips, for a later start: the outcome may not become known.

    The transaction holds nothing else: if this commit fails, nothing was published.
    """
    if skipped_count is not None:
        context.counts.sent_skip = commit, skipped_count
    await commit_alone(context.producer, context.cipher, context.tp, commit)
    if skipped_count is not None:
        context.counts.sent_skip = None


async def commit_alone(
    producer: TransactionalProducer, cipher: MetadataCipher, tp: TopicPartition, commit: CommittedState
) -> None:
    """Commit a state in a transaction that holds nothing else."""
    metadata = cipher.encode(commit, tp.topic, tp.partition)
    dated_ms = min(commit.at_ms, time.time_ns() // 1_000_000)
    await producer.publish_and_commit(TransactionBatch(), commit.state.committed_offset, metadata, dated_ms)


async def _first_offset(context: PartitionContext, log_start: int, log_end: int, known_count: int | None) -> int:
    """Return where a partition without a commit begins; one that was created later begins at its start."""
    producer, settings, partition = context.producer, context.settings, context.partition
    await check_no_open_transaction(settings, partition)
    await check_output_is_empty(producer, settings, partition)
    offset = _chosen_offset(context, log_start, log_end, known_count)
    if offset < log_end:
        await check_output_is_whole(producer, settings, partition)
    return offset


def _chosen_offset(context: PartitionContext, log_start: int, log_end: int, known_count: int | None) -> int:
    """Return the start of the log for a partition that was created later, and for another what the operator says."""
    settings, partition, reset = context.settings, context.partition, context.options.reset
    if known_count and partition >= known_count:
        created = "partition was created after the first start of the group: beginning at its start"
        log.info(created, topic=settings.input, partition=partition, offset=log_start)
        return log_start
    if reset is None:
        raise InputError(
            f"{settings.input}-{partition}: group {settings.group} has no committed offset. Say where to begin with "
            f"--from earliest or --from latest (in an app: start=), or import committed offsets with {IMPORT}, or "
            "start with --skip-to-end (skip_to_end=True)"
        )
    offset = log_start if reset == "earliest" else log_end
    if known_count == 0:
        not_known = "not known whether the partition was created after the first start of the group: --from decides"
        log.warning(not_known, topic=settings.input, partition=partition, offset=offset)
    return offset


def check_log(state: OffsetState, partition_name: str, log_start: int, log_end: int) -> None:
    """Refuse a commit of another log, or one whose records were deleted before they were published."""
    if log_start > state.committed_offset:
        raise InputError(
            f"{partition_name}: the log begins at {log_start}, after the committed offset {state.committed_offset}. "
            f"Records that were never published are no longer retained. Lengthen the retention of the topic, and start "
            f"with --skip-lost to go on at the first retained record and count the deleted ones, or {SKIP}"
        )
    if log_end < state.next_offset:
        raise log_truncated(
            partition_name, f"the log ends at {log_end}, before offset {state.next_offset}, up to which it was read"
        )


async def check_reference(settings: KafkaSection, state: OffsetState, tp: TopicPartition, log_start: int) -> None:
    """Compare the record at the offset of the reference record, if it is retained, with the one at the last commit."""
    reference = state.reference
    if reference is None or reference.offset < log_start:
        return
    async with aclosing(read_committed_records(settings, tp, reference.offset)) as records:
        async for record in records:
            if reference.is_contradicted(record.offset, record.timestamp):
                raise contradicted(f"{tp.topic}-{tp.partition}", reference)
            return


def check_policy_change(commit: CommittedState, fingerprint: str, partition_name: str, *, drain: bool) -> None:
    """Refuse a changed policy where it could publish records in other clusters than those decided before."""
    if commit.has_policy(fingerprint):
        return
    if commit.state.unfinished_clusters:
        raise InputError(
            f"{partition_name}: the policy has changed while partly released clusters are still to be completed. Run "
            "'shoal run POLICY --drain' with the old policy first"
        )
    if commit.state.flush_at_offset is not None and not drain:
        raise InputError(
            f"{partition_name}: the policy has changed while a flush that was decided is not done. Run "
            "'shoal run POLICY --drain' first, preferably with the old policy"
        )
    if commit.state.handed_over_uncommitted:
        raise InputError(
            f"{partition_name}: the policy has changed while a Faust stage may have received clusters that are not "
            "committed (its worker was killed). The new policy could release the same records in different clusters. "
            f"Run the worker with the old policy until it has caught up, and stop it with SIGTERM; or {SKIP}"
        )


MAX_REQUESTS = 20  # after more repeats than this, one answer is accepted, even if it differs from the one before
POLL_S = 0.1
COORDINATOR_TIMEOUT_S = 5.0
RECHECK_DELAY_S = 1.0  # mean pause (s) before a commit that may be an older one is read again


async def fetch_committed(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition: int
) -> OffsetAndMetadata | None:
    """Return the committed offset and metadata of one partition, or None if there is no commit.

    Two answers in succession must agree: a coordinator may still be writing. No answer does not mean no commit.
    """
    tp = TopicPartition(settings.input, partition)
    found = (await _agreed_answer(admin, settings, [tp]))[tp]
    return None if found.offset < 0 else found


async def fetch_committed_again(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition: int
) -> OffsetAndMetadata | None:
    """Return and raise as `fetch_committed`, after a pause: under load a coordinator may show a commit late."""
    await sleep(jittered(RECHECK_DELAY_S))
    return await fetch_committed(admin, settings, partition)


async def _agreed_answer(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partitions: list[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offset and metadata of all these partitions, with offset -1 for no commit."""
    answer: dict[TopicPartition, OffsetAndMetadata] = {}
    unanswered_since_s: float | None = None
    repeats = 0
    while True:
        asked_s = time.monotonic()
        previous, answer = answer, await _ask_coordinator(admin, settings, partitions)
        missing = [tp for tp in partitions if tp not in answer]
        if not missing:
            if answer == previous or repeats > MAX_REQUESTS:
                return answer
            repeats += 1
            await sleep(0.01)
            continue
        unanswered_since_s = asked_s if unanswered_since_s is None else unanswered_since_s
        if time.monotonic() >= unanswered_since_s + COORDINATOR_TIMEOUT_S:
            raise BrokerUnavailableError(
                f"{settings.input}-{missing[0].partition}: the coordinator of group {settings.group} does not return "
                "the committed offset; trying again"
            )
        await sleep(jittered(POLL_S))


async def _ask_coordinator(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partitions: list[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what the coordinator answers: no partition if it is loading or has moved, or if it has no answer."""
    try:
        return dict(await admin.list_consumer_group_offsets(str(settings.group), partitions=partitions))
    except kafka_errors.KafkaError as error:
        # The first request of a Kafka cluster creates the coordinator's topic. A coordinator may also move or load.
        if not error.retriable:
            raise
        return {}


async def fetch_first_partition_count(
    admin: AIOKafkaAdminClient, settings: KafkaSection, partition_count: int, cipher: MetadataCipher
) -> int | None:
    """Return the number of partitions at the group's first start; 0 if no commit says it, None without a commit."""
    topic = str(settings.input)
    offsets = await _agreed_answer(
        admin, settings, [TopicPartition(topic, number) for number in range(partition_count)]
    )
    committed = {tp: found for tp, found in offsets.items() if found.offset >= 0}
    counts = []
    for tp, found in committed.items():
        try:
            commit = decode_committed(found, settings, tp.partition, cipher)
        except InputError:
            continue  # the task of that partition refuses it
        if commit.first_partition_count:
            counts.append(commit.first_partition_count)
    return min(counts, default=0) if committed else None  # the smallest is the oldest


async def end_at_start(settings: KafkaSection, partition: int, state: OffsetState) -> int | None:
    """Return the offset in the output from which on this worker is the only writer; None without an output topic.

    Earlier producers must be fenced, and the output not yet checked. Open transactions count while nothing is released.
    """
    has_released = state.next_cluster_number > state.released_from
    return await _end(settings, partition, "read_uncommitted" if has_released else "read_committed")


async def check_no_open_transaction(settings: KafkaSection, partition: int) -> None:
    """Raise `NotYetError` if an open transaction hides records; the broker ends it after its timeout."""
    end, committed = [await _end(settings, partition, level) for level in ("read_uncommitted", "read_committed")]
    if end is not None and committed is not None and end > committed:
        raise NotYetError(
            f"{settings.output}-{partition}: an open transaction hides the records from offset {committed} on; waiting "
            "for its end"
        )


async def check_no_record_after(
    settings: KafkaSection, partition: int, offset: int | None, *, has_older: bool = False
) -> None:
    """Refuse an output that got records from an offset on, as the copy says, or of which that is not known."""
    tp = TopicPartition(settings.output, partition)
    if settings.output is None:
        reason = "without an output topic nothing shows what followed the copy"
    elif offset is None:
        reason = f"the copy does not say where {tp.topic}-{tp.partition} ended"
    else:
        await check_no_open_transaction(settings, partition)
        log_start, log_end, first = await _find_from(settings, tp, offset)
        is_known = log_start <= offset <= log_end
        if is_known and first is None:
            return
        shown = "holds records that were published after" if is_known else "no longer shows what followed"
        reason = f"{tp.topic}-{tp.partition} {shown} the copy (offset {offset})"
    found = (
        "the group's progress is older than its copy" if has_older else "only the copy of the group's progress is left"
    )
    raise InputError(
        f"{settings.input}-{partition}: {found}, and {reason}. Continuing could publish records twice. Import an "
        f"export that was made before the loss, and after the last commit, with {IMPORT}, or {SKIP}"
    )


async def check_no_other_writer(settings: KafkaSection, partition: int, offset: int | None) -> None:
    """Refuse committed records from the offset on at which the output ended after the last commit."""
    if settings.output is None or offset is None:
        return
    tp = TopicPartition(settings.output, partition)
    if (await _find_from(settings, tp, offset))[2] is None:
        return
    raise InputError(
        f"{settings.input}-{partition}: {tp.topic}-{tp.partition} holds records that were published after the commit "
        f"(from offset {offset} on; a second group over the same topics? all topics restored from a backup?). "
        f"Continuing could publish them a second time. Stop the other group, import the latest export with {IMPORT}, "
        f"or {SKIP}"
    )


async def _find_from(settings: KafkaSection, tp: TopicPartition, offset: int) -> tuple[int, int, int | None]:
    """Return where a log begins and ends, and the offset of its first committed record from an offset on, if any."""
    async with asking(settings) as reader:
        log_start, log_end = await log_bounds(reader, tp)
    if offset >= log_end:
        return log_start, log_end, None
    async with reading(settings) as reader:
        return log_start, log_end, await GapReader(reader).next_record_offset(tp, max(offset, log_start))


async def _end(settings: KafkaSection, partition: int, isolation_level: str) -> int | None:
    if settings.output is None:
        return None
    async with asking(settings, isolation_level) as reader:
        return await log_end(reader, TopicPartition(settings.output, partition))


async def newest_commit(
    of_group: OffsetAndMetadata | None,
    copy: ProgressCopy | None,
    settings: KafkaSection,
    partition: int,
    cipher: MetadataCipher,
    acknowledged: Callable[[int], None] | None = None,
) -> CommittedState | None:
    """Return the commit from which a partition continues; None if there is none."""
    if copy is None:
        return None if of_group is None else decode_committed(of_group, settings, partition, cipher)
    copied = await copy.fetch()
    commit, order = decode_both(of_group, copied, copy)
    if copied is not None:
        await check_copied_end(copy, copied, order, has_older=of_group is not None)
    if order is Order.SAME and copied is not None and acknowledged is not None:
        end = _output_end(copy, copied)
        acknowledged(0 if end is None else end)
    if order is Order.NEWER and copied is not None:
        event = "the group has no progress, or older progress than its copy: continuing from the copy"
        log.warning(event, topic=settings.input, partition=partition, watermark=copied.offset)
    elif order is Order.OLDER:
        event = "the copy of the progress is missing or older: writing it again"
        log.warning(event, topic=settings.input, partition=partition)
    return commit


async def check_copied_end(copy: ProgressCopy, copied: CopiedCommit, order: Order, *, has_older: bool) -> None:
    """Compare where the output ended, as a copy says, with the output. A copy older than the group says nothing."""
    settings, partition, end = copy.settings, copy.partition, _output_end(copy, copied)
    if order is Order.SAME:
        await check_no_other_writer(settings, partition, end)
    elif order is Order.NEWER:
        try:
            await check_no_record_after(settings, partition, end, has_older=has_older)
        except InputError as error:
            raise ProgressError(str(error), committed_offset=copied.offset) from None


def _output_end(copy: ProgressCopy, copied: CopiedCommit) -> int | None:
    """Return where the output ended; None if the copy does not say it, or was written for another output."""
    return copied.output_end if copied.output == copy.settings.output else None


def decode_both(
    of_group: OffsetAndMetadata | None, copied: CopiedCommit | None, copy: ProgressCopy
) -> tuple[CommittedState | None, Order]:
    """Return the newer of two commits, and how the copied one compares; a missing one is older."""
    settings, partition = copy.settings, copy.partition
    commit = None if copied is None else copy.decode(copied)
    try:
        known = None if of_group is None else decode_committed(of_group, settings, partition, copy.cipher)
    except InputError as error:
        if commit is None or isinstance(error, ProgressError):
            raise
        raise InputError(
            f"{settings.input}-{partition}: the committed offset carries no progress that can be read (reset by "
            f"another tool?), but {settings.progress_copy} holds a copy. Delete the group's offset of this partition: "
            f"the next start then continues from the copy. Or import an export with {IMPORT}, or start with "
            "--skip-to-end"
        ) from None
    if commit is None or known is None:
        is_same = commit is None and known is None
        return commit or known, Order.SAME if is_same else Order.OLDER if commit is None else Order.NEWER
    order = order_of(commit, known)
    if order is Order.CONTRADICTS:
        raise InputError(
            f"{settings.input}-{partition}: the progress of group {settings.group} and its copy in "
            f"{settings.progress_copy} contradict each other: each has completed offsets that the other has not. "
            "Continuing from either could publish records twice. Import an export that is newer than both with "
            f"{IMPORT}, or {SKIP}"
        )
    return (commit if order is Order.NEWER else known), order


def decode_committed(
    of_group: OffsetAndMetadata, settings: KafkaSection, partition: int, cipher: MetadataCipher
) -> CommittedState:
    """Return the state that the group has committed for a partition; raises as `MetadataCipher.decode`."""
    return cipher.decode(of_group.metadata or "", str(settings.input), partition, of_group.offset)


SEARCHING = "reading whether records of an input partition were published before"
TOLD_EVERY_S = 10.0  # time (s) between two lines of the log that say how far a search is
APPEND_TIME = 1  # timestamp type of a topic with ``message.timestamp.type=LogAppendTime``


async def check_output_is_empty(producer: TransactionalProducer, settings: KafkaSection, partition: int) -> None:
    """Refuse to begin without a commit if records of this partition were published before.

    All that is committed is read, also of other partitions. Another check with the same producer reads what was added.
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
        tp, told_s = producer.target(topic), time.monotonic()
        async with aclosing(read_committed_records(settings, tp, producer.searched.get(tp, 0))) as records:
            async for record in records:
                if not is_own(record.value):
                    producer.searched[tp] = record.offset + 1
                    if time.monotonic() >= told_s + TOLD_EVERY_S:
                        log.info(SEARCHING, topic=tp.topic, partition=tp.partition, offset=record.offset)
                        told_s = time.monotonic()
                    continue
                raise InputError(
                    f"{settings.input}-{partition}: group {settings.group} has no committed offset, but "
                    f"{tp.topic}-{tp.partition} holds records already. Starting over would publish them a second "
                    f"time. Import the committed offsets with {IMPORT}, or {SKIP}, or use an empty output, if the old "
                    "one is deleted"
                )


async def check_output_is_whole(producer: TransactionalProducer, settings: KafkaSection, partition: int) -> None:
    """Refuse to begin before records of the input if records of the output were deleted: they may be the same."""
    witnesses = [settings.output] if settings.output is not None else [settings.evidence, settings.clusters]
    for topic in witnesses:
        if topic is None or not (topic == settings.evidence or producer.is_only_writer(topic)):
            continue
        tp = producer.target(topic)
        async with asking(settings) as reader:
            log_start, _ = await log_bounds(reader, tp)
        if log_start:
            raise InputError(
                f"{settings.input}-{partition}: group {settings.group} has no committed offset, and the records of "
                f"{tp.topic}-{tp.partition} before offset {log_start} were deleted (retention?). Starting over could "
                f"publish them a second time. Import the committed offsets with {IMPORT}, or {SKIP}, or with --from "
                "latest if the input is new to the group, or use a new topic in its place, if the deleted records are "
                "not of this input or no reader has kept them"
            )


def _is_about(inputs: Collection[str | None], partition: int | None, message: bytes | None) -> bool:
    """Return whether a message of a side topic is about one of these inputs (None: names none) and this partition."""
    try:
        content = msgspec.json.decode(message or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return partition is None
    return content.get("topic") in inputs and partition in (None, content.get("partition"))


async def latest_published(settings: KafkaSection, partition: int) -> int:
    """Return the latest timestamp (ms) of committed records from the first that is dated now or later; -1 if none."""
    tp, latest = TopicPartition(settings.output, partition), -1
    if settings.output is None:
        return latest
    begin = await offset_since(settings, tp, time.time_ns() // 1_000_000)
    if begin is None:
        return latest
    async with aclosing(read_committed_records(settings, tp, begin)) as records:
        async for record in records:
            latest = max(latest, record.timestamp)
    return latest


async def is_published_after(settings: KafkaSection, partition: int, commit: CommittedState) -> bool:
    """Return whether the output holds records that were published after a commit; False without an output.

    Records carry the time of their commit, floored to the commit interval; with ``LogAppendTime``, a later time.
    Commits of older versions do not say where their rows are; then the time of the commit decides alone.
    """
    tp, rows, count = TopicPartition(settings.output, partition), commit.output_rows, 0
    if settings.output is None:
        return False
    later_offset = await offset_since(settings, tp, commit.at_ms + 1)
    first_offset = rows.first_offset if rows is not None and rows.are_in(settings.output) else None
    # An output that ends earlier (recreated, or records lost by brokers) holds none of them.
    begin = min((offset for offset in (later_offset, first_offset) if offset is not None), default=None)
    if begin is None:
        return False
    async with aclosing(read_committed_records(settings, tp, begin)) as records:
        async for record in records:
            # With LogAppendTime even the records of this commit have a later timestamp.
            tolerance_ms = TRANSACTION_TIMEOUT_MS if record.timestamp_type == APPEND_TIME else 0
            if record.timestamp > commit.at_ms + tolerance_ms:
                return True
            if rows is not None and first_offset is not None and record.offset >= first_offset:
                count += 1
                if count > rows.count:
                    return True
    return False
