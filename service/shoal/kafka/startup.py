"""Where a partition begins: its committed state is read after fencing, checked, and accepted or refused.

No record may be released twice. So every doubt leads to a refusal that names the partition and the remedies.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.client import reading
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import LogTruncatedError, OffsetState
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.policy import KafkaSection

__all__ = [
    "StartOptions",
    "StartPosition",
    "check_settled",
    "check_unpublished",
    "committed",
    "initialize_partition",
    "is_published_since",
    "read_committed_records",
]

MAX_ANSWERS = 20
SILENCE_S = 5.0
RECHECK_S = 1.0
READ_S = 10.0
POLL_RECORDS = 500
APPEND_TIME = 1
"""Timestamp type of a topic with ``message.timestamp.type=LogAppendTime``."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of the operator: where a partition without a commit begins, skip to the end, drain."""

    origin: Literal["earliest", "latest"] | None = None
    skip_to_end: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where a partition begins.

    Attributes
    ----------
    commit : CommittedState
        The commit from which to continue.
    log_start, log_end : int
        First offset of the log, and the one after its last committed record.
    skipped : int or None
        Offsets left out by ``--skip-to-end``.
    is_first : bool
        There was no commit before, and no record was published.
    """

    commit: CommittedState
    log_start: int
    log_end: int
    skipped: int | None = None
    is_first: bool = False


async def committed(client: AIOKafkaAdminClient, settings: KafkaSection, partition: int) -> OffsetAndMetadata | None:
    """Return the committed offset and metadata of one partition, or None; asked until two answers agree.

    The previous producer was fenced before, so its transaction has ended. A classic group coordinator may still be
    writing the offsets of that transaction.

    Raises
    ------
    BrokerUnavailableError
        The coordinator did not answer. That does not mean that there is no commit.
    """
    tp = TopicPartition(settings.input, partition)
    answer: OffsetAndMetadata | None = None
    silent_s = 0.0
    for number in itertools.count():
        previous, answer = answer, await _coordinator_answer(client, settings, tp)
        if answer is not None and (answer == previous or number > MAX_ANSWERS):
            return None if answer.offset < 0 else answer
        if answer is None and silent_s >= SILENCE_S:
            break
        silent_s += 0.0 if answer is not None else 0.1
        await asyncio.sleep(0.01 if answer is not None else 0.1)
    words = f"the coordinator of group {settings.group} does not tell its progress for now"
    raise BrokerUnavailableError(f"{settings.input}-{partition}: {words}")


async def _coordinator_answer(
    client: AIOKafkaAdminClient, settings: KafkaSection, tp: TopicPartition
) -> OffsetAndMetadata | None:
    """Return the coordinator's answer, with offset -1 for no commit; None where it does not answer."""
    try:
        found = await client.list_consumer_group_offsets(str(settings.group), partitions=[tp])
    except kafka_errors.KafkaError as error:
        # The coordinator of the first group is created by the request; others may be moving or loading.
        if not error.retriable:
            raise
        return None
    answer: OffsetAndMetadata | None = found.get(tp)
    return answer


async def initialize_partition(
    client: AIOKafkaAdminClient,
    reader: AIOKafkaConsumer,
    producer: TransactionalProducer,
    settings: KafkaSection,
    fingerprint: str,
    partition: int,
    start: StartOptions,
    cipher: MetadataCipher,
) -> StartPosition:
    """Return where a partition begins whose producer is open; commit that if there was no commit.

    Raises
    ------
    InputError
        The committed state cannot be trusted, or there is none and the operator did not say where to begin.
    """
    tp, where = TopicPartition(settings.input, partition), f"{settings.input}-{partition}"
    log_start = (await reader.beginning_offsets([tp]))[tp]
    log_end = (await reader.end_offsets([tp]))[tp]
    found = await committed(client, settings, partition)
    try:
        if found is not None:
            commit = cipher.decode(found.metadata or "", str(settings.input), partition, found.offset)
            _check_log(commit.state, where, log_start, log_end)
            if start.skip_to_end:
                # Without the option the task checks this with the first record; then it is too late to skip.
                await _check_probe(settings, commit.state, tp, log_start)
            _check_policy(commit, fingerprint, where, drain=start.drain)
            await _check_output(settings, partition, commit)
            return StartPosition(commit, log_start, log_end)
        offset = await _first_offset(producer, settings, partition, start, log_start, log_end)
        skipped = None
    except InputError as refusal:
        if await _committed_offset_changed(client, settings, partition, found):
            return await initialize_partition(client, reader, producer, settings, fingerprint, partition, start, cipher)
        if not start.skip_to_end:
            raise
        if found is None or found.offset > log_end or isinstance(refusal, LogTruncatedError):
            offset, skipped = log_end, log_end - log_start
        else:
            offset, skipped = log_end, log_end - found.offset
    now_ms = time.time_ns() // 1_000_000
    if skipped is not None:
        # A worker whose clock was ahead may have published later than now, and later starts compare with this time.
        now_ms = max(now_ms, await _latest_published(settings, partition))
    # What was released before a skip is not known.
    origin = offset if skipped is None else 0
    # There are never more clusters than offsets before them, so no cluster number is used twice after a skip.
    state = OffsetState(committed_offset=offset, next_offset=offset, origin=origin, clusters=offset)
    commit = CommittedState(state, fingerprint, now_ms)
    # Alone in its transaction: if this commit is lost, nothing else was done.
    await producer.publish(TransactionBatch(), offset, cipher.encode(commit, str(settings.input), partition), now_ms)
    return StartPosition(commit, log_start, log_end, skipped, is_first=skipped is None)


async def _committed_offset_changed(
    client: AIOKafkaAdminClient, settings: KafkaSection, partition: int, found: OffsetAndMetadata | None
) -> bool:
    """Return whether the coordinator, under load, had answered with an older commit than the last one."""
    await asyncio.sleep(RECHECK_S)
    return await committed(client, settings, partition) != found


def _check_log(state: OffsetState, where: str, log_start: int, log_end: int) -> None:
    if log_start > state.committed_offset:
        raise InputError(
            f"{where}: the log begins at {log_start}, after the committed offset {state.committed_offset}: records "
            "that were never published are no longer retained; lengthen the topic's retention, and start with "
            "--skip-to-end to go on at the end and count the gap"
        )
    if log_end < state.next_offset:
        raise LogTruncatedError(
            where, f"the log ends at {log_end}, before offset {state.next_offset} that was read already"
        )


async def _check_probe(settings: KafkaSection, state: OffsetState, tp: TopicPartition, log_start: int) -> None:
    """Compare the record at the probe, if it is retained, with the one that was there at the last commit."""
    probe = state.probe
    if probe is None or probe.offset < log_start:
        return
    async with aclosing(read_committed_records(settings, tp, probe.offset)) as records:
        async for record in records:
            if probe.is_contradicted(record.offset, record.timestamp):
                raise LogTruncatedError.at_probe(f"{tp.topic}-{tp.partition}", probe)
            return


def _check_policy(commit: CommittedState, fingerprint: str, where: str, *, drain: bool) -> None:
    if commit.state.partial_clusters and not commit.has_policy(fingerprint):
        raise InputError(
            f"{where}: the policy has changed while clusters of which a part has left are still to be completed: run "
            "'shoal run POLICY --drain' with the policy as it was first"
        )
    if commit.state.flush_at_offset is not None and not commit.has_policy(fingerprint) and not drain:
        raise InputError(
            f"{where}: the policy has changed while clusters that were decided on are not released yet: run "
            "'shoal run POLICY --drain' first, best with the policy as it was"
        )
    if commit.state.handed_over_uncommitted and not commit.has_policy(fingerprint):
        raise InputError(
            f"{where}: the policy has changed while clusters may be in use that are not committed (a worker with a "
            "stage was killed): the new policy could release the same records in different clusters. Run the worker "
            "once more with the policy as it was, until it has caught up, and stop it with SIGTERM; or start with "
            "--skip-to-end to go on at the end and count the gap"
        )


async def _check_output(settings: KafkaSection, partition: int, commit: CommittedState) -> None:
    """Check that this is the last commit: an older one that was put back would release later records again."""
    if settings.output is not None and await is_published_since(settings, partition, commit.at_ms):
        raise InputError(
            f"{settings.input}-{partition}: {settings.output}-{partition} holds records that were published after the "
            "committed progress (put back by another tool, or from an old copy?): going on would publish them a second "
            "time. Bring the latest progress back with 'shoal progress POLICY --import FILE', or start with "
            "--skip-to-end to go on at the end and count the gap"
        )


async def check_unpublished(producer: TransactionalProducer, settings: KafkaSection, partition: int) -> None:
    """Refuse to begin without a commit where records of this partition were published already.

    Raises
    ------
    InputError
        There are committed records in the output partition, or evidence or summaries of clusters of this partition.
        (A stage that hands clusters over to Faust may write evidence and summaries only.)
    """
    topics = [(settings.output, False), (settings.evidence, True), (settings.clusters, False)]
    for topic, names_partition in topics:
        # Evidence names the partition of the input. Records in other topics belong to it if it is the only writer.
        if topic is None or not (names_partition or producer.is_only_writer(topic)):
            continue
        async with aclosing(read_committed_records(settings, producer.target(topic))) as records:
            async for record in records:
                if names_partition and not _is_evidence_of(record.value, partition):
                    continue
                tp = producer.target(topic)
                raise InputError(
                    f"{settings.input}-{partition}: no progress is committed for group {settings.group}, but "
                    f"{tp.topic}-{tp.partition} holds records already: starting over would publish them a second "
                    "time. Bring the progress back with 'shoal progress POLICY --import FILE', or start with "
                    "--skip-to-end to go on at the end and count the gap, or use an empty output"
                )


def _is_evidence_of(evidence: bytes | None, partition: int) -> bool:
    """Return whether a message of the evidence topic is about this partition."""
    try:
        found = msgspec.json.decode(evidence or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return isinstance(found, dict) and found.get("partition") == partition


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
) -> int:
    where = f"{settings.input}-{partition}"
    if settings.output is not None:
        await check_settled(settings, TopicPartition(settings.output, partition))
    await check_unpublished(producer, settings, partition)
    if start.origin is None:
        raise InputError(
            f"{where}: no progress is committed for group {settings.group}: say where to begin with --from earliest "
            "or --from latest (in an app: start=), bring it back with 'shoal progress POLICY --import FILE', or start "
            "with --skip-to-end (skip_to_end=True)"
        )
    return log_start if start.origin == "earliest" else log_end


async def check_settled(settings: KafkaSection, tp: TopicPartition) -> None:
    """Check that no open transaction hides records: consumers of committed records cannot read past it.

    Raises
    ------
    BrokerUnavailableError
        There is an open transaction. The broker ends it after its timeout.
    """
    ends = []
    for isolation in ("read_uncommitted", "read_committed"):
        async with reading(settings, isolation_level=isolation) as reader:
            ends.append((await reader.end_offsets([tp]))[tp])
    if ends[0] > ends[1]:
        raise BrokerUnavailableError(
            f"{tp.topic}-{tp.partition}: an open transaction hides the records after offset {ends[1]}; waiting for its "
            "end"
        )


async def is_published_since(settings: KafkaSection, partition: int, at_ms: int) -> bool:
    """Return whether the output holds records of a later commit than the one at this time (ms).

    Records carry the time of their commit, floored to the commit interval.
    """
    tp = TopicPartition(settings.output, partition)
    async with aclosing(read_committed_records(settings, tp, since_ms=at_ms + 1)) as records:
        async for record in records:
            # With LogAppendTime the records of the commit itself have later timestamps, too.
            slack_ms = settings.transaction_timeout_ms if record.timestamp_type == APPEND_TIME else 0
            if record.timestamp > at_ms + slack_ms:
                return True
    return False


async def read_committed_records(
    settings: KafkaSection, tp: TopicPartition, begin: int = 0, since_ms: int | None = None
) -> AsyncGenerator[Any, None]:
    """Yield the committed records of a partition from an offset and a time (ms) on, up to the present end of the log.

    Records of aborted transactions are left out: a worker that was killed in its first transaction may start again.

    Raises
    ------
    BrokerUnavailableError
        No record came for 10 s.
    """
    async with reading(settings) as reader:
        reader.assign([tp])
        low = (await reader.beginning_offsets([tp]))[tp]
        high = (await reader.end_offsets([tp]))[tp]
        if since_ms is not None:
            later = (await reader.offsets_for_times({tp: since_ms}))[tp]
            low = high if later is None else later.offset
        reader.seek(tp, max(low, begin))
        deadline = time.monotonic() + READ_S
        while await reader.position(tp) < high:
            for records in (await reader.getmany(tp, timeout_ms=200, max_records=POLL_RECORDS)).values():
                for record in records:
                    if record.offset < high:
                        yield record
                deadline = time.monotonic() + READ_S
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{tp.topic}-{tp.partition}: cannot be read to its end for now")
