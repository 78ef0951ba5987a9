"""The first connection to a broker: how long it may take, and the log lines while it is awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = ["connection_timeout_ms", "telling"]

LONGEST_MS, SHORTEST_MS = 10_000, 1000
"""Limits of the time for one address (ms). A broker that answers does so much sooner."""
TELL_EVERY_S = 10.0

log = logger("kafka")


def connection_timeout_ms(settings: KafkaSection) -> int:
    """Return the time limit of one connection and of one request (ms).

    All addresses together take at most ``patience_s``, if that is at least a second for each: a broker that swallows
    packets is noticed by this time alone.
    """
    address_count = len(str(settings.bootstrap_servers).split(","))
    return int(max(SHORTEST_MS, min(LONGEST_MS, settings.patience_s * 1000 / address_count)))


@asynccontextmanager
async def telling(settings: KafkaSection) -> AsyncIterator[None]:
    """Log at intervals that the broker has not answered yet, for the length of the context."""
    teller = asyncio.create_task(_tell(settings))
    try:
        yield
    finally:
        teller.cancel()


async def _tell(settings: KafkaSection) -> None:
    began_s = time.monotonic()
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        passed_s = round(time.monotonic() - began_s, 3)
        log.warning("waiting for the broker", broker=settings.bootstrap_servers, since_s=passed_s)
