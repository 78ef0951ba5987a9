"""Compare a commit with the log of the input and with the policy, before a partition continues from it."""

from __future__ import annotations

from contextlib import aclosing

from aiokafka import TopicPartition

from shoal.errors import InputError
from shoal.kafka.committed_records import read_committed_records
from shoal.kafka.offset_metadata import CommittedState
from shoal.kafka.offset_tracker import LogTruncatedError, OffsetState
from shoal.policy import KafkaSection

__all__ = ["check_log", "check_policy", "check_reference"]


def check_log(state: OffsetState, partition_name: str, log_start: int, log_end: int) -> None:
    """Refuse a commit of another log, or one whose records were deleted before they were published."""
    if log_start > state.committed_offset:
        raise InputError(
            f"{partition_name}: the log begins at {log_start}, after the committed offset {state.committed_offset}. "
            "Records that were never published are no longer retained. Lengthen the retention of the topic, and start "
            "with --skip-to-end to continue at the end and count the skipped offsets"
        )
    if log_end < state.next_offset:
        raise LogTruncatedError(
            partition_name, f"the log ends at {log_end}, before offset {state.next_offset}, up to which it was read"
        )


async def check_reference(settings: KafkaSection, state: OffsetState, tp: TopicPartition, log_start: int) -> None:
    """Compare the record at the offset of the reference record, if it is retained, with the one at the last commit."""
    reference = state.reference
    if reference is None or reference.offset < log_start:
        return
    async with aclosing(read_committed_records(settings, tp, reference.offset)) as records:
        async for record in records:
            if reference.is_contradicted(record.offset, record.timestamp):
                raise LogTruncatedError.at_reference(f"{tp.topic}-{tp.partition}", reference)
            return


def check_policy(commit: CommittedState, fingerprint: str, partition_name: str, *, drain: bool) -> None:
    """Refuse a changed policy where it could publish records in other clusters than those decided before."""
    if commit.state.unfinished_clusters and not commit.has_policy(fingerprint):
        raise InputError(
            f"{partition_name}: the policy has changed while partly released clusters are still to be completed. Run "
            "'shoal run POLICY --drain' with the old policy first"
        )
    if commit.state.flush_at_offset is not None and not commit.has_policy(fingerprint) and not drain:
        raise InputError(
            f"{partition_name}: the policy has changed while a flush that was decided is not done. Run "
            "'shoal run POLICY --drain' first, preferably with the old policy"
        )
    if commit.state.handed_over_uncommitted and not commit.has_policy(fingerprint):
        raise InputError(
            f"{partition_name}: the policy has changed while a Faust stage may have received clusters that are not "
            "committed (its worker was killed). The new policy could release the same records in different clusters. "
            "Run the worker with the old policy until it has caught up, and stop it with SIGTERM; or start with "
            "--skip-to-end to continue at the end and count the skipped offsets"
        )
