"""Where a partition begins: fence, read the committed progress, judge it, or refuse in words that help.

Releasing a record twice is the one thing that must not happen, so every doubt ends in a refusal that names the
partition and the remedies; nothing is guessed.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka.connection import consumer
from shoal.kafka.metadata import Commit, decode, encode
from shoal.kafka.progress import Snapshot
from shoal.kafka.publisher import Outbox, Publisher
from shoal.policy import KafkaSection

__all__ = ["Start", "begin", "committed", "first_visible"]

READ_S = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """What the operator said: where a partition without progress begins, and what to do where it may not."""

    origin: Literal["earliest", "latest"] | None = None
    skip_to_end: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where to go on, where the log begins now, and how many offsets were left out on request."""

    commit: Commit
    low: int
    skipped: int = 0


async def committed(client: AIOKafkaAdminClient, settings: KafkaSection, partition: int) -> OffsetAndMetadata | None:
    """Committed offset and metadata of one partition, read until two answers agree.

    The producer has been fenced before: whatever transaction was open is ended. A classic group coordinator
    may still be writing its offsets down for a moment.
    """
    place = TopicPartition(settings.input, partition)
    previous: OffsetAndMetadata | None = None
    for _ in range(20):
        found = await client.list_consumer_group_offsets(str(settings.group), partitions=[place])
        answer = found.get(place)
        if answer is not None and answer == previous:
            break
        previous = answer
        await asyncio.sleep(0.01)
    return None if previous is None or previous.offset < 0 else previous


async def begin(
    client: AIOKafkaAdminClient,
    reader: AIOKafkaConsumer,
    publisher: Publisher,
    settings: KafkaSection,
    fingerprint: str,
    partition: int,
    start: Start,
) -> Beginning:
    """Judge the progress of a partition whose producer is open.

    Raises
    ------
    InputError
        It cannot be trusted, or there is none and nobody said where to begin.
    """
    place = TopicPartition(settings.input, partition)
    low = (await reader.beginning_offsets([place]))[place]
    high = (await reader.end_offsets([place]))[place]
    found = await committed(client, settings, partition)
    try:
        if found is not None:
            commit = decode(found.metadata or "", str(settings.input), partition, found.offset)
            _check_log(commit.snapshot, f"{settings.input}-{partition}", low, high)
            _check_policy(commit, fingerprint, f"{settings.input}-{partition}", drain=start.drain)
            return Beginning(commit, low)
        offset = await _first_offset(settings, partition, start, low, high)
        skipped = 0
    except InputError:
        if not start.skip_to_end:
            raise
        behind = low if found is None else min(found.offset, high)
        offset, skipped = high, high - behind
    now_ms = time.time_ns() // 1_000_000
    commit = Commit(Snapshot(watermark=offset, next_offset=offset), fingerprint, now_ms)
    # Alone in its transaction: if this commit is lost, nothing else was done.
    await publisher.publish(Outbox(), offset, encode(commit, str(settings.input), partition), now_ms)
    return Beginning(commit, low, skipped)


def _check_log(state: Snapshot, where: str, low: int, high: int) -> None:
    if low > state.watermark:
        raise InputError(
            f"{where}: the log begins at {low}, after the committed offset {state.watermark}: records that were "
            "never published are no longer retained; lengthen the topic's retention, and start with "
            "--skip-to-end to go on at the end and count the gap"
        )
    if high < state.next_offset:
        raise InputError(
            f"{where}: the log ends at {high}, before offset {state.next_offset} that was read already (topic made "
            "anew, or its log truncated): use another group and an empty output, or start with --skip-to-end"
        )


def _check_policy(commit: Commit, fingerprint: str, where: str, *, drain: bool) -> None:
    if commit.snapshot.drain is not None and not commit.carries(fingerprint) and not drain:
        raise InputError(
            f"{where}: the policy has changed while clusters that were decided on are not released yet: run "
            "'shoal run POLICY --drain' first, best with the policy as it was"
        )


async def _first_offset(settings: KafkaSection, partition: int, start: Start, low: int, high: int) -> int:
    where = f"{settings.input}-{partition}"
    visible = await first_visible(settings, str(settings.output), partition)
    if visible is not None:
        raise InputError(
            f"{where}: no progress is committed for group {settings.group}, but {settings.output}-{partition} holds "
            "records already: starting over would publish them a second time. Bring the progress back with "
            "'shoal progress POLICY --import FILE', or start with --skip-to-end, or use an empty output"
        )
    if start.origin is None:
        raise InputError(
            f"{where}: no progress is committed for group {settings.group}: say where to begin with --from earliest "
            "or --from latest"
        )
    return low if start.origin == "earliest" else high


async def first_visible(settings: KafkaSection, topic: str, partition: int) -> int | None:
    """Offset of the first record that a reader of committed data sees, or None.

    Aborted data and control records are no records: a worker killed inside its very first transaction may
    start again.
    """
    place = TopicPartition(topic, partition)
    reader = consumer(settings)
    await reader.start()
    try:
        reader.assign([place])
        low = (await reader.beginning_offsets([place]))[place]
        high = (await reader.end_offsets([place]))[place]
        reader.seek(place, low)
        deadline = time.monotonic() + READ_S
        while await reader.position(place) < high:
            for records in (await reader.getmany(place, timeout_ms=200, max_records=1)).values():
                return int(records[0].offset)
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{topic}-{partition}: cannot be read to its end for now")
    finally:
        await reader.stop()
    return None
