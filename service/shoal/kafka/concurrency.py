"""Coroutines that run together, pauses between attempts, and work in a thread that does not keep the process alive."""

from __future__ import annotations

import asyncio
import atexit
import random
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from shoal.kafka.client import task_exception, to_shoal_error
from shoal.process_end import end_process, register_compiling

__all__ = ["LONGEST_S", "backoff_s", "in_daemon_thread", "jittered", "until_all", "until_first"]

_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

LONGEST_S = _BACKOFF_S[-1]
"""Mean of the longest pause (s)."""

_random: Callable[[], float] = random.random
"""Returns numbers between 0 and 1; tests replace it."""


def jittered(mean_s: float) -> float:
    """Return a random pause (s), uniform between 0.5 and 1.5 times its mean.

    All workers of a group lose a broker at the same moment. With equal pauses they would also come back at the same
    moments, and a coordinator that restarts would get their requests at once.
    """
    return mean_s * (0.5 + _random())


def backoff_s(failures: int) -> float:
    """Return the pause (s) after this many failures before the present one: 0.1 s to 5 s on average."""
    return jittered(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])


async def until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run concurrently until one has ended, cancel the others, and end as the first did: normally or with its error."""
    running = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _stop(running)


async def until_all(*works: Coroutine[Any, Any, None], passing: type[BaseException]) -> None:
    """Run concurrently until all have ended or one has failed, and raise its error.

    An error of the class ``passing`` ends no other, and is raised only if there is no error of another class.
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
    """Cancel what still runs; raise the error of one that had ended, of the class ``last`` if there is no other."""
    ended = [one for one in running if one.done()]
    for one in running:
        one.cancel()
    await asyncio.wait(running)
    errors = [error for one in ended if (error := task_exception(one)) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, last)):
        raise error


EXIT_S = 5.0
"""How long the end of the process waits for a thread that was told to stop (s)."""


async def in_daemon_thread(
    work: Callable[[threading.Event], None], has_failed: Callable[[], bool] = lambda: False
) -> None:
    """Run ``work`` in a thread, so that the event loop continues while kernels compile.

    Parameters
    ----------
    work : callable
        It gets an event. The event is set when the caller is cancelled and the result is no longer needed.
    has_failed : callable
        Returns whether the process ends because of an error. It is called if the process ends before the work.

    Raises
    ------
    ShoalError
        The error of the work.

    Notes
    -----
    The compiler must not run while the process unloads its libraries (see `shoal.process_end`). A command of Shoal ends
    its process without unloading them. The end of any other process waits for the thread. A single step of the compiler
    can take longer than `EXIT_S`; then that process ends without unloading too. The exit code is then 1 after an error,
    and otherwise 0.
    """
    done, stop = Future[None](), threading.Event()
    done.set_running_or_notify_cancel()  # a cancelled caller does not cancel the work

    def run() -> None:
        try:
            work(stop)
        except BaseException as raised:  # noqa: BLE001 - raised again by the caller
            done.set_exception(to_shoal_error(raised))
        else:
            done.set_result(None)

    thread = threading.Thread(target=run, name="precompile", daemon=True)
    register_compiling(thread)
    thread.start()
    try:
        await asyncio.wrap_future(done)
    finally:
        if not done.done():
            stop.set()
            atexit.register(_wait_for, thread, has_failed)


def _wait_for(thread: threading.Thread, has_failed: Callable[[], bool]) -> None:
    thread.join(EXIT_S)
    if thread.is_alive():
        # The interpreter sets `last_value` when it prints an error that nothing caught.
        end_process(1 if has_failed() or hasattr(sys, "last_value") else 0)
