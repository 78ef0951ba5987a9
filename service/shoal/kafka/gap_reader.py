"""Whether anything stands between two records: a reader of our own tells.

Offsets have holes (marks of transactions, aborted records, compaction), so a gap alone says nothing. Taking a lost
record of the input for a hole would resolve it: it would never be released, in silence. Taking a hole in the output
for a record would accuse somebody who is not there.
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
"""Read on past the gap: an input with transactions has one gap for each, and one look then answers for many."""


@dataclass(slots=True)
class _Stretch:
    """All offsets from ``begin`` to before ``end`` that the reader sees."""

    begin: int
    end: int
    offsets: Int64Vector


@dataclass(slots=True)
class GapReader:
    """Tells which record is the next one to be seen from an offset on.

    Parameters
    ----------
    reader : AIOKafkaConsumer
        Started, without a group; nobody else reads with it. Its isolation level decides what is a record.
    """

    reader: AIOKafkaConsumer
    _known: dict[TopicPartition, _Stretch] = field(default_factory=dict)

    async def first(self, place: TopicPartition, offset: int) -> int | None:
        """Offset of the first record at ``offset`` or after it; None: there is none up to the present end.

        Raises
        ------
        BrokerUnavailableError
            The log cannot be read now.
        """
        known = self._known.get(place)
        if known is not None and known.begin <= offset < known.end:
            index = int(np.searchsorted(known.offsets, offset))
            if index < len(known.offsets):
                return int(known.offsets[index])
        found = await self._read(place, offset)
        if not len(found):
            return None
        self._known[place] = _Stretch(offset, int(found[-1]) + 1, found)
        return int(found[0])

    async def _read(self, place: TopicPartition, offset: int) -> Int64Vector:
        reader, deadline = self.reader, time.monotonic() + READ_S
        if reader.assignment() != {place}:
            reader.assign([place])
        end = (await reader.end_offsets([place]))[place]
        reader.seek(place, offset)
        while await reader.position(place) < end:
            records = (await reader.getmany(place, timeout_ms=100, max_records=READ_RECORDS)).get(place, [])
            if records:
                return np.fromiter((record.offset for record in records), np.int64, len(records))
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{place.topic}-{place.partition}: cannot be read to its end for now")
        return np.empty(0, np.int64)


async def first_record(settings: KafkaSection, place: TopicPartition, offset: int) -> int | None:
    """Offset of the first record at ``offset`` or after it, whether it is committed or not; None: there is none.

    Raises
    ------
    BrokerUnavailableError, aiokafka.errors.KafkaError
        The log cannot be read now.
    """
    async with reading(settings, isolation_level="read_uncommitted") as reader:
        return await GapReader(reader).first(place, offset)
