"""The command `shoal progress`: a report of the committed state of each partition, exports and imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from pydantic import BaseModel, ConfigDict, ValidationError

from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka.checks import TopicLayout, partitions_of
from shoal.kafka.client import NotYetError, admin
from shoal.kafka.metadata import CommittedState, MetadataCipher
from shoal.kafka.offsets import ProgressError
from shoal.kafka.progress_copy import CopiedCommit, Order, ProgressCopy, order_of
from shoal.kafka.start import (
    check_copied_end,
    check_no_open_transaction,
    commit_alone,
    decode_both,
    decode_committed,
    end_at_start,
    fetch_committed,
    fetch_committed_again,
    is_published_after,
)
from shoal.kafka.topics import has_several_inputs, settings_by_input
from shoal.kafka.transactions import TransactionalProducer
from shoal.observability import logger
from shoal.policy import KafkaSection, Policy
from shoal.streams import AdaptiveState


async def report_progress(policy: Policy, settings: KafkaSection) -> list[dict[str, Any]]:
    """Return for each partition its committed state, and whether policy and key are those given."""
    cipher, is_named = MetadataCipher.of(settings), has_several_inputs(settings)
    async with admin(settings) as client:
        return [
            ({"topic": topic} if is_named else {}) | await _report(client, policy, of_topic, cipher, partition)
            for topic, of_topic in settings_by_input(settings).items()
            for partition in await input_partitions(client, of_topic)
        ]


async def _report(
    client: AIOKafkaAdminClient, policy: Policy, settings: KafkaSection, cipher: MetadataCipher, partition: int
) -> dict[str, Any]:
    copy = await ProgressCopy.of(client, settings, partition, cipher)
    if copy is None:
        found = await fetch_committed(client, settings, partition)
        return _report_group(policy, settings, cipher, partition, found)
    found, offset, word = await _compare(client, copy)
    return _report_group(policy, settings, cipher, partition, found) | {"copy": word, "copy_watermark": offset}


def _report_group(
    policy: Policy, settings: KafkaSection, cipher: MetadataCipher, partition: int, found: OffsetAndMetadata | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition": partition, "watermark": None, "held": None, "last_commit": None}
    if found is None:
        return fields | {"state": "no progress"}
    fields["watermark"] = found.offset
    try:
        commit = decode_committed(found, settings, partition, cipher)
    except ProgressError as error:
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


async def _compare(client: AIOKafkaAdminClient, copy: ProgressCopy) -> tuple[OffsetAndMetadata | None, int | None, str]:
    """Return the commit of the group, its copy's offset, and how they compare; the one behind is read once more."""
    offset, commit = await _fetch_copy(copy)
    found = await fetch_committed(client, copy.settings, copy.partition)
    word = _word(copy, commit, found)
    if word == Order.NEWER.value:
        found = await fetch_committed_again(client, copy.settings, copy.partition)
        has_passed = _word(copy, commit, found) == Order.OLDER.value
    elif word == Order.OLDER.value:
        offset, commit = await _fetch_copy(copy)
        has_passed = _word(copy, commit, found) == Order.NEWER.value
    else:
        return found, offset, word
    return found, offset, Order.SAME.value if has_passed else _word(copy, commit, found)


async def _fetch_copy(copy: ProgressCopy) -> tuple[int | None, CommittedState | str]:
    """Return offset and commit of the copy; in place of the commit, the word for why there is none to compare."""
    offset = None
    try:
        copied = await copy.fetch()
        if copied is None:
            return None, "missing"
        offset = copied.offset
        return offset, copy.decode(copied)
    except NotYetError as error:
        if not error.state:
            raise
        return None, error.state
    except ProgressError as error:
        return offset, error.state
    except InputError:
        return None, "broken or foreign"


def _word(copy: ProgressCopy, commit: CommittedState | str, found: OffsetAndMetadata | None) -> str:
    """Return the word of `shoal progress` for how a copy compares with the commit of the group."""
    if isinstance(commit, str):
        return commit
    if found is None:
        return Order.NEWER.value
    try:
        of_group = decode_committed(found, copy.settings, copy.partition, copy.cipher)
    except InputError:
        return "not comparable"
    return order_of(commit, of_group).value


def _adaptive_state(commit: CommittedState, policy: Policy) -> dict[str, Any]:
    """Return the adaptive state as plain values, if this policy has one."""
    if not (commit.state.adaptive_state and commit.has_policy(policy.fingerprint)):
        return {}
    return AdaptiveState.from_bytes(commit.state.adaptive_state, policy).as_dict(policy)


async def input_partitions(client: AIOKafkaAdminClient, settings: KafkaSection) -> list[int]:
    """Return the partitions of the input; raises `InputError` if it does not exist or may not be seen."""
    found = await partitions_of(client, [str(settings.input)])
    if settings.input not in found:
        raise InputError(
            f"{input_field(settings)}: topic {settings.input} does not exist or may not be seen; create it, or grant "
            "READ on it in the ACLs"
        )
    return found[settings.input]


def input_field(settings: KafkaSection) -> str:
    """Return the field of the policy that names the input."""
    return "kafka.topics" if settings.topics else "kafka.input"


log = logger("kafka")


class _Saved(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class _SavedPartition(_Saved):
    partition: int
    offset: int
    metadata: str


class _SavedTopic(_Saved):
    topic: str
    partitions: list[_SavedPartition]


class _Export(_Saved):
    """The progress of all inputs."""

    group: str
    topics: list[_SavedTopic]


class _ExportOfOne(_SavedTopic):
    """The progress of the only input."""

    group: str


async def export_progress(settings: KafkaSection) -> str:
    """Return the committed offsets and metadata of all partitions as JSON text; encrypted metadata stay encrypted.

    A newer copy is exported. Raises `InputError` if the two contradict each other, or records may have followed the
    copy.
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
    saved = [
        await _saved_partition(client, settings, partition) for partition in await input_partitions(client, settings)
    ]
    return [one for one in saved if one is not None]


async def _saved_partition(
    client: AIOKafkaAdminClient, settings: KafkaSection, partition: int
) -> _SavedPartition | None:
    """Return the progress of the group, or its copy, which is read first, if that is newer; None without progress."""
    copy = await ProgressCopy.of(client, settings, partition, MetadataCipher.of(settings))
    copied = None if copy is None else await _readable_copy(copy)
    found = await fetch_committed(client, settings, partition)
    if copy is not None and copied is not None and _is_newer(copy, copied, found):
        found = await fetch_committed_again(client, settings, partition)
        if _is_newer(copy, copied, found):
            await check_copied_end(copy, copied, Order.NEWER, has_older=found is not None)
            return _SavedPartition(partition=partition, offset=copied.offset, metadata=copied.metadata)
    if found is None:
        return None
    return _SavedPartition(partition=partition, offset=found.offset, metadata=found.metadata or "")


async def _readable_copy(copy: ProgressCopy) -> CopiedCommit | None:
    """Return the copy; None if there is none, or if it cannot be used, which is logged."""
    try:
        return await copy.fetch()
    except InputError as error:
        _warn_of_copy(copy, str(error))
        return None


def _warn_of_copy(copy: ProgressCopy, reason: str) -> None:
    event = "the copy of the progress cannot be used: exporting the progress of the group"
    log.warning(event, topic=copy.settings.input, partition=copy.partition, reason=reason)


def _is_newer(copy: ProgressCopy, copied: CopiedCommit, found: OffsetAndMetadata | None) -> bool:
    """Return whether the copy is newer than the progress of the group; no key is needed if they agree."""
    if found is not None and (found.offset, found.metadata) == (copied.offset, copied.metadata):
        return False
    try:
        copy.decode(copied)
    except InputError as error:
        if isinstance(error, ProgressError) and not error.is_of_another_log:
            raise
        _warn_of_copy(copy, str(error))
        return False
    return decode_both(found, copied, copy)[1] is Order.NEWER


def _read_export(text: str) -> _Export:
    for kind in (_Export, _ExportOfOne):
        with suppress(ValidationError):
            found = kind.model_validate_json(text)
            return found if isinstance(found, _Export) else _Export(group=found.group, topics=[found])
    raise InputError("this is no file that 'shoal progress --export' wrote")


async def import_progress(text: str, policy: Policy, settings: KafkaSection) -> dict[str, list[int]]:
    """Commit an export and return the partitions for which it was committed, by their topic.

    All partitions are checked first, then fenced and checked again. Guarantee: no completed offset becomes incomplete.
    """
    export, of_topics = _read_export(text), settings_by_input(settings)
    if any(saved.topic not in of_topics for saved in export.topics):
        raise InputError(f"the file holds progress of another topic than {input_field(settings)}")
    cipher = MetadataCipher.of(settings)
    # Metadata were encrypted for the exported group, and are encrypted again for the group of the settings.
    exported = replace(cipher, group=export.group)
    commits = [
        (of_topics[saved.topic], one, exported.decode(one.metadata, saved.topic, one.partition, one.offset))
        for saved in export.topics
        for one in saved.partitions
    ]
    async with admin(settings) as client:
        known = {saved.topic: await input_partitions(client, of_topics[saved.topic]) for saved in export.topics}
        imports: list[_Import] = []
        for of_topic, one, commit in commits:
            if one.partition not in known[str(of_topic.input)]:
                raise InputError(f"{of_topic.input} has no partition {one.partition}")
            copy = await ProgressCopy.of(client, of_topic, one.partition, cipher)
            imports.append(_Import(client, of_topic, cipher, copy, one.partition, commit))
            # What a transaction of a running worker hides is checked after the fencing.
            with suppress(BrokerUnavailableError):
                await imports[-1].check()
        for checked in imports:
            await checked.carry_out(policy)
    return {saved.topic: [one.partition for one in saved.partitions] for saved in export.topics}


@dataclass(frozen=True, slots=True)
class _Import:
    """The commit of one partition in a file, and what it may replace."""

    client: AIOKafkaAdminClient
    settings: KafkaSection
    cipher: MetadataCipher
    copy: ProgressCopy | None
    partition: int
    commit: CommittedState

    async def carry_out(self, policy: Policy) -> None:
        """Fence the partition, check again, and commit; raises as `check`."""
        settings, partition, commit = self.settings, self.partition, self.commit
        producer = TransactionalProducer(policy, settings, partition, TopicLayout({}), copy=self.copy)
        try:
            await producer.open()
            await self.check()
            if self.copy is not None:
                producer.expect_output_from(await end_at_start(settings, partition, commit.state))
            await commit_alone(producer, self.cipher, TopicPartition(str(settings.input), partition), commit)
        finally:
            await producer.close()

    async def check(self) -> None:
        """Check that the commit of a file may replace what is committed; read only."""
        settings, partition = self.settings, self.partition
        await self._check_current()
        await check_no_open_transaction(settings, partition)
        if await is_published_after(settings, partition, self.commit):
            raise InputError(
                f"{settings.input}-{partition}: {settings.output}-{partition} holds records that were published after "
                "the export. Going back would publish them twice. Use a later export, or start with --skip-to-end"
            )

    async def _check_current(self) -> None:
        """Check that the commit takes back nothing of the group and its copy, and does not confirm an old copy.

        They are compared by offsets: clocks may differ. A file as old as the copy must not be followed by records.
        """
        copy, partition, topic = self.copy, self.partition, str(self.settings.input)
        found = await fetch_committed(self.client, self.settings, partition)
        of_group = copied = in_copy = None
        with _leaving_out_invalid():
            if found is not None:
                of_group = decode_committed(found, self.settings, partition, self.cipher)
        with _leaving_out_invalid():
            copied = None if copy is None else await copy.fetch()
            in_copy = None if copy is None or copied is None else copy.decode(copied)
        for current in (of_group, in_copy):
            if current is not None and not self.commit.state.covers(current.state):
                raise InputError(
                    f"{topic}-{partition}: the committed progress is ahead of the file. Going back would publish "
                    "records twice"
                )
        if copy is not None and copied is not None and in_copy is not None and in_copy.state.covers(self.commit.state):
            order = Order.NEWER if of_group is None else order_of(in_copy, of_group)
            await check_copied_end(copy, copied, order, has_older=of_group is not None)


@contextmanager
def _leaving_out_invalid() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        if isinstance(error, ProgressError) and not error.is_of_another_log:
            raise
