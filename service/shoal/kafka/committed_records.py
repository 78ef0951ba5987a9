"""Read the committed records of a partition up to the present end of its log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from aiokafka import TopicPartition

from shoal.errors import BrokerUnavailableError
from shoal.kafka.client import log_bounds, reading
from shoal.policy import KafkaSection

__all__ = ["read_committed_records"]

READ_TIMEOUT_S = 10.0
POLL_RECORDS = 500


async def read_committed_records(
    settings: KafkaSection, tp: TopicPartition, begin: int = 0, since_ms: int | None = None
) -> AsyncGenerator[Any, None]:
    """Yield the committed records of a partition from an offset and a time (ms) on, up to the present end of the log.

    Records of aborted transactions do not count: a worker that was killed in its first transaction can start again.

    Raises
    ------
    BrokerUnavailableError
        For 10 s neither a record arrived nor an aborted one was passed.
    """
    async with reading(settings) as consumer:
        consumer.assign([tp])
        log_start, log_end = await log_bounds(consumer, tp)
        if since_ms is not None:
            later = (await consumer.offsets_for_times({tp: since_ms}))[tp]
            log_start = log_end if later is None else later.offset
        consumer.seek(tp, max(log_start, begin))
        position, deadline = await consumer.position(tp), time.monotonic() + READ_TIMEOUT_S
        while position < log_end:
            for records in (await consumer.getmany(tp, timeout_ms=200, max_records=POLL_RECORDS)).values():
                for record in records:
                    if record.offset < log_end:
                        yield record
            # What was fetched is returned without a pause; heartbeats and other tasks must have theirs.
            await asyncio.sleep(0)
            before, position = position, await consumer.position(tp)
            if position > before:
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{tp.topic}-{tp.partition}: cannot be read to its end; trying again")
