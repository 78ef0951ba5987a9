"""Runs coroutines together: the end of one, or its error, ends the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from shoal.kafka.client import task_exception

__all__ = ["until_all", "until_first"]


async def until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run concurrently until one has ended, cancel the others, and end as the first did.

    Raises
    ------
    Exception
        The error of the first that ended.
    """
    running = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _stop(running)


async def until_all(*works: Coroutine[Any, Any, None], passing: type[BaseException]) -> None:
    """Run concurrently until all have ended or one has failed; an error of the class ``passing`` ends no other.

    Raises
    ------
    Exception
        The error of one that had ended, one of another class than ``passing`` before one of this class.
    """
    running = [asyncio.create_task(work) for work in works]
    todo = set(running)
    try:
        while todo:
            ended, todo = await asyncio.wait(todo, return_when=asyncio.FIRST_COMPLETED)
            if not all(isinstance(task_exception(one), passing | None) for one in ended):
                break
    finally:
        await _stop(running, passing)


async def _stop(running: Sequence[asyncio.Task[None]], last: type[BaseException] | tuple[()] = ()) -> None:
    """Cancel the coroutines that still run; raise the error of one that had ended, of the class ``last`` at last."""
    ended = [one for one in running if one.done()]
    for one in running:
        one.cancel()
    await asyncio.wait(running)
    errors = [error for one in ended if (error := task_exception(one)) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, last)):
        raise error
