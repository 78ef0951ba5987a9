"""Work in a thread that does not keep the process alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from shoal.kafka.client import to_shoal_error

__all__ = ["in_daemon_thread"]


async def in_daemon_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread, so that the event loop continues while kernels compile.

    A caller that is cancelled does not stop the work: the compiler cannot be interrupted.

    Raises
    ------
    ShoalError
        The error of the work.
    """
    done = Future[None]()
    done.set_running_or_notify_cancel()  # a cancelled caller does not cancel the work

    def run() -> None:
        try:
            work()
        except BaseException as raised:  # noqa: BLE001 - raised again by the caller
            done.set_exception(to_shoal_error(raised))
        else:
            done.set_result(None)

    threading.Thread(target=run, name="precompile", daemon=True).start()
    await asyncio.wrap_future(done)
