"""Log lines while an answer of a broker is awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.observability import logger

__all__ = ["TELL_EVERY_S", "telling"]

TELL_EVERY_S = 9.0
"""Time between two lines (s): nothing is silent for ten seconds."""

log = logger("kafka")


@asynccontextmanager
async def telling(event: str, **fields: object) -> AsyncIterator[None]:
    """Log a warning at intervals, with these fields and the time since the start, for the length of the context."""
    teller = asyncio.create_task(_tell(event, fields))
    try:
        yield
    finally:
        teller.cancel()


async def _tell(event: str, fields: dict[str, object]) -> None:
    began_s = time.monotonic()
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        log.warning(event, **fields, since_s=round(time.monotonic() - began_s, 3))
