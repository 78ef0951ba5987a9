"""Where a partition of the output ends when a worker takes it over.

From there on the worker is the only writer. A record that it did not send is one of another group over the same topics,
which would publish every record a second time. Offsets show that whatever the clocks of the machines say.
"""

from __future__ import annotations

from aiokafka import TopicPartition

from shoal.errors import InputError
from shoal.kafka.client import log_bounds, reading
from shoal.kafka.gap_reader import GapReader
from shoal.kafka.not_opened import NotYetError, leader_answer
from shoal.kafka.offset_tracker import OffsetState
from shoal.policy import KafkaSection

__all__ = ["check_no_open_transaction", "check_no_other_writer", "check_no_record_after", "end_at_start"]


async def end_at_start(settings: KafkaSection, partition: int, state: OffsetState) -> int | None:
    """Return the offset in the output from which on this worker is the only writer; None without an output topic.

    Call it when earlier producers of the group are fenced, and before the output is checked for committed records: no
    record is missed between the two. While the group has released nothing, an open transaction can only be another
    group's, and its records count as after the start. Later they do not count: a transaction of the group that never
    ends (a fault of some brokers) would be mistaken for another group's at every start.
    """
    has_released = state.next_cluster_number > state.released_from
    return await _end(settings, partition, "read_uncommitted" if has_released else "read_committed")


async def check_no_open_transaction(settings: KafkaSection, partition: int) -> None:
    """Check that no open transaction hides records: a consumer of committed records stops at its first record.

    Raises
    ------
    NotYetError
        There is an open transaction, which the broker ends after its timeout; or the leader does not answer.
    """
    end, committed = [await _end(settings, partition, level) for level in ("read_uncommitted", "read_committed")]
    if end is not None and committed is not None and end > committed:
        raise NotYetError(
            f"{settings.output}-{partition}: an open transaction hides the records from offset {committed} on; waiting "
            "for its end"
        )


async def check_no_record_after(
    settings: KafkaSection, partition: int, offset: int | None, *, has_older: bool = False
) -> None:
    """Check that the output got no record from an offset on, where retention may have removed records.

    Parameters
    ----------
    settings : KafkaSection
        Of the pair of topics.
    partition : int
        Of input and output.
    offset : int or None
        Where the next record of the group would have been, as the copy of a commit says. None if it does not say it.
    has_older : bool
        The group has progress that is older than the copy.

    Raises
    ------
    InputError
        There are records after it; or that is not known: the copy does not say the offset, there is no output, the
        output was recreated, or retention removed what followed.
    NotYetError
        An open transaction hides records, or the leader of the output does not answer.
    """
    tp = TopicPartition(settings.output, partition)
    if settings.output is None:
        reason = "without an output topic nothing shows what followed the copy"
    elif offset is None:
        reason = f"the copy does not say where {tp.topic}-{tp.partition} ended"
    else:
        await check_no_open_transaction(settings, partition)
        async with reading(settings) as reader:
            log_start, log_end = await log_bounds(reader, tp)
            is_known = log_start <= offset <= log_end
            if is_known and await GapReader(reader).next_record_offset(tp, offset) is None:
                return
        shown = "holds records that were published after" if is_known else "no longer shows what followed"
        reason = f"{tp.topic}-{tp.partition} {shown} the copy (offset {offset})"
    found = (
        "the group's progress is older than its copy" if has_older else "only the copy of the group's progress is left"
    )
    raise InputError(
        f"{settings.input}-{partition}: {found}, and {reason}. Continuing could publish records twice. Import an "
        "export that was made before the loss, and after the last commit, with 'shoal progress POLICY --import FILE', "
        "or start with --skip-to-end to continue at the end and count the skipped offsets"
    )


async def check_no_other_writer(settings: KafkaSection, partition: int, offset: int | None) -> None:
    """Check that the output holds no committed record from the offset on at which it ended after a commit.

    The group and its copy hold the commit, so it should be the last one. Then such a record is one of another producer,
    whatever its timestamp is. An output that ends before the offset, or begins after it, shows no such record.

    Raises
    ------
    InputError
        There is such a record.
    """
    if settings.output is None or offset is None:
        return
    tp = TopicPartition(settings.output, partition)
    async with reading(settings) as reader:
        log_start, log_end = await log_bounds(reader, tp)
        if offset >= log_end:
            return
        if await GapReader(reader).next_record_offset(tp, max(offset, log_start)) is None:
            return
    raise InputError(
        f"{settings.input}-{partition}: {tp.topic}-{tp.partition} holds records that were published after the commit "
        f"(from offset {offset} on; a second group over the same topics? all topics restored from a backup?). "
        "Continuing could publish them a second time. Stop the other group, import the latest export with 'shoal "
        "progress POLICY --import FILE', or start with --skip-to-end to continue at the end and count the skipped "
        "offsets"
    )


async def _end(settings: KafkaSection, partition: int, isolation_level: str) -> int | None:
    if settings.output is None:
        return None
    tp = TopicPartition(settings.output, partition)
    async with reading(settings, isolation_level=isolation_level) as consumer, leader_answer(tp):
        return int((await consumer.end_offsets([tp]))[tp])
