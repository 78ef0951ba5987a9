"""The commit from which a partition continues: that of the group, or its copy if the group's is missing or older."""

from __future__ import annotations

from aiokafka.structs import OffsetAndMetadata

from shoal.errors import InputError
from shoal.kafka.cipher import MetadataCipher, UnreadableError
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.output_end import check_no_record_after
from shoal.kafka.progress_copy import CopiedCommit, ProgressCopy
from shoal.kafka.progress_order import Order, order_of
from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = ["decode_both", "newest_commit"]

log = logger("kafka")


async def newest_commit(
    of_group: OffsetAndMetadata | None,
    copy: ProgressCopy | None,
    settings: KafkaSection,
    partition: int,
    cipher: MetadataCipher,
) -> CommittedState | None:
    """Return the commit from which a partition continues; None if there is none.

    Raises
    ------
    InputError
        The commit of the group or its copy cannot be trusted, or they contradict each other; or only the copy is left,
        and the output shows, or cannot exclude, that records were published after it.
    """
    if copy is None:
        return None if of_group is None else _decode(of_group, settings, partition, cipher)
    copied = await copy.fetch()
    commit, order = decode_both(of_group, copied, copy)
    if order is Order.NEWER and copied is not None:
        await check_no_record_after(settings, partition, copied.output_end)
        event = "the group has no progress, or older progress than its copy: continuing from the copy"
        log.warning(event, topic=settings.input, partition=partition, watermark=copied.offset)
    elif order is Order.OLDER:
        event = "the copy of the progress is missing or older: writing it again"
        log.warning(event, topic=settings.input, partition=partition)
    return commit


def decode_both(
    of_group: OffsetAndMetadata | None, copied: CopiedCommit | None, copy: ProgressCopy
) -> tuple[CommittedState | None, Order]:
    """Return the newer of two commits, and how the copied one compares; a missing one is older.

    Raises
    ------
    InputError
        One of them cannot be trusted, or they contradict each other.
    """
    settings, partition = copy.settings, copy.partition
    commit = None if copied is None else copy.decode(copied)
    try:
        known = None if of_group is None else _decode(of_group, settings, partition, copy.cipher)
    except UnreadableError:
        raise
    except InputError:
        if commit is None:
            raise
        raise InputError(
            f"{settings.input}-{partition}: the committed offset carries no progress that can be read (reset by "
            f"another tool?), but {settings.progress_copy} holds a copy. Delete the group's offset of this partition: "
            "the next start then continues from the copy. Or import an export with 'shoal progress POLICY --import "
            "FILE', or start with --skip-to-end"
        ) from None
    if commit is None or known is None:
        is_same = commit is None and known is None
        return commit or known, Order.SAME if is_same else Order.OLDER if commit is None else Order.NEWER
    order = order_of(commit, known)
    if order is Order.CONTRADICTS:
        raise InputError(
            f"{settings.input}-{partition}: the progress of group {settings.group} and its copy in "
            f"{settings.progress_copy} contradict each other: each has completed offsets that the other has not. "
            "Continuing from either could publish records twice. Import an export that is newer than both with "
            "'shoal progress POLICY --import FILE', or start with --skip-to-end to continue at the end and count the "
            "skipped offsets"
        )
    return (commit if order is Order.NEWER else known), order


def _decode(
    of_group: OffsetAndMetadata, settings: KafkaSection, partition: int, cipher: MetadataCipher
) -> CommittedState:
    return cipher.decode(of_group.metadata or "", str(settings.input), partition, of_group.offset)
