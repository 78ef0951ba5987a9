"""Work in a thread that does not keep the process alive."""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

from shoal.kafka.client import to_shoal_error
from shoal.process_end import end_process, register_compiling

__all__ = ["in_daemon_thread"]

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
