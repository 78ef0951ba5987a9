"""The commit from which a partition continues: that of the group, or its copy if the group's is missing or older."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.structs import OffsetAndMetadata

from shoal.errors import InputError
from shoal.kafka.cipher import MetadataCipher, UnreadableError
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.output_end import check_no_other_writer, check_no_record_after
from shoal.kafka.progress_copy import CopiedCommit, ProgressCopy
from shoal.kafka.progress_order import Order, order_of
from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = ["StaleCopyError", "check_copied_end", "decode_both", "newest_commit"]

log = logger("kafka")


class StaleCopyError(InputError):
    """The copy decides, and records may have been published after it.

    Attributes
    ----------
    committed_offset : int
        Of the copy.
    """

    def __init__(self, message: str, committed_offset: int) -> None:
        super().__init__(message)
        self.committed_offset = committed_offset


async def newest_commit(
    of_group: OffsetAndMetadata | None,
    copy: ProgressCopy | None,
    settings: KafkaSection,
    partition: int,
    cipher: MetadataCipher,
    acknowledged: Callable[[int], None] | None = None,
) -> CommittedState | None:
    """Return the commit from which a partition continues; None if there is none.

    Where group and copy agree, ``acknowledged`` is called with the offset at which the output ended, as the copy says.

    Raises
    ------
    StaleCopyError
        The copy is newer than the group's progress or all that is left, and the output shows, or cannot exclude, that
        records were published after it.
    InputError
        The commit of the group or its copy cannot be trusted, or they contradict each other, or another producer has
        written to the output.
    """
    if copy is None:
        return None if of_group is None else _decode(of_group, settings, partition, cipher)
    copied = await copy.fetch()
    commit, order = decode_both(of_group, copied, copy)
    if copied is not None:
        await check_copied_end(copy, copied, order, has_older=of_group is not None)
    if order is Order.SAME and copied is not None and acknowledged is not None:
        end = _output_end(copy, copied)
        acknowledged(0 if end is None else end)
    if order is Order.NEWER and copied is not None:
        event = "the group has no progress, or older progress than its copy: continuing from the copy"
        log.warning(event, topic=settings.input, partition=partition, watermark=copied.offset)
    elif order is Order.OLDER:
        event = "the copy of the progress is missing or older: writing it again"
        log.warning(event, topic=settings.input, partition=partition)
    return commit


async def check_copied_end(copy: ProgressCopy, copied: CopiedCommit, order: Order, *, has_older: bool) -> None:
    """Compare where the output ended, as a copy says, with the output. A copy older than the group says nothing.

    Raises
    ------
    StaleCopyError
        The copy is newer, and records may have been published after it.
    InputError
        It agrees with the group, and another producer has written to the output.
    """
    settings, partition, end = copy.settings, copy.partition, _output_end(copy, copied)
    if order is Order.SAME:
        await check_no_other_writer(settings, partition, end)
    elif order is Order.NEWER:
        try:
            await check_no_record_after(settings, partition, end, has_older=has_older)
        except InputError as error:
            raise StaleCopyError(str(error), copied.offset) from None


def _output_end(copy: ProgressCopy, copied: CopiedCommit) -> int | None:
    """Return where the output ended; None if the copy does not say it, or was written for another output."""
    return copied.output_end if copied.output == copy.settings.output else None


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
