"""When a worker's process collects cyclic garbage.

By default Python collects after 700 allocations of containers, and every poll of a consumer allocates thousands. What
is loaded at the start (modules, compiled kernels) is examined again and again, and nothing of it is ever garbage.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

__all__ = ["COLLECT_S", "spaced_collections"]

ALLOCATIONS = 50_000
"""Containers allocated and not freed, after which Python collects without being asked."""

COLLECT_S = 1.0
"""Time between two collections (s). The Kafka client leaves fetched data of about 1 MB in a reference cycle when a
partition is paused, which takes few allocations; so collections must not depend on their number alone."""


@asynccontextmanager
async def spaced_collections() -> AsyncIterator[None]:
    """Collect once a second while the context is open, and leave out what exists when it is entered.

    It changes the settings of the whole process, and restores them at the end. Enter it when modules are loaded and
    kernels compiled.

    Notes
    -----
    Cost: one full collection at the beginning (about 0.1 s), then one of some milliseconds each second.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()
        gc.set_threshold(*before)
        gc.unfreeze()


async def _collect() -> NoReturn:
    while True:
        await asyncio.sleep(COLLECT_S)
        gc.collect()
