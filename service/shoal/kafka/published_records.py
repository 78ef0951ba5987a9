"""What was published before a start: it decides whether a start would publish records a second time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from functools import partial

import msgspec
from aiokafka import TopicPartition

from shoal.errors import InputError
from shoal.kafka.client import log_bounds, reading
from shoal.kafka.committed_records import read_committed_records
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.output_rows import OutputRows
from shoal.kafka.producer import TransactionalProducer
from shoal.kafka.topic_pairs import has_several_inputs
from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = ["check_output_is_empty", "check_output_is_whole", "is_published_after", "latest_published"]

SEARCHING = "reading whether records of an input partition were published before"
TOLD_EVERY_S = 10.0
"""Time (s) between two lines of the log that say how far a search is."""

log = logger("kafka")

APPEND_TIME = 1
"""Timestamp type of a topic with ``message.timestamp.type=LogAppendTime``."""


async def check_output_is_empty(producer: TransactionalProducer, settings: KafkaSection, partition: int) -> None:
    """Refuse to begin without a commit if records of this partition were published before.

    Raises
    ------
    InputError
        There are committed records in the output partition, or evidence or cluster messages of this partition. (A Faust
        stage without an output topic writes only evidence and cluster messages.)

    Notes
    -----
    Without such a record, all that is committed is read, also of other partitions; the log says how far, every 10 s.
    Another check with the same producer reads what has been added.
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
                    "time. Import the committed offsets with 'shoal progress POLICY --import FILE', or start with "
                    "--skip-to-end to continue at the end and count the skipped offsets, or use an "
                    "empty output, if the old one is deleted"
                )


async def check_output_is_whole(producer: TransactionalProducer, settings: KafkaSection, partition: int) -> None:
    """Refuse to begin before records of the input if records of the output were deleted: they may be the same.

    Retention empties the output of a group that has no workers, and its offsets expire in the same time. Without an
    output, evidence and cluster messages count in its place.

    Raises
    ------
    InputError
        The log of the output partition does not begin at offset 0.
    """
    witnesses = [settings.output] if settings.output is not None else [settings.evidence, settings.clusters]
    for topic in witnesses:
        if topic is None or not (topic == settings.evidence or producer.is_only_writer(topic)):
            continue
        tp = producer.target(topic)
        async with reading(settings) as reader:
            log_start, _ = await log_bounds(reader, tp)
        if log_start > 0:
            raise InputError(
                f"{settings.input}-{partition}: group {settings.group} has no committed offset, and the records of "
                f"{tp.topic}-{tp.partition} before offset {log_start} were deleted (retention?). Starting over could "
                "publish them a second time. Import the committed offsets with 'shoal progress POLICY --import FILE', "
                "or start with --skip-to-end to continue at the end and count the skipped offsets, or with --from "
                "latest if the input is new to the group, or use a new topic in its place, if the deleted records are "
                "not of this input or no reader has kept them"
            )


def _is_about(inputs: Collection[str | None], partition: int | None, message: bytes | None) -> bool:
    """Return whether a message of a side topic is about one of these inputs (None: names none) and this partition.

    Without a partition, messages that are no JSON object are, too: this partition alone may write to theirs.
    """
    try:
        content = msgspec.json.decode(message or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return partition is None
    return content.get("topic") in inputs and partition in (None, content.get("partition"))


async def latest_published(settings: KafkaSection, partition: int) -> int:
    """Return the timestamp (ms) of the latest committed record in the output; -1 if there is none."""
    tp, latest = TopicPartition(settings.output, partition), -1
    if settings.output is None:
        return latest
    async with aclosing(read_committed_records(settings, tp, since_ms=time.time_ns() // 1_000_000)) as records:
        async for record in records:
            latest = max(latest, record.timestamp)
    return latest


async def is_published_after(settings: KafkaSection, partition: int, commit: CommittedState) -> bool:
    """Return whether the output holds records that were published after a commit; False without an output.

    The commit says where its own rows are in the output. If more records follow there than it has rows, some are later.
    Commits of older versions do not say it, and then the time of the commit decides alone.
    """
    output, rows = settings.output, commit.output_rows
    if output is None:
        return False
    if rows is not None and rows.are_in(output) and await _has_more_than(settings, partition, rows):
        return True
    return await _is_published_since(settings, partition, commit.at_ms)


async def _has_more_than(settings: KafkaSection, partition: int, rows: OutputRows) -> bool:
    """Return whether the output holds more committed records than these rows from the first of them on.

    An output that ends earlier (recreated, or records lost by brokers) holds none of them.
    """
    tp, count = TopicPartition(settings.output, partition), 0
    async with aclosing(read_committed_records(settings, tp, rows.first_offset)) as records:
        async for _ in records:
            count += 1
            if count > rows.count:
                return True
    return False


async def _is_published_since(settings: KafkaSection, partition: int, at_ms: int) -> bool:
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
