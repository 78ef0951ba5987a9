"""Where a partition begins: fence, read the committed progress, judge it, or refuse in words that help.

Releasing a record twice is the one thing that must not happen, so every doubt ends in a refusal that names the
partition and the remedies; nothing is guessed.
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

MANY_ANSWERS = 20
SILENCE_S = 5.0
LATE_S = 1.0
READ_S = 10.0
POLL_RECORDS = 500
APPEND_TIME = 1
"""Type of a timestamp that the broker gave (``message.timestamp.type=LogAppendTime``)."""


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What the operator said: where a partition without progress begins, and what to do where it may not."""

    origin: Literal["earliest", "latest"] | None = None
    skip_to_end: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where to go on, where the log begins and ends now, and how many offsets were left out if that was asked for.

    ``is_first``: there was no progress, and nothing was published.
    """

    commit: CommittedState
    low: int
    high: int
    skipped: int | None = None
    is_first: bool = False


async def committed(client: AIOKafkaAdminClient, settings: KafkaSection, partition: int) -> OffsetAndMetadata | None:
    """Committed offset and metadata of one partition, read until two answers agree; None if there is none.

    The producer has been fenced before: whatever transaction was open is ended. A classic group coordinator
    may still be writing its offsets down for a moment.

    Raises
    ------
    BrokerUnavailableError
        The coordinator did not say. Silence is not the answer that there is no progress.
    """
    place = TopicPartition(settings.input, partition)
    answer: OffsetAndMetadata | None = None
    silent_s = 0.0
    for number in itertools.count():
        previous, answer = answer, await _told(client, settings, place)
        if answer is not None and (answer == previous or number > MANY_ANSWERS):
            return None if answer.offset < 0 else answer
        if answer is None and silent_s >= SILENCE_S:
            break
        silent_s += 0.0 if answer is not None else 0.1
        await asyncio.sleep(0.01 if answer is not None else 0.1)
    words = f"the coordinator of group {settings.group} does not tell its progress for now"
    raise BrokerUnavailableError(f"{settings.input}-{partition}: {words}")


async def _told(client: AIOKafkaAdminClient, settings: KafkaSection, place: TopicPartition) -> OffsetAndMetadata | None:
    """What the coordinator says: an offset of -1 for no progress; None where it does not answer for this partition."""
    try:
        found = await client.list_consumer_group_offsets(str(settings.group), partitions=[place])
    except kafka_errors.KafkaError as error:
        # A cluster without any group yet makes its coordinator now; others move and load.
        if not error.retriable:
            raise
        return None
    answer: OffsetAndMetadata | None = found.get(place)
    return answer


async def initialize_partition(
    client: AIOKafkaAdminClient,
    reader: AIOKafkaConsumer,
    publisher: TransactionalProducer,
    settings: KafkaSection,
    fingerprint: str,
    partition: int,
    start: StartOptions,
    seal: MetadataCipher,
) -> StartPosition:
    """Judge the progress of a partition whose producer is open.

    Raises
    ------
    InputError
        It cannot be trusted, or there is none and nobody said where to begin.
    """
    place, where = TopicPartition(settings.input, partition), f"{settings.input}-{partition}"
    low = (await reader.beginning_offsets([place]))[place]
    high = (await reader.end_offsets([place]))[place]
    found = await committed(client, settings, partition)
    try:
        if found is not None:
            commit = seal.decode(found.metadata or "", str(settings.input), partition, found.offset)
            _check_log(commit.snapshot, where, low, high)
            if start.skip_to_end:
                # Otherwise the lane sees it in the first record, and refuses; here it is not too late to skip.
                await _check_anchor(settings, commit.snapshot, place, low)
            _check_policy(commit, fingerprint, where, drain=start.drain)
            await _check_output(settings, partition, commit)
            return StartPosition(commit, low, high)
        offset = await _first_offset(publisher, settings, partition, start, low, high)
        skipped = None
    except InputError as refusal:
        if await _committed_offset_changed(client, settings, partition, found):
            return await initialize_partition(client, reader, publisher, settings, fingerprint, partition, start, seal)
        if not start.skip_to_end:
            raise
        if found is None or found.offset > high or isinstance(refusal, LogTruncatedError):
            offset, skipped = high, high - low
        else:
            offset, skipped = high, high - found.offset
    now_ms = time.time_ns() // 1_000_000
    if skipped is not None:
        # A worker whose clock was ahead may have published: later starts compare with that.
        now_ms = max(now_ms, await _latest_published(settings, partition))
    # What was released before a skip is not known.
    origin = offset if skipped is None else 0
    # There are never more clusters than offsets before them: no number is given twice, whatever progress was lost.
    state = OffsetState(watermark=offset, next_offset=offset, origin=origin, clusters=offset)
    commit = CommittedState(state, fingerprint, now_ms)
    # Alone in its transaction: if this commit is lost, nothing else was done.
    await publisher.publish(TransactionBatch(), offset, seal.encode(commit, str(settings.input), partition), now_ms)
    return StartPosition(commit, low, high, skipped, is_first=skipped is None)


async def _committed_offset_changed(
    client: AIOKafkaAdminClient, settings: KafkaSection, partition: int, found: OffsetAndMetadata | None
) -> bool:
    """Whether the coordinator, under load, told an older commit than the last: its output was there before it."""
    await asyncio.sleep(LATE_S)
    return await committed(client, settings, partition) != found


def _check_log(state: OffsetState, where: str, low: int, high: int) -> None:
    if low > state.watermark:
        raise InputError(
            f"{where}: the log begins at {low}, after the committed offset {state.watermark}: records that were "
            "never published are no longer retained; lengthen the topic's retention, and start with "
            "--skip-to-end to go on at the end and count the gap"
        )
    if high < state.next_offset:
        raise LogTruncatedError(
            where, f"the log ends at {high}, before offset {state.next_offset} that was read already"
        )


async def _check_anchor(settings: KafkaSection, state: OffsetState, place: TopicPartition, low: int) -> None:
    """Compare the record at the anchor with the one that stood there, where it is still retained."""
    anchor = state.anchor
    if anchor is None or anchor.offset < low:
        return
    async with aclosing(read_committed_records(settings, place, anchor.offset)) as records:
        async for record in records:
            if anchor.is_contradicted(record.offset, record.timestamp):
                words = f"another record stands at offset {anchor.offset} than before"
                raise LogTruncatedError(f"{place.topic}-{place.partition}", words)
            return


def _check_policy(commit: CommittedState, fingerprint: str, where: str, *, drain: bool) -> None:
    if commit.snapshot.promised and not commit.carries(fingerprint):
        raise InputError(
            f"{where}: the policy has changed while clusters of which a part has left are still to be completed: run "
            "'shoal run POLICY --drain' with the policy as it was first"
        )
    if commit.snapshot.drain is not None and not commit.carries(fingerprint) and not drain:
        raise InputError(
            f"{where}: the policy has changed while clusters that were decided on are not released yet: run "
            "'shoal run POLICY --drain' first, best with the policy as it was"
        )
    if commit.snapshot.shown and not commit.carries(fingerprint):
        raise InputError(
            f"{where}: the policy has changed while clusters may be in use that are not committed (a worker with a "
            "stage was killed): others of the same records would be released. Run the worker once more with the policy "
            "as it was, until it has caught up, and end it in an orderly way; or start with --skip-to-end to go on at "
            "the end and count the gap"
        )


async def _check_output(settings: KafkaSection, partition: int, commit: CommittedState) -> None:
    """See that this is the last commit: an older one that was put back would release what left since then again."""
    if settings.output is not None and await is_published_since(settings, partition, commit.at):
        raise InputError(
            f"{settings.input}-{partition}: {settings.output}-{partition} holds records that were published after the "
            "committed progress (put back by another tool, or from an old copy?): going on would publish them a second "
            "time. Bring the latest progress back with 'shoal progress POLICY --import FILE', or start with "
            "--skip-to-end to go on at the end and count the gap"
        )


async def check_unpublished(publisher: TransactionalProducer, settings: KafkaSection, partition: int) -> None:
    """Refuse to begin without progress where somebody has published already.

    Raises
    ------
    InputError
        A reader of committed data can see records in the output partition, or what is told of clusters of this
        partition of the input: a stage that hands clusters over leaves nothing else behind.
    """
    traces = [(settings.output, False), (settings.evidence, True), (settings.clusters, False)]
    for topic, tells_partition in traces:
        # Evidence says of which partition it is; of the others one partition tells only if it has one writer.
        if topic is None or not (tells_partition or publisher.is_alone_in(topic)):
            continue
        async with aclosing(read_committed_records(settings, publisher.place_in(topic))) as records:
            async for record in records:
                if tells_partition and not _is_of(record.value, partition):
                    continue
                place = publisher.place_in(topic)
                raise InputError(
                    f"{settings.input}-{partition}: no progress is committed for group {settings.group}, but "
                    f"{place.topic}-{place.partition} holds records already: starting over would publish them a second "
                    "time. Bring the progress back with 'shoal progress POLICY --import FILE', or start with "
                    "--skip-to-end to go on at the end and count the gap, or use an empty output"
                )


def _is_of(evidence: bytes | None, partition: int) -> bool:
    """Whether a line of evidence is of this partition; of what is no evidence nobody knows."""
    try:
        found = msgspec.json.decode(evidence or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return isinstance(found, dict) and found.get("partition") == partition


async def _latest_published(settings: KafkaSection, partition: int) -> int:
    """Time (ms) of the latest record that the output shows; -1 if it shows none."""
    place, latest = TopicPartition(settings.output, partition), -1
    if settings.output is None:
        return latest
    async with aclosing(read_committed_records(settings, place, since_ms=time.time_ns() // 1_000_000)) as records:
        async for record in records:
            latest = max(latest, record.timestamp)
    return latest


async def _first_offset(
    publisher: TransactionalProducer, settings: KafkaSection, partition: int, start: StartOptions, low: int, high: int
) -> int:
    where = f"{settings.input}-{partition}"
    if settings.output is not None:
        await check_settled(settings, TopicPartition(settings.output, partition))
    await check_unpublished(publisher, settings, partition)
    if start.origin is None:
        raise InputError(
            f"{where}: no progress is committed for group {settings.group}: say where to begin with --from earliest "
            "or --from latest (in an app: start=), bring it back with 'shoal progress POLICY --import FILE', or start "
            "with --skip-to-end (skip_to_end=True)"
        )
    return low if start.origin == "earliest" else high


async def check_settled(settings: KafkaSection, place: TopicPartition) -> None:
    """See that no open transaction hides from readers of committed data what stands behind it.

    Raises
    ------
    BrokerUnavailableError
        There is one. It ends by itself, at the latest with its timeout.
    """
    ends = []
    for isolation in ("read_uncommitted", "read_committed"):
        async with reading(settings, isolation_level=isolation) as reader:
            ends.append((await reader.end_offsets([place]))[place])
    if ends[0] > ends[1]:
        raise BrokerUnavailableError(
            f"{place.topic}-{place.partition}: an open transaction hides what stands behind offset {ends[1]}; waiting "
            "for its end"
        )


async def is_published_since(settings: KafkaSection, partition: int, at_ms: int) -> bool:
    """Whether the output shows records of a later commit: they carry its time, floored to the commit interval."""
    place = TopicPartition(settings.output, partition)
    async with aclosing(read_committed_records(settings, place, since_ms=at_ms + 1)) as records:
        async for record in records:
            # Where the broker puts its own time on records, those of the commit itself are later than it, too.
            slack = settings.transaction_timeout_ms if record.timestamp_type == APPEND_TIME else 0
            if record.timestamp > at_ms + slack:
                return True
    return False


async def read_committed_records(
    settings: KafkaSection, place: TopicPartition, begin: int = 0, since_ms: int | None = None
) -> AsyncGenerator[Any, None]:
    """Records that a reader of committed data sees up to the present end, from an offset and a time on.

    Aborted data and control records are no records: a worker killed inside its very first transaction may
    start again.
    """
    async with reading(settings) as reader:
        reader.assign([place])
        low = (await reader.beginning_offsets([place]))[place]
        high = (await reader.end_offsets([place]))[place]
        if since_ms is not None:
            later = (await reader.offsets_for_times({place: since_ms}))[place]
            low = high if later is None else later.offset
        reader.seek(place, max(low, begin))
        deadline = time.monotonic() + READ_S
        while await reader.position(place) < high:
            for records in (await reader.getmany(place, timeout_ms=200, max_records=POLL_RECORDS)).values():
                for record in records:
                    if record.offset < high:
                        yield record
                deadline = time.monotonic() + READ_S
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{place.topic}-{place.partition}: cannot be read to its end for now")
