"""The records of a soak: made from their serial number alone, so that a judge knows each from its offset."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer

__all__ = ["MALFORMED_EVERY", "Feed", "is_malformed", "person_of", "record_of"]

MALFORMED_EVERY = 101
"""No multiple of the number of partitions: each of them gets malformed records."""
BURST_S = 0.02
YIELD_EVERY = 100
PEOPLE = 50_021


def person_of(serial: int) -> int:
    """Return the person of a record: each of `PEOPLE` comes as often as any other."""
    return serial * 7919 % PEOPLE


def is_malformed(serial: int) -> bool:
    """Return whether the record has a value that does not fit the policy."""
    return serial % MALFORMED_EVERY == MALFORMED_EVERY - 1


def record_of(serial: int) -> bytes:
    """Return the message of a record."""
    record: dict[str, Any] = {
        "who": f"person-{person_of(serial)}",
        "age": "unknown" if is_malformed(serial) else serial * 31 % 111,
        "income": serial * 977 % 100_000,
        "latitude": serial * 613 % 18_001 / 100 - 90,
        "longitude": serial * 389 % 36_001 / 100 - 180,
        "note": "x" * 40,
        "serial": serial,
    }
    return json.dumps(record).encode()


@dataclass
class Feed:
    """Sends records in turn over the partitions of a topic that holds no others.

    The record of serial number s is in partition s mod P at offset s div P: the producer keeps the order.
    """

    producer: AIOKafkaProducer
    topic: str
    partitions: int
    serial: int = 0

    async def put(self, count: int) -> None:
        """Send so many records."""
        for serial in range(self.serial, self.serial + count):
            await self.producer.send(self.topic, record_of(serial), partition=serial % self.partitions)
            if serial % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # so that readers of this process are not late
        self.serial += count

    async def keep_up(self, per_s: float, seconds: float, check: Callable[[], None]) -> None:
        """Send records at a fixed rate for so long; ``check`` is called often and may raise."""
        began, first = time.monotonic(), self.serial
        while (passed_s := time.monotonic() - began) < seconds:
            check()
            await self.put(max(0, round(passed_s * per_s) - (self.serial - first)))
            await asyncio.sleep(BURST_S)
        await self.producer.flush()
