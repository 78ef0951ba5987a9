"""The consumer position of a task: which messages it takes; and the check that the log is still the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.arrays import BoolVector
from shoal.kafka.classification import MAX_AHEAD_MS, Classification, Message, MessageColumns, classify_messages
from shoal.kafka.offset_metadata import span_limit
from shoal.kafka.offset_tracker import LogTruncatedError, OffsetState, OffsetTracker
from shoal.kafka.partition_counts import PartitionCounts
from shoal.observability import Metrics, logger
from shoal.pipeline import AdaptiveState, ClusterRestorer, PartitionPipeline
from shoal.policy import Policy
from shoal.records import Block, JsonDecoder, JsonEncoder, Reason, RecordFault, find_json_faults

__all__ = ["PartitionReader", "restore_pipeline"]

MAX_DESCRIBED_BYTES = 10_000
"""Longer messages are counted as rejected without the field at fault, so that they cost no time."""

TOLD_EVERY_MS = 10_000
"""Time (ms) between two lines of the log that say how many records were rejected as dated ahead."""

DATED_AHEAD = RecordFault("dated more than an hour ahead")
NO_VALUE = RecordFault("no value")
REJECTED_AS_AHEAD = "records rejected: dated more than an hour ahead of the clock of this machine"

log = logger("kafka")


def restore_pipeline(policy: Policy, state: OffsetState) -> PartitionPipeline:
    """Return the pipeline of a partition in the state of its last commit; incomplete records must still be read again.

    Raises
    ------
    InputError
        The committed adaptive state is not one of this policy.
    """
    return PartitionPipeline(
        policy,
        JsonEncoder(policy),
        max_offset_span=span_limit(policy),
        next_cluster_number=state.next_cluster_number,
        adaptive_state=AdaptiveState.from_bytes(state.adaptive_state, policy),
        restorer=ClusterRestorer(state.unfinished_clusters, state.released_up_to),
    )


class PartitionReader:
    """Takes messages in the order of the log, decodes, classifies and counts them. It changes no offset.

    Parameters
    ----------
    topic, partition : str, int
        Input topic and partition.
    decoder : JsonDecoder
        May be shared.
    pipeline : PartitionPipeline
        Applies the quota of each subject.
    state : OffsetState
        Of the commit from which the task continues.
    metrics : Metrics
        Count the messages that are read, those that do not fit the policy, and the values that a taxonomy lacks.
    counts : PartitionCounts
        What an earlier task of this process has read is not counted again.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        decoder: JsonDecoder,
        pipeline: PartitionPipeline,
        state: OffsetState,
        metrics: Metrics,
        counts: PartitionCounts,
    ) -> None:
        self._tp, self._name = (topic, partition), f"{topic}-{partition}"
        self._decoder, self._pipeline, self._metrics, self._counts = decoder, pipeline, metrics, counts
        self._has_taxonomy = any(attribute.taxonomy is not None for attribute in pipeline.policy.clustered)
        self.position = state.committed_offset
        """Offset from which the next message is taken."""
        self._begin, self._released_from, self._reference = (
            state.committed_offset,
            state.released_from,
            state.reference,
        )
        self._restored_until = state.next_offset
        self._untold_ahead_count, self._told_ahead_ms = 0, -TOLD_EVERY_MS

    @property
    def has_restored(self) -> bool:
        """Whether all messages that were read before the restored commit were read again."""
        return self.position >= self._restored_until

    def restore(self, log_start: int) -> bool:
        """Move the position back to where a restart must begin.

        Reading begins at the earliest of: the committed offset; the reference record, to check that the log is still
        the same; the start of the quota window, to count the records of each subject again.

        Parameters
        ----------
        log_start : int
            First offset of the log.

        Returns
        -------
        bool
            False: the log lost the start of the quota window, and the records of this window are suppressed.
        """
        if self._reference is not None and log_start <= self._reference.offset < self.position:
            self.position = self._reference.offset
        window = self._pipeline.quota_window_start(self._begin)
        if window is None:
            return True
        start = max(window, self._released_from)
        if start < log_start:
            self._pipeline.suppress_window(self._begin)
        self.position = min(self.position, max(start, log_start))
        return start >= log_start

    def new_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages from the position on. Messages below it are ignored."""
        if not messages or messages[0].offset >= self.position:
            return messages
        return [message for message in messages if message.offset >= self.position]

    def read(self, messages: Sequence[Message], tracker: OffsetTracker, now_ms: int) -> tuple[Block, Classification]:
        """Decode and classify a block of messages, and move the position behind it.

        Raises
        ------
        GuaranteeError
            The messages are out of order.
        LogTruncatedError
            The offset of the reference record holds a different record than before the restart.
        """
        columns = MessageColumns.of(messages)
        columns.check_order(self.position)
        self._check_reference(columns)
        block = self._decoder.decode([message.value for message in messages], messages)
        if self._has_taxonomy:
            first_new = max(tracker.next_offset, self._counts.read_until)
            is_new = (columns.offsets >= first_new) & (columns.timestamps <= now_ms + MAX_AHEAD_MS)
            self._count_unknown(block, is_new[block.index])
        block = self._pipeline.apply_quota(block, columns.offsets[block.index])
        self.position = messages[-1].offset + 1
        counted_until = self._counts.read_until
        classified = classify_messages(tracker, columns, block, self._begin, now_ms, counted_until)
        self._count_refusals(messages, block, classified)
        new = (rejection for rejection in classified.rejections if rejection.offset >= counted_until)
        self._count_ahead(sum(rejection.is_future for rejection in new), now_ms)
        self._metrics.records.labels("in", "", *self._tp).inc(classified.new_count)
        self._counts.read_until = max(counted_until, self.position)
        return block, classified

    def _count_unknown(self, block: Block, is_new: BoolVector) -> None:
        """Count the values that a taxonomy lacks, of records that are read for the first time."""
        counts = self._pipeline.count_unknown(block)
        if counts and not is_new.all():
            counts = self._pipeline.count_unknown(block.filter(is_new))
        self._metrics.count_unknown(*self._tp, counts)

    def _count_refusals(self, messages: Sequence[Message], block: Block, classified: Classification) -> None:
        """Count the messages that are rejected now. Those above a quota are not counted: they are suppressed."""
        for index, reason in block.rejected:
            is_new = messages[index].offset >= self._counts.read_until
            if is_new and reason is not Reason.SUPPRESSED and classified.is_open[index]:
                self._metrics.refusals.add(reason.value, _find_faults(self._pipeline.policy, messages[index].value))

    def _count_ahead(self, count: int, now_ms: int) -> None:
        """Count records that are rejected for their timestamps; the log says it at most every ten seconds."""
        if not count:
            return
        self._metrics.dated_ahead.labels(*self._tp).inc(count)
        self._metrics.refusals.add(Reason.INVALID.value, [DATED_AHEAD], count)
        self._untold_ahead_count += count
        if not 0 <= now_ms - self._told_ahead_ms < TOLD_EVERY_MS:
            log.warning(REJECTED_AS_AHEAD, partition=self._name, count=self._untold_ahead_count)
            self._untold_ahead_count, self._told_ahead_ms = 0, now_ms

    def _check_reference(self, columns: MessageColumns) -> None:
        """Compare the record at the offset of the reference record, when it is read, with that of the last commit."""
        reference = self._reference
        if reference is None or columns.offsets[-1] < reference.offset:
            return
        self._reference = None
        index = int(np.searchsorted(columns.offsets, reference.offset))
        if reference.is_contradicted(int(columns.offsets[index]), int(columns.timestamps[index])):
            raise LogTruncatedError.at_reference(self._name, reference)


def _find_faults(policy: Policy, value: bytes | None) -> list[RecordFault]:
    """Return what is wrong with a message; an empty list if that is not known."""
    if value is None:
        return [NO_VALUE]
    return [] if len(value) > MAX_DESCRIBED_BYTES else find_json_faults(policy, value)
