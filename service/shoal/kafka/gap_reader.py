"""Find out whether a gap between two offsets holds a record: a separate consumer reads the gap.

Control records (transaction markers), aborted records and compaction leave gaps, so a gap alone proves nothing. Two
mistakes must not happen. If a lost record of the input were taken for a gap, it would be completed and never released.
If a gap in the output were taken for a record, it would be reported as a second writer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from shoal.arrays import Int64Vector
from shoal.errors import BrokerUnavailableError
from shoal.kafka.client import reading
from shoal.policy import KafkaSection

__all__ = ["GapReader", "first_record"]

READ_S = 5.0
READ_RECORDS = 5_000
"""Records per read; more than one gap needs, because an input with transactions has many gaps."""


@dataclass(slots=True)
class _ReadRange:
    """All offsets from ``begin`` to before ``end`` at which there is a record."""

    begin: int
    end: int
    offsets: Int64Vector


@dataclass(slots=True)
class GapReader:
    """Finds the next record from an offset on.

    Parameters
    ----------
    reader : AIOKafkaConsumer
        Started, without a group, and used by nothing else. Its isolation level decides which records count.
    """

    reader: AIOKafkaConsumer
    _ranges: dict[TopicPartition, _ReadRange] = field(default_factory=dict)

    async def next_record_offset(self, tp: TopicPartition, offset: int) -> int | None:
        """Return the offset of the first record at ``offset`` or after it; None if there is none up to the log's end.

        Raises
        ------
        BrokerUnavailableError
            The log cannot be read now.
        """
        known = self._ranges.get(tp)
        if known is not None and known.begin <= offset < known.end:
            index = int(np.searchsorted(known.offsets, offset))
            if index < len(known.offsets):
                return int(known.offsets[index])
        found = await self._read(tp, offset)
        if not len(found):
            return None
        self._ranges[tp] = _ReadRange(offset, int(found[-1]) + 1, found)
        return int(found[0])

    async def _read(self, tp: TopicPartition, offset: int) -> Int64Vector:
        reader = self.reader
        if reader.assignment() != {tp}:
            reader.assign([tp])
        end = (await reader.end_offsets([tp]))[tp]
        reader.seek(tp, offset)
        position, deadline = offset, time.monotonic() + READ_S
        while position < end:
            records = (await reader.getmany(tp, timeout_ms=100, max_records=READ_RECORDS)).get(tp, [])
            if records:
                return np.fromiter((record.offset for record in records), np.int64, len(records))
            before, position = position, await reader.position(tp)
            if position > before:  # control records and aborted records were passed
                deadline = time.monotonic() + READ_S
            elif time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{tp.topic}-{tp.partition}: cannot be read to its end; trying again")
        return np.empty(0, np.int64)


async def first_record(settings: KafkaSection, tp: TopicPartition, offset: int) -> int | None:
    """Return the offset of the first record at ``offset`` or after it, committed or not; None if there is none.

    Raises
    ------
    BrokerUnavailableError, aiokafka.errors.KafkaError
        The log cannot be read now.
    """
    async with reading(settings, isolation_level="read_uncommitted") as reader:
        return await GapReader(reader).next_record_offset(tp, offset)
