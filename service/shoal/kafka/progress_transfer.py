"""The command `shoal progress`: report, export and import the committed state of each partition."""

from __future__ import annotations

from contextlib import suppress
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
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.output_end import check_no_open_transaction
from shoal.kafka.preflight import TopicLayout, partitions_of
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.kafka.startup import is_published_since
from shoal.kafka.topic_pairs import has_several_inputs, settings_by_input
from shoal.pipeline import AdaptiveState
from shoal.policy import KafkaSection, Policy

__all__ = ["export_progress", "import_progress", "report_progress"]


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


def _adaptive_state(commit: CommittedState, policy: Policy) -> dict[str, Any]:
    """Return the adaptive state as plain values, if this policy has one."""
    if not (commit.state.adaptive_state and commit.has_policy(policy.fingerprint)):
        return {}
    return AdaptiveState.from_bytes(commit.state.adaptive_state, policy).as_dict(policy)


async def export_progress(settings: KafkaSection) -> str:
    """Return the committed offsets and metadata of all partitions as JSON text.

    Encrypted metadata stay encrypted; the import needs their key.
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
        if found is not None:
            saved.append(_SavedPartition(partition=partition, offset=found.offset, metadata=found.metadata or ""))
    return saved


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
    producer = TransactionalProducer(policy, settings, saved.partition, TopicLayout({}))
    partition_name = f"{settings.input}-{saved.partition}"
    await producer.open()
    try:
        found = await fetch_committed(client, settings, saved.partition)
        if found is not None and not _covers(saved, commit, found, settings, cipher):
            raise InputError(
                f"{partition_name}: the committed progress is ahead of the file. Going back would publish records twice"
            )
        await check_no_open_transaction(settings, saved.partition)
        if await is_published_since(settings, saved.partition, commit.at_ms):
            raise InputError(
                f"{partition_name}: {settings.output}-{saved.partition} holds records that were published after the "
                "export. Going back would publish them twice. Use a later export, or start with --skip-to-end"
            )
        metadata = cipher.encode(commit, str(settings.input), saved.partition)
        await producer.publish_and_commit(TransactionBatch(), saved.offset, metadata, commit.at_ms)
    finally:
        await producer.close()


def _covers(
    saved: _SavedPartition,
    commit: CommittedState,
    found: OffsetAndMetadata,
    settings: KafkaSection,
    cipher: MetadataCipher,
) -> bool:
    """Return whether every offset that is completed now is completed in the file, too.

    Compared by offsets, not by time: the clocks of two workers may differ.
    """
    try:
        current = cipher.decode(found.metadata or "", str(settings.input), saved.partition, found.offset)
    except UnreadableError:
        raise
    except InputError:
        # Invalid metadata say nothing about what was published.
        return True
    return commit.state.covers(current.state)


async def _partitions(client: AIOKafkaAdminClient, settings: KafkaSection) -> list[int]:
    found = await partitions_of(client)
    if settings.input not in found:
        raise InputError(f"{_field(settings)}: topic {settings.input} does not exist or may not be seen")
    return found[settings.input]


def _field(settings: KafkaSection) -> str:
    return "kafka.topics" if settings.topics else "kafka.input"
