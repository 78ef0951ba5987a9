"""Progress as operators see it: report, export, import."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from pydantic import BaseModel, ConfigDict, ValidationError

from shoal.errors import InputError
from shoal.kafka.cipher import MetadataCipher, UnreadableError
from shoal.kafka.client import admin
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.preflight import TopicLayout, partitions_of
from shoal.kafka.producer import TransactionalProducer, TransactionBatch
from shoal.kafka.startup import check_settled, committed, is_published_since
from shoal.pipeline import AdaptiveState
from shoal.policy import KafkaSection, Policy

__all__ = ["export_progress", "import_progress", "report_progress"]


class _Saved(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    partition: int
    offset: int
    metadata: str


class _Export(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    topic: str
    group: str
    partitions: list[_Saved]


async def report_progress(policy: Policy, settings: KafkaSection) -> list[dict[str, Any]]:
    """Per partition: watermark, next offset, held, clusters, last commit, whether policy and key are these ones."""
    seal = MetadataCipher.of(settings)
    async with admin(settings) as client:
        return [await _report(client, policy, settings, seal, one) for one in await _partitions(client, settings)]


async def _report(
    client: AIOKafkaAdminClient, policy: Policy, settings: KafkaSection, seal: MetadataCipher, partition: int
) -> dict[str, Any]:
    found = await committed(client, settings, partition)
    about: dict[str, Any] = {"partition": partition, "watermark": None, "held": None, "last_commit": None}
    if found is None:
        return about | {"state": "no progress"}
    about["watermark"] = found.offset
    try:
        commit = seal.decode(found.metadata or "", str(settings.input), partition, found.offset)
    except UnreadableError as error:
        return about | {"state": error.state}
    except InputError:
        return about | {"state": "broken or foreign metadata"}
    state = commit.snapshot
    return about | {
        "held": state.waiting,
        "last_commit": datetime.fromtimestamp(commit.at / 1000, UTC).isoformat(timespec="milliseconds"),
        "next_offset": state.next_offset,
        "clusters": state.clusters,
        **_course(commit, policy),
        "state": "draining" if state.drain is not None else "ok",
        "policy": "this" if commit.carries(policy.fingerprint) else "another",
        "key": "this" if seal.is_current(found.metadata or "") else "another",
    }


def _course(commit: CommittedState, policy: Policy) -> dict[str, Any]:
    """What decisions have moved since the beginning, where this policy lets them move something."""
    if not (commit.snapshot.course and commit.carries(policy.fingerprint)):
        return {}
    return AdaptiveState.from_bytes(commit.snapshot.course, policy).as_dict(policy)


async def export_progress(settings: KafkaSection) -> str:
    """Everything that is needed to bring the progress back, as JSON text.

    Metadata stand in it as they were committed: those that are encrypted stay so, and need their key on import.
    """
    async with admin(settings) as client:
        saved = []
        for partition in await _partitions(client, settings):
            found = await committed(client, settings, partition)
            if found is not None:
                saved.append(_Saved(partition=partition, offset=found.offset, metadata=found.metadata or ""))
    export = _Export(topic=str(settings.input), group=str(settings.group), partitions=saved)
    return export.model_dump_json(indent=1)


async def import_progress(text: str, policy: Policy, settings: KafkaSection) -> list[int]:
    """Commit exported progress and return the partitions it was committed for.

    Each partition is fenced first, so a worker that still runs stops; progress never goes back.

    Raises
    ------
    InputError
        The file is not an export of this topic, a partition has come further than the file says, or its output
        holds records that were published after the export.
    """
    try:
        export = _Export.model_validate_json(text)
    except ValidationError:
        raise InputError("this is no file that 'shoal progress --export' wrote") from None
    if export.topic != settings.input:
        raise InputError("the file holds progress of another topic than kafka.input")
    seal = MetadataCipher.of(settings)
    # Written for the group that was exported; what is committed is written for the group at hand.
    theirs = replace(seal, group=export.group)
    commits = [(one, theirs.decode(one.metadata, export.topic, one.partition, one.offset)) for one in export.partitions]
    async with admin(settings) as client:
        known = await _partitions(client, settings)
        for saved, commit in commits:
            if saved.partition not in known:
                raise InputError(f"{settings.input} has no partition {saved.partition}")
            await _import_one(client, policy, settings, seal, saved, commit)
    return [saved.partition for saved, _ in commits]


async def _import_one(
    client: AIOKafkaAdminClient,
    policy: Policy,
    settings: KafkaSection,
    seal: MetadataCipher,
    saved: _Saved,
    commit: CommittedState,
) -> None:
    publisher = TransactionalProducer(policy, settings, saved.partition, TopicLayout({}))
    where = f"{settings.input}-{saved.partition}"
    await publisher.open()
    try:
        found = await committed(client, settings, saved.partition)
        if found is not None and not _covers(saved, commit, found, settings, seal):
            raise InputError(
                f"{where}: the committed progress is ahead of the file: going back would publish records twice"
            )
        await check_settled(settings, TopicPartition(settings.output, saved.partition))
        if await is_published_since(settings, saved.partition, commit.at):
            raise InputError(
                f"{where}: {settings.output}-{saved.partition} holds records that were published after the export: "
                "going back would publish them twice; use a later export, or start with --skip-to-end"
            )
        metadata = seal.encode(commit, str(settings.input), saved.partition)
        await publisher.publish(TransactionBatch(), saved.offset, metadata, commit.at)
    finally:
        await publisher.close()


def _covers(
    saved: _Saved, commit: CommittedState, found: OffsetAndMetadata, settings: KafkaSection, seal: MetadataCipher
) -> bool:
    """Whether nothing that is resolved now would be open again. By offsets: the clocks of two workers may differ."""
    try:
        current = seal.decode(found.metadata or "", str(settings.input), saved.partition, found.offset)
    except UnreadableError:
        raise
    except InputError:
        # Broken or foreign metadata beside an offset says nothing of what was published.
        return True
    return commit.snapshot.covers(current.snapshot)


async def _partitions(client: AIOKafkaAdminClient, settings: KafkaSection) -> list[int]:
    found = await partitions_of(client)
    if settings.input not in found:
        raise InputError(f"kafka.input: topic {settings.input} does not exist or may not be seen")
    return found[settings.input]
