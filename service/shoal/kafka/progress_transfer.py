"""The command `shoal progress`: report, export and import the committed state of each partition."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from pydantic import BaseModel, ConfigDict, ValidationError

from shoal.errors import InputError
from shoal.kafka.cipher import MetadataCipher, UnreadableError
from shoal.kafka.client import admin
from shoal.kafka.committed_offsets import fetch_committed
from shoal.kafka.newest_commit import check_copied_end, decode_both
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import LogTruncatedError
from shoal.kafka.output_end import check_no_open_transaction, end_at_start
from shoal.kafka.preflight import TopicLayout, partitions_of
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.kafka.progress_copy import CopiedCommit, HiddenCopyError, ProgressCopy
from shoal.kafka.progress_order import Order, order_of
from shoal.kafka.published_records import is_published_after
from shoal.kafka.topic_pairs import has_several_inputs, settings_by_input
from shoal.observability import logger
from shoal.pipeline import AdaptiveState
from shoal.policy import KafkaSection, Policy

__all__ = ["export_progress", "import_progress", "report_progress"]

log = logger("kafka")


class _SavedPartition(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    partition: int
    offset: int
    metadata: str


class _SavedTopic(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    topic: str
    partitions: list[_SavedPartition]


class _Export(BaseModel):
    """The progress of all inputs."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    group: str
    topics: list[_SavedTopic]


class _ExportOfOne(_SavedTopic):
    """The progress of the only input."""

    group: str


async def report_progress(policy: Policy, settings: KafkaSection) -> list[dict[str, Any]]:
    """Return for each partition its committed state, and whether policy and key are those given.

    Where there are several inputs, each is named as ``topic``.
    """
    cipher, is_named = MetadataCipher.of(settings), has_several_inputs(settings)
    async with admin(settings) as client:
        return [
            ({"topic": topic} if is_named else {}) | await _report(client, policy, of_topic, cipher, partition)
            for topic, of_topic in settings_by_input(settings).items()
            for partition in await _partitions(client, of_topic)
        ]


async def _report(
    client: AIOKafkaAdminClient, policy: Policy, settings: KafkaSection, cipher: MetadataCipher, partition: int
) -> dict[str, Any]:
    found = await fetch_committed(client, settings, partition)
    copied = await _copy_fields(client, settings, cipher, partition, found)
    return _report_group(policy, settings, cipher, partition, found) | copied


def _report_group(
    policy: Policy, settings: KafkaSection, cipher: MetadataCipher, partition: int, found: OffsetAndMetadata | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition": partition, "watermark": None, "held": None, "last_commit": None}
    if found is None:
        return fields | {"state": "no progress"}
    fields["watermark"] = found.offset
    try:
        commit = cipher.decode(found.metadata or "", str(settings.input), partition, found.offset)
    except UnreadableError as error:
        return fields | {"state": error.state}
    except InputError:
        return fields | {"state": "broken or foreign metadata"}
    state = commit.state
    return fields | {
        "held": state.waiting_count,
        "last_commit": datetime.fromtimestamp(commit.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "next_offset": state.next_offset,
        "clusters": state.next_cluster_number,
        **_adaptive_state(commit, policy),
        "state": "draining" if state.flush_at_offset is not None else "ok",
        "policy": "this" if commit.has_policy(policy.fingerprint) else "another",
        "key": "this" if cipher.is_current(found.metadata or "") else "another",
    }


async def _copy_fields(
    client: AIOKafkaAdminClient,
    settings: KafkaSection,
    cipher: MetadataCipher,
    partition: int,
    found: OffsetAndMetadata | None,
) -> dict[str, Any]:
    """Return how the copy of the progress compares with that of the group; nothing where there is no copy."""
    copy = await ProgressCopy.of(client, settings, partition, cipher)
    if copy is None:
        return {}
    try:
        copied = await copy.fetch()
        return {"copy": _copy_state(copy, copied, found), "copy_watermark": None if copied is None else copied.offset}
    except HiddenCopyError:
        return {"copy": "hidden by an open transaction", "copy_watermark": None}
    except InputError:
        return {"copy": "broken or foreign", "copy_watermark": None}


def _copy_state(copy: ProgressCopy, copied: CopiedCommit | None, found: OffsetAndMetadata | None) -> str:
    """Return the word of `shoal progress` for a copy."""
    if copied is None:
        return "missing"
    try:
        commit = copy.decode(copied)
    except UnreadableError as error:
        return error.state
    except LogTruncatedError:
        return "of another topic id"
    if found is None:
        return "newer"
    try:
        of_group = copy.cipher.decode(found.metadata or "", str(copy.settings.input), copy.partition, found.offset)
    except InputError:
        return "not comparable"
    return _WORDS[order_of(commit, of_group)]


def _adaptive_state(commit: CommittedState, policy: Policy) -> dict[str, Any]:
    """Return the adaptive state as plain values, if this policy has one."""
    if not (commit.state.adaptive_state and commit.has_policy(policy.fingerprint)):
        return {}
    return AdaptiveState.from_bytes(commit.state.adaptive_state, policy).as_dict(policy)


_WORDS = {
    Order.SAME: "same",
    Order.NEWER: "newer",
    Order.OLDER: "older",
    Order.CONTRADICTS: "contradicts the group",
}


async def export_progress(settings: KafkaSection) -> str:
    """Return the committed offsets and metadata of all partitions as JSON text.

    Encrypted metadata stay encrypted; the import needs their key. Where the group has no progress, or older progress
    than its copy, that of the copy is exported.

    Raises
    ------
    InputError
        The two contradict each other; or the copy is newer, and records may have been published after it.
    """
    async with admin(settings) as client:
        topics = [
            _SavedTopic(topic=topic, partitions=await _saved_partitions(client, of_topic))
            for topic, of_topic in settings_by_input(settings).items()
        ]
    export: BaseModel = _Export(group=str(settings.group), topics=topics)
    if not has_several_inputs(settings):
        export = _ExportOfOne(topic=topics[0].topic, group=str(settings.group), partitions=topics[0].partitions)
    return export.model_dump_json(indent=1)


async def _saved_partitions(client: AIOKafkaAdminClient, settings: KafkaSection) -> list[_SavedPartition]:
    saved = []
    for partition in await _partitions(client, settings):
        found = await fetch_committed(client, settings, partition)
        copied = await _newer_copy(client, settings, partition, found)
        if copied is not None:
            saved.append(_SavedPartition(partition=partition, offset=copied.offset, metadata=copied.metadata))
        elif found is not None:
            saved.append(_SavedPartition(partition=partition, offset=found.offset, metadata=found.metadata or ""))
    return saved


async def _newer_copy(
    client: AIOKafkaAdminClient, settings: KafkaSection, partition: int, found: OffsetAndMetadata | None
) -> CopiedCommit | None:
    """Return the copy of the progress if it is newer than the progress of the group; no key is needed if they agree."""
    copy = await ProgressCopy.of(client, settings, partition, MetadataCipher.of(settings))
    if copy is None:
        return None
    try:
        copied = await copy.fetch()
        if copied is None or (found is not None and (found.offset, found.metadata) == (copied.offset, copied.metadata)):
            return None
        copy.decode(copied)
    except UnreadableError:
        raise
    except InputError as error:
        event = "the copy of the progress cannot be used: exporting the progress of the group"
        log.warning(event, topic=settings.input, partition=partition, reason=str(error))
        return None
    _, order = decode_both(found, copied, copy)
    if order is not Order.NEWER:
        return None
    await check_copied_end(copy, copied, order, has_older=found is not None)
    return copied


def _read_export(text: str) -> _Export:
    for kind in (_Export, _ExportOfOne):
        with suppress(ValidationError):
            found = kind.model_validate_json(text)
            return found if isinstance(found, _Export) else _Export(group=found.group, topics=[found])
    raise InputError("this is no file that 'shoal progress --export' wrote")


async def import_progress(text: str, policy: Policy, settings: KafkaSection) -> dict[str, list[int]]:
    """Commit an export and return the partitions for which it was committed, by their topic.

    Each partition is fenced first, so that a running worker stops. No completed offset becomes incomplete again.

    Raises
    ------
    InputError
        The file is not an export of these topics, the committed state of a partition is ahead of the file, or the
        output holds records that were published after the export.
    """
    export, of_topics = _read_export(text), settings_by_input(settings)
    if any(saved.topic not in of_topics for saved in export.topics):
        raise InputError(f"the file holds progress of another topic than {_field(settings)}")
    cipher = MetadataCipher.of(settings)
    # Metadata were encrypted for the exported group, and are encrypted again for the group of the settings.
    exported = replace(cipher, group=export.group)
    commits = [
        (of_topics[saved.topic], one, exported.decode(one.metadata, saved.topic, one.partition, one.offset))
        for saved in export.topics
        for one in saved.partitions
    ]
    async with admin(settings) as client:
        known = {saved.topic: await _partitions(client, of_topics[saved.topic]) for saved in export.topics}
        for of_topic, one, commit in commits:
            if one.partition not in known[str(of_topic.input)]:
                raise InputError(f"{of_topic.input} has no partition {one.partition}")
            await _import_one(client, policy, of_topic, cipher, one, commit)
    return {saved.topic: [one.partition for one in saved.partitions] for saved in export.topics}


async def _import_one(
    client: AIOKafkaAdminClient,
    policy: Policy,
    settings: KafkaSection,
    cipher: MetadataCipher,
    saved: _SavedPartition,
    commit: CommittedState,
) -> None:
    copy = await ProgressCopy.of(client, settings, saved.partition, cipher)
    producer = TransactionalProducer(policy, settings, saved.partition, TopicLayout({}), copy=copy)
    partition_name = f"{settings.input}-{saved.partition}"
    await producer.open()
    try:
        await _check_current(client, settings, cipher, copy, saved.partition, commit)
        await check_no_open_transaction(settings, saved.partition)
        if await is_published_after(settings, saved.partition, commit):
            raise InputError(
                f"{partition_name}: {settings.output}-{saved.partition} holds records that were published after the "
                "export. Going back would publish them twice. Use a later export, or start with --skip-to-end"
            )
        if copy is not None:
            producer.expect_output_from(await end_at_start(settings, saved.partition, commit.state))
        metadata = cipher.encode(commit, str(settings.input), saved.partition)
        dated_ms = min(commit.at_ms, time.time_ns() // 1_000_000)
        await producer.publish_and_commit(TransactionBatch(), saved.offset, metadata, dated_ms)
    finally:
        await producer.close()


async def _check_current(
    client: AIOKafkaAdminClient,
    settings: KafkaSection,
    cipher: MetadataCipher,
    copy: ProgressCopy | None,
    partition: int,
    commit: CommittedState,
) -> None:
    """Check that the commit of a file takes back nothing of the group and its copy, and does not confirm an old copy.

    They are compared by offsets, not by time: the clocks of two workers may differ. A file that has completed no more
    than the copy is as old as the copy, so the output must not hold what followed the copy.

    Raises
    ------
    UnreadableError
        One of them was written under another key. (Invalid ones are left out: they say nothing about what was
        published.)
    InputError
        The file is behind one of them; or it is not ahead of the copy, and records may have been published after that.
    """
    found, topic = await fetch_committed(client, settings, partition), str(settings.input)
    of_group = copied = in_copy = None
    with _leaving_out_invalid():
        of_group = None if found is None else cipher.decode(found.metadata or "", topic, partition, found.offset)
    with _leaving_out_invalid():
        copied = None if copy is None else await copy.fetch()
        in_copy = None if copy is None or copied is None else copy.decode(copied)
    for current in (of_group, in_copy):
        if current is not None and not commit.state.covers(current.state):
            raise InputError(
                f"{topic}-{partition}: the committed progress is ahead of the file. Going back would publish records "
                "twice"
            )
    if copy is not None and copied is not None and in_copy is not None and in_copy.state.covers(commit.state):
        order = Order.NEWER if of_group is None else order_of(in_copy, of_group)
        await check_copied_end(copy, copied, order, has_older=of_group is not None)


@contextmanager
def _leaving_out_invalid() -> Iterator[None]:
    try:
        yield
    except UnreadableError:
        raise
    except InputError:
        pass


async def _partitions(client: AIOKafkaAdminClient, settings: KafkaSection) -> list[int]:
    found = await partitions_of(client)
    if settings.input not in found:
        raise InputError(
            f"{_field(settings)}: topic {settings.input} does not exist or may not be seen; create it, or grant READ "
            "on it in the ACLs"
        )
    return found[settings.input]


def _field(settings: KafkaSection) -> str:
    return "kafka.topics" if settings.topics else "kafka.input"
