"""Log lines while an answer of a broker is awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from shoal.observability import logger

__all__ = ["TELL_EVERY_S", "meanwhile", "telling"]

TELL_EVERY_S = 9.0
"""Time between two lines (s): nothing is silent for ten seconds."""

log = logger("kafka")


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine that does not end by itself, for the length of the context."""
    running = asyncio.create_task(work)
    try:
        yield
    finally:
        running.cancel()


def telling(event: str, **fields: object) -> AbstractAsyncContextManager[None]:
    """Log a warning at intervals, with these fields and the time since the start, for the length of the context."""
    return meanwhile(_tell(event, fields))


async def _tell(event: str, fields: dict[str, object]) -> None:
    began_s = time.monotonic()
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        log.warning(event, **fields, since_s=round(time.monotonic() - began_s, 3))
