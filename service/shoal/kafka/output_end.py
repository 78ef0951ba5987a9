"""Where a partition of the output ends when a worker takes it over.

From there on the worker is the only writer. A record that it did not send is one of another group over the same topics,
which would publish every record a second time. Offsets show that whatever the clocks of the machines say.
"""

from __future__ import annotations

from aiokafka import TopicPartition

from shoal.errors import BrokerUnavailableError
from shoal.kafka.client import reading
from shoal.kafka.offset_tracker import OffsetState
from shoal.policy import KafkaSection

__all__ = ["check_no_open_transaction", "end_at_start"]


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
    BrokerUnavailableError
        There is an open transaction. The broker ends it after its timeout.
    """
    end, committed = [await _end(settings, partition, level) for level in ("read_uncommitted", "read_committed")]
    if end is not None and committed is not None and end > committed:
        raise BrokerUnavailableError(
            f"{settings.output}-{partition}: an open transaction hides the records from offset {committed} on; waiting "
            "for its end"
        )


async def _end(settings: KafkaSection, partition: int, isolation_level: str) -> int | None:
    if settings.output is None:
        return None
    tp = TopicPartition(settings.output, partition)
    async with reading(settings, isolation_level=isolation_level) as consumer:
        return int((await consumer.end_offsets([tp]))[tp])
