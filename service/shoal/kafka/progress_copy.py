"""The copy of the progress: a private compacted topic (``kafka.progress_copy``) with the last commit of each partition.

Kafka deletes the offsets of a group that has no members for a while; the copy does not expire. One transaction carries
the commit of the group and its copy, so they differ only if one was changed or lost, or if workers ran without the
setting.

Key: group, input topic and partition, as a JSON array. Value: `CopiedCommit`, with a MAC or checksum over all of it.
Partition n of the input writes to partition n of the copy, so adding partitions moves no key.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

import msgspec
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import InputError
from shoal.kafka.client import NotYetError, asking, log_end
from shoal.kafka.logs import read_committed_records
from shoal.kafka.metadata import CommittedState, MetadataCipher
from shoal.kafka.offsets import log_truncated
from shoal.kafka.topics import ask_again_unless, topic_states
from shoal.policy import KafkaSection

FIRST_WINDOW_RECORDS = 1_000
"""Offsets that are searched first, from the end of the log; a partition that commits has its last copy there."""
WINDOW_GROWTH = 8
STABLE_S = 10.0
STABLE_POLL_S = 0.02


class CopiedCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a message of the copy."""

    offset: int
    metadata: str
    output: str | None
    output_end: int | None
    """Offset in the output after this transaction and its control record; None without an output, or if not known."""
    topic_id: str  # id of the input (hex); empty if the broker gives none
    tag: str  # see `MetadataCipher.tag`

    def tagged_bytes(self) -> bytes:
        """Return what the tag covers."""
        return f"{self.offset}\n{self.output or ''}\n{self.output_end}\n{self.topic_id}\n{self.metadata}".encode()


@dataclass(frozen=True, slots=True)
class ProgressCopy:
    """The messages of one input partition in the copy; ``topic_id`` is the input's (hex), empty if not known."""

    settings: KafkaSection
    partition: int
    cipher: MetadataCipher
    topic_id: str = ""

    @classmethod
    async def of(
        cls, client: AIOKafkaAdminClient, settings: KafkaSection, partition: int, cipher: MetadataCipher
    ) -> Self | None:
        """Return what reads and writes the copy of a partition; None if the settings name no copy."""
        if settings.progress_copy is None:
            return None
        source, target = str(settings.input), settings.progress_copy
        states = await ask_again_unless(
            lambda found: all(state.partition_count > partition for state in found.values()),
            lambda: topic_states(client, [source, target]),
        )
        if source not in states or target not in states:
            raise NotYetError(f"the broker does not describe {source} and {target} now; trying again")
        if states[source].partition_count <= partition:
            # Without the id of the input, a copy of an input that was recreated would be taken for one of this input.
            raise NotYetError(f"the broker does not describe {source}-{partition} now; trying again")
        if states[target].partition_count <= partition:
            raise InputError(
                f"kafka.progress_copy: topic {target} does not exist, may not be seen, or has no partition {partition}"
                ": create it, grant READ and WRITE on it in the ACLs, or add partitions"
            )
        return cls(settings, partition, cipher, states[source].topic_id.hex())

    @property
    def tp(self) -> TopicPartition:
        """Topic and partition of the copy."""
        return TopicPartition(self.settings.progress_copy, self.partition)

    @property
    def key(self) -> bytes:
        """Key of the messages of this partition."""
        return msgspec.json.encode([self.settings.group, self.settings.input, self.partition])

    def encode(self, offset: int, metadata: str, output_end: int | None) -> bytes:
        """Return the value of the message that copies a commit."""
        copied = CopiedCommit(offset, metadata, self.settings.output, output_end, self.topic_id, "")
        tag = self.cipher.tag(copied.tagged_bytes(), str(self.settings.input), self.partition)
        return msgspec.json.encode(msgspec.structs.replace(copied, tag=tag))

    def decode(self, copied: CopiedCommit) -> CommittedState:
        """Return the commit of a copy."""
        topic = str(self.settings.input)
        commit = self.cipher.decode(copied.metadata, topic, self.partition, copied.offset)
        if not self.cipher.has_tag(copied.tag, copied.metadata, copied.tagged_bytes(), topic, self.partition):
            raise self._broken()
        if self.topic_id and copied.topic_id and copied.topic_id != self.topic_id:
            name = f"{topic}-{self.partition}"
            raise log_truncated(name, f"the copy in {self.settings.progress_copy} has another topic id")
        return commit

    async def fetch(self) -> CopiedCommit | None:
        """Return the last committed copy of the partition; None if there is none. Earlier producers must be fenced.

        Raises `NotYetError` if open transactions hide it. Reads at most 8/7 of the log.
        """
        end, window = await self._stable_end(), FIRST_WINDOW_RECORDS
        while True:
            begin, last = max(0, end - window), None
            async with aclosing(read_committed_records(self.settings, self.tp, begin)) as records:
                async for record in records:
                    if record.key == self.key:
                        last = record
            if last is not None or begin == 0:
                return None if last is None or last.value is None else self._parse(last.value)
            window *= WINDOW_GROWTH

    async def first_partition_count(self) -> int | None:
        """Return the partition count at the first start, as the copy of partition 0 says; 0 or None if not known."""
        first = replace(self, partition=0)
        try:
            copied = await first.fetch()
            return None if copied is None else first.decode(copied).first_partition_count
        except InputError:
            return None  # the task of that partition refuses it

    async def _stable_end(self) -> int:
        """Return the end of the log as soon as no transaction is open before it."""
        async with asking(self.settings, "read_uncommitted") as reader:
            end = await log_end(reader, self.tp)
        deadline = time.monotonic() + STABLE_S
        async with asking(self.settings) as reader:
            while await log_end(reader, self.tp) < end:
                if time.monotonic() > deadline:
                    raise NotYetError(
                        f"{self.tp.topic}-{self.tp.partition}: an open transaction, of this or another group, hides "
                        "the copy of the progress; waiting for its end. If it does not end, find it with "
                        "'kafka-transactions.sh find-hanging' and end it with 'kafka-transactions.sh abort'",
                        state="hidden by an open transaction",
                    )
                await asyncio.sleep(STABLE_POLL_S)
        return end

    def _parse(self, value: bytes) -> CopiedCommit:
        try:
            return msgspec.json.decode(value, type=CopiedCommit)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._broken() from None

    def _broken(self) -> InputError:
        return InputError(
            f"{self.settings.input}-{self.partition}: its message in {self.tp.topic}-{self.tp.partition} is broken, or "
            "belongs to another group, topic or partition. Write it again with 'shoal progress POLICY --export FILE' "
            "and '--import FILE', or start with --skip-to-end"
        )


class Order(Enum):
    """How the commit in the copy compares with that of the group; the value is the word of `shoal progress`."""

    SAME = "same"
    NEWER = "newer"
    OLDER = "older"
    CONTRADICTS = "contradicts the group"


def order_of(copied: CommittedState, of_group: CommittedState) -> Order:
    """Return how a copied commit compares with the commit of the group, by what both have completed.

    Guarantee: a record that is completed in either commit is completed in the newer one, so continuing from it releases
    no record a second time. Where that holds for neither commit, they contradict each other.
    """
    # A start commits the same state once more: then only the place of the rows in the output differs.
    copied = replace(copied, output_rows=of_group.output_rows)
    if copied == of_group or _differ_only_in_policy(copied, of_group):
        return Order.SAME
    covers, is_covered = copied.state.covers(of_group.state), of_group.state.covers(copied.state)
    if covers == is_covered:
        if not covers or _rank(copied) == _rank(of_group):
            return Order.CONTRADICTS
        covers = _rank(copied) > _rank(of_group)
    return Order.NEWER if covers else Order.OLDER


def _differ_only_in_policy(one: CommittedState, other: CommittedState) -> bool:
    """Return whether a start under another policy has committed the progress of one of them as the other."""
    fingerprint = other.fingerprint
    return not one.has_policy(fingerprint) and one.under_policy(fingerprint) == other.under_policy(fingerprint)


def _rank(commit: CommittedState) -> tuple[int, int, bool, bool]:
    """Return what never becomes smaller from one commit to the next, as long as no further offset is completed."""
    state = commit.state
    return state.next_offset, commit.at_ms, state.flush_at_offset is not None, state.handed_over_uncommitted
