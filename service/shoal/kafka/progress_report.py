"""The report of `shoal progress`: the committed state of each partition, and how its copy compares with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from shoal.errors import InputError
from shoal.kafka.cipher import MetadataCipher, UnreadableError
from shoal.kafka.client import admin
from shoal.kafka.committed_offsets import fetch_committed, fetch_committed_again
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import LogTruncatedError
from shoal.kafka.preflight import partitions_of
from shoal.kafka.progress_copy import HiddenCopyError, ProgressCopy
from shoal.kafka.progress_order import Order, order_of
from shoal.kafka.topic_pairs import has_several_inputs, settings_by_input
from shoal.pipeline import AdaptiveState
from shoal.policy import KafkaSection, Policy

__all__ = ["input_field", "input_partitions", "report_progress"]


async def report_progress(policy: Policy, settings: KafkaSection) -> list[dict[str, Any]]:
    """Return for each partition its committed state, and whether policy and key are those given.

    Where there are several inputs, each is named as ``topic``.
    """
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


async def _compare(client: AIOKafkaAdminClient, copy: ProgressCopy) -> tuple[OffsetAndMetadata | None, int | None, str]:
    """Return the commit of the group, the offset of its copy, and the word for how they compare.

    A worker may commit between the two requests. So the one that is behind is read once more, and they count as the
    same if it is not behind then.
    """
    offset, commit = await _fetch_copy(copy)
    found = await fetch_committed(client, copy.settings, copy.partition)
    word = _word(copy, commit, found)
    if word == _WORDS[Order.NEWER]:
        found = await fetch_committed_again(client, copy.settings, copy.partition)
        has_passed = _word(copy, commit, found) == _WORDS[Order.OLDER]
    elif word == _WORDS[Order.OLDER]:
        offset, commit = await _fetch_copy(copy)
        has_passed = _word(copy, commit, found) == _WORDS[Order.NEWER]
    else:
        return found, offset, word
    return found, offset, _WORDS[Order.SAME] if has_passed else _word(copy, commit, found)


async def _fetch_copy(copy: ProgressCopy) -> tuple[int | None, CommittedState | str]:
    """Return offset and commit of the copy; in place of the commit, the word for why there is none to compare."""
    offset = None
    try:
        copied = await copy.fetch()
        if copied is None:
            return None, "missing"
        offset = copied.offset
        return offset, copy.decode(copied)
    except HiddenCopyError:
        return None, "hidden by an open transaction"
    except UnreadableError as error:
        return offset, error.state
    except LogTruncatedError:
        return offset, "of another topic id"
    except InputError:
        return None, "broken or foreign"


def _word(copy: ProgressCopy, commit: CommittedState | str, found: OffsetAndMetadata | None) -> str:
    """Return the word of `shoal progress` for how a copy compares with the commit of the group."""
    if isinstance(commit, str):
        return commit
    if found is None:
        return _WORDS[Order.NEWER]
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
